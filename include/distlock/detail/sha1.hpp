// SHA-1 (RFC 3174) that also runs at compile time; a name for texts, not a protection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace distlock::detail {

/// Returns: the SHA-1 digest of `text` as 40 lower-case hexadecimal digits, as Redis names scripts.
constexpr std::array<char, 40> sha1_hex(std::string_view text) noexcept {
    std::array<std::uint32_t, 5> digest{0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};

    // The message as RFC 3174 section 4 pads it: the text, one bit, zeros, and the length in bits as the last
    // 64 bits of a block of 64 bytes.
    const std::uint64_t bits = std::uint64_t{text.size()} * 8;
    const std::size_t blocks = (text.size() + 8) / 64 + 1;
    const auto byte_at = [&](std::size_t at) -> std::uint32_t {
        if (at < text.size()) return static_cast<unsigned char>(text[at]);
        if (at == text.size()) return 0x80;
        const std::size_t from_end = blocks * 64 - 1 - at;
        return from_end < 8 ? static_cast<std::uint32_t>((bits >> (8 * from_end)) & 0xff) : 0;
    };

    for (std::size_t block = 0; block < blocks; ++block) {
        std::uint32_t w[80] = {};  // no function calls in these loops: compilers interpret them once a script
        for (std::size_t t = 0; t < 16; ++t) {
            const std::size_t at = block * 64 + t * 4;
            w[t] = byte_at(at) << 24 | byte_at(at + 1) << 16 | byte_at(at + 2) << 8 | byte_at(at + 3);
        }
        for (std::size_t t = 16; t < 80; ++t) {
            const std::uint32_t mixed = w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16];
            w[t] = mixed << 1 | mixed >> 31;
        }

        auto [a, b, c, d, e] = digest;
        for (std::size_t t = 0; t < 80; ++t) {
            std::uint32_t f = 0;
            if (t < 20) {
                f = ((b & c) | (~b & d)) + 0x5a827999U;
            } else if (t < 40) {
                f = (b ^ c ^ d) + 0x6ed9eba1U;
            } else if (t < 60) {
                f = ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdcU;
            } else {
                f = (b ^ c ^ d) + 0xca62c1d6U;
            }
            const std::uint32_t next = (a << 5 | a >> 27) + f + e + w[t];
            e = d;
            d = c;
            c = b << 30 | b >> 2;
            b = a;
            a = next;
        }
        digest[0] += a;
        digest[1] += b;
        digest[2] += c;
        digest[3] += d;
        digest[4] += e;
    }

    std::array<char, 40> hex{};
    for (std::size_t i = 0; i < hex.size(); ++i) {
        hex[i] = "0123456789abcdef"[(digest[i / 8] >> (28 - 4 * (i % 8))) & 0xf];
    }
    return hex;
}

}  // namespace distlock::detail
