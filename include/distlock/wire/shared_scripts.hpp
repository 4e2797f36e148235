// The scripts of shared locks: readers together, or one writer, in one queue of both.
#pragma once

#include <string_view>

#include <distlock/wire/handoff_scripts.hpp>
#include <distlock/wire/script.hpp>

namespace distlock::detail {

// The lock's key is a writer's token, as in handoff_scripts.hpp, or the readers' mark: every client that
// takes a lock by SET NX is excluded by both, and excludes both. Beside it is a sorted set of the readers'
// tokens; the score of each is its end, in milliseconds of the server's clock, and past it a reader has the
// lock no more, whoever else reads. The key lasts as long as the last of them. The set means something only
// while the key is the mark.
//
// A reader that is alone may have the key for itself: the mark, a space, its token, and the key's TTL is its
// end. That costs it what a lock costs. The next reader that is let in beside it makes the set of both.
//
// The first in the queue, if it may have the lock, is given it before the asker. A ticket that leaves may be
// what kept others waiting, so whatever removes one hands on (tests/model/shared.pml).
//
// A reader is told the fence of the last writer: what it reads is not older than that.
//
// A message says behind the TTL for whom it is: 'r' for a reader, 'w' for a writer. A reader's ticket is
// marked by an upper-case letter. The scripts of handoff take it for no ticket, and remove it: a name is
// either a mutex's or a shared_mutex's.
inline constexpr std::string_view shared_functions =
    R"(local mark, lone, changed, latest, soonest = 'distlock:readers', nil, false, nil, nil
local is_gone, due -- of a first waiter that cannot be served yet: enter looks after it
local function read_any(ticket)
  local before, way, rest = string.match(ticket, '^(%x+ %d+ %d+ )([PS])(.*)$')
  local waiter = read(way and before .. string.lower(way) .. rest or ticket)
  if waiter then waiter.reads, waiter.kind = way ~= nil, way and 'r' or 'w' end
  return waiter
end
local function find_soonest()
  soonest = tonumber(redis.call('zrange', KEYS[5], '0', '0', 'withscores')[2] or '')
  return soonest
end
-- Returns a writer's token, the mark, or nothing: no reader stands for the mark any more. A reader that is alone and whose key has
-- lost its TTL keeps out all others, as a writer without one does: nobody knows its end.
local function still_held(holder)
  lone = holder and string.match(holder, '^distlock:readers (%x+)$')
  if lone then
    local left = redis.call('pttl', KEYS[1])
    if left < 0 and lone ~= ARGV[1] and lone ~= ARGV[3] then
      lone = nil
      return holder
    end
    soonest = now() + math.max(left, 0)
    return mark
  end
  if holder ~= mark then return holder end
  if find_soonest() and soonest <= now() then
    redis.call('zremrangebyscore', KEYS[5], '-inf', whole(now()))
    find_soonest()
  end
  if soonest then return holder end
  redis.call('del', KEYS[1])
  return false
end
-- Of what the mark stands for.
local function end_of(token)
  if lone then return lone == token and soonest end
  return redis.call('zscore', KEYS[5], token)
end
local function last_fence(call, life)
  local fence = call('get', KEYS[3])
  if type(fence) == 'table' then return nil, fence end
  fence = fence and #fence < 20 and string.match(fence, '^[1-9]%d*$')
  if fence then return fence end
  return new_fence(call, life)
end
-- As long as anybody reads under it: else the next reader would have a larger one than those that read on.
local function keep_fence(life)
  if redis.call('pttl', KEYS[3]) < tonumber(life) then redis.pcall('pexpire', KEYS[3], life) end
end
-- Whose user may not set the end of a key does not read.
local may_end = false
local function check_may_end(token)
  may_end = true
  local left = redis.call('pttl', KEYS[1])
  if left == -1 then return end
  left = math.max(left, 1)
  if type(redis.pcall('pexpire', KEYS[1], left)) ~= 'table' then return end
  redis.call('zrem', KEYS[5], token)
  if redis.call('exists', KEYS[5]) == 0 then redis.call('del', KEYS[1]) end
  redis.call('pexpire', KEYS[1], left) -- raises it
end
local function let_in(reader, ttl, holder)
  if lone then
    if redis.call('exists', KEYS[5]) == 1 then redis.call('del', KEYS[5]) end
    -- First: where that is refused, the reader that was alone reads on.
    redis.call('zadd', KEYS[5], whole(soonest), lone)
    redis.call('set', KEYS[1], mark, 'PX', whole(math.max(ttl, soonest - now())))
    redis.call('del', KEYS[4])
    lone, latest = nil, soonest
  elseif holder ~= mark then
    redis.call('set', KEYS[1], mark, 'PX', ttl)
    redis.call('del', KEYS[4], KEYS[5])
    latest = 0
  end
  local ends = now() + ttl
  redis.call('zadd', KEYS[5], whole(ends), reader.token)
  if not may_end then check_may_end(reader.token) end
  latest, soonest, changed = latest and math.max(latest, ends), math.min(soonest or ends, ends), true
  if reader.life then keep_fence(reader.life) end
end
-- What is left of the lock when its holder is this one.
local function settle(holder)
  if not holder then
    redis.call('del', KEYS[1], KEYS[4], KEYS[5])
  elseif holder == mark and changed then
    local left = math.min((latest or redis.call('zrange', KEYS[5], '-1', '-1', 'withscores')[2]) - now(), 1e15)
    redis.call('pexpire', KEYS[1], whole(left))
    redis.call('pexpire', KEYS[5], whole(left))
  end
end
-- Hands the lock to who is first and hears of it, from the head on and before the asker: to one writer where nobody has the lock,
-- to all readers that stand together where no writer has it. Returns the holder then, and who is first.
local function pass(first, asker, holder)
  while first[1] and first[1] ~= asker do
    local waiter, fence = read_any(first[1]), nil
    if waiter and not hears(waiter) then waiter = nil end
    if waiter and holder and not waiter.reads then
      if not is_gone or not is_gone(waiter, first[2]) then break end
      waiter = nil
    end
    if waiter and waiter.reads then
      let_in(waiter, waiter.offer, holder)
      fence = not waiter.life and '0' or last_fence(redis.pcall, waiter.life)
      if not fence then redis.call('zrem', KEYS[5], waiter.token) end
    elseif waiter then
      redis.call('set', KEYS[1], waiter.token, 'PX', waiter.offer)
      fence = not waiter.life and '0' or new_fence(redis.pcall, waiter.life)
    end
    redis.call('zrem', KEYS[2], first[1])
    if fence then
      holder = waiter.reads and mark or waiter.token
      if not waiter.reads then
        redis.call('del', KEYS[5])
        describe(waiter, waiter.offer)
      end
      tell(waiter, first[2], waiter.offer, fence)
      keep_watch(first[2], read_any)
      if not waiter.reads then return holder, first end
    end
    first = head()
  end
  return holder, first
end
)"sv;

