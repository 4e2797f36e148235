// An acquisition that comes after the releases that other lock objects of the same name have posted.
//
//   lock_core::result acquire_after_releases(at, own, until, how, stop, ask);
#pragma once

#include <cstddef>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/engine/lock_core.hpp>

namespace distlock::engine {

/// Effects: calls `ask`. A release that was posted on another socket may reach the server later: if the lock
/// seems taken while some are unconfirmed, waits for their answers until `until`, or a moment longer, and
/// calls `ask` once more. A request together with others is sent once, after those answers. `at(i)`: returns
/// a pointer to the lock object at that place, shared where it may end meanwhile; null behind the last one;
/// `own`: sees to its own releases. `ask()`: returns as lock_core::acquire().
template <class At, class Ask>
lock_core::result acquire_after_releases(At at, const lock_core* own, clock::time_point until,
                                         const lock_core::manner& how, const std::stop_token& stop, Ask ask) {
    const auto any_on_its_way = [&] {
        for (std::size_t i = 0;; ++i) {
            const auto one = at(i);
            if (one == nullptr) return false;
            if (&*one != own && one->unconfirmed()) return true;
        }
    };
    const auto confirm_all = [&] {
        for (std::size_t i = 0; !stop.stop_requested(); ++i) {
            const auto one = at(i);
            if (one == nullptr) return;
            if (&*one == own || !one->unconfirmed()) continue;
            one->confirm_posted(until, stop);
            if (one->unconfirmed()) return;  // a server that does not answer is not asked for each
        }
    };
    if (!any_on_its_way()) return ask();
    if (how.together == nullptr) {
        auto got = ask();
        if (!got.taken()) return got;
    }
    confirm_all();
    return ask();
}

}  // namespace distlock::engine
