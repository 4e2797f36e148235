// The scripts of the hand-off: what the server does in one step, so that a lock is never between two owners.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string_view>

#include <distlock/wire/script.hpp>

namespace distlock::detail {

/// Returns: the texts in a row, in `room`, which must last and be large enough. Needs no memory.
inline std::string_view put_together(std::span<char> room,
                                     std::initializer_list<std::string_view> texts) noexcept {
    std::size_t end = 0;
    for (const std::string_view one : texts) {
        const std::size_t size = std::min(one.size(), room.size() - end);
        std::memcpy(room.data() + end, one.data(), size);
        end += size;
    }
    return {room.data(), end};
}

/// Returns: the texts in a row; made by the first call, since it takes compilers a tenth of a second.
template <const std::string_view&... parts>
std::string_view joined() noexcept {
    static char room[(parts.size() + ...)];
    static const std::string_view all = put_together(room, {parts...});
    return all;
}

// The queue is a sorted set of tickets (ticket.hpp). The score is the ticket's number: microseconds of the
// server's clock when it joined, or one more than the last ticket's where that clock was set back.
//
// A hand-over, and a grant to a waiter, last two seconds, or a lease if that is shorter: a waiter that is
// gone keeps the others out no longer. The first renewal makes a lease of it. A token that is not queued is
// granted its lease, as by SET NX PX.
//
// Fences leave room for those a process gives its own threads: see mutex_state::pass_on(). The fence
// grows by the server's clock, so that losing it does not make it fall. It is a string on its way: Lua's
// numbers end at 2^53.
//
// Out of memory, the server refuses a script's first write only, and only if that needs memory. So the
// script that takes locks begins with SET, with the fence of the lock it takes, or with the ticket: refused,
// nothing has changed. The script that releases begins with ZREM, and is not refused. PUBLISH comes last: no
// error follows a message. Behind it the queue is only read.
//
// An owner that asks is told the last fence: the lock is never a waiter's without a fence of its own, so that
// is made before ZREM, which may be refused.
//
// A hand-over's message says "you have the lock", so none goes to a waiter that is passed over. The count of
// PUBLISH comes too late for that: a subscriber on a replica, or on another node of a Cluster, is not counted
// and hears it all the same. A server that refuses to count, or to publish, says nothing about the waiter,
// which finds the lock by looking.
//
// A waiter that joined far back polls seldom, for it does not know when those before it were served. Where
// they were, and the last of them died, nobody would poll. So where 32 wait on, one hand-over in eleven asks
// the last waiter to watch: until it is served, it polls when an offer may have ended. In a long queue, where
// many hand-overs are to come, one in 99 does. The number of the ticket that was served decides which one, so
// the server need not count. The message has 'poll' where others have the TTL, which has four digits at most:
// a buffer that held a hand-over's need not grow.
//
// Every contended acquisition runs both scripts, and most of their time is spent in calls of the server.
// So the usual case comes first and calls little; and numbers are handed to the server as text, which it
// need not print first.
inline constexpr std::string_view handoff_functions =
    R"(local function read(ticket)
  local token, lease, life, way, size, at = string.match(ticket, '^(%x+) (%d+) (%d+) ([ps])(%d+) ()')
  lease, size = tonumber(lease), tonumber(size)
  if not token or #token ~= 32 or lease < 1 or at + size > #ticket + 1 then return nil end
  return {token = token, lease = lease, offer = lease < 2000 and tostring(lease) or '2000', life = life ~= '0' and life,
    sharded = way == 's', channel = string.sub(ticket, at, at + size - 1), info = string.sub(ticket, at + size)}
end
local function hears(waiter)
  if waiter.channel == '' then return true end
  local count = redis.pcall('pubsub', waiter.sharded and 'shardnumsub' or 'numsub', waiter.channel)
  return count.err or count[2] > 0
end
local function whole(number) return string.format('%.0f', number) end
local function tell(waiter, number, ttl, fence)
  if waiter.channel == '' then return end
  redis.pcall(waiter.sharded and 'spublish' or 'publish', waiter.channel,
    waiter.token .. ' ' .. whole(number) .. ' ' .. ttl .. (waiter.kind or '') .. ' ' .. fence .. ' ' .. KEYS[1])
end
local function ask_to_look(waiter, number) return tell(waiter, number, '0', '0') end
-- Returns a fence that is to live so many ms; or nil, and what a call that does not raise was refused with.
local function new_fence(call, life)
  local last = call('get', KEYS[3])
  if type(last) == 'table' then return nil, last end
  last = last and string.match(last, '^[1-9]%d*$')
  local made = call('time')
  local fence = made[1] and made[1] .. string.sub('00000' .. made[2], -6)
  if not fence then return nil, made end
  local behind = last and tonumber(last) >= tonumber(fence)
  if behind then
    made = call('incrby', KEYS[3], 250)
    if type(made) == 'number' then made = call('pexpire', KEYS[3], life) end
  else
    made = call('set', KEYS[3], fence, 'PX', life)
  end
  if type(made) == 'table' and made.err then return nil, made end
  return behind and redis.call('get', KEYS[3]) or fence
end
local function describe(owner, ttl)
  if owner.info ~= '' then
    redis.call('set', KEYS[4], owner.token .. '\n' .. owner.info, 'PX', ttl)
  else
    redis.call('del', KEYS[4])
  end
end
-- The first ticket and its number; nothing of an empty queue.
local function head() return redis.call('zrange', KEYS[2], '0', '0', 'withscores') end
local function waits(place) return redis.call('zrange', KEYS[2], place, place)[1] end
local watched = false
local function keep_watch(served, read_one)
  if watched or served % 11 ~= 0 or not waits('31') or (served % 99 ~= 0 and waits('255')) then return end
  watched = true
  local last = redis.call('zrange', KEYS[2], '-1', '-1', 'withscores')
  local waiter = read_one(last[1])
  if waiter then tell(waiter, last[2], 'poll', '0') end
end
)"sv;
inline constexpr std::string_view handoff_pass =
    R"(-- Hands the lock to the first waiter that hears of it, from the head on and before the asker. Returns whether there is one; and
