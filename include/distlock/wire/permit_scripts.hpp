// The scripts of semaphores: permits with an end each, and a queue of tickets that want one or several.
#pragma once

#include <string_view>

#include <distlock/wire/handoff_scripts.hpp>
#include <distlock/wire/script.hpp>

namespace distlock::detail {

// The key of the name is a sorted set of the tokens that have permits; the score of each is its end, in
// milliseconds of the server's clock, and past it the token has them no more. Beside it is a hash: `limit`,
// how many permits there are; `used`, how many are out; for a token that has more than one, how many; and
// `first`, what is known of a waiter that keeps out others. Where the set is gone, none are out.
//
// First come, first served: who is first in the queue is given its permits before the asker is looked at, and
// keeps all others waiting until there are enough. Whatever removes a ticket or a permit passes on
// (tests/model/shared.pml).
//
// A ticket has the number of permits in the place of the fence's life, and a letter of its own: q or Q for p
// or s. A message has an n behind the TTL.
//
// Where many wait, all permits are out but for the moment of a release: nobody is looked at then.
//
// Where no permits are counted, the set may be anybody's: it is ours when its first member is a token, and it
// has a TTL. To one of ours another client may have added members; it has a TTL still.
inline constexpr std::string_view permit_refuse_other_sets =
    R"(local function refuse_other_sets(first, counted)
  local token = first and #first == 32 and not string.find(first, '%X')
  local ours = not first or token and counted or (token or counted) and redis.call('pttl', KEYS[1]) >= 0
  if not ours then redis.call('get', KEYS[1]) end -- raises WRONGTYPE
end
)"sv;
// How many permits these have together, by what is beside them: a member that another client put there has
// one.
inline constexpr std::string_view permit_weigh =
    R"(local function weight_of(text) -- what another client wrote there may be anything
  local n = tonumber(text or '1')
  return n and n >= 1 and n < 4294967296 and n % 1 == 0 and n or 1
