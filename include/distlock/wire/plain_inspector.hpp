// inspect() and force_release() for locks of the plain dialect.
//
//   class plain_inspector {
//     explicit plain_inspector(std::string name);
//     command inspect() const;           std::optional<lock_report> read_inspect(const reply&) const;
//     command force_release() const;     std::optional<bool> read_force_release(const reply&) const;
//     command forced() const;            bool was_forced(const reply&, const token& owner) const;
//   };
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <distlock/base/key.hpp>
#include <distlock/base/token.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/handoff_scripts.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/report.hpp>

namespace distlock {

namespace detail {

// Seldom sent, and therefore with their bodies, in one round trip: no server knows them by their hashes. A
// connection bounds what it takes of a reply, so a long queue is not told to its end.
inline constexpr std::string_view plain_inspect_contract =
    R"(-- KEYS: lock, fence, owner, queue; or the lock alone.
-- Returns {token, TTL left in ms, fence, owner, server time in microseconds, size of the queue, its first tickets, each with its
-- number}, with '' for what is not there, and -1 for a queue that is of another type, or none of
-- the asker's business.
)"sv;
inline constexpr std::string_view plain_inspect_queue =
    R"(local function text(key) return key and redis.call('get', key) or '' end
local queue = KEYS[4] and redis.pcall('zrange', KEYS[4], 0, 99, 'withscores') or {}
local size = #queue > 0 and redis.pcall('zcard', KEYS[4]) or 0
local time = #queue > 0 and redis.pcall('time') or {0, 0}
if not KEYS[4] or queue.err or time.err or type(size) == 'table' then queue, size, time = {}, -1, {0, 0} end
local first, bytes = {}, 0
for i = 1, #queue, 2 do
  bytes = bytes + #queue[i]
  if bytes > 32768 then break end
  first[i], first[i + 1] = queue[i], string.format('%.0f', queue[i + 1])
end)"sv;
inline constexpr std::string_view plain_inspect_rest = R"(
return {text(KEYS[1]), redis.call('pttl', KEYS[1]), text(KEYS[2]), text(KEYS[3]), time[1] * 1000000 + time[2], size, first})"sv;
inline std::string_view plain_inspect() noexcept {
    return joined<plain_inspect_contract, plain_inspect_queue, plain_inspect_rest>();
}

// The mark tells the owner why; it need not outlast the lease by which the owner knows that all is over. The
// first write is a DEL: it frees locks of a server that is out of memory, too, and a replica refuses it even
// where there is nothing to delete.
//
// A waiter is handed the lock as by handoff_leave. A key that the operator may not use, or of another type,
// only costs the hand-over: the lock is freed. No message was sent then, since that is the last step.
inline constexpr std::string_view plain_force_release_contract =
    R"(-- KEYS: lock, queue, fence, owner, mark; or the lock alone.
-- Returns 1: taken from its owner. 0: nobody had it.
)"sv;
inline constexpr std::string_view plain_force_release_body =
    R"(local holder = redis.call('get', KEYS[1])
if not holder or not KEYS[2] then return redis.call('del', KEYS[1]) end
local life = math.min(math.max(redis.call('pttl', KEYS[1]), 1000), 86400000)
redis.call('del', KEYS[4])
redis.call('set', KEYS[5], holder, 'PX', life)
-- Threads of its owner's process may be given those in between, until it knows.
local last = redis.pcall('get', KEYS[3])
if type(last) == 'string' and string.match(last, '^[1-9]%d*$') then redis.pcall('incrby', KEYS[3], 250) end
local done, given = pcall(function() return pass(head()) end)
if not done or not given then redis.call('del', KEYS[1], KEYS[4]) end
return 1)"sv;
inline std::string_view plain_force_release() noexcept {
    return joined<plain_force_release_contract, handoff_functions, handoff_pass, plain_force_release_body>();
}

}  // namespace detail

/// All functions are pure; commands are views into this object.
class plain_inspector {
  public:
    /// Throws: error(errc::invalid_name).
    explicit plain_inspector(std::string name);

    const std::string& name() const noexcept { return key_.name(); }

    /// Changes nothing; any replica may answer it.
    command inspect() const {
        if (mark_.empty()) return {{"EVAL", detail::plain_inspect(), "1", key_.name()}, key_.name()};
        return {{"EVAL", detail::plain_inspect(), "4", key_.name(), fence_, owner_, queue_}, key_.name()};
    }

    /// Takes the lock from its owner, and hands it to the first waiter that hears of it; deletes
    /// it when there is none.
    command force_release() const {
        if (mark_.empty()) return {{"EVAL", detail::plain_force_release(), "1", key_.name()}, key_.name()};
        return {{"EVAL", detail::plain_force_release(), "5", key_.name(), queue_, fence_, owner_, mark_},
                key_.name()};
    }

    /// Whom the lock was last taken from by force. A lock without a key beside it asks for the lock itself.
    command forced() const {
        const std::string& where = mark_.empty() ? key_.name() : mark_;
        return {{"GET", where}, where};
    }

    /// Returns: the report; none for a reply that is none.
    std::optional<lock_report> read_inspect(const reply& r) const;

    std::optional<bool> read_force_release(const reply& r) const { return detail::read_forced(r); }

    bool was_forced(const reply& r, const token& owner) const {
        return !mark_.empty() && r.is_string(owner.view());
    }

  protected:
    const std::string& fence_key() const noexcept { return fence_; }
    const std::string& owner_key() const noexcept { return owner_; }
    const std::string& mark_key() const noexcept { return mark_; }
    const std::string& queue_key() const noexcept { return queue_; }

  private:
    key key_;
    std::string fence_;  // empty, all of them, when the name can have no keys beside it
    std::string owner_;
    std::string mark_;
    std::string queue_;
};

}  // namespace distlock

#ifndef DISTLOCK_SEPARATE_COMPILATION
#include <distlock/wire/plain_inspector_impl.hpp>
#endif
