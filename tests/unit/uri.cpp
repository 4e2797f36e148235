// URIs: what is understood, what is refused, and that no message ever holds a secret.
#include <algorithm>
#include <arpa/inet.h>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <netinet/in.h>
#include <random>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>
#include <system_error>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/net/uri.hpp>
#include <distlock/net/uri_syntax.hpp>

#include "support/catch.hpp"

namespace uri_tests {

namespace {

using distlock::parse_uri;
using distlock::uri;
using distlock::uri_scheme;
using namespace std::chrono_literals;

/// Returns: the message with which `text` is refused; empty if it is not.
std::string refusal(std::string_view text) {
    try {
        const uri ignored = parse_uri(text);
        static_cast<void>(ignored);
    } catch (const distlock::error& e) {
        CHECK(e.code() == distlock::errc::invalid_uri);
        return e.what();
    }
    return {};
}

struct good_case {
    const char* text;
    uri expected;
};

struct bad_case {
    const char* text;
    const char* part;  // of the message
};

/// Returns: whether four characters in a row of `secret` stand in `text`, in whatever case.
bool leaks(std::string_view text, std::string_view secret) {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
    for (std::size_t i = 0; i + 4 <= secret.size(); ++i) {
        const std::string_view chunk = secret.substr(i, 4);
        if (std::search(text.begin(), text.end(), chunk.begin(), chunk.end(),
                        [&](char a, char b) { return lower(a) == lower(b); }) != text.end()) {
            return true;
        }
    }
    return false;
}

/// Returns: `bytes` with each one percent-encoded, or only those that must be: a second, naive opinion on
/// encoding.
std::string encoded(std::string_view bytes, std::mt19937& random, bool all) {
    std::string out;
    for (const char c : bytes) {
        const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (plain && !all) {
            out += c;
            continue;
        }
        const auto byte = static_cast<unsigned char>(c);
        const std::string_view digits = random() % 2 == 0 ? "0123456789ABCDEF" : "0123456789abcdef";
        out += '%';
        out += digits[byte / 16];
        out += digits[byte % 16];
    }
    return out;
}

const std::string user_canary = "zorblax";
const std::string password_canary = "hunter2-canary";
const std::string host_canary = "qwv.zjk";

std::vector<std::string> uris_with_canaries() {
    const std::string both = user_canary + ":" + password_canary + "@";
    return {
        "redis://" + both + host_canary + ":6379/2?connect_timeout=250ms&db=2",
        "rediss://:" + password_canary + "@" + host_canary,
        "valkey://" + both + host_canary + ":1/0",
        "redis://" + both + "[::1]:6379/1",
        "redis://" + both + "[fe80::1%25eth0]?max_idle=3",
        "redis://" + user_canary + ":%41" + password_canary + "%40@" + host_canary + "/7",
        "unix://" + both + "/run/x.sock?db=2&command_timeout=2s",
        "unix://:" + password_canary + "@/run/x.sock",
    };
}

}  // namespace

TEST_CASE("a URI says where the server is, and what it leaves out has its default") {
    const auto cases = std::vector<good_case>{
        {"redis://", {}},
        {"redis:///", {}},
        {"redis://?", {}},
        {"redis:///2", {.database = 2}},
        {"redis://?db=3", {.database = 3}},
        {"redis://cache", {.host = "cache"}},
        {"redis://cache/", {.host = "cache"}},
        {"REDIS://Cache.Example_1-x", {.host = "Cache.Example_1-x"}},
        {"redis://10.0.0.1:7000", {.host = "10.0.0.1", .port = 7000}},
        {"redis://h:7000/5", {.host = "h", .port = 7000, .database = 5}},
        {"redis://h/5?db=5", {.host = "h", .database = 5}},
        {"redis://c%61che", {.host = "cache"}},
        {"valkey://h", {.host = "h"}},
        {"rediss://h", {.scheme = uri_scheme::tls, .host = "h"}},
        {"ValKeyS://h", {.scheme = uri_scheme::tls, .host = "h"}},
        {"redis://alice:secret@h", {.user = "alice", .password = "secret", .host = "h"}},
        {"redis://:secret@h:1/2", {.password = "secret", .host = "h", .port = 1, .database = 2}},
        {"redis://a%3Ab:p%40%2f%3A%25%00@h",
         {.user = "a:b", .password = std::string("p@/:%\0", 6), .host = "h"}},
        {"redis://:a:b+c[]@h", {.password = "a:b+c[]", .host = "h"}},
        {"redis://[::1]", {.host = "::1"}},
        {"redis://[::1]:7000/1", {.host = "::1", .port = 7000, .database = 1}},
        {"redis://:p@[2001:db8::ffff:1.2.3.4]", {.password = "p", .host = "2001:db8::ffff:1.2.3.4"}},
        {"redis://[fe80::1%25eth0.1]:7000", {.host = "fe80::1%eth0.1", .port = 7000}},
        {"unix:///run/r.sock", {.scheme = uri_scheme::unix_socket, .path = "/run/r.sock"}},
        {"UNIX:///a%20b/c+d:e%40?db=2",
         {.scheme = uri_scheme::unix_socket, .path = "/a b/c+d:e@", .database = 2}},
        {"unix://u:p@/r", {.scheme = uri_scheme::unix_socket, .user = "u", .password = "p", .path = "/r"}},
        {"unix://:p@/r", {.scheme = uri_scheme::unix_socket, .password = "p", .path = "/r"}},
        {"redis://h?connect_timeout=250ms&command_timeout=2s&max_idle=4",
         {.host = "h", .connect_timeout = 250ms, .command_timeout = 2s, .max_idle = 4}},
    };
    for (const auto& [text, expected] : cases) {
        INFO(text);
        CHECK(refusal(text) == "");
        if (refusal(text).empty()) CHECK(parse_uri(text) == expected);
    }
}

TEST_CASE("a URI that is wrong is refused with a message that names the part") {
    const auto cases = std::vector<bad_case>{
        {"", "empty"},
        {" redis://h", "space"},
        {"redis://h\n", "line break"},
        {"redis://:p w@h", "%20"},
        {"redis://:p\x7fw@h", "control"},
        {"redis://:p\xc3\xa4@h", "non-ASCII"},
        {"redis://:pa#ss@h", "%23"},
        {"redis://h#x", "%23"},
        {"h:6379", "://"},
        {"redis:h", "://"},
        {"unix:/run/r.sock", "://"},
        {"http://h", "scheme"},
        {"://h", "scheme"},
        {"redis+unix:///r", "scheme"},
        {"redis+sentinel://h/m", "distlock::sentinel_connection"},
        {"rediss+Cluster://h", "distlock::cluster_connection"},
        {"redis ://h", "space"},
        // Credentials.
        {"redis://word@h", "redis://:password@host"},
        {"redis://@h", "redis://:password@host"},
        {"redis://:@h", "password is empty"},
        {"redis://alice:@h", "password is empty"},
        {"redis://:p@ss@h", "%40"},
        {"redis://:p/ss@h", "%2F"},
        {"redis://:p?ss@h", "%3F"},
        {"redis://h/2@", "%40"},
        {"redis://:100%@h", "password has a '%'"},
        {"redis://:1%0@h", "password has a '%'"},
        {"redis://:1%zz@h", "password has a '%'"},
        {"redis://:1%4g@h", "password has a '%'"},
        {"redis://:1%-1@h", "password has a '%'"},
        {"redis://:1%0x@h", "password has a '%'"},
        {"redis://a%:p@h", "user has a '%'"},
        // Host and port.
        {"redis://:p@", "host is empty"},
        {"redis://:p@/2", "host is empty"},
        {"redis://:6379", "host is empty"},
        {"redis://a%2", "host has a '%'"},
        {"redis://a,b", "redis+sentinel://"},
        {"redis://h1:6379,h2:6379", "redis+cluster://"},
        {"redis://a%20b", "host is no name"},
        {"redis://a%00b", "host is no name"},
        {"redis://a\\b", "host is no name"},
        {"redis://redis://h", "two schemes"},
        {"redis://h:", "port"},
        {"redis://h:/", "port"},
        {"redis://h:0", "port"},
        {"redis://h:65536", "port"},
        {"redis://h:18446744073709557995", "port"},  // 2^64 + 6379
        {"redis://h:-1", "port"},
        {"redis://h:+1", "port"},
        {"redis://h:0x1", "port"},
        {"redis://h:1a", "port"},
        {"redis://h:%31", "port"},
        {"redis://alice:secret", "redis://user:password@host:6379"},
        {"redis://::1", "brackets"},
        {"redis://::1:6379", "brackets"},
        {"redis://[::1", "never closed"},
        {"redis://[::1]6379", "follow the ']'"},
        {"redis://[::1]:", "port"},
        {"redis://[]", "IPv6"},
        {"redis://[1.2.3.4]", "IPv6"},
        {"redis://[::12345]", "IPv6"},
        {"redis://[fe80::1%eth0]", "%25eth0"},
        {"redis://[fe80::1%25]", "%25eth0"},
        {"redis://[fe80::1%25a/b]", "never closed"},
        {"redis://[fe80::1%25a%00]", "%25eth0"},
        {"redis://[fe80::1%25aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa]", "%25eth0"},
        // Database.
        {"redis://h/x", "database"},
        {"redis://h/-1", "database"},
        {"redis://h/+1", "database"},
        {"redis://h/1/", "database"},
        {"redis://h//1", "database"},
        {"redis://h/%31", "database"},
        {"redis://h/2147483648", "database"},
        {"redis://h/18446744073709551616", "database"},
        {"redis://h?db=", "database"},
        {"redis://h?db", "database"},
        {"redis://h?db=1.5", "database"},
        {"redis://h/1?db=2", "different databases"},
        {"redis://h/0?db=2", "different databases"},
        // Unix sockets.
        {"unix://", "path"},
        {"unix:///", "path"},
        {"unix:///run/", "path"},
        {"unix://u:p@", "path"},
        {"unix://run/r.sock", "unix:///"},
        {"unix://localhost/run/r.sock", "unix:///"},
        {"unix://u:p@h/run/r.sock", "unix:///"},
        {"unix:///run/r%00.sock", "%00"},
        {"unix:///run/r%.sock", "path has a '%'"},
        {"unix:///run/r@1.sock", "%40"},
        // Options.
        {"redis://h?ssl=true", "connect_timeout, command_timeout, max_idle and db"},
        {"redis://h?DB=1", "connect_timeout, command_timeout, max_idle and db"},
        {"redis://h?db=1&", "unknown"},
        {"redis://h?&db=1", "unknown"},
        {"redis://h?db=1?db=1", "database"},
        {"redis://h?db=1&db=1", "db is given twice"},
        {"redis://h?max_idle=1&db=1&max_idle=1", "max_idle is given twice"},
        {"redis://h?connect_timeout=500", "250ms or 2s"},
        {"redis://h?connect_timeout=", "250ms or 2s"},
        {"redis://h?connect_timeout", "250ms or 2s"},
        {"redis://h?connect_timeout=ms", "250ms or 2s"},
        {"redis://h?connect_timeout=1m", "250ms or 2s"},
        {"redis://h?connect_timeout=0.5s", "250ms or 2s"},
        {"redis://h?connect_timeout=-1s", "250ms or 2s"},
        {"redis://h?connect_timeout=1sx", "250ms or 2s"},
        {"redis://h?max_idle=0", "max_idle"},
        {"redis://h?max_idle=1025", "max_idle"},
        {"redis://h?max_idle=-1", "max_idle"},
    };
    for (const auto& [text, part] : cases) {
        INFO(text);
        CHECK_THAT(refusal(text), contains_text(part));
    }
    CHECK_THAT(refusal(std::string_view("redis://h\0", 10)), contains_text("control"));
}

// The header of inet_pton() is no standard one, and on FreeBSD needs two more; so the
// umbrella does without it.
TEST_CASE("an IPv6 address is what the operating system takes for one") {
    std::mt19937 random(1);  // NOLINT: the same ones every time
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random()) % n; };
    const std::vector<std::string> parts{":",         ":",   ":",  ":",    "::",    ".", "0",    "1",
                                         "f",         "F",   "12", "00ff", "12345", "g", "fe80", "255",
                                         "127.0.0.1", "256", "01", "1.2",  "-1",    " "};
    int taken = 0;
    const auto agree = [&](const std::string& text) {
        INFO(text);
        in6_addr ignored{};
        const bool known = ::inet_pton(AF_INET6, text.c_str(), &ignored) == 1;
        taken += known ? 1 : 0;
        REQUIRE(distlock::detail::is_ipv6_address(text) == known);
    };
    for (int i = 0; i < 30'000; ++i) {
        std::string text;
        for (std::size_t left = below(18); left > 0; --left) text += parts[below(parts.size())];
        agree(text);
        // One that is nearly right: eight groups, or six and an IPv4 address, some left out.
        text.clear();
        const std::size_t groups = 5 + below(5);
        const std::size_t gap = below(2) == 0 ? 99 : below(groups);
        for (std::size_t group = 0; group < groups; ++group) {
            if (group == gap) text += ":";
            text += group + 1 == groups && below(3) == 0 ? "10.0.0." + std::to_string(below(300))
                                                         : parts[6 + below(6)];
            if (group + 1 < groups || below(20) == 0) text += ":";
        }
        agree(text);
    }
    CHECK(taken > 3'000);
}

