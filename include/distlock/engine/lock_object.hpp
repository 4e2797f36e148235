// One lock object shared by threads: what it is to them. How one of them comes to the lock is in
// lock_object_acquire.hpp; how it is kept, and how it ends, in lock_object_hold.hpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/base/observer.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/time_source.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/concat.hpp>
#include <distlock/detail/printable.hpp>
#include <distlock/detail/saturate.hpp>
#include <distlock/detail/system.hpp>
#include <distlock/detail/thread_safety.hpp>
#include <distlock/engine/acquire_step.hpp>
#include <distlock/engine/acquisition.hpp>
#include <distlock/engine/action.hpp>
#include <distlock/engine/background_io.hpp>
#include <distlock/engine/delayed_release.hpp>
#include <distlock/engine/inbox.hpp>
#include <distlock/engine/lock_core.hpp>
#include <distlock/engine/mutex_state.hpp>
#include <distlock/engine/reacquire_backoff.hpp>
#include <distlock/engine/releaser.hpp>
#include <distlock/engine/remote_status.hpp>
#include <distlock/engine/waiter_queue.hpp>
#include <distlock/net/any_connection.hpp>
#include <distlock/wire/acknowledgement.hpp>
#include <distlock/wire/any_dialect.hpp>
#include <distlock/wire/joint_try.hpp>

namespace distlock::engine {

/// Thread-safe. One thread at a time asks the server, the others of the process wait for it. The lock object
/// is the background's task of renewing the lease, and the deadline that the lease ends at. No code of the
/// user runs under its mutex.
class lock_object final : public lock_core, background_task, deadline {
    using time_point = clock::time_point;
    using duration = clock::duration;
    using phase = mutex_state::phase;

  public:
    /// Preconditions: the options are checked.
    [[gnu::cold]] lock_object(std::shared_ptr<background_io> io, std::shared_ptr<const any_dialect> dialect,
                              const lock_options& options, std::shared_ptr<lease_observer> observer)
        : options_(in_effect(options)),
          observer_(std::move(observer)),
          io_(std::move(io)),
          time_(io_->time()),
          dialect_(std::move(dialect)),
          waits_(manner_of_waiting(io_->connection(), *dialect_)),
          backoff_(contenders(), time_.is_real()),
          releaser_(io_, dialect_, answer_time()),
          messages_(io_, dialect_) {
        // A renewal is tried again, and holds up those of other locks.
        if (options_.replicas > 0)
            replicas_.emplace(options_.replicas, std::min(replica_timeout(), answer_time()));
        background_task::early = duration(options_.lease.get()) / 48;
    }

    [[gnu::cold]] ~lock_object() override {
        if (in_forked_child()) return;
        parting last;
        {
            const distlock::detail::annotated_lock guard(mutex_);
            if (threads_.held() != nullptr) last = part(usage::used);
        }
        complete(last);
        io_->cancel(static_cast<background_task&>(*this));
        io_->deadlines().cancel(static_cast<deadline&>(*this));
    }

    const std::string& name() const noexcept override { return dialect_->name(); }

    result acquire(time_point until, manner how, const std::stop_token& stop) override {
        if (in_forked_child()) return failed(errc::wrong_process);
        if (stop.stop_requested()) return failed(errc::cancelled);
        const auto longest_turn = how.together != nullptr ? duration::zero() : longest_command();
        auto done = how.once ? try_turn(longest_turn, until, stop) : queue_up(until, how, stop);
        // The trouble of another thread is none of an exchange that was not asked for: nothing has changed.
        if (done) return how.in_exchange_for != nullptr ? result{} : *std::move(done);
        auto bounds = limits(until, how.once);
        bounds.in_exchange_for = how.in_exchange_for;
        bounds.failing_since = how.failing_since;
        return acquire_remotely(bounds, how, stop);
    }

    [[gnu::cold]] bool may_join() const override {
        return options_.replicas == 0 && distlock::detail::joint_try::may_contain(dialect_->look({}));
    }
    any_connection& connection() const noexcept override { return io_->connection(); }

    result adopt() noexcept override {
        if (in_forked_child()) return {};
        const distlock::detail::annotated_lock guard(mutex_);
        const auto by = threads_.adopt(std::this_thread::get_id());
        return {.serial = by.serial, .fence = by.fence};
    }
    release_outcome unlock() noexcept override { return end_mine(); }
    release_outcome unlock(std::uint64_t serial) noexcept override { return end_of(serial, usage::used); }
    void undo(std::uint64_t serial) noexcept override {
        // By now another thread may have what this one has lost, and that is not for it to end.
        if (serial == 0) serial = adopt().serial;
        if (serial != 0) end_of(serial, usage::unused);
    }

