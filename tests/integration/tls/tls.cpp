// rediss:// against real servers and impostors: who is accepted, what is said of the others,
// and how long it takes.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis_tls.hpp>

#include "integration/tls/certificates.hpp"
#include "integration/tls/servers.hpp"
#include "support/catch.hpp"
#include "support/said_by.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace tls_tests {

using namespace std::chrono_literals;
using distlock::errc;
using distlock::hiredis_connection;
using distlock::reply;
using distlock::reply_kind;
using distlock::tls_options;
using servers::tls_is_wanted;

namespace {

const certificates::set& all() { return certificates::set::get(); }

tls_options trusting_ca() { return {.ca_file = all().ca.certificate_file}; }

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

std::chrono::milliseconds since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start);
}

// Returns: what lock() throws; its code goes to `code`.
std::string lock_failure(hiredis_connection& redis, std::error_code& code) {
    code.clear();
    distlock::mutex m{redis, "orders:42", {.patience = 0ms}};
    try {
        m.lock();
    } catch (const distlock::error& failed) {
        code = failed.code();
        return failed.what();
    }
    return {};
}

errc construction_error(const std::string& where, std::shared_ptr<const distlock::secure_layer> secure) {
    try {
        const hiredis_connection refused(where, std::move(secure));
    } catch (const distlock::error& failed) {
        return static_cast<errc>(failed.code().value());
    }
    return {};
}

// Checks that nobody gets past the TLS handshake of the server on `port`, in time, and
// without a word leaking.
void check_refused(const servers::scripted& server, std::string_view because, errc cause = errc::tls_failed) {
    constexpr auto canary = "canary-password";
    hiredis_connection redis(
        "rediss://user:" + std::string(canary) + "@127.0.0.1:" + server.port() + "/3?connect_timeout=300ms",
        distlock::tls(trusting_ca()));
    const auto start = std::chrono::steady_clock::now();
    const reply answer = redis.execute({"PING"});
    CHECK(since(start) < 300ms + 5 * timing_tolerance);
    CHECK(answer.kind() == reply_kind::not_sent);
    CHECK(answer.cause() == cause);
    CAPTURE(answer.text());
    CHECK(contains(answer.text(), because));
    CHECK_FALSE(contains(answer.text(), canary));

    std::error_code code;
    const auto again = std::chrono::steady_clock::now();
    const std::string said = lock_failure(redis, code);
    CHECK(since(again) <
          300ms + 5 * timing_tolerance);  // the second command asks after the first that was not sent
    CHECK(code == cause);
    CHECK_FALSE(contains(said, canary));

    const std::string seen = server.seen();
    REQUIRE_FALSE(seen.empty());
    CHECK(seen.front() == 22);  // a TLS handshake
    for (const std::string_view secret : {canary, "AUTH", "SELECT", "orders:42", "PING"})
        CHECK_FALSE(contains(seen, secret));
}

}  // namespace

TEST_CASE("the good one of six certificates and the one for the address are accepted, each by its own name") {
    NOT_TESTED_UNLESS(tls_is_wanted(), "DISTLOCK_TEST_WITHOUT_TLS=1");
    struct row {
        const certificates::identity& shown;
        std::string name;     // of the server; empty: the address in the URI
        std::string because;  // empty: accepted
    };
    for (const row& r : {
             row{all().good, "localhost", ""},
             row{all().good, "", "not for 127.0.0.1"},
             row{all().address, "", ""},
             row{all().address, "localhost", "not for localhost"},
             row{all().wrong_host, "localhost", "not for localhost"},
             row{all().wrong_ca, "localhost", "unable to get local issuer certificate"},
             row{all().wrong_ca, "", "unable to get local issuer certificate"},
             row{all().expired, "localhost", "certificate has expired"},
             row{all().expired, "", "certificate has expired"},
             row{all().self_signed, "localhost", "self-signed certificate"},
             row{all().self_signed, "", "self-signed certificate"},
         }) {
        CAPTURE(r.shown.certificate_file, r.name);
        servers::real server(r.shown);
        hiredis_connection redis(
            server.uri(), distlock::tls({.ca_file = all().ca.certificate_file, .server_name = r.name}));
        const auto start = std::chrono::steady_clock::now();
        std::error_code code;
        const std::string said = lock_failure(redis, code);
        CHECK(since(start) < 650ms);
        if (r.because.empty()) {
            CHECK(said.empty());
            CHECK(redis.execute({"PING"}).is_status("PONG"));
        } else {
            CAPTURE(said);
            CHECK(code == errc::tls_failed);
            CHECK(contains(said, r.because));
            CHECK(contains(said, server.uri()));
            CHECK(server.plain().command({"INFO", "commandstats"}).find("cmdstat_set:") == std::string::npos);
        }
    }
}

