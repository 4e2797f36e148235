// The readers of one object that come together: one of them asks the server, and what becomes of the others when it fails.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <latch>
#include <system_error>

#include <distlock/base/error.hpp>
#include <distlock/base/options.hpp>
#include <distlock/shared_mutex.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/sleepers.hpp"
#include "support/waiting.hpp"

namespace {

using distlock::command;
using distlock::errc;
using distlock::reply;
using namespace std::chrono_literals;

constexpr const char* long_name = "a name that is long enough to need memory in a message";

/// Refuses everybody; the first one when it is told to, and then the nth allocation of that thread fails.
struct refusing_server {
    reply execute(const command&) {
        if (asked.fetch_add(1) != 0) return reply::error("NOPERM x");
        refuses.wait();
        auto refused = reply::error("NOPERM x");
        fail_allocation(nth);
        return refused;
    }
    long nth;
    std::atomic<int> asked{0};
    std::latch refuses{1};
};

/// Effects: waits for the end of `reader`. One that waits for ever cannot be joined.
void check_that_it_ends(sleeper& reader) {
    if (!eventually([&] { return reader.done(); })) {
        FAIL_CHECK("it waits for ever");
        std::_Exit(1);
    }
    reader.join();
}

}  // namespace

// The copy of the error needed memory: nobody asked any more, and all that came later waited for that.
TEST_CASE("a reader that fails and has no memory to say so lets the next one of its batch ask") {
    if (!allocations_can_fail()) return;
    bool failed = true;
    for (long nth = 1; failed; ++nth) {
        REQUIRE(nth < 50);
        INFO("allocation " << nth);
        refusing_server server{nth};
        distlock::shared_mutex m{server, long_name};
        sleeper first([&] {
            std::error_code ignored;
            m.lock_shared(ignored);
            failed = allocation_failed();
            fail_allocation(0);
        });
        REQUIRE(eventually([&] { return server.asked == 1; }));
        std::error_code ec;
        sleeper second([&] { m.lock_shared(ec); });
        CHECK(second.sleeps());
        server.refuses.count_down();
        first.join();
        check_that_it_ends(second);
        CHECK(ec == errc::permission_denied);
        CHECK(server.asked == 2);
    }
}

TEST_CASE(
    "a reader that is out of patience and has no memory to say so lets the next one of its batch go on") {
    if (!allocations_can_fail()) return;
    bool failed = true;
    for (long nth = 1; failed; ++nth) {
        REQUIRE(nth < 50);
        INFO("allocation " << nth);
        refusing_server server{0};
        distlock::shared_mutex m{server, long_name, {.patience = 0ms}};
        sleeper first([&] {
            std::error_code ignored;
            m.lock_shared(ignored);
        });
        REQUIRE(eventually([&] { return server.asked == 1; }));
        sleeper second([&] {
            std::error_code ignored;
            fail_allocation(nth);
            m.lock_shared(ignored);
            failed = allocation_failed();
            fail_allocation(0);
        });
        CHECK(second.sleeps());
        std::error_code ec;
        sleeper third([&] { m.lock_shared(ec); });
        CHECK(third.sleeps());
        server.refuses.count_down();
        first.join();
        second.join();
        check_that_it_ends(third);
        CHECK(ec == errc::permission_denied);
    }
}
