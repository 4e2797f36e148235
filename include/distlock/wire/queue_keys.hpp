// What the dialects with a queue of tickets share: the keys, and what the server says of
// a place in the queue.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include <distlock/base/key.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/owner.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/concat.hpp>
#include <distlock/wire/channel_kind.hpp>
#include <distlock/wire/enter_mode.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/sibling_keys.hpp>
#include <distlock/wire/ticket.hpp>

namespace distlock::detail {

// The needs of a waiter, as its ticket says them behind the token. The ticket of a waiter that hears no
// messages has no channel: the waiter is handed the lock all the same, and finds it by looking.
class waiter_needs {
  public:
    waiter_needs() = default;
    [[gnu::cold]] explicit waiter_needs(ticket of) : heard_(of.needs()) {
        of.channel = {};
        deaf_ = of.needs();
    }
    std::string_view of(const token& owner) const noexcept {
        return owner.expects_no_messages() ? deaf_ : heard_;
    }

  private:
    std::string heard_;
    std::string deaf_;
};

struct queue_keys {
    /// `queue_life`: how long the queue lasts after the last waiter looked.
    [[gnu::cold]] queue_keys(const key& lock, const lock_options& options,
                             std::chrono::milliseconds queue_life, std::string_view channel,
                             channel_kind kind, bool reads = false)
        : queue(lock.sibling("queue")),
          fence(lock.sibling("fence")),
          owner(lock.sibling("owner")),
          life(concat({queue_life.count()})) {
        const std::string info =
            options.owner_info.empty() ? std::string() : describe_owner(options.owner_info.view());
        ticket mine{
            .lease = options.lease, .kind = kind, .channel = channel, .owner_info = info, .reads = reads};
        if (options.fencing) {
            mine.fence_life = sibling_keys::life_of_fence(options.lease);
            fence_life = concat({mine.fence_life.count()});
        }
        needs = waiter_needs(mine);
    }

    std::string queue;
    std::string fence;
    std::string owner;
    waiter_needs needs;
    std::string life;
    std::string fence_life;  // empty: without fencing
};

/// Returns: what a message says; none for another text. `mark`: behind the TTL: of one kind
/// of lock, and no other.
inline std::optional<handover> read_handover(std::string_view text, std::string_view mark = {}) {
    const auto next = [&text] { return take_word(text); };
    handover made;
    made.owner = token::from(next());
    made.ticket = read_number(next());
    auto lasts = next();
    if (!lasts.ends_with(mark)) return std::nullopt;
    lasts.remove_suffix(mark.size());
    const auto ttl = read_number(lasts);
    const auto fence = next();
    made.fence = read_number(fence);
    made.watch = lasts == "poll" && fence == "0";
    const bool asks = made.watch || (!mark.empty() && lasts == "0" && fence == "0");
    if (made.owner.empty() || made.ticket == 0 || (ttl == 0 && !asks) || text.empty() ||
        ttl > static_cast<std::uint64_t>(longest_offer.count()) || (made.fence == 0 && fence != "0"))
        return std::nullopt;
    made.ttl = std::chrono::milliseconds(ttl);
    return made;
}

/// Returns: the name of the lock in a message that was read.
inline std::string_view name_in_handover(std::string_view text) {
    for (int part = 0; part < 4; ++part) take_word(text);
    return text;
}

/// Returns: what the scripts call it.
constexpr std::string_view word(enter_mode mode) noexcept {
    switch (mode) {
        case enter_mode::join:
            return "join";
        case enter_mode::last:
            return "last";
        default:
            return "try";
    }
}

/// Returns: whether the three are a place.
inline bool read_place(const reply& ticket, const reply& before, const reply& appended, queue_place& place) {
    if (!ticket.is(reply_kind::integer) || ticket.number() < 0 || !before.is(reply_kind::integer) ||
        before.number() < 0 || before.number() > std::numeric_limits<std::uint32_t>::max() ||
        (!appended.is_integer(0) && !appended.is_integer(1)))
        return false;
    place = {static_cast<std::uint64_t>(ticket.number()), static_cast<std::uint32_t>(before.number()),
             appended.is_integer(1)};
    return true;
}

/// Returns: what the script that enters has said.
inline acquire_outcome read_entered(const reply& r, bool fences, std::chrono::milliseconds lease) {
    const auto& parts = r.elements();
    if (parts.size() < 3 || parts.size() > 5) return acquire_outcome::failure(r);
    auto outcome = read_taken(parts[0], parts[1], fences, r);
    const bool busy = outcome.what == acquire_outcome::kind::busy;
    const bool granted = outcome.what == acquire_outcome::kind::granted;
    const bool others_read = parts.size() == 4 && parts[3].is_integer(1);
    if (granted && (parts.size() == 3 || others_read) && parts[2].is(reply_kind::integer) &&
        parts[2].number() > 0) {
        // No script sets more than the lease; a server may claim any number.
        outcome.granted_for = std::min(std::chrono::milliseconds(parts[2].number()), lease);
        outcome.others_read = others_read;
        return outcome;
    }
    if (busy && parts.size() == 5 && read_place(parts[2], parts[3], parts[4], outcome.queued)) return outcome;
    return acquire_outcome::failure(r);
}

}  // namespace distlock::detail
