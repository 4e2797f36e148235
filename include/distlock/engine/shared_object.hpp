// One shared lock object, shared by threads: its writers queue as those of a mutex do, its readers come in
// batches. How a thread comes to read is in shared_object_enter.hpp; how a reader becomes the writer, and the
// writer a reader, in shared_object_exchange.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/base/observer.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/time_source.hpp>
#include <distlock/detail/printable.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/detail/thread_safety.hpp>
#include <distlock/engine/acquire_after_releases.hpp>
#include <distlock/engine/background_io.hpp>
#include <distlock/engine/continuations.hpp>
#include <distlock/engine/lock_core_impl.hpp>
#include <distlock/engine/reader_holds.hpp>
#include <distlock/engine/shared_core.hpp>
#include <distlock/engine/surplus.hpp>
#include <distlock/engine/waiter_queue.hpp>
#include <distlock/wire/any_dialect.hpp>
#include <distlock/wire/outcome.hpp>

namespace distlock::engine {

/// Thread-safe. Readers that come while one of them asks the server, or shortly after it was let in, have the
/// lock by the same grant: a batch, one reader to the server. A writer of this object that waits ends the
/// batch: readers that come after it stand behind it on the server. So does the end of local_budget, for
/// writers elsewhere, and of half the validity or half the longest hold, for readers that would join.
template <class Lazy>
class shared_object final : public shared_core {
    using time_point = clock::time_point;
    using duration = clock::duration;
    using guard = distlock::detail::annotated_lock;

  public:
    /// Preconditions: the options are checked.
    shared_object(std::shared_ptr<background_io> io, std::unique_ptr<lock_core> writers,
                  std::shared_ptr<const any_dialect> readers, const lock_options& options,
                  std::shared_ptr<lease_observer> observer)
        : options_(in_effect(options)),
          observer_(std::move(observer)),
          io_(std::move(io)),
          time_(io_->time()),
          dialect_(std::move(readers)),
          writers_(std::move(writers)) {}

    const std::string& name() const noexcept override { return writers_->name(); }
    bool in_forked_child() const noexcept override { return writers_->in_forked_child(); }
    bool may_join() const override { return writers_->may_join(); }
    any_connection& connection() const noexcept override { return writers_->connection(); }

    result acquire(time_point until, manner how, const std::stop_token& stop) override {
        if (in_forked_child()) return writers_->acquire(until, how, stop);
        if (how.once) return ask_after_readers(until, how, stop);
        const waiting_writer here(*this);
        if (until == time_point::max()) return writers_->acquire(until, how, stop);
        return ask_after_readers(until, how, stop);
    }
    bool unconfirmed() noexcept override { return writers_->unconfirmed(); }
    void confirm_posted(clock::time_point by, const std::stop_token& stop) noexcept override {
        writers_->confirm_posted(by, stop);
    }
    release_outcome unlock() noexcept override { return writers_->unlock(); }
    release_outcome unlock(std::uint64_t serial) noexcept override;
    void undo(std::uint64_t serial) noexcept override { writers_->undo(serial); }
    time_point valid_until(std::uint64_t serial) const noexcept override {
        if (in_forked_child()) return {};
        const guard here(mutex_);
        return until(now({.write = serial}));
    }
    std::stop_token lost(std::uint64_t serial) const override {
        if (in_forked_child()) return distlock::detail::stopped_token();
        const guard here(mutex_);
        return loss(now({.write = serial}));
    }
    std::uint64_t fence(std::uint64_t serial) const noexcept override {
        if (in_forked_child()) return 0;
        const guard here(mutex_);
        return fence_of(now({.write = serial}));
    }
    duration residual() const noexcept override {
        duration longest = writers_->residual();
        if (in_forked_child()) return longest;
        const guard here(mutex_);
        for (const auto& one : batches_) longest = std::max(longest, one->core->residual());
        return longest;
    }

    result acquire_shared(time_point until, manner how, const std::stop_token& stop) override {
        // It says so in both cases.
        if (in_forked_child() || stop.stop_requested()) return writers_->acquire(until, how, stop);
        if (!how.once && until == time_point::max()) return enter_batch(until, how, stop);
        const auto writers = [this](std::size_t i) { return i == 0 ? writers_.get() : nullptr; };
        return acquire_after_releases(writers, nullptr, until, how, stop,
                                      [&] { return enter_batch(until, how, stop); });
    }