inline constexpr std::string_view shared_enter_contract =
    R"(-- KEYS: lock, queue, fence, owner, readers. ARGV: token, what it needs (a ticket without its token), mode, life of the queue in ms;
-- of a reader that needs no fence, its lease in ms.
-- Modes and answers as handoff has them; a fourth element, 1, of a reader beside others. The TTL of a lock that readers have is the
-- time until the first of them is past its end, or until the first waiter is to be looked after.
)"sv;
// Most readers: they need no fence, and nobody waits. Before the functions that they do not need.
inline constexpr std::string_view shared_enter_unqueued =
    R"(if ARGV[5] then
  local ttl = ARGV[3] ~= 'try' and tonumber(ARGV[5]) > 2000 and '2000' or ARGV[5]
  local others = redis.call('exists', KEYS[2], KEYS[5])
  local alone = others == 0 and redis.pcall('set', KEYS[1], 'distlock:readers ' .. ARGV[1], 'NX', 'PX', ttl)
  if alone and alone.ok then return {1, '', tonumber(ttl)} end
  if others == 1 and redis.call('get', KEYS[1]) == 'distlock:readers' and redis.call('exists', KEYS[2]) == 0 then
    local left, time = redis.call('pttl', KEYS[1]), redis.call('time')
    local ends = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000 + ttl
    if left >= 0 and redis.call('zadd', KEYS[5], 'NX', ends, ARGV[1]) == 1 then
      local longest = left < tonumber(ttl) and ttl or left
      local no = redis.pcall('pexpire', KEYS[5], longest)
      if type(no) == 'table' then -- whose user may not do that does not read
        redis.call('zrem', KEYS[5], ARGV[1])
        return no
      end
      if longest == ttl then redis.call('pexpire', KEYS[1], ttl) end
      return {1, '', tonumber(ttl), 1}
    end
  end
end
)"sv;
inline constexpr std::string_view shared_first =
    R"(local function read_first() return redis.pcall('get', KEYS[4]) end
local function keep_first(text) return redis.pcall('set', KEYS[4], text, 'PX', ARGV[4]) end
local function forget_first() redis.pcall('del', KEYS[4]) end
)"sv;
inline constexpr std::string_view shared_enter_granted =
    R"(local ticket, mode = ARGV[1] .. ARGV[2], ARGV[3]
