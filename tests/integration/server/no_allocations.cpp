// What a warm cycle of lock and unlock costs the process.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <stop_token>
#include <thread>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/waiting.hpp"

namespace no_allocations_tests {

TEST_CASE("a warm uncontended cycle calls operator new not once") {
    distlock::testing::redis_server server;
    distlock::hiredis_connection redis{server.uri()};
    distlock::mutex orders{redis, "orders:42"};
    const std::stop_source source;
    const bool stoppable = GENERATE(false, true);
    const auto stop = stoppable ? source.get_token() : std::stop_token();
    const auto cycle = [&] {
        const distlock::scoped_lock guard{orders, stop};
        return guard.owns_lock();
    };
    for (int i = 0; i < 10; ++i) REQUIRE(cycle());
    const auto before = allocations();
    bool held = true;
    for (int i = 0; i < 100; ++i) held = cycle() && held;
    CHECK(allocations() == before);
    CHECK(held);
    CHECK(before > 0);  // else nothing is counted
}

TEST_CASE("a warm contended cycle calls operator new not once, whatever a connection does every second") {
    using namespace std::chrono_literals;
    distlock::testing::redis_server server;
    std::atomic<int> warm{0};
    std::atomic<bool> stop{false};
    std::atomic<std::size_t> cycles{0};
    const auto contend = [&] {
        distlock::hiredis_connection redis{server.uri()};
        distlock::mutex orders{redis, "orders:42"};
        for (int i = 0; !stop; ++i, ++cycles) {
            const distlock::scoped_lock guard{orders};
            if (i == 200) ++warm;
        }
    };
    std::size_t before = 0;
    std::size_t after = 0;
    {
        const std::jthread one(contend);
        const std::jthread other(contend);
        REQUIRE(eventually([&] { return warm == 2; }));
        before = allocations();
        const auto counted = cycles.load();
        const auto two_rounds = std::chrono::steady_clock::now() + 2200ms;  // of what is done every second
        CHECK(eventually([&] { return std::chrono::steady_clock::now() >= two_rounds && cycles > counted; }));
        after = allocations();
        stop = true;
    }
    CHECK(after == before);
}

}  // namespace no_allocations_tests