    result adopt() noexcept override {
        if (in_forked_child()) return {};
        {
            const guard here(mutex_);
            const auto is_held = [&](std::uint64_t serial) {
                return writers_->valid_until(serial) != time_point{};
            };
            const serials mine = continuations_.write_by(std::this_thread::get_id(), is_held);
            if (mine) {
                continuations_.adopt(mine);
                return {.serial = mine.write, .fence = writers_->fence(mine.write)};
            }
        }
        return writers_->adopt();
    }
    result adopt_shared() noexcept override {
        if (in_forked_child()) return {};
        const guard here(mutex_);
        const auto* const mine = holds_.newest_unguarded();
        if (mine == nullptr) return {};
        holds_.set_ended_by(*mine, ended_by::guard);
        continuations_.adopt({.read = mine->serial});
        return {.serial = mine->serial, .fence = mine->in->fence};
    }

    release_outcome unlock_shared(std::uint64_t serial) noexcept override;
    void undo_shared(std::uint64_t serial) noexcept override { leave_batch(serial, false); }

    exchange begin_exchange(std::uint64_t serial) noexcept override {
        return writers_->begin_exchange(serial);
    }
    void end_exchange(const exchange& of) noexcept override { writers_->end_exchange(of); }
    void surrender(const exchange& of, bool in_vain) noexcept override { writers_->surrender(of, in_vain); }

    result downgrade() override;
    result try_upgrade() override;

    time_point shared_until(std::uint64_t serial) const noexcept override {
        if (in_forked_child()) return {};
        const guard here(mutex_);
        const serials mine = read(serial);
        return mine ? until(mine) : time_point{};
    }
    std::stop_token shared_lost(std::uint64_t serial) const override {
        if (in_forked_child()) return distlock::detail::stopped_token();
        const guard here(mutex_);
        const serials mine = read(serial);
        return mine ? loss(mine) : distlock::detail::stopped_token();
    }
    std::uint64_t shared_fence(std::uint64_t serial) const noexcept override {
        if (in_forked_child()) return 0;
        const guard here(mutex_);
        const serials mine = read(serial);
        return mine ? fence_of(mine) : 0;
    }

  private:
    enum class phase {
        idle,
        asking,      ///< a thread asks the server for it, or waits in the queue
        open,        ///< it has the lock, until its last reader goes
        exchanging,  ///< the same, and its one reader asks to become the writer
        releasing,
    };
    // Readers that have the lock by one grant, and those that wait for it.
    struct batch {
        explicit batch(std::unique_ptr<lock_core> of) : core(std::move(of)) {}
        time_point until() const noexcept { return core->valid_until(serial); }
        std::stop_token lost() const { return core->lost(serial); }

        const std::shared_ptr<lock_core> core;
        phase now = phase::idle;
        std::uint64_t serial = 0;  // of the core's acquisition
        std::uint64_t fence = 0;
        std::size_t readers = 0;
        bool used = false;  // by one of them that has ended
        time_point joins_until{};
        duration least{};      // of validity, for readers that join: half of what the first one had
        waiter_queue members;  // of asking: threads that wait for the one that asks
        errc last_error{};     // of asking: how the last attempt failed
        time_point failing_since{};
        std::optional<time_point> at_last{};  // of asking: since then, once, for all whose time is up
    };
    struct turn {
        batch* asks = nullptr;  // by this thread, next
        result told = {};
        time_point failing_since = time_point::max();  // of the one that asks: as manner::failing_since
    };
    release_outcome leave_batch(std::uint64_t serial, bool has_read) noexcept DISTLOCK_EXCLUDES(mutex_) {
        if (in_forked_child()) return release_outcome::wrong_process;
        batch* last = nullptr;
        bool used = false;
        {
            const guard here(mutex_);
            // A thread that ended may have left its guard to another, and its id to this one.
            const auto* const mine = serial == 0 ? holds_.newest_unguarded() : holds_.find(serial);
            if (mine == nullptr) return release_outcome::not_held;
            batch& in = *mine->in;
            const serials ended{.read = mine->serial};
            holds_.remove(*mine);
            used = in.used = in.used || has_read;
            if (--in.readers > 0) {
                const auto until = in.until();
                return time_.now() < until ? release_outcome::released : release_outcome::expired;
            }
            if (in.now == phase::exchanging) {
                continuations_.take(ended);
                return release_outcome::posted;  // try_upgrade() ends it
            }
            in.now = phase::releasing;
            if (joined_ == &in) joined_ = std::exchange(successor_, nullptr);
            last = &in;
        }
        return release(*last, used);
    }