TEST_CASE("the path of a unix socket is as long as the operating system takes it") {
    STATIC_REQUIRE(distlock::detail::longest_socket_path == sizeof(sockaddr_un::sun_path) - 1);
}

// "%4" at the end was read together with the digit that happened to stand behind the text.
TEST_CASE("the parser reads nothing behind the end of a URI") {
    struct said {
        std::string refusal;
        uri where;
        bool operator==(const said&) const = default;
    };
    const auto says = [](std::string_view text) {
        said what{refusal(text), {}};
        if (what.refusal.empty()) what.where = parse_uri(text);
        return what;
    };
    for (const std::string_view whole :
         {"redis://%41%42:%43%44@%41%42:6379/12?db=12", "redis://:%43@h?connect_timeout=250ms&max_idle=12",
          "rediss://u:p%41@[fe80::1%25eth0]:6379/1", "unix://u:p@/a%20b%41?db=2", "unix:///%41%42",
          "redis://%41%42"}) {
        for (std::size_t size = 0; size <= whole.size(); ++size) {
            INFO(whole.substr(0, size));
            const std::vector<char> alone(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
            const auto expected = says({alone.data(), alone.size()});
            for (const char* const behind : {"1", "41", "f@h", "5s", "]", "/1"}) {
                const std::string longer = std::string(whole.substr(0, size)) + behind;
                CHECK(says(std::string_view(longer).substr(0, size)) == expected);
            }
        }
    }
    for (const char* const cut : {"redis://a%4", "redis://a%", "unix:///r%4", "unix:///r%"}) {
        INFO(cut);
        const std::string longer = std::string(cut) + "41";
        CHECK_THAT(refusal(std::string_view(longer).substr(0, longer.size() - 2)),
                   contains_text("has a '%'"));
    }
}

TEST_CASE("a number is taken up to its limit and not beyond") {
    CHECK(parse_uri("redis://h:1").port == 1);
    CHECK(parse_uri("redis://h:65535").port == 65535);
    CHECK(parse_uri("redis://h/2147483647").database == 2147483647);
    CHECK(parse_uri("redis://h?db=2147483647").database == 2147483647);
    CHECK(parse_uri("redis://h?max_idle=1").max_idle == 1);
    CHECK(parse_uri("redis://h?max_idle=1024").max_idle == 1024);
    CHECK(parse_uri("redis://h?connect_timeout=1ms").connect_timeout == 1ms);
    CHECK(parse_uri("redis://h?connect_timeout=3600000ms").connect_timeout == 1h);
    CHECK(parse_uri("redis://h?command_timeout=3600s").command_timeout == 1h);

    for (const char* const time : {"0ms", "0s", "3600001ms", "3601s", "3600000s", "18446744073709551615s",
                                   "18446744073709551616ms", "18446744073709552s"}) {
        INFO(time);
        CHECK_THAT(refusal("redis://h?command_timeout=" + std::string(time)),
                   contains_text("command_timeout"));
    }
}

TEST_CASE("a URI and its parts are taken up to their length and not beyond") {
    const std::string name(253, 'h');
    CHECK(parse_uri("redis://" + name).host == name);
    CHECK_THAT(refusal("redis://" + name + "h"), contains_text("253"));

    // What a sockaddr_un takes, with its NUL; counted after decoding.
    const std::string path = "/" + std::string(sizeof(sockaddr_un::sun_path) - 2, 'p');
    CHECK(parse_uri("unix://%41:p@" + path).path == path);
    CHECK(parse_uri("unix:///%70" + path.substr(2)).path == path);
    CHECK_THAT(refusal("unix://" + path + "p"), contains_text(std::to_string(path.size())));

    const std::string around = "redis://:@h";
    const std::string password(4096 - around.size(), 'x');
    CHECK(parse_uri("redis://:" + password + "@h").password == password);
    CHECK_THAT(refusal("redis://:x" + password + "@h"), contains_text("4096"));
}

TEST_CASE("any user, password, host and path survive percent-encoding") {
    std::mt19937 random(20240229);
    const auto bytes = [&](std::size_t most) {
        std::string out(1 + random() % most, '\0');
        for (char& c : out) c = static_cast<char>(random() % 256);
        return out;
    };
    const std::string_view host_letters = "abcxyzABCXYZ0123456789-._";
    for (int round = 0; round < 2000; ++round) {
        const bool all = round % 2 == 0;
        uri expected{.user = bytes(20), .password = bytes(40)};
        const std::string credentials =
            encoded(expected.user, random, all) + ":" + encoded(expected.password, random, all) + "@";
        expected.database = static_cast<int>(random() % 2147483648U);
        const std::string database = std::to_string(expected.database);
        std::string text;
        if (round % 3 == 0) {
            expected.scheme = uri_scheme::unix_socket;
            expected.path = bytes(60);
            std::replace(expected.path.begin(), expected.path.end(), '\0', 'n');
            text = "unix://" + credentials + "/" + encoded(expected.path, random, all) + "z?db=" + database;
            expected.path = "/" + expected.path + "z";
        } else {
            expected.host.assign(1 + random() % 30, '\0');
            for (char& c : expected.host) c = host_letters[random() % host_letters.size()];
            expected.port = static_cast<std::uint16_t>(1 + random() % 65535);
            text = "redis://" + credentials + encoded(expected.host, random, all) + ":" +
                   std::to_string(expected.port) + "/" + database;
        }
        INFO(text);
        REQUIRE(refusal(text) == "");
        REQUIRE(parse_uri(text) == expected);
    }
}

TEST_CASE("a URI for messages has no password and nothing unprintable") {
    using distlock::redacted;
    CHECK(redacted(uri{}) == "redis://127.0.0.1:6379/0");
    CHECK(redacted(parse_uri("rediss://alice:secret@h:7000/2")) == "rediss://alice@h:7000/2");
    CHECK(redacted(parse_uri("valkey://:secret@h?connect_timeout=1s")) == "redis://h:6379/0");
    CHECK(redacted(parse_uri("redis://:secret@[fe80::1%25eth0]")) == "redis://[fe80::1%25eth0]:6379/0");
    CHECK(redacted(parse_uri("unix://alice:secret@/a%20b")) == "unix://alice@/a%20b");
    CHECK(redacted(parse_uri("unix:///run/r.sock?db=2")) == "unix:///run/r.sock?db=2");
    CHECK(redacted(uri{.user = "a@\n\xff", .password = "secret", .host = "h/\x1b"}) ==
          "redis://a%40%0A%FF@h%2F%1B:6379/0");
}

TEST_CASE("no message holds anything of a URI that was mistyped") {
    // Every single slip: a character too few, too many or wrong, at every place. If the result can still be
    // understood, it must not have moved a piece of the password to where it would be shown.
    const std::string_view slips = "@/:?#%&=[] ax0-.";
    std::size_t refused = 0;
    std::size_t understood = 0;
    std::vector<std::string> leaked;
    const auto look = [&](const std::string& text) {
        try {
            const uri where = parse_uri(text);
            ++understood;
            if (leaks(distlock::redacted(where), password_canary)) leaked.push_back(text);
        } catch (const distlock::error& e) {
            ++refused;
            for (const auto& secret : {user_canary, password_canary, host_canary}) {
                if (leaks(e.what(), secret)) leaked.push_back(text + " -> " + e.what());
            }
        }
    };
    for (const std::string& whole : uris_with_canaries()) {
        INFO(whole);
        REQUIRE(refusal(whole) == "");
        for (std::size_t at = 0; at <= whole.size(); ++at) {
            look(whole.substr(0, at));
            look(std::string(whole).erase(at, 1));
            for (const char slip : slips) {
                look(std::string(whole).insert(at, 1, slip));
                if (at < whole.size()) look(std::string(whole).replace(at, 1, 1, slip));
            }
        }
    }
    INFO((leaked.empty() ? "" : leaked.front()));
    CHECK(leaked.size() == 0);
    CHECK(refused > 1000);
    CHECK(understood > 1000);
}

TEST_CASE("no message holds anything of a URI that was mistyped many times") {
    std::mt19937 random(7);
    const std::string_view slips = "@/:?#%&=[] ax0-.";
    std::vector<std::string> leaked;
    for (const std::string& whole : uris_with_canaries()) {
        for (int round = 0; round < 2000; ++round) {
            std::string text = whole;
            for (auto slip = 2 + random() % 4; slip > 0; --slip) {
                const std::size_t at = random() % text.size();
                const char wrong = slips[random() % slips.size()];
                switch (random() % 4) {
                    case 0:
                        text.erase(at, 1);
                        break;
                    case 1:
                        text.insert(at, 1, wrong);
                        break;
                    case 2:
                        text[at] = wrong;
                        break;
                    default:
                        std::rotate(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), text.end());
                }
            }
            const std::string message = refusal(text);
            for (const auto& secret : {user_canary, password_canary, host_canary}) {
                if (leaks(message, secret)) leaked.push_back(text + " -> " + message);
            }
        }
    }
    INFO((leaked.empty() ? "" : leaked.front()));
    CHECK(leaked.size() == 0);
}

