// The scripts of the hand-off on a real server: what they answer, and what they leave
// behind, whatever they find.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/testing.hpp>
#include <distlock/wire/reply.hpp>

#include "support/catch.hpp"
#include "support/handoff_lock.hpp"
#include "support/heard_channel.hpp"
#include "support/recent_fence.hpp"
#include "support/redis_link.hpp"
#include "support/waiting.hpp"

namespace handoff_scripts_tests {

using namespace handoff_test;
using distlock::handoff;

namespace {

redis_server& shared() {
    static redis_server server;
    return server;
}

redis_link& connection() {
    static redis_link redis(shared().socket_path());
    return redis;
}

handoff_lock fresh(const lock_options& options, const std::string& channel = "") {
    return {shared(), connection(), fresh_name(), options, channel};
}
handoff_lock another(const handoff_lock& it, const lock_options& options, const std::string& channel = "") {
    return {shared(), connection(), it.lock, options, channel};
}

// A process that hears what is said on its channel.
struct listener {
    std::optional<distlock::handover> hears() {
        const auto text = ears.message();
        if (!text) return std::nullopt;
        last = *text;
        return handoff::read_message(*text);
    }
    bool hears_nothing() { return !ears.message(0ms); }
    heard_channel ears{shared().socket_path()};
    std::string channel = ears.name();
    std::string last;
};

constexpr enter_mode modes[] = {enter_mode::try_once, enter_mode::join, enter_mode::last};
const std::string deaf = "nobody:listens";

}  // namespace

// Entering.

TEST_CASE(
    "a lock that is free and not awaited is granted to a waiter for an offer's time, to others for the "
    "lease") {
    for (const lock_options* options : every_kind) {
        for (const enter_mode mode : modes) {
            for (const bool queued : {false, true}) {
                auto it = fresh(*options);
                if (queued) it.queue_up(it.ticket());
                const auto outcome = it.enter(mode);
                CHECK(outcome.what == got::granted);
                const bool waits = mode != enter_mode::try_once;
                CHECK(outcome.granted_for == (waits ? std::chrono::milliseconds(2s) : options->lease.get()));
                CHECK((outcome.fence != 0) == options->fencing);
                CHECK(it.is_ours());
                if (waits) CHECK(it.ttl(it.lock) <= offer);
                CHECK_FALSE(it.exists(it.queue));
                CHECK(it.exists(it.who) == it.labels);
                if (it.labels) CHECK(it.get(it.who) == it.owner_text());
                CHECK(it.all_ends());
            }
        }
    }
}

TEST_CASE("a lease shorter than an offer is what is granted and handed over") {
    const lock_options brief{.lease = 1500ms};
    auto it = fresh(brief);
    CHECK(it.enter(enter_mode::join).granted_for == 1500ms);
    auto next = another(it, brief);
    CHECK(next.enter(enter_mode::join).what == got::busy);
    CHECK(it.ttl(it.lock) <= 1500);
    shared().command({"PEXPIRE", it.lock, "20000"});
    CHECK(it.release().is_integer(2));
    CHECK(next.is_ours());
    CHECK(next.ttl(it.lock) <= 1500);
}

TEST_CASE("a lock that is ours is granted again with the same fence, and its TTL is never shortened") {
    for (const lock_options* options : every_kind) {
        for (const enter_mode mode : modes) {
            for (const bool queued : {false, true}) {
                auto it = fresh(*options);
                const auto first = it.enter(enter_mode::join);
                if (queued) it.queue_up(it.ticket());
                shared().command({"PEXPIRE", it.lock, "15000"});
                const auto longer = it.enter(mode);
                CHECK(longer.what == got::granted);
                CHECK(longer.fence == first.fence);
                REQUIRE(longer.granted_for);
                const bool waits = mode != enter_mode::try_once;
                const auto least = waits ? std::chrono::milliseconds(2s) : options->lease.get();
                const auto left = std::max<long long>(15'000, least.count());
                CHECK(just_set(longer.granted_for->count(), left));
                CHECK(just_set(it.ttl(it.lock), left));
                CHECK_FALSE(it.is_queued());
                shared().command({"PEXPIRE", it.lock, "700"});
                CHECK(it.enter(mode).granted_for == least);
                CHECK(it.ttl(it.lock) > 1000);
                shared().command({"PERSIST", it.lock});
                CHECK(it.enter(mode).granted_for == least);
                if (it.labels) {
                    CHECK(it.get(it.who) == it.owner_text());
                    CHECK(it.ttl(it.who) > 1000);
                }
                CHECK(it.all_ends());
            }
        }
    }
}

TEST_CASE("a lock that is taken is busy; 'join' queues, 'last' dequeues, to try once changes nothing") {
    for (const lock_options* options : every_kind) {
        auto it = fresh(*options);
        it.set(it.lock, token::generate().view(), "20000");
        for (int before = 0; before < 3; ++before) {
            INFO(before << " queued");
            const auto tried = [&] { return it.enter(enter_mode::try_once); };
            CHECK(changes_nothing(shared(), [&] { CHECK(tried().queued.ticket == 0); }));
            const auto start = static_cast<std::uint64_t>(time_of(shared()));
            const auto joined = it.enter(enter_mode::join);
            CHECK(joined.what == got::busy);
            REQUIRE(joined.ttl);
            CHECK(just_set(joined.ttl->count(), 20'000));
            CHECK(joined.queued.appended);
            CHECK(joined.queued.position == static_cast<std::uint32_t>(before));
            CHECK(joined.queued.ticket >= start);
            CHECK(joined.queued.ticket <= static_cast<std::uint64_t>(time_of(shared())));
            for (const enter_mode mode : {enter_mode::join, enter_mode::try_once}) {
                const auto again = it.enter(mode);
                CHECK_FALSE(again.queued.appended);
                CHECK(again.queued.position == joined.queued.position);
                CHECK(again.queued.ticket == joined.queued.ticket);
            }
            CHECK(changes_nothing(shared(), tried));
            CHECK(it.queued() == before + 1);
            const auto last = it.enter(enter_mode::last);
            CHECK(last.what == got::busy);
            CHECK(last.queued.ticket == 0);
            CHECK_FALSE(it.is_queued());
            CHECK(it.queued() == before);
            CHECK(it.enter(enter_mode::last).what == got::busy);
            auto next = another(it, *options);
            next.enter(enter_mode::join);
            CHECK(it.all_ends());
        }
    }
}

TEST_CASE("the queue lasts three of the longest looks from the last one, a lease if that is more") {
    struct row {
        lock_options options;
        std::int64_t life;
    };
    for (const row& row : {row{{.lease = 30s}, 90'000}, row{{.lease = 10min}, 600'000},
                           row{{.lease = 30s, .recheck = 1min}, 180'000}}) {
        auto it = fresh(row.options);
        it.set(it.lock, "somebody", "20000");
        it.enter(enter_mode::join);
        CHECK(just_set(it.ttl(it.queue), row.life));
        shared().command({"PEXPIRE", it.queue, "5000"});
        it.enter(enter_mode::try_once);
        CHECK(it.ttl(it.queue) <= 5000);
        it.enter(enter_mode::join);
        CHECK(just_set(it.ttl(it.queue), row.life));
        shared().command({"PERSIST", it.queue});
        it.enter(enter_mode::join);
        CHECK(just_set(it.ttl(it.queue), row.life));
        shared().command({"PEXPIRE", it.queue, "1000000"});
        it.enter(enter_mode::join);
        CHECK(just_set(it.ttl(it.queue), 1'000'000));
    }
}

TEST_CASE("a lock of somebody else without a TTL is busy for ever, and stays as it is") {
    auto it = fresh(all);
    it.set(it.lock, "for ever");
    for (const enter_mode mode : modes) CHECK(it.enter(mode).ttl == -1ms);
    CHECK(it.release().is_integer(-1));
    CHECK(it.get(it.lock) == "for ever");
    CHECK(it.ttl(it.lock) == -1);
}

TEST_CASE("tickets are numbered in order, also when the last number is ahead of the clock") {
    auto it = fresh(bare);
    it.set(it.lock, "somebody", "20000");
    const auto ahead = static_cast<std::uint64_t>(time_of(shared())) + 3'600'000'000;
    shared().command({"ZADD", it.queue, std::to_string(ahead), another(it, bare).ticket()});
    for (std::uint64_t i = 1; i < 4; ++i) {
        it.owner = token::generate();
        const auto joined = it.enter(enter_mode::join).queued;
        CHECK(joined.ticket == ahead + i);
        CHECK(joined.position == i);
    }
}

// Without its zeros a number has a digit less in the first tenth of a second.
TEST_CASE("fences and tickets are the server's clock in microseconds, when a second has just begun, too") {
    auto it = fresh(fenced);
    auto next = another(it, bare);
    REQUIRE(eventually([] { return time_of(shared()) % 1'000'000 < 50'000; }));
    const auto before = static_cast<std::uint64_t>(time_of(shared()));
    const auto fence = it.enter(enter_mode::try_once).fence;
    const auto ticket = next.enter(enter_mode::join).queued.ticket;
    const auto after = static_cast<std::uint64_t>(time_of(shared()));
    CHECK(fence >= before);
    CHECK(ticket > fence);
    CHECK(ticket < after);
}

// Handing over.

TEST_CASE("a release gives the first waiter the lock with its own needs, and tells its channel") {
    for (const lock_options* giver : every_kind) {
        for (const lock_options* taker : every_kind) {
            INFO("from " << giver->fencing << " to " << taker->fencing);
            listener process;
            auto first = fresh(*giver);
            const auto fence = first.enter(enter_mode::join).fence;
            auto second = another(first, *taker, process.channel);
            auto third = another(first, *giver, process.channel);
            const auto number = second.enter(enter_mode::join).queued.ticket;
            third.enter(enter_mode::join);
            CHECK(first.release().is_integer(2));
            CHECK(second.is_ours());
            CHECK(second.ttl(second.lock) <= offer);
            CHECK_FALSE(second.is_queued());
            CHECK(third.is_queued());
            const auto heard = process.hears();
            REQUIRE(heard);
            CHECK(heard->owner == second.owner);
            CHECK(heard->ticket == number);
            CHECK(heard->ttl == 2s);
            CHECK((heard->fence != 0) == taker->fencing);
            if (taker->fencing) {
                CHECK(heard->fence > fence);
                CHECK(first.get(first.fence) == std::to_string(heard->fence));
                CHECK(just_set(first.ttl(first.fence), fence_life));
                CHECK(second.enter(enter_mode::join).fence == heard->fence);
            }
            CHECK(handoff::name_in(process.last) == first.lock);
            CHECK(second.exists(second.who) == second.labels);
            if (second.labels) CHECK(second.get(second.who) == second.owner_text());
            CHECK(second.all_ends());
            CHECK(second.release().is_integer(2));
            CHECK(process.hears()->owner == third.owner);
            CHECK(third.release().is_integer(1));
            CHECK(process.hears_nothing());
            for (const auto& key : {first.lock, first.queue, first.who}) CHECK_FALSE(first.exists(key));
        }
    }
}

TEST_CASE("waiters are served in the order they joined, and the last one frees the lock") {
    listener process;
    auto it = fresh(bare);
    it.enter(enter_mode::try_once);
    std::vector<handoff_lock> queue;
    for (int i = 0; i < 20; ++i) {
        queue.push_back(another(it, **(every_kind.begin() + i % 4), process.channel));
        CHECK(queue.back().enter(enter_mode::join).queued.position == static_cast<std::uint32_t>(i));
    }
    CHECK(it.release().is_integer(2));
    for (std::size_t i = 0; i < queue.size(); ++i) {
        INFO("waiter " << i);
        CHECK(process.hears()->owner == queue[i].owner);
        CHECK(queue[i].is_ours());
        CHECK(queue[i].release().is_integer(i + 1 < queue.size() ? 2 : 1));
    }
    CHECK_FALSE(it.exists(it.lock));
    CHECK_FALSE(it.exists(it.queue));
}

TEST_CASE("a ticket that nobody hears of, or that is none, is dropped, and the next is served") {
    const std::string token_text(32, 'a');
    for (const std::string& garbage :
         {std::string("x"), std::string(), token_text, token_text + " 30000 0 p0", token_text + " 0 0 p0 ",
          token_text + " 30000 0 x0 ", token_text + " 30000 0 p9 short", token_text + "a 30000 0 p0 ",
          token_text + " -1 0 p0 ", token_text.substr(1) + " 30000 0 p0 "}) {
        INFO(garbage);
        listener process;
        for (const bool by_release : {true, false}) {
            auto it = fresh(all);
            auto dead = another(it, all, deaf);
            auto next = another(it, bare, process.channel);
            CHECK(it.enter(enter_mode::try_once).what == got::granted);
            it.queue_up(garbage);
            dead.enter(enter_mode::join);
            next.enter(enter_mode::join);
            CHECK(it.queued() == 3);
            if (by_release) {
                CHECK(it.release().is_integer(2));
            } else {
                shared().command({"DEL", it.lock});
                CHECK(it.enter(enter_mode::try_once).what == got::busy);
            }
            CHECK(next.is_ours());
            CHECK(process.hears()->owner == next.owner);
            CHECK(it.queued() == 0);
            CHECK_FALSE(it.exists(it.who));
            it.queue_up(garbage);
            dead.owner = token::generate();
            dead.enter(enter_mode::join);
            CHECK(next.release().is_integer(1));
            for (const auto& key : {it.lock, it.queue, it.who}) CHECK_FALSE(it.exists(key));
        }
    }
}

TEST_CASE("a release that finds nobody to hand the lock to leaves nothing that says whose it was") {
    auto it = fresh(labelled);
    auto dead = another(it, bare, deaf);
    it.enter(enter_mode::try_once);
    dead.enter(enter_mode::join);
    REQUIRE(it.exists(it.who));
    CHECK(it.release().is_integer(1));
    for (const auto& key : {it.lock, it.queue, it.who}) CHECK_FALSE(it.exists(key));
}

TEST_CASE("somebody who listens to every channel is not taken for a waiter") {
    redis_link nosy(shared().socket_path());
    REQUIRE(nosy.ask({"PSUBSCRIBE", "*"}).elements().size() == 3);
    auto it = fresh(bare, deaf);
    auto next = another(it, bare, deaf);
    it.enter(enter_mode::join);
    next.enter(enter_mode::join);
    CHECK(it.release().is_integer(1));
    CHECK_FALSE(it.exists(it.lock));
}

TEST_CASE("a waiter without a channel is handed the lock, and finds it by looking") {
    auto it = fresh(bare);
    auto next = another(it, all);
    it.enter(enter_mode::join);
    next.enter(enter_mode::join);
    CHECK(it.release().is_integer(2));
    CHECK(next.is_ours());
    CHECK(next.enter(enter_mode::join).what == got::granted);
}

TEST_CASE("a script that finds the lock free hands it to the first in the queue, unless that is the asker") {
    for (const lock_options* options : every_kind) {
        for (const enter_mode mode : modes) {
            listener process;
            auto it = fresh(*options);
            auto first = another(it, all, process.channel);
            auto second = another(it, *options, process.channel);
            it.set(it.lock, "somebody", "20000");
            first.enter(enter_mode::join);
            second.enter(enter_mode::join);
            shared().command({"DEL", it.lock});
            const auto asked = it.enter(mode);
            CHECK(asked.what == got::busy);
            CHECK(asked.ttl <= 2s);
            CHECK(asked.ttl > 0s);
            CHECK(asked.queued.appended == (mode == enter_mode::join));
            CHECK(it.is_queued() == (mode == enter_mode::join));
            CHECK(process.hears()->owner == first.owner);
            CHECK(first.is_ours());
            shared().command({"DEL", it.lock});
            CHECK(second.enter(mode).what == got::granted);
            CHECK(second.is_ours());
            CHECK_FALSE(second.is_queued());
            CHECK(process.hears_nothing());
            CHECK(it.all_ends());
        }
    }
}

TEST_CASE("a waiter that finds the lock free passes over those before it that nobody hears") {
    auto it = fresh(all);
    auto dead = another(it, all, deaf);
    it.set(it.lock, "somebody", "20000");
    dead.enter(enter_mode::join);
    it.enter(enter_mode::join);
    shared().command({"DEL", it.lock});
    const auto granted = it.enter(enter_mode::last);
    CHECK(granted.what == got::granted);
    CHECK(granted.fence > 0);
    CHECK(it.is_ours());
    CHECK(it.get(it.who) == it.owner_text());
    CHECK_FALSE(it.exists(it.queue));
}

TEST_CASE("a lock's name comes last in a message, whatever it is") {
    listener process;
    for (const std::string& name :
         {std::string("with space"), std::string(4096, 'x'), std::string("\0\r\n\xff", 4)}) {
        handoff_lock first(shared(), connection(), name, bare);
        auto second = another(first, bare, process.channel);
        first.enter(enter_mode::join);
        second.enter(enter_mode::join);
        CHECK(first.release().is_integer(2));
        CHECK(process.hears());
        CHECK(handoff::name_in(process.last) == name);
        CHECK(second.release().is_integer(1));
    }
}

// Leaving.

TEST_CASE("to leave removes the ticket whoever has the lock") {
    for (const lock_options* options : every_kind) {
        auto it = fresh(*options);
        CHECK(changes_nothing(shared(), [&] { CHECK(it.release().is_integer(0)); }));
        auto other = another(it, *options);
        it.queue_up(it.ticket());
        it.queue_up(other.ticket());
        CHECK(it.release().is_integer(0));
        CHECK_FALSE(it.is_queued());
        CHECK(other.is_queued());
        it.set(it.lock, "somebody", "20000");
        it.queue_up(it.ticket());
        CHECK(it.release().is_integer(-1));
        CHECK(it.queued() == 1);
        CHECK(changes_nothing(shared(), [&] { CHECK(it.release().is_integer(-1)); }));
        CHECK(it.get(it.lock) == "somebody");
        it.set(it.lock, it.owner.view(), "20000");
        it.queue_up(it.ticket());
        CHECK(it.release().is_integer(2));
        CHECK_FALSE(it.is_queued());
        CHECK(other.is_ours());
    }
}

TEST_CASE("a release keeps the largest fence that was used since, and hands over a larger one") {
    for (const lock_options* options : {&fenced, &all}) {
        for (const bool awaited : {false, true}) {
            for (const std::int64_t ahead : {std::int64_t{-1'000'000'000}, std::int64_t{3'600'000'000}}) {
                listener process;
                auto it = fresh(*options);
                auto next = another(it, *options, process.channel);
                const auto given = it.enter(enter_mode::join).fence;
                const auto used = static_cast<std::uint64_t>(static_cast<std::int64_t>(given) + ahead);
                it.owner.fence(used);
                if (awaited) next.enter(enter_mode::join);
                CHECK(it.release().is_integer(awaited ? 2 : 1));
                CHECK(it.all_ends());
                if (awaited) {
                    CHECK(process.hears()->fence > std::max(used, given));
                } else {
                    CHECK(it.get(it.fence) == std::to_string(std::max(used, given)));
                    CHECK(next.enter(enter_mode::try_once).fence > std::max(used, given));
                }
            }
        }
    }
}

TEST_CASE("a fence is the server's time where that is ahead, else 250 more, and lives for its whole time") {
    for (const char* last : {"", "17", "garbage", "9007199254740993"}) {
        INFO("last fence: " << last);
        listener process;
        auto it = fresh(fenced);
        auto next = another(it, fenced, process.channel);
        const auto spoil = [&] {
            if (*last != '\0') it.set(it.fence, last, "100000");
            return time_of(shared());
        };
        const auto check = [&](std::int64_t before, std::uint64_t fence) {
            const auto made = static_cast<std::int64_t>(fence);
            if (*last == '9') {
                CHECK(made == 9007199254741243);
            } else {
                CHECK(made >= before);
                CHECK(made <= time_of(shared()));
            }
            CHECK(it.get(it.fence) == std::to_string(fence));
            CHECK(just_set(it.ttl(it.fence), fence_life));
        };
        auto before = spoil();
        check(before, it.enter(enter_mode::join).fence);
        next.enter(enter_mode::join);
        before = spoil();
        CHECK(it.release().is_integer(2));
        check(before, process.hears()->fence);
    }
}

TEST_CASE("a fence that was lost while the lock was held is made anew, and grows") {
    auto it = fresh(fenced);
    const auto first = it.enter(enter_mode::join).fence;
    for (const char* spoilt : {"", "garbage", "0", "-1"}) {
        shared().command({"DEL", it.fence});
        if (*spoilt != '\0') it.set(it.fence, spoilt, "60000");
        CHECK(it.enter(enter_mode::join).fence > first);
    }
}

TEST_CASE("a renewal lasts a whole lease, and so does what says who the owner is") {
    for (const lock_options* options : every_kind) {
        auto it = fresh(*options);
        it.enter(enter_mode::join);
        CHECK(it.ask(it.dialect.renew(it.owner)).is_integer(1));
        CHECK(just_set(it.ttl(it.lock), lease));
        if (it.labels) CHECK(just_set(it.ttl(it.who), lease));
        it.owner = token::generate();
        CHECK(it.ask(it.dialect.renew(it.owner)).is_integer(-1));
    }
}

// By force, and from outside.

TEST_CASE(
    "a lock that is taken away by force is handed to the first waiter, and freed when nobody is queued") {
    for (const lock_options* options : every_kind) {
        listener process;
        auto it = fresh(*options);
        auto dead = another(it, bare, deaf);
        auto next = another(it, *options, process.channel);
        CHECK(changes_nothing(shared(), [&] { CHECK(it.force().is_integer(0)); }));
        const auto fence = it.enter(enter_mode::join).fence;
        dead.enter(enter_mode::join);
        next.enter(enter_mode::join);
        CHECK(it.force().is_integer(1));
        CHECK(it.get(it.mark) == it.owner.view());
        CHECK(it.ttl(it.mark) > 0);
        CHECK(next.is_ours());
        CHECK(next.ttl(next.lock) <= offer);
        CHECK(next.exists(next.who) == next.labels);
        const auto heard = process.hears();
        REQUIRE(heard);
        CHECK(heard->owner == next.owner);
        CHECK((!options->fencing || heard->fence > fence));
        CHECK(next.force().is_integer(1));
        CHECK(it.get(it.mark) == next.owner.view());
        for (const auto& key : {it.lock, it.queue, it.who}) CHECK_FALSE(it.exists(key));
    }
}

// A lock that was taken within 250 us of its grant was granted with a number in between: a thread of the last
// owner's process, which did not know yet, was given the same.
TEST_CASE(
    "the owner of a lock that was taken by force has no fence that its last owner's process may give a "
    "thread") {
    for (const lock_options* options : {&fenced, &all}) {
        for (int microseconds = 0; microseconds < 1000; microseconds += 20) {
            auto it = fresh(*options);
            auto next = another(it, *options);
            CHECK(it.enter(enter_mode::join).fence > 0);
            const bool waits = microseconds % 40 == 0;
            if (waits) next.enter(enter_mode::join);
            const auto last = set_recent_fence(shared(), it.fence, microseconds);
            CHECK(it.force().is_integer(1));
            CHECK(next.enter(enter_mode::join).fence >= last + 250);
            CHECK(next.is_ours());
        }
    }
}

TEST_CASE("inspect() lists the waiters in order: since when they wait, where they hear, and who they are") {
    auto it = fresh(fenced);
    const distlock::plain_inspector about(it.lock);
    const auto inspect = [&] {
        distlock::reply answer;
        CHECK(changes_nothing(shared(), [&] { answer = it.ask(about.inspect()); }));
        const auto report = about.read_inspect(answer);
        REQUIRE(report);
        return *report;
    };
    CHECK(inspect().waiters == 0U);
    it.enter(enter_mode::join);
    auto first = another(it, all, "process:one");
    auto second = another(it, lock_options{.lease = 5s}, "");
    const auto joined = first.enter(enter_mode::join).queued.ticket;
    it.queue_up("garbage");
    second.enter(enter_mode::join);
    const auto before = static_cast<std::uint64_t>(time_of(shared())) - joined;
    const auto report = inspect();
    const auto after = static_cast<std::uint64_t>(time_of(shared())) - joined;
    CHECK(report.holder->token == it.owner.view());
    CHECK(report.waiters == 3U);
    REQUIRE(report.queue.size() == 2);
    CHECK(static_cast<std::uint64_t>(report.queue[0].waits.count()) >= before);
    CHECK(static_cast<std::uint64_t>(report.queue[0].waits.count()) <= after);
    CHECK(report.queue[0].lease == 30s);
    CHECK(report.queue[0].channel == "process:one");
    CHECK(report.queue[0].label == label);
    CHECK(report.queue[0].pid == ::getpid());
    CHECK(report.queue[1].lease == 5s);
    CHECK(report.queue[1].channel.empty());
    CHECK(report.queue[1].label.empty());
    for (int i = 0; i < 200; ++i) {
        second.owner = token::generate();
        second.enter(enter_mode::join);
    }
    CHECK(inspect().waiters == 203U);
    CHECK(inspect().queue.size() == 99);  // garbage is one of the first hundred
    shared().command({"DEL", it.queue});
    shared().command({"SET", it.queue, "no queue", "PX", "60000"});
    CHECK_FALSE(inspect().waiters);
    CHECK(inspect().queue.empty());
}

TEST_CASE("inspect() counts all waiters, and lists no more of them than an answer has room for") {
    auto it = fresh(bare);
    const distlock::plain_inspector about(it.lock);
    it.enter(enter_mode::join);
    for (int i = 0; i < 100; ++i) another(it, bare, std::string(1024, 'c')).enter(enter_mode::join);
    const auto report = about.read_inspect(it.ask(about.inspect()));
    REQUIRE(report);
    CHECK(report->waiters == 100U);
    CHECK(report->queue.size() > 20);
    CHECK(report->queue.size() < 33);
}

}  // namespace handoff_scripts_tests
