// inspect() and force_release() for Redisson's locks.
//
//   class redisson_inspector {
//     explicit redisson_inspector(std::string name);
//     command inspect() const;           std::optional<lock_report> read_inspect(const reply&) const;
//     command force_release() const;     std::optional<bool> read_force_release(const reply&) const;
//     command forced() const;            bool was_forced(const reply&, const token&) const;
//   };
//   std::string redisson_key(kind, name);    // as Redisson makes the keys beside a lock
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/base/key.hpp>
#include <distlock/base/token.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/handoff_scripts.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/report.hpp>
#include <distlock/wire/sibling_keys.hpp>

namespace distlock {

namespace detail {

/// Returns: the key, or channel, of that kind beside a lock: the name in braces, unless
/// it has an opening one.
inline std::string redisson_key(std::string_view kind, std::string_view name) {
    std::string made(kind);
    made += ':';
    if (name.find('{') != std::string_view::npos) return made.append(name);
    return made.append("{").append(name).append("}");
}

// A lock is a hash of one field, and counts in it.
inline constexpr std::string_view redisson_lock_in =
    R"(-- The field of the lock, nil where there is none, its value; or nil and an error.
local function lock_in(key)
  local fields = redis.call('hlen', key)
  if fields == 0 then return end
  if redis.call('hexists', key, 'mode') == 1 then
    return nil, redis.error_reply('WRONGTYPE a read-write lock of Redisson holds this name')
  end
  local all = fields == 1 and redis.call('hgetall', key)
  if not all or not string.match(all[2], '^[1-9]%d*$') then
    return nil, redis.error_reply('WRONGTYPE a hash that is no lock of Redisson holds this name')
  end
  return all[1], nil, all[2]
end
)"sv;

inline constexpr std::string_view redisson_inspect_contract =
    R"(-- KEYS: lock, and the counter of fences where it is in the same slot.
-- Returns {holder, holds, TTL left in ms, fence}, with '' for what is not there.
)"sv;
inline constexpr std::string_view redisson_inspect_body =
    R"(local field, wrong, holds = lock_in(KEYS[1])
if wrong then return wrong end
local fence = KEYS[2] and redis.call('get', KEYS[2]) or ''
return {field or '', holds or '', redis.call('pttl', KEYS[1]), fence})"sv;
inline std::string_view redisson_inspect() noexcept {
    return joined<redisson_inspect_contract, redisson_lock_in, redisson_inspect_body>();
}

inline constexpr std::string_view redisson_force_release_contract =
    R"(-- KEYS: lock. ARGV: channel.
-- Returns 1: taken from its owner. 0: nobody had it.
)"sv;
inline constexpr std::string_view redisson_force_release_body =
    R"(local _, wrong = lock_in(KEYS[1])
if wrong then return wrong end
local freed = redis.call('del', KEYS[1])
if freed == 1 then
  redis.pcall('publish', ARGV[1], '0')
  redis.pcall('spublish', ARGV[1], '0')
end
return freed)"sv;
inline std::string_view redisson_force_release() noexcept {
    return joined<redisson_force_release_contract, redisson_lock_in, redisson_force_release_body>();
}

}  // namespace detail

/// All functions are pure; commands are views into this object.
class redisson_inspector {
  public:
    /// Throws: error(errc::invalid_name).
    explicit redisson_inspector(std::string name)
        : key_(std::move(name)),
          channel_(detail::redisson_key("redisson_lock__channel", key_.name())),
          counter_(detail::redisson_key("redisson_lock_token", key_.name())) {}

    const std::string& name() const noexcept { return key_.name(); }

    /// Changes nothing; any replica may answer it.
    command inspect() const {
        if (hash_tag(counter_) != hash_tag(key_.name()))
            return {{"EVAL", detail::redisson_inspect(), "1", key_.name()}, key_.name()};
        return {{"EVAL", detail::redisson_inspect(), "2", key_.name(), counter_}, key_.name()};
    }
    /// Deletes the lock, whoever holds it, and wakes the waiters, as RLock.forceUnlock().
    command force_release() const {
        return {{"EVAL", detail::redisson_force_release(), "1", key_.name(), channel_}, key_.name()};
    }
    /// Nobody notes whom a lock of Redisson's was taken from: it asks for nothing of use.
    command forced() const { return {{"EXISTS", key_.name()}, key_.name()}; }

    /// Returns: the report; none for a reply that is none.
    std::optional<lock_report> read_inspect(const reply& r) const {
        const auto& parts = r.elements();
        if (parts.size() != 4 || !parts[0].is(reply_kind::string) || !parts[1].is(reply_kind::string) ||
            !parts[2].is(reply_kind::integer) || !parts[3].is(reply_kind::string) || parts[2].number() < -2)
            return std::nullopt;
        lock_report report;
        if (const auto fence = detail::read_number(parts[3].text())) report.fence = fence;
        if (parts[2].number() == -2) return report;
        lock_holder holder;
        holder.token = parts[0].text();
        holder.holds = detail::read_number(parts[1].text());
        report.holder = std::move(holder);
        if (parts[2].number() >= 0) report.remaining = std::chrono::milliseconds(parts[2].number());
        return report;
    }

    std::optional<bool> read_force_release(const reply& r) const { return detail::read_forced(r); }

    bool was_forced(const reply&, const token&) const { return false; }

  private:
    key key_;
    std::string channel_;
    std::string counter_;
};

}  // namespace distlock
