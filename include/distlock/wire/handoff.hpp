// The hand-off dialect: a lock that is released is handed to the first in line, who waits inside one blocking command.
//
//   class handoff {
//     handoff(std::string name, const lock_options&);
//     bool hands_over() const;               // or is it the plain dialect for want of keys
//     command acquire(const token&) const;   // SET NX PX; a script with fencing or owner_info
//     command look(const token&) const;      // acquires too, waits in no line; may be repeated
//     command enter(const token&, place) const;       // the same, about a place in line
//     command wait(std::string_view seconds) const;   // until the lock is offered
//     command watch(const token&) const;     // of a waiter: hands on what expired
//     command revive(const token&) const;    // the same, although no waiter is counted
//     command leave() const;                 // gets out of line
//     command renew(const token&) const;
//     command release(const token&) const;   // hands on, or frees
//     command free(const token&) const;      // compare-and-delete
//     and what the replies mean: read_acquire, read_look, read_enter, read_wait, read_watch, read_renew, read_release
//   };
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/base/error.hpp>
#include <distlock/base/key.hpp>
#include <distlock/base/lease.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/token.hpp>
#include <distlock/wire/beside.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/handoff_scripts.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/place.hpp>
#include <distlock/wire/plain.hpp>
#include <distlock/wire/plain_inspector.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/server_error.hpp>

namespace distlock {

/// The lock's own key is a plain string token with a TTL, as in `plain`: every client that takes a lock by
/// SET NX PX and frees it by compare-and-delete excludes us, and we it. Two more keys stand beside it, in its cluster slot:
/// `...:distlock:offers`, a list of at most one lock that is handed on, and `...:distlock:waiters`, how many wait. Both
/// end with the lease of who made them last. A name that can have no key beside it is locked as in `plain`.
///
/// All functions are pure; commands are views into this object and the token.
class handoff {
  public:
    /// What people ask about locks in this dialect.
    using inspector = plain_inspector;

    /// The type of the lock's key, as the server names it.
    static constexpr std::string_view stored_as = "string";

    /// Preconditions: the options are checked.
    /// Throws: error(errc::invalid_name), as `plain`.
    handoff(std::string name, const lock_options& options)
        : key_(std::move(name)), plain_(key_.name(), options), lease_text_(std::to_string(lease().count())) {
        if (!key_.may_have_siblings()) return;
        line_.emplace(line{key_.sibling("offers"), key_.sibling("waiters")});
        if (detail::beside::wanted(options)) beside_.emplace(key_, options);
    }

    const std::string& name() const noexcept { return key_.name(); }
    std::chrono::milliseconds lease() const noexcept { return plain_.lease(); }

    /// Returns: whether who waits is served; else enter, wait, watch, revive and leave must not be called.
    bool hands_over() const noexcept { return line_.has_value(); }

    /// Returns: whether acquire() is a look() anyway.
    bool looks_at_once() const noexcept { return plain_.looks_at_once(); }

    /// Returns: whether an offer gives all this owner needs; else it is to be adopted.
    bool complete(const offer& what) const noexcept {
        if (what.lease < lease()) return false;
        return !beside_ || (beside_->who.empty() && what.fence != 0);
    }

    command acquire(const token& owner) const {
        return looks_at_once() ? look(owner) : plain_.acquire(owner);
    }
    command look(const token& owner) const {
        return hands_over() ? enter(owner, place::none) : plain_.look(owner);
    }
    command enter(const token& owner, place where) const {
        if (!beside_) return call(detail::handoff_enter, owner.view(), lease_text_, word(where));
        if (beside_->who.empty()) {
            return call(detail::handoff_enter, owner.view(), lease_text_, word(where), beside_->fence_life);
        }
        return call(detail::handoff_enter, owner.view(), lease_text_, word(where), beside_->fence_life,
                    beside_->who);
    }
    /// `seconds` is a decimal number above zero, or "0": for ever.
    command wait(std::string_view seconds) const { return {{"BLPOP", line_->offers, seconds}, key_.name()}; }

    /// `fresh` was never sent as an owner's.
    command watch(const token& fresh) const { return look_after(fresh, "look"); }
    command revive(const token& fresh) const { return look_after(fresh, "revive"); }
    command leave() const {
        return {detail::handoff_leave, {key_.name(), line_->offers, line_->waiters}, {}};
    }
    command renew(const token& owner) const { return plain_.renew(owner); }
    command release(const token& owner) const {
        if (!hands_over()) return plain_.release(owner);
        const auto& keys = *line_;
        if (!beside_) {
            return {
                detail::handoff_pass, {key_.name(), keys.offers, keys.waiters}, {owner.view(), lease_text_}};
        }
        if (beside_->who.empty()) {
            return {detail::handoff_pass,
                    {key_.name(), keys.offers, keys.waiters, beside_->fence},
                    {owner.view(), lease_text_, beside_->fence_life}};
        }
        return {detail::handoff_pass,
                {key_.name(), keys.offers, keys.waiters, beside_->fence, beside_->owner},
                {owner.view(), lease_text_, beside_->fence_life}};
    }
    /// Works where release() is refused: needs no memory and no key but the lock's own and the owner's. Who waits finds the
    /// lock when looking.
    command free(const token& owner) const { return plain_.free(owner); }

