// One Redis command as it is handed to a connection: arguments, routing key, and how long an answer is worth
// having.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include <distlock/base/clock.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/wire/script.hpp>

namespace distlock {

/// One argument of a command, from anything that is text. Not a std::string_view: that would take two
/// literals in braces for the two ends of one.
class argument {
  public:
    constexpr argument(const char* text) : text_(text) {}
    constexpr argument(std::string_view text) : text_(text) {}
    argument(const std::string& text) : text_(text) {}
    constexpr std::string_view text() const noexcept { return text_; }

  private:
    std::string_view text_;
};

/// A view: it owns none of its text, allocates nothing, and is good as long as what it was made from. A
/// connection that keeps a command longer than its call copies the arguments.
class command {
  public:
    static constexpr std::size_t max_arguments = 16;

    /// A command of its arguments. `routing_key` is the key a cluster routes by; empty when any server will
    /// do. A command of one argument and a key is written `command({argument("PING")}, key)`.
    /// Throws: std::length_error for more than max_arguments.
    [[gnu::noinline]] constexpr command(std::initializer_list<argument> argv,
                                        std::string_view routing_key = {})
        : key_(routing_key) {
        append(argv.begin(), argv.size());
    }

    /// The same of arguments whose number is known at run time.
    /// Throws: std::length_error as above.
    [[gnu::noinline]] static constexpr command of(std::span<const argument> argv,
                                                  std::string_view routing_key = {}) {
        command made({}, routing_key);
        made.append(argv.data(), argv.size());
        return made;
    }

    /// EVALSHA of `source`, routed by the first key. All keys must hash to one slot.
    /// Throws: std::length_error as above.
    [[gnu::noinline]] constexpr command(const script& source, std::initializer_list<argument> keys,
                                        std::initializer_list<argument> arguments)
        : script_(&source), key_(keys.size() == 0 ? std::string_view{} : keys.begin()->text()) {
        call(keys.size());
        append(keys.begin(), keys.size());
        append(arguments.begin(), arguments.size());
    }
    [[gnu::noinline]] constexpr command(const script& source, std::span<const argument> keys,
                                        std::span<const argument> arguments)
        : script_(&source), key_(keys.empty() ? std::string_view{} : keys.front().text()) {
        call(keys.size());
        append(keys.data(), keys.size());
        append(arguments.data(), arguments.size());
    }

    /// The same with any number of arguments: `by_name` is all of them, EVALSHA first, and `with_text` the
    /// same with EVAL and the text. Both outlive the command.
    constexpr command(const script& source, std::string_view routing_key,
                      std::span<const std::string_view> by_name, std::span<const std::string_view> with_text)
        : long_(by_name), long_with_text_(with_text), script_(&source), key_(routing_key) {}

    /// Returns: the arguments, the command's own name first.
    constexpr std::span<const std::string_view> argv() const noexcept {
        return long_.empty() ? std::span<const std::string_view>{argv_.data(), size_} : long_;
    }

    /// Returns: the key to route by. It cannot be found in argv alone: EVALSHA has it third, and not every
    /// command has it.
    constexpr std::string_view routing_key() const noexcept { return key_; }

    /// Returns: whether this is EVALSHA of a script, which answers NOSCRIPT when the server does not have it.
    constexpr bool is_script() const noexcept { return script_ != nullptr; }
    /// Returns: that script; null: it is none.
    constexpr const script* source() const noexcept { return script_; }

    /// Returns: a script as EVAL, with its body: what to send after NOSCRIPT. Any other command is the same.
    [[gnu::noinline]] constexpr command with_body() const noexcept {
        command full = *this;
        if (script_ == nullptr) return full;
        full.long_ = long_with_text_;
        if (!long_.empty()) return full;
        full.argv_[0] = "EVAL";
        full.argv_[1] = script_->text();
        return full;
    }

    /// The instant after which nobody waits for the answer; clock::time_point::max() when the connection's
    /// own time-out is the only bound. A connection that can, gives up then.
    constexpr clock::time_point deadline() const noexcept { return deadline_; }
    constexpr command& until(clock::time_point deadline) noexcept {
        deadline_ = deadline;
        return *this;
    }

    /// The caller's stop token, from whose request on nobody waits for the answer; null when there will be no
    /// request. It outlives the call of the connection. A connection that can, gives up then.
    constexpr const std::stop_token* stop() const noexcept { return stop_; }
    bool stop_requested() const noexcept { return detail::stop_requested(stop_); }
    command& until(const std::stop_token& stop) noexcept {
        stop_ = stop.stop_possible() ? &stop : nullptr;
        return *this;
    }
    command& until(const std::stop_token&&) = delete;

    /// Whether this is about the command before it in a pipeline: it is sent right behind that one, on the
    /// same socket, and again whenever that one is.
    constexpr bool bound_to_previous() const noexcept { return bound_; }
    /// `takes`: how long the server may take on purpose before it answers. A connection's own time-out
    /// does not count that.
    constexpr command& bind_to_previous(std::chrono::milliseconds takes) noexcept {
        bound_ = true;
        takes_ = takes;
        return *this;
    }
    constexpr std::chrono::milliseconds takes() const noexcept { return takes_; }

  private:
    constexpr void call(std::size_t keys) {
        constexpr std::array<std::string_view, 10> digits{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
        if (keys >= digits.size()) throw std::length_error("distlock::command: too many keys");
        const argument head[] = {"EVALSHA", script_->sha1(), digits[keys]};
        append(head, std::size(head));
    }
    constexpr void append(const argument* first, std::size_t count) {
        if (size_ + count > max_arguments) throw std::length_error("distlock::command: too many arguments");
        for (std::size_t i = 0; i < count; ++i) argv_[size_++] = first[i].text();
    }

    std::array<std::string_view, max_arguments> argv_{};
    std::size_t size_ = 0;
    std::span<const std::string_view> long_{};  // in the place of argv_, where there are more
    std::span<const std::string_view> long_with_text_{};
    const script* script_ = nullptr;
    std::string_view key_;
    clock::time_point deadline_ = clock::time_point::max();
    const std::stop_token* stop_ = nullptr;
    std::chrono::milliseconds takes_{};
    bool bound_ = false;
};

namespace detail {

/// Preconditions: not empty. Returns: the latest of their deadlines.
inline clock::time_point last_deadline(std::span<const command> commands) noexcept {
    const auto sooner = [](const command& a, const command& b) { return a.deadline() < b.deadline(); };
    return std::max_element(commands.begin(), commands.end(), sooner)->deadline();
}

}  // namespace detail

}  // namespace distlock
