// The engine as shared mutexes and their guards see it: that of a mutex for writers, and more for readers.
//
//   class shared_core : public lock_core { acquire_shared, unlock_shared,
//       and what there is to know about a reader };
//   std::unique_ptr<shared_core> shared_core_of<Clock>(Conn&, name, options, observer);
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/observer.hpp>
#include <distlock/base/options.hpp>
#include <distlock/detail/saturate.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/engine/lock_core.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/wire/outcome.hpp>

namespace distlock::engine {

/// Returns: for how long readers join a grant, as long as enough of its lease is left.
inline clock::duration joining_time(const lock_options& options) noexcept {
    using namespace distlock::detail;
    const clock::duration budget = options.local_budget.get();
    if (!options.max_hold.given()) return budget;
    return std::min(budget, saturating_cast<clock::duration, rounding::down>(options.max_hold.get()) / 2);
}

/// As lock_core, for readers. Each has a serial; where none is named, the calling thread's is meant.
class shared_core : public lock_core {
  public:
    /// Throws: as acquire().
    virtual result acquire_shared(clock::time_point until, manner how, const std::stop_token& stop) = 0;

    /// As adopt(), of a reader.
    virtual result adopt_shared() noexcept = 0;

    /// As shared_mutex::unlock_shared().
    virtual release_outcome unlock_shared(std::uint64_t serial = 0) noexcept = 0;
    /// As undo(): the reader has not read.
    virtual void undo_shared(std::uint64_t serial = 0) noexcept = 0;

    /// As shared_mutex::downgrade() and try_upgrade(): one without a serial or a cause is a lock that was
    /// not held, or not got.
    virtual result downgrade() = 0;
    virtual result try_upgrade() = 0;

    virtual clock::time_point shared_until(std::uint64_t serial = 0) const noexcept = 0;
    virtual std::stop_token shared_lost(std::uint64_t serial = 0) const = 0;
    virtual std::uint64_t shared_fence(std::uint64_t serial = 0) const noexcept = 0;
};

/// Throws: as lock_core_of().
/// A template: a program that makes none compiles none of its code.
template <class Lazy>
std::unique_ptr<shared_core> make_shared_core(std::shared_ptr<background_io> io, const std::string& name,
                                              const lock_options& options,
                                              std::shared_ptr<lease_observer> observer);

/// Throws: as lock_core_of().
template <class Clock, connection Conn>
std::unique_ptr<shared_core> shared_core_of(Conn& connection, const std::string& name,
                                            const lock_options& options,
                                            std::shared_ptr<lease_observer> observer) {
    return make_shared_core<void>(background_io_of<Clock>(connection), name, options, std::move(observer));
}

}  // namespace distlock::engine
