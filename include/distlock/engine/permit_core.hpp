// The engine as semaphores see it.
//
//   class permit_core { acquire, release, resize, and what there is to know about a permit };
//   std::unique_ptr<permit_core> permit_core_of<Clock>(Conn&, name, limit, options, observer);
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/observer.hpp>
#include <distlock/base/options.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/engine/lock_core.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/wire/outcome.hpp>

namespace distlock::engine {

class permit_core {
  public:
    struct result : lock_core::result {
        lock_core* of = nullptr;  // that has the permits
    };

    permit_core() = default;
    permit_core(const permit_core&) = delete;
    permit_core& operator=(const permit_core&) = delete;
    /// Preconditions: no thread is in a member function, and no permit is out.
    virtual ~permit_core() = default;

    virtual const std::string& name() const noexcept = 0;
    virtual std::int64_t limit() const noexcept = 0;
    virtual clock::time_point now() const noexcept = 0;

    /// Throws: as lock_core::acquire().
    virtual result acquire(std::int64_t n, clock::time_point until, lock_core::manner how,
                           const std::stop_token& stop) = 0;
    virtual release_outcome release(lock_core& of, std::uint64_t serial) noexcept = 0;
    /// As lock_core::undo().
    virtual void undo(lock_core& of, std::uint64_t serial) noexcept = 0;
    /// Throws: error.
    virtual std::int64_t resize(std::int64_t limit) = 0;
    virtual clock::duration residual() const noexcept = 0;
    /// As lock_core::may_join().
    virtual bool may_join() const = 0;
    virtual any_connection& connection() const noexcept = 0;
};

/// Throws: as lock_core_of(); error(errc::invalid_option) for a limit that is none.
/// A template: a program that makes none compiles none of its code.
template <class Lazy>
std::unique_ptr<permit_core> make_permit_core(std::shared_ptr<background_io> io, std::string name,
                                              std::int64_t limit, const lock_options& options,
                                              std::shared_ptr<lease_observer> observer);

/// Throws: as make_permit_core().
template <class Clock, connection Conn>
std::unique_ptr<permit_core> permit_core_of(Conn& connection, std::string name, std::int64_t limit,
                                            const lock_options& options,
                                            std::shared_ptr<lease_observer> observer) {
    return make_permit_core<void>(background_io_of<Clock>(connection), std::move(name), limit, options,
                                  std::move(observer));
}

}  // namespace distlock::engine
