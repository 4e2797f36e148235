// The threads of one process and their lock object: who has the lock, who asks the server for it, and who
// waits; decided without a socket or a clock.
//
//   class mutex_state {
//     mutex_state(std::string_view name, const void* connection);
//     phase current_phase() const;  acquisition* held();  acquisition& present();  waiter_queue& waiters();
//     bool may_go_remote(now) const;                 // one thread at a time asks the server
//     std::optional<acquisition> start_remote();     // returns what was lost, and is over now
//     waiter* end_remote();                          // returns the thread that goes remote next
//     acquisition& hold(...);                        // it was granted
//     waiter* pass_on(...);                          // to the first waiter, without the server
//     acquisition release();                         // by the server, next
//     bool has(thread, serial) const;  unlocking unlock_by(thread);
//     void unlocked_too_late(serial);  void gave_up(thread, serial);  acquisition abandon();
//   };
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/detail/function_ref.hpp>
#include <distlock/engine/acquisition.hpp>
#include <distlock/engine/callback_pool.hpp>
#include <distlock/engine/renewal.hpp>
#include <distlock/engine/stale_unlocks.hpp>
#include <distlock/engine/waiter_queue.hpp>

namespace distlock::engine {

/// Not thread-safe: used under the mutex of the lock object.
class mutex_state {
    using time_point = clock::time_point;

  public:
    enum class phase {
        idle,
        remote,  ///< a thread of ours asks the server for the lock, or releases it
        held,    ///< there is an acquisition, lost or not
    };
    /// What an unlock() without a serial means.
    enum class unlocking {
        ends,      ///< the present acquisition
        too_late,  ///< for one that was lost, and followed by another or by none
        not_held,
    };

    /// Of the lock `name` over that connection: callbacks tell it from others by a hash of both.
    mutex_state(std::string_view name, const void* connection) noexcept
        : lock_(std::hash<std::string_view>{}(name) ^ reinterpret_cast<std::uintptr_t>(connection)) {}

    phase current_phase() const noexcept {
        return held_ ? phase::held : remote_ ? phase::remote : phase::idle;
    }

    /// Returns: the acquisition of phase::held; else null.
    acquisition* held() noexcept { return held_ ? &*held_ : nullptr; }
    const acquisition* held() const noexcept { return held_ ? &*held_ : nullptr; }
    /// Preconditions: held().
    acquisition& present() noexcept { return *held_; }
    const acquisition& present() const noexcept { return *held_; }

    waiter_queue& waiters() noexcept { return waiters_; }

    /// `now()`: the time, which is only read when it matters.
    template <class Now>
    bool may_go_remote(Now now) const {
        return held_ ? now() >= held_->lease().until() : !remote_;
    }

    /// Preconditions: may_go_remote().
    /// Effects: it is the calling thread that asks the server. In one step with that, the late unlock() of an
    /// acquisition that is over does not find it any more.
    /// Returns: that acquisition.
    [[gnu::noinline]] std::optional<acquisition> start_remote() noexcept {
        remote_ = true;
        if (!held_) return std::nullopt;
        expect_unlock();
        return std::exchange(held_, std::nullopt);
    }

    /// Returns: the first waiter, which is to be woken, and goes remote in its turn; null: there is none.
    waiter_queue::waiter* end_remote() noexcept {
        remote_ = !waiters_.empty();
        return remote_ ? &waiters_.dequeue(wake::go_remote) : nullptr;
    }

    /// Preconditions: the calling thread is the one that went remote.
    /// Throws: std::bad_alloc.
    [[gnu::noinline]] acquisition& hold(const grant& got, const lease_terms& terms, std::thread::id me,
                                        bool guarded, time_point late_until) {
        stale_unlocks_.make_room();
        held_.emplace(lock_, got, terms, holder{me, ++callback::last_serial(), got.fence, guarded},
                      late_until);
        return *held_;
    }
    /// Effects: takes hold() back.
    void unhold() noexcept { held_.reset(); }

    /// Preconditions: held().
    /// Effects: the first waiter has the lock, by the same grant, unless other processes have waited for
    /// `budget`. `schedule(lease)` sees to it that the lease is renewed; when it throws, nothing has changed.
    /// Returns: the waiter, which is to be woken; null: the lock was not passed on.
    waiter_queue::waiter* pass_on(time_point now, clock::duration budget, bool allows_local_fences,
                                  distlock::detail::function_ref<void(const renewal&)> schedule) noexcept {
        if (waiters_.empty()) return nullptr;
        renewal lease = held_->lease();
        const auto since = now - held_->granted_at();
        if (now >= lease.until() || since >= budget) return nullptr;
        if (lease.lease_end() - now < clock::duration(lease.ttl()) / 2) return nullptr;
        auto& next = *waiters_.first();
        next.fence = held_->held_by().fence;
        if (next.fence != 0) {
            // The server makes fences of its clock, in microseconds, or so far beyond the last one: those
            // in between are ours. A clock that was set back catches up with them, unless 4,000 owners a
            // second take so many each.
            constexpr std::uint64_t room = 250;
            const auto used = ++next.fence - held_->granted_fence();
            const auto microseconds = static_cast<std::uint64_t>(since / std::chrono::microseconds{1});
            if (!allows_local_fences || used >= room || used > microseconds / 4 * 3) return nullptr;
        }
        lease.pass(now);
        try {
            stale_unlocks_.make_room();
            schedule(lease);
        } catch (...) {
            return nullptr;  // nobody could renew it for that thread, or tell its late unlock() apart
        }
        next.serial = ++callback::last_serial();
        held_->pass({next.thread, next.serial, next.fence, next.guarded}, lease);
        return &waiters_.dequeue(wake::granted);
    }

