// What a lock guards in this experiment: two stores in memory that processes share, one of which
// looks at fencing tokens.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

#include <distlock/base/clock.hpp>
#include <distlock/testing/history.hpp>

#include "support/interprocess_object.hpp"

/// One attempt to write, by an owner that held the lock when it last looked.
struct attempt {
    std::uint64_t fence = 0;
    distlock::clock::time_point granted{};  ///< after the grant, and before the owner's look
    distlock::clock::time_point ended{};    ///< the end of the lease, as the owner knew it after its look
    bool stopped = false;                   ///< between its look and its write
    bool released = false;  ///< whether unlock(), afterwards, said that the lock had been its own
};

/// Two stores that are written the same. One looks at fencing tokens, and the recorder has what it accepts; a
/// careless one accepts every write, and keeps it, in order.
class twin_stores {
  public:
    static constexpr std::size_t most = std::size_t{1} << 17U;

    /// Returns: what the careless one keeps, for the writer to complete; null when it is full.
    attempt* write(const attempt& a, distlock::testing::recorder& book) {
        const std::lock_guard guard(lock_);
        const bool accepted = a.fence >= highest_;
        highest_ = std::max(highest_, a.fence);
        refused_ += !accepted;
        book.wrote("fenced", a.fence, accepted);
        if (count_ == most) return nullptr;
        attempt& kept = careless_[count_++];
        kept = a;
        return &kept;
    }

    std::span<const attempt> careless() const { return {careless_.data(), count_}; }
    /// Returns: how many writes the one that looks did not accept.
    std::size_t refused() const { return refused_; }

  private:
    interprocess_mutex lock_;
    std::uint64_t highest_ = 0;
    std::size_t refused_ = 0;
    std::size_t count_ = 0;
    std::array<attempt, most> careless_;
};

/// What is wrong with the writes the careless store accepted. A write is stale when an owner that was granted
/// the lock later has written before it: found once by the times at which the owners had the lock, which owes
/// nothing to fencing tokens, and once by the tokens.
struct verdict {
    std::size_t stale = 0;           ///< by the times
    std::size_t stale_by_fence = 0;  ///< must find the same
    std::size_t stale_stopped = 0;   ///< of `stale`, those by owners that were stopped after their look
    std::size_t stale_released = 0;  ///< of `stale`, those whose unlock() freed a lock
    std::size_t by_stopped_owners = 0;

    explicit verdict(std::span<const attempt> accepted) {
        std::uint64_t highest = 0;
        distlock::clock::time_point latest{};
        for (const attempt& a : accepted) {
            const bool is_stale = latest >= a.ended;
            stale += is_stale;
            stale_by_fence += highest > a.fence;
            stale_stopped += is_stale && a.stopped;
            stale_released += is_stale && a.released;
            by_stopped_owners += a.stopped;
            highest = std::max(highest, a.fence);
            latest = std::max(latest, a.granted);
        }
    }
};
