// The plain dialect: one string key, SET NX PX and a compare-and-delete. What most lock clients in any language speak.
//
//   class plain {
//     plain(std::string name, const lock_options&);
//     command acquire(const token&) const;   // SET NX PX: one plain command
//     command look(const token&) const;      // acquires too, and says who is in the way; may be repeated
//     command release(const token&) const;   // compare-and-delete
//     acquire_outcome read_acquire(const reply&) const;
//     acquire_outcome read_look(const reply&) const;
//     release_verdict read_release(const reply&) const;
//   };
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include <distlock/base/error.hpp>
#include <distlock/base/key.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/token.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/script.hpp>
#include <distlock/wire/server_error.hpp>

namespace distlock {

namespace detail {

// Idempotent: asked again with the same token after a lost reply, it finds its own earlier success, and
// re-arms the TTL so that validity counts from this sending. GET comes first so that a key of another type is
// an error, not "taken".
inline constexpr script plain_look{R"(-- KEYS: lock. ARGV: token, lease in ms.
-- Returns OK: ours. Integer: somebody else's, with the TTL left in ms, -1 when it has none.
local holder = redis.call('get', KEYS[1])
if not holder then return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) end
if holder ~= ARGV[1] then return redis.call('pttl', KEYS[1]) end
redis.call('pexpire', KEYS[1], ARGV[2])
return redis.status_reply('OK'))"};

// DEL also runs when nothing is there: it changes nothing then, but makes a replica answer READONLY instead
// of "gone".
inline constexpr script plain_release{R"(-- KEYS: lock. ARGV: token.
-- Returns 1: released. 0: nothing there. -1: somebody else's, left alone.
local holder = redis.call('get', KEYS[1])
if holder and holder ~= ARGV[1] then return -1 end
return redis.call('del', KEYS[1]))"};

}  // namespace detail

/// Interoperates with every client that takes a lock by `SET name token NX PX ms` and frees it by
/// compare-and-delete. All functions are pure; commands are views into this object and the token.
class plain {
  public:
    /// Preconditions: the options are checked.
    /// Throws: error(errc::invalid_name).
    plain(std::string name, const lock_options& options)
        : key_(std::move(name)),
          lease_(options.lease),
          lease_text_(std::to_string(options.lease.get().count())) {}

    const std::string& name() const noexcept { return key_.name(); }
    std::chrono::milliseconds lease() const noexcept { return lease_; }

    command acquire(const token& owner) const {
        return {{"SET", key_.name(), owner.view(), "NX", "PX", lease_text_}, key_.name()};
    }
    command look(const token& owner) const {
        return {detail::plain_look, {key_.name()}, {owner.view(), lease_text_}};
    }
    command release(const token& owner) const {
        return {detail::plain_release, {key_.name()}, {owner.view()}};
    }

    acquire_outcome read_acquire(const reply& r) const {
        if (r.is_status("OK")) return acquire_outcome::granted();
        if (r.is(reply_kind::nil)) return acquire_outcome::busy();
        return acquire_outcome::failure(r);
    }

    acquire_outcome read_look(const reply& r) const {
        if (r.is_status("OK")) return acquire_outcome::granted();
        if (r.is(reply_kind::integer) && r.number() >= -2) return acquire_outcome::busy(r.number());
        return acquire_outcome::failure(r);
    }

    release_verdict read_release(const reply& r) const {
        if (r.is_integer(1)) return {release_outcome::released};
        if (r.is_integer(0)) return {release_outcome::expired};
        if (r.is_integer(-1)) return {release_outcome::taken};
        return release_verdict::failure(r);
    }

  private:
    key key_;
    std::chrono::milliseconds lease_;
    std::string lease_text_;
};

}  // namespace distlock
