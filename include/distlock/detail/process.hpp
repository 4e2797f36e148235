// Which process this is, at the price of a load: what a check on every call can afford.
#pragma once

#include <atomic>
#include <new>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

namespace distlock::detail {

// A page the kernel empties in every child (madvise(2), MADV_WIPEONFORK), however the child was made. Null where the system
// has no such thing. It lives as long as the process: destructors of static objects ask, too.
inline std::atomic<pid_t>* process_page() noexcept {
    static std::atomic<pid_t>* const page = []() noexcept -> std::atomic<pid_t>* {
#ifdef MADV_WIPEONFORK
        constexpr std::size_t size = 4096;
        void* const memory =
            ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) return nullptr;
        if (::madvise(memory, size, MADV_WIPEONFORK) == 0) return new (memory) std::atomic<pid_t>(0);
        ::munmap(memory, size);
#endif
        return nullptr;
    }();
    return page;
}

/// Returns: getpid(), without a system call after the first time in each process.
inline pid_t current_process() noexcept {
    std::atomic<pid_t>* const page = process_page();
    if (page == nullptr) return ::getpid();
    pid_t known = page->load(std::memory_order_relaxed);
    if (known == 0) {
        known = ::getpid();
        page->store(known, std::memory_order_relaxed);
    }
    return known;
}

}  // namespace distlock::detail
