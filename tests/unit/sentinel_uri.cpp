// URIs of Sentinels: what is understood, what is refused, and that no message shows a secret.
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/net/sentinel_uri.hpp>
#include <distlock/net/uri.hpp>

#include "support/catch.hpp"

namespace sentinel_uri_tests {

namespace {

using distlock::parse_sentinel_uri;
using distlock::sentinel_uri;
using distlock::uri;
using distlock::uri_scheme;
using namespace std::chrono_literals;

/// Returns: the message with which `text` is refused; empty if it is not.
std::string refusal(std::string_view text) {
    try {
        const sentinel_uri ignored = parse_sentinel_uri(text);
        static_cast<void>(ignored);
    } catch (const distlock::error& e) {
        CHECK(e.code() == distlock::errc::invalid_uri);
        return e.what();
    }
    return {};
}

}  // namespace

TEST_CASE("the URI names the Sentinels, the master they watch, and who may use each") {
    const auto where = parse_sentinel_uri(
        "redis+sentinel://worker:s%2Ccret@s1:26379,s2:7000,[::1]:7001/my-master.1?db=2&sentinel_user=w%26tch"
        "&command_timeout=100ms&sentinel_password=p%40ss&max_idle=4");
    CHECK(where.master_name == "my-master.1");
    CHECK(
        where.master ==
        uri{.user = "worker", .password = "s,cret", .database = 2, .command_timeout = 100ms, .max_idle = 4});
    const auto sentinel = [](const char* host, std::uint16_t port) {
        return uri{.user = "w&tch",
                   .password = "p@ss",
                   .host = host,
                   .port = port,
                   .command_timeout = 100ms,
                   .max_idle = 4};
    };
    CHECK(where.sentinels == std::vector{sentinel("s1", 26379), sentinel("s2", 7000), sentinel("::1", 7001)});
}

TEST_CASE("a Sentinel has the port 26379 and no password unless they are given") {
    const auto where = parse_sentinel_uri("redis+sentinel://:secret@s1,[2001:db8::1],10.0.0.1:1/m");
    CHECK(where.sentinels == std::vector<uri>{{.host = "s1", .port = 26379},
                                              {.host = "2001:db8::1", .port = 26379},
                                              {.host = "10.0.0.1", .port = 1}});
    CHECK(where.master == uri{.password = "secret"});
}

TEST_CASE("rediss+sentinel is TLS for Sentinels and masters, and valkey the same as redis") {
    for (const char* const text :
         {"rediss+sentinel://h/m", "valkeys+sentinel://h/m", "ValkeyS+Sentinel://h/m"}) {
        const auto where = parse_sentinel_uri(text);
        CHECK(where.sentinels.front().scheme == uri_scheme::tls);
        CHECK(where.master.scheme == uri_scheme::tls);
    }
    CHECK(parse_sentinel_uri("valkey+sentinel://h/m").master.scheme == uri_scheme::tcp);
}

TEST_CASE("the name of a master is taken up to its length and not beyond") {
    const std::string name(253, 'm');
    CHECK(parse_sentinel_uri("redis+sentinel://h/" + name).master_name == name);
    CHECK_THAT(refusal("redis+sentinel://h/" + name + "m"), contains_text("the name of the master"));
}

TEST_CASE("a URI of Sentinels that was filled in by hand is checked as one that was read") {
    const auto good = parse_sentinel_uri("redis+sentinel://s1,s2:7/m?db=2&sentinel_password=p");
    CHECK_NOTHROW(distlock::check_uri(good));
    const auto said = [&](auto change) {
        auto bad = good;
        change(bad);
        try {
            distlock::check_uri(bad);
        } catch (const distlock::error& e) {
            CHECK(e.code() == distlock::errc::invalid_uri);
            return std::string(e.what());
        }
        return std::string();
    };
    CHECK_THAT(said([](auto& u) { u.sentinels.clear(); }), contains_text("no Sentinel"));
    CHECK_THAT(said([](auto& u) { u.sentinels.push_back(u.sentinels.front()); }),
               contains_text("named twice"));
    CHECK_THAT(said([](auto& u) { u.sentinels.assign(33, u.sentinels.front()); }),
               contains_text("more than 32"));
    CHECK(said([](auto& u) {
              for (std::uint16_t port = 1; u.sentinels.size() < 32; ++port) {
                  u.sentinels.push_back(u.sentinels.front());
                  u.sentinels.back().port = port;
              }
          }).empty());
    CHECK_THAT(said([](auto& u) { u.sentinels.front().host.clear(); }), contains_text("host"));
    CHECK_THAT(said([](auto& u) { u.sentinels.back().password = "q"; }), contains_text("differ"));
    CHECK_THAT(said([](auto& u) {
                   for (auto& one : u.sentinels) one.database = 1;
               }),
               contains_text("no databases"));
    CHECK_THAT(said([](auto& u) { u.master.scheme = distlock::uri_scheme::tls; }), contains_text("TLS"));
    CHECK_THAT(said([](auto& u) {
                   u.sentinels.front().scheme = distlock::uri_scheme::unix_socket;
                   u.sentinels.front().path = "/s";
                   u.sentinels.front().host.clear();
               }),
               contains_text("unix socket"));
    CHECK_THAT(said([](auto& u) { u.master_name.clear(); }), contains_text("name of the master"));
    CHECK_THAT(said([](auto& u) { u.master.command_timeout = {}; }), contains_text("time-out"));
    auto nowhere = good;
    nowhere.master.host.clear();
    nowhere.master.port = 0;
    CHECK_NOTHROW(distlock::check_uri(nowhere));
}

TEST_CASE("a URI of Sentinels is shown without its password") {
    CHECK(
        redacted(parse_sentinel_uri("redis+sentinel://wor%20ker:secret@s1,[::1]:7001/m?db=2&sentinel_user=a&"
                                    "sentinel_password=secret&max_idle=4")) ==
        "redis+sentinel://wor%20ker@s1:26379,[::1]:7001/m?db=2");
    CHECK(redacted(parse_sentinel_uri("rediss+sentinel://:secret@s1/m")) == "rediss+sentinel://s1:26379/m");
}

TEST_CASE("a URI of Sentinels that is wrong is refused with a message that names the part") {
    struct bad_case {
        const char* text;
        const char* part;  // of the message
    };
    std::string many = "redis+sentinel://canary0";
    for (int i = 1; i <= 32; ++i) many += ",canary" + std::to_string(i);
    const auto cases = std::vector<bad_case>{
        {"", "empty"},
        {"redis+sentinel://canary/m ", "space"},
        {"redis+sentinel://canary#/m", "%23"},
        {"canary/m", "://"},
        {"redis://canary/0", "not of Sentinels"},
        {"+sentinel://canary/m", "not of Sentinels"},
        {"sentinel://canary/m", "not of Sentinels"},
        {"redis+cluster://canary/m", "not of Sentinels"},
        {"http+sentinel://canary/m", "scheme is unknown"},
        {"redis+cluster+sentinel://canary/m", "is for a distlock::cluster_connection"},
        {"unix+sentinel:///canary/m", "no host"},
        {"unix+sentinel://canary/m", "no host"},
        {"redis+sentinel://redis+sentinel://canary/m", "two schemes"},
        {"redis+sentinel://a,redis://canary/m", "two schemes"},
        {"redis+sentinel://a:1,rediss+sentinel://canary:1/m", "two schemes"},
        // Sentinels.
        {"redis+sentinel://", "no host"},
        {"redis+sentinel:///canary", "no host"},
        {"redis+sentinel://user:canary@/m", "no host"},
        {"redis+sentinel://,canary/m", "no host"},
        {"redis+sentinel://canary,/m", "no host"},
        {"redis+sentinel://a,,canary/m", "no host"},
        {"redis+sentinel://a,:1/canary", "no host"},
        {"redis+sentinel://a,canary:0/m", "port"},
        {"redis+sentinel://a,canary:/m", "port"},
        {"redis+sentinel://a,[::1/m", "never closed"},
        {"redis+sentinel://a,canary%20/m", "host is no name"},
        {"redis+sentinel://canary,b,canary:26379/m", "named twice"},
        {many.append("/m").c_str(), "more than 32"},
        // Credentials of the masters.
        {"redis+sentinel://canary@a/m", "':' before the '@'"},
        {"redis+sentinel://canary:@a/m", "password is empty"},
        {"redis+sentinel://a:canary@b,c:canary@d/m", "two '@'"},
        {"redis+sentinel://a:b@s1/can@ry", "behind a '/'"},
        // The master.
        {"redis+sentinel://canary", "name of the master"},
        {"redis+sentinel://canary/", "name of the master"},
        {"redis+sentinel://canary?db=2", "name of the master"},
        {"redis+sentinel://a/canary/2", "name of the master"},
        {"redis+sentinel://a/canary%00", "name of the master"},
        {"redis+sentinel://a/canary%2", "name of the master"},
        {"redis+sentinel://a/canary,b", "name of the master"},
        // Options.
        {"redis+sentinel://a/m?db=canary", "database"},
        {"redis+sentinel://a/m?canary=1", "unknown"},
        {"redis+sentinel://a/m?db=1&", "unknown"},
        {"redis+sentinel://a/m?sentinel_canary=1", "sentinel_user and sentinel_password"},
        {"redis+sentinel://a/m?sentinel_user=canary", "no sentinel_password"},
        {"redis+sentinel://a/m?sentinel_password=", "is empty"},
        {"redis+sentinel://a/m?sentinel_password", "is empty"},
        {"redis+sentinel://a/m?sentinel_user=&sentinel_password=canary", "is empty"},
        {"redis+sentinel://a/m?sentinel_password=canary%2", "sentinel_password has a '%'"},
        {"redis+sentinel://a/m?sentinel_password=canary&sentinel_password=b", "given twice"},
        {"redis+sentinel://a/m?sentinel_user=a&sentinel_password=canary&sentinel_user=b", "given twice"},
    };
    for (const auto& [text, part] : cases) {
        INFO(text);
        const auto said = refusal(text);
        CHECK_THAT(said, contains_text(part));
        CHECK(said.find("canary") == std::string::npos);
    }
}

}  // namespace sentinel_uri_tests
