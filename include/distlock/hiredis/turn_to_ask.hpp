// One caller asks a question for all: how the others wait for it, and which of them asks next.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <stop_token>

#include <distlock/base/clock.hpp>
#include <distlock/base/time_source.hpp>
#include <distlock/detail/stop_token.hpp>

namespace distlock::detail {

/// Preconditions: `lock` has the mutex of `schedule`, a refresh_schedule or sentinel_schedule; `ended` is
/// notified when a question ends, and when a stop is requested.
/// Effects: waits for the end of the question that is asked, not of one that is asked after it, until `until`
/// or a stop request; where its caller had no time for the answer, until this one may ask, unless
/// `answered()` by then, and for the questions of others that begin first. Waits no longer than one question
/// may take, which is `longest`.
/// Returns: whether this caller is to ask: `begin()` returned true.
template <class Schedule, class Answered, class Begin>
bool wait_for_turn(std::condition_variable& ended, std::unique_lock<std::mutex>& lock,
                   const Schedule& schedule, clock::time_point until, clock::duration longest,
                   const std::stop_token* stop, Answered answered, Begin begin) {
    until = std::min(until, clock::now() + longest);
    const auto stopped = [&] { return stop_requested(stop); };
    for (;;) {
        const auto before = schedule.questions_ended();
        wait_until(ended, lock, until,
                   [&] { return !schedule.running() || schedule.questions_ended() != before || stopped(); });
        if (answered() || !schedule.cut_short() || stopped() || clock::now() >= until) return false;
        if (begin()) return true;
        wait_until(ended, lock, std::min(until, schedule.next()),
                   [&] { return schedule.running() || stopped(); });
    }
}

}  // namespace distlock::detail
