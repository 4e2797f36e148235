// The plain dialect: one string key, SET NX PX and a compare-and-delete. Most lock clients in
// any language speak it.
//
//   class plain {
//     plain(std::string name, const lock_options&);
//     command acquire(const token&) const;
//         // SET NX PX: one plain command; a script with fencing or owner_info
//     command look(const token&) const;      // acquires too, and says who is in the way; may be repeated
//     command renew(const token&) const;     // compare-and-expire
//     command release(const token&) const;   // compare-and-delete
//     command release_minimal(const token&) const;  // the same
//     bool acquire_is_script() const;        // acquire and look are the same
//     acquire_outcome read_acquire(const reply&) const;
//     acquire_outcome read_look(const reply&) const;
//     renew_outcome read_renew(const reply&) const;
//     release_verdict read_release(const reply&) const;
//   };
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/base/error.hpp>
#include <distlock/base/key.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/concat.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/dialect.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/plain_inspector.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/script.hpp>
#include <distlock/wire/sibling_keys.hpp>

namespace distlock {

namespace detail {

// That somebody else has a lock is only said where it can be true: by a master. A write that changes nothing
// tells a replica, whatever else a server may refuse just now. GET comes first so that a key of another type
// is an error, not "taken".

// Idempotent: asked again with the same token after a lost reply, it finds its own earlier success, and
// re-arms the TTL so that validity counts from this sending.
inline constexpr script plain_look{R"(-- KEYS: lock. ARGV: token, lease in ms.
-- Returns OK: ours. Integer: somebody else's, with the TTL left in ms, -1 when it has none.
local holder = redis.call('get', KEYS[1])
if not holder then return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) end
if holder ~= ARGV[1] then
  local no = redis.pcall('set', KEYS[1], '', 'NX', 'PX', 1)
  if no and string.find(no.err, 'READONLY', 1, true) then return redis.error_reply('READONLY replica') end
  return redis.call('pttl', KEYS[1])
end
redis.call('pexpire', KEYS[1], ARGV[2])
return redis.status_reply('OK'))"sv,
                                   "d1b064cf6e0c77aee29b1bb373e5f7fec82874cf"sv};

// The same with what may be kept beside the lock. The fence grows by the server's clock, so that losing it
// does not make it fall, and past the clock where that was set back. It is a string on its way: Lua's numbers
// end at 2^53. It comes before the lock: only a script's first write can fail.
inline constexpr script plain_look_with_siblings{
    R"(-- KEYS: lock, fence, owner. ARGV: token, lease in ms, life of the fence in ms or 0, owner or ''.
-- Returns {1, fence or ''}: ours. {0, TTL left in ms}: somebody else's, -1 when it has none.
local holder = redis.call('get', KEYS[1])
if holder and holder ~= ARGV[1] then
  local no = redis.pcall('set', KEYS[1], '', 'NX', 'PX', 1)
  if no and string.find(no.err, 'READONLY', 1, true) then return redis.error_reply('READONLY replica') end
  return {0, redis.call('pttl', KEYS[1])}
end
local fence = ''
if ARGV[3] ~= '0' then
  local last = redis.call('get', KEYS[2])
  last = last and string.match(last, '^[1-9]%d*$')
  fence = last
  if not holder or not last then
    local time = redis.call('time')
    fence = time[1] .. string.sub('00000' .. time[2], -6)
    if last and tonumber(last) >= tonumber(fence) then
      redis.call('incrby', KEYS[2], 250)
      redis.call('pexpire', KEYS[2], ARGV[3])
      fence = redis.call('get', KEYS[2])
    else
      redis.call('set', KEYS[2], fence, 'PX', ARGV[3])
    end
  end
end
if holder then
  redis.call('pexpire', KEYS[1], ARGV[2])
else
  redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
if ARGV[4] ~= '' then redis.call('set', KEYS[3], ARGV[1] .. '\n' .. ARGV[4], 'PX', ARGV[2]) end
return {1, fence})"sv,
    "3501caca90011c4e7fb0bd60fb93112a37231ed5"sv};

// A process that passes its lock on among its threads gives them fences of its own, which the server hears of
// with the next renewal or release: as far as it can keep them, for a lock is freed all the same.
inline constexpr script plain_renew{
    R"(-- KEYS: lock, then what is kept beside it. ARGV: token, then for each key its TTL in ms, and the largest fence that was
-- used since: the last key is its own.
-- Returns 1: renewed. 0: nothing there. -1: somebody else's, left alone.
local holder = redis.call('get', KEYS[1])
local used = ARGV[#KEYS + 2]
if used then
  local last = redis.pcall('get', KEYS[#KEYS])
  if type(last) ~= 'table' then
    last = last and string.match(last, '^[1-9]%d*$') or ''
    if #last < #used or (#last == #used and last < used) then redis.pcall('set', KEYS[#KEYS], used, 'PX', ARGV[#KEYS + 1]) end
  end
end
if not holder then return redis.call('del', KEYS[1]) end
if holder ~= ARGV[1] then
  local no = redis.pcall('set', KEYS[1], '', 'NX', 'PX', 1)
  if no and string.find(no.err, 'READONLY', 1, true) then return redis.error_reply('READONLY replica') end
  return -1
end
for i = 1, #KEYS do redis.call('pexpire', KEYS[i], ARGV[i + 1]) end
return 1)"sv,
    "3be43a2984c57bde2744d3eb0439e8f5c1fb2adf"sv};

inline constexpr script plain_release{
    R"(-- KEYS: lock, then what goes with it. ARGV: token; and the largest fence that was used since, its life in ms:
-- the last key is its own, and stays.
-- Returns 1: released. 0: nothing there. -1: somebody else's, left alone.
local holder = redis.call('get', KEYS[1])
local count, used = #KEYS, ARGV[2]
if used then
  local last = redis.pcall('get', KEYS[count])
  if type(last) ~= 'table' then
    last = last and string.match(last, '^[1-9]%d*$') or ''
    if #last < #used or (#last == #used and last < used) then redis.pcall('set', KEYS[count], used, 'PX', ARGV[3]) end
  end
  count = count - 1
end
if holder and holder ~= ARGV[1] then
  local no = redis.pcall('set', KEYS[1], '', 'NX', 'PX', 1)
  if no and string.find(no.err, 'READONLY', 1, true) then return redis.error_reply('READONLY replica') end
  return -1
end
for i = 2, count do redis.call('del', KEYS[i]) end
return redis.call('del', KEYS[1]))"sv,
    "73b00011c730feb75692d77075a8ea5ca8e02391"sv};

}  // namespace detail

