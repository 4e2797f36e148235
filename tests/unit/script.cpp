// Scripts: how they are named, and what the compiler guarantees about them.
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <distlock/detail/sha1.hpp>
#include <distlock/wire/script.hpp>

#include "support/catch.hpp"

namespace script_tests {

namespace {

std::string sha1_of(std::string_view text) {
    const auto hex = distlock::detail::sha1_hex(text);
    return {hex.data(), hex.size()};
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

template <class Script>
concept has_sha1 = requires(Script&& s) {
    std::forward<Script>(s).sha1();
};
static_assert(has_sha1<const distlock::script&>);
static_assert(!has_sha1<distlock::script>, "the digits of a temporary must not be handed out");
static_assert(!std::is_default_constructible_v<distlock::script>);
static_assert(!std::is_convertible_v<const char*, distlock::script>);

}  // namespace

TEST_CASE("a script is named as the server names it") {
    CHECK(delete_script.sha1() == "b0d697da25b13e49157b2c214a4033546aba2104");
    CHECK(compare_and_delete.sha1() == "f71ed65b3446d367ee69429a18c70d74d8bb722e");
}

TEST_CASE("a script gives back its text unchanged") {
    CHECK(delete_script.text() == "return redis.call('DEL', KEYS[1])");
    CHECK(sha1_of(compare_and_delete.text()) == compare_and_delete.sha1());
}

}  // namespace script_tests