    exchange begin_exchange(std::uint64_t serial) noexcept override { return offer_in_exchange(serial); }
    [[gnu::cold]] void end_exchange(const exchange& of) noexcept override {
        const distlock::detail::annotated_lock guard(mutex_);
        if (exchanging_ == of.serial) exchanging_ = 0;
    }
    void surrender(const exchange& of, bool in_vain) noexcept override { give_up_in_exchange(of, in_vain); }

    time_point valid_until(std::uint64_t serial) const noexcept override {
        if (in_forked_child()) return {};
        const distlock::detail::annotated_lock guard(mutex_);
        return has(serial) ? threads_.present().lease().until() : time_point{};
    }
    [[gnu::cold]] std::stop_token lost(std::uint64_t serial) const override {
        if (in_forked_child()) return distlock::detail::stopped_token();
        const distlock::detail::annotated_lock guard(mutex_);
        if (!has(serial)) return distlock::detail::stopped_token();
        try {
            auto told = threads_.present().lost(io_->callbacks(), time_.now());
            if (threads_.present().has_listeners()) schedule_deadline();
            return told;
        } catch (const std::system_error& e) {
            throw no_thread(e);
        }
    }
    std::uint64_t fence(std::uint64_t serial) const noexcept override {
        if (in_forked_child()) return 0;
        const distlock::detail::annotated_lock guard(mutex_);
        return has(serial) ? threads_.present().held_by().fence : 0;
    }
    [[gnu::cold]] duration residual() const noexcept override {
        if (in_forked_child()) return {};
        auto last = releaser_.latest_expiry();
        {
            const distlock::detail::annotated_lock guard(mutex_);
            if (kept_) last = std::max(last, kept_->latest_expiry());
        }
        return std::max(last - time_.now(), duration::zero());
    }

    bool unconfirmed() noexcept override { return releaser_.unconfirmed(); }
    void confirm_posted(time_point by, const std::stop_token& stop) noexcept override {
        releaser_.confirm_posted(by, stop);
    }

    bool in_forked_child() const noexcept override { return process_.in_forked_child(); }

  private:
    // How a thread's wait for its turn ended.
    struct turn_end {
        enum class kind { granted, goes_remote, cancelled, timed_out, failed };
        kind what;
        errc cause = {};                               // of failed
        time_point failing_since = time_point::max();  // of goes_remote: as manner::failing_since
    };

    // Whether an acquisition was of use to its owner. A thread that gives back an unused one
    // waits for no answer.
    enum class usage { used, unused };

    // The end of an acquisition for one thread.
    struct parting {
        waiter_queue::waiter* next = nullptr;        // that it was passed on to
        std::optional<ended_acquisition> last = {};  // to be released
        std::optional<release_outcome> kept = {};    // until hold_at_least is over
        usage how = usage::used;                     // of `last`
    };

    // A renewal that is on its way.
    struct renewing {
        token owner;
        std::uint64_t granted_serial = 0;  // 0: none, or its acquisition was released
    };

    reacquire_backoff::contenders contenders() const noexcept {
        using how = reacquire_backoff::contenders;
        if (dialect_->channel()) return how::are_told;
        return waits_ == waiting_manner::queues ? how::queue : how::poll;
    }

    // How long an answer may be on its way.
    std::chrono::milliseconds answer_time() const {
        return io_->connection().command_timeout().value_or(std::chrono::milliseconds{200});
    }

    duration longest_command() const { return answer_time() + io_->connection().connect_timeout(); }

    [[gnu::cold]] std::chrono::milliseconds replica_timeout() const {
        const auto longest = std::min(options_.replica_timeout.get(), options_.lease.get() / 6);
        return io_->connection().can.acknowledge ? longest : std::min(longest, answer_time() / 2);
    }

    acquire_limits limits(time_point until, bool once) const;

    // `detail`: fit for a message.
    [[gnu::noinline, gnu::cold]] result failed(errc cause, std::string_view detail = {}) const {
        return {.cause = cause,
                .detail =
                    distlock::detail::concat({dialect_->noun(), " ", distlock::detail::printable(name(), 100),
                                              detail.empty() ? "" : ": ", detail})};
    }

    [[gnu::noinline, gnu::cold]] error no_thread(const std::system_error& why) const {
        return {errc::no_thread, failed(errc::no_thread, why.what()).detail};
    }

    bool is_exchanged(const acquisition& one) const noexcept DISTLOCK_REQUIRES(mutex_) {
        return exchanging_ != 0 && one.held_by().serial == exchanging_;
    }

    [[gnu::noinline]] bool has(std::uint64_t serial) const noexcept DISTLOCK_REQUIRES(mutex_) {
        return threads_.has(std::this_thread::get_id(), serial);
    }

