// What a warm cycle of lock and unlock costs the process.
#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "catch.hpp"
#include "support/allocations.hpp"

TEST_CASE("a warm uncontended cycle calls operator new not once") {
    distlock::testing::redis_server server;
    distlock::hiredis_connection redis{server.uri()};
    distlock::mutex orders{redis, "orders:42"};
    const auto cycle = [&] {
        const distlock::scoped_lock guard{orders};
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
