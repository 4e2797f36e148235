// A mutex as engine::acquire_all() and acquire_each() see it.
//
//   class joint_mutex<Mutex>;      // the calling thread has it then
//   class guarded_mutex<Mutex>;    // a guard has it
#pragma once

#include <cstdint>
#include <string>

#include <distlock/base/clock.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/engine/joint_acquire.hpp>
#ifndef DISTLOCK_SEPARATE_COMPILATION
#include <distlock/engine/joint_acquire_impl.hpp>
#endif
#include <distlock/engine/lock_core.hpp>
#include <distlock/net/any_connection.hpp>

namespace distlock::detail {

// Several locks at once need this of each, beyond its public face.
struct joint_access {
    using result = engine::lock_core::result;
    using manner = engine::lock_core::manner;

    template <class M>
    static const engine::lock_core& core(const M& m) noexcept {
        return m.core();
    }
    template <class M>
    static result acquire(M& m, clock::time_point until, const manner& how, const std::stop_token& stop) {
        return m.acquire(until, how, stop);
    }
    template <class M>
    static result acquire_shared(M& m, clock::time_point until, const manner& how,
                                 const std::stop_token& stop) {
        return m.readers().acquire_shared(until, how, stop);
    }
    template <class L>
    static void undo(L& l) noexcept {
        l.undo();
    }
    template <class M>
    static void undo(M& m, std::uint64_t serial) noexcept {
        m.undo(serial);
    }
    template <class M>
    static void undo_shared(M& m, std::uint64_t serial) noexcept {
        m.readers().undo_shared(serial);
    }
    template <class M>
    static clock::time_point shared_until(M& m, std::uint64_t serial) noexcept {
        return m.readers().shared_until(serial);
    }
    template <class Permit>
    static auto* semaphore(const Permit& p) noexcept {
        return p.from_;
    }
};

template <class Mutex>
class joint_mutex : public engine::joint_member {
  public:
    explicit joint_mutex(Mutex& of) noexcept : mutex_(of) {}

    const std::string& name() const noexcept override { return mutex_.name(); }
    any_connection& connection() const noexcept override { return joint_access::core(mutex_).connection(); }
    bool may_join() const override { return joint_access::core(mutex_).may_join(); }
    clock::time_point now() const noexcept override { return Mutex::clock_type::now(); }

    engine::lock_core::result acquire(clock::time_point until, const engine::lock_core::manner& how,
                                      const std::stop_token& stop) override {
        const auto got = joint_access::acquire(mutex_, until, how, stop);
        serial_ = got.serial;
        return got;
    }
    clock::time_point valid_until() const noexcept override {
        return joint_access::core(mutex_).valid_until(serial_);
    }
    void undo() noexcept override { joint_access::undo(mutex_); }
    clock::duration residual() const noexcept override { return mutex_.residual(); }

    void adopt() const noexcept {}

  protected:
    Mutex& mutex_;
    std::uint64_t serial_ = 0;  // the thread may have lost another one, and not unlocked it yet
};

template <class Mutex>
class guarded_mutex final : public joint_mutex<Mutex> {
    using joint_mutex<Mutex>::mutex_;
    using joint_mutex<Mutex>::serial_;

  public:
    using joint_mutex<Mutex>::joint_mutex;

    engine::lock_core::result acquire(clock::time_point until, const engine::lock_core::manner& how,
                                      const std::stop_token& stop) override {
        auto by_guard = how;
        by_guard.guarded = true;
        auto got = joint_mutex<Mutex>::acquire(until, by_guard, stop);
        fence_ = got.fence;
        return got;
    }
    void undo() noexcept override { joint_access::undo(mutex_, serial_); }

    std::uint64_t serial() const noexcept { return serial_; }
    std::uint64_t fence() const noexcept { return fence_; }

  private:
    std::uint64_t fence_ = 0;
};

}  // namespace distlock::detail