    bool may_go_remote() const DISTLOCK_REQUIRES(mutex_) {
        return threads_.may_go_remote([this] { return time_.now(); });
    }

    bool start_remote_if_free() DISTLOCK_EXCLUDES(mutex_);

    // Preconditions: may_go_remote().
    void start_remote() noexcept DISTLOCK_REQUIRES(mutex_);

    // For a thread that does not wait for another owner. While a thread of ours asks the server, that
    // one knows whether "somebody else has it" would be true, and this one waits for its first
    // answer, for `longest` or until `until`.
    // Returns: none when it is for this thread to ask the server.
    std::optional<result> try_turn(duration longest, time_point until, const std::stop_token& stop)
        DISTLOCK_EXCLUDES(mutex_);

    // Effects: where the last answer to another thread is old, as that to a re-check, asks the server whether
    // it answers, by renewing nobody's lock. Returns: why it cannot be said that somebody else has the lock.
    errc confirm_taken(duration longest, const std::stop_token& stop) DISTLOCK_EXCLUDES(mutex_);

    // Returns: what became of it; none when it is for this thread to ask the server.
    std::optional<result> queue_up(time_point until, manner& how, const std::stop_token& stop)
        DISTLOCK_EXCLUDES(mutex_);

    // Postconditions: of goes_remote: as start_remote().
    turn_end wait_for_turn(waiter_queue::waiter& mine, time_point until, const std::stop_token& stop) noexcept
        DISTLOCK_EXCLUDES(mutex_);

    bool reached(time_point until) const { return until != time_point::max() && time_.now() >= until; }

    // Effects: the next thread of ours asks the server, if there is one.
    void end_remote() noexcept DISTLOCK_REQUIRES(mutex_);

    // Preconditions: start_remote() was called by this thread.
    result acquire_remotely(const acquire_limits& limits, const manner& how, const std::stop_token& stop)
        DISTLOCK_EXCLUDES(mutex_);

    // Half of the time is left to ask in, and all of it where another thread of ours waits for the answer.
    void back_off(time_point until, const std::stop_token& stop);

    grant ask(const acquire_limits& limits, const std::stop_token& stop, joint_executor* together = nullptr);

    // Throws: when the lease cannot be watched; the lock is given back then.
    result hold(const grant& got, bool guarded, const std::stop_token& stop) DISTLOCK_EXCLUDES(mutex_);

    result begin_hold(const grant& got, bool guarded) DISTLOCK_REQUIRES(mutex_);

    [[gnu::cold]] void give_back(const grant& got, const std::stop_token& stop) noexcept;

    result not_granted(const grant& got, const manner& how) DISTLOCK_EXCLUDES(mutex_);
    std::string reason_of(const grant& got) const;

    release_outcome end_mine() noexcept DISTLOCK_EXCLUDES(mutex_);
    release_outcome end_of(std::uint64_t serial, usage how) noexcept DISTLOCK_EXCLUDES(mutex_);

    exchange offer_in_exchange(std::uint64_t serial) noexcept DISTLOCK_EXCLUDES(mutex_);
    void give_up_in_exchange(const exchange& of, bool in_vain) noexcept DISTLOCK_EXCLUDES(mutex_);

    // Preconditions: there is an acquisition.
    // Effects: it is over for its owner.
    parting part(usage how) noexcept DISTLOCK_REQUIRES(mutex_);

    bool holds_on() const noexcept { return options_.hold_at_least.get().count() > 0; }
    time_point least_hold_end(const acquisition& one) const noexcept {
        using distlock::detail::rounding;
        const auto least =
            distlock::detail::saturating_cast<duration, rounding::up>(options_.hold_at_least.get());
        return distlock::detail::saturating_add(one.granted_at(), least);
    }
    // Returns: whether others may not have it yet, also when it was lost.
    bool too_early(const acquisition& one, time_point now) const noexcept {
        return holds_on() && now < least_hold_end(one);
    }
    // Preconditions: too_early(); it is not held any more.
    // Effects: the background releases it in time. Returns: what to tell the caller of unlock().
    [[gnu::cold]] release_outcome keep(const acquisition& one, time_point now) noexcept
        DISTLOCK_REQUIRES(mutex_);

    // A renewal that is on its way is not waited for: what comes of it, by this token, is released
    // next or finds nothing.
    ended_acquisition ended(acquisition mine, time_point now) noexcept DISTLOCK_REQUIRES(mutex_);

    release_outcome complete(const parting& p) noexcept DISTLOCK_EXCLUDES(mutex_);

