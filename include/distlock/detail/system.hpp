// The system calls of all layers: the clock, random bits, process and host, signal masks, sleeping threads.
// Those of the optional modules, for descriptors and sockets, stand in system_io.hpp: the umbrella includes
// no header of sockets.
//
//   namespace on_linux, on_posix {  // one way each; without the namespace: this system's
//     std::chrono::nanoseconds clock_time();  // since some instant; counts suspension where the system does
//     std::ptrdiff_t random_bytes(void* into, std::size_t size);
//         // as getrandom(2): perhaps fewer; -1: see errno
//     process_id current_process();  // differs from a parent's
//     class parker {
//       std::uint32_t word() const noexcept;
//       void rest() noexcept;                               // by the thread: the word is 0 again
//       void call(std::uint32_t word) noexcept;             // by another: never 0
//       void nudge(std::uint32_t word) noexcept;            // the same, unless there is a word already
//       void sleep(longest) noexcept;  // by the thread: until there is a word, or for no reason
//     };
//   }
//   class own_process;  // tells the process that made an object from its children
//   int process_number();
//   std::string host_name();
//   class blocked_signals;
#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>

#include <distlock/detail/language.hpp>

// DISTLOCK_POSIX_ONLY is for tests: defined in every source file, it makes Linux do with what
// every POSIX system has.
#if defined(__linux__) && !defined(DISTLOCK_POSIX_ONLY)
#define DISTLOCK_ON_LINUX
#endif

// Windows has just enough here for what decides without I/O: base/, wire/, and the pure files of engine/.
// More of it compiles, but none of it was run there.
#ifdef _WIN32
#include <process.h>
// RtlGenRandom, without <windows.h>.
extern "C" unsigned char __stdcall SystemFunction036(void* into, unsigned long size);
#else
#include <pthread.h>
#include <signal.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>
#endif
#ifdef __APPLE__
#include <sys/random.h>
#endif
#ifdef DISTLOCK_ON_LINUX
#include <fcntl.h>
#include <linux/futex.h>
#include <new>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#endif

namespace distlock::detail {

/// Of one process of this machine, for comparison: its number and, above that, when it began. Where the
/// system opened no file to read that from, the number stands alone, and is compared alone.
struct process_id {
    static constexpr std::uint64_t numbers = 1 << 22;  // PID_MAX_LIMIT of Linux

    bool has_begin() const noexcept { return value >= numbers; }
    friend bool operator==(process_id a, process_id b) noexcept {
        if (a.has_begin() && b.has_begin()) return a.value == b.value;
        return a.value % numbers == b.value % numbers;
    }

    std::uint64_t value;
};

/// Returns: the number by which people know this process.
inline int process_number() noexcept {
#ifdef _WIN32
    return ::_getpid();
#else
    return ::getpid();
#endif
}

#ifndef _WIN32
/// A cast that some systems need; on the others it would be one that -Wuseless-cast speaks of.
template <class To, class From>
constexpr To cast_where_needed(From value) noexcept {
    if constexpr (std::is_same_v<To, From>) {
        return value;
    } else {
        return static_cast<To>(value);
    }
}

inline timespec timespec_of(std::chrono::nanoseconds span) noexcept {
    const auto whole = std::chrono::duration_cast<std::chrono::seconds>(span);
    return {cast_where_needed<time_t>(whole.count()), cast_where_needed<long>((span - whole).count())};
}

inline std::chrono::nanoseconds read_clock(clockid_t id) noexcept {
    timespec t{};
    ::clock_gettime(id, &t);
    return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}
#endif

namespace on_posix {

// macOS and FreeBSD count suspension on this one.
inline std::chrono::nanoseconds clock_time() noexcept {
#ifdef _WIN32
    return std::chrono::steady_clock::now().time_since_epoch();
#else
    return read_clock(CLOCK_MONOTONIC);
#endif
}

inline std::ptrdiff_t random_bytes(void* into, std::size_t size) noexcept {
    const std::size_t some = size < 256 ? size : 256;  // getentropy(3) gives no more at a time
#ifdef _WIN32
    if (::SystemFunction036(into, static_cast<unsigned long>(some)) == 0) return errno = EIO, -1;
#else
    if (::getentropy(into, some) != 0) return -1;
#endif
    return static_cast<std::ptrdiff_t>(some);
}

inline process_id current_process() noexcept { return {static_cast<std::uint64_t>(process_number())}; }

/// Where one thread sleeps until another one calls it. It may end as soon as its thread has seen the word,
/// even while call() has not returned: the word is written under the mutex, and the end waits for that.
class parker {
  public:
    parker() = default;
    parker(const parker&) = delete;
    parker& operator=(const parker&) = delete;
    ~parker() { const std::lock_guard last(mutex_); }

    std::uint32_t word() const noexcept { return word_.load(std::memory_order_acquire); }
    void rest() noexcept { word_.store(0, std::memory_order_relaxed); }

    void call(std::uint32_t word) noexcept {
        const std::lock_guard guard(mutex_);
        word_.store(word, std::memory_order_release);
        called_.notify_one();  // not after the mutex: this may be gone
    }
    void nudge(std::uint32_t word) noexcept {
        const std::lock_guard guard(mutex_);
        std::uint32_t none = 0;
        if (word_.compare_exchange_strong(none, word, std::memory_order_release)) called_.notify_one();
    }