end
local function weigh(members, beside)
  local sum = 0
  for first = 1, #members, 1000 do -- so many fit on Lua's stack
    local last = math.min(first + 999, #members)
    local known = redis.call('hmget', beside, unpack(members, first, last))
    for i = first, last do
      sum = sum + (#members[i] == 32 and weight_of(known[i - first + 1]) or 1)
    end
  end
  return sum
end
)"sv;
inline constexpr std::string_view permit_functions =
    R"(local limit, used, changed, soonest, latest
local life -- of what was counted, in ms
local known_limit, known_used
local is_gone, due -- of a first waiter that cannot be served yet: enter looks after it
local function read_permit_ticket(ticket)
  local before, way, rest = string.match(ticket, '^(%x+ %d+ %d+ )([qQ])(.*)$')
  local waiter = way and read(before .. (way == 'q' and 'p' or 's') .. rest)
  if waiter then waiter.n, waiter.kind = tonumber(waiter.life or '0'), 'n' end
  return waiter and waiter.n > 0 and waiter or nil
end
local function find_soonest()
  local first = redis.call('zrange', KEYS[1], '0', '0', 'withscores')
  soonest = tonumber(first[2] or '')
  return first[1]
end
-- Finds out how many permits there are and how many are out, without those that are past their end, and those of a token that
-- was removed just now.
local function count(removed)
  local known = redis.call('hmget', KEYS[3], 'limit', 'used', removed or 'limit')
  limit, used = tonumber(known[1] or ''), tonumber(known[2] or '')
  if used and not (used >= 0 and used < 4294967296 and used % 1 == 0) then used = nil end
  known_limit, known_used = limit, used
  local first = find_soonest()
  if not removed then refuse_other_sets(first, limit and used ~= 0) end
  if removed and used then
    used = used - weight_of(known[3])
    if known[3] then redis.call('hdel', KEYS[3], removed) end
  end
  local late = soonest and soonest <= now() and redis.call('zrangebyscore', KEYS[1], '-inf', whole(now())) or {}
  if late[1] then redis.call('hdel', KEYS[3], 'used') end -- if a call behind this one is refused, the next to ask counts anew
  for _, token in ipairs(late) do
    redis.call('hdel', KEYS[3], token)
    redis.call('zrem', KEYS[1], token)
  end
  if late[1] then
    changed = true
    find_soonest()
  end
  if not soonest then
    -- Only if something is there: a script that has deleted may write also where the server has no memory left.
    if used ~= 0 and (known[1] or known[2]) and not late[1] then
      redis.call('del', KEYS[3])
      known_limit, known_used = nil, nil
    end
    used, changed = 0, limit ~= nil
  elseif late[1] or not used or used <= 0 then
    -- Another client that adds a member, or removes one, does not count it: that is found here.
    used, changed = weigh(redis.call('zrange', KEYS[1], '0', '-1'), KEYS[3]), true
    if known_used then
      redis.call('hset', KEYS[3], 'used', used)
      known_used = used
    end
  end
end
-- With so many that are given just now. Whose user may not set its end leaves it as it was.
local function count_out(given)
  redis.call('hset', KEYS[3], 'limit', limit, 'used', used)
  local refused = (given > 0 or limit ~= known_limit) and redis.pcall('pexpire', KEYS[3], whole(life))
  if type(refused) == 'table' then
    used = used - given
    if known_limit then redis.call('hset', KEYS[3], 'limit', known_limit, 'used', used) else redis.call('del', KEYS[3]) end
    redis.call('pexpire', KEYS[3], whole(life)) -- raises it
  end
  known_limit, known_used = limit, used
end
local function give(who, ttl)
  local ends = now() + ttl
  used, changed = used + who.n, true
  count_out(who.n) -- first: whose user may not do that has none
  if who.n > 1 then redis.call('hset', KEYS[3], who.token, who.n) end
  local no = redis.pcall('zadd', KEYS[1], whole(ends), who.token)
  if type(no) == 'table' then
    used = used - who.n
    if who.n > 1 then redis.call('hdel', KEYS[3], who.token) end
    count_out(0)
    redis.call('zadd', KEYS[1], whole(ends), who.token) -- raises it
  end
  -- A call behind this one may be refused: a set without a TTL would be nobody's, and for ever.
  if not soonest then redis.call('pexpire', KEYS[1], ttl) end
  soonest, latest = math.min(soonest or ends, ends), math.max(latest or ends, ends)
end
-- After what was counted was lost each token counts as one, until its owner says how many it has: here. Returns whether there is
-- room for them; else it has none.
local function count_again(token, n)
  local missing = n > 1 and n - weigh({token}, KEYS[3]) or 0
  if missing == 0 then return true end
  changed = true
  if limit and used + missing > limit then
    redis.call('hdel', KEYS[3], 'used')
    redis.call('zrem', KEYS[1], token)
    used, known_used = used - 1, nil
    find_soonest()
    return false
  end
  redis.call('hset', KEYS[3], token, n)
  used = used + missing
  return true
end
-- What was counted is kept as long as anybody has a permit.
local function settle()
  if not changed then return end
  if limit and (limit ~= known_limit or used ~= known_used) then count_out(0) end
  local left = redis.call('pttl', KEYS[1])
  if latest and left < latest - now() then
    left = latest - now()
    redis.call('pexpire', KEYS[1], whole(left))
  end
  redis.call('pexpire', KEYS[3], whole(math.max(life, left)))
end
-- Hands permits to those at the front who hear of it and for whom there are enough, before the asker. Returns who is first then;
-- nothing when all are out.
local function pass(first, asker)
  while first[1] and first[1] ~= asker do
    if used >= limit then return {} end
    local waiter = read_permit_ticket(first[1])
    if waiter and waiter.n > limit then
      ask_to_look(waiter, first[2])
      waiter = nil
    end
    if waiter and not hears(waiter) then waiter = nil end
    if waiter and used + waiter.n > limit then
      if not is_gone or not is_gone(waiter, first[2]) then break end
      waiter = nil
    end
    if waiter then give(waiter, waiter.offer) end
    redis.call('zrem', KEYS[2], first[1])
    if waiter then
      tell(waiter, first[2], waiter.offer, '0')
      keep_watch(first[2], read_permit_ticket)
    end
    first = used < limit and head() or {}
  end
  return first
end
)"sv;

