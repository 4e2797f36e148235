// Several locks at once where there is no memory, with a connection that tells what it was asked.
#include <chrono>
#include <exception>

#include <distlock/mutex.hpp>
#include <distlock/try_lock_for.hpp>
#include <distlock/wire/handoff_scripts.hpp>
#include <distlock/wire/joint_try.hpp>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/handoff_answers.hpp"

namespace joint_acquire_tests {

using namespace std::chrono_literals;
using distlock::command;
using distlock::reply;
using handoff_answers::granted;

namespace {

struct server_for_two {
    reply execute(const command& cmd) {
        if (cmd.argv()[0] == "SET") return reply::status("OK");
        if (cmd.argv()[1] == distlock::detail::handoff_enter.sha1()) return granted("", 30'000);
        if (cmd.argv()[1] != distlock::detail::joint_enter.sha1()) return reply::integer(1);
        ++asked_together;
        late = late || allocation_failed();
        return reply::array({granted("", 30'000), granted("", 30'000)});
    }
    int asked_together = 0;
    bool late = false;
};

}  // namespace

// A request that had failed in one's hands was sent on by the other, out of memory that was no longer there.
TEST_CASE("two locks are asked for together only while there is memory to ask for both") {
    if (!allocations_can_fail()) return;
    bool failed = true;
    for (long nth = 1; failed; ++nth) {
        INFO("allocation " << nth);
        server_for_two server;
        distlock::mutex<server_for_two> one{server, "one", {.renew = false}};
        distlock::mutex<server_for_two> other{server, "other", {.renew = false}};
        bool taken = false;
        fail_allocation(nth);
        try {
            taken = distlock::try_lock_for(1min, one, other);
        } catch (const std::exception&) {
            taken = false;
        }
        failed = allocation_failed();
        fail_allocation(0);
        CHECK_FALSE(server.late);
        CHECK(one.owns_lock() == taken);
        CHECK(other.owns_lock() == taken);
        if (failed) continue;
        CHECK(taken);
        CHECK(server.asked_together == 1);
    }
}

}  // namespace joint_acquire_tests