    /// `longest`: none: no limit. Returns early when it likes.
    void sleep(std::optional<std::chrono::nanoseconds> longest) noexcept {
        std::unique_lock guard(mutex_);
        if (word() != 0) return;
        if (longest) {
            called_.wait_for(guard, *longest);
        } else {
            called_.wait(guard);
        }
    }

  private:
    std::mutex mutex_;
    std::condition_variable called_;
    std::atomic<std::uint32_t> word_{0};
};

}  // namespace on_posix

#ifdef DISTLOCK_ON_LINUX
namespace on_linux {

inline std::chrono::nanoseconds clock_time() noexcept { return read_clock(CLOCK_BOOTTIME); }

inline std::ptrdiff_t random_bytes(void* into, std::size_t size) noexcept {
    return ::getrandom(into, size, 0);
}

// A page the kernel empties in every child (madvise(2), MADV_WIPEONFORK), however the child was
// made. Null where the system has no such thing. It lives as long as the process: destructors of
// static objects ask, too.
inline std::atomic<process_id>* process_page() noexcept {
    static std::atomic<process_id>* const page = []() noexcept -> std::atomic<process_id>* {
#ifdef MADV_WIPEONFORK
        constexpr std::size_t size = 4096;
        void* const memory =
            ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) return nullptr;
        if (::madvise(memory, size, MADV_WIPEONFORK) == 0)
            return new (memory) std::atomic<process_id>(process_id{0});
        ::munmap(memory, size);
#endif
        return nullptr;
    }();
    return page;
}

// By its number and when it began (proc_pid_stat(5), the fields 1 and 22): a descendant may be given the
// number of a process that is gone. And by no count of ours: each shared library would have its own.
inline process_id identify_process() noexcept {
    const int file = ::open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (file < 0) return on_posix::current_process();
    std::array<char, 1024> text{};
    const ::ssize_t size = ::read(file, text.data(), text.size() - 1);
    ::close(file);
    const char* at = size < 0 ? nullptr : std::strrchr(text.data(), ')');  // a program may be called anything
    for (int field = 2; at != nullptr && field < 22; ++field) at = std::strchr(at + 1, ' ');
    if (at == nullptr) return on_posix::current_process();
    return {std::strtoull(at, nullptr, 10) * process_id::numbers + std::strtoull(text.data(), nullptr, 10)};
}

// Without a system call after the first time in each process: what a check on every call can afford.
inline process_id current_process() noexcept {
    std::atomic<process_id>* const page = process_page();
    if (page == nullptr) return on_posix::current_process();
    process_id known = page->load(std::memory_order_relaxed);
    if (known.value == 0) {
        const int before = errno;
        const process_id mine = identify_process();
        errno = before;
        if (page->compare_exchange_strong(known, mine, std::memory_order_relaxed)) known = mine;
    }
    return known;
}

/// The same at the price of one system call for each. Unlike a condition variable it needs no mutex, so that
/// nobody is woken only to wait for one; and it may end as soon as its thread has seen the word, even while
/// call() has not returned: the system does not look at an address to wake.
class parker {
  public:
    parker() = default;
    parker(const parker&) = delete;
    parker& operator=(const parker&) = delete;

    std::uint32_t word() const noexcept { return word_.load(std::memory_order_acquire); }
    void rest() noexcept { word_.store(0, std::memory_order_relaxed); }

    void call(std::uint32_t word) noexcept {
        auto* const address = &word_;
        address->store(word, std::memory_order_release);
        wake(address);
    }
    void nudge(std::uint32_t word) noexcept {
        std::uint32_t none = 0;
        if (word_.compare_exchange_strong(none, word, std::memory_order_release)) wake(&word_);
    }

    void sleep(std::optional<std::chrono::nanoseconds> longest) noexcept {
        if (word() != 0) return;
        timespec span{};
        if (longest) {
            span = timespec_of(*longest);
        }
        ::syscall(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, 0, longest ? &span : nullptr, nullptr, 0);
    }

  private:
    static void wake(const void* address) noexcept {
        ::syscall(SYS_futex, address, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    }

    std::atomic<std::uint32_t> word_{0};
    static_assert(sizeof word_ == 4 && std::atomic<std::uint32_t>::is_always_lock_free);
};

}  // namespace on_linux

namespace this_system = on_linux;
#else
namespace this_system = on_posix;
#endif

using this_system::clock_time;
using this_system::current_process;
using this_system::parker;
using this_system::random_bytes;

/// The process that made it.
class own_process {
  public:
    own_process() noexcept : id_(current_process()) {}

    /// Returns: whether this is another one, after fork().
    bool in_forked_child() const noexcept { return current_process() != id_; }

  private:
    process_id id_;
};

/// Returns: the name of the machine; empty when it has none.
inline std::string host_name() {
#ifdef _WIN32
    const char* const name = std::getenv("COMPUTERNAME");
    return name != nullptr ? name : "";
#else
    std::array<char, 256> name{};
    if (::gethostname(name.data(), name.size() - 1) != 0) return {};
    return name.data();
#endif
}

/// While it lives, the calling thread handles no signal but those of a crash. Windows has no
/// signals for threads.
class blocked_signals {
  public:
    blocked_signals(const blocked_signals&) = delete;
    blocked_signals& operator=(const blocked_signals&) = delete;
#ifdef _WIN32
    blocked_signals() {}
#else
    blocked_signals() {
        sigset_t all;
        sigfillset(&all);
        // A crash is for the program's handler, on whatever thread it happens.
        for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS})
            sigdelset(&all, fault);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~blocked_signals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  private:
    sigset_t before_{};
#endif
};

}  // namespace distlock::detail
