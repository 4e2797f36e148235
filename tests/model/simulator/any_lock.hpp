// The library's mutex, whatever its dialect, as the workers of a scenario use it.
//
//   class any_lock : public lock_view {
//     virtual bool lock(stop, ec), try_lock(ec), try_lock_for(span, stop, ec);
//     virtual release_outcome unlock(serial);   // of a guard: ends that acquisition
//     std::uint64_t find_serial();  // of the grant that a call brought just now; 0: it is over already
//   };
//   std::unique_ptr<any_lock> make_lock(link&, name, const lock_plan&, observer);
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <system_error>
#include <utility>

#include <distlock/base/observer.hpp>
#include <distlock/engine/callback_pool.hpp>
#include <distlock/wire/outcome.hpp>

#include "model/simulator/checks.hpp"
#include "model/simulator/link.hpp"
#include "model/simulator/plan.hpp"

namespace sim {

class any_lock : public lock_view {
  public:
    any_lock() = default;
    any_lock(const any_lock&) = delete;
    any_lock& operator=(const any_lock&) = delete;
    virtual ~any_lock() = default;

    virtual bool lock(std::stop_token stop, std::error_code& ec) = 0;
    virtual bool try_lock(std::error_code& ec) = 0;
    virtual bool try_lock_for(nanos span, std::stop_token stop, std::error_code& ec) = 0;
    /// Returns: the serial of an acquisition that a guard ends.
    virtual std::uint64_t lock_guarded(std::stop_token stop) = 0;
    virtual void unlock_guarded(std::uint64_t serial) = 0;
    virtual distlock::release_outcome unlock() = 0;
    virtual std::stop_token lost(std::uint64_t serial) = 0;
    virtual bool owns_lock() const = 0;
    virtual std::uint64_t fence() const = 0;
    virtual nanos residual() const = 0;

    /// Serials count up, those of all lock objects together; each is found by one thread.
    std::uint64_t find_serial() {
        if (valid_until(0) == nanos(0)) return 0;
        for (std::uint64_t s = distlock::engine::callback::last_serial(); s > last_found_; --s) {
            if (valid_until(s) != nanos(0)) return last_found_ = s;
        }
        return 0;
    }
    void found(std::uint64_t serial) { last_found_ = std::max(last_found_, serial); }

    // Whether a thread was in a call of this object, or had the lock through it.
    int inside = 0;
    nanos last_inside{0};

  private:
    std::uint64_t last_found_ = 0;
};

std::unique_ptr<any_lock> make_lock(link& over, const std::string& name, const lock_plan& how,
                                    std::shared_ptr<distlock::lease_observer> observer);

}  // namespace sim
