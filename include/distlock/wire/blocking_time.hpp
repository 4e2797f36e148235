// How long a command may block on the server, as the server reads it.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <string_view>

#include <distlock/base/clock.hpp>

namespace distlock {

/// A decimal number of seconds from two milliseconds to a day, rounded up to whole milliseconds; or "0": for ever.
class blocking_time {
  public:
    blocking_time() = default;
    explicit blocking_time(clock::duration left) noexcept {
        using std::chrono::milliseconds;
        // Redis 6.2 makes 0 of 0.001, which is for ever.
        constexpr milliseconds shortest{2};
        constexpr milliseconds longest = std::chrono::hours{24};
        const auto whole = std::chrono::ceil<milliseconds>(std::max(left, clock::duration::zero()));
        const auto ms = std::clamp(whole, shortest, longest).count();
        auto end = std::to_chars(text_.data(), text_.data() + text_.size(), ms / 1000).ptr;
        *end++ = '.';
        for (auto digit = 100; digit > 0; digit /= 10)
            *end++ = static_cast<char>('0' + ms % 1000 / digit % 10);
        size_ = static_cast<std::size_t>(end - text_.data());
    }
    std::string_view view() const noexcept { return {text_.data(), size_}; }

  private:
    std::array<char, 16> text_{'0'};
    std::size_t size_ = 1;
};

}  // namespace distlock
