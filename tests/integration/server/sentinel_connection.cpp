// A lock follows its master: real servers, real Sentinels.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "support/catch.hpp"
#include "support/fresh_name.hpp"
#include "support/lease_observers.hpp"
#include "support/sentinels.hpp"
#include "support/waiting.hpp"
#include "timing_tolerance.hpp"

namespace sentinel_connection_tests {

namespace {

using namespace std::chrono_literals;
using distlock::release_outcome;
using distlock::sentinel_connection;
using distlock::testing::redis_server;
using lock = distlock::mutex<sentinel_connection>;

const distlock::lock_options patient{.patience = 60s};

/// Returns: whether all replicas have the key.
bool replicated(const sentinels& group, const std::string& key) {
    return eventually([&] {
        for (const auto& one : group.nodes()) {
            if (one->running() && one->command({"EXISTS", key}) != "1") return false;
        }
        return true;
    });
}

/// Effects: no replica has the key any more, as if it had not been replicated.
void lose(const sentinels& group, const redis_server& master, const std::string& key) {
    for (const auto& one : group.nodes()) {
        if (one.get() == &master) continue;
        REQUIRE(one->command({"CONFIG", "SET", "replica-read-only", "no"}) == "OK");
        REQUIRE(one->command({"DEL", key}) == "1");
    }
}

/// Returns: whether something waits in the queue of the lock at that server.
bool queued(const redis_server& at, const std::string& name) {
    return at.command({"ZCARD", "{" + name + "}:distlock:queue"}) == "1";
}

/// Returns: how long it takes until that holds.
template <class Condition>
std::chrono::milliseconds takes(Condition condition) {
    const auto span = time_of([&] { CHECK(eventually(condition, 30s)); });
    if (std::getenv("DISTLOCK_FIGURES") != nullptr) WARN("it took " << span.count() << " ms");
    return span;
}

/// A fail-over, however it comes about. Of each kind of lock one is held.
struct scene {
    explicit scene(const sentinels& of) : group(of), old(of.master()) {
        held.lock();
        REQUIRE(replicated(group, held.name()));
        gone.lock();
        REQUIRE(replicated(group, gone.name()));
        lose(group, old, gone.name());
        waiter = std::jthread([this] {
            const std::lock_guard guard(wanted);
            granted = true;
        });
        REQUIRE(eventually([&] { return queued(old, held.name()); }));
    }
    ~scene() {
        if (held.owns_lock()) held.unlock();
    }

    /// What must hold once all Sentinels name another master.
    void check() {
        CHECK(takes([&] { return lost.stop_requested(); }) < 500ms + timing_tolerance);
        CHECK(eventually([&] { return seen->masters >= 2 && seen->losses == 1; }));
        CHECK(held.owns_lock());
        CHECK_FALSE(granted);
        // The waiter stands in the queue of the new master, and hears it.
        const redis_server& fresh = group.master();
        CHECK(&fresh != &old);
        CHECK(eventually([&] { return queued(fresh, held.name()); }));
        CHECK(eventually([&] { return fresh.command({"PUBSUB", "CHANNELS", "distlock:*"}) != ""; }));
        CHECK(fresh.command({"EXISTS", held.name()}) == "1");
        CHECK(held.unlock() == release_outcome::posted);
        CHECK(takes([&] { return granted.load(); }) < 500ms + timing_tolerance);
        waiter.join();
        CHECK(eventually([&] { return fresh.command({"EXISTS", held.name()}) == "0"; }));
    }

    const sentinels& group;
    const redis_server& old;
    const std::string name = fresh_name();
    std::shared_ptr<counting_observer> seen = std::make_shared<counting_observer>();
    sentinel_connection owner{group.uri()};
    sentinel_connection other{group.uri()};
    lock held{owner, name, patient, seen};
    lock gone{owner, fresh_name(), patient, seen};
    lock wanted{other, name, patient};
    std::stop_token lost;
    std::atomic<bool> granted{false};
    std::jthread waiter;
};

}  // namespace

TEST_CASE("a lock goes to the master that the Sentinels name") {
    const sentinels group;
    SECTION("and follows it through SENTINEL FAILOVER while it is held and waited for") {
        scene s(group);
        s.lost = s.gone.lost();
        group.fail_over();
        s.check();
    }
    SECTION("and follows it when the master is killed") {
        scene s(group);
        s.lost = s.gone.lost();
        group.master().kill();
        REQUIRE(eventually([&] { return group.name_another_than(s.old); }, 60s));
        s.check();
    }
    SECTION("and follows it when the master is frozen, and comes back as it was") {
        scene s(group);
        s.lost = s.gone.lost();
        redis_server& old = group.master();
        old.pause();
        const bool changed = eventually([&] { return group.name_another_than(s.old); }, 60s);
        old.resume();
        REQUIRE(changed);
        s.check();
    }
}

}  // namespace sentinel_connection_tests