    // Preconditions: phase::releasing, set by this thread.
    release_outcome release(batch& last, bool used) noexcept DISTLOCK_EXCLUDES(mutex_) {
        auto done = release_outcome::released;
        if (used) {
            done = last.core->unlock(last.serial);
        } else {
            last.core->undo(last.serial);
        }
        const guard here(mutex_);
        last.now = phase::idle;
        return done;
    }

    // Readers that come later stand behind it.
    class waiting_writer {
      public:
        explicit waiting_writer(shared_object& of) noexcept : of_(of) {
            const guard here(of_.mutex_);
            ++of_.waiting_writers_;
            of_.joined_ = of_.successor_ = nullptr;
        }
        ~waiting_writer() {
            const guard here(of_.mutex_);
            --of_.waiting_writers_;
        }
        waiting_writer(const waiting_writer&) = delete;
        waiting_writer& operator=(const waiting_writer&) = delete;

      private:
        shared_object& of_;
    };

    // Room for all that may be granted at once: a grant must not fail for want of memory.
    // Throws: std::bad_alloc.
    void make_room() DISTLOCK_REQUIRES(mutex_) { holds_.make_room(expected_ + 1); }

    // Preconditions: make_room(), for each that was not let in yet.
    result let_in(batch& to, std::thread::id whom, bool guarded) noexcept DISTLOCK_REQUIRES(mutex_) {
        ++to.readers;
        holds_.add({whom, ++serial_, &to, guarded ? ended_by::guard : ended_by::thread});
        return {.serial = serial_, .fence = to.fence};
    }

    // Effects: some that were left idle by a burst go to `over`: a try looks at each.
    // Throws: std::bad_alloc.
    batch& idle_batch(surplus<batch>& over) DISTLOCK_REQUIRES(mutex_);

    result enter_batch(time_point until, manner how, const std::stop_token& stop) DISTLOCK_EXCLUDES(mutex_);

    // A writer, not before the readers of this object that have ended.
    result ask_after_readers(time_point until, const manner& how, const std::stop_token& stop)
        DISTLOCK_EXCLUDES(mutex_);

    bool may_join(const batch& open) const noexcept DISTLOCK_REQUIRES(mutex_) {
        const auto now = time_.now();
        return waiting_writers_ == 0 && now < open.joins_until && open.until() - now > open.least;
    }

    // The next batch is asked for while readers go on joining this one: else all of them would sleep.
    bool ends_soon(const batch& open) const noexcept {
        return open.joins_until - time_.now() < joining_time(options_) / 4;
    }

    // Returns: the batch that this thread asks for next, or how its wait ended.
    turn wait_for_turn(waiter_queue::waiter& me, time_point until, bool once, const std::stop_token& stop)
        DISTLOCK_EXCLUDES(mutex_);

    // Throws: std::bad_alloc; nothing has changed then.
    batch& begin_asking(surplus<batch>& over) DISTLOCK_REQUIRES(mutex_) {
        batch& mine = idle_batch(over);
        mine.now = phase::asking;
        mine.last_error = {};
        mine.at_last = {};
        ++expected_;
        return mine;
    }

    result failed(errc cause) const {
        return {.cause = cause, .detail = distlock::detail::shown_lock(name())};
    }
    // `cause`: as waiter_queue::waiter::cause.
    result answer(errc cause) const {
        if (cause == errc{} || cause == errc::holder_without_ttl) return {.without_ttl = cause != errc{}};
        return failed(cause);
    }

    // Preconditions: this thread set the batch's phase to asking, or was told to go on.
    result ask(batch& mine, time_point until, manner how, const std::stop_token& stop)
        DISTLOCK_EXCLUDES(mutex_);
    // Effects: the members of the last look are told, too, and are left in `to_wake`.
    void end_in_vain(batch& mine, const result& got, waiter_queue& to_wake) noexcept
        DISTLOCK_REQUIRES(mutex_);
    // Effects: the calling thread reads, and so do the members, which are left in `to_wake`.
    result open(batch& mine, const result& got, bool guarded, waiter_queue& to_wake) noexcept
        DISTLOCK_REQUIRES(mutex_);

