// Names and keys: what is refused, where siblings live in a cluster, and that no two keys are ever the same.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <distlock/base/key.hpp>

#include "support/catch.hpp"
#include "support/sanitizers.hpp"
#include "support/timing_tolerance.hpp"

namespace key_tests {

namespace {

using distlock::errc;
using distlock::hash_tag;
using distlock::key;
using namespace std::string_literals;

/// Returns: the cluster slot of a key, computed from the specification alone: CRC-16/XMODEM of the part
/// between the first '{' and the next '}', modulo 16384.
std::uint16_t crc16(std::string_view text) {
    std::uint16_t crc = 0;
    for (const char c : text) {
        crc = static_cast<std::uint16_t>(crc ^ (static_cast<unsigned char>(c) << 8));
        for (int bit = 0; bit < 8; ++bit) {
            crc = static_cast<std::uint16_t>((crc & 0x8000) != 0 ? (crc << 1) ^ 0x1021 : crc << 1);
        }
    }
    return crc;
}
unsigned slot_of(std::string_view text) {
    std::size_t open = 0;
    while (open < text.size() && text[open] != '{') ++open;
    if (open == text.size()) return crc16(text) % 16384U;
    std::size_t close = open + 1;
    while (close < text.size() && text[close] != '}') ++close;
    if (close == text.size() || close == open + 1) return crc16(text) % 16384U;
    return crc16(text.substr(open + 1, close - open - 1)) % 16384U;
}

/// Returns: why `name` is refused; empty if it is not.
std::string refusal(const std::string& name) {
    try {
        static_cast<void>(key(name));
    } catch (const distlock::error& e) {
        CHECK(e.code() == errc::invalid_name);
        return e.what();
    }
    return {};
}

std::optional<std::string> sibling_of(const key& k, std::string_view kind) {
    try {
        return k.sibling(kind);
    } catch (const distlock::error& e) {
        if (e.code() != errc::invalid_name) throw;
    }
    return {};
}

/// Every key the library would touch, and whose it is. Two owners of one key are a failure.
class ownership {
  public:
    void add(const std::string& name) {
        std::optional<key> k;
        try {
            k.emplace(name);
        } catch (const distlock::error&) {
            ++refused_;
            return;
        }
        ++accepted_;
        claim(name, name, "");
        for (const std::string_view kind : {"b", "w", "fence", "distlock", "a"}) {
            const auto sibling = sibling_of(*k, kind);
            if (!sibling) continue;
            ++siblings_;
            claim(*sibling, name, kind);
            if (slot_of(*sibling) != slot_of(name)) ++astray_;
            try {
                static_cast<void>(key(*sibling));
                ++usable_as_name_;
            } catch (const distlock::error&) {}
        }
    }

    void check(std::size_t at_least) const {
        CHECK(accepted_ >= at_least);
        CHECK(siblings_ >= at_least);
        CHECK(collisions_ == 0);
        CHECK(astray_ == 0);
        CHECK(usable_as_name_ == 0);
    }
    std::size_t accepted() const { return accepted_; }
    std::size_t refused() const { return refused_; }

  private:
    void claim(const std::string& what, const std::string& name, std::string_view kind) {
        auto owner = name + '\x01' + std::string(kind);  // no kind has this byte
        const auto [at, fresh] = owners_.emplace(what, owner);
        if (fresh || at->second == owner) return;
        if (collisions_++ < 5) UNSCOPED_INFO("one key for two: " << at->second << " and " << owner);
    }