-- whether the lock was given to one that cannot have a fence.
local function pass(first, asker)
  local tried = false
  while first[1] and first[1] ~= asker do
    local waiter = read(first[1])
    if waiter and not hears(waiter) then waiter = nil end
    if waiter then redis.call('set', KEYS[1], waiter.token, 'PX', waiter.offer) end
    local fence = waiter and (not waiter.life and '0' or new_fence(redis.pcall, waiter.life))
    redis.call('zrem', KEYS[2], first[1])
    if fence then
      describe(waiter, waiter.offer)
      tell(waiter, first[2], waiter.offer, fence)
      keep_watch(first[2], read)
      return true
    end
    tried = tried or waiter
    first = head()
  end
  return false, tried
end
)"sv;

inline constexpr std::string_view handoff_clock =
    R"(-- Milliseconds of the server's clock, the same in all of a script.
local time
local function now()
  if not time then
    local read = redis.call('time')
    time = read[1] * 1000 + math.floor(read[2] / 1000)
  end
  return time
end
)"sv;

// The first waiter may keep out those behind it though it cannot be served yet: a writer behind readers, one
// that wants more permits than are left. No offer shows whether it lives. So it is to look every two seconds,
// is asked to where it did not, by a message of 0 ms, and is dropped two seconds later. Those behind it are
// told when to look. A ticket that is dropped too soon costs its waiter the place, as an evicted queue would
// (tests/model/shared.pml).
// The kind of lock says before where it keeps what is known of that waiter: read_first(), keep_first(),
// forget_first().
inline constexpr std::string_view handoff_first =
    R"(-- What is known of a ticket: its token and number, when its waiter looked or was asked, and which. One that joined anew has another
-- number: nothing is known of it.
local function note(waiter, number, how)
  return keep_first(waiter.token .. ' ' .. number .. ' ' .. whole(now()) .. ' ' .. how)
end
is_gone = function(waiter, number)
  number = whole(number)
  local known = read_first()
  local ticket, since, how = string.match(type(known) == 'string' and known or '', '^(%x+ %d+) (%d+) ([la])$')
  local past = ticket == waiter.token .. ' ' .. number and now() - since or -1
  if past >= 0 and past < 2000 then
    due = 2000 - past
    return false
  end
  if past >= 2000 and how == 'a' then return true end
  due = 2000
  ask_to_look(waiter, number)
  note(waiter, number, 'a')
  return false
end
local function note_look(me, number)
  local no = note(me, whole(number), 'l')
  if type(no) == 'table' and no.err then forget_first() end -- no memory: else it would seem silent
  if redis.call('zrange', KEYS[2], '1', '1')[1] then due = 1000 end
end
)"sv;

// That somebody else has a lock is only said by a master: a replica refuses a write that changes nothing.
inline constexpr std::string_view handoff_refuse_as_replica =
    R"(local function refuse_as_replica()
  local no = redis.pcall('set', KEYS[1], '', 'NX', 'PX', 1)
  return no and string.find(no.err, 'READONLY', 1, true) and redis.error_reply('READONLY replica')
end
)"sv;

inline constexpr std::string_view handoff_enter_contract =
    R"(-- KEYS: lock, queue, fence, owner. ARGV: token, what it needs (a ticket without its token), mode, life of the queue in ms.
-- Mode, when it is taken: 'try': no ticket. 'join': a ticket, the one it has already if it has one. 'last': its ticket is removed.
-- Returns {1, fence or '', TTL in ms}: ours, with 'try' for the whole lease. {0, TTL left in ms, number of our ticket or 0, tickets
-- before it, 1 if it is new}: somebody else's, -1 ms when it has no TTL.
local ticket, mode = ARGV[1] .. ARGV[2], ARGV[3]
local holder, written = redis.call('get', KEYS[1]), false
if not holder or holder == ARGV[1] then
)"sv;
inline constexpr std::string_view handoff_enter_granted =
    R"(local me, first = read(ticket), head()
