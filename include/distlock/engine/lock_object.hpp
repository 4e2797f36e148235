// One lock object shared by threads: which of them asks the server, whose the acquisition is, and how it ends.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
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
#include <distlock/engine/acquisition.hpp>
#include <distlock/engine/background_io.hpp>
#include <distlock/engine/blocking.hpp>
#include <distlock/engine/inbox.hpp>
#include <distlock/engine/kept_hold.hpp>
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

/// Thread-safe. One thread at a time asks the server, the others of the process wait for it. The lock object is the background's
/// task of renewing the lease, and the deadline that the lease ends at. No code of the user runs under its mutex.
class lock_object final : public lock_core, background_task, deadline {
    using time_point = clock::time_point;
    using duration = clock::duration;
    using phase = mutex_state::phase;

  public:
    /// Preconditions: the options are checked.
    [[gnu::cold]] lock_object(std::shared_ptr<background_io> io, std::shared_ptr<const any_dialect> dialect,
                              const lock_options& options, std::shared_ptr<lease_observer> observer)
        : options_(in_effect(options)),
          io_(std::move(io)),
          time_(io_->time()),
          dialect_(std::move(dialect)),
          observer_(std::move(observer)),
          waits_(manner_of_waiting(io_->connection(), *dialect_)),
          backoff_(contenders()),
          releaser_(io_, dialect_, options_.release, answer_time()),
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
        const auto turn_comes_by = how.together != nullptr ? duration::zero() : answer_time();
        auto done = how.once ? try_turn(turn_comes_by, stop) : queue_up(until, how.guarded, stop);
        if (done) return *std::move(done);
        auto bounds = limits(until, how.once);
        bounds.in_exchange_for = how.in_exchange_for;
        return acquire_remotely(bounds, how, stop);
    }

    [[gnu::cold]] bool may_join() const override {
        return options_.replicas == 0 && distlock::detail::joint_try::may_contain(dialect_->look({}));
    }
    any_connection& connection() const noexcept override { return io_->connection(); }

    release_outcome unlock() noexcept override { return end_mine(usage::used); }
    release_outcome unlock(std::uint64_t serial) noexcept override { return end_of(serial, usage::used); }
    void undo(std::uint64_t serial) noexcept override {
        serial == 0 ? end_mine(usage::unused) : end_of(serial, usage::unused);
    }

    [[gnu::cold]] token exchanged(std::uint64_t serial) noexcept override {
        if (in_forked_child()) return {};
        const distlock::detail::annotated_lock guard(mutex_);
        if (!has(serial) || time_.now() >= threads_.held()->lease().until()) return {};
        // An acquisition may be released by any thread, but goes on as another one's for its own thread alone.
        if (serial == 0 && threads_.held()->held_by().thread != std::this_thread::get_id()) return {};
        exchanging_ = true;
        return threads_.held()->owner();
    }
    [[gnu::cold]] void end_exchange() noexcept override {
        const distlock::detail::annotated_lock guard(mutex_);
        exchanging_ = false;
    }
    [[gnu::cold]] void surrender(std::uint64_t serial) noexcept override {
        const distlock::detail::annotated_lock guard(mutex_);
        exchanging_ = false;
        if (!has(serial)) return;
        const auto mine = ended(threads_.release(), time_.now());
        releaser_.repeat(mine.owner, certainty::granted, mine.latest_expiry);
        messages_.forget();
        end_remote();
    }

    time_point valid_until(std::uint64_t serial) const noexcept override {
        if (in_forked_child()) return {};
        const distlock::detail::annotated_lock guard(mutex_);
        return has(serial) ? threads_.held()->lease().until() : time_point{};
    }
    [[gnu::cold]] std::stop_token lost(std::uint64_t serial) const override {
        if (in_forked_child()) return distlock::detail::stopped_token();
        const distlock::detail::annotated_lock guard(mutex_);
        if (!has(serial)) return distlock::detail::stopped_token();
        try {
            auto told = threads_.held()->lost(io_->callbacks(), time_.now());
            if (threads_.held()->has_listeners()) schedule_deadline();
            return told;
        } catch (const std::system_error& e) {
            throw no_thread(e);
        }
    }
    std::uint64_t fence() const noexcept override {
        if (in_forked_child()) return 0;
        const distlock::detail::annotated_lock guard(mutex_);
        return has(0) ? threads_.held()->held_by().fence : 0;
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
    void confirm_posted(const std::stop_token& stop) noexcept override { releaser_.confirm_posted(stop); }

    bool in_forked_child() const noexcept override { return distlock::detail::current_process() != process_; }

  private:
    // How a thread's wait for its turn ended.
    struct turn_end {
        enum class kind { granted, goes_remote, cancelled, timed_out, failed };
        kind what;
        errc cause = {};  // of failed
    };

    // Whether an acquisition was of use to its owner.
    enum class usage { used, unused };

    // The end of an acquisition for one thread.
    struct parting {
        waiter_queue::waiter* next = nullptr;        // that it was passed on to
        std::optional<ended_acquisition> last = {};  // to be released
        std::optional<release_outcome> kept = {};    // until hold_at_least is over
    };

    // A renewal that is on its way.
    struct renewing {
        token owner;
        std::uint64_t granted_serial = 0;  // 0: none, or its acquisition was released
    };

    // A thread that is passed the lock is another owner, and comes too early as any other.
    static lock_options in_effect(lock_options options) noexcept {
        if (options.hold_at_least.get().count() > 0) options.local_budget = std::chrono::milliseconds{0};
        return options;
    }

    reacquire_backoff::contenders contenders() const noexcept {
        using how = reacquire_backoff::contenders;
        if (dialect_->channel()) return how::are_told;
        return waits_ == waiting_manner::queues ? how::queue : how::poll;
    }

    // How long an answer may be on its way.
    std::chrono::milliseconds answer_time() const {
        return io_->connection().command_timeout().value_or(std::chrono::milliseconds{200});
    }

    [[gnu::cold]] std::chrono::milliseconds replica_timeout() const {
        const auto longest = std::min(options_.replica_timeout.get(), options_.lease.get() / 6);
        return io_->connection().can.acknowledge ? longest : std::min(longest, answer_time() / 2);
    }

    [[gnu::noinline]] acquire_limits limits(time_point until, bool once) const {
        const auto usual = waits_ == waiting_manner::polls ? distlock::detail::default_recheck
                                                           : distlock::detail::default_look;
        return {.lease = dialect_->lease(),
                .recheck = options_.recheck.given() ? options_.recheck.get() : usual,
                .patience = options_.patience,
                .deadline = until,
                .once = once,
                .waits = waits_,
                .wants_fence = options_.fencing,
                .claims_lease = !options_.renew || holds_on(),
                .replicas = options_.replicas,
                .replica_timeout = replica_timeout()};
    }

    [[gnu::noinline, gnu::cold]] result failed(errc cause, std::string_view trouble = {}) const {
        return {.cause = cause,
                .detail = distlock::detail::concat({"lock ", distlock::detail::printable(name(), 100),
                                                    trouble.empty() ? "" : ": ",
                                                    distlock::detail::printable(trouble)})};
    }

    [[gnu::noinline, gnu::cold]] error no_thread(const std::system_error& why) const {
        return {errc::no_thread, distlock::detail::concat(
                                     {"lock ", distlock::detail::printable(name(), 100), ": ", why.what()})};
    }

    [[gnu::noinline]] bool has(std::uint64_t serial) const noexcept DISTLOCK_REQUIRES(mutex_) {
        return threads_.has(std::this_thread::get_id(), serial);
    }

    bool may_go_remote() const DISTLOCK_REQUIRES(mutex_) {
        return threads_.may_go_remote([this] { return time_.now(); });
    }

    bool start_remote_if_free() DISTLOCK_EXCLUDES(mutex_) {
        const distlock::detail::annotated_lock guard(mutex_);
        if (!threads_.waiters().empty() || !may_go_remote()) return false;
        start_remote();
        return true;
    }

    // Preconditions: may_go_remote().
    [[gnu::noinline]] void start_remote() noexcept DISTLOCK_REQUIRES(mutex_) {
        status_.begin();
        auto lost = threads_.start_remote();
        if (!lost) return;
        const auto now = time_.now();
        lost->notify_loss(io_->callbacks(), now);
        if (too_early(*lost, now)) {
            keep(*lost, now);
            return;
        }
        // What its owner would have released is released: after the longest hold the key has much of a lease before it.
        const auto expiry = lost->lease().latest_expiry();
        if (now < lost->late_until()) {
            releaser_.repeat(lost->owner(), certainty::in_doubt, std::max(expiry, lost->late_until()));
        } else if (expiry - now > duration(options_.lease.get()) / 8) {
            releaser_.repeat(lost->owner(), certainty::granted, expiry);
        }
    }

    // For a thread that does not wait for another owner. While a thread of ours asks the server, that one knows whether
    // "somebody else has it" would be true, and this one waits for its first answer, for `longest`.
    // Returns: none when it is for this thread to ask the server.
    std::optional<result> try_turn(duration longest, const std::stop_token& stop) DISTLOCK_EXCLUDES(mutex_) {
        std::optional<errc> heard;  // cancelled: that thread has ended without an answer
        for (const auto until = distlock::detail::saturating_add(time_.now(), longest);;) {
            {
                const distlock::detail::annotated_lock guard(mutex_);
                if (may_go_remote()) {
                    start_remote();
                    return std::nullopt;
                }
                if (threads_.current_phase() == phase::held) return result{};
                if (status_.known()) heard = status_.trouble();
            }
            if (heard && *heard != errc::cancelled) return *heard == errc{} ? result{} : failed(*heard);
            const bool answered = status_.wait(until, stop, time_);
            if (stop.stop_requested()) return failed(errc::cancelled);
            if (!answered) return failed(errc::no_reply, "the server has not answered another thread yet");
            heard = status_.trouble();
        }
    }

    // Returns: what became of it; none when it is for this thread to ask the server.
    std::optional<result> queue_up(time_point until, bool guarded, const std::stop_token& stop)
        DISTLOCK_EXCLUDES(mutex_) {
        if (start_remote_if_free()) return std::nullopt;
        waiter_queue::waiter mine(std::this_thread::get_id(), guarded);
        const auto recheck = [&] {
            const distlock::detail::annotated_lock guard(
                mutex_);  // or it would come between the look and the sleep
            mine.recheck();
        };
        std::optional<std::stop_callback<decltype(recheck)>> on_stop;
        if (stop.stop_possible()) on_stop.emplace(stop, recheck);
        const turn_end end = wait_for_turn(mine, until, stop);
        on_stop.reset();
        switch (end.what) {
            case turn_end::kind::granted:
                return result{.serial = mine.serial, .fence = mine.fence};
            case turn_end::kind::goes_remote:
                return std::nullopt;
            case turn_end::kind::cancelled:
                return failed(errc::cancelled);
            case turn_end::kind::failed:
                return failed(end.cause);
            case turn_end::kind::timed_out:
                break;
        }
        return try_turn(shortest_answer_time, stop);
    }

    // Postconditions: of goes_remote: as start_remote().
    turn_end wait_for_turn(waiter_queue::waiter& mine, time_point until, const std::stop_token& stop) noexcept
        DISTLOCK_EXCLUDES(mutex_) {
        using kind = typename turn_end::kind;
        distlock::detail::annotated_lock guard(mutex_);
        const auto failures = failures_;
        const auto came = time_.now();
        auto& waiters = threads_.waiters();
        waiters.join(mine);
        for (;;) {
            if (!mine.dequeued()) {
                const bool goes = waiters.first() == &mine && may_go_remote();
                if (goes || stop.stop_requested() || reached(until)) {
                    waiters.leave(mine);
                    if (goes) {
                        start_remote();
                        return {kind::goes_remote};
                    }
                    waiters.recheck_first();
                    return {stop.stop_requested() ? kind::cancelled : kind::timed_out};
                }
            }
            const auto* const held = threads_.held();
            const bool told = held == nullptr || waiters.first() != &mine || deadline_is_set();
            const auto longest =
                mine.prepare_sleep(told ? until : std::min(until, held->lease().until()), time_);
            guard.unlock();
            mine.sleep(longest);
            const wake why = mine.reason();
            if (why == wake::granted) return {kind::granted};
            guard.lock();
            if (why != wake::go_remote) continue;
            if (failures_ == failures || !out_of_patience(came)) {
                start_remote();
                return {kind::goes_remote};
            }
            // The threads before us have spent our patience with the server, too.
            end_remote();
            return {kind::failed, last_failure_};
        }
    }

    // `came`: when this thread did.
    [[gnu::cold]] bool out_of_patience(time_point came) const {
        using distlock::detail::rounding;
        const auto since = std::max(came, status_.trouble_since());
        const auto longest =
            distlock::detail::saturating_cast<duration, rounding::up>(options_.patience.get());
        const auto now = time_.now();
        return since < now && now - since >= longest;
    }

    bool reached(time_point until) const { return until != time_point::max() && time_.now() >= until; }

    // Effects: the next thread of ours asks the server, if there is one.
    [[gnu::noinline]] void end_remote() noexcept DISTLOCK_REQUIRES(mutex_) {
        auto* const next = threads_.end_remote();
        if (next == nullptr) return status_.end();
        status_.begin();  // a try that waits for the first answer waits for that of the next thread
        next->wake_up();
    }

    // Preconditions: start_remote() was called by this thread.
    result acquire_remotely(const acquire_limits& limits, const manner& how, const std::stop_token& stop)
        DISTLOCK_EXCLUDES(mutex_) {
        using kind = grant::kind;
        try {
            if (!limits.once) back_off(limits.deadline, stop);
            // A release of ours that was posted on another socket may come too late for a try, even if it is heard of
            // before the try's own answer.
            const bool short_of_time =
                limits.once ||
                limits.deadline < distlock::detail::saturating_add(time_.now(), duration(answer_time()));
            const bool on_its_way = short_of_time && releaser_.unconfirmed();
            if (on_its_way && how.together != nullptr) releaser_.confirm_posted(stop);
            grant got = ask(limits, stop, how.together);
            if (on_its_way && got.what == kind::gave_up && how.together == nullptr) {
                releaser_.confirm_posted(stop);
                got = ask(limits, stop);
            }
            if (got.what == kind::granted) return hold(got, how.guarded, stop);
            return not_granted(got);
        } catch (...) {
            const distlock::detail::annotated_lock guard(mutex_);
            end_remote();
            throw;
        }
    }

    // Half of the time is left to ask in, and all of it where another thread of ours waits for the answer.
    [[gnu::noinline]] void back_off(time_point until, const std::stop_token& stop) {
        const auto pause_end = backoff_.until();
        if (!pause_end) return;
        const auto now = time_.now();
        if (now < *pause_end && now < until)
            status_.pause(std::min(*pause_end, now + (until - now) / 2), stop, time_);
    }

    [[gnu::noinline]] grant ask(const acquire_limits& limits, const std::stop_token& stop,
                                joint_asker* together = nullptr) {
        const auto leave = [&](const token& owner, bool in_doubt) noexcept {
            releaser_.leave(owner, in_doubt ? certainty::in_doubt : certainty::granted, stop);
        };
        operation attempt(*dialect_, limits, backoff_.contended() || together != nullptr);
        return run_blocking(io_->connection(), time_, attempt, stop, status_, messages_, leave, together);
    }

    // Throws: when the lease cannot be watched; the lock is given back then.
    [[gnu::noinline]] result hold(const grant& got, bool guarded, const std::stop_token& stop)
        DISTLOCK_EXCLUDES(mutex_) {
        try {
            const distlock::detail::annotated_lock guard(mutex_);
            return begin_hold(got, guarded);
        } catch (const std::system_error& e) {
            give_back(got, stop);
            throw no_thread(e);
        } catch (...) {
            give_back(got, stop);
            throw;
        }
    }

    result begin_hold(const grant& got, bool guarded) DISTLOCK_REQUIRES(mutex_) {
        auto& held = threads_.hold(got, {options_.lease, options_.renew, options_.max_hold},
                                   std::this_thread::get_id(), guarded,
                                   got.in_doubt ? releaser_.late_until(got.came) : time_point{});
        try {
            if (observer_) {
                held.observe(observer_, name(), io_->callbacks());
                schedule_deadline();
            }
            schedule_renewal(held.lease());
            // The server that granted it may have been replaced before it was listed.
            if (follow_master(held)) schedule_renewal(held.lease());
        } catch (...) {
            threads_.unhold();
            throw;
        }
        status_.end();
        releaser_.on_grant();
        backoff_.on_attempt(got.contended, got.sent);
        // The first waiter must hear when this lease ends.
        if (!threads_.waiters().empty() && !deadline_is_set()) threads_.waiters().recheck_first();
        return {.serial = held.held_by().serial, .fence = got.fence};
    }

    [[gnu::cold]] void give_back(const grant& got, const std::stop_token& stop) noexcept {
        releaser_.confirm(got.token, got.until, got.came + options_.lease.get(), stop);
        if (got.in_doubt) releaser_.leave(got.token, certainty::in_doubt, {});
        messages_.forget();
    }

    [[gnu::noinline]] result not_granted(const grant& got) DISTLOCK_EXCLUDES(mutex_) {
        const auto cause = got.what == grant::kind::failed ? got.cause : errc{};
        // Made while this thread is the remote one: where there is no memory for it, the next one's turn comes once.
        result told = cause != errc{} ? failed(cause, got.trouble) : result{.without_ttl = got.without_ttl};
        {
            const distlock::detail::annotated_lock guard(mutex_);
            backoff_.on_attempt(got.contended, got.came);
            if (cause != errc{} && cause != errc::cancelled) {
                ++failures_;
                last_failure_ = cause;
            }
            end_remote();
        }
        return told;
    }

    release_outcome end_mine(usage how) noexcept DISTLOCK_EXCLUDES(mutex_) {
        if (in_forked_child()) return release_outcome::wrong_process;
        parting last;
        {
            const distlock::detail::annotated_lock guard(mutex_);
            using unlocking = mutex_state::unlocking;
            switch (threads_.unlock_by(std::this_thread::get_id())) {
                case unlocking::too_late:
                    return release_outcome::expired;
                case unlocking::not_held:
                    return release_outcome::not_held;
                case unlocking::ends:
                    break;
            }
            last = part(how);
        }
        return complete(last);
    }
    release_outcome end_of(std::uint64_t serial, usage how) noexcept DISTLOCK_EXCLUDES(mutex_) {
        if (in_forked_child()) return release_outcome::wrong_process;
        parting last;
        {
            const distlock::detail::annotated_lock guard(mutex_);
            if (!has(serial)) {
                threads_.unlocked_too_late(serial);
                return release_outcome::expired;
            }
            last = part(how);
        }
        return complete(last);
    }

    // Preconditions: there is an acquisition.
    // Effects: it is over for its owner.
    [[gnu::noinline]] parting part(usage how) noexcept DISTLOCK_REQUIRES(mutex_) {
        const auto now = time_.now();
        // It is called with the mutex.
        const auto schedule = [this](const renewal& lease) DISTLOCK_UNCHECKED { schedule_renewal(lease); };
        if (auto* const next = threads_.pass_on(now, options_.local_budget.get(),
                                                dialect_->allows_local_fences(), schedule)) {
            if (unwatched_) threads_.waiters().recheck_first();
            return {next};
        }
        if (how == usage::used && too_early(*threads_.held(), now)) {
            acquisition mine = threads_.release();
            mine.notify_loss(io_->callbacks(), now);
            return {nullptr, {}, keep(mine, now)};
        }
        return {nullptr, ended(threads_.release(), now)};
    }

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
    // Effects: the background releases it in time. Returns: what to tell who unlocks it.
    [[gnu::cold]] release_outcome keep(const acquisition& one, time_point now) noexcept
        DISTLOCK_REQUIRES(mutex_) {
        if (renewing_.granted_serial == one.granted_serial()) renewing_.granted_serial = 0;
        bool is_kept = false;
        try {
            kept_ = std::make_shared<kept_hold>(*io_, dialect_,
                                                unlocked_early{one.owner(), one.lease(), least_hold_end(one),
                                                               one.late_until(), messages_.of_queue()});
            is_kept = kept_hold::start(kept_, *io_);
        } catch (...) {
            // No memory for it: the lease ends it.
        }
        if (now >= one.lease().until()) return release_outcome::expired;
        return is_kept ? release_outcome::posted : release_outcome::unreachable;
    }

    // A renewal that is on its way is not waited for: what comes of it, by this token, is released next or finds nothing.
    [[gnu::noinline]] ended_acquisition ended(acquisition mine, time_point now) noexcept
        DISTLOCK_REQUIRES(mutex_) {
        status_.begin();
        mine.notify_loss(io_->callbacks(), now);
        auto expiry = mine.lease().latest_expiry();
        if (renewing_.granted_serial == mine.granted_serial()) {
            renewing_.granted_serial = 0;
            expiry = std::max(expiry, now + answer_time() + options_.lease.get());
        }
        return {mine.owner(), mine.lease().until(), expiry,
                now < mine.late_until() ? certainty::in_doubt : certainty::granted};
    }

    [[gnu::noinline]] release_outcome complete(const parting& p) noexcept DISTLOCK_EXCLUDES(mutex_) {
        if (p.next != nullptr) {
            p.next->wake_up();
            return release_outcome::released;
        }
        if (!p.last && !p.kept) return release_outcome::not_held;
        const auto done = p.last ? releaser_.release(*p.last) : *p.kept;
        messages_.forget();
        const auto now = time_.now();
        if (p.last) status_.answered(done == release_outcome::unreachable ? errc::no_reply : errc{}, now);
        const distlock::detail::annotated_lock guard(mutex_);
        backoff_.on_release(now);
        end_remote();
        return done;
    }

    // Throws: std::system_error, std::bad_alloc.
    [[gnu::noinline]] void schedule_deadline() const DISTLOCK_REQUIRES(mutex_) {
        io_->deadlines().schedule(const_cast<lock_object&>(*this), threads_.held()->lease().until());
    }
    // Returns: whether somebody will wake the first waiter when the lease ends.
    [[gnu::noinline]] bool deadline_is_set() noexcept DISTLOCK_REQUIRES(mutex_) {
        try {
            schedule_deadline();
            unwatched_ = false;
        } catch (...) {
            unwatched_ = true;
        }
        return !unwatched_;
    }
    [[gnu::cold]] time_point on_deadline(time_point now) noexcept override DISTLOCK_EXCLUDES(mutex_) {
        const distlock::detail::annotated_lock guard(mutex_);
        auto* const held = threads_.held();
        if (held == nullptr || (!held->has_listeners() && threads_.waiters().empty()))
            return time_point::max();
        if (!held->notify_loss(io_->callbacks(), now)) return held->lease().until();
        threads_.waiters().recheck_first();
        return time_point::max();
    }

    // Returns: when the background looks at it. A connection hears of another master as long as something is to be done later: where
    // no renewal is due before the longest hold is over, that is its end.
    time_point next_look(const renewal& lease) const noexcept {
        const bool due = lease.due() != time_point::max();
        return due || !options_.renew || !io_->connection().can.follow ? lease.due() : lease.until();
    }
    // Throws: std::system_error, std::bad_alloc.
    [[gnu::noinline]] void schedule_renewal(const renewal& lease) DISTLOCK_REQUIRES(mutex_) {
        const auto at = next_look(lease);
        if (at >= renewal_at_) return;  // most are released before the first one is due
        io_->schedule(*this, at);
        renewal_at_ = at;
    }
    // Returns: whether another server took the place of the one that granted or renewed it last.
    [[gnu::cold]] bool follow_master(acquisition& held) noexcept DISTLOCK_REQUIRES(mutex_) {
        const bool changed = held.on_master_change(io_->master_since(name()));
        if (changed && observer_) acquisition::tell_master_changed(observer_, name(), io_->callbacks());
        return changed;
    }
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
    // What too few replicas have does not count; it is not undone either.
    [[gnu::cold]] time_point end_both(const reply& answer, const reply& replicated, time_point sent,
                                      time_point came) noexcept override {
        auto outcome = dialect_->read_renew(answer);
        const bool enough = replicas_->read(replicated).what == acknowledgement::kind::enough;
        if (outcome.what == renew_outcome::kind::kept && !enough) outcome.what = renew_outcome::kind::later;
        return renewed(outcome, sent, came);
    }
    [[gnu::cold]] time_point renewed(const renew_outcome& outcome, time_point sent, time_point came) noexcept
        DISTLOCK_EXCLUDES(mutex_) {
        const distlock::detail::annotated_lock guard(mutex_);
        // The loss may have been told since the answer came.
        const auto now = std::max(came, time_.now());
        const auto of = std::exchange(renewing_.granted_serial, 0);
        using kind = renew_outcome::kind;
        auto* const held = threads_.held();
        if (held != nullptr && held->granted_serial() == of) {
            follow_master(*held);  // its answer may be the new one's
            on_renewal(*held, exchanging_ ? renew_outcome{kind::later} : outcome, sent, now);
        } else if (of != 0 && (outcome.what == kind::kept || outcome.what == kind::later)) {
            // Its lease ran out, and another followed, while the answer was on its way: it may stand in that one's way.
            releaser_.repeat(renewing_.owner, certainty::granted, now + options_.lease.get());
        }
        return renewal_at_ = held != nullptr ? next_look(held->lease()) : time_point::max();
    }

    [[gnu::cold]] void on_renewal(acquisition& held, const renew_outcome& outcome, time_point sent,
                                  time_point now) noexcept DISTLOCK_REQUIRES(mutex_) {
        switch (held.on_renewal(outcome, sent, now)) {
            case renewal::news::none:
                break;
            case renewal::news::at_risk:
                if (observer_) held.warn(observer_, name(), io_->callbacks(), now);
                break;
            case renewal::news::lost:
                held.ask_why(*io_, *dialect_, now);
                held.notify_loss(io_->callbacks(), now);
                threads_.waiters().recheck_first();
                break;
            case renewal::news::too_late:
                if (too_early(held, now)) break;
                releaser_.repeat(renewing_.owner, certainty::granted, held.lease().latest_expiry());
                break;
        }
    }

    const lock_options options_;
    const std::shared_ptr<background_io> io_;
    const time_source time_;
    const std::shared_ptr<const any_dialect> dialect_;
    const std::shared_ptr<lease_observer> observer_;
    const waiting_manner waits_;
    std::optional<replica_wait> replicas_;  // of renewals; set once
    const distlock::detail::process_id process_ = distlock::detail::current_process();

    mutable distlock::detail::annotated_mutex mutex_;
    mutable mutex_state threads_ DISTLOCK_GUARDED_BY(mutex_);
    std::uint64_t failures_ DISTLOCK_GUARDED_BY(mutex_) = 0;  // attempts that ended in trouble
    errc last_failure_ DISTLOCK_GUARDED_BY(mutex_){};         // of the last of them
    bool unwatched_ DISTLOCK_GUARDED_BY(mutex_) = false;  // no thread could be had to tell of the lease's end
    // The background looks no later than that.
    time_point renewal_at_ DISTLOCK_GUARDED_BY(mutex_) = time_point::max();
    // Another lock is asked for in the place of the one held.
    bool exchanging_ DISTLOCK_GUARDED_BY(mutex_) = false;
    renewing renewing_ DISTLOCK_GUARDED_BY(mutex_);                // but for its token while it is on its way
    std::shared_ptr<kept_hold> kept_ DISTLOCK_GUARDED_BY(mutex_);  // the last one

    remote_status status_;       // of the thread that goes remote: whether the server answers it
    reacquire_backoff backoff_;  // the last three: used by the thread that goes remote
    mutable releaser releaser_;
    inbox messages_;
};

}  // namespace distlock::engine
