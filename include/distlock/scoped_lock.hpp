// distlock::scoped_lock: holds one lock, or several, for as long as it lives.
//
//   template <class... Mutexes>
//   class scoped_lock {
//     explicit scoped_lock(Mutexes&...);                     // waits
//     scoped_lock(Mutexes&..., std::stop_token);  // until stopped; the types of up to four are deduced
//     scoped_lock(std::adopt_lock_t, Mutexes&...) noexcept;  // the calling thread has them
//     scoped_lock(scoped_lock&&) noexcept;  scoped_lock& operator=(scoped_lock&&) noexcept;
//     ~scoped_lock();                                        // releases; never throws
//     bool owns_lock() const noexcept;
//     time_point valid_until() const noexcept;
//     duration remaining() const noexcept;
//     std::stop_token lost() const;                          // is stopped when one of the locks is lost
//     std::uint64_t fencing_token() const noexcept;          // of a single mutex
//     const std::string& name() const noexcept;              // of a single mutex
//   };
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/engine/call_forms.hpp>
#include <distlock/engine/joint_acquire.hpp>
#include <distlock/engine/joint_mutex.hpp>
#include <distlock/mutex.hpp>

namespace distlock {

namespace detail {

// What a guard needs of a mutex beyond its public face: the one acquisition it made, and no other.
struct guard_access {
    template <class M>
    static auto lock(M& m, const std::stop_token& stop) {
        return m.acquire_guarded(stop);
    }
    template <class M>
    static auto adopt(M& m) noexcept {
        return m.adopt();
    }
    template <class M>
    static std::stop_token lost(const M& m, std::uint64_t serial) {
        return m.core().lost(serial);
    }
    template <class M>
    static void unlock(M& m, std::uint64_t serial) noexcept {
        m.end_guarded(serial);
    }
    template <class M>
    static auto valid_until(const M& m, std::uint64_t serial) noexcept {
        return m.core().valid_until(serial);
    }
    /// Returns: the fence of what that acquisition has become; 0: it cannot become another, or is unknown.
    template <class M>
    static std::uint64_t fence([[maybe_unused]] const M& m, [[maybe_unused]] std::uint64_t serial) noexcept {
        if constexpr (requires(M & same) { same.try_lock_shared(); }) return m.core().fence(serial);
        return 0;
    }
    template <class M>
    static auto lock_shared(M& m, const std::stop_token& stop) {
        return m.acquire_shared_guarded(stop);
    }
    template <class M>
    static auto adopt_shared(M& m) noexcept {
        return m.adopt_shared();
    }
    template <class M>
    static void unlock_shared(M& m, std::uint64_t serial) noexcept {
        m.readers().unlock_shared(serial);
    }
    template <class M>
    static auto shared_until(const M& m, std::uint64_t serial) noexcept {
        return m.readers().shared_until(serial);
    }
    template <class M>
    static std::uint64_t shared_fence(const M& m, std::uint64_t serial) noexcept {
        return m.readers().shared_fence(serial);
    }
    template <class M>
    static std::stop_token shared_lost(const M& m, std::uint64_t serial) {
        return m.readers().shared_lost(serial);
    }
};

template <class M>
concept guardable = !std::is_const_v<M> && requires(M & m) {
    typename M::connection_type;
    typename M::clock_type;
    m.lock();
};
}  // namespace detail

/// A guard releases only what it acquired: if its lease ran out and somebody else has locked the mutex, its
/// destructor releases nothing. The guard of a recursive_mutex ends on the thread that made it.
template <class... Mutexes>
class scoped_lock {
    static_assert(sizeof...(Mutexes) > 0, "a scoped_lock guards at least one mutex");
    static constexpr std::size_t count = sizeof...(Mutexes);

  public:
    using time_point = clock::time_point;
    using duration = clock::duration;

    /// Preconditions: the mutexes outlive the guard.
    /// Effects: takes the locks, all or none, waiting for each. Several are taken in the order of their
    /// names, and of their servers where a name is the same, so that guards of the same locks never wait for
    /// each other in a circle: of one name on several servers, if all processes call those servers alike.
    /// Postconditions: owns_lock().
    /// Throws: error: what mutex::lock throws, errc::cancelled when `stop` is requested, errc::deadlock when
    /// two of the mutexes are the same lock, over one connection or over two that name the server alike. No
    /// lock is held then. Under two names of one server, as localhost and 127.0.0.1, that is not noticed: the
    /// guard waits for itself.
    /// Round trips: for each lock as mutex::lock().
    [[nodiscard("an unnamed guard releases the lock at once")]] explicit scoped_lock(Mutexes&... mutexes)
        : scoped_lock(mutexes..., std::stop_token{}) {}
    [[nodiscard("an unnamed guard releases the lock at once")]] scoped_lock(Mutexes&... mutexes,
                                                                            std::stop_token stop)
        : mutexes_(&mutexes...) {
        refuse_others();
        lock(stop);
    }