    acquire_outcome read_acquire(const reply& r) const {
        return looks_at_once() ? read_look(r) : plain_.read_acquire(r);
    }
    acquire_outcome read_look(const reply& r) const {
        return hands_over() ? read_enter(r) : plain_.read_look(r);
    }
    acquire_outcome read_enter(const reply& r) const {
        return detail::read_taken(r, beside_ && beside_->fences);
    }

    /// Returns: granted with an offer; busy when the wait ended without one.
    acquire_outcome read_wait(const reply& r) const {
        if (r.is(reply_kind::nil)) return acquire_outcome::busy();
        const auto& parts = r.elements();
        if (parts.size() != 2 || !parts[0].is_string(line_->offers) || !parts[1].is(reply_kind::string))
            return acquire_outcome::failure(r);
        const auto made = read_offer(parts[1].text());
        return made ? acquire_outcome::granted(*made) : acquire_outcome::failure(r);
    }

    /// What a waiter sees of a lock.
    struct sight {
        std::optional<std::chrono::milliseconds> ttl = {};  ///< what is left; -1: no TTL. None: no answer
        bool uncounted = false;  ///< it is free, and not handed on: the server has no count of those who wait
    };
    sight read_watch(const reply& r) const {
        if (!r.is(reply_kind::integer) || r.number() < -2) return {};
        if (r.number() == -2) return {.uncounted = true};
        return {.ttl = std::chrono::milliseconds(r.number())};
    }

    renew_outcome read_renew(const reply& r) const { return plain_.read_renew(r); }

    release_verdict read_release(const reply& r) const {
        if (hands_over() && r.is_integer(2)) return {release_outcome::released};
        release_verdict verdict = plain_.read_release(r);
        // What needs several keys, or memory, may be refused where free() is not.
        if (r.is(reply_kind::error) && hands_over()) {
            verdict.again = true;
            verdict.plainly = refused_for_its_size(r.text());
        }
        return verdict;
    }

  private:
    struct line {
        std::string offers;
        std::string waiters;
    };

    static constexpr std::string_view word(place where) noexcept {
        switch (where) {
            case place::join:
                return "join";
            case place::stay:
                return "stay";
            case place::quit:
                return "quit";
            case place::adopt:
                return "adopt";
            default:
                return "try";
        }
    }

    command look_after(const token& fresh, std::string_view what) const {
        const std::string_view life = beside_ ? std::string_view(beside_->fence_life) : "0";
        return call(detail::handoff_pass, fresh.view(), lease_text_, life, what);
    }

    // With the keys of what is kept.
    template <class... Arguments>
    command call(const script& what, const Arguments&... arguments) const {
        const bool has_owner = beside_ && !beside_->who.empty();
        const std::string_view none;
        const std::array<argument, 5> keys{key_.name(), line_->offers, line_->waiters,
                                           beside_ ? beside_->fence : none,
                                           has_owner ? beside_->owner : none};
        const std::array<argument, sizeof...(Arguments)> all{arguments...};
        const std::size_t count = !beside_ ? 3 : has_owner ? 5 : 4;
        return {what, std::span(keys).first(count), std::span<const argument>(all)};
    }

    // "<token>:<lease in ms>:<server time in microseconds>:<fence or ''>"
    static std::optional<offer> read_offer(std::string_view text) {
        if (std::count(text.begin(), text.end(), ':') != 3) return std::nullopt;
        const auto next = [&text] {
            const auto part = text.substr(0, text.find(':'));
            text.remove_prefix(part.size() + 1);
            return part;
        };
        const token owner = token::from(next());
        const auto lease = detail::read_number(next());
        const auto since = next();  // 0: for a count that may be nobody's
        const auto fence = detail::read_number(text);
        const bool has_time = since == "0" || detail::read_number(since) > 0;
        const bool has_lease = lease > 0 && lease <= static_cast<std::uint64_t>(max_lease.count());
        if (owner.empty() || !has_lease || !has_time || (fence == 0 && !text.empty())) return std::nullopt;
        return offer{owner, std::chrono::milliseconds(lease), fence};
    }

    key key_;
    plain plain_;
    std::string lease_text_;
    std::optional<line> line_;
    std::optional<detail::beside> beside_;
};

}  // namespace distlock
