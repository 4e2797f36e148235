// Hand-overs on a real server, one after the other: the order of those who wait, the fences, the tokens.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/testing.hpp>
#include <distlock/wire/reply.hpp>

#include "catch.hpp"
#include "support/handoff_lock.hpp"
#include "support/waiting.hpp"

using namespace handoff_test;
using distlock::hiredis_connection;

namespace {

redis_server& shared() {
    static redis_server server;
    return server;
}

hiredis_connection& connection() {
    static hiredis_connection redis(shared().uri() + patient);
    return redis;
}

handoff_lock fresh(const lock_options& options) { return {shared(), connection(), fresh_name(), options}; }

// One who waits inside BLPOP, on a thread of its own.
struct waiter {
    explicit waiter(const std::string& name, const lock_options& options)
        : it(shared(), redis, name, options) {}
    bool gets_in_line() {
        if (it.enter(place::join).what != got::busy) return false;
        const auto blocked = [] {
            const std::string info = shared().command({"INFO", "clients"});
            return std::stoi(info.substr(info.find("blocked_clients:") + 16));
        };
        const int before = blocked();
        answer = std::async(std::launch::async, [this] {
            return redis.wait(it.dialect.wait("20"), distlock::clock::now() + 30s, {});
        });
        return eventually([&] { return blocked() == before + 1; });
    }
    bool is_served() {
        const auto outcome = it.dialect.read_wait(answer.get());
        if (outcome.offered) it.owner = outcome.offered->owner;
        return outcome.what == got::granted && it.is_ours() && it.offers() == 0;
    }
    bool still_waits() const { return answer.wait_for(0s) == std::future_status::timeout; }

    hiredis_connection redis{shared().uri() + patient};
    handoff_lock it;
    std::future<reply> answer;
};

}  // namespace

TEST_CASE("fences grow strictly through hand-overs among clients with and without them") {
    for (const char* last : {"", "17", "9007199254740993"}) {
        INFO("last fence: " << last);
        const auto name = fresh_name();
        handoff_lock first(shared(), connection(), name, fenced);
        if (*last != '\0') first.set(first.fence, last, "3900000");
        std::uint64_t highest = *last != '\0' ? std::stoull(last) : 0;
        const auto grew = [&](std::uint64_t fence) { return fence > std::exchange(highest, fence); };
        CHECK(grew(first.enter(place::none).fence));
        auto holder = std::make_unique<handoff_lock>(first);
        const auto hand_on_to = [&](const lock_options& options) {
            holder->count(1);
            CHECK(holder->release().is_integer(2));
            auto taker = std::make_unique<handoff_lock>(shared(), connection(), name, options);
            const auto popped = taker->pop();
            CHECK(popped.what == got::granted);
            CHECK(taker->is_ours());
            CHECK((popped.fence != 0 || !options.fencing));
            if (popped.fence != 0) CHECK(grew(popped.fence));
            CHECK(taker->exists(taker->who) == !options.owner_info.empty());
            CHECK(taker->all_ends());
            holder = std::move(taker);
        };
        for (const lock_options* one : every_kind) {
            for (const lock_options* other : every_kind) {
                hand_on_to(*one);
                hand_on_to(*other);
            }
        }
    }
}

TEST_CASE(
    "a fence is the server's time where that is ahead, else a million more, and lives for its whole time") {
    for (const char* last : {"", "17", "garbage", "9007199254740993"}) {
        INFO("last fence: " << last);
        auto it = fresh(fenced);
        const auto spoil = [&] {
            if (*last != '\0') it.set(it.fence, last, "100000");
            return time_of(shared());
        };
        const auto check = [&](std::int64_t before, std::uint64_t fence) {
            const auto made = static_cast<std::int64_t>(fence);
            if (*last == '9') {
                CHECK(made == 9007199255740993);
            } else {
                CHECK(made >= before);
                CHECK(made <= time_of(shared()));
            }
            CHECK(it.get(it.fence) == std::to_string(fence));
            CHECK(just_set(it.ttl(it.fence), fence_life));
        };
        auto before = spoil();
        check(before, it.enter(place::none).fence);
        before = spoil();
        check(before, it.enter(place::adopt).fence);
        it.count(1);
        before = spoil();
        CHECK(it.release().is_integer(2));
        check(before, it.pop().fence);
    }
}

TEST_CASE("no two tokens that a lock was handed on with are the same") {
    auto it = fresh(bare);
    it.enter(place::none);
    std::vector<token> seen{it.owner};
    for (int i = 0; i < 200; ++i) {
        it.count(1);
        it.release();
        it.pop();
        seen.push_back(it.owner);
    }
    bool same = false;
    for (std::size_t i = 0; i < seen.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) same = same || seen[i] == seen[j];
    }
    CHECK_FALSE(same);
}

TEST_CASE("those who are blocked are served first come, first served, and the last one frees the lock") {
    auto owner = fresh(bare);
    owner.enter(place::none);
    std::vector<std::unique_ptr<waiter>> line;
    for (int i = 0; i < 4; ++i) {
        line.push_back(std::make_unique<waiter>(owner.K, i % 2 == 0 ? bare : fenced));
        REQUIRE(line.back()->gets_in_line());
        CHECK(owner.waiters() == i + 1);
    }
    CHECK(owner.release().is_integer(2));
    for (std::size_t i = 0; i < line.size(); ++i) {
        INFO("waiter " << i);
        REQUIRE(line[i]->is_served());
        for (std::size_t j = i + 1; j < line.size(); ++j) CHECK(line[j]->still_waits());
        CHECK(owner.waiters() == static_cast<int>(line.size() - i) - 1);
        CHECK(line[i]->it.release().is_integer(i + 1 < line.size() ? 2 : 1));
    }
    for (const auto& key : {owner.K, owner.B, owner.W}) CHECK_FALSE(owner.exists(key));
}

TEST_CASE("one who is blocked is served by whoever looks at a lock that ran out, or revives it") {
    for (const bool counted : {true, false}) {
        auto owner = fresh(bare);
        owner.enter(place::none);
        waiter blocked(owner.K, bare);
        REQUIRE(blocked.gets_in_line());
        if (!counted) owner.count(0);
        shared().command({"DEL", owner.K});
        CHECK(owner.watch().is_integer(counted ? lease : -2));
        if (!counted) {
            CHECK(blocked.still_waits());
            CHECK(owner.revive().is_integer(lease));
        }
        CHECK(blocked.is_served());
        CHECK_FALSE(owner.exists(owner.W));
        CHECK(owner.release().is_integer(-1));
    }
}