    /// Preconditions: the mutexes outlive the guard; the calling thread has locked them,
    /// and no guard has them.
    /// Effects: the guard releases them. One that was lost before is not held: see owns_lock().
    [[nodiscard("an unnamed guard releases the lock at once")]] scoped_lock(std::adopt_lock_t,
                                                                            Mutexes&... mutexes) noexcept
        : mutexes_(&mutexes...) {
        refuse_others();
        std::size_t i = 0;
        each([&](auto& m, std::uint64_t& serial) {
            const auto has = detail::guard_access::adopt(m);
            serial = has.serial;
            fences_[i++] = has.fence;
        });
    }

    scoped_lock(scoped_lock&& other) noexcept
        : mutexes_(other.mutexes_),
          serials_(std::exchange(other.serials_, {})),
          fences_(std::exchange(other.fences_, {})),
          any_lost_(std::move(other.any_lost_)) {}
    /// Effects: releases what is held, then takes over what `other` holds.
    scoped_lock& operator=(scoped_lock&& other) noexcept {
        if (this != &other) {
            unlock();
            mutexes_ = other.mutexes_;
            serials_ = std::exchange(other.serials_, {});
            fences_ = std::exchange(other.fences_, {});
            any_lost_ = std::move(other.any_lost_);
        }
        return *this;
    }
    scoped_lock(const scoped_lock&) = delete;
    scoped_lock& operator=(const scoped_lock&) = delete;
    ~scoped_lock() { unlock(); }

    /// Returns: whether every lock of this guard is held and none of their leases has run out. Local and
    /// cheap.
    bool owns_lock() const noexcept { return remaining() > duration::zero(); }

    /// Returns: until when the owner may rely on all of the locks: each renewal moves it forward. Not after
    /// now once one is lost, time_point{} after a move.
    time_point valid_until() const noexcept {
        auto earliest = time_point::max();
        each([&](const auto& m, std::uint64_t serial) { earliest = std::min(earliest, end_of(m, serial)); });
        return earliest;
    }

    /// Returns: how long every lock may still be believed held; zero when one is not.
    duration remaining() const noexcept {
        std::array<time_point, count> ends;  // all of them, before a clock is read
        auto end = ends.begin();
        each([&](const auto& m, std::uint64_t serial) { *end++ = end_of(m, serial); });
        end = ends.begin();
        auto shortest = duration::max();
        each([&]<class M>(const M&, std::uint64_t serial) {
            const auto left = detail::left_until<typename M::clock_type>(*end++);
            shortest = serial == 0 ? duration::zero() : std::min(shortest, left);
        });
        return shortest;
    }

    /// Returns: a token that is stopped as soon as one of the locks is lost; see mutex::lost(). Until then
    /// every call returns the same token, but for a guard of one shared_mutex after downgrade() or
    /// try_upgrade(). Not stopped if the guard ends in time. After a move: stopped.
    /// Throws: error(errc::no_thread), std::bad_alloc, on the first call for each acquisition.
    std::stop_token lost() const {
        if constexpr (count == 1) {
            return lost_of(*std::get<0>(mutexes_), serials_[0]);
        } else {
            if (!owns_lock())
                return detail::stopped_token();  // as in a child, where others may have the mutex
            for (;;) {
                std::array<std::stop_token, count> all;
                auto one = all.begin();
                each([&](const auto& m, std::uint64_t serial) { *one++ = lost_of(m, serial); });
                const std::stop_source source = watched();
                if (is_watched(all)) return source.get_token();
                auto watches = watch(all, source);  // it may call what is registered, which may end the guard
                if (source.stop_requested()) return source.get_token();
                const std::lock_guard alone(watching_);
                any_lost_.swap(watches);  // and look again: an exchange may have come in between
            }
        }
    }

    /// Returns: the fencing token of the lock, also after it was lost; see mutex::fencing_token(). 0 after a
    /// move. After shared_mutex::try_upgrade() the new writer's; after its loss perhaps the one before that.
    std::uint64_t fencing_token() const noexcept requires(count == 1) {
        if (serials_[0] == 0) return fences_[0];
        return std::max(fences_[0], detail::guard_access::fence(*std::get<0>(mutexes_), serials_[0]));
    }

    /// Preconditions: the mutex still exists.
    /// Returns: as mutex::name().
    const std::string& name() const noexcept requires(count == 1) { return std::get<0>(mutexes_)->name(); }

