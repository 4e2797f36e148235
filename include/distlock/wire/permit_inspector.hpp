// What people ask about semaphores, and how they take all permits away.
//
//   class permit_inspector;   // concept lock_inspector
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/base/key.hpp>
#include <distlock/base/token.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/permit_scripts.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/report.hpp>

namespace distlock {

namespace detail {

inline constexpr std::string_view permit_inspect =
    R"(-- KEYS: permits, queue, limit.
-- Returns {how many tokens have permits, TTL left in ms, size of the queue, limit or -1}.
local time = redis.call('time')
local now = string.format('(%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
return {redis.call('zcount', KEYS[1], now, '+inf'), redis.call('pttl', KEYS[1]), redis.call('zcard', KEYS[2]),
  tonumber(redis.call('hget', KEYS[3], 'limit') or '-1')})"sv;

inline constexpr std::string_view permit_force_release_contract =
    R"(-- KEYS: permits, queue, limit.
-- Returns 1: taken from all that had one. 0: nobody had one.
)"sv;
inline constexpr std::string_view permit_force_release_body =
    R"(count()
local had = used
redis.call('del', KEYS[1])
if limit then redis.call('del', KEYS[3]) end
used, changed, known_limit = 0, true, nil
if limit then pass(head()) end
settle(90000)
return had > 0 and 1 or 0)"sv;
inline std::string_view permit_force_release() noexcept {
    return joined<permit_force_release_contract, handoff_functions, permit_functions,
                  permit_force_release_body>();
}

}  // namespace detail

/// All functions are pure; commands are views into this object.
class permit_inspector {
  public:
    /// Throws: error(errc::invalid_name), also for a name that can have no keys beside it.
    explicit permit_inspector(std::string name)
        : key_(std::move(name)), queue_(key_.sibling("queue")), beside_(key_.sibling("limit")) {}

    const std::string& name() const noexcept { return key_.name(); }

    command inspect() const {
        return {{"EVAL", detail::permit_inspect, "3", name(), queue_, beside_}, name()};
    }
    /// Takes the permits from all that have some, and hands them to those that wait.
    command force_release() const {
        return {{"EVAL", detail::permit_force_release(), "3", name(), queue_, beside_}, name()};
    }
    /// Nothing says so beside a semaphore.
    command forced() const { return {{"EXISTS", name()}, name()}; }
    static bool was_forced(const reply&, const token&) noexcept { return false; }

    std::optional<lock_report> read_inspect(const reply& r) const { return read(r); }
    /// The same, of any semaphore.
    static std::optional<lock_report> read(const reply& r) {
        const auto& parts = r.elements();
        if (parts.size() != 4) return std::nullopt;
        for (const reply& one : parts) {
            if (!one.is(reply_kind::integer)) return std::nullopt;
        }
        lock_report report;
        report.shares = static_cast<std::uint64_t>(parts[0].number());
        if (parts[1].number() >= 0) report.remaining = std::chrono::milliseconds(parts[1].number());
        report.waiters = static_cast<std::uint64_t>(parts[2].number());
        return report;
    }
    std::optional<bool> read_force_release(const reply& r) const {
        if (r.is_integer(1)) return true;
        if (r.is_integer(0)) return false;
        return std::nullopt;
    }

  private:
    key key_;
    std::string queue_;
    std::string beside_;
};

}  // namespace distlock
