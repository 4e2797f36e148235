// A lock that its owner has unlocked before lock_options::hold_at_least was over: kept in the
// background until then.
//
//   class delayed_release : public background_task {
//     delayed_release(background_io&, dialect, delayed_release_terms);
//     static bool start(const std::shared_ptr<delayed_release>&, background_io&) noexcept;
//     time_point latest_expiry() noexcept;     // time_point{}: it is over
//   };
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/leaked_in_child.hpp>
#include <distlock/detail/saturate.hpp>
#include <distlock/detail/thread_safety.hpp>
#include <distlock/engine/background_io.hpp>
#include <distlock/engine/release.hpp>
#include <distlock/engine/renewal.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/wire/any_dialect.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock::engine {

/// Of an acquisition that is over for its owner, but not for others yet.
struct delayed_release_terms {
    token owner;
    renewal lease;
    clock::time_point release_at;
    clock::time_point late_until;            ///< until then an earlier request by the same token may arrive
    std::shared_ptr<subscription> messages;  ///< about the lock; null: there are none
};

/// Thread-safe. The background has a share in it until it is over, so the lock object may be gone. Rules:
/// - nothing is released before its time, whatever ends;
/// - the key ends by itself soon after its time, also where the process ends before: the server is told at
///   once, and to the millisecond when the background ends. The ends of readers and permits only move on, so
///   it is told of those only where their lease ends earlier;
/// - a message for its token that comes late is not answered with a release, as that of a token nobody knows;
/// - until then it is renewed as often as a lease, and what comes of that matters to nobody: the release
///   finds out.
class delayed_release final : public background_task {
    using step = background_task::step;
    using time_point = clock::time_point;

  public:
    /// `io` outlives what it has adopted.
    [[gnu::cold]] delayed_release(background_io& io, std::shared_ptr<const any_dialect> dialect,
                                  const delayed_release_terms& what)
        : io_(io),
          dialect_(std::move(dialect)),
          owner_(what.owner),
          release_at_(what.release_at),
          late_until_(what.late_until),
          lease_(what.lease),
          key_expiry_(std::max(lease_.latest_expiry(), key_end(margin))) {
        if (!dialect_->is_shared() || lease_.lease_end() < release_at_) phase_ = phase::untold;
        if (what.messages) listens_.get().emplace(what.messages, owner_.view());
    }

    /// Returns: whether the background has it; if not, the lease ends it.
    [[gnu::cold]] static bool start(const std::shared_ptr<delayed_release>& mine,
                                    background_io& io) noexcept {
        // Each was an owner's: none must end early for want of a place.
        return io.adopt(mine, mine->next(), background_io::unlimited);
    }

    time_point latest_expiry() noexcept {
        const distlock::detail::annotated_lock guard(lock_);
        return phase_ == phase::over ? time_point{} : last_expiry();
    }

  private:
    // untold: the server was not told yet when it ends.
    enum class phase { untold, kept, released, over };
    // The release comes before the key ends: it hands the lock over.
    static constexpr std::chrono::seconds margin{1};

    time_point key_end(clock::duration after) const noexcept {
        return distlock::detail::saturating_add(release_at_, after);
    }
    bool is_kept() const noexcept DISTLOCK_REQUIRES(lock_) { return phase_ < phase::released; }
    time_point last_expiry() const noexcept DISTLOCK_REQUIRES(lock_) {
        return std::max(key_expiry_, late_until_);
    }
    time_point next() noexcept {
        const distlock::detail::annotated_lock guard(lock_);
        return phase_ == phase::untold ? time_point{} : std::min(lease_.due(), release_at_);
    }

    [[gnu::cold]] step begin(time_point now) noexcept override {
        const distlock::detail::annotated_lock guard(lock_);
        if (is_kept() && now >= release_at_) {
            phase_ = phase::released;
            const auto sure = now < late_until_ ? certainty::in_doubt : certainty::granted;
            release_ = release(sure, last_expiry());
        }
        if (phase_ == phase::released) {
            const bool minimal = release_.next() == release::form::minimal;
            return {minimal ? dialect_->release_minimal(owner_) : dialect_->release(owner_), {}};
        }
        if (now >= lease_.until()) return {{}, release_at_};
        lease_.on_master_change(io_.master_since(dialect_->name()));
        if (phase_ == phase::kept && !lease_.ready(now)) return {{}, std::min(lease_.due(), release_at_)};
        return set_end(now, margin);
    }

    [[gnu::cold]] step begin_last(time_point now) noexcept override {
        {
            const distlock::detail::annotated_lock guard(lock_);
            if (is_kept() && now < release_at_) {
                if (now < lease_.until()) return set_end(now, {});
                return {{}, time_point::max()};
            }
        }
        return begin(now);
    }

    [[gnu::cold]] step set_end(time_point now, clock::duration after) noexcept DISTLOCK_REQUIRES(lock_) {
        left_ = std::chrono::ceil<std::chrono::milliseconds>(key_end(after) - now);
        const auto end = std::to_chars(ttl_.data(), ttl_.data() + ttl_.size(), left_.count()).ptr;
        command renew =
            dialect_->renew_for(owner_, {ttl_.data(), static_cast<std::size_t>(end - ttl_.data())});
        renew.until(lease_.until());
        return {renew, {}};
    }

    [[gnu::cold]] time_point end(const reply& answer, time_point sent, time_point now) noexcept override {
        const distlock::detail::annotated_lock guard(lock_);
        if (is_kept()) {
            phase_ = phase::kept;  // without an answer a renewal is due soon
            const renew_outcome told = dialect_->read_renew(answer);
            lease_.on_outcome(told, sent, now);
            note_expiry(told.what, now);
            return std::min(lease_.due(), release_at_);
        }
        const auto next = release_.on_verdict(dialect_->read_release(answer), now);
        if (next == time_point::max()) {
            phase_ = phase::over;
            listens_.get().reset();
        }
        return next;
    }

    void note_expiry(renew_outcome::kind what, time_point now) noexcept DISTLOCK_REQUIRES(lock_) {
        using kind = renew_outcome::kind;
        if (what == kind::gone || what == kind::taken) {
            key_expiry_ = now;
            return;
        }
        using distlock::detail::rounding, distlock::detail::saturating_cast;
        const auto renewed = dialect_->renewed_for(left_);
        const auto told =
            distlock::detail::saturating_add(now, saturating_cast<clock::duration, rounding::up>(renewed));
        const bool is_set = what == kind::kept && !dialect_->is_shared();
        key_expiry_ = is_set ? told : std::max(key_expiry_, told);
    }

    background_io& io_;
    const std::shared_ptr<const any_dialect> dialect_;
    const token owner_;
    const time_point release_at_;
    const time_point late_until_;
    distlock::detail::leaked_in_child<std::optional<listener>> listens_;  // another thread may have its hub
    distlock::detail::annotated_mutex lock_;
    std::array<char, 20> ttl_ DISTLOCK_GUARDED_BY(lock_){};        // in ms, of the last command
    std::chrono::milliseconds left_ DISTLOCK_GUARDED_BY(lock_){};  // the same
    renewal lease_ DISTLOCK_GUARDED_BY(lock_);
    time_point key_expiry_ DISTLOCK_GUARDED_BY(lock_);  // at the latest
    release release_ DISTLOCK_GUARDED_BY(lock_);
    phase phase_ DISTLOCK_GUARDED_BY(lock_) = phase::kept;
};

}  // namespace distlock::engine
