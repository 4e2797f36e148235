// Small letters, in ASCII.
#include <climits>
#include <string_view>

#include <distlock/detail/small_letter.hpp>

#include "support/catch.hpp"

namespace small_letter_tests {

using distlock::detail::small_letter;

static_assert(small_letter('Z') == 'z');

TEST_CASE("capitals of ASCII have a small letter, and every other byte is its own") {
    constexpr std::string_view capitals = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    constexpr std::string_view small = "abcdefghijklmnopqrstuvwxyz";
    for (int byte = CHAR_MIN; byte <= CHAR_MAX; ++byte) {
        INFO("byte " << byte);
        const auto c = static_cast<char>(byte);
        const auto at = capitals.find(c);
        CHECK(small_letter(c) == (at == std::string_view::npos ? c : small[at]));
    }
}

}  // namespace small_letter_tests
