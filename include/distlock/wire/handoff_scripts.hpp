// The scripts of the hand-off: what the server does in one step, so that a lock is never between two owners.
#pragma once

#include <distlock/wire/script.hpp>

namespace distlock::detail {

// An offer is "<token>:<lease in ms>:<server time in microseconds>:<fence or ''>"; a token has 32 digits. It is open while
// the lock holds its token and it is still in the list: nobody has taken it yet. Who takes one without having been in line
// gives its count back, for the waiter it was meant for. But a waiter that died while it was counted must not be handed
// the lock again and again: a count given back lasts two seconds, or half a lease, from the first time on, unless a
// waiter looks or joins meanwhile; what is offered for one of which less than half is left says time 0, and is not
// given back again. Twice in a row would be too soon: who is on its way to its wait may be overtaken many times.
//
// A new token is made of the old owner's 128 random bits and the server's clock, which names it anew each time: unlock()
// need not ask the system for random bits it seldom needs.
//
// Fences leave room for those a process gives its own threads: see engine::local_fences.

inline constexpr script handoff_enter{
    R"(-- KEYS: lock, offers, waiters, and fence, owner where they are kept. ARGV: token, lease in ms, place, and life of
-- the fence in ms or 0, owner or ''. Place: 'try': in no line. 'join': gets in line when it is taken. 'stay': is in
-- line. 'quit': is in line, and leaves it when it is taken. 'adopt': the lock was offered to this token.
-- Returns {1, fence or ''}: ours. {0, TTL left in ms}: somebody else's, -1 when it has none.
local place = ARGV[3]
local holder = redis.call('get', KEYS[1])
local offer = redis.call('lindex', KEYS[2], 0)
local waiters = redis.call('get', KEYS[3])
local open = holder and offer and string.sub(offer, 1, 32) == holder
local function leave()
  if redis.call('decr', KEYS[3]) <= 0 then redis.call('del', KEYS[3]) end
end
local function lengthen()
  if redis.call('pttl', KEYS[3]) < tonumber(ARGV[2]) then redis.call('pexpire', KEYS[3], ARGV[2]) end
end
if holder and holder ~= ARGV[1] and not open then
  if place == 'join' then
    redis.call('incr', KEYS[3])
    lengthen()
  elseif place == 'quit' and waiters then
    leave()
  else
    if place == 'stay' then lengthen() end
    local no = redis.pcall('set', KEYS[1], '', 'NX', 'PX', 1)
    if no and string.find(no.err, 'READONLY', 1, true) then return redis.error_reply('READONLY replica') end
  end
  if offer then redis.call('del', KEYS[2]) end
  return {0, redis.call('pttl', KEYS[1])}
end
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local fence = ''
if KEYS[4] and ARGV[4] ~= '0' then
  fence = redis.call('get', KEYS[4])
  local last = fence and string.match(fence, '^[1-9]%d*$')
  if holder ~= ARGV[1] or not last or place == 'adopt' then
    if last and tonumber(last) >= now then
      redis.call('incrby', KEYS[4], 1000000)
      redis.call('pexpire', KEYS[4], ARGV[4])
    else
      redis.call('set', KEYS[4], string.format('%.0f', now), 'PX', ARGV[4])
    end
    fence = redis.call('get', KEYS[4])
  end
end
if holder == ARGV[1] then
  redis.call('pexpire', KEYS[1], ARGV[2])
else
  redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
if KEYS[5] and ARGV[5] ~= '' then redis.call('set', KEYS[5], ARGV[1] .. '\n' .. ARGV[5], 'PX', ARGV[2]) end
if holder ~= ARGV[1] then
  local in_line = place == 'stay' or place == 'quit'
  if open and not in_line then
    -- The waiter it was meant for still waits; but one who has not come for a second is not there.
    local since = tonumber(string.match(offer, '^%x+:%d+:(%d+):') or 0)
    if since > 0 and now - since > 1000000 then
      redis.call('del', KEYS[3])
    elseif since > 0 then
      redis.call('incr', KEYS[3])
      if redis.call('pttl', KEYS[3]) < 0 then
        redis.call('pexpire', KEYS[3], math.ceil(math.min(2000, ARGV[2] / 2)))
      end
    end
  elseif not open and in_line and waiters then
    leave()
  end
end
if offer then redis.call('del', KEYS[2]) end
return {1, fence})",
    "0a2b3f370ec5b9f28a6001ff3cc3f2036e7b9f28"};

