// When Sentinels are asked who the master is: by one caller at a time, seldom, and not to the harm of a
// master that is known.
//
//   class sentinel_schedule {
//     void doubt() noexcept;                    // the known master may be one no longer
//     void see_sign() noexcept;                 // the same, and nobody who sends commands may notice
//     bool begin_look(time_point now) noexcept; // whether to look for signs
//     bool begin(time_point now, caller, bool known) noexcept;  // whether the caller is to ask
//     void end(ending, time_point now, duration jitter) noexcept;
//     bool may_begin(time_point now, caller, bool known) const noexcept;
//     bool running() const noexcept;
//     std::uint64_t questions_ended() const noexcept;  // so many
//     time_point next() const noexcept;         // of begin(), at the earliest
//     bool cut_short() const noexcept;
//     bool in_vain() const noexcept;
//     bool unheeded() const noexcept;
//   };
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include <distlock/base/clock.hpp>
#include <distlock/net/refresh_schedule.hpp>

namespace distlock::detail {

/// Not thread-safe. While the Sentinels are silent a suspect master is used on: it may well be the right one.
/// `known`: there is one.
class sentinel_schedule {
  public:
    enum class caller {
        patient,  ///< its time does for an answer
        hurried,  ///< it may not
    };
    enum class ending {
        learned,
        in_vain,
        cut_short,  ///< as refresh_schedule::end_cut_short()
    };
    static constexpr std::chrono::milliseconds look_every{100};
    static constexpr clock::duration in_vain_pause = std::chrono::seconds{1};

    void doubt() noexcept { questions_.invalidate(); }
    void see_sign() noexcept {
        questions_.invalidate();
        unheeded_ = true;
    }

    bool begin_look(clock::time_point now) noexcept {
        if (now < next_look_) return false;
        next_look_ = now + look_every;
        return true;
    }

    /// That others had too little time for the answer says nothing to a caller who has it.
    bool may_begin(clock::time_point now, caller who, bool known) const noexcept {
        return (!known || now >= (who == caller::hurried ? hurried_again_ : again_)) &&
               questions_.may_begin(now);
    }
    /// Returns: whether the caller is to ask. It ends that.
    bool begin(clock::time_point now, caller who, bool known) noexcept {
        if (!may_begin(now, who, known)) return false;
        unheeded_ = false;
        return questions_.begin(now);
    }

    /// Preconditions: begin() returned true, and 0 <= `jitter` <= refresh_schedule::longest_jitter.
    void end(ending how, clock::time_point now, clock::duration jitter) noexcept {
        if (how == ending::cut_short) {
            questions_.end_cut_short(jitter);
            unheeded_ = true;
        } else {
            questions_.end(how == ending::learned, jitter);
        }
        in_vain_ = how == ending::in_vain || (in_vain_ && how == ending::cut_short);
        if (how == ending::in_vain) again_ = now + in_vain_pause;
        constexpr clock::duration first_pause = refresh_schedule::pause;
        hurried_pause_ = how == ending::learned ? clock::duration::zero()
                                                : std::clamp(2 * hurried_pause_, first_pause, in_vain_pause);
        hurried_again_ = now + hurried_pause_;
    }

    bool running() const noexcept { return questions_.running(); }
    std::uint64_t questions_ended() const noexcept { return questions_.questions_ended(); }
    clock::time_point next() const noexcept { return questions_.next(); }
    bool cut_short() const noexcept { return questions_.cut_short(); }
    /// Returns: whether they were asked in vain the last time: a caller that has a master waits for no other
    /// that asks.
    bool in_vain() const noexcept { return in_vain_; }
    /// Returns: whether a sign was seen, and nobody has asked since.
    bool unheeded() const noexcept { return unheeded_; }

  private:
    refresh_schedule questions_;
    clock::time_point again_{};          // after they were asked in vain
    clock::time_point hurried_again_{};  // the same, by a caller with little time
    clock::duration hurried_pause_{};    // before that
    clock::time_point next_look_{};
    bool unheeded_ = false;
    bool in_vain_ = false;
};

}  // namespace distlock::detail
