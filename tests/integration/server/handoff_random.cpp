// Random steps of several waiters on a real server, each perhaps repeated or late, against a queue in memory;
// and a server whose clock was set back.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <distlock/testing.hpp>
#include <distlock/wire/reply.hpp>

#include "support/catch.hpp"
#include "support/handoff_lock.hpp"
#include "support/redis_link.hpp"

namespace handoff_random_tests {

using namespace handoff_test;
using distlock::handoff;

namespace {

// What must become of the lock and of its queue. Waiters are numbers.
struct expected {
    std::optional<std::size_t> holder;
    std::deque<std::size_t> queue;
    std::vector<std::size_t> told;  // in the order of the hand-overs
    std::vector<bool> heard;        // by waiter: whether a hand-over counts

    bool queued(std::size_t who) const { return std::count(queue.begin(), queue.end(), who) > 0; }
    void dequeue(std::size_t who) { std::erase(queue, who); }
    void pass(std::optional<std::size_t> asker) {
        holder.reset();
        while (!holder && !queue.empty() && queue.front() != asker) {
            if (heard[queue.front()]) {
                holder = queue.front();
                told.push_back(*holder);
            }
            queue.pop_front();
        }
    }
    bool enter(std::size_t who, enter_mode mode) {
        if (!holder) pass(who);
        if (!holder) holder = who;
        const bool granted = holder == who;
        if (granted || mode == enter_mode::last) dequeue(who);
        if (!granted && mode == enter_mode::join && !queued(who)) queue.push_back(who);
        return granted;
    }
    int leave(std::size_t who) {
        dequeue(who);
        if (!holder) return 0;
        if (holder != who) return -1;
        pass({});
        return holder ? 2 : 1;
    }
};

}  // namespace

TEST_CASE(
    "the lock goes to the first waiter that hears, whatever waiters do, again or late, and nothing is left "
    "behind") {
    redis_server server;
    redis_link redis(server.socket_path());
    redis_link process(server.socket_path());
    process.subscribe("process");
    const std::array<const char*, 5> channels{"process", "process", "nobody:listens", "", "process"};
    for (unsigned seed = 0; seed < 60; ++seed) {
        std::mt19937 random(seed);
        const auto one_of = [&random](std::size_t count) { return random() % count; };
        const auto name = fresh_name();
        std::vector<handoff_lock> locks;
        for (std::size_t i = 0; i < channels.size(); ++i)
            locks.emplace_back(server, redis, name, **(every_kind.begin() + i % 4), channels[i]);
        expected all_is{{}, {}, {}, {true, true, false, true, true}};
        std::ostringstream steps;
        std::uint64_t highest = 0;
        for (int count = 0; count < 120; ++count) {
            const auto who = one_of(locks.size());
            auto& it = locks[who];
            const auto before = all_is.holder;
            all_is.told.clear();
            switch (one_of(9)) {
                case 0:
                case 1:
                case 2: {
                    constexpr std::array modes{enter_mode::try_once, enter_mode::join, enter_mode::join,
                                               enter_mode::last};
                    const auto mode = modes[one_of(modes.size())];
                    steps << "enter " << who << " " << static_cast<int>(mode) << "\n";
                    INFO(seed << "\n" << steps.str());
                    const bool is_new = !all_is.queued(who);
                    const bool granted = all_is.enter(who, mode);
                    const auto outcome = it.enter(mode);
                    REQUIRE((outcome.what == got::granted) == granted);
                    REQUIRE((outcome.what == got::busy) == !granted);
                    if (granted) {
                        REQUIRE(outcome.granted_for >= 1s);
                        REQUIRE((outcome.fence != 0) == it.fences);
                        REQUIRE((outcome.fence == 0 || outcome.fence >= highest));
                        REQUIRE((outcome.fence == 0 || outcome.fence > highest || before == who));
                        highest = std::max(highest, outcome.fence);
                    } else {
                        const auto at = std::find(all_is.queue.begin(), all_is.queue.end(), who);
                        REQUIRE((outcome.queued.ticket != 0) == (at != all_is.queue.end()));
                        REQUIRE(outcome.queued.appended == (is_new && at != all_is.queue.end()));
                        if (outcome.queued.ticket != 0)
                            REQUIRE(outcome.queued.position == at - all_is.queue.begin());
                    }
                    break;
                }
                case 3:
                    steps << "acquire " << who << "\n";
                    if (it.dialect.acquire_is_script()) continue;
                    REQUIRE(it.ask(it.dialect.acquire(it.owner)).is_status("OK") == !before);
                    if (!before) all_is.holder = who;
                    break;
                case 4:
                case 5:
                    steps << "leave " << who << "\n";
                    REQUIRE(it.release().is_integer(all_is.leave(who)));
                    break;
                case 6:
                    steps << "renew " << who << "\n";
                    REQUIRE(it.ask(it.dialect.renew(it.owner))
                                .is_integer(!before         ? 0
                                            : before == who ? 1
                                                            : -1));
                    break;
                case 7:
                    steps << "free " << who << "\n";
                    REQUIRE(it.release_minimal().is_integer(!before ? 0 : before == who ? 1 : -1));
                    if (before == who) all_is.holder.reset();
                    break;
                default:  // its TTL is over
                    if (one_of(3) != 0) continue;
                    steps << "end\n";
                    server.command({"DEL", it.lock, it.who});
                    all_is.holder.reset();
                    if (one_of(4) != 0) break;
                    steps << "evicted\n";
                    server.command({"DEL", it.queue});
                    all_is.queue.clear();
            }
            INFO(seed << "\n" << steps.str());
            REQUIRE(it.get(it.lock) == (all_is.holder ? locks[*all_is.holder].owner.view() : "(nil)"));
            std::string queue;
            for (const auto each : all_is.queue) queue += (queue.empty() ? "" : "\n") + locks[each].ticket();
            REQUIRE(server.command({"ZRANGE", it.queue, "0", "-1"}) == queue);
            REQUIRE(it.all_ends());
            for (const auto each : all_is.told) {
                if (locks[each].channel.empty()) continue;
                const auto text = process.message();
                REQUIRE(text);
                const auto heard = handoff::read_message(*text);
                REQUIRE(heard);
                REQUIRE(heard->owner == locks[each].owner);
                REQUIRE((heard->fence > highest) == locks[each].fences);
                highest = std::max(highest, heard->fence);
            }
        }
        for (int twice = 0; twice < 2; ++twice) {
            for (auto& it : locks) it.release();
            for (auto& it : locks) it.release();
        }
        CHECK_FALSE(locks[0].exists(locks[0].lock));
        CHECK_FALSE(locks[0].exists(locks[0].queue));
        CHECK_FALSE(locks[0].exists(locks[0].who));
        while (process.message(0ms)) {}
    }
}

// What the server wrote before its clock was set back is ahead of it.
TEST_CASE(
    "a server whose clock was set back serves its waiters in the order they joined, with larger fences") {
    redis_server server;
    redis_link redis(server.socket_path());
    handoff_lock it(server, redis, "set:back", all);
    std::uint64_t fence = it.enter(enter_mode::join).fence;
    std::vector<handoff_lock> queue;
    std::uint64_t last = 0;
    for (const int hours : {0, 1, 24, 1000}) {
        const auto ahead = std::to_string(time_of(server) + hours * std::int64_t{3'600'000'000});
        if (hours > 0) {
            it.set(it.fence, ahead, "3900000");
            server.command({"ZADD", it.queue, ahead, queue.back().ticket()});
            last = fence = std::stoull(ahead);
        }
        for (int i = 0; i < 3; ++i) {
            queue.emplace_back(server, redis, it.lock, all);
            const auto joined = queue.back().enter(enter_mode::join).queued;
            CHECK(joined.ticket > last);
            CHECK(joined.position == queue.size() - 1);
            last = joined.ticket;
        }
    }
    auto* holder = &it;
    for (auto& next : queue) {
        CHECK(holder->release().is_integer(2));
        CHECK(next.is_ours());
        const auto larger = next.enter(enter_mode::join).fence;
        CHECK(larger > fence);
        fence = larger;
        holder = &next;
    }
    CHECK(holder->release().is_integer(1));
}

}  // namespace handoff_random_tests