inline constexpr script handoff_pass{
    R"(-- KEYS: lock, offers, waiters, and fence, owner where they are kept. ARGV: token, lease in ms; life of the fence in ms or 0,
-- what. What: none: hands on or frees the lock of this token. 'look': of a waiter, hands on a lock that is free when
-- somebody is counted. 'revive': even when nobody is.
-- Returns to an owner 2: handed on. 1: free. 0: nothing there. -1: somebody else's, left alone. To a waiter: the TTL left in
-- ms, -1 when it has none; -2: free, and nobody is counted.
local seen = redis.call('mget', KEYS[1], KEYS[3])
local holder, waiters, what = seen[1], tonumber(seen[2]) or 0, ARGV[4]
if holder == ARGV[1] and waiters <= 0 and not what then
  if KEYS[5] then redis.call('del', KEYS[5]) end
  return redis.call('del', KEYS[1])
end
if not holder then redis.call('get', KEYS[1]) end
if what then
  if waiters > 0 and redis.call('pttl', KEYS[3]) < tonumber(ARGV[2]) then redis.call('pexpire', KEYS[3], ARGV[2]) end
  if holder then return redis.call('pttl', KEYS[1]) end
  if waiters <= 0 and what == 'look' then return -2 end
elseif not holder then
  return redis.call('del', KEYS[1])
elseif holder ~= ARGV[1] then
  local no = redis.pcall('set', KEYS[1], '', 'NX', 'PX', 1)
  if no and string.find(no.err, 'READONLY', 1, true) then return redis.error_reply('READONLY replica') end
  return -1
end
-- A key of another type is an error while nothing is written.
redis.call('lindex', KEYS[2], 0)
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local since = string.format('%.0f', now)
local fence = ''
if KEYS[4] and ARGV[3] ~= '0' then
  fence = redis.call('get', KEYS[4])
  local last = fence and string.match(fence, '^[1-9]%d*$')
  if last and tonumber(last) >= now then
    redis.call('incrby', KEYS[4], 1000000)
    redis.call('pexpire', KEYS[4], ARGV[3])
  else
    redis.call('set', KEYS[4], since, 'PX', ARGV[3])
  end
  fence = redis.call('get', KEYS[4])
end
local token = string.sub(redis.sha1hex(ARGV[1] .. since), 1, 32)
local given_back = math.ceil(math.min(2000, ARGV[2] / 2))
local left = redis.call('pttl', KEYS[3])
if left <= given_back / 2 then since = '0' end
redis.call('set', KEYS[1], token, 'PX', ARGV[2])
if waiters > 1 or (waiters == 1 and left > 0 and left <= given_back) then
  redis.call('decr', KEYS[3])
else
  redis.call('del', KEYS[3])
end
if KEYS[5] then redis.call('del', KEYS[5]) end
local offer = token .. ':' .. ARGV[2] .. ':' .. since .. ':' .. fence
if redis.call('rpush', KEYS[2], offer) > 1 then
  redis.call('del', KEYS[2])
  redis.call('rpush', KEYS[2], offer)
end
redis.call('pexpire', KEYS[2], ARGV[2])
if what then return tonumber(ARGV[2]) end
return 2)",
    "225176b095dfda290ab404e5ac9f66136cf02f35"};

// To decrement first would take the wake-up from somebody who has registered and is about to wait. Where the count was
// lost, somebody else's is taken; who waits uncounted finds the lock by looking.
inline constexpr script handoff_leave{
    R"(-- KEYS: lock, offers, waiters. Gets out of line; an open offer while nobody else is in line was meant for the one who leaves.
-- Returns 1: a lock that was offered to us is free again. 0: else.
local offer = redis.call('lindex', KEYS[2], 0)
if tonumber(redis.call('get', KEYS[3]) or 0) > 0 then
  if redis.call('decr', KEYS[3]) <= 0 then redis.call('del', KEYS[3]) end
elseif offer and string.sub(offer, 1, 32) == redis.call('get', KEYS[1]) then
  redis.call('del', KEYS[1], KEYS[2])
  return 1
end
return 0)",
    "0c91a743a71fe316c28e009c4d33d4279c4ce2a5"};

}  // namespace distlock::detail
