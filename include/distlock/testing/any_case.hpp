// Words that a server takes in capitals and in small letters.
#pragma once

#include <algorithm>
#include <string_view>

#include <distlock/detail/small_letter.hpp>

namespace distlock::testing::impl {

/// Returns: whether `text` begins with `small`, which has no capitals, in whatever letters.
inline bool begins_in_any_case(std::string_view text, std::string_view small) {
    return text.size() >= small.size() &&
           std::equal(small.begin(), small.end(), text.begin(),
                      [](char a, char b) { return a == detail::small_letter(b); });
}

}  // namespace distlock::testing::impl
