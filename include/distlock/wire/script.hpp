// A server-side script: its text and the name EVALSHA calls it by.
//
//   class script {
//   public:
//     explicit consteval script(std::string_view text);
//     consteval script(std::string_view text, std::string_view sha1);
//     consteval script(std::string_view (*make)() noexcept, std::string_view sha1);
//     constexpr std::string_view text() const noexcept;     // for EVAL and SCRIPT LOAD
//     constexpr std::string_view sha1() const noexcept;     // for EVALSHA
//   };
//
//   inline constexpr script release_script{"return redis.call('DEL', KEYS[1])"};
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include <distlock/detail/sha1.hpp>

namespace distlock {

namespace detail {
// Compilers count the characters of a literal without it one by one, at every compilation.
using std::literals::operator""sv;
}  // namespace detail

/// The text of a Lua script and its SHA-1. Both must agree to the byte with what the server gets, so neither
/// ever changes.
class script {
  public:
    /// Preconditions: `text` has static storage and is not empty; what breaks this does not compile.
    explicit consteval script(std::string_view text) : text_(text), sha1_(detail::sha1_hex(text)) {
        if (text.empty()) throw "a script needs a text";
    }

    /// The same with the digest at hand, for headers that everybody compiles: computing it takes a compiler a
    /// tenth of a second for a script of a page. A test must hold it to the text; a wrong one costs a round
    /// trip, since the server does not know it and is sent the text.
    consteval script(std::string_view text, std::string_view sha1) : text_(text), sha1_{} {
        if (text.empty()) throw "a script needs a text";
        if (sha1.size() != sha1_.size()) throw "a SHA-1 has 40 digits";
        std::copy(sha1.begin(), sha1.end(), sha1_.begin());
    }

    /// The same for a text that is made when it is first needed, and never changes.
    consteval script(std::string_view (*make)() noexcept, std::string_view sha1)
        : script("made later", sha1) {
        make_ = make;
    }

    /// Returns: the text as given; valid for ever.
    constexpr std::string_view text() const noexcept { return make_ != nullptr ? make_() : text_; }

    /// Returns: 40 lower-case hexadecimal digits; valid as long as this script.
    constexpr std::string_view sha1() const& noexcept { return {sha1_.data(), sha1_.size()}; }
    std::string_view sha1() const&& = delete;

  private:
    std::string_view text_;
    std::array<char, 40> sha1_;
    std::string_view (*make_)() noexcept = nullptr;
};

}  // namespace distlock
