// A subscription whose socket falls silent: the other end is gone, and nobody says so.
#include <chrono>
#include <cstddef>
#include <memory>
#include <poll.h>
#include <stop_token>
#include <string>
#include <thread>

#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "support/catch.hpp"
#include "support/waiting.hpp"

namespace silent_wait_tests {

using namespace std::chrono_literals;
using distlock::hiredis_connection;
using distlock::listener;
using distlock::testing::fault_proxy;
using distlock::testing::redis_server;
using clk = distlock::clock;
using woken = listener::woken;
using channel = std::shared_ptr<distlock::subscription>;

namespace {

const std::string patient = "?connect_timeout=20s&command_timeout=20s";

// Returns: whether the server has confirmed it; somebody who waits reads that.
bool in_force(const channel& c) {
    listener mine(c, "no message");
    const auto until = clk::now() + 20s;
    while (c->confirmations() == 0) {
        if (mine.wait(until, {}) == woken::by_time) return false;
    }
    return true;
}

std::string next_message(const channel& c, const redis_server& server, const std::string& text) {
    listener mine(c, "");
    server.command({"PUBLISH", c->channel(), text});
    for (;;) {
        const auto got = mine.wait(clk::now() + 20s, {});
        if (got == woken::by_message) return std::string(mine.message());
        if (got == woken::by_time) return "no message";
    }
}

fault_proxy::which are(const std::string& word) {
    return [word](const fault_proxy::words& w) { return w.at(0) == word; };
}

// A thread that waits, for nothing in particular, as long as this lives.
class reading {
  public:
    explicit reading(const channel& on)
        : mine_(on, "no message"), thread_([this](const std::stop_token& stop) {
              while (!stop.stop_requested()) mine_.wait(clk::now() + 20s, stop);
          }) {}

  private:
    listener mine_;
    std::jthread thread_;
};

}  // namespace

TEST_CASE("a socket that falls silent is asked after three seconds whether it lives, and replaced") {
    const redis_server server;
    fault_proxy proxy(server.socket_path());
    hiredis_connection redis(proxy.uri("?command_timeout=1s"));
    const auto news = redis.subscribe("news");
    REQUIRE(in_force(news));
    proxy.cut({.command = are("PING"), .how = fault_proxy::ending::silence});
    const auto began = clk::now();
    listener mine(news, "");
    REQUIRE(mine.wait(clk::now() + 20s, {}) == woken::by_confirmation);
    CHECK(proxy.cuts().size() == 1);
    CHECK(proxy.connections() == 2);
    CHECK(clk::now() - began > 2s);
    CHECK(next_message(news, server, "text") == "text");
}

TEST_CASE("a socket on which nobody read for three seconds is asked at once, and kept if it answers") {
    const redis_server server;
    fault_proxy proxy(server.socket_path());
    hiredis_connection redis(proxy.uri(patient));
    const auto news = redis.subscribe("news");
    REQUIRE(in_force(news));
    const auto pings = [&] { return proxy.requests(are("PING")).size(); };
    const auto then = clk::now() + 3s;
    while (clk::now() < then) ::poll(nullptr, 0, 50);
    CHECK(pings() == 0);
    const reading one(news);
    CHECK(eventually([&] { return pings() == 1; }, 2s));
    CHECK(next_message(news, server, "text") == "text");
    CHECK(proxy.connections() == 1);
}

TEST_CASE("a subscription that is not answered is made on another socket") {
    const redis_server server;
    fault_proxy proxy(server.socket_path());
    proxy.cut({.command = are("SUBSCRIBE"), .how = fault_proxy::ending::silence});
    hiredis_connection redis(proxy.uri("?command_timeout=1s"));
    const auto news = redis.subscribe("news");
    const auto took = time_of([&] { CHECK(in_force(news)); });
    CHECK(took < 3s);  // sooner than a socket that owes no answer is asked
    CHECK(proxy.connections() == 2);
}

TEST_CASE("a link on which nothing passes is tried again and again, and messages are heard when it is back") {
    const redis_server server;
    fault_proxy proxy(server.socket_path());
    hiredis_connection redis(proxy.uri("?connect_timeout=100ms&command_timeout=50ms"));
    const auto news = redis.subscribe("news");
    proxy.hold(fault_proxy::part::request);
    proxy.hold(fault_proxy::part::reply);
    const reading one(news);
    CHECK(eventually([&] { return proxy.connections() > 2; }));
    CHECK(news->confirmations() == 0);
    proxy.let_go();
    CHECK(eventually([&] { return news->confirmations() > 0; }));
    CHECK(eventually([&] { return next_message(news, server, "text") == "text"; }));
}

}  // namespace silent_wait_tests
