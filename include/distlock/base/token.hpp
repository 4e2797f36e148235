// The token that identifies one acquisition: 128 random bits, new each time.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <errno.h>
#include <string_view>

#include <distlock/base/error.hpp>
#include <distlock/detail/system.hpp>

namespace distlock {

/// Fills a buffer with random bytes from the operating system.
struct system_entropy {
    /// Returns: the number of bytes written, or -1 with errno set; as getrandom(2).
    std::ptrdiff_t operator()(void* into, std::size_t size) const noexcept {
        return detail::random_bytes(into, size);
    }
};

/// 128 random bits as 32 lower-case hexadecimal digits. Every token is drawn from the operating system, so
/// parent and child after fork() never share one. A default-constructed token is empty and owns nothing.
class token {
  public:
    constexpr token() = default;

    /// Returns: a token nobody has had before.
    /// Throws: error(errc::no_entropy) when the system has no random bytes to give; a weak token is never
    /// returned.
    template <class Entropy = system_entropy>
    [[nodiscard("a token that is dropped owns nothing"), gnu::noinline]] static token generate(
        Entropy entropy = {}) {
        std::array<unsigned char, 16> raw{};
        std::size_t filled = 0;
        while (filled < raw.size()) {
            const auto got = entropy(raw.data() + filled, raw.size() - filled);
            if (got > 0) {
                filled += static_cast<std::size_t>(got);
            } else if (got == 0 || errno != EINTR) {
                detail::throw_error(errc::no_entropy, {"getrandom"});
            }
        }
        constexpr std::string_view hex = "0123456789abcdef";
        token made;
        for (std::size_t i = 0; i < filled; ++i) {
            made.digits_[2 * i] = hex[raw[i] >> 4U];
            made.digits_[2 * i + 1] = hex[raw[i] & 15U];
        }
        made.size_ = made.digits_.size();
        return made;
    }

    /// Returns: the token of 32 digits that a server gave out; an empty one for any other text.
    static constexpr token from(std::string_view digits) noexcept {
        token made;
        if (digits.size() != made.digits_.size()) return made;
        for (const char c : digits) {
            if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return made;
        }
        std::copy(digits.begin(), digits.end(), made.digits_.begin());
        made.size_ = made.digits_.size();
        return made;
    }

    /// Returns: the digits; they live as long as this object.
    constexpr std::string_view view() const noexcept { return {digits_.data(), size_}; }
    constexpr bool empty() const noexcept { return size_ == 0; }

    /// Effects: notes the largest fencing token that was used under this token, where a process made more of
    /// the one that the server gave: the server hears of it with the next renewal or release.
    void fence(std::uint64_t used) noexcept {
        const auto end = std::to_chars(fence_.data(), fence_.data() + fence_.size(), used).ptr;
        fence_size_ = static_cast<std::size_t>(end - fence_.data());
    }
    /// Returns: its decimal digits, which live as long as this object; none when only the server's was used.
    std::string_view fence() const noexcept { return {fence_.data(), fence_size_}; }

    /// Effects: notes that its owner is sent no messages while it waits.
    void expect_no_messages() noexcept { expects_no_messages_ = true; }
    bool expects_no_messages() const noexcept { return expects_no_messages_; }

    friend constexpr bool operator==(const token& a, const token& b) noexcept { return a.view() == b.view(); }

  private:
    std::array<char, 32> digits_{};
    std::size_t size_ = 0;
    std::array<char, 20> fence_{};
    std::size_t fence_size_ = 0;
    bool expects_no_messages_ = false;
};

}  // namespace distlock