local written, holder = false, still_held(redis.call('get', KEYS[1]))
local me, first = read_any(ticket), head()
local ttl = mode == 'try' and me.lease or tonumber(me.offer)
local ends = me.reads and holder == mark and end_of(me.token)
if ends or holder == me.token then
  local fence = me.life and last_fence(redis.call, me.life) or ''
  if first[1] then redis.call('zrem', KEYS[2], ticket) end
  local left
  if ends then
    left = math.max(ends - now(), ttl)
    let_in(me, left, holder)
    settle(holder)
  else
    left = math.max(redis.call('pttl', KEYS[1]), ttl)
    redis.call('pexpire', KEYS[1], left)
    describe(me, left)
  end
  return {1, fence, left}
end
if not holder or holder == mark then
  holder, first = pass(first, ticket, holder)
  if (not holder or me.reads and holder == mark) and (not first[1] or first[1] == ticket) then
    local fence, refused = '', nil
    if me.life then fence, refused = (me.reads and last_fence or new_fence)(redis.pcall, me.life) end
    if refused then
      settle(holder)
      return refused
    end
    local beside = me.reads and holder and 1
    if me.reads then
      let_in(me, ttl, holder)
      if first[1] then
        redis.call('zrem', KEYS[2], ticket)
        pass(head(), nil, mark)
      end
      settle(mark)
    else
      redis.call('set', KEYS[1], me.token, 'PX', ttl)
      redis.call('del', KEYS[5])
      if first[1] then redis.call('zrem', KEYS[2], ticket) end
      describe(me, ttl)
    end
    return {1, fence, ttl, beside or nil}
  end
  if holder and first[1] == ticket then note_look(me, first[2]) end
  written = changed
  settle(holder)
end
)"sv;
inline constexpr std::string_view shared_enter_taken =
    R"(if mode == 'last' and (not holder or holder == mark) then
  holder = pass(head(), nil, holder)
  settle(holder)
end
local left = holder == mark and math.min(math.max(soonest - now(), 0), 86400000) or redis.call('pttl', KEYS[1])
return {0, math.min(left, due or left), tonumber(number or 0), before, appended})"sv;
inline constexpr std::string_view shared_enter_sha1 = "e70a4c7fe8a9f0af583139cdb20fa49231b53bf4"sv;
inline constexpr script shared_enter{
    joined<shared_enter_contract, shared_enter_unqueued, handoff_functions, handoff_clock, shared_functions,
           shared_first, handoff_first, shared_enter_granted, handoff_refuse_as_replica, handoff_enter_queued,
           shared_enter_taken>,
    shared_enter_sha1};

// The usual releases, before the functions that they do not need.
inline constexpr std::string_view shared_leave_unqueued =
    R"(-- KEYS: lock, queue, fence, owner, readers. ARGV: token, what it needs (a ticket without its token).
-- The ticket is removed in any case. Returns 1: free, or handed over. 0: nothing there. -1: somebody else's, left alone.
local holder = redis.pcall('get', KEYS[1])
local left = holder == 'distlock:readers ' .. ARGV[1]
if left and redis.call('exists', KEYS[2]) == 0 then
  redis.call('del', KEYS[1], KEYS[4])
  return 1
elseif holder == 'distlock:readers' and redis.call('zrem', KEYS[5], ARGV[1]) == 1 then
  left = true
  if redis.call('exists', KEYS[2]) == 0 then
    local last = redis.call('zrange', KEYS[5], '-1', '-1', 'withscores')[2]
    if last then
      local time = redis.call('time')
      last = string.format('%.0f', math.min(last - time[1] * 1000 - math.floor(time[2] / 1000), 1e15))
      redis.call('pexpire', KEYS[1], last)
      redis.call('pexpire', KEYS[5], last)
    else
      redis.call('del', KEYS[1], KEYS[4])
    end
    return 1
  end
end
local first = redis.pcall('zrange', KEYS[2], '0', '0', 'withscores')
if not first[1] and holder == ARGV[1] then -- what is of another type is no queue
  redis.call('del', KEYS[1], KEYS[4])
  return 1
end
)"sv;
inline constexpr std::string_view shared_leave_rest =
    R"(holder = still_held((not left or holder == mark) and holder)
if holder == ARGV[1] then left, holder = true, false end
local refused = holder and (lone or holder ~= mark) and refuse_as_replica()
if refused then return refused end
if holder and holder ~= mark then return -1 end
changed = left
settle((pass(first, nil, holder)))
return left and 1 or holder and -1 or 0)"sv;
inline constexpr script shared_leave{
    joined<shared_leave_unqueued, handoff_functions, handoff_clock, shared_functions,
           handoff_refuse_as_replica, handoff_leave_body, shared_leave_rest>,
    "9a3d6cf9af8a6514fde66631ea833e318ce34b35"sv};

