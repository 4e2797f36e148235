// What people ask about locks of the plain dialect, and how they take one away.
//
//   class plain_inspector {
//     explicit plain_inspector(std::string name);
//     command inspect() const;           std::optional<lock_report> read_inspect(const reply&) const;
//     command force_release() const;     std::optional<bool> read_force_release(const reply&) const;
//     command forced() const;            bool was_forced(const reply&, const token& owner) const;
//   };
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <distlock/base/error.hpp>
#include <distlock/base/key.hpp>
#include <distlock/base/token.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/report.hpp>

namespace distlock {

namespace detail {

// Seldom sent, and therefore with its body, in one round trip: no server knows it by its hash.
inline constexpr std::string_view plain_inspect =
    R"(-- KEYS: lock, fence, owner; or the lock alone.
-- Returns {token, TTL left in ms, fence, owner}, with '' for what is not there.
local function text(key) return key and redis.call('get', key) or '' end
return {text(KEYS[1]), redis.call('pttl', KEYS[1]), text(KEYS[2]), text(KEYS[3])})";

// The mark tells the owner why; it need not outlast the lease by which the owner knows that all is over. The first write
// is a DEL: it frees locks of a server that is out of memory, too, and a replica refuses it even where there is
// nothing to delete.
inline constexpr std::string_view plain_force_release =
    R"(-- KEYS: lock, mark, owner; or the lock alone.
-- Returns 1: taken from its owner. 0: nobody had it.
local holder = redis.call('get', KEYS[1])
if not holder then return redis.call('del', KEYS[1]) end
if KEYS[2] then
  local life = math.min(math.max(redis.call('pttl', KEYS[1]), 1000), 86400000)
  redis.call('del', KEYS[3])
  redis.call('set', KEYS[2], holder, 'PX', life)
end
return redis.call('del', KEYS[1]))";

}  // namespace detail

/// All functions are pure; commands are views into this object.
class plain_inspector {
  public:
    /// Throws: error(errc::invalid_name).
    explicit plain_inspector(std::string name) : key_(std::move(name)) {
        try {
            fence_ = key_.sibling("fence");
            owner_ = key_.sibling("owner");
            mark_ = key_.sibling("forced");
        } catch (const error&) {
            // A lock that can have no keys beside it is a lock all the same.
        }
    }

    const std::string& name() const noexcept { return key_.name(); }

    /// Changes nothing; any replica may answer it.
    command inspect() const {
        if (mark_.empty()) return {{"EVAL", detail::plain_inspect, "1", key_.name()}, key_.name()};
        return {{"EVAL", detail::plain_inspect, "3", key_.name(), fence_, owner_}, key_.name()};
    }

    /// Deletes the lock, whoever holds it.
    command force_release() const {
        if (mark_.empty()) return {{"EVAL", detail::plain_force_release, "1", key_.name()}, key_.name()};
        return {{"EVAL", detail::plain_force_release, "3", key_.name(), mark_, owner_}, key_.name()};
    }

    /// Whom the lock was last taken from by force. A lock without a key beside it asks for the lock itself.
    command forced() const {
        const std::string& where = mark_.empty() ? key_.name() : mark_;
        return {{"GET", where}, where};
    }

    /// Returns: the report; none for a reply that is none.
    std::optional<lock_report> read_inspect(const reply& r) const {
        const auto& parts = r.elements();
        if (parts.size() != 4 || !parts[0].is(reply_kind::string) || !parts[1].is(reply_kind::integer) ||
            !parts[2].is(reply_kind::string) || !parts[3].is(reply_kind::string) || parts[1].number() < -2)
            return std::nullopt;
        lock_report report;
        if (const auto fence = number<std::uint64_t>(parts[2].text())) report.fence = fence;
        if (parts[1].number() == -2) return report;
        report.holder = holder_of(parts[0].text(), parts[3].text());
        if (parts[1].number() >= 0) report.remaining = std::chrono::milliseconds(parts[1].number());
        return report;
    }

    /// Returns: whether somebody lost the lock; none for a reply that says neither.
    std::optional<bool> read_force_release(const reply& r) const {
        if (r.is_integer(1)) return true;
        if (r.is_integer(0)) return false;
        return std::nullopt;
    }

    bool was_forced(const reply& r, const token& owner) const {
        return !mark_.empty() && r.is_string(owner.view());
    }

  protected:
    const std::string& fence_key() const noexcept { return fence_; }
    const std::string& owner_key() const noexcept { return owner_; }
    const std::string& mark_key() const noexcept { return mark_; }

  private:
    template <class Number>
    static std::optional<Number> number(std::string_view digits) {
        Number value{};
        const auto end = digits.data() + digits.size();
        const auto [stop, problem] = std::from_chars(digits.data(), end, value);
        if (problem != std::errc{} || stop != end) return std::nullopt;
        return value;
    }

    // What stands beside the lock may be about an earlier owner, when somebody else's client deleted the key.
    static lock_holder holder_of(const std::string& token, std::string_view beside) {
        lock_holder holder;
        holder.token = token;
        std::array<std::string_view, 3> lines;  // token, host, process id; the label is the rest
        for (std::string_view& line : lines) {
            const auto end = std::min(beside.find('\n'), beside.size());
            line = beside.substr(0, end);
            beside.remove_prefix(std::min(end + 1, beside.size()));
        }
        if (lines[0] != token) return holder;
        holder.host = lines[1];
        holder.pid = number<std::int64_t>(lines[2]).value_or(0);
        holder.label = beside;
        return holder;
    }

    key key_;
    std::string fence_;  // empty, all three, when the name can have no keys beside it
    std::string owner_;
    std::string mark_;
};

}  // namespace distlock
