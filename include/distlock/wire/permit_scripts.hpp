// The scripts of semaphores: permits with an end each, and a queue of tickets that want one or several.
#pragma once

#include <string_view>

#include <distlock/wire/handoff_scripts.hpp>
#include <distlock/wire/script.hpp>

namespace distlock::detail {

// The key of the name is a sorted set of the tokens that have permits; the score of each is its end, in milliseconds of the
// server's clock, and past it the token has them no more. Beside it is a hash: `limit`, how many permits there are; `used`, how many
// are out; and for a token that has more than one, how many. Where the set is gone, none are out.
//
// First come, first served: who is first in the queue is given its permits before the asker is looked at, and keeps all others
// waiting until there are enough. Whatever removes a ticket or a permit passes on (tests/model/shared.pml).
//
// A ticket has the number of permits in the place of the fence's life, and a letter of its own: q or Q for p or s. A message has an n
// behind the TTL.
inline constexpr std::string_view permit_functions =
    R"(local limit, used, time, changed
local function whole(number) return string.format('%.0f', number) end
local function now()
  if not time then
    local read = redis.call('time')
    time = read[1] * 1000 + math.floor(read[2] / 1000)
  end
  return time
end
local function read_permit_ticket(ticket)
  local before, way, rest = string.match(ticket, '^(%x+ %d+ %d+ )([qQ])(.*)$')
  local waiter = way and read(before .. (way == 'q' and 'p' or 's') .. rest)
  if waiter then waiter.n = tonumber(waiter.life or '0') end
  return waiter and waiter.n > 0 and waiter or nil
end
local function weight_of(token) return tonumber(redis.call('hget', KEYS[3], token) or '1') or 1 end
-- Finds out how many permits there are and how many are out, without those that are past their end.
local function count()
  local known = redis.call('hmget', KEYS[3], 'limit', 'used')
  local late = redis.call('zrangebyscore', KEYS[1], '-inf', whole(now()))
  limit, used = tonumber(known[1] or ''), tonumber(known[2] or '')
  for _, token in ipairs(late) do
    redis.call('zrem', KEYS[1], token)
    if used then used = used - weight_of(token) end
    redis.call('hdel', KEYS[3], token)
  end
  if redis.call('exists', KEYS[1]) == 0 then
    if used ~= 0 then redis.call('del', KEYS[3]) end
    used, changed = 0, limit ~= nil
  elseif not used then
    used, changed = 0, true
    for _, token in ipairs(redis.call('zrange', KEYS[1], '0', '-1')) do used = used + weight_of(token) end
  elseif #late > 0 then
    changed = true
    redis.call('hset', KEYS[3], 'used', used)
  end
end
local function give(who, ttl)
  redis.call('zadd', KEYS[1], whole(now() + ttl), who.token)
  if who.n > 1 then redis.call('hset', KEYS[3], who.token, who.n) end
  used, changed = used + who.n, true
end
-- What was counted is kept as long as anybody has a permit, or so many ms.
local function settle(life)
  if not changed then return end
  if limit then redis.call('hset', KEYS[3], 'limit', limit, 'used', used) end
  local last = redis.call('zrange', KEYS[1], '-1', '-1', 'withscores')[2]
  if last then redis.call('pexpireat', KEYS[1], last) end
  redis.call('pexpire', KEYS[3], whole(math.max(life, last and last - now() or 0)))
end
-- Hands permits to those at the front who hear of it and for whom there are enough, before the asker. Returns who is first then.
local function pass(first, asker)
  while first[1] and first[1] ~= asker do
    local waiter = read_permit_ticket(first[1])
    if waiter and (waiter.n > limit or not hears(waiter)) then waiter = nil end
    if waiter and used + waiter.n > limit then break end
    if waiter then give(waiter, waiter.offer) end
    redis.call('zrem', KEYS[2], first[1])
    if waiter and waiter.channel ~= '' then
      redis.pcall(waiter.sharded and 'spublish' or 'publish', waiter.channel,
        waiter.token .. ' ' .. whole(first[2]) .. ' ' .. waiter.offer .. 'n 0 ' .. KEYS[1])
    end
    first = head()
  end
  return first
end
)"sv;

inline constexpr std::string_view permit_enter_contract =
    R"(-- KEYS: permits, queue, limit. ARGV: token, what it needs (a ticket without its token), mode, life of the queue in ms, limit.
-- Modes and answers as handoff has them; no fence. The TTL is the time until the first permit may be past its end. LIMITMISMATCH:
-- there are more permits, or fewer, than the asker says.
)"sv;
inline constexpr std::string_view permit_enter_granted =
    R"(local ticket, mode, life = ARGV[1] .. ARGV[2], ARGV[3], tonumber(ARGV[4])
