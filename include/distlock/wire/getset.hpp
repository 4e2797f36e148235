// The SETNX/GETSET dialect: the lock's key holds the time at which it may be taken over.
//
//   class getset {
//     getset(std::string name, const lock_options&);
//     command acquire(const token&) const;   // one script; may be repeated
//     command look(const token&) const;      // the same
//     command renew(const token&) const;
//     command release(const token&) const;
//     command release_minimal(const token&) const;  // the same
//     and what the replies mean: read_acquire, read_look, read_renew, read_release
//   };
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/base/error.hpp>
#include <distlock/base/key.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/token.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/dialect.hpp>
#include <distlock/wire/getset_inspector.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/script.hpp>
#include <distlock/wire/sibling_keys.hpp>

namespace distlock {

namespace detail {

// The stamp is made by the server's clock, and says nothing of who made it: that stands beside it, as
// "<token>:<stamp>". What is ours is told by both, so that a stamp that somebody shifted, or made anew, is
// never taken for ours. What is ours is first given its time: a write that needs no memory, after which the
// others are not refused.

inline constexpr script getset_enter{
    R"(-- KEYS: lock, mine, fence, owner. ARGV: token, lease in ms, life of the fence in ms or 0, owner or ''.
-- Returns {1, fence or ''}: ours. {0, ms until it may be taken over}: somebody else's.
local stamp = redis.call('get', KEYS[1])
local ours = stamp and redis.call('get', KEYS[2]) == ARGV[1] .. ':' .. stamp
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local ms = math.floor(now / 1000)
if stamp and not ours then
  if not string.match(stamp, '^%d+$') then return redis.error_reply('WRONGTYPE a string that is no time stamp') end
  if tonumber(stamp) >= ms then
    local no = redis.pcall('set', KEYS[1], '', 'NX')
    if no and string.find(no.err, 'READONLY', 1, true) then return redis.error_reply('READONLY replica') end
    return {0, math.min(tonumber(stamp) - ms + 1, 4611686018427387904)}
  end
end
if ours then redis.call('pexpire', KEYS[2], ARGV[2]) end
local fence = ''
if ARGV[3] ~= '0' then
  fence = redis.call('get', KEYS[3])
  local last = fence and string.match(fence, '^[1-9]%d*$')
  if not ours or not last then
    if last and tonumber(last) >= now then
      redis.call('incrby', KEYS[3], 250)
      redis.call('pexpire', KEYS[3], ARGV[3])
    else
      redis.call('set', KEYS[3], string.format('%.0f', now), 'PX', ARGV[3])
    end
    fence = redis.call('get', KEYS[3])
  end
end
stamp = string.format('%.0f', ms + ARGV[2] + 1)
redis.call('set', KEYS[2], ARGV[1] .. ':' .. stamp, 'PX', ARGV[2])
redis.call('set', KEYS[1], stamp)
if ARGV[4] ~= '' then redis.call('set', KEYS[4], ARGV[1] .. '\n' .. ARGV[4], 'PX', ARGV[2]) end
return {1, fence})",
    "43d175368c95ae45786d9a2e83d3184381b9fc84"};

inline constexpr script getset_renew{
    R"(-- KEYS: lock, mine, fence, owner. ARGV: token, lease in ms, life of the fence in ms or 0.
-- Returns 1: renewed. 0: nothing there. -1: somebody else's, or shifted by somebody: left alone.
local stamp = redis.call('get', KEYS[1])
if not stamp then return redis.call('del', KEYS[1]) end
if redis.call('get', KEYS[2]) ~= ARGV[1] .. ':' .. stamp then
  local no = redis.pcall('set', KEYS[1], '', 'NX')
  if no and string.find(no.err, 'READONLY', 1, true) then return redis.error_reply('READONLY replica') end
  return -1
end
redis.call('pexpire', KEYS[2], ARGV[2])
local time = redis.call('time')
stamp = string.format('%.0f', math.floor(time[1] * 1000 + time[2] / 1000) + ARGV[2] + 1)
redis.call('set', KEYS[2], ARGV[1] .. ':' .. stamp, 'PX', ARGV[2])
redis.call('set', KEYS[1], stamp)
if ARGV[3] ~= '0' then redis.call('pexpire', KEYS[3], ARGV[3]) end
redis.call('pexpire', KEYS[4], ARGV[2])
return 1)",
    "63c591920a5ec64af6d4876213157e3d45afcb97"};