  private:
    // Where a guard is made, since the type of one may be named before its mutex is complete.
    static constexpr void refuse_others() noexcept {
        static_assert(
            (detail::guardable<Mutexes> && ...),
            "a distlock::scoped_lock guards a distlock::mutex, recursive_mutex or shared_mutex, or several, "
            "which are not const; of a semaphore take a distlock::permit; "
            "to adopt one write scoped_lock guard{std::adopt_lock, m}; to wait no longer than a time-out "
            "if (m.try_lock_for(timeout)), and adopt it then");
    }

    // A guard that was moved from may outlive its mutex: with no acquisition it is not touched.
    template <class M>
    static time_point end_of(const M& m, std::uint64_t serial) noexcept {
        return serial == 0 ? time_point{} : detail::guard_access::valid_until(m, serial);
    }

    template <class M>
    static std::stop_token lost_of(const M& m, std::uint64_t serial) {
        return serial == 0 ? detail::stopped_token() : detail::guard_access::lost(m, serial);
    }

    // One token for several locks.
    // The callback may end the guard, or wait for the end of it: a guard's end waits for nobody.
    struct any_of_them;
    struct passing_on {
        std::weak_ptr<any_of_them> to;
        void operator()() const noexcept {
            if (const auto kept = to.lock()) kept->source.request_stop();
        }
    };
    struct any_of_them {
        std::stop_source source;
        std::array<std::stop_token, count> of = {};  // another acquisition has another one
        std::array<std::optional<std::stop_callback<passing_on>>, count> each = {};
    };
    std::stop_source watched() const {
        const std::lock_guard alone(watching_);
        if (!any_lost_) any_lost_ = std::make_shared<any_of_them>();
        return any_lost_->source;
    }
    bool is_watched(const std::array<std::stop_token, count>& all) const {
        const std::lock_guard alone(watching_);
        return any_lost_->of == all;
    }
    static std::shared_ptr<any_of_them> watch(const std::array<std::stop_token, count>& all,
                                              const std::stop_source& by) {
        auto made = std::make_shared<any_of_them>();
        made->source = by;
        made->of = all;
        for (std::size_t i = 0; i < count; ++i) made->each[i].emplace(all[i], passing_on{made});
        return made;
    }

    template <class F>
    void each(F f) const {
        [&]<std::size_t... I>(std::index_sequence<I...>) { (f(*std::get<I>(mutexes_), serials_[I]), ...); }
        (std::make_index_sequence<count>{});
    }

    void lock(const std::stop_token& stop) {
        if constexpr (count == 1) {
            const auto got = detail::guard_access::lock(*std::get<0>(mutexes_), stop);
            serials_[0] = got.serial;
            fences_[0] = got.fence;
        } else {
            std::apply([&](Mutexes*... all) { lock_all(stop, detail::guarded_mutex<Mutexes>(*all)...); },
                       mutexes_);
        }
    }
    void lock_all(const std::stop_token& stop, detail::guarded_mutex<Mutexes>... each) {
        std::array<engine::joint_member*, count> members{&each...};
        engine::throw_on_error(engine::acquire_each(members, time_point::max(), stop));
        serials_ = {each.serial()...};
        fences_ = {each.fence()...};
    }

    void unlock() noexcept {
        any_lost_.reset();
        each([](auto& m, std::uint64_t& serial) {
            if (serial != 0) detail::guard_access::unlock(m, std::exchange(serial, 0));
        });
    }

    std::tuple<Mutexes*...> mutexes_;
    mutable std::array<std::uint64_t, count> serials_{};  // of the acquisitions; 0: none
    std::array<std::uint64_t, count> fences_{};
    mutable std::mutex watching_;                    // of lost(), which several threads may call
    mutable std::shared_ptr<any_of_them> any_lost_;  // once somebody asked
};

template <class M>
scoped_lock(M&, std::stop_token) -> scoped_lock<M>;
template <class M1, class M2>
scoped_lock(M1&, M2&, std::stop_token) -> scoped_lock<M1, M2>;
template <class M1, class M2, class M3>
scoped_lock(M1&, M2&, M3&, std::stop_token) -> scoped_lock<M1, M2, M3>;
template <class M1, class M2, class M3, class M4>
scoped_lock(M1&, M2&, M3&, M4&, std::stop_token) -> scoped_lock<M1, M2, M3, M4>;
template <class... Mutexes>
scoped_lock(Mutexes&...) -> scoped_lock<Mutexes...>;
// Of no mutex: the guard says what to write instead.
template <class M, class Rep, class Period>
scoped_lock(M&, std::chrono::duration<Rep, Period>)
    -> scoped_lock<M, const std::chrono::duration<Rep, Period>>;
template <class... Mutexes>
scoped_lock(std::adopt_lock_t, Mutexes&...) -> scoped_lock<Mutexes...>;

}  // namespace distlock
