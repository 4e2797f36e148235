// Client processes: what they share, how they are started, and that none outlives the run or fails unseen.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <signal.h>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include "bench.hpp"

namespace bench {

/// `count` objects in memory that this process shares with the children it forks.
template <class T>
class shared_array {
  public:
    explicit shared_array(std::size_t count) : count_(count) {
        void* const place = ::mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (place == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "shared memory");
        // Default-initialised: the kernel's zeros stay, and no page is touched before it is needed.
        first_ = static_cast<T*>(place);
    }
    shared_array(const shared_array&) = delete;
    shared_array& operator=(const shared_array&) = delete;
    ~shared_array() { ::munmap(static_cast<void*>(first_), count_ * sizeof(T)); }

    std::size_t size() const noexcept { return count_; }
    T& operator[](std::size_t i) const noexcept { return first_[i]; }
    T* begin() const noexcept { return first_; }
    T* end() const noexcept { return first_ + count_; }

  private:
    T* first_;
    std::size_t count_;
};

/// Forked children. They are killed and reaped at the end of the scope; they die with this process, and by
/// themselves when they take too long. The parent must have no threads when it starts one.
class child_group {
  public:
    child_group() = default;
    child_group(const child_group&) = delete;
    child_group& operator=(const child_group&) = delete;
    ~child_group() {
        for (const child& c : children_) ::kill(c.pid, SIGKILL);
        for (const child& c : children_) {
            while (::waitpid(c.pid, nullptr, 0) < 0 && errno == EINTR) continue;
        }
    }

    template <class Body>
    void start(const std::string& name, Body body) {
        children_.reserve(children_.size() + 1);
        const pid_t parent = ::getpid();
        const pid_t pid = ::fork();
        if (pid < 0) throw std::system_error(errno, std::generic_category(), "fork");
        if (pid > 0) {
            children_.push_back({pid, name});
            return;
        }
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(1);
        ::alarm(longest_life);
        try {
            body();
        } catch (const std::exception& failed) {
            std::fprintf(stderr, "%s: %s\n", name.c_str(), failed.what());
            ::_exit(1);
        }
        ::_exit(0);  // what the parent has, destructors included, is the parent's
    }

    /// Throws: when a child has ended, but by itself and well.
    void check() {
        for (auto c = children_.begin(); c != children_.end();) {
            int status = 0;
            const pid_t ended = ::waitpid(c->pid, &status, WNOHANG);
            if (ended == 0) {
                ++c;
                continue;
            }
            const std::string name = c->name;
            c = children_.erase(c);
            if (ended < 0) throw std::runtime_error(name + " was lost");
            if (WIFSIGNALED(status))
                throw std::runtime_error(name + " was ended by signal " + std::to_string(WTERMSIG(status)));
            if (WEXITSTATUS(status) != 0) throw std::runtime_error(name + " failed");
        }
    }

    /// Effects: waits until `done`, and looks after the children meanwhile.
    template <class Condition>
    void wait_for(const char* what, nanoseconds limit, Condition done) {
        for (const auto deadline = now() + limit; !done(); pause(2ms)) {
            check();
            if (now() >= deadline)
                throw std::runtime_error(std::string("waited too long until ") + what +
                                         (children_.empty() ? "" : "; the first is " + children_[0].name));
        }
        check();
    }
    /// Effects: waits for an instant, and looks after the children meanwhile.
    void wait_until(nanoseconds instant) {
        while (now() < instant) {
            check();
            pause_until(std::min(instant, now() + 100ms));
        }
        check();
    }
    void wait_for_end(nanoseconds limit = 20s) {
        wait_for("all clients ended", limit, [&] {
            check();
            return children_.empty();
        });
    }

  private:
    static constexpr unsigned longest_life = 120;  // seconds
    struct child {
        pid_t pid;
        std::string name;
    };
    std::vector<child> children_;
};

}  // namespace bench