inline constexpr std::string_view permit_enter_contract =
    R"(-- KEYS: permits, queue, limit. ARGV: token, what it needs (a ticket without its token), mode, life of the queue in ms, limit.
-- Modes and answers as handoff has them; no fence. The TTL is the time until the first permit may be past its end, or until the
-- first waiter is to be looked after. LIMITMISMATCH: there are more permits, or fewer, than the asker says.
)"sv;
inline constexpr std::string_view permit_first =
    R"(local function read_first() return redis.pcall('hget', KEYS[3], 'first') end
local function keep_first(text) return known_limit and redis.pcall('hset', KEYS[3], 'first', text) end
local function forget_first() redis.pcall('hdel', KEYS[3], 'first') end
)"sv;
inline constexpr std::string_view permit_enter_granted =
    R"(local ticket, mode = ARGV[1] .. ARGV[2], ARGV[3]
life = tonumber(ARGV[4])
local written = false
count()
-- Waiters and owners have their tickets and permits by the limit there was.
local mismatch = limit and limit ~= tonumber(ARGV[5])
if mismatch and (redis.call('zscore', KEYS[2], ticket) or redis.call('zscore', KEYS[1], ARGV[1])) then
  mismatch = read_permit_ticket(ticket).n > limit
end
if mismatch then
  local left = redis.call('pttl', KEYS[3]) -- by asking again and again nobody keeps it
  if left > 0 then life = left end
  settle()
  return redis.error_reply('LIMITMISMATCH it has ' .. whole(limit) .. ' permits, not ' .. ARGV[5])
end
local fresh = not limit
limit = limit or tonumber(ARGV[5])
local ends = soonest and redis.call('zscore', KEYS[1], ARGV[1])
local me = (ends or used < limit) and read_permit_ticket(ticket)
if ends and not count_again(me.token, me.n) then ends = nil end
if ends or used < limit then
  local ttl = mode == 'try' and me.lease or tonumber(me.offer)
  if ends then
    redis.call('zrem', KEYS[2], ticket)
    local left = math.max(ends - now(), ttl)
    latest, changed = now() + left, true
    redis.call('zadd', KEYS[1], whole(latest), me.token)
    settle()
    return {1, '', left}
  end
  local first = pass(head(), ticket)
  if (not first[1] or first[1] == ticket) and used + me.n <= limit then
    if first[1] then redis.call('zrem', KEYS[2], ticket) end -- first: whose user may not do that has none
    give(me, ttl)
    if first[1] then pass(head()) end
    settle()
    return {1, '', ttl}
  end
  if first[1] == ticket and known_limit then note_look(me, first[2]) end
end
changed = changed or fresh
settle()
written = changed
)"sv;
inline constexpr std::string_view permit_enter_taken =
    R"(if mode == 'join' and redis.call('pttl', KEYS[3]) < tonumber(ARGV[4]) then -- as long as the queue
  redis.call('pexpire', KEYS[3], ARGV[4])
end
if mode == 'last' then
  pass(head())
  settle()
end
local left = soonest and math.min(math.max(soonest - now(), 0), 86400000) or 0 -- what another client keeps may have no end
return {0, math.min(left, due or left), tonumber(number or 0), before, appended})"sv;
inline constexpr std::string_view permit_enter_sha1 = "8924e21a3124376f5bb87b94dd8a035b33c66e1b"sv;
inline constexpr script permit_enter{
    joined<permit_enter_contract, handoff_functions, handoff_clock, permit_refuse_other_sets, permit_weigh,
           permit_functions, permit_first, handoff_first, permit_enter_granted, handoff_refuse_as_replica,
           handoff_enter_queued, permit_enter_taken>,
    permit_enter_sha1};

inline constexpr std::string_view permit_leave_contract =
    R"(-- KEYS: permits, queue, limit. ARGV: token, what it needs (a ticket without its token), life of the queue in ms.
-- The ticket is removed in any case. Returns 1: it had permits, which are given back. 0: it had none.
)"sv;
inline constexpr std::string_view permit_leave_body =
    R"(local first = redis.pcall('zrange', KEYS[2], '0', '0', 'withscores')
