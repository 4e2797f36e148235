// How a lock object gives back what the server granted it: posted or confirmed, and in the background when it must be.
//
//   template <connection Conn, class Dialect, class Clock> class releaser {
//     release_outcome release(const ended&) noexcept;          // what a thread held
//     release_outcome give_back(owner, until, gone_by) noexcept;   // what nobody held, and the thread waits
//     void owe(owner) noexcept;                                // what the server may still get
//     void on_grant(const acquisition&) noexcept;
//     bool posted_open() noexcept;                             // the last posted release is not confirmed
//     void settle_posted() noexcept;                           // waits until it is
//     time_point gone_by() const noexcept;                     // until when something of ours may keep others out
//     void retire() noexcept;
//   };
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>

#include <distlock/base/clock.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/token.hpp>
#include <distlock/engine/driver.hpp>
#include <distlock/engine/held_lock.hpp>
#include <distlock/engine/owed_release.hpp>
#include <distlock/engine/posted_release.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/wire/outcome.hpp>

namespace distlock::engine {

/// All but on_grant() and gone_by() is called without the mutex that guards `held`.
template <connection Conn, class Dialect, class Clock>
class releaser {
    using held_type = held_lock<Conn, Dialect, Clock>;
    using posted_type = posted_release<Conn, Dialect, Clock>;
    using time_point = clock::time_point;

  public:
    /// `answer_time`: how long an answer may be on its way.
    releaser(Conn& connection, const Dialect& dialect, const lock_options& options, held_type& held,
             std::mutex& state, std::chrono::milliseconds answer_time)
        : connection_(connection),
          dialect_(dialect),
          options_(options),
          held_(held),
          state_(state),
          answer_time_(answer_time),
          posted_(connection, dialect, answer_time) {}

    release_outcome release(const typename held_type::ended& last) noexcept {
        const bool open = Clock::now() < late_until_;
        const auto done =
            post(last, open) ? release_outcome::posted : give_back(last.owner, last.until, last.gone_by);
        // It would bring the lock back, under a token nobody has any more.
        if (open) owe(last.owner);
        return done;
    }

    release_outcome give_back(const token& owner, time_point until, time_point gone_by) noexcept {
        const auto done = engine::give_back<Clock>(connection_, dialect_, owner, until);
        if (done.owed) {
            const std::lock_guard guard(state_);
            debt_ = held_.owe(owner, {}, gone_by);
        }
        return done.what;
    }

    /// Effects: what the server may still get under a token nobody wants is looked for when it must have come.
    void owe(const token& owner) noexcept {
        const std::lock_guard guard(state_);
        held_.owe(owner, answer_time_, Clock::now() + answer_time_ + options_.lease.get());
    }

    void on_grant(const acquisition& got) noexcept {
        posted_.settle();  // or it would not have been granted
        late_until_ = got.open ? got.came + answer_time_ : time_point{};
    }

    /// Returns: whether the server has not said yet that a posted release is done.
    bool posted_open() noexcept { return posted_.open(); }
    /// Effects: waits until it has.
    void settle_posted() noexcept {
        if (!posted_.open()) return;
        give_back(posted_.owner(), Clock::now(), posted_.gone_by());
        posted_.settle();
    }

    time_point gone_by() const noexcept {
        const auto owed = debt_ ? debt_->gone_by() : time_point{};
        return posted_.open() ? std::max(owed, posted_.gone_by()) : owed;
    }

    /// Effects: what is open goes on without this.
    void retire() noexcept { posted_.retire(); }

  private:
    bool post([[maybe_unused]] const typename held_type::ended& last, [[maybe_unused]] bool open) noexcept {
        if constexpr (posted_type::possible) {
            if (options_.release != release_mode::posted || open || Clock::now() >= last.until) return false;
            try {
                return posted_.post(held_.shared_keeper(), last.owner, last.gone_by);
            } catch (...) {
                // Nobody could confirm it: this thread does.
            }
        }
        return false;
    }

    Conn& connection_;
    const Dialect& dialect_;
    const lock_options& options_;
    held_type& held_;
    std::mutex& state_;
    const std::chrono::milliseconds answer_time_;
    time_point late_until_{};  // until when a sending of the acquisition that was not answered may still come
    std::shared_ptr<debt> debt_;  // of the last release that was not confirmed
    mutable posted_type posted_;
};

}  // namespace distlock::engine
