// A letter as a small one, in ASCII.
//
//   constexpr char small_letter(char) noexcept;
#pragma once

namespace distlock::detail {

/// Returns: the small letter of an ASCII capital, everything else as it is; <cctype> would ask the locale.
constexpr char small_letter(char c) noexcept {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace distlock::detail
