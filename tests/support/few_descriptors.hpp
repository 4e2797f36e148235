// A process that can open no more descriptors, or only some.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

/// While it lives this process can open so many descriptors more.
class few_descriptors {
  public:
    explicit few_descriptors(rlim_t left = 0) {
        ::getrlimit(RLIMIT_NOFILE, &before_);
        const int next = ::dup(0);
        ::close(next);
        const rlimit few{static_cast<rlim_t>(next) + left, before_.rlim_max};
        ::setrlimit(RLIMIT_NOFILE, &few);
    }
    few_descriptors(const few_descriptors&) = delete;
    few_descriptors& operator=(const few_descriptors&) = delete;
    ~few_descriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

  private:
    rlimit before_{};
};
