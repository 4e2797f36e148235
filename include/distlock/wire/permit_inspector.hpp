// inspect() and force_release() for semaphores: all permits go.
//
//   class permit_inspector;   // concept lock_inspector
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/base/key.hpp>
#include <distlock/base/token.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/permit_scripts.hpp>
#include <distlock/wire/plain_inspector.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/report.hpp>

namespace distlock {

namespace detail {

// A lock's script, with other keys.
inline constexpr std::string_view permit_inspect_contract =
    R"(-- KEYS: permits, limit, mark, queue.
-- Returns {how many permits are out, TTL left in ms, limit or -1, server time in microseconds, size of the queue, its first tickets,
-- each with its number}; the last three as of a lock.
)"sv;
inline constexpr std::string_view permit_inspect_rest = R"(
local known = redis.call('hmget', KEYS[2], 'limit', 'used')
local read = redis.call('time')
local now = string.format('%.0f', read[1] * 1000 + math.floor(read[2] / 1000))
local out = redis.call('zcount', KEYS[1], '(' .. now, '+inf')
local used = tonumber(known[2] or '')
refuse_other_sets(redis.call('zrange', KEYS[1], '0', '0')[1], known[1] and used ~= 0)
if out > 0 and used and redis.call('zcard', KEYS[1]) == out then
  out = used
elseif out > 0 then
  out = weigh(redis.call('zrangebyscore', KEYS[1], '(' .. now, '+inf'), KEYS[2])
end
return {out, redis.call('pttl', KEYS[1]), tonumber(known[1] or '') or -1, time[1] * 1000000 + time[2], size, first})"sv;
inline std::string_view permit_inspect() noexcept {
    return joined<permit_inspect_contract, permit_refuse_other_sets, permit_weigh, plain_inspect_queue,
                  permit_inspect_rest>();
}

// The mark tells those that had permits why they have none: their tokens in a row. As plain_force_release: a
// waiter is handed permits, if that can be done.
inline constexpr std::string_view permit_force_release_contract =
    R"(-- KEYS: permits, queue, limit, mark.
-- Returns 1: taken from all that had one. 0: nobody had one.
)"sv;
inline constexpr std::string_view permit_force_release_body =
    R"(life = 90000
count()
local had = used
local told_for = math.min(math.max(redis.call('pttl', KEYS[1]), 1000), 86400000)
local tokens = redis.call('zrange', KEYS[1], '0', '1899') -- in an answer of less than 64 KiB
if tokens[1] then -- else the mark is for those who had them before
  redis.call('del', KEYS[4]) -- first: needs no memory
  redis.call('set', KEYS[4], table.concat(tokens, ' '), 'PX', told_for)
end
redis.call('del', KEYS[1])
if limit then redis.call('del', KEYS[3]) end
used, changed, known_limit = 0, true, nil
pcall(function() if limit then pass(head()) end end)
pcall(settle)
return had > 0 and 1 or 0)"sv;
inline std::string_view permit_force_release() noexcept {
    return joined<permit_force_release_contract, handoff_functions, handoff_clock, permit_refuse_other_sets,
                  permit_weigh, permit_functions, permit_force_release_body>();
}

}  // namespace detail

/// All functions are pure; commands are views into this object.
class permit_inspector {
  public:
    /// Throws: error(errc::invalid_name), also for a name that can have no keys beside it.
    explicit permit_inspector(std::string name)
        : key_(std::move(name)),
          queue_(key_.sibling("queue")),
          limit_key_(key_.sibling("limit")),
          mark_(key_.sibling("forced")) {}

    const std::string& name() const noexcept { return key_.name(); }

    command inspect() const {
        return {{"EVAL", detail::permit_inspect(), "4", name(), limit_key_, mark_, queue_}, name()};
    }
    /// Takes the permits from all that have some, and hands them to those that wait.
    command force_release() const {
        return {{"EVAL", detail::permit_force_release(), "4", name(), queue_, limit_key_, mark_}, name()};
    }
    /// The owners that permits were last taken from by force: the first 1,900, whose tokens are a reply
    /// that connections take.
    command forced() const { return {{"GET", mark_}, mark_}; }
    static bool was_forced(const reply& r, const token& owner) noexcept {
        return r.is(reply_kind::string) && r.text().find(owner.view()) != std::string_view::npos;
    }

    std::optional<lock_report> read_inspect(const reply& r) const { return read(r); }
    /// The same, of any semaphore.
    static std::optional<lock_report> read(const reply& r);
    std::optional<bool> read_force_release(const reply& r) const { return detail::read_forced(r); }

  private:
    key key_;
    std::string queue_;
    std::string limit_key_;
    std::string mark_;
};

}  // namespace distlock

#ifndef DISTLOCK_SEPARATE_COMPILATION
#include <distlock/wire/permit_inspector_impl.hpp>
#endif
