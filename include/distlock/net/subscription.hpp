// Being told that something happened on a channel of the server.
//
//   class subscription {
//     explicit subscription(std::string channel);
//     const std::string& channel() const noexcept;
//     std::uint64_t count() const noexcept;
//     template <class Clock> bool wait(std::uint64_t seen, time_point until, const std::stop_token&) noexcept;
//     void ring() noexcept;                          // by the connection
//   };
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/detail/pause.hpp>

namespace distlock {

/// Shared by the connection, which counts what it hears, and those who wait for it; it lasts as long as one of those has it.
/// Messages between two connections are lost on the server. So it also counts each time the server has confirmed it, at first
/// and after a broken connection: who looks after the count grew misses nothing. Thread-safe.
class subscription {
  public:
    explicit subscription(std::string channel) : channel_(std::move(channel)) {}

    const std::string& channel() const noexcept { return channel_; }

    /// Returns: how many messages and confirmations came; 0: it is not in force yet.
    std::uint64_t count() const noexcept {
        const std::lock_guard guard(lock_);
        return count_;
    }

    /// Effects: waits until the count is another than `seen`, Clock reaches `until`, or `stop` is requested.
    /// Returns: whether it is another.
    template <class Clock>
    bool wait(std::uint64_t seen, clock::time_point until, const std::stop_token& stop) {
        std::unique_lock guard(lock_);
        return detail::wait_until<Clock>(rung_, guard, stop, until, [&] { return count_ != seen; });
    }

    void ring() noexcept {
        {
            const std::lock_guard guard(lock_);
            ++count_;
        }
        rung_.notify_all();
    }

  private:
    const std::string channel_;
    mutable std::mutex lock_;
    std::condition_variable_any rung_;
    std::uint64_t count_ = 0;
};

}  // namespace distlock