TEST_CASE("a rediss URI without tls, and tls without a rediss URI, are refused at construction") {
    CHECK(construction_error("rediss://localhost", nullptr) == errc::tls_unavailable);
    CHECK(construction_error("valkeys://localhost", nullptr) == errc::tls_unavailable);
    const auto secure = distlock::tls();
    CHECK(construction_error("redis://localhost", secure) == errc::invalid_uri);
    CHECK(construction_error("unix:///run/redis.sock", secure) == errc::invalid_uri);
    CHECK(construction_error("rediss://localhost", secure) == errc{});
    try {
        const hiredis_connection refused("rediss://localhost");
        FAIL("it was accepted");
    } catch (const distlock::error& failed) {
        CHECK(contains(failed.what(), "distlock::tls"));
        CHECK(contains(failed.what(), "distlock::hiredis_tls"));
    }
}

TEST_CASE("locks are taken and released over TLS, by several threads, two hundred times each") {
    NOT_TESTED_UNLESS(tls_is_wanted(), "DISTLOCK_TEST_WITHOUT_TLS=1");
    servers::real server(all().address);
    hiredis_connection redis(server.uri() + "/2?command_timeout=5s", distlock::tls(trusting_ca()));
    const auto how = GENERATE(distlock::posted, distlock::confirmed);
    const auto done =
        how == distlock::posted ? distlock::release_outcome::posted : distlock::release_outcome::released;
    distlock::mutex shared{redis, "shared", {.release = how}};
    int counter = 0;
    std::atomic<int> failures{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            try {
                distlock::mutex own{redis, "own:" + std::to_string(t), {.release = how}};
                for (int i = 0; i < 200; ++i) {
                    own.lock();
                    if (own.unlock() != done) ++failures;
                }
                for (int i = 0; i < 20; ++i) {
                    shared.lock();
                    ++counter;
                    const auto what = shared.unlock();  // released, where it was passed on to another thread
                    if (what != done && what != distlock::release_outcome::released) ++failures;
                }
            } catch (const std::exception&) {
                ++failures;
            }
        });
    }
    for (auto& t : threads) t.join();
    CHECK(failures == 0);
    CHECK(counter == 80);
    const auto nothing_is_left = [&] {
        return server.plain().command({"INFO", "keyspace"}).find("db") == std::string::npos;
    };
    CHECK((how == distlock::posted ? eventually(nothing_is_left) : nothing_is_left()));
    // Sockets are kept: TLS handshakes are dear.
    const std::string stats = server.plain().command({"INFO", "stats"});
    const auto at = stats.find("total_connections_received:");
    REQUIRE(at != std::string::npos);
    CHECK(std::stoi(stats.substr(at + 27)) < 20);
}

