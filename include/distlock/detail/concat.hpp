// Texts put together from pieces, in one function: a chain of operator+ is compiled anew wherever it stands,
// and costs more than what it is for.
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include <distlock/detail/language.hpp>

namespace distlock::detail {

/// Text, which outlives it, or a number.
class text_piece {
  public:
    constexpr text_piece(const char* text) : text_(text) {}
    constexpr text_piece(std::string_view text) : text_(text) {}
    text_piece(const std::string& text) : text_(text) {}
    template <std::integral T>
    constexpr text_piece(T number) : number_(static_cast<std::int64_t>(number)), is_number_(true) {}

    [[gnu::noinline, gnu::cold]] void append_to(std::string& out) const {
        if (!is_number_) {
            out.append(text_.data(), text_.size());
            return;
        }
        std::array<char, 24> digits;
        const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number_).ptr;
        out.append(digits.data(), static_cast<std::size_t>(end - digits.data()));
    }

  private:
    std::string_view text_{};
    std::int64_t number_ = 0;
    bool is_number_ = false;
};

/// Returns: `text`; an empty one for a null pointer, as of a variable that is not set.
constexpr std::string_view text_or_none(const char* text) noexcept {
    return text != nullptr ? std::string_view(text) : std::string_view();
}

/// Effects: appends the pieces, one after the other.
[[gnu::noinline, gnu::cold]] inline void append(std::string& out, std::initializer_list<text_piece> pieces) {
    for (const text_piece& one : pieces) one.append_to(out);
}
[[gnu::noinline, gnu::cold]] inline std::string concat(std::initializer_list<text_piece> pieces) {
    std::string out;
    append(out, pieces);
    return out;
}

}  // namespace distlock::detail