    /// Preconditions: held().
    /// Effects: the calling thread goes remote: one that tried now would only find the key still there.
    [[gnu::noinline]] acquisition release() noexcept { return *std::exchange(held_, std::nullopt); }

    /// Preconditions: held().
    /// Effects: as release(), but as after a loss the thread may still unlock: that frees nothing.
    [[gnu::cold]] acquisition abandon() noexcept {
        stale_unlocks_.add(held_->held_by().thread, held_->held_by().serial, stale_unlocks::by::its_thread);
        return release();
    }

    /// `serial`: 0: the present acquisition; but a thread that lost its own, and has not unlocked since,
    /// asks about that one, and a callback about the one that it tells of.
    bool has(std::thread::id me, std::uint64_t serial) const noexcept {
        if (!held_) return false;
        if (serial != 0) return held_->held_by().serial == serial;
        const subject* const told = told_of();
        if (is_of(me, told)) return true;
        if (told != nullptr) return held_->held_by().serial == told->serial;
        return !stale_unlocks_.contains(me);
    }

    /// Effects: an unlock that comes too late is not expected any longer. It must not free the lock
    /// of the present owner. That of a callback is for the acquisition that it tells of; the owner's is still
    /// to come.
    [[gnu::noinline]] unlocking unlock_by(std::thread::id me) noexcept {
        const subject* const told = told_of();
        const bool mine = is_of(me, told);
        if (told == nullptr) {
            // A guard ends its own acquisition: a bare unlock() of its thread belongs to one that was lost.
            if (mine && held_->held_by().guarded && stale_unlocks_.consume_own(me))
                return unlocking::too_late;
            if (!mine && (stale_unlocks_.consume(me) || stale_unlocks_.contains(me)))
                return unlocking::too_late;
            // Any thread may end what no guard is to end.
            const bool has_one = held_ && (mine || !held_->held_by().guarded);
            return has_one ? unlocking::ends : unlocking::not_held;
        }
        if (mine) return unlocking::ends;
        if (stale_unlocks_.consume_own(me, told->began)) return unlocking::too_late;
        if (!held_ || held_->held_by().serial != told->serial)
            return told->lost ? unlocking::too_late : unlocking::not_held;
        expect_unlock();
        return unlocking::ends;
    }
    /// Effects: a guard ends what the thread has; what it lost before, nobody needs to end any more.
    /// Returns: its holder; with a serial of 0: the thread has nothing, or a guard already ends it.
    [[gnu::cold]] holder adopt(std::thread::id me) noexcept {
        if (!held_ || held_->held_by().thread != me) {
            stale_unlocks_.consume_own(me);
            return {};
        }
        return held_->held_by().guarded ? holder{} : held_->adopt();
    }
    /// Effects: the guard of an acquisition that is not the present one has ended.
    void unlocked_too_late(std::uint64_t serial) noexcept { stale_unlocks_.consume_guarded(serial); }
    /// Effects: neither `me` nor a guard unlocks what was lost: it was given up.
    [[gnu::cold]] void gave_up(std::thread::id me, std::uint64_t serial) noexcept {
        if (serial != 0) return unlocked_too_late(serial);
        stale_unlocks_.consume_own(me);
    }

  private:
    // Preconditions: held().
    void expect_unlock() noexcept {
        const holder& by = held_->held_by();
        stale_unlocks_.add(by.thread, by.serial,
                           by.guarded ? stale_unlocks::by::guard : stale_unlocks::by::any_thread);
    }

    // The acquisition of this lock that a callback on this thread tells of, by whichever lock object; null:
    // none.
    const subject* told_of() const noexcept {
        const subject& told = callback::current();
        return told.serial != 0 && told.lock == lock_ ? &told : nullptr;
    }

    // Of what a thread of callbacks has, only what it took within this one is its own: earlier ones have left
    // theirs to others.
    bool is_of(std::thread::id me, const subject* told) const noexcept {
        return held_ && held_->held_by().thread == me &&
               (told == nullptr || held_->held_by().serial > told->began);
    }

    const std::size_t lock_;
    std::optional<acquisition> held_;
    bool remote_ = false;  // a thread of ours talks to the server, or took the lock
    waiter_queue waiters_;
    stale_unlocks stale_unlocks_;
};

}  // namespace distlock::engine
