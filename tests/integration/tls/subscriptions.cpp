// Messages over TLS: what comes in one piece is delivered as a whole, though the socket has
// nothing more to read.
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <distlock/hiredis_tls.hpp>

#include "integration/tls/certificates.hpp"
#include "integration/tls/servers.hpp"
#include "support/catch.hpp"
#include "support/waiting.hpp"

namespace subscriptions_tests {

using namespace std::chrono_literals;
using distlock::hiredis_connection;
using distlock::listener;
using clk = distlock::clock;
using woken = listener::woken;
using servers::tls_is_wanted;
using servers::trusting_ca;

namespace {

const std::string patient = "?connect_timeout=20s&command_timeout=20s";

const certificates::set& all() { return certificates::set::get(); }

std::string message_for(listener& l) {
    const auto until = clk::now() + 20s;
    for (;;) {
        const auto got = l.wait(until, {});
        if (got == woken::by_message) return std::string(l.message());
        if (got == woken::by_time) return "no message";
    }
}

std::string pushed(const std::string& kind, const std::string& text) {
    return "*3\r\n$" + std::to_string(kind.size()) + "\r\n" + kind + "\r\n$4\r\nnews\r\n" + text;
}

}  // namespace

TEST_CASE("over TLS each of many waiters is delivered its own message, also after the socket was killed") {
    NOT_TESTED_UNLESS(tls_is_wanted(), "DISTLOCK_TEST_WITHOUT_TLS=1");
    servers::real server(all().address);
    hiredis_connection redis(server.uri() + patient, trusting_ca());
    const auto news = redis.subscribe("news");
    for (int round = 0; round < 2; ++round) {
        constexpr std::size_t threads = 20;
        std::vector<std::string> keys;
        for (std::size_t i = 0; i < threads; ++i) keys.push_back(std::to_string(i) + " ");
        std::vector<std::string> got(threads);
        std::vector<std::unique_ptr<listener>> listeners;
        std::vector<std::thread> waiters;
        for (std::size_t i = 0; i < threads; ++i) {
            listeners.push_back(std::make_unique<listener>(news, keys[i]));
            waiters.emplace_back([&got, i, l = listeners[i].get()] { got[i] = message_for(*l); });
        }
        const auto confirmed = news->confirmations();
        if (round == 1) CHECK(redis.execute({"CLIENT", "KILL", "TYPE", "pubsub"}).is_integer(1));
        const bool in_force =
            eventually([&] { return news->confirmations() > (round == 1 ? confirmed : 0); });
        for (const std::string& key : keys) redis.execute({"PUBLISH", "news", key + "for you"});
        for (std::thread& t : waiters) t.join();
        CHECK(in_force);
        for (std::size_t i = 0; i < threads; ++i) CHECK(got[i] == keys[i] + "for you");
    }
}

TEST_CASE(
    "messages that come in one TLS record are all delivered, to waiters that read one after the other") {
    NOT_TESTED_UNLESS(tls_is_wanted(), "DISTLOCK_TEST_WITHOUT_TLS=1");
    const servers::scripted server([&](auto& peer) {
        servers::in_memory good(all().address);
        bool greeted = false;
        while (peer.open() && good.received.find("\r\nSUBSCRIBE\r\n") == std::string::npos) {
            peer.send(good.step(peer.receive()));
            if (!greeted && good.received.find("PING") != std::string::npos) {
                greeted = true;
                peer.send(good.say("+PONG\r\n"));
            }
        }
        peer.send(good.say("-ERR unknown command\r\n" + pushed("subscribe", ":1\r\n") +
                           pushed("message", "$1\r\na\r\n") + pushed("message", "$1\r\nb\r\n") +
                           pushed("message", "$1\r\nc\r\n")));
        while (peer.open()) peer.receive();
    });
    hiredis_connection redis("rediss://127.0.0.1:" + server.port() + patient, trusting_ca());
    const auto news = redis.subscribe("news");
    listener first(news, "a");
    listener second(news, "b");
    listener third(news, "c");
    CHECK(message_for(first) == "a");
    CHECK(message_for(third) == "c");
    CHECK(message_for(second) == "b");
    CHECK(news->confirmations() == 1);
}

}  // namespace subscriptions_tests