    // Throws: std::system_error, std::bad_alloc.
    void schedule_deadline() const DISTLOCK_REQUIRES(mutex_);
    // Effects: the first waiter is woken when the lease ends. Returns: false where nobody can.
    bool try_schedule_deadline() noexcept DISTLOCK_REQUIRES(mutex_);
    [[gnu::cold]] time_point on_deadline(time_point now) noexcept override DISTLOCK_EXCLUDES(mutex_) {
        const distlock::detail::annotated_lock guard(mutex_);
        auto* const held = threads_.held();
        if (held == nullptr || (!held->has_listeners() && threads_.waiters().empty()))
            return time_point::max();
        if (!held->notify_loss(io_->callbacks(), now)) return held->lease().until();
        threads_.waiters().recheck_first();
        return time_point::max();
    }

    // Returns: when the background looks at it. A connection hears of another master as long as something is
    // to be done later: where no renewal is due before the longest hold is over, that is its end.
    time_point next_look(const renewal& lease) const noexcept {
        const bool due = lease.due() != time_point::max();
        return due || !options_.renew || !io_->connection().can.follow ? lease.due() : lease.until();
    }
    // Throws: std::system_error, std::bad_alloc.
    void schedule_renewal(const renewal& lease) DISTLOCK_REQUIRES(mutex_);
    // Returns: whether another server took the place of the one that granted or renewed it last.
    [[gnu::cold]] bool follow_master(acquisition& held) noexcept DISTLOCK_REQUIRES(mutex_);
    [[gnu::cold]] background_task::step begin(time_point now) noexcept override DISTLOCK_EXCLUDES(mutex_) {
        const distlock::detail::annotated_lock guard(mutex_);
        auto* const held = threads_.held();
        renewal_at_ = time_point::max();
        if (held == nullptr || now >= held->lease().until()) return {{}, renewal_at_};
        follow_master(*held);
        if (!held->lease().ready(now)) return {{}, renewal_at_ = next_look(held->lease())};
        renewing_ = {held->owner(), held->granted_serial()};
        command renew = dialect_->renew(renewing_.owner);
        renew.until(held->lease().until());
        if (!replicas_) return {renew, {}, {}};
        return {renew, {}, replicas_->behind(renew)};
    }
    [[gnu::cold]] time_point end(const reply& answer, time_point sent, time_point came) noexcept override {
        return renewed(dialect_->read_renew(answer), sent, came);
    }
    // A renewal that too few replicas have does not count; it is not undone either.
    [[gnu::cold]] time_point end_both(const reply& answer, const reply& replicated, time_point sent,
                                      time_point came) noexcept override {
        auto outcome = dialect_->read_renew(answer);
        const bool enough = replicas_->read(replicated).what == acknowledgement::kind::enough;
        if (outcome.what == renew_outcome::kind::kept && !enough) outcome.what = renew_outcome::kind::later;
        return renewed(outcome, sent, came);
    }
    [[gnu::cold]] time_point renewed(const renew_outcome& outcome, time_point sent, time_point came) noexcept
        DISTLOCK_EXCLUDES(mutex_);

    [[gnu::cold]] void on_renewal(acquisition& held, const renew_outcome& outcome, time_point sent,
                                  time_point now) noexcept DISTLOCK_REQUIRES(mutex_);

    const lock_options options_;
    const std::shared_ptr<lease_observer> observer_;  // may own the connection, which io_ uses
    const std::shared_ptr<background_io> io_;
    const time_source time_;
    const std::shared_ptr<const any_dialect> dialect_;
    const waiting_manner waits_;
    std::optional<replica_wait> replicas_;  // of renewals; set once
    const distlock::detail::own_process process_;

    mutable distlock::detail::annotated_mutex mutex_;
    mutable mutex_state threads_ DISTLOCK_GUARDED_BY(mutex_){name(), io_.get()};
    std::uint64_t failures_ DISTLOCK_GUARDED_BY(mutex_) = 0;  // attempts that ended in trouble
    errc last_failure_ DISTLOCK_GUARDED_BY(mutex_){};         // of the last of them
    bool unwatched_ DISTLOCK_GUARDED_BY(mutex_) = false;  // no thread could be had to tell of the lease's end
    // The background looks no later than that.
    time_point renewal_at_ DISTLOCK_GUARDED_BY(mutex_) = time_point::max();
    // The acquisition in whose place another lock is asked for, by its serial; 0: none.
    std::uint64_t exchanging_ DISTLOCK_GUARDED_BY(mutex_) = 0;
    renewing renewing_ DISTLOCK_GUARDED_BY(mutex_);  // but for its token while it is on its way
    std::shared_ptr<delayed_release> kept_ DISTLOCK_GUARDED_BY(mutex_);  // the last one

    remote_status status_;  // of the thread that goes remote: whether the server answers it
    reacquire_backoff backoff_;
    time_point unqueued_until_{};  // of a reader: until then nobody waits for the lock while it is free
    mutable releaser releaser_;
    inbox messages_;
};

}  // namespace distlock::engine
