// SHA-1, when a program runs and when it is compiled, against the standard's examples and sha1sum.
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/detail/sha1.hpp>

#include "support/catch.hpp"

namespace sha1_tests {

namespace {

std::string sha1_of(std::string_view text) {
    const auto hex = distlock::detail::sha1_hex(text);
    return {hex.data(), hex.size()};
}

constexpr bool sha1_is(std::string_view text, std::string_view expected) {
    const auto hex = distlock::detail::sha1_hex(text);
    return std::string_view(hex.data(), hex.size()) == expected;
}

// RFC 3174 section 7.3 and FIPS 180.
static_assert(sha1_is("", "da39a3ee5e6b4b0d3255bfef95601890afd80709"));
static_assert(sha1_is("abc", "a9993e364706816aba3e25717850c26c9cd0d89d"));
static_assert(sha1_is("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                      "84983e441c3bd26ebaae4aa1f95129e5e54670f1"));

}  // namespace

TEST_CASE("the digest of an empty text and of short texts is that of the standard") {
    CHECK(sha1_of("") == "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    CHECK(sha1_of("abc") == "a9993e364706816aba3e25717850c26c9cd0d89d");
    CHECK(sha1_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
          "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
}

TEST_CASE("the digest of a million letters is that of the standard") {
    CHECK(sha1_of(std::string(1'000'000, 'a')) == "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
}

TEST_CASE("the digest is right on both sides of every padding boundary") {
    // Made with sha1sum from the first `size` bytes of the alphabet repeated.
    const std::array<std::pair<std::size_t, const char*>, 15> known{{
        {1, "86f7e437faa5a7fce15d1ddcb9eaeaea377667b8"},
        {54, "52c4ac98d05f285b2d9b086703fe0463a3045475"},
        {55, "a617d006d1ca12671785098a19a87fe58443bde9"},
        {56, "4ad5bb7ae3c4024768d364b77c52128ea3cffebe"},
        {57, "e1b3b34da0f7b299090824d9aa81fff6711a79ad"},
        {63, "fc8a5ab77259625085ead3ec96515b3b8d933fad"},
        {64, "93249d4c2f8903ebf41ac358473148ae6ddd7042"},
        {65, "cf2a63cc308225cf07b498d2309a01dd0df52f67"},
        {118, "e8296c0b6f35353f7d1b419cff9beab7460a0b2b"},
        {119, "edd0f1133d0e4ca5f3e98bb7e0295f31d20d2cdb"},
        {120, "23a58eee587aa1f50d19a969ab36a3fe3e88c393"},
        {121, "9b1ce2490012a9e55bbf22fb701dac21e9c29f88"},
        {127, "4add81c7de2e43d621cdb34132bbb23178f4c500"},
        {128, "3698f9beb7cdf5b1e1ce786672fb234143d4df89"},
        {129, "1d96f2c973fdd492d08f2a16f950d654912b61ca"},
    }};
    for (const auto& [size, expected] : known) {
        std::string text;
        for (std::size_t i = 0; i < size; ++i) text += static_cast<char>('a' + i % 26);
        INFO("length " << size);
        CHECK(sha1_of(text) == expected);
    }
}

TEST_CASE("the digest counts every byte value as unsigned") {
    std::string text;
    for (int i = 0; i < 256; ++i) text += static_cast<char>(i);
    CHECK(sha1_of(text) == "4916d6bdb7f78e6803698cab32d1586ea457dfc8");
}

}  // namespace sha1_tests