local had = redis.call('zrem', KEYS[1], ARGV[1])
-- An owner of permits has no ticket any more.
if had == 0 and first[1] and redis.call('zrem', KEYS[2], ARGV[1] .. ARGV[2]) == 1 then first = head() end
life = tonumber(ARGV[3])
local counted, why = pcall(function()
  count(had == 1 and ARGV[1])
  changed = changed or had == 1
  if limit and not first.err then pass(first) end
  settle()
end)
if not counted then
  if had == 0 and not changed then error(why, 0) end -- nothing was written
  -- How far it was counted nobody knows, this one neither if it comes again: the next to ask counts anew. Whose user may not
  -- even say that has counted nothing: the token is put back, with an end that is past.
  local anew = redis.pcall('hdel', KEYS[3], 'used')
  if type(anew) == 'table' then anew = redis.pcall('hset', KEYS[3], 'used', '') end
  if type(anew) == 'table' and had == 1 and redis.call('zrange', KEYS[1], '0', '0')[1] then
    redis.call('zadd', KEYS[1], '0', ARGV[1])
  end
  error(why, 0)
end
return had)"sv;
inline constexpr script permit_leave{
    joined<permit_leave_contract, handoff_functions, handoff_clock, permit_refuse_other_sets, permit_weigh,
           permit_functions, permit_leave_body>,
    "d383144234f9f0fc0a3354f623e317d58f1d27c6"sv};

// The end only moves on.
inline constexpr std::string_view permit_renew_contract =
    R"(-- KEYS: permits, queue, limit. ARGV: token, lease in ms, how many permits, life of the queue in ms.
-- Returns 1: renewed. 0: it has none. -1: others have them.
)"sv;
inline constexpr std::string_view permit_renew_body =
    R"(local ends = redis.call('zscore', KEYS[1], ARGV[1])
if not ends then return redis.call('zrem', KEYS[1], ARGV[1]) end
redis.call('pexpire', KEYS[1], math.max(redis.call('pttl', KEYS[1]), ARGV[2])) -- first: needs no memory
if tonumber(ends) <= now() then return 0 end
if ARGV[3] ~= '1' then
  local weight = redis.pcall('hget', KEYS[3], ARGV[1]) -- what is of another type counts nothing
  if type(weight) ~= 'table' and weight ~= ARGV[3] then
    life = tonumber(ARGV[4])
    count()
    local room = count_again(ARGV[1], tonumber(ARGV[3]))
    if not room then pcall(function() pass(head()) end) end
    settle()
    if not room then return -1 end
  end
end
redis.call('zadd', KEYS[1], 'XX', whole(math.max(ends, now() + ARGV[2])), ARGV[1])
local last = redis.call('zrange', KEYS[1], '-1', '-1', 'withscores')[2]
redis.call('pexpire', KEYS[1], whole(math.min(last - now(), 1e15))) -- larger numbers are written with an exponent
redis.call('pexpire', KEYS[3], math.max(redis.call('pttl', KEYS[3]), ARGV[2]))
return 1)"sv;
inline constexpr script permit_renew{
    joined<permit_renew_contract, handoff_functions, handoff_clock, permit_refuse_other_sets, permit_weigh,
           permit_functions, permit_renew_body>,
    "f5cc4141b18699c936dd93105e671ce54933ba41"sv};

// For operators. A waiter that wants more than there are now is asked to look at its turn, and is told so.
inline constexpr std::string_view permit_resize_contract =
    R"(-- KEYS: permits, queue, limit. ARGV: limit, life of the queue in ms.
-- Returns how many permits are out.
)"sv;
inline constexpr std::string_view permit_resize_body =
    R"(life = tonumber(ARGV[2])
count()
limit, changed = tonumber(ARGV[1]), true
count_out(0)
pcall(function() pass(head()) end) -- what is of another type is no queue
settle()
return used)"sv;
inline constexpr script permit_resize{
    joined<permit_resize_contract, handoff_functions, handoff_clock, permit_refuse_other_sets, permit_weigh,
           permit_functions, permit_resize_body>,
    "3250f8418012aea48b32e88cc92e3d2a2cc328e3"sv};

}  // namespace distlock::detail
