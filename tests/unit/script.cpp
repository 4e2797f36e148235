// Scripts: the SHA-1 that names them, and what the compiler guarantees about them.
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <distlock/detail/sha1.hpp>
#include <distlock/wire/script.hpp>

#include "support/catch.hpp"

namespace {

std::string sha1_of(std::string_view text) {
    const auto hex = distlock::detail::sha1_hex(text);
    return {hex.data(), hex.size()};
}

constexpr bool sha1_is(std::string_view text, std::string_view expected) {
    const auto hex = distlock::detail::sha1_hex(text);
    return std::string_view(hex.data(), hex.size()) == expected;
}

// What `printf %s "$text" | sha1sum` and SCRIPT LOAD of a redis-server 7.0 answer for this text.
inline constexpr distlock::script delete_script{"return redis.call('DEL', KEYS[1])"};

inline constexpr distlock::script compare_and_delete{R"(if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('DEL', KEYS[1])
end
return 0
)"};

// Twice as long as any script one would like to read: the compilers' limits on evaluation are further away
// still.
template <std::size_t Size>
struct long_text {
    std::array<char, Size> bytes{};
    constexpr long_text() {
        bytes.fill(' ');
        bytes[0] = bytes[1] = '-';
    }
};
inline constexpr long_text<8192> eight_kib;
inline constexpr distlock::script long_script{
    std::string_view(eight_kib.bytes.data(), eight_kib.bytes.size())};

static_assert(delete_script.sha1() == "b0d697da25b13e49157b2c214a4033546aba2104");
static_assert(delete_script.text() == "return redis.call('DEL', KEYS[1])");
static_assert(compare_and_delete.sha1() == "f71ed65b3446d367ee69429a18c70d74d8bb722e");
static_assert(long_script.sha1() == "8d1da9e61e7ed0d468b2c5eef593f880d498730a");

// RFC 3174 section 7.3 and FIPS 180.
static_assert(sha1_is("", "da39a3ee5e6b4b0d3255bfef95601890afd80709"));
static_assert(sha1_is("abc", "a9993e364706816aba3e25717850c26c9cd0d89d"));
static_assert(sha1_is("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                      "84983e441c3bd26ebaae4aa1f95129e5e54670f1"));

template <class Script>
concept has_sha1 = requires(Script&& s) {
    std::forward<Script>(s).sha1();
};
static_assert(has_sha1<const distlock::script&>);
static_assert(!has_sha1<distlock::script>, "the digits of a temporary must not be handed out");
static_assert(!std::is_default_constructible_v<distlock::script>);
static_assert(!std::is_convertible_v<const char*, distlock::script>);

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

TEST_CASE("a script is named as the server names it") {
    CHECK(delete_script.sha1() == "b0d697da25b13e49157b2c214a4033546aba2104");
    CHECK(compare_and_delete.sha1() == "f71ed65b3446d367ee69429a18c70d74d8bb722e");
}

TEST_CASE("a script gives back its text unchanged") {
    CHECK(delete_script.text() == "return redis.call('DEL', KEYS[1])");
    CHECK(sha1_of(compare_and_delete.text()) == compare_and_delete.sha1());
}