TEST_CASE("the search for leaks finds one") {
    CHECK(leaks("the host 'NTER' is unknown", password_canary));
    CHECK_FALSE(leaks("the host 'nte' is unknown", password_canary));
}

TEST_CASE("a uri filled in by hand is checked as one that was parsed") {
    using distlock::check_uri;
    const auto usable = [](const uri& u) {
        try {
            check_uri(u);
        } catch (const distlock::error& e) {
            CHECK(e.code() == distlock::errc::invalid_uri);
            return false;
        }
        return true;
    };
    const auto with = [](auto change) {
        uri u;
        change(u);
        return u;
    };
    CHECK(usable(uri{}));
    CHECK(usable(with([](uri& u) { u.max_idle = 1024; })));
    CHECK(usable(with([](uri& u) { u.max_idle = 1; })));
    CHECK(usable(with([](uri& u) { u.connect_timeout = 1ms, u.command_timeout = 1h; })));
    CHECK_FALSE(usable(with([](uri& u) { u.command_timeout = 1h + 1ms; })));
    CHECK(usable(with([](uri& u) {
        u.scheme = uri_scheme::unix_socket;
        u.path = "/" + std::string(distlock::detail::longest_socket_path - 1, 'x');
    })));
    CHECK(usable(with([](uri& u) { u.host = std::string(300, 'a'); })));
    CHECK(usable(
        with([](uri& u) { u.scheme = distlock::uri_scheme::unix_socket, u.path = "/run/redis.sock"; })));
    CHECK_FALSE(usable(with([](uri& u) { u.max_idle = static_cast<std::size_t>(-1); })));
    CHECK_FALSE(usable(with([](uri& u) { u.max_idle = 0; })));
    CHECK_FALSE(usable(with([](uri& u) { u.host.clear(); })));
    CHECK_FALSE(usable(with([](uri& u) { u.host = std::string("a\0b", 3); })));
    CHECK(usable(with([](uri& u) { u.host = std::string(253, 'a'); })));
    CHECK_FALSE(usable(with([](uri& u) { u.host = std::string(301, 'a'); })));
    CHECK_FALSE(usable(with(
        [](uri& u) { u.scheme = distlock::uri_scheme::unix_socket, u.path = std::string("/run/a\0b", 9); })));
    CHECK_FALSE(usable(with([](uri& u) { u.port = 0; })));
    CHECK_FALSE(usable(with([](uri& u) { u.database = -1; })));
    CHECK_FALSE(usable(with([](uri& u) { u.user = "anna"; })));
    CHECK_FALSE(usable(with([](uri& u) { u.command_timeout = std::chrono::milliseconds{0}; })));
    CHECK_FALSE(usable(with([](uri& u) { u.connect_timeout = std::chrono::milliseconds::max(); })));
    CHECK_FALSE(usable(with([](uri& u) { u.scheme = distlock::uri_scheme::unix_socket; })));
    CHECK_FALSE(usable(with(
        [](uri& u) { u.scheme = distlock::uri_scheme::unix_socket, u.path = "/" + std::string(200, 'x'); })));
    CHECK_FALSE(
        usable(with([](uri& u) { u.scheme = distlock::uri_scheme::unix_socket, u.path = "relative"; })));
}

}  // namespace uri_tests
