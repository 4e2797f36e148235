// URIs of a Cluster: several hosts, no database, and what is refused.
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/net/cluster_uri.hpp>
#include <distlock/net/uri.hpp>

#include "support/catch.hpp"

namespace cluster_uri_tests {

using namespace std::chrono_literals;
using distlock::cluster_uri;
using distlock::errc;
using distlock::parse_cluster_uri;
using distlock::uri;
using distlock::uri_scheme;

TEST_CASE("the nodes of a Cluster differ in host and port only") {
    const auto where = parse_cluster_uri(
        "redis+cluster://worker:s%2cecret@n1:7000,n2,[::1]:7002?command_timeout=100ms&max_idle=4");
    const auto& nodes = where.nodes;
    REQUIRE(nodes.size() == 3);
    CHECK(nodes[0].host == "n1");
    CHECK(nodes[0].port == 7000);
    CHECK(nodes[1].host == "n2");
    CHECK(nodes[1].port == 6379);
    CHECK(nodes[2].host == "::1");
    CHECK(nodes[2].port == 7002);
    for (const uri& one : nodes) {
        CHECK(one.scheme == uri_scheme::tcp);
        CHECK(one.user == "worker");
        CHECK(one.password == "s,ecret");
        CHECK(one.command_timeout == 100ms);
        CHECK(one.max_idle == 4);
    }
    CHECK(redacted(where) == "redis+cluster://worker@n1:7000,n2:6379,[::1]:7002");
    // It comes into messages and logs.
    CHECK(redacted(parse_cluster_uri("redis+cluster://a%1b%40b:secret@n1")) ==
          "redis+cluster://a%1B%40b@n1:6379");
}

TEST_CASE("rediss+cluster is TLS, and valkey the same as redis") {
    CHECK(parse_cluster_uri("rediss+cluster://n1").nodes[0].scheme == uri_scheme::tls);
    CHECK(parse_cluster_uri("valkey+cluster://n1").nodes[0].scheme == uri_scheme::tcp);
    CHECK(parse_cluster_uri("valkeys+cluster://n1").nodes[0].scheme == uri_scheme::tls);
    CHECK(redacted(parse_cluster_uri("rediss+cluster://:secret@n1")) == "rediss+cluster://n1:6379");
    CHECK(parse_cluster_uri("redis+cluster://n1/0").nodes.size() == 1);
}

TEST_CASE("a URI that names no Cluster is refused, and nothing of it is shown") {
    for (const std::string text : {"",
                                   "redis://secret:6379",
                                   "redis+sentinel://secret",
                                   "cluster://secret",
                                   "redis+cluster:secret",
                                   "+cluster://secret",
                                   "redis+cluster://",
                                   "redis+cluster:///",
                                   "redis+cluster://?db=0",
                                   "redis+cluster://,secret",
                                   "redis+cluster://secret,",
                                   "redis+cluster://secret,,b",
                                   "redis+cluster://:7000",
                                   "redis+cluster://user:secret@",
                                   "redis+cluster://user:secret@,b",
                                   "redis+cluster://secret/2",
                                   "redis+cluster://secret?db=2",
                                   "redis+cluster://secret,redis+cluster://b",
                                   "redis+cluster+cluster://secret",
                                   "unix+cluster://secret",
                                   "unix+cluster:///secret",
                                   "redis+cluster://secret:0,b",
                                   "redis+cluster://a,secret:x",
                                   "redis+cluster://a:secret@b@c",
                                   "redis+cluster://secret@b",
                                   "x://redis+cluster://secret",
                                   "redis+cluster://a b",
                                   "redis+cluster://a?secret=1",
                                   "redis+cluster://secret,secret"}) {
        INFO(text);
        try {
            static_cast<void>(parse_cluster_uri(text));
            FAIL_CHECK("it was accepted");
        } catch (const distlock::error& e) {
            CHECK(e.code() == errc::invalid_uri);
            CHECK(std::string_view(e.what()).find("secret") == std::string_view::npos);
        }
    }
}

TEST_CASE("an error about a URI that names no Cluster says which part is wrong") {
    const auto said = [](const std::string& text) -> std::string {
        try {
            static_cast<void>(parse_cluster_uri(text));
        } catch (const distlock::error& e) {
            return e.what();
        }
        return "nothing";
    };
    CHECK_THAT(said("redis+cluster://"), contains_text("no host"));
    CHECK_THAT(said("redis+cluster://n1,:7000"), contains_text("no host"));
    CHECK_THAT(said("redis+cluster://redis+cluster://n1"), contains_text("two schemes"));
    CHECK_THAT(said("redis+cluster://n1,redis+cluster://n2"), contains_text("two schemes"));
    CHECK_THAT(said("redis+sentinel+cluster://n1"), contains_text("is for a distlock::sentinel_connection"));
    CHECK_THAT(said("redis+sentinel://n1/m"), contains_text("not of a cluster"));
    CHECK_THAT(said("redis+cluster://n1/2"), contains_text("no databases"));
    CHECK_THAT(said("redis+cluster://n1?db=2"), contains_text("no databases"));
    CHECK_THAT(said("redis+cluster://n1/m"), contains_text("database"));
    CHECK_THAT(said("redis+cluster://n1:x"), contains_text("port"));
    CHECK_THAT(said("redis+cluster://n1,n1"), contains_text("named twice"));
}

TEST_CASE("a URI of a Cluster that was filled in by hand is checked, too") {
    const uri node{.host = "n1", .port = 7000};
    const auto refused = [](const cluster_uri& where) {
        try {
            check_uri(where);
        } catch (const distlock::error& e) {
            return e.code() == errc::invalid_uri;
        }
        return false;
    };
    uri other = node;
    other.port = 7001;
    CHECK_FALSE(refused({{node, other}}));
    CHECK(refused({}));
    CHECK(refused({std::vector<uri>(1025, node)}));
    CHECK_FALSE(refused({std::vector<uri>(1024, node)}));
    for (const auto& spoil : std::vector<void (*)(uri&)>{
             [](uri& u) { u.database = 1; }, [](uri& u) { u.port = 0; }, [](uri& u) { u.password = "other"; },
             [](uri& u) { u.scheme = uri_scheme::tls; }, [](uri& u) { u.max_idle = 3; },
             [](uri& u) {
                 u.scheme = uri_scheme::unix_socket;
                 u.path = "/socket";
             }}) {
        uri wrong = other;
        spoil(wrong);
        CHECK(refused({{node, wrong}}));
    }
}

}  // namespace cluster_uri_tests