    std::unordered_map<std::string, std::string> owners_;
    std::size_t accepted_ = 0;
    std::size_t refused_ = 0;
    std::size_t siblings_ = 0;
    std::size_t collisions_ = 0;
    std::size_t astray_ = 0;
    std::size_t usable_as_name_ = 0;
};

}  // namespace

TEST_CASE("the reference CRC of the cluster specification comes out") {
    CHECK(crc16("123456789") == 0x31C3);
    CHECK(slot_of("foo{123456789}bar") == 0x31C3 % 16384);
}

TEST_CASE("the hash tag is what stands between the first brace and the next closing one, unless empty") {
    CHECK(hash_tag("orders") == "orders");
    CHECK(hash_tag("{orders}:42") == "orders");
    CHECK(hash_tag("a{b}{c}") == "b");
    CHECK(hash_tag("a{{b}}c") == "{b");
    CHECK(hash_tag("a{}{b}") == "a{}{b}");
    CHECK(hash_tag("a{b") == "a{b");
    CHECK(hash_tag("a}b{c") == "a}b{c");
    CHECK(hash_tag("a}b{c}") == "c");
    CHECK(hash_tag("").empty());
    CHECK(hash_tag("{") == "{");
    CHECK(hash_tag("{}") == "{}");
}

TEST_CASE("an empty name is refused") { CHECK_THAT(refusal(""), contains_text("empty")); }

TEST_CASE("a name of 4096 bytes is accepted, one of 4097 is refused") {
    CHECK(refusal(std::string(4096, 'n')).empty());
    CHECK(key(std::string(4096, 'n')).name().size() == 4096);
    const auto message = refusal(std::string(4097, 'n'));
    CHECK_THAT(message, contains_text("4097 bytes"));
    CHECK(message.size() < 250);
    CHECK_THAT(refusal(std::string(5 * 1024, 'n')), contains_text("5120 bytes"));
}

TEST_CASE("a name may hold any bytes and is the key, byte for byte") {
    std::string every_byte;
    for (int value = 0; value < 256; ++value) every_byte += static_cast<char>(value);
    for (const auto& name : {"a\0b"s, "\0"s, "a\r\nDEL b\r\n"s, "\xff\xfe"s, " "s, every_byte}) {
        CHECK(key(name).name() == name);
    }
}

TEST_CASE("a message about a name holds no control characters") {
    const auto message = refusal("\x1b[2J\r\n\0\xff:distlock:b"s);
    REQUIRE_FALSE(message.empty());
    for (const char c : message) CHECK((c >= ' ' && c <= '~'));
}

TEST_CASE("a name that ends like a sibling is refused") {
    for (const std::string name :
         {"{a}:distlock:b", ":distlock:b", "a:distlock:fence", "{a}:distlock.:b", "x:distlock.:queue"}) {
        INFO(name);
        CHECK_THAT(refusal(name), contains_text("ends like"));
    }
    CHECK_FALSE(refusal("a\0:distlock:b"s).empty());
}

TEST_CASE("a name that only resembles a sibling is accepted") {
    for (const std::string name :
         {"a:distlock:", "a:distlock:B", "a:distlock:b1", "a:distlock:b:c", "distlock:b", ":Distlock:b",
          "a:distlock", "distlock", "b", "a:distlock.b", "a:distlock..:b", ":distlock:b "}) {
        INFO(name);
        CHECK(refusal(name).empty());
    }
}

TEST_CASE("keys of the same name are equal, others are not") {
    CHECK(key("a") == key("a"));
    CHECK_FALSE(key("a") == key("b"));
    CHECK_FALSE(key("a\0b"s) == key("a\0c"s));
}

TEST_CASE("a sibling shares the slot of its lock") {
    for (const auto& name :
         {"orders"s, "orders:42"s, "{orders}:42"s, "a{b}{c}"s, "a{{b}}c"s, "a{b"s, "{"s, "{{"s, "a\0b"s,
          "x{\r\n}y"s, "}{a}"s, std::string(4096, 'n'), "{t}" + std::string(4093, '}')}) {
        INFO(name);
        CHECK(slot_of(key(name).sibling("b")) == slot_of(name));
        CHECK(slot_of(key(name).sibling("fence")) == slot_of(name));
        CHECK(key(name).sibling("b") != key(name).sibling("fence"));
    }
}

TEST_CASE("a name with a closing brace but no hash tag is a lock, but can have no sibling") {
    for (const std::string name : {"}", "a}", "{}", "a{}b", "a}b{c", "}{", "{}{a}"}) {
        INFO(name);
        const key k(name);
        CHECK(k.name() == name);
        CHECK_FALSE(sibling_of(k, "b"));
        CHECK_THROWS_WITH(k.sibling("b"), contains_text("hash tag"));
    }
}

TEST_CASE("no key belongs to two locks: every name of up to seven bytes that could confuse") {
    ownership all;
    constexpr std::string_view letters = "{}:a";
    constexpr std::size_t longest = instrumented ? 6 : 7;
    std::vector<std::string> names{""};
    for (std::size_t first = 0, length = 1; length <= longest; ++length) {
        const std::size_t last = names.size();
        for (; first < last; ++first) {
            for (const char c : letters) names.push_back(names[first] + c);
        }
    }
    for (const auto& name : names) all.add(name);
    all.check(instrumented ? 2'500 : 10'000);
    CHECK(all.refused() == 1);  // the empty one
}

TEST_CASE("no key belongs to two locks: names made of the marks themselves") {
    const std::array fragments{"{"s,          "}"s,           ":"s,         "%"s,   "\0"s,       "."s,
                               "d"s,          "a"s,           "b"s,         "{a}"s, "distlock"s, "fence"s,
                               ":distlock:"s, ":distlock.:"s, "distlock:"s, "k"s,   "\r\n"s};
    std::mt19937 random(20240611);  // any seed; fixed, so that a failure comes again
    ownership all;
    constexpr std::size_t wanted = instrumented ? 5'000 : 15'000;
    while (all.accepted() < wanted) {
        std::string name;
        for (auto pieces = random() % 7 + 1; pieces > 0; --pieces) {
            name += fragments[random() % fragments.size()];
        }
        all.add(name);
        // The neighbours an attacker would try: with and without the braces and marks a sibling has.
        all.add("{" + name + "}");
        if (const auto first = name.find('}'); first != std::string::npos) all.add(name.substr(0, first));
    }
    all.check(wanted);
    CHECK(all.refused() > wanted / 60);  // or the generator does not come near the marks
}

}  // namespace key_tests
