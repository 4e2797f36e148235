// Several locks, all or none, under one deadline.
//
//   class joint_member;                             // one of them
//   lock_core::result acquire_all(members, until, stop);      // neighbours by one command
//   lock_core::result acquire_each(members, until, stop);     // one by one
#pragma once

#include <span>
#include <string>

#include <distlock/base/clock.hpp>
#include <distlock/detail/separate.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/engine/lock_core.hpp>
#include <distlock/net/any_connection.hpp>

namespace distlock::engine {

class joint_member {
  public:
    joint_member() = default;
    joint_member(const joint_member&) = delete;
    joint_member& operator=(const joint_member&) = delete;
    virtual ~joint_member() = default;

    virtual const std::string& name() const noexcept = 0;
    virtual any_connection& connection() const noexcept = 0;
    /// As lock_core::may_join().
    virtual bool may_join() const = 0;
    virtual clock::time_point now() const noexcept = 0;

    /// As lock_core::acquire().
    virtual lock_core::result acquire(clock::time_point until, const lock_core::manner& how,
                                      const std::stop_token& stop) = 0;
    /// Preconditions: it was acquired.
    virtual clock::time_point valid_until() const noexcept = 0;
    /// Preconditions: the same.
    /// Effects: as lock_core::undo().
    virtual void undo() noexcept = 0;
    /// As lock_core::residual().
    virtual clock::duration residual() const noexcept = 0;
};

/// Preconditions: there is one at least.
/// Effects: takes all of them, in the order of their names, so that two callers do not wait for each other in
/// a circle; those that are on one server and in one slot by one command, as long as all of them are free.
/// Puts them in that order.
/// Returns: as lock_core::acquire(); unless its serial is set, none of them is held.
/// Throws: what their acquire() throws; error(errc::deadlock) when two are one lock. None
/// of them is held then.
template <class Lazy = void>
lock_core::result acquire_all(std::span<joint_member*> members, clock::time_point until,
                              const std::stop_token& stop);
/// As acquire_all(), each by a command of its own: a caller that waits for all as long as it takes is queued
/// for the first one that is taken, without a try at all of them before.
template <class Lazy = void>
lock_core::result acquire_each(std::span<joint_member*> members, clock::time_point until,
                               const std::stop_token& stop);

}  // namespace distlock::engine
