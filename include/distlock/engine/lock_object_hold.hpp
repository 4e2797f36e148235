// How a lock object keeps the lock, and how it ends: released, passed on to another thread, kept for
// hold_at_least, or lost.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include <distlock/detail/thread_safety.hpp>
#include <distlock/engine/acquisition.hpp>
#include <distlock/engine/background_io.hpp>
#include <distlock/engine/delayed_release.hpp>
#include <distlock/engine/lock_object.hpp>
#include <distlock/engine/mutex_state.hpp>
#include <distlock/engine/releaser.hpp>
#include <distlock/engine/renewal.hpp>
#include <distlock/wire/outcome.hpp>

namespace distlock::engine {

inline release_outcome lock_object::end_mine() noexcept {
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
        last = part(usage::used);
    }
    return complete(last);
}

inline release_outcome lock_object::end_of(std::uint64_t serial, usage how) noexcept {
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

[[gnu::cold]] inline lock_object::exchange lock_object::offer_in_exchange(std::uint64_t serial) noexcept {
    if (in_forked_child()) return {};
    const distlock::detail::annotated_lock guard(mutex_);
    if (!has(serial) || time_.now() >= threads_.present().lease().until()) return {};
    const holder& by = threads_.present().held_by();
    // An acquisition may be released by any thread, but goes on as another one's for its own thread alone.
    if (serial == 0 && by.thread != std::this_thread::get_id()) return {};
    exchanging_ = by.serial;
    return {threads_.present().owner(), by.serial, by.guarded};
}

[[gnu::cold]] inline void lock_object::give_up_in_exchange(const exchange& of, bool in_vain) noexcept {
    const distlock::detail::annotated_lock guard(mutex_);
    const bool unlocks = in_vain && !of.guarded;  // a guard of the standard does not know
    if (!has(of.serial)) {
        if (!unlocks) threads_.gave_up(std::this_thread::get_id(), of.guarded ? of.serial : 0);
        return;
    }
    const auto late_until = threads_.present().late_until();
    const auto mine = ended(unlocks ? threads_.abandon() : threads_.release(), time_.now());
    releaser_.repeat(mine.owner, mine.sure, std::max(mine.latest_expiry, late_until));
    messages_.forget();
    end_remote();
}

inline lock_object::parting lock_object::part(usage how) noexcept {
    const auto now = time_.now();
    // It is called with the mutex.
    const auto schedule = [this](const renewal& lease) DISTLOCK_UNCHECKED { schedule_renewal(lease); };
    // An owner that the server takes it from must not pass it on.
    const bool exchanged = is_exchanged(threads_.present());
    auto* const next = exchanged ? nullptr
                                 : threads_.pass_on(now, options_.local_budget.get(),
                                                    dialect_->allows_local_fences(), schedule);
    if (next != nullptr) {
        if (unwatched_) threads_.waiters().recheck_first();
        return {next};
    }
    if (how == usage::used && too_early(threads_.present(), now)) {
        acquisition mine = threads_.release();
        mine.notify_loss(io_->callbacks(), now);
        return {nullptr, {}, keep(mine, now)};
    }
    return {nullptr, ended(threads_.release(), now), {}, how};
}

[[gnu::cold]] inline release_outcome lock_object::keep(const acquisition& one, time_point now) noexcept {
    if (renewing_.granted_serial == one.granted_serial()) renewing_.granted_serial = 0;
    bool is_kept = false;
    try {
        kept_ = std::make_shared<delayed_release>(
            *io_, dialect_,
            delayed_release_terms{one.owner(), one.lease(), least_hold_end(one), one.late_until(),
                                  messages_.of_queue()});
        is_kept = delayed_release::start(kept_, *io_);
    } catch (...) {
        // No memory for it: the lease ends it.
    }
    if (now >= one.lease().until()) return release_outcome::expired;
    return is_kept ? release_outcome::posted : release_outcome::unreachable;
}

inline ended_acquisition lock_object::ended(acquisition mine, time_point now) noexcept {
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

inline release_outcome lock_object::complete(const parting& p) noexcept {
    if (p.next != nullptr) {
        p.next->wake_up();
        return release_outcome::released;
    }
    if (!p.last && !p.kept) return release_outcome::not_held;
    const bool used = p.how == usage::used;
    const auto done = !p.last ? *p.kept
                      : used  ? releaser_.release(*p.last, options_.release)
                              : releaser_.give_back(*p.last);
    messages_.forget();
    const auto now = time_.now();
    // A try that hears of it finds that this thread has ended: else it would be told of an owner.
    const distlock::detail::annotated_lock guard(mutex_);
    if (p.last) status_.answered(done == release_outcome::unreachable ? errc::no_reply : errc{}, now);
    backoff_.on_release(now);
    end_remote();
    return done;
}

inline void lock_object::schedule_deadline() const {
    io_->deadlines().schedule(const_cast<lock_object&>(*this), threads_.present().lease().until());
}

inline bool lock_object::try_schedule_deadline() noexcept {
    try {
        schedule_deadline();
        unwatched_ = false;
    } catch (...) {
        unwatched_ = true;
    }
    return !unwatched_;
}

inline void lock_object::schedule_renewal(const renewal& lease) {
    const auto at = next_look(lease);
    if (at >= renewal_at_) return;  // most are released before the first one is due
    io_->schedule_by(*this, at);
    renewal_at_ = at;
}

[[gnu::cold]] inline bool lock_object::follow_master(acquisition& held) noexcept {
    const auto since = io_->master_since(name());
    const bool changed = held.on_master_change(since);
    // It may be the new one that granted it: that looked for the master first.
    if (changed && observer_ && options_.renew && since > held.granted_at())
        held.tell_master_changed(observer_, name(), io_->callbacks());
    return changed;
}

[[gnu::cold]] inline lock_object::time_point lock_object::renewed(const renew_outcome& outcome,
                                                                  time_point sent, time_point came) noexcept {
    const distlock::detail::annotated_lock guard(mutex_);
    // The loss may have been told since the answer came.
    const auto now = std::max(came, time_.now());
    const auto of = std::exchange(renewing_.granted_serial, 0);
    using kind = renew_outcome::kind;
    auto* const held = threads_.held();
    if (held != nullptr && held->granted_serial() == of) {
        follow_master(*held);  // its answer may be the new one's
        on_renewal(*held, outcome, sent, now);
    } else if (of != 0 && (outcome.what == kind::kept || outcome.what == kind::later)) {
        // Its lease ran out, and another followed, while the answer was on its way: it may
        // stand in that one's way.
        releaser_.repeat(renewing_.owner, certainty::granted, now + options_.lease.get());
    }
    return renewal_at_ = held != nullptr ? next_look(held->lease()) : time_point::max();
}

[[gnu::cold]] inline void lock_object::on_renewal(acquisition& held, const renew_outcome& outcome,
                                                  time_point sent, time_point now) noexcept {
    using kind = renew_outcome::kind;
    // That the server does not know a token is no news while it may have taken another in exchange.
    const bool exchanged = is_exchanged(held) && (outcome.what == kind::gone || outcome.what == kind::taken);
    switch (held.on_renewal(exchanged ? renew_outcome{kind::later} : outcome, sent, now)) {
        case renewal::news::none:
            break;
        case renewal::news::at_risk:
            if (observer_ && !exchanged) held.warn(observer_, name(), io_->callbacks(), now);
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

}  // namespace distlock::engine