    // Returns: the acquisition that the guard has now.
    serials now(const serials& guards) const noexcept DISTLOCK_REQUIRES(mutex_) {
        const serials other = continuations_.now(guards);
        return other ? other : guards;
    }
    // `serial`: 0: the calling thread's last.
    serials read(std::uint64_t serial) const noexcept DISTLOCK_REQUIRES(mutex_) {
        if (serial != 0) return now({.read = serial});
        const auto* const mine = holds_.newest();
        return {.read = mine != nullptr ? mine->serial : 0};
    }
    // `of`: {}: the present write.
    time_point until(const serials& of) const noexcept DISTLOCK_REQUIRES(mutex_) {
        if (of.read == 0) return writers_->valid_until(of.write);
        const auto* const reads = holds_.find(of.read);
        return reads != nullptr ? reads->in->until() : time_point{};
    }
    std::stop_token loss(const serials& of) const DISTLOCK_REQUIRES(mutex_) {
        if (of.read == 0) return writers_->lost(of.write);
        const auto* const reads = holds_.find(of.read);
        return reads != nullptr ? reads->in->lost() : distlock::detail::stopped_token();
    }
    std::uint64_t fence_of(const serials& of) const noexcept DISTLOCK_REQUIRES(mutex_) {
        if (of.read == 0) return writers_->fence(of.write);
        const auto* const reads = holds_.find(of.read);
        return reads != nullptr ? reads->in->fence : 0;
    }
    // Effects: ends what a guard's acquisition, whose own end was `done`, has become.
    release_outcome end_continuation(serials of, release_outcome done) noexcept DISTLOCK_EXCLUDES(mutex_);

    // An exchange that a thread has begun, and ends in any case. Without a token there is none.
    struct running_exchange {
        exchange of = {};
        batch* in = nullptr;       // of its reader
        std::uint64_t reader = 0;  // of an upgrade
        serials guards = {};       // what its guard knows; {}: it has none
    };
    // Throws: std::bad_alloc; the exchange may have begun.
    void begin_downgrade(running_exchange& mine) DISTLOCK_EXCLUDES(mutex_);
    void begin_upgrade(running_exchange& mine) DISTLOCK_EXCLUDES(mutex_);
    // Effects: of an exchange that was granted, or that the server may have granted.
    // Returns: false: a guard has ended it meanwhile, so what was granted is to be ended, too.
    bool end_downgrade(const running_exchange& mine, const result& got) noexcept DISTLOCK_EXCLUDES(mutex_);
    bool end_upgrade(const running_exchange& mine, const result& got) noexcept DISTLOCK_EXCLUDES(mutex_);
    // Effects: of one that was refused: its reader reads on, unless a guard has ended it meanwhile.
    void read_on(const running_exchange& mine) noexcept DISTLOCK_EXCLUDES(mutex_);

    // Effects: the next thread that waits in this batch asks, if there is one.
    void end_asking(batch& mine) noexcept DISTLOCK_REQUIRES(mutex_) {
        --expected_;
        if (!mine.members.empty()) return mine.members.dequeue(wake::go_remote).wake_up();
        mine.now = phase::idle;
        if (joined_ == &mine) joined_ = nullptr;
        if (successor_ == &mine) successor_ = nullptr;
        if (last_look_ == &mine) last_look_ = nullptr;
    }

    const lock_options options_;
    const std::shared_ptr<lease_observer> observer_;  // may own the connection, which io_ uses
    const std::shared_ptr<background_io> io_;
    const time_source time_;
    const std::shared_ptr<const any_dialect> dialect_;  // of readers
    const std::unique_ptr<lock_core> writers_;

    mutable distlock::detail::annotated_mutex mutex_;
    std::vector<std::unique_ptr<batch>> batches_ DISTLOCK_GUARDED_BY(mutex_);
    batch* joined_ DISTLOCK_GUARDED_BY(mutex_) = nullptr;     // by readers that come now
    batch* successor_ DISTLOCK_GUARDED_BY(mutex_) = nullptr;  // of joined_, that a thread asks for
    batch* last_look_ DISTLOCK_GUARDED_BY(mutex_) = nullptr;  // the newest that is asked for at_last
    reader_holds<batch> holds_ DISTLOCK_GUARDED_BY(mutex_);
    continuations continuations_ DISTLOCK_GUARDED_BY(mutex_);
    std::size_t expected_ DISTLOCK_GUARDED_BY(mutex_) = 0;  // readers that ask or wait
    std::uint64_t serial_ DISTLOCK_GUARDED_BY(mutex_) = 0;
    int waiting_writers_ DISTLOCK_GUARDED_BY(mutex_) = 0;
};

}  // namespace distlock::engine