// Those who read under the lock or wait for it see one step: nobody is let in between. A reader that becomes
// the writer goes before writers that wait: it could not let them in first without reading what they wrote.
inline constexpr std::string_view shared_exchange_contract =
    R"(-- KEYS: lock, queue, fence, owner, readers. ARGV: token, what it needs (a ticket without its token), the token that has the lock
-- now.
-- Answers as enter. Nothing changes when that token has not the lock, or is not the only reader.
)"sv;
inline constexpr std::string_view shared_exchange_body =
    R"(local me, holder = read_any(ARGV[1] .. ARGV[2]), still_held(redis.call('get', KEYS[1]))
local has = me.reads and holder == mark and end_of(me.token) or holder == me.token
local alone = holder == mark and end_of(ARGV[3]) and (lone or redis.call('zcard', KEYS[5]) == 1)
if not has and holder ~= ARGV[3] and (me.reads or not alone) then
  if not holder then redis.call('del', KEYS[1]) end -- no replica does
  return holder and refuse_as_replica() or {0, redis.call('pttl', KEYS[1]), 0, 0, 0}
end
)"sv;
inline constexpr std::string_view shared_exchange_rest =
    R"(local first = me.reads and head() -- before anything is written: what is no queue ends it here
local fence, refused = '', nil
if me.life then fence, refused = ((has or me.reads) and last_fence or new_fence)(redis.pcall, me.life) end
if refused then return refused end
if me.reads then
  let_in(me, me.lease, has and mark)
  settle((pass(first, nil, mark)))
else
  redis.call('set', KEYS[1], me.token, 'PX', me.lease)
  redis.call('del', KEYS[5])
  describe(me, me.lease)
end
return {1, fence, me.lease})"sv;
inline constexpr script shared_exchange{
    joined<shared_exchange_contract, handoff_functions, handoff_clock, shared_functions,
           handoff_refuse_as_replica, shared_exchange_body, shared_exchange_rest>,
    "b608f50ae709b6290eb6c594486dc1a4e94f4727"sv};

// Of a reader. The end only moves on.
inline constexpr script shared_renew{
    R"(-- KEYS: lock, readers, and the fence where it is kept. ARGV: token, lease in ms; life of the fence in ms.
-- Returns 1: renewed. 0: nothing there. -1: a writer has the lock.
local holder = redis.call('get', KEYS[1])
if not holder then return redis.call('del', KEYS[1]) end
if holder == 'distlock:readers ' .. ARGV[1] then
  return redis.call('pexpire', KEYS[1], math.max(redis.call('pttl', KEYS[1]), ARGV[2]))
end
if not string.find(holder, '^distlock:readers') then
  local no = redis.pcall('set', KEYS[1], '', 'NX', 'PX', 1)
  if no and string.find(no.err, 'READONLY', 1, true) then return redis.error_reply('READONLY replica') end
  return -1
end
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ends = holder == 'distlock:readers' and redis.call('zscore', KEYS[2], ARGV[1])
if not ends or tonumber(ends) <= now then
  redis.call('zrem', KEYS[2], ARGV[1])
  return 0
end
redis.call('pexpire', KEYS[1], math.max(redis.call('pttl', KEYS[1]), ARGV[2])) -- first: needs no memory
redis.call('zadd', KEYS[2], 'XX', string.format('%.0f', math.max(ends, now + ARGV[2])), ARGV[1])
local left = redis.call('zrange', KEYS[2], '-1', '-1', 'withscores')[2] - now
left = string.format('%.0f', math.min(left, 1e15)) -- of what another client wrote there
redis.call('pexpire', KEYS[1], left)
redis.call('pexpire', KEYS[2], left)
if KEYS[3] and redis.call('pttl', KEYS[3]) < tonumber(ARGV[3]) then redis.pcall('pexpire', KEYS[3], ARGV[3]) end
return 1)"sv,
    "d9fedfb091cd93850f64288f42e8b8979cac3ba2"sv};

// Needs neither memory nor the queue: waiters find the lock by looking.
inline constexpr script shared_leave_minimal{
    R"(-- KEYS: lock, readers. ARGV: token.
-- Returns 1: it reads no more. 0: nothing there. -1: somebody else has the lock.
local holder = redis.call('get', KEYS[1])
if holder == 'distlock:readers ' .. ARGV[1] then return redis.call('del', KEYS[1]) end
if holder and holder ~= 'distlock:readers' then
  local no = redis.pcall('set', KEYS[1], '', 'NX', 'PX', 1)
  if no and string.find(no.err, 'READONLY', 1, true) then return redis.error_reply('READONLY replica') end
  return -1
end
local had = redis.call('zrem', KEYS[2], ARGV[1])
if redis.call('exists', KEYS[2]) == 0 then redis.call('del', KEYS[1]) end
return had)"sv,
    "69c378d50c6ca06257c117c2906b60a9ff16f3de"sv};

}  // namespace distlock::detail
