// Testing code that uses locks: a private server, or no server at all.
#include <chrono>
#include <cstdio>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

using namespace std::chrono_literals;

namespace {

int failures = 0;
void expect(bool holds, const char* what) {
    if (!holds) ++failures;
    std::printf("%s: %s\n", holds ? "ok" : "FAILED", what);
}

void over_a_real_server() {
    distlock::testing::redis_server server;  // its own folder and socket, gone with the object
    distlock::hiredis_connection redis{server.uri()};
    distlock::mutex orders{redis, "orders:42", {.patience = 0ms, .release = distlock::confirmed}};

    expect(orders.try_lock(), "a free lock is taken");
    server.pause();  // the server hangs
    expect(orders.unlock() == distlock::release_outcome::unreachable, "a hanging server is told apart");
    server.resume();
}

void without_a_server() {
    using distlock::reply;
    using distlock::testing::manual_clock;
    using distlock::testing::scripted_connection;

    scripted_connection redis{reply::status("OK"), reply::integer(0)};
    distlock::mutex<scripted_connection, distlock::handoff, manual_clock> orders{redis, "orders:42"};
    orders.lock();
    manual_clock::advance(30s);
    expect(!orders.owns_lock(), "after 30 s the lease is over");
    expect(orders.unlock() == distlock::release_outcome::expired, "and unlock says so");
}

}  // namespace

int main() {
    try {
        over_a_real_server();
        without_a_server();
    } catch (const distlock::error& e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
    return failures;
}
