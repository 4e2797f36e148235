// Tries of several locks, whose keys are on one server and in one slot, in one command:
// all are taken, or none.
//
//   class joint_try {
//     static bool may_contain(const command& one);      // the look() of a dialect with a queue
//     explicit joint_try(std::span<const command> tries);
//     command ask() const;
//     static reply answer_to(std::size_t at, const reply&);  // what its own command would have been answered
//   };
#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <distlock/wire/command.hpp>
#include <distlock/wire/handoff_scripts.hpp>
#include <distlock/wire/permit_scripts.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/script.hpp>
#include <distlock/wire/shared_scripts.hpp>

namespace distlock::detail {

// Each lock is taken by the script that takes it alone, and given back by the one that releases it: nobody
// sees what is between. A function's parameters hide the server's KEYS and ARGV.
inline constexpr std::string_view joint_contract =
    R"(-- KEYS and ARGV: those of each lock's own script, one lock after the other, all with the mode 'try'. The last argument says of
-- each lock: a letter for its kind, how many keys, how many arguments.
-- Returns what the scripts have said, when all are ours. The place of the first that is not, from 1: then none is that was not
-- before.
local enter, leave = {}, {}
)"sv;
inline constexpr std::string_view joint_mutex_enter = "function enter.m(KEYS, ARGV)\n"sv;
inline constexpr std::string_view joint_mutex_leave = "\nend\nfunction leave.m(KEYS, ARGV)\n"sv;
inline constexpr std::string_view joint_shared_enter = "\nend\nfunction enter.s(KEYS, ARGV)\n"sv;
inline constexpr std::string_view joint_shared_leave = "\nend\nfunction leave.s(KEYS, ARGV)\n"sv;
inline constexpr std::string_view joint_permit_enter = "\nend\nfunction enter.n(KEYS, ARGV)\n"sv;
inline constexpr std::string_view joint_permit_leave = "\nend\nfunction leave.n(KEYS, ARGV)\n"sv;
inline constexpr std::string_view joint_body =
    R"(
end
-- A command that comes late finds what its own token has: it is an owner's.
local function has(kind, keys, token)
  local set = kind == 'n' and keys[1]
  if not set then
    local holder = redis.pcall('get', keys[1])
    if holder == token or holder == 'distlock:readers ' .. token then return true end
    set = holder == 'distlock:readers' and keys[5]
  end
  local ends = set and redis.pcall('zscore', set, token)
  if type(ends) ~= 'string' then return false end
  local time = redis.call('time')
  return tonumber(ends) > time[1] * 1000 + time[2] / 1000
end
local taken, said, key, arg = {}, {}, 0, 0
for kind, keys, args in string.gmatch(ARGV[#ARGV], '(%l)(%d)(%d)') do
  local its_keys, its_args = {unpack(KEYS, key + 1, key + keys)}, {unpack(ARGV, arg + 1, arg + args)}
  key, arg = key + keys, arg + args
  local had = has(kind, its_keys, its_args[1])
  local ran, answer = pcall(enter[kind], its_keys, its_args)
  if not ran or answer.err or answer[1] ~= 1 then
    for i = #taken, 1, -1 do
      local one = taken[i]
      pcall(leave[one.kind], one.keys, {one.args[1], one.args[2], one.kind == 'n' and one.args[4] or nil})
    end
    if not ran then return type(answer) == 'table' and answer or redis.error_reply(answer) end
    return answer.err and answer or #said + 1
  end
  if not had then taken[#taken + 1] = {kind = kind, keys = its_keys, args = its_args} end
  said[#said + 1] = answer
end
return said)"sv;
inline std::string_view joint_text() noexcept {
    static char room[64 * 1024];
    static const std::string_view all =
        put_together(room, {joint_contract, joint_mutex_enter, handoff_enter.text(), joint_mutex_leave,
                            handoff_leave.text(), joint_shared_enter, shared_enter.text(), joint_shared_leave,
                            shared_leave.text(), joint_permit_enter, permit_enter.text(), joint_permit_leave,
                            permit_leave.text(), joint_body});
    return all;
}
inline constexpr script joint_enter{joint_text, "161ea2730a001acf501363bcb88bc250c83a52a1"sv};

/// A view of the commands' arguments, which outlive it.
class joint_try {
  public:
    static bool may_contain(const command& one) noexcept { return kind_of(one) != 0; }

    /// Preconditions: may_contain(each); none is bound to another. They are routed by the first one's key.
    /// Throws: std::bad_alloc.
    explicit joint_try(std::span<const command> tries) : routing_key_(tries.front().routing_key()) {
        std::size_t keys = 0;
        for (const auto& one : tries) keys += keys_of(one);
        const auto [end, error] =
            std::to_chars(number_of_keys_.data(), number_of_keys_.data() + number_of_keys_.size(), keys);
        by_name_ = {
            "EVALSHA", joint_enter.sha1(),
            std::string_view(number_of_keys_.data(), static_cast<std::size_t>(end - number_of_keys_.data()))};
        for (const auto& one : tries) append(one.argv().subspan(head, keys_of(one)));
        for (const auto& one : tries) append(one.argv().subspan(head + keys_of(one)));
        for (const auto& one : tries) {
            parts_ += kind_of(one);
            parts_ += digit(keys_of(one));
            parts_ += digit(one.argv().size() - head - keys_of(one));
        }
        by_name_.push_back(parts_);
        with_text_ = by_name_;
        with_text_[0] = "EVAL";
        with_text_[1] = joint_enter.text();
    }
    joint_try(const joint_try&) = delete;
    joint_try& operator=(const joint_try&) = delete;

    command ask() const noexcept { return {joint_enter, routing_key_, by_name_, with_text_}; }

    /// Returns: what the try at that place, from 0, is to be told: that somebody else has it also where
    /// another one could not be had.
    static reply answer_to(std::size_t at, const reply& all) {
        if (all.is(reply_kind::array) && at < all.elements().size()) return all.elements()[at];
        if (all.is(reply_kind::integer)) return taken();
        return all;
    }
    /// Returns: what an enter script says when somebody else has the lock.
    static reply taken() {
        const auto none = reply::integer(0);
        return reply::array({none, none, none, none, none});
    }

  private:
    static constexpr std::size_t head = 3;  // EVALSHA, the digest, the number of keys

    static char kind_of(const command& one) noexcept {
        if (!one.is_script()) return 0;
        const auto name = one.argv()[1];
        if (name == handoff_enter_sha1) return 'm';
        if (name == shared_enter_sha1) return 's';
        return name == permit_enter_sha1 ? 'n' : '\0';
    }
    static std::size_t keys_of(const command& one) noexcept {
        return static_cast<std::size_t>(one.argv()[2].front() - '0');
    }
    static char digit(std::size_t number) noexcept { return static_cast<char>('0' + number); }
    void append(std::span<const std::string_view> words) {
        by_name_.insert(by_name_.end(), words.begin(), words.end());
    }

    std::string_view routing_key_;
    std::array<char, 20> number_of_keys_{};
    std::string parts_;
    std::vector<std::string_view> by_name_;
    std::vector<std::string_view> with_text_;
};

}  // namespace distlock::detail
