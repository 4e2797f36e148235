// What the scripts of the model server run on: redis.call, KEYS, ARGV, and errors as they
// come out of a script.
//
//   class lua_run {
//     reply call(int line, {...}), attempt({...});                      // redis.call; redis.pcall
//     text keys(i), argv(i);                                           // counted from 1
//     [[noreturn]] void fail(int line, text of Lua's error);
//   };
//   struct script_error { std::string text; };
#pragma once

#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/wire/reply.hpp>

#include "model/simulator/model_channels.hpp"
#include "model/simulator/model_data.hpp"
#include "model/simulator/model_text.hpp"

namespace sim {

/// What ends a script.
struct script_error {
    std::string text;
};

/// A string; or false (which GET says of no key) or nil (an argument that is not there): no text. Those two
/// are never equal to anything in what our scripts compare.
using lua_string = std::optional<std::string>;
using lua_view = std::optional<std::string_view>;

inline bool same(const lua_view& a, const lua_view& b) { return a && b && *a == *b; }
inline lua_view view(const lua_string& text) { return text ? lua_view(*text) : std::nullopt; }

/// An argument of redis.call: text, nil, or a number.
class lua_argument {
  public:
    lua_argument(const char* text) : text_(text) {}
    lua_argument(std::string_view text) : text_(text) {}
    lua_argument(const std::string& text) : text_(text) {}
    lua_argument(const lua_view& text) : text_(text) {}
    const lua_view& text() const { return text_; }

  private:
    lua_view text_;
};

class lua_run {
  public:
    using reply = distlock::reply;
    using wall = std::chrono::microseconds;

    lua_run(dataset& data, channels& messages, wall now, lua_spelling spelling, std::string_view digest,
            std::span<const std::string_view> keys, std::span<const std::string_view> argv)
        : data_(data),
          messages_(messages),
          now_(now),
          spelling_(spelling),
          digest_(digest),
          keys_(keys),
          argv_(argv) {}

    lua_view keys(std::size_t i) const { return i <= keys_.size() ? lua_view(keys_[i - 1]) : std::nullopt; }
    lua_view argv(std::size_t i) const { return i <= argv_.size() ? lua_view(argv_[i - 1]) : std::nullopt; }
    std::size_t key_count() const { return keys_.size(); }

    /// Effects: redis.call of these in that line of the script.
    /// Throws: script_error.
    reply call(int line, std::initializer_list<lua_argument> words) {
        std::array<std::string_view, 8> texts;
        std::size_t count = 0;
        for (const lua_argument& word : words) {
            if (!word.text()) leave(line, "ERR Lua redis lib command arguments must be strings or integers");
            texts[count++] = *word.text();
        }
        reply answer = run({texts.data(), count});
        if (answer.is(distlock::reply_kind::error)) leave(line, answer.text());
        return answer;
    }
    /// Returns: what redis.pcall answers.
    reply attempt(std::initializer_list<lua_argument> words) {
        std::array<std::string_view, 8> texts;
        std::size_t count = 0;
        for (const lua_argument& word : words) {
            if (!word.text())
                return reply::error("ERR Lua redis lib command arguments must be strings or integers");
            texts[count++] = *word.text();
        }
        return run({texts.data(), count});
    }
    /// Returns: of a command that answers a string, or false.
    lua_string text(int line, std::initializer_list<lua_argument> words) {
        return text_of(call(line, words));
    }
    static lua_string text_of(const reply& answer) {
        return answer.is(distlock::reply_kind::string) ? lua_string(answer.text()) : std::nullopt;
    }
    /// Returns: of a command that answers an integer, as Lua has it: a double.
    double number(int line, std::initializer_list<lua_argument> words) {
        return static_cast<double>(call(line, words).number());
    }
    /// Returns: what a script answers with such a number.
    static reply returned(double value) {
        // What does not fit becomes, on x86, the least number there is.
        constexpr double most = 9223372036854775808.0;
        const bool fits = value < most && value >= -most;
        return reply::integer(fits ? static_cast<std::int64_t>(value)
                                   : std::numeric_limits<std::int64_t>::min());
    }
    /// Returns: the number as an argument of a command.
    std::string written(double value) const { return lua_text(value, spelling_); }
    static reply returned(const lua_string& text) { return text ? reply::string(*text) : reply::nil(); }

    /// Effects: the write that changes nothing, `redis.pcall('set', KEYS[1], '', 'NX', 'PX', 1)`,
    /// and the line below it.
    void ask_whether_readonly(int line) {
        if (!keys(1)) leave(line, "ERR Lua redis lib command arguments must be strings or integers");
        const std::string_view words[] = {"set", *keys(1), "", "NX", "PX", "1"};
        // A key that went meanwhile, which takes keys that are one and the same, is set; that answer has
        // no text of an error.
        if (data_.run(words, now_).is_status("OK"))
            fail(line + 1, "bad argument #1 to 'find' (string expected, got nil)");
    }

    /// Returns: microseconds since the epoch, by `redis.call('time')`.
    double now() const { return static_cast<double>(now_.count()); }

    /// Effects: ends the script as Lua does when it can do no more.
    [[noreturn]] void fail(int line, std::string_view what) const {
        leave(line, "ERR user_script:" + std::to_string(line) + ": " + std::string(what));
    }

    /// Returns: tonumber(text).
    static std::optional<double> to_number(const lua_view& text) {
        return text ? lua_number(*text) : std::nullopt;
    }
    /// Returns: left < right, as a script says it in that line.
    bool less(int line, double left, const std::optional<double>& right) const {
        if (!right) fail(line, "attempt to compare number with nil");
        return left < *right;
    }
    /// Returns: what arithmetic takes of `KEYS[n]` or `ARGV[n]`.
    double operand(int line, const lua_view& text) const {
        const auto value = to_number(text);
        if (value) return *value;
        fail(line, text ? "attempt to perform arithmetic on field '?' (a string value)"
                        : "attempt to perform arithmetic on field '?' (a nil value)");
    }
    /// Returns: `text`, which `..` is applied to in that line.
    std::string_view joined(int line, const lua_view& text) const {
        if (!text) fail(line, "attempt to concatenate field '?' (a nil value)");
        return *text;
    }

  private:
    reply run(std::span<const std::string_view> words) {
        if (dataset::knows(words[0])) return data_.run(words, now_);
        if (messages_.publishes(words[0])) return messages_.publish(words);
        if (same_word(words[0], "pubsub")) return messages_.tell_count(words);
        return reply::error("ERR Unknown Redis command called from script");
    }
    [[noreturn]] void leave(int line, const std::string& text) const {
        throw script_error{text + " script: " + std::string(digest_) +
                           ", on @user_script:" + std::to_string(line) + "."};
    }

    dataset& data_;
    channels& messages_;
    wall now_;
    lua_spelling spelling_;
    std::string_view digest_;
    std::span<const std::string_view> keys_;
    std::span<const std::string_view> argv_;
};

}  // namespace sim