local queued = first[1] and redis.call('zscore', KEYS[2], ticket)
local ttl = mode == 'try' and me.lease or tonumber(me.offer)
if holder then
  local fence = ''
  if me.life then
    fence = redis.call('get', KEYS[3])
    if not fence or not string.find(fence, '^[1-9]%d*$') then fence = new_fence(redis.call, me.life) end
  end
  if queued then redis.call('zrem', KEYS[2], ticket) end
  local left = math.max(redis.call('pttl', KEYS[1]), ttl)
  redis.call('pexpire', KEYS[1], left)
  describe(me, left)
  return {1, fence, left}
end
local given, tried = pass(first, ticket)
if not given then
  local fence, refused = '', nil
  if me.life then fence, refused = new_fence(tried and redis.pcall or redis.call, me.life) end
  if refused then
    redis.call('del', KEYS[1], KEYS[4])
    return refused
  end
  redis.call('set', KEYS[1], me.token, 'PX', ttl)
  if queued then redis.call('zrem', KEYS[2], ticket) end
  describe(me, ttl)
  return {1, fence, ttl}
end
written = true
end
)"sv;
inline constexpr std::string_view handoff_enter_queued =
    R"(local number, before, appended = nil, 0, 0
if mode == 'last' then
  written = redis.call('zrem', KEYS[2], ticket)
elseif mode == 'join' then
  local last = redis.call('zrange', KEYS[2], '-1', '-1', 'withscores')
  local time = redis.call('time')
  number = time[1] .. string.sub('00000' .. time[2], -6)
  if last[2] and tonumber(last[2]) >= tonumber(number) then
    number = string.format('%.0f', math.min(last[2] + 1, 9007199254740991))
  end
  local added = redis.pcall('zadd', KEYS[2], 'NX', number, ticket)
  written = type(added) == 'number'
  if added == 1 then
    appended = 1
  else
    number = redis.call('zscore', KEYS[2], ticket)
    if not number then return added end
  end
  if last[1] then before = redis.call('zrank', KEYS[2], ticket) end
  if not last[1] or redis.call('pttl', KEYS[2]) < tonumber(ARGV[4]) then
    written = redis.call('pexpire', KEYS[2], ARGV[4])
  end
else
  number = redis.call('zscore', KEYS[2], ticket)
  if number then before = redis.call('zrank', KEYS[2], ticket) end
end
local refused = not written and refuse_as_replica()
if refused then return refused end
)"sv;
inline constexpr std::string_view handoff_enter_taken =
    R"(return {0, redis.call('pttl', KEYS[1]), tonumber(number or 0), before, appended})"sv;
inline constexpr std::string_view handoff_enter_sha1 = "afbe39e944396221676b1bf22c2f40122761da05"sv;
inline constexpr script handoff_enter{
    joined<handoff_enter_contract, handoff_functions, handoff_pass, handoff_enter_granted,
           handoff_refuse_as_replica, handoff_enter_queued, handoff_enter_taken>,
    handoff_enter_sha1};

// What most releases are, before the functions that it does not need.
inline constexpr std::string_view handoff_leave_alone =
    R"(-- KEYS: lock, queue, fence, owner. ARGV: token, what it needs (a ticket without its token), the largest fence that was used
-- since, its life in ms.
-- The ticket is removed in any case. Returns 2: handed over. 1: free. 0: nothing there. -1: somebody else's, left alone.
local holder = redis.pcall('get', KEYS[1])
local first = redis.pcall('zrange', KEYS[2], '0', '0', 'withscores')
if not first[1] and holder == ARGV[1] and not ARGV[3] then -- what is of another type is no queue
  redis.call('del', KEYS[1], KEYS[4])
  return 1
end
)"sv;
inline constexpr std::string_view handoff_leave_body =
    R"(if first[1] and redis.call('zrem', KEYS[2], ARGV[1] .. ARGV[2]) == 1 then first = head() end
if type(holder) == 'table' then return holder end
)"sv;
inline constexpr std::string_view handoff_keep_fence =
    R"(local used = ARGV[3]
if used then
  local last = redis.pcall('get', KEYS[3])
  if type(last) ~= 'table' then
    last = last and string.match(last, '^[1-9]%d*$') or ''
    if #last < #used or (#last == #used and last < used) then redis.pcall('set', KEYS[3], used, 'PX', ARGV[4]) end
  end
end
)"sv;
inline constexpr std::string_view handoff_leave_rest =
    R"(if holder and holder ~= ARGV[1] then return refuse_as_replica() or -1 end
if holder and pass(first) then return 2 end
if holder then redis.call('del', KEYS[4]) end
return redis.call('del', KEYS[1]))"sv;
inline constexpr script handoff_leave{
    joined<handoff_leave_alone, handoff_functions, handoff_pass, handoff_refuse_as_replica,
           handoff_leave_body, handoff_keep_fence, handoff_leave_rest>,
    "970e6026999936b04607dc8b9f82c309898ccaf2"sv};

}  // namespace distlock::detail