local me, first, written = read_permit_ticket(ticket), head(), false
count()
if limit and limit ~= tonumber(ARGV[5]) then
  local left = redis.call('pttl', KEYS[3]) -- by asking again and again nobody keeps it
  settle(left > 0 and left or life)
  return redis.error_reply('LIMITMISMATCH it has ' .. whole(limit) .. ' permits, not ' .. ARGV[5])
end
local fresh = not limit
limit = limit or tonumber(ARGV[5])
local queued = first[1] and redis.call('zscore', KEYS[2], ticket)
local ttl = mode == 'try' and me.lease or tonumber(me.offer)
local ends = redis.call('zscore', KEYS[1], me.token)
if ends then
  if queued then redis.call('zrem', KEYS[2], ticket) end
  local left = math.max(ends - now(), ttl)
  redis.call('zadd', KEYS[1], whole(now() + left), me.token)
  changed = true
  settle(life)
  return {1, '', left}
end
first = pass(first, ticket)
if (not first[1] or first[1] == ticket) and used + me.n <= limit then
  give(me, ttl)
  if queued then
    redis.call('zrem', KEYS[2], ticket)
    pass(head())
  end
  settle(life)
  return {1, '', ttl}
end
changed = changed or fresh
settle(life)
written = changed
)"sv;
inline constexpr std::string_view permit_enter_taken =
    R"(if mode == 'last' then
  pass(head())
  settle(life)
end
local next_end = redis.call('zrange', KEYS[1], '0', '0', 'withscores')[2]
return {0, next_end and math.max(next_end - now(), 0) or 0, tonumber(number or 0), before, appended})"sv;
inline constexpr std::string_view permit_enter_sha1 = "b2bf8578b426bce19ba00c082cc370d645116544"sv;
inline constexpr script permit_enter{
    joined<permit_enter_contract, handoff_functions, permit_functions, permit_enter_granted,
           handoff_refuse_as_replica, handoff_enter_queued, permit_enter_taken>,
    permit_enter_sha1};

inline constexpr std::string_view permit_leave_contract =
    R"(-- KEYS: permits, queue, limit. ARGV: token, what it needs (a ticket without its token), life of the queue in ms.
-- The ticket is removed in any case. Returns 1: it had permits, which are given back. 0: it had none.
)"sv;
inline constexpr std::string_view permit_leave_body =
    R"(local first = redis.pcall('zrange', KEYS[2], '0', '0', 'withscores')
if first[1] then redis.call('zrem', KEYS[2], ARGV[1] .. ARGV[2]) end
count()
local weight = weight_of(ARGV[1])
local had = redis.call('zrem', KEYS[1], ARGV[1])
if had == 1 then
  redis.call('hdel', KEYS[3], ARGV[1])
  used, changed = used - weight, true
end
if limit and not first.err then pass(head()) end
settle(tonumber(ARGV[3]))
return had)"sv;
inline constexpr script permit_leave{
    joined<permit_leave_contract, handoff_functions, permit_functions, permit_leave_body>,
    "d6fa7e1245d63c21eba38a30c96e41dd59f99128"sv};

// The end only moves on.
inline constexpr script permit_renew{
    R"(-- KEYS: permits, limit. ARGV: token, lease in ms.
-- Returns 1: renewed. 0: it has none.
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ends = redis.call('zscore', KEYS[1], ARGV[1])
if not ends then return redis.call('zrem', KEYS[1], ARGV[1]) end
redis.call('pexpire', KEYS[1], math.max(redis.call('pttl', KEYS[1]), ARGV[2])) -- first: needs no memory
if tonumber(ends) <= now then return 0 end
redis.call('zadd', KEYS[1], 'XX', string.format('%.0f', math.max(ends, now + ARGV[2])), ARGV[1])
local last = redis.call('zrange', KEYS[1], '-1', '-1', 'withscores')[2]
redis.call('pexpireat', KEYS[1], last)
redis.call('pexpire', KEYS[2], math.max(redis.call('pttl', KEYS[2]), ARGV[2]))
return 1)"sv,
    "df2f58b7f0aa45763eef0053f935c1fdafa6c4a3"sv};

// For operators. Who waits for more than there are now is told so when it looks.
inline constexpr std::string_view permit_resize_contract =
    R"(-- KEYS: permits, queue, limit. ARGV: limit, life of the queue in ms.
-- Returns how many permits are out.
)"sv;
inline constexpr std::string_view permit_resize_body =
    R"(count()
limit, changed = tonumber(ARGV[1]), true
redis.call('hset', KEYS[3], 'limit', ARGV[1])
pass(head())
settle(tonumber(ARGV[2]))
return used)"sv;
inline constexpr script permit_resize{
    joined<permit_resize_contract, handoff_functions, permit_functions, permit_resize_body>,
    "f0d0b2a4b0f3db2964d40e77ed0e472daac23ac7"sv};

}  // namespace distlock::detail