/// Interoperates with every client that takes a lock by `SET name token NX PX ms` and frees it by
/// compare-and-delete. All functions are pure; commands are views into this object and the token.
///
/// With lock_options::fencing or lock_options::owner_info two more keys stand beside the lock, in its cluster
/// slot: `...:distlock:fence` with the last fencing token, which outlives the lock by an hour and ten leases,
/// and `...:distlock:owner`, which goes with the lock. The lock's own key is the plain token in any case.
class plain {
  public:
    /// What people ask about locks in this dialect.
    using inspector = plain_inspector;

    /// The type of the lock's key, as the server names it.
    static constexpr std::string_view stored_as = "string";

    /// Preconditions: the options are checked.
    /// Throws: error(errc::invalid_name), also for a name that cannot have a key beside it
    /// where one is needed.
    plain(std::string name, const lock_options& options)
        : plain(std::move(name), options, options.lease.get()) {}

    const std::string& name() const noexcept { return key_.name(); }
    std::chrono::milliseconds lease() const noexcept { return lease_; }

    /// Returns: whether acquire() is a look() anyway.
    bool acquire_is_script() const noexcept { return siblings_.has_value(); }

    command acquire(const token& owner) const {
        if (siblings_) return look(owner);
        return {{"SET", key_.name(), owner.view(), "NX", "PX", lease_text_}, key_.name()};
    }
    command look(const token& owner) const {
        if (!siblings_) return {detail::plain_look, {key_.name()}, {owner.view(), lease_text_}};
        return {detail::plain_look_with_siblings,
                {key_.name(), siblings_->fence, siblings_->owner},
                {owner.view(), lease_text_, siblings_->fence_life, siblings_->who}};
    }
    command renew(const token& owner) const { return renew(owner, lease_text_); }
    /// `ttl`: of the key, in milliseconds: decimal digits, which outlive the command.
    command renew(const token& owner, std::string_view ttl) const {
        detail::argument_list keys{key_.name()};
        detail::argument_list arguments{owner.view(), ttl};
        if (const std::string* who = owner_key()) {
            keys.add(*who);
            arguments.add(ttl);
        }
        if (siblings_ && siblings_->fences) {
            keys.add(siblings_->fence);
            arguments.add(siblings_->fence_life);
            if (!owner.fence().empty()) arguments.add(owner.fence());
        }
        return {detail::plain_renew, keys.all(), arguments.all()};
    }
    /// The one way that needs neither memory nor another key than those it was taken with.
    command release_minimal(const token& owner) const { return release(owner); }
    command release(const token& owner) const {
        detail::argument_list keys{key_.name()};
        detail::argument_list arguments{owner.view()};
        if (const std::string* who = owner_key()) keys.add(*who);
        if (siblings_ && siblings_->fences && !owner.fence().empty()) {
            keys.add(siblings_->fence);
            arguments.add(owner.fence());
            arguments.add(siblings_->fence_life);
        }
        return {detail::plain_release, keys.all(), arguments.all()};
    }

    acquire_outcome read_acquire(const reply& r) const {
        if (siblings_) return read_look(r);
        if (r.is_status("OK")) return acquire_outcome::granted();
        if (r.is(reply_kind::nil)) return acquire_outcome::busy();
        return acquire_outcome::failure(r);
    }

    acquire_outcome read_look(const reply& r) const {
        if (siblings_) return detail::read_taken(r, siblings_->fences);
        if (r.is_status("OK")) return acquire_outcome::granted();
        if (r.is(reply_kind::integer) && r.number() >= -2) return acquire_outcome::busy(r.number());
        return acquire_outcome::failure(r);
    }

    renew_outcome read_renew(const reply& r) const { return detail::read_renewed(r); }
    release_verdict read_release(const reply& r) const { return detail::read_released(r); }

  protected:
    /// `ttl`: of the key, as long as the lease or longer.
    [[gnu::cold]] plain(std::string name, const lock_options& options, std::chrono::milliseconds ttl)
        : key_(std::move(name)), lease_(options.lease), lease_text_(detail::concat({ttl.count()})) {
        if (detail::sibling_keys::wanted(options)) siblings_.emplace(key_, options);
    }
    /// Returns: the key that says who the owner is; null when there is none.
    const std::string* owner_key() const noexcept {
        return siblings_ && !siblings_->who.empty() ? &siblings_->owner : nullptr;
    }

  private:
    key key_;
    std::chrono::milliseconds lease_;
    std::string lease_text_;  // of the key
    std::optional<detail::sibling_keys> siblings_;
};

static_assert(check_dialect<plain>());

}  // namespace distlock
