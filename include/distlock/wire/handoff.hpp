// The hand-off dialect: waiters have tickets in a queue on the server, and a lock that is released is handed
// to the first of them.
//
//   class handoff {
//     handoff(std::string name, const lock_options&, std::string_view channel = {}, channel_kind = ordinary);
//     bool hands_over() const;               // or is it the plain dialect for want of keys
//     command acquire(const token&) const;   // SET NX PX; a script with fencing or owner_info
//     command look(const token&) const;      // acquires too, is not queued; may be repeated
//     command enter(const token&, enter_mode) const;  // the same, about a ticket
//     command renew(const token&) const;
//     command release(const token&) const;   // removes the ticket, and hands over or frees
//     command release_minimal(const token&) const;  // compare-and-delete
//     and what the replies mean: read_acquire, read_look, read_enter, read_renew,
//         read_release; and the messages: read_message
//   };
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/base/error.hpp>
#include <distlock/base/key.hpp>
#include <distlock/base/lease.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/owner.hpp>
#include <distlock/base/token.hpp>
#include <distlock/wire/channel_kind.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/dialect.hpp>
#include <distlock/wire/enter_mode.hpp>
#include <distlock/wire/handoff_scripts.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/plain.hpp>
#include <distlock/wire/plain_inspector.hpp>
#include <distlock/wire/queue_keys.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/sibling_keys.hpp>

namespace distlock {

/// The lock's own key is a plain string token with a TTL, as in `plain`: every client that takes a lock by
/// SET NX PX and frees it by compare-and-delete excludes us, and we it. Beside it, in its cluster slot,
/// stands `...:distlock:queue`, the tickets of the waiters in order, which ends when nobody looks for
/// queue_life(). A name that can have no key beside it is locked as in `plain`.
///
/// All functions are pure; commands are views into this object and the token.
class handoff {
  public:
    /// What people ask about locks in this dialect.
    using inspector = plain_inspector;

    /// The type of the lock's key, as the server names it.
    static constexpr std::string_view stored_as = "string";

    /// `channel`: where the waiters of this process hear that a lock was handed to them, in a Cluster a
    /// channel of the lock's own slot; empty: they hear nothing, and find it by looking.
    /// Preconditions: the options are checked.
    /// Throws: error(errc::invalid_name), as `plain`.
    [[gnu::cold]] handoff(std::string name, const lock_options& options, std::string_view channel = {},
                          channel_kind kind = channel_kind::ordinary)
        : key_(std::move(name)), plain_(key_.name(), options) {
        if (key_.may_have_siblings()) queue_.emplace(key_, options, queue_life(options), channel, kind);
    }

    const std::string& name() const noexcept { return key_.name(); }
    std::chrono::milliseconds lease() const noexcept { return plain_.lease(); }

    /// Returns: how long the queue lasts after the last waiter re-checked.
    static std::chrono::milliseconds queue_life(const lock_options& options) noexcept {
        const std::chrono::milliseconds lease = options.lease, recheck = options.recheck;
        return std::max(lease, 3 * std::max(longest_recheck, recheck));
    }

    /// Returns: whether waiters are queued; else enter() must not be called.
    bool hands_over() const noexcept { return queue_.has_value(); }

    /// Returns: whether acquire() may be repeated, and says how long another owner has the lock, as look().
    bool acquire_is_script() const noexcept { return plain_.acquire_is_script(); }

    /// A lock that is free is granted for its whole lease, also where waiters are queued: they are
    /// served at its release.
    command acquire(const token& owner) const { return plain_.acquire(owner); }
    command look(const token& owner) const {
        return hands_over() ? enter(owner, enter_mode::try_once) : plain_.look(owner);
    }
    /// A lock that is free goes to the first of the queue, or to this token if none before it hears of it.
    command enter(const token& owner, enter_mode mode) const {
        return {detail::handoff_enter,
                {name(), queue_->queue, queue_->fence, queue_->owner},
                {owner.view(), queue_->needs.of(owner), detail::word(mode), queue_->life}};
    }
    /// The lock has its whole lease again.
    command renew(const token& owner) const { return plain_.renew(owner); }
    command renew(const token& owner, std::string_view ttl) const { return plain_.renew(owner, ttl); }

    /// This token's ticket is removed whoever has the lock; a lock of this token is handed over, or freed
    /// when no waiter hears.
    command release(const token& owner) const {
        if (!hands_over()) return plain_.release(owner);
        const auto& [queue, fence, owner_key, needs, life, fence_life] = *queue_;
        if (fence_life.empty() || owner.fence().empty())
            return {
                detail::handoff_leave, {name(), queue, fence, owner_key}, {owner.view(), needs.of(owner)}};
        return {detail::handoff_leave,
                {name(), queue, fence, owner_key},
                {owner.view(), needs.of(owner), owner.fence(), fence_life}};
    }
    /// Works where release() is refused: needs no memory and no key but the lock's own and the owner's.
    /// Waiters find the lock by looking.
    command release_minimal(const token& owner) const { return plain_.release_minimal(owner); }

    acquire_outcome read_acquire(const reply& r) const { return plain_.read_acquire(r); }
    acquire_outcome read_look(const reply& r) const {
        return hands_over() ? read_enter(r) : plain_.read_look(r);
    }
    acquire_outcome read_enter(const reply& r) const {
        return detail::read_entered(r, queue_ && !queue_->fence_life.empty(), lease());
    }

    renew_outcome read_renew(const reply& r) const { return plain_.read_renew(r); }

    release_verdict read_release(const reply& r) const {
        if (hands_over() && r.is_integer(2)) return {release_outcome::released};
        release_verdict verdict = plain_.read_release(r);
        if (hands_over()) verdict.note_refusal(r);
        return verdict;
    }

    /// Returns: what a message on the channel says, "<token> <ticket's number> <TTL in ms> <fence or 0>
    /// <lock's name>"; none for another text.
    static std::optional<handover> read_message(std::string_view text) { return detail::read_handover(text); }
    /// Returns: the name of the lock in a message; empty for another text.
    static std::string_view name_in(std::string_view text) {
        return read_message(text) ? detail::name_in_handover(text) : std::string_view();
    }

  private:
    key key_;
    plain plain_;
    std::optional<detail::queue_keys> queue_;
};

static_assert(check_dialect<handoff>());

}  // namespace distlock