TEST_CASE("a reply is cut off at its cap, and a large command passes, over TLS too") {
    NOT_TESTED_UNLESS(tls_is_wanted(), "DISTLOCK_TEST_WITHOUT_TLS=1");
    servers::real server(all().address);
    hiredis_connection redis(server.uri(), distlock::tls(trusting_ca()));
    const std::string large(60'000, 'x');
    CHECK(redis.execute({"SET", "large", large}).is_status("OK"));
    CHECK((redis.execute({"GET", "large"}).text() == large));
    const std::string too_large(1'000'000, 'x');
    CHECK(redis.execute({"SET", "large", too_large}).is_status("OK"));
    CHECK(redis.execute({"GET", "large"}).cause() == errc::reply_too_large);
    CHECK(redis.execute({"PING"}).is_status("PONG"));
}

TEST_CASE("a password is sent inside the session, and a wrong one is an error that does not show it") {
    NOT_TESTED_UNLESS(tls_is_wanted(), "DISTLOCK_TEST_WITHOUT_TLS=1");
    servers::real server(all().address, {"--requirepass", "right-word"});
    const auto secure = distlock::tls(trusting_ca());
    hiredis_connection knows("rediss://:right-word@127.0.0.1:" + server.port(), secure);
    CHECK(knows.execute({"PING"}).is_status("PONG"));
    hiredis_connection guesses("rediss://:wrong-word@127.0.0.1:" + server.port(), secure);
    const reply answer = guesses.execute({"PING"});
    CHECK(answer.cause() == errc::authentication_failed);
    CHECK_FALSE(contains(answer.text(), "wrong-word"));
}

TEST_CASE("a server that speaks only TLS 1.2, or only 1.3, is fine") {
    NOT_TESTED_UNLESS(tls_is_wanted(), "DISTLOCK_TEST_WITHOUT_TLS=1");
    for (const char* const version : {"TLSv1.2", "TLSv1.3"}) {
        servers::real server(all().address, {"--tls-protocols", version});
        hiredis_connection redis(server.uri(), distlock::tls(trusting_ca()));
        for (int i = 0; i < 5; ++i) CHECK(redis.execute({"PING"}).is_status("PONG"));
    }
}

TEST_CASE("a server that asks for a certificate gets the one that is set, and turns others away") {
    NOT_TESTED_UNLESS(tls_is_wanted(), "DISTLOCK_TEST_WITHOUT_TLS=1");
    for (const char* const version : {"TLSv1.2", "TLSv1.3"}) {
        servers::real server(all().address, {"--tls-auth-clients", "yes", "--tls-ca-cert-file",
                                             all().ca.certificate_file, "--tls-protocols", version});
        const auto showing = [](const certificates::identity& mine) {
            return distlock::tls({.ca_file = all().ca.certificate_file,
                                  .certificate_file = mine.certificate_file,
                                  .key_file = mine.key_file});
        };
        hiredis_connection known(server.uri(), showing(all().for_clients));
        CHECK(known.execute({"PING"}).is_status("PONG"));
        hiredis_connection chained(server.uri(), showing(all().under_intermediate));
        CHECK(chained.execute({"PING"}).is_status("PONG"));
        hiredis_connection nobody(server.uri(), distlock::tls(trusting_ca()));
        hiredis_connection foreign(server.uri(), showing(all().foreign_client));
        for (hiredis_connection* const turned_away : {&nobody, &foreign}) {
            const auto start = std::chrono::steady_clock::now();
            std::error_code code;
            const std::string said = lock_failure(*turned_away, code);
            CAPTURE(version, said);
            CHECK(since(start) < 650ms);
            CHECK(code == errc::tls_failed);
            CHECK(contains(said, "alert"));
        }
        CHECK(server.plain().command({"EXISTS", "orders:42"}) == "0");
    }
}

#ifdef DISTLOCK_TLS_EXAMPLE

TEST_CASE("the example of TLS locks at a server that it trusts, and says why it does not at another") {
    NOT_TESTED_UNLESS(tls_is_wanted(), "DISTLOCK_TEST_WITHOUT_TLS=1");
    servers::real server(all().address,
                         {"--tls-auth-clients", "yes", "--tls-ca-cert-file", all().ca.certificate_file});
    const auto call =
        std::string(DISTLOCK_TLS_EXAMPLE) + " " + server.uri() + " " + all().ca.certificate_file;
    const auto& mine = all().for_clients;
    CHECK(said_by(call + " " + mine.certificate_file + " " + mine.key_file) == "locked\n");
    CHECK(contains(said_by(call), "alert"));
    CHECK(said_by(DISTLOCK_TLS_EXAMPLE).starts_with("usage: "));
}

#endif

TEST_CASE("a server that turns a client away only after the handshake has not been sent a command") {
    // In TLS 1.3 the handshake is over for the client before the server has seen its certificate.
    const servers::scripted server([](auto& peer) {
        servers::in_memory strict(all().address, TLS1_3_VERSION);
        ::SSL_set_verify(strict.ssl(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
        peer.send(strict.step(peer.receive()));
        std::string rest = peer.receive();  // the end of the handshake
        for (std::string more = " "; !more.empty(); rest += more)
            more = peer.receive(50ms);  // and what follows it
        peer.send(strict.step(rest));
    });
    for (const char* const credentials : {"", ":word@"}) {
        hiredis_connection redis("rediss://" + std::string(credentials) + "127.0.0.1:" + server.port(),
                                 distlock::tls(trusting_ca()));
        const reply answer = redis.execute({"SET", "orders:42", "value"});
        CAPTURE(answer.text());
        CHECK(answer.kind() == reply_kind::not_sent);
        CHECK(answer.cause() == errc::tls_failed);
        CHECK(contains(answer.text(), "certificate required"));
    }
}

TEST_CASE("a restarted server is connected to anew") {
    NOT_TESTED_UNLESS(tls_is_wanted(), "DISTLOCK_TEST_WITHOUT_TLS=1");
    servers::real server(all().address);
    hiredis_connection redis(server.uri(), distlock::tls(trusting_ca()));
    const auto how = GENERATE(distlock::posted, distlock::confirmed);
    const auto done =
        how == distlock::posted ? distlock::release_outcome::posted : distlock::release_outcome::released;
    distlock::mutex m{redis, "orders:42", {.release = how}};
    m.lock();
    CHECK(m.unlock() == done);
    server.plain().restart();
    m.lock();
    CHECK(m.unlock() == done);
    CHECK(eventually([&] { return m.residual() == 0ms; }));
}

TEST_CASE("a child that ends after fork leaves its parent's session as it was") {
    NOT_TESTED_UNLESS(tls_is_wanted(), "DISTLOCK_TEST_WITHOUT_TLS=1");
    servers::real server(all().address);
    auto redis = std::make_unique<hiredis_connection>(server.uri(), distlock::tls(trusting_ca()));
    REQUIRE(redis->execute({"PING"}).is_status("PONG"));
    const reply before = redis->execute({"CLIENT", "ID"});
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const bool refused = redis->execute({"PING"}).cause() == errc::wrong_process;
        redis.reset();
        ::_exit(refused ? 0 : 1);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(redis->execute({"CLIENT", "ID"}).is_integer(before.number()));
}

TEST_CASE("a plain-text server gets a handshake and nothing else: neither password nor command") {
    SECTION("that complains") {
        const servers::scripted server([](auto& peer) {
            peer.receive();
            peer.send("-ERR unknown command\r\n");
            while (peer.open()) peer.receive();
        });
        check_refused(server, "does not speak TLS on this port");
    }
    SECTION("that greets first") {
        const servers::scripted server([](auto& peer) {
            peer.send("+HELLO\r\n");
            while (peer.open()) peer.receive();
        });
        check_refused(server, "does not speak TLS on this port");
    }
    SECTION("that waits for the end of a line") {
        const servers::scripted server([](auto& peer) {
            while (peer.open()) peer.receive();
        });
        check_refused(server, "does it speak TLS on this port?", errc::no_reply);
    }
    SECTION("that hangs up") {
        const servers::scripted server([](auto& peer) { peer.receive(); });
        check_refused(server, "does it speak TLS on this port?", errc::unreachable);
    }
}

TEST_CASE("the handshake of a real plain-text port ends in time") {
    distlock::testing::redis_server_options options;
    options.tcp = true;
    const distlock::testing::redis_server server{options};
    hiredis_connection redis("rediss://127.0.0.1:" + std::to_string(server.port()) + "?connect_timeout=300ms",
                             distlock::tls(trusting_ca()));
    const auto start = std::chrono::steady_clock::now();
    const reply answer = redis.execute({"SET", "k", "v"});
    CHECK(since(start) < 300ms + 5 * timing_tolerance);
    CHECK(answer.kind() == reply_kind::not_sent);
    CHECK(answer.cause() == errc::no_reply);
    CHECK(server.command({"DBSIZE"}) == "0");
}

TEST_CASE("a handshake has the time that the URI gives it") {
    const servers::scripted server([](auto& peer) {
        while (peer.open()) peer.receive();
    });
    hiredis_connection redis("rediss://127.0.0.1:" + server.port() + "?connect_timeout=1500ms",
                             distlock::tls(trusting_ca()));
    const auto start = std::chrono::steady_clock::now();
    CHECK(redis.execute({"PING"}).cause() == errc::no_reply);
    CHECK(since(start) >= 1500ms);
    CHECK(since(start) < 1500ms + 5 * timing_tolerance);
}

TEST_CASE("a handshake that hangs, drips, floods or breaks off ends in time") {
    SECTION("hangs after the first record header") {
        const servers::scripted server([](auto& peer) {
            peer.receive();
            peer.send(std::string("\x16\x03\x03\x40\x00", 5));
            while (peer.open()) peer.receive();
        });
        check_refused(server, "no handshake in time", errc::no_reply);
    }
    SECTION("drips") {
        const servers::scripted server([](auto& peer) {
            peer.receive();
            peer.send(std::string("\x16\x03\x03\x40\x00", 5));
            while (peer.open() && peer.send("\x02")) peer.receive(5ms);
        });
        check_refused(server, "no handshake in time", errc::no_reply);
    }
    SECTION("floods") {
        const servers::scripted server([](auto& peer) {
            peer.receive();
            std::string hello_requests;
            for (int i = 0; i < 5000; ++i) hello_requests.append("\x16\x03\x03\x00\x04\x00\x00\x00\x00", 9);
            while (peer.send(hello_requests)) continue;
        });
        check_refused(server, "does not end");
    }
    SECTION("breaks off in the middle of a message") {
        const servers::scripted server([](auto& peer) {
            peer.receive();
            peer.send(std::string("\x16\x03\x03\x40\x00\x02\x00", 7));
        });
        check_refused(server, "closed the connection", errc::unreachable);
    }
    SECTION("breaks off in the middle of the server's first flight") {
        const servers::scripted server([](auto& peer) {
            servers::in_memory good(all().address);
            const std::string flight = good.step(peer.receive());
            peer.send(std::string_view(flight).substr(0, flight.size() / 2));
        });
        check_refused(server, "closed the connection", errc::unreachable);
    }
    SECTION("breaks off after half of a large chain of certificates") {
        const servers::scripted server([](auto& peer) {
            servers::in_memory good(all().address, TLS1_2_VERSION, TLS1_2_VERSION);
            for (int i = 0; i < 100; ++i) {
                ::X509_up_ref(all().ca.certificate.get());
                ::SSL_add0_chain_cert(good.ssl(), all().ca.certificate.get());
            }
            const std::string flight = good.step(peer.receive());
            peer.send(std::string_view(flight).substr(0, flight.size() / 2));
        });
        check_refused(server, "closed the connection", errc::unreachable);
    }
}

namespace {

// Follows a client through the handshake and its AUTH, to the first command. Returns: whether that came.
bool await_command(auto& peer, servers::in_memory& good) {
    for (const std::string_view awaited : {"AUTH", "SET"}) {
        while (peer.open() && !contains(good.received, awaited)) peer.send(good.step(peer.receive()));
        if (awaited == "AUTH") peer.send(good.say("+OK\r\n"));
    }
    return peer.open();
}

}  // namespace

TEST_CASE("a server that breaks off handshakes is sent one every 100 ms") {
    std::atomic<int> begun{0};
    const servers::scripted server([&](auto& peer) {
        peer.receive();
        ++begun;
    });
    hiredis_connection redis("rediss://127.0.0.1:" + server.port(), distlock::tls(trusting_ca()));
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 40; ++i) {
        const reply answer = redis.execute({"PING"});
        CHECK(answer.cause() == errc::unreachable);
        CHECK(contains(answer.text(), "does it speak TLS on this port?"));
    }
    CHECK(begun <= 11 + since(start) / 100ms);
}

TEST_CASE("a server that breaks the session before it answers leaves the outcome open") {
    for (const bool with_garbage : {false, true}) {
        std::atomic<int> commands{0};
        const servers::scripted server([&](auto& peer) {
            servers::in_memory good(all().address);
            if (await_command(peer, good)) ++commands;
            if (with_garbage) peer.send("+OK\r\n");
        });
        hiredis_connection redis("rediss://:word@127.0.0.1:" + server.port(), distlock::tls(trusting_ca()));
        const auto start = std::chrono::steady_clock::now();
        const reply answer = redis.execute({"SET", "k", "v"});
        CHECK(since(start) < 850ms);
        CHECK(answer.kind() == reply_kind::no_answer);
        CHECK(commands == 1);
    }
}

// The lock said at once that this was no Redis or Valkey server, whatever its patience.
TEST_CASE("a full server behind a proxy that ends TLS is one that is unavailable, and is asked again") {
    const bool hangs_up = GENERATE(false, true);
    std::atomic<int> turned_away{0};
    const servers::scripted server([&](auto& peer) {
        servers::in_memory good(all().address);
        while (peer.open() && !contains(good.received, "PING")) peer.send(good.step(peer.receive()));
        std::string last = good.say("-ERR max number of clients reached\r\n");
        if (hangs_up) ::SSL_shutdown(good.ssl());
        peer.send(last + good.sent());
        ++turned_away;
        while (peer.open()) peer.receive();
    });
    hiredis_connection redis("rediss://127.0.0.1:" + server.port(), distlock::tls(trusting_ca()));
    const reply answer = redis.execute({"SET", "k", "v"});
    CAPTURE(answer.text());
    CHECK(answer.is(reply_kind::not_sent));
    CHECK(answer.cause() == errc::unavailable);
    distlock::mutex m(redis, "orders", {.patience = 500ms});
    const int before = turned_away;
    std::error_code ec;
    CHECK_FALSE(m.lock(ec));
    CHECK(ec == errc::unavailable);
    CHECK(turned_away > before + 1);
}

TEST_CASE("a server that wants to negotiate again is told that nobody will") {
    std::atomic<int> alerts{0};
    const servers::scripted server([&](auto& peer) {
        servers::in_memory old(all().address, TLS1_2_VERSION, TLS1_2_VERSION);
        if (!await_command(peer, old)) return;
        const std::string answer = old.say("+OK\r\n");
        ::SSL_renegotiate(old.ssl());
        ::SSL_do_handshake(old.ssl());
        peer.send(answer + old.sent());
        if (peer.receive().starts_with('\x15')) ++alerts;
    });
    hiredis_connection redis("rediss://:word@127.0.0.1:" + server.port(), distlock::tls(trusting_ca()));
    CHECK(redis.execute({"SET", "k", "v"}).is_status("OK"));
    const auto start = std::chrono::steady_clock::now();
    while (alerts == 0 && since(start) < 5s) std::this_thread::yield();
    CHECK(alerts == 1);
}

TEST_CASE("a reply that comes with the end of its session is still a reply") {
    const servers::scripted server([](auto& peer) {
        servers::in_memory good(all().address);
        if (!await_command(peer, good)) return;
        std::string last = good.say("+OK\r\n");
        ::SSL_shutdown(good.ssl());
        peer.send(last + good.sent());
    });
    hiredis_connection redis("rediss://:word@127.0.0.1:" + server.port(), distlock::tls(trusting_ca()));
    for (int i = 0; i < 3; ++i) CHECK(redis.execute({"SET", "k", "v"}).is_status("OK"));
}

TEST_CASE("a session that ends with the answer to AUTH carries no further step, and that one is named") {
    const servers::scripted server([](auto& peer) {
        servers::in_memory good(all().address);
        while (peer.open() && !contains(good.received, "AUTH")) peer.send(good.step(peer.receive()));
        const std::string last = good.say("+OK\r\n");
        ::SSL_shutdown(good.ssl());
        peer.send(last + good.sent());
        while (peer.open()) peer.receive();
    });
    hiredis_connection redis("rediss://:word@127.0.0.1:" + server.port() + "/3",
                             distlock::tls(trusting_ca()));
    const reply answer = redis.execute({"SET", "k", "v"});
    CHECK(answer.is(reply_kind::not_sent));
    CHECK(answer.cause() == errc::unreachable);
    CHECK(contains(answer.text(), "AUTH: the server closed the connection"));
}

TEST_CASE("a session that the server ends while nobody uses it is not used again") {
    std::atomic<int> ended{0};
    const servers::scripted server([&](auto& peer) {
        servers::in_memory good(all().address);
        if (!await_command(peer, good)) return;
        peer.send(good.say("+OK\r\n"));
        ::SSL_shutdown(good.ssl());
        peer.send(good.sent());
        ++ended;
        while (peer.open()) peer.receive();
    });
    hiredis_connection redis("rediss://:word@127.0.0.1:" + server.port(), distlock::tls(trusting_ca()));
    for (int i = 1; i <= 3; ++i) {
        const reply answer = redis.execute({"SET", "k", "v"});
        CAPTURE(answer.text());
        CHECK(answer.is_status("OK"));
        const auto start = std::chrono::steady_clock::now();
        while (ended < i && since(start) < 5s) std::this_thread::yield();
        REQUIRE(ended == i);
    }
}

}  // namespace tls_tests
