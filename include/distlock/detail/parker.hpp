// Where one thread sleeps until another one calls it, at the price of one system call for each.
//
//   class parker {
//     std::uint32_t word() const noexcept;
//     void rest() noexcept;                           // by the thread: the word is 0 again
//     void call(std::uint32_t word) noexcept;         // by another: never 0
//     void nudge(std::uint32_t word) noexcept;        // the same, unless there is a word already
//     void sleep(longest) noexcept;                   // by the thread: until there is a word, or for no reason
//   };
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#else
#include <algorithm>
#include <thread>
#endif

namespace distlock::detail {

/// Unlike a condition variable it needs no mutex, so that nobody is woken only to wait for one; and it may end as soon as its
/// thread has seen the word, even while call() has not returned: the system does not look at an address to wake.
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

    /// `longest`: none: no limit. Returns early when it likes.
    void sleep(std::optional<std::chrono::nanoseconds> longest) noexcept {
        if (word() != 0) return;
#ifdef __linux__
        timespec span{};
        if (longest) {
            const auto whole = std::chrono::duration_cast<std::chrono::seconds>(*longest);
            span = {static_cast<time_t>(whole.count()), static_cast<long>((*longest - whole).count())};
        }
        ::syscall(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, 0, longest ? &span : nullptr, nullptr, 0);
#else
        constexpr std::chrono::nanoseconds shortest = std::chrono::milliseconds{1};
        std::this_thread::sleep_for(std::min(longest.value_or(shortest), shortest));
#endif
    }

  private:
    static void wake([[maybe_unused]] const void* address) noexcept {
#ifdef __linux__
        ::syscall(SYS_futex, address, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
#endif
    }

    std::atomic<std::uint32_t> word_{0};
    static_assert(sizeof word_ == 4 && std::atomic<std::uint32_t>::is_always_lock_free);
};

}  // namespace distlock::detail
