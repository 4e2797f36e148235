// inspect() and force_release() for locks of the SETNX/GETSET dialect.
//
//   class getset_inspector : public plain_inspector;
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <distlock/base/key.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/plain_inspector.hpp>

namespace distlock {

namespace detail {

// Only our stamps name their owner; of other clients' the stamp is all there is.
inline constexpr std::string_view getset_inspect =
    R"(-- KEYS: lock, mine, fence, owner.
-- Returns {token or stamp, ms until it may be taken over, fence, owner}, with '' for what is not there; -2 ms: it is free.
local function text(key) return redis.call('get', key) or '' end
local stamp = redis.call('get', KEYS[1]) or '0'
if not string.match(stamp, '^%d+$') then return redis.error_reply('WRONGTYPE a string that is no time stamp') end
local time = redis.call('time')
local left = math.min(tonumber(stamp) - math.floor(time[1] * 1000 + time[2] / 1000), 4611686018427387904)
if left < 0 then left = -2 end
local mine = text(KEYS[2])
local token = string.sub(mine, 33) == ':' .. stamp and string.sub(mine, 1, 32)
return {token or stamp, left, text(KEYS[3]), text(KEYS[4])})";

inline constexpr std::string_view getset_force_release =
    R"(-- KEYS: lock, mine, mark, owner.
-- Returns 1: taken from its owner. 0: nobody had it.
local stamp = redis.call('get', KEYS[1])
if not stamp then return redis.call('del', KEYS[1]) end
if not string.match(stamp, '^%d+$') then return redis.error_reply('WRONGTYPE a string that is no time stamp') end
local time = redis.call('time')
local held = tonumber(stamp) >= math.floor(time[1] * 1000 + time[2] / 1000)
local mine = redis.call('get', KEYS[2]) or ''
local token = string.sub(mine, 33) == ':' .. stamp and string.sub(mine, 1, 32)
local life = math.min(math.max(redis.call('pttl', KEYS[2]), 1000), 86400000)
redis.call('del', KEYS[2], KEYS[4])
if token then redis.call('set', KEYS[3], token, 'PX', life) end
redis.call('del', KEYS[1])
return held and 1 or 0)";

}  // namespace detail

/// As plain_inspector. The token of a holder that is not ours is its stamp; a stamp that is past is nobody's.
class getset_inspector : public plain_inspector {
  public:
    /// Throws: error(errc::invalid_name), also for a name that cannot have a key beside it.
    explicit getset_inspector(std::string name)
        : plain_inspector(std::move(name)), mine_(key(this->name()).sibling("mine")) {}

    command inspect() const {
        return {{"EVAL", detail::getset_inspect, "4", name(), mine_, fence_key(), owner_key()}, name()};
    }
    command force_release() const {
        return {{"EVAL", detail::getset_force_release, "4", name(), mine_, mark_key(), owner_key()}, name()};
    }

  private:
    std::string mine_;
};

}  // namespace distlock
