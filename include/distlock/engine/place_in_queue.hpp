// Where a waiter stands in the queue, as the server said last, and what follows from how that has changed.
//
//   class place_in_queue {
//     bool move_to(const queue_place&, time_point sent, time_point now, std::uint64_t hearing);
//     void heard(); void watch();
//     const queue_place& now() const; clock::time_point said_at() const;
//     poll_conditions conditions(time_point now) const;
//   };
#pragma once

#include <cstdint>

#include <distlock/base/clock.hpp>
#include <distlock/engine/poll_interval.hpp>
#include <distlock/wire/outcome.hpp>

namespace distlock::engine {

/// Of one token.
class place_in_queue {
  public:
    /// `sent`: before the sending that was answered so. `hearing`: which subscription brings messages; 0:
    /// none does. Returns: whether a ticket that was there is gone, and nothing was heard of it though
    /// messages should have arrived.
    bool move_to(const queue_place& to, clock::time_point sent, clock::time_point now,
                 std::uint64_t hearing) noexcept {
        const bool unheard = to.appended && now_.ticket != 0 && hearing_ == hearing && hearing != 0;
        stalls_ = stalls(now_, to, sent - said_at_);
        if (!now_.same_as(to)) since_ = now;
        now_ = to;
        said_at_ = sent;
        hearing_ = hearing;
        return unheard;
    }
    /// Effects: a message has come: that the ticket is gone then says nothing else.
    void heard() noexcept { hearing_ = 0; }
    /// Effects: it polls for those before it from now on.
    void watch() noexcept { watches_ = true; }

    const queue_place& now() const noexcept { return now_; }
    /// Returns: before the sending that was answered so.
    clock::time_point said_at() const noexcept { return said_at_; }
    poll_conditions conditions(clock::time_point now) const noexcept {
        return {.position = now_.position, .stalls = stalls_, .watches = watches_, .waited = now - since_};
    }

  private:
    queue_place now_{};
    clock::time_point said_at_{};
    clock::time_point since_{};  // from when it is the same
    std::uint64_t hearing_ = 0;
    bool stalls_ = false;
    bool watches_ = false;
};

}  // namespace distlock::engine