inline constexpr script getset_release{
    R"(-- KEYS: lock, mine, owner. ARGV: token.
-- Returns 1: released. 0: nothing there. -1: somebody else's, or shifted by somebody: left alone.
local stamp = redis.call('get', KEYS[1])
if stamp and redis.call('get', KEYS[2]) ~= ARGV[1] .. ':' .. stamp then
  local no = redis.pcall('set', KEYS[1], '', 'NX')
  if no and string.find(no.err, 'READONLY', 1, true) then return redis.error_reply('READONLY replica') end
  local time = redis.call('time')
  local ends = tonumber(stamp)
  return ends and ends < time[1] * 1000 + math.floor(time[2] / 1000) and 0 or -1 -- past, it is nobody's
end
redis.call('del', KEYS[2], KEYS[3])
return redis.call('del', KEYS[1]))",
    "6cd027145db5ad9922caffe5f19b4e2ded01edfa"};

}  // namespace detail

/// Interoperates with clients that take a lock by `SETNX name stamp`, or by GETSET when the stamp is past,
/// and free it by DEL; the stamp is Unix milliseconds: now, the lease and 1. Our scripts do in one step what
/// they do in several commands, with the same values. Beside the lock, in its cluster slot,
/// `...:distlock:mine` says which acquisition of ours made the stamp; fence and owner as in `plain`.
///
/// The protocol has weaknesses that one side alone cannot mend:
/// - clocks: they compare stamps to their own clock, we make and compare them by the server's. A client
///   whose clock is fast by more than the rest of a lease takes over what is still held; valid_until()
///   counts on clocks that agree.
/// - a loser's GETSET shifts the winner's stamp. When that is ours, we hear at the next renewal that the
///   lock is lost, and it is free when the shifted stamp is past. It takes two who find the same stamp
///   past at the same moment.
/// - many of them free by DEL without a look: a client that overran its lease deletes, at its unlock, the
///   lock that we took over and hold, and a third client may take it at once. A client that reads before it
///   deletes does so when it is slow between the two. lost() tells us at the next renewal, up to a third of
///   the lease later. It takes a lease on their side that is too short for the work; our own leases are
///   renewed, and our release deletes nobody else's lock.
/// - the key has no TTL: what nobody wants any more stays on the server for ever.
/// - any decimal digits are a stamp: a counter of that name is a lock that has ended, and is overwritten; a
///   client that writes seconds is not excluded.
/// Fencing tokens hold against all of these, where the resource checks them.
class getset {
  public:
    using inspector = getset_inspector;

    /// The type of the lock's key, as the server names it.
    static constexpr std::string_view stored_as = "string";

    /// Preconditions: the options are checked.
    /// Throws: error(errc::invalid_name), also for a name that cannot have a key beside it.
    getset(std::string name, const lock_options& options)
        : key_(std::move(name)),
          lease_(options.lease),
          lease_text_(std::to_string(options.lease.get().count())),
          mine_(key_.sibling("mine")),
          siblings_(key_, options) {}

    const std::string& name() const noexcept { return key_.name(); }
    std::chrono::milliseconds lease() const noexcept { return lease_; }
    bool acquire_is_script() const noexcept { return true; }
    /// Returns: whether the fencing tokens between two of the server's are ours to give: its
    /// release tells of none.
    bool allows_local_fences() const noexcept { return false; }

    command acquire(const token& owner) const { return look(owner); }
    command look(const token& owner) const {
        return {detail::getset_enter,
                {key_.name(), mine_, siblings_.fence, siblings_.owner},
                {owner.view(), lease_text_, siblings_.fence_life, siblings_.who}};
    }
    command renew(const token& owner) const { return renew(owner, lease_text_); }
    /// `ttl` as plain::renew().
    command renew(const token& owner, std::string_view ttl) const {
        return {detail::getset_renew,
                {key_.name(), mine_, siblings_.fence, siblings_.owner},
                {owner.view(), ttl, siblings_.fence_life}};
    }
    command release(const token& owner) const {
        return {detail::getset_release, {key_.name(), mine_, siblings_.owner}, {owner.view()}};
    }
    command release_minimal(const token& owner) const { return release(owner); }

    acquire_outcome read_acquire(const reply& r) const { return read_look(r); }
    acquire_outcome read_look(const reply& r) const { return detail::read_taken(r, siblings_.fences); }
    renew_outcome read_renew(const reply& r) const { return detail::read_renewed(r); }
    release_verdict read_release(const reply& r) const { return detail::read_released(r); }

  private:
    key key_;
    std::chrono::milliseconds lease_;
    std::string lease_text_;
    std::string mine_;
    detail::sibling_keys siblings_;
};

static_assert(check_dialect<getset>());

}  // namespace distlock
