// A Cluster over TLS: its nodes are verified like any server, also those that only another node names.
#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <distlock/distlock.hpp>
#include <distlock/hiredis_tls.hpp>
#include <distlock/testing.hpp>

#include "integration/tls/certificates.hpp"
#include "integration/tls/servers.hpp"
#include "support/catch.hpp"
#include "support/fake_server.hpp"
#include "support/waiting.hpp"

namespace cluster_tests {

using namespace std::chrono_literals;
using distlock::cluster_connection;
using lock = distlock::mutex<cluster_connection>;
using servers::tls_is_wanted;
using servers::trusting_ca;

namespace {

const certificates::set& all() { return certificates::set::get(); }

/// A Cluster of one node, which has the password "secret".
class node {
  public:
    explicit node(const certificates::identity& shown)
        : server(shown, {"--cluster-enabled", "yes", "--tls-cluster", "yes", "--tls-ca-cert-file",
                         all().ca.certificate_file, "--cluster-port",
                         std::to_string(distlock::testing::impl::unused_port()), "--requirepass", "secret"}) {
        REQUIRE(server.plain().command({"CLUSTER", "ADDSLOTSRANGE", "0", "16383"}) == "OK");
        REQUIRE(eventually([&] {
            return server.plain().command({"CLUSTER", "INFO"}).find("cluster_state:ok") != std::string::npos;
        }));
    }
    std::string uri() const { return "rediss+cluster://:secret@127.0.0.1:" + server.port(); }

    servers::real server;
};

}  // namespace

TEST_CASE("locks on a Cluster over TLS are handed over by messages") {
    NOT_TESTED_UNLESS(tls_is_wanted(), "DISTLOCK_TEST_WITHOUT_TLS=1");
    node one(all().address);
    cluster_connection first{one.uri(), trusting_ca()};
    cluster_connection second{one.uri(), trusting_ca()};
    const distlock::lock_options by_message_only{.lease = 1h, .recheck = 1h};
    lock owner{first, "orders", by_message_only};
    lock next{second, "orders", by_message_only};
    owner.lock();
    bool served = false;
    std::jthread waiter([&] {
        served = next.try_lock_for(20s);
        if (served) next.unlock();
    });
    CHECK(eventually([&] {
        return one.server.plain().command({"ZCARD", "{orders}:distlock:queue"}) == "1";
    }));
    owner.unlock();
    waiter.join();
    CHECK(served);
}

TEST_CASE("a node that another one names gets no password before it has shown its certificate") {
    NOT_TESTED_UNLESS(tls_is_wanted(), "DISTLOCK_TEST_WITHOUT_TLS=1");
    fake_server stranger([](fake_server::peer& p) { p.wait_for_end(); });
    const servers::scripted node([&](servers::scripted::peer& p) {
        servers::in_memory session(all().address);
        while (p.open()) {
            const auto bytes = p.receive();
            if (bytes.empty() || !p.send(session.step(bytes))) return;
            const auto said = std::exchange(session.received, {});
            if (said.empty()) continue;
            const bool login = said.find("AUTH") != std::string::npos;
            p.send(session.say(login ? "+OK\r\n"
                                     : "-MOVED 105 127.0.0.1:" + std::to_string(stranger.port()) + "\r\n"));
        }
    });
    cluster_connection redis{"rediss+cluster://:secret@127.0.0.1:" + node.port() + "?connect_timeout=1s",
                             trusting_ca()};
    const distlock::command get{"GET", std::string_view("orders")};
    const auto answer = redis.execute(get);
    CHECK(answer.is(distlock::reply_kind::not_sent));
    CHECK(stranger.accepted() > 0);
    CHECK_FALSE(stranger.received().empty());  // the beginning of a handshake
    CHECK(stranger.received().find("secret") == std::string::npos);
    CHECK(stranger.received().find("AUTH") == std::string::npos);
}

}  // namespace cluster_tests
