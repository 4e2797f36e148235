// What a lock guards in this experiment: two stores in memory that processes share, one of which looks at fencing tokens.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

#include <distlock/base/clock.hpp>

#include "support/shared_object.hpp"

/// One attempt to write, by an owner that held the lock when it last looked.
struct attempt {
    std::uint64_t fence = 0;
    distlock::clock::time_point granted{};  ///< after the grant, and before the owner's look
    distlock::clock::time_point ended{};    ///< the end of the lease, as the owner knew it after its look
    bool stopped = false;                   ///< between its look and its write
    bool released = false;  ///< whether unlock(), afterwards, said that the lock had been its own
};

/// Accepts a write, or refuses it for its fencing token. Every accepted write is kept, in order.
class store {
  public:
    static constexpr std::size_t most = std::size_t{1} << 17U;

    explicit store(bool looks_at_fences) : looks_(looks_at_fences) {}

    /// Returns: the accepted write, for the writer to complete; null for one that was refused.
    attempt* write(const attempt& a) {
        if ((looks_ && a.fence < highest_) || count_ == most) return nullptr;
        highest_ = std::max(highest_, a.fence);
        attempt& kept = accepted_[count_++];
        kept = a;
        return &kept;
    }

    std::span<const attempt> accepted() const { return {accepted_.data(), count_}; }

  private:
    const bool looks_;
    std::uint64_t highest_ = 0;
    std::size_t count_ = 0;
    std::array<attempt, most> accepted_;
};

/// Two stores that are written the same.
struct twin_stores {
    store fenced{true};
    store careless{false};
    shared_mutex lock;

    /// Returns: what the careless one keeps; null when it is full.
    attempt* write(const attempt& a) {
        const std::lock_guard guard(lock);
        fenced.write(a);
        return careless.write(a);
    }
};

/// What is wrong with the writes a store accepted. A write is stale when an owner that was granted the lock later has
/// written before it: found once by the times at which the owners had the lock, which owes nothing to fencing tokens,
/// and once by the tokens.
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
