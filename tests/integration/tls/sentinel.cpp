// Sentinels and masters over TLS: each is verified like any server, also a master that only Sentinels name.
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis_tls.hpp>
#include <distlock/testing.hpp>

#include "integration/tls/certificates.hpp"
#include "integration/tls/servers.hpp"
#include "support/catch.hpp"
#include "support/sentinels.hpp"
#include "support/server_counts.hpp"
#include "support/waiting.hpp"

namespace sentinel_tests {

using namespace std::chrono_literals;
using distlock::errc;
using distlock::sentinel_connection;
using distlock::testing::redis_server;
using servers::tls_is_wanted;
using servers::trusting_ca;

namespace {

const certificates::set& all() { return certificates::set::get(); }

std::vector<std::string> over_tls(std::vector<std::string> more) {
    more.insert(more.end(), {"--tls-replication", "yes", "--tls-ca-cert-file", all().ca.certificate_file});
    return more;
}

/// A server with the password "secret", and perhaps a master.
servers::real server(const certificates::identity& shown, std::vector<std::string> more = {}) {
    more.insert(more.end(),
                {"--requirepass", "secret", "--masterauth", "secret", "--repl-diskless-sync-delay", "0"});
    return servers::real(shown, over_tls(std::move(more)));
}

/// Three Sentinels that speak TLS only, and watch that master. Those that may not log in to it only name it.
class watchers {
  public:
    explicit watchers(const servers::real& master, bool log_in = true) {
        for (int i = 0; i < 3; ++i) {
            all_.push_back(std::make_unique<servers::real>(all().address, over_tls({"--sentinel"})));
            const auto& one = all_.back()->plain();
            REQUIRE(one.command({"SENTINEL", "MONITOR", "m", "127.0.0.1", master.port(), "2"}) == "OK");
            REQUIRE(one.command({"SENTINEL", "SET", "m", "failover-timeout", "3000"}) == "OK");
            if (log_in) REQUIRE(one.command({"SENTINEL", "SET", "m", "auth-pass", "secret"}) == "OK");
        }
    }
    std::string uri() const {
        std::string made = "rediss+sentinel://:secret@";
        for (const auto& one : all_) made += (&one == &all_[0] ? "127.0.0.1:" : ",127.0.0.1:") + one->port();
        return made + "/m?connect_timeout=10s&command_timeout=10s";  // however late the machine is
    }
    redis_server& first() const { return all_[0]->plain(); }
    /// Returns: whether all know each other, and a replica.
    bool acquainted() const {
        return eventually(
            [&] {
                for (const auto& one : all_) {
                    const auto known = one->plain().command({"SENTINEL", "MASTER", "m"});
                    if (known.find("num-slaves\n1\n") == std::string::npos ||
                        known.find("num-other-sentinels\n2\n") == std::string::npos)
                        return false;
                }
                return true;
            },
            60s);
    }

  private:
    std::vector<std::unique_ptr<servers::real>> all_;
};

/// Returns: how often somebody else than this function logged in there.
long logins(redis_server& there) { return calls_at(there, "auth") - 1; }

}  // namespace

TEST_CASE(
    "a lock over TLS goes to the master that Sentinels name over TLS, and follows it while it is held") {
    NOT_TESTED_UNLESS(tls_is_wanted(), "DISTLOCK_TEST_WITHOUT_TLS=1");
    auto first = server(all().address);
    auto second = server(all().address, {"--replicaof", "127.0.0.1 " + first.port()});
    const watchers group(first);
    REQUIRE(group.acquainted());
    sentinel_connection redis{group.uri(), trusting_ca()};
    distlock::mutex m{redis, "orders", {.lease = 60s, .patience = 30s, .release = distlock::confirmed}};
    m.lock();
    CHECK(first.plain().command({"EXISTS", "orders"}) == "1");
    REQUIRE(eventually([&] { return second.plain().command({"EXISTS", "orders"}) == "1"; }));
    REQUIRE(eventually([&] { return group.first().command({"SENTINEL", "FAILOVER", "m"}) == "OK"; }));
    REQUIRE(eventually([&] { return sentinels::ask(second.plain(), {"ROLE"}).starts_with("master"); }, 60s));
    REQUIRE(eventually([&] { return sentinels::ask(first.plain(), {"ROLE"}).starts_with("slave"); }, 60s));
    CHECK(eventually([&] { return redis.execute({"SET", "x", "y"}).is_status("OK"); }));
    CHECK(m.owns_lock());
    CHECK(m.unlock() == distlock::release_outcome::released);
    CHECK(sentinels::ask(second.plain(), {"EXISTS", "orders"}) == "0");
}

TEST_CASE("a master that Sentinels name gets no password before it has shown a certificate for its address") {
    NOT_TESTED_UNLESS(tls_is_wanted(), "DISTLOCK_TEST_WITHOUT_TLS=1");
    for (const auto* const shown : {&all().wrong_host, &all().wrong_ca, &all().expired, &all().address}) {
        INFO(shown->certificate_file);
        auto master = server(*shown);
        const watchers group(master, false);
        sentinel_connection redis{group.uri(), trusting_ca()};
        const auto before = logins(master.plain());
        const auto said = redis.execute({"SET", "x", "y"});
        const auto meanwhile = logins(master.plain()) - before - 1;  // without that of the count before
        if (shown == &all().address) {
            CHECK(said.is_status("OK"));
            CHECK(meanwhile == 1);
            continue;
        }
        CHECK(said.is(distlock::reply_kind::not_sent));
        CHECK(said.cause() == errc::tls_failed);
        CHECK_THAT(said.text(), contains_text("127.0.0.1:" + master.port()) && contains_text("certificate"));
        CHECK(meanwhile == 0);
    }
}

TEST_CASE("a Sentinel gets no password before it has shown a certificate for its address") {
    NOT_TESTED_UNLESS(tls_is_wanted(), "DISTLOCK_TEST_WITHOUT_TLS=1");
    std::string received;
    const auto talk = [&](servers::scripted::peer& p) {
        servers::in_memory session(all().wrong_host);
        while (p.open()) {
            const auto bytes = p.receive();
            if (bytes.empty() || !p.send(session.step(bytes))) break;
        }
        received += session.received;
    };
    std::string text;
    {
        const servers::scripted stranger(talk);
        sentinel_connection redis{"rediss+sentinel://:secret@127.0.0.1:" + stranger.port() +
                                      "/m?sentinel_password=hidden&connect_timeout=5s",
                                  trusting_ca()};
        const auto said = redis.execute({"SET", "x", "y"});
        CHECK(said.is(distlock::reply_kind::not_sent));
        CHECK(said.cause() == errc::tls_failed);
        text = said.text();
        CHECK_THAT(text, contains_text("no Sentinel says who the master is") &&
                             contains_text("certificate") && contains_text("127.0.0.1:" + stranger.port()));
        CHECK_FALSE(stranger.seen().empty());  // the beginning of a handshake
    }
    CHECK(received.empty());
    CHECK(text.find("secret") == std::string::npos);
    CHECK(text.find("hidden") == std::string::npos);
}

}  // namespace sentinel_tests
