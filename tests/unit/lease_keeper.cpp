// What is done in the background over a connection: one thread, one pipeline for all that is due.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <pthread.h>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/engine/lease_keeper.hpp>
#include <distlock/net/companion.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/testing/manual_clock.hpp>

#include "catch.hpp"
#include "count.hpp"
#include "in_child.hpp"
#include "slack.hpp"
#include "waiting.hpp"

namespace {

using distlock::clock;
using real_clock = distlock::clock;
using distlock::command;
using distlock::reply;
using distlock::engine::keeper_of;
using distlock::engine::lease_keeper;
using distlock::testing::manual_clock;
using namespace std::chrono_literals;
using time_point = clock::time_point;
constexpr auto never = time_point::max();

/// Answers OK to everything, in pipelines, and notes how they were made up. A test can make it slow, or throw.
class pipelining {
  public:
    reply execute(const command& cmd) {
        pipelines_of({&cmd, 1});
        return reply::status("OK");
    }
    void pipeline(std::span<const command> commands, std::span<reply> replies) {
        pipelines_of(commands);
        std::fill(replies.begin(), replies.end(), reply::status("OK"));
    }
    /// Returns: of each pipeline, the last arguments of its commands.
    std::vector<std::vector<std::string>> pipelines() const {
        const std::lock_guard guard(lock_);
        return pipelines_;
    }
    std::function<void()> during;  // set before there is a keeper

  private:
    void pipelines_of(std::span<const command> commands) {
        {
            const std::lock_guard guard(lock_);
            auto& one = pipelines_.emplace_back();
            for (const auto& cmd : commands) one.emplace_back(cmd.argv().back());
        }
        if (during) during();
    }
    mutable std::mutex lock_;
    std::vector<std::vector<std::string>> pipelines_;
};

/// The same with a place for its keeper.
struct hosting : pipelining {
    distlock::companion& host() { return companion_; }
    distlock::companion companion_;
};

template <class Conn, class Clock>
struct errand final : lease_keeper<Conn, Clock>::chore {
    using chore = typename lease_keeper<Conn, Clock>::chore;
    explicit errand(std::string called, clock::duration before_time = {}) : name(std::move(called)) {
        this->early = before_time;
    }
    ~errand() override {
        if (destroyed != nullptr) *destroyed = true;
    }
    typename chore::step begin(time_point now) noexcept override {
        ++begins;
        if (on_begin) {
            const auto later = on_begin(now);
            if (later) return {{}, *later};
        }
        return {command{"ECHO", name}, {}};
    }
    time_point end(const reply& answer, time_point sent, time_point now) noexcept override {
        last_answer = answer;
        last_sent = sent;
        last_now = now;
        const auto next = on_end ? on_end(now) : never;
        ++ends;
        return next;
    }
    std::string name;
    std::function<std::optional<time_point>(time_point)> on_begin;
    std::function<time_point(time_point)> on_end;
    std::atomic<int> begins{0};
    std::atomic<int> ends{0};
    std::atomic<bool>* destroyed = nullptr;
    reply last_answer;  // read when `ends` has been seen to count
    time_point last_sent{};
    time_point last_now{};
};

using keeper = lease_keeper<pipelining, manual_clock>;
using chore = errand<pipelining, manual_clock>;
using real_keeper = lease_keeper<pipelining, clock>;
using real_chore = errand<pipelining, clock>;

/// A door that stays closed until it is opened, or the test ends.
class door {
  public:
    door() = default;
    door(const door&) = delete;
    door& operator=(const door&) = delete;
    ~door() { open(); }
    void open() noexcept { open_ = true; }
    void close() noexcept { open_ = false; }
    void pass() noexcept {
        inside_ = true;
        while (!open_) std::this_thread::yield();
    }
    bool reached() const noexcept { return inside_; }

  private:
    std::atomic<bool> open_{false};
    std::atomic<bool> inside_{false};
};

// The thread sanitizer allows a child of a process with threads none of its own.
#if defined(__SANITIZE_THREAD__)
constexpr bool threads_in_a_child = false;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
constexpr bool threads_in_a_child = false;
#else
constexpr bool threads_in_a_child = true;
#endif
#else
constexpr bool threads_in_a_child = true;
#endif

}  // namespace

// ---- when ------------------------------------------------------------------------------------------------

TEST_CASE("a keeper has no thread before its first chore, and leaves none behind") {
    std::jthread([] {}).join();  // a sanitizer has a thread of its own from the first on
    const auto before = thread_count();
    pipelining c;
    real_chore one("one");
    {
        real_keeper k(c);
        CHECK(thread_count() == before);
        k.list(one, clock::now() + 1h);
        CHECK(thread_count() == before + 1);
        k.strike(one);
    }
    CHECK(eventually([&] { return thread_count() == before; }));
    CHECK(c.pipelines().empty());
}

TEST_CASE("a chore begins at its time, is sent, and hears the answer and when it was sent") {
    pipelining c;
    real_chore one("one");
    real_keeper k(c);
    const auto at = clock::now() + 30ms;
    k.list(one, at);
    REQUIRE(eventually([&] { return one.ends == 1; }));
    CHECK(one.last_answer.is_status("OK"));
    CHECK(one.last_sent >= at);
    CHECK(one.last_sent < at + slack);
    CHECK(one.last_now >= one.last_sent);
    k.strike(one);
    CHECK(c.pipelines().size() == 1);
}

TEST_CASE("a chore begins again at the time it asked for, sent or not") {
    manual_clock::reset();
    pipelining c;
    chore one("one");
    int asked = 0;
    one.on_begin = [&](time_point now) -> std::optional<time_point> {
        if (++asked % 2 == 1) return now + 1s;  // not yet
        return {};
    };
    one.on_end = [](time_point now) { return now + 1s; };
    keeper k(c);
    k.list(one, manual_clock::now());
    for (int i = 1; i <= 6; ++i) {
        REQUIRE(eventually([&] { return one.begins == i && one.ends == i / 2; }));
        manual_clock::advance(1s);
    }
    k.strike(one);
    CHECK(c.pipelines().size() >= 3);
}

TEST_CASE("a chore that has nothing to do any more is not listed any more") {
    manual_clock::reset();
    pipelining c;
    chore sends("sends");
    chore silent("silent");
    silent.on_begin = [](time_point) { return never; };
    keeper k(c);
    k.list(sends, manual_clock::now());
    k.list(silent, manual_clock::now());
    REQUIRE(eventually([&] { return sends.ends == 1 && silent.begins == 1; }));
    k.strike(sends);
    k.strike(silent);
    manual_clock::advance(1h);
    CHECK_FALSE(sends.listed());
    CHECK_FALSE(silent.listed());
    CHECK(silent.begins == 1);
}

TEST_CASE("listing a chore again makes it earlier, never later") {
    manual_clock::reset();
    pipelining c;
    chore one("one");
    keeper k(c);
    const auto start = manual_clock::now();
    k.list(one, start + 10s);
    k.list(one, start + 20s);
    manual_clock::advance(10s);
    REQUIRE(eventually([&] { return one.ends == 1; }));
    k.strike(one);
    k.list(one, start + 30s);
    k.list(one, start + 20s);
    manual_clock::advance(10s);
    CHECK(eventually([&] { return one.ends == 2; }));
    k.strike(one);
}

TEST_CASE("a chore that is listed while it is being done begins at the earlier of both times") {
    for (const bool listing_is_earlier : {true, false}) {
        manual_clock::reset();
        const auto start = manual_clock::now();
        door hold;
        pipelining c;
        c.during = [&] { hold.pass(); };
        chore one("one");
        one.on_end = [&](time_point) {
            return one.ends == 0 ? start + (listing_is_earlier ? 20s : 10s) : never;
        };
        keeper k(c);
        k.list(one, start);
        REQUIRE(eventually([&] { return hold.reached(); }));
        k.list(one, start + (listing_is_earlier ? 10s : 20s));
        hold.open();
        REQUIRE(eventually([&] { return one.ends == 1; }));
        manual_clock::advance(10s);
        CHECK(eventually([&] { return one.ends == 2; }));
        k.strike(one);
    }
}

TEST_CASE("a chore that becomes the earliest wakes the keeper") {
    pipelining c;
    real_chore late("late");
    real_chore early("early");
    real_keeper k(c);
    k.list(late, clock::now() + 1h);
    const auto at = clock::now() + 20ms;
    k.list(early, at);
    REQUIRE(eventually([&] { return early.ends == 1; }));
    CHECK(early.last_sent < at + slack);
    k.strike(late);
    k.strike(early);
    CHECK(late.begins == 0);
}

// ---- together --------------------------------------------------------------------------------------------

TEST_CASE("what is due together goes in one pipeline, in the order of its times") {
    manual_clock::reset();
    pipelining c;
    keeper k(c);
    std::vector<std::unique_ptr<chore>> all;
    for (int i = 0; i < 100; ++i) {
        all.push_back(std::make_unique<chore>(std::to_string(i)));
        k.list(*all.back(), manual_clock::now() + 1s + 1ms * i);
    }
    chore later("later");
    k.list(later, manual_clock::now() + 1h);
    manual_clock::advance(2s);
    REQUIRE(eventually([&] { return all.back()->ends == 1; }));
    const auto sent = c.pipelines();
    REQUIRE(sent.size() == 1);
    REQUIRE(sent[0].size() == 100);
    for (std::size_t i = 0; i < 100; ++i) CHECK(sent[0][i] == std::to_string(i));
    CHECK(all.front()->last_sent == all.back()->last_sent);
    for (auto& one : all) k.strike(*one);
    k.strike(later);
    CHECK(later.begins == 0);
}

TEST_CASE("more than a server has patience for goes in several pipelines") {
    manual_clock::reset();
    pipelining c;
    keeper k(c);
    std::vector<std::unique_ptr<chore>> all;
    for (int i = 0; i < 2500; ++i) {
        all.push_back(std::make_unique<chore>("x"));
        k.list(*all.back(), manual_clock::now() + 1s);
    }
    manual_clock::advance(1s);
    CHECK(eventually(
        [&] { return std::all_of(all.begin(), all.end(), [](auto& one) { return one->ends == 1; }); }));
    std::size_t sum = 0;
    for (const auto& one : c.pipelines()) {
        CHECK(one.size() <= 1024);
        sum += one.size();
    }
    CHECK(sum == 2500);
    CHECK(c.pipelines().size() == 3);
    for (auto& one : all) k.strike(*one);
}

TEST_CASE("a chore that may go early goes with another, and not alone") {
    manual_clock::reset();
    pipelining c;
    chore due("due");
    chore early("early", 2s);
    chore not_so_early("not so early", 500ms);
    keeper k(c);
    k.list(due, manual_clock::now() + 10s);
    k.list(early, manual_clock::now() + 11s);
    k.list(not_so_early, manual_clock::now() + 12s);
    manual_clock::advance(9s);
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    CHECK(early.begins == 0);
    manual_clock::advance(1s);
    REQUIRE(eventually([&] { return due.ends == 1; }));
    CHECK(c.pipelines() == std::vector<std::vector<std::string>>{{"due", "early"}});
    CHECK(not_so_early.begins == 0);
    k.strike(due);
    k.strike(early);
    k.strike(not_so_early);
}

TEST_CASE("without a pipeline, an answer that does not come keeps no other answer back") {
    manual_clock::reset();
    door hold;
    auto one_after_the_other = [&](const command& cmd) {
        if (cmd.argv().back() == "hangs") hold.pass();
        return reply::status("OK");
    };
    using plain = decltype(one_after_the_other);
    errand<plain, manual_clock> quick("quick");
    errand<plain, manual_clock> hangs("hangs");
    errand<plain, manual_clock> behind("behind");
    lease_keeper<plain, manual_clock> k(one_after_the_other);
    k.list(behind, manual_clock::now() + 3s);
    k.list(hangs, manual_clock::now() + 2s);
    k.list(quick, manual_clock::now() + 1s);
    manual_clock::advance(3s);
    REQUIRE(eventually([&] { return hold.reached(); }));
    CHECK(quick.ends == 1);
    k.strike(quick);  // would hang, if it were not over
    hold.open();
    CHECK(eventually([&] { return hangs.ends == 1 && behind.ends == 1; }));
    k.strike(hangs);
    k.strike(behind);
}

// ---- strike ----------------------------------------------------------------------------------------------

TEST_CASE("a chore that was struck does not begin") {
    manual_clock::reset();
    pipelining c;
    chore struck("struck");
    chore witness("witness");
    keeper k(c);
    k.list(struck, manual_clock::now() + 1s);
    k.list(witness, manual_clock::now() + 1s);
    k.strike(struck);
    k.strike(struck);  // once more is no harm
    manual_clock::advance(1s);
    REQUIRE(eventually([&] { return witness.ends == 1; }));
    CHECK(struck.begins == 0);
    k.strike(witness);
}

TEST_CASE("striking waits for the end of what was begun, and nothing begins after it") {
    manual_clock::reset();
    door hold;
    std::atomic<bool> struck{false};
    std::atomic<int> begins{0};
    std::atomic<int> ends{0};
    pipelining c;
    c.during = [&] { hold.pass(); };
    chore one("one");
    one.on_end = [](time_point now) { return now; };  // again at once
    keeper k(c);
    k.list(one, manual_clock::now());
    REQUIRE(eventually([&] { return hold.reached(); }));
    std::jthread striker([&] {
        k.strike(one);
        begins = one.begins.load();
        ends = one.ends.load();
        struck = true;
    });
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    CHECK_FALSE(struck.load());
    hold.open();
    striker.join();
    CHECK(begins == ends);
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    CHECK(one.begins == begins);
    CHECK_FALSE(one.listed());
}

TEST_CASE("chores that come and go on many threads are all done, and none after it was struck") {
    std::atomic<int> wrong{0};
    pipelining c;
    real_keeper k(c);
    {
        std::vector<std::jthread> threads;
        for (int t = 0; t < 4; ++t) {
            threads.emplace_back([&, t] {
                for (int i = 0; i < 200; ++i) {
                    real_chore one("x", 1ms * (i % 3));
                    one.on_end = [&, i](time_point now) { return i % 2 == 0 ? never : now + 50us; };
                    k.list(one, clock::now() + 1us * ((i * 7 + t) % 200));
                    if (i % 3 == 0) k.list(one, clock::now());
                    if (i % 5 != 0) {
                        while (one.ends == 0) std::this_thread::yield();
                    }
                    k.strike(one);
                    if (one.begins != one.ends || one.listed()) ++wrong;
                }
            });
        }
    }
    CHECK(wrong == 0);
}

// ---- what is owed ----------------------------------------------------------------------------------------

TEST_CASE("an owed chore lives until it is done, and no longer") {
    manual_clock::reset();
    std::atomic<bool> destroyed{false};
    std::atomic<int> ends{0};
    pipelining c;
    auto one = std::make_unique<chore>("one");
    one->destroyed = &destroyed;
    one->on_end = [&](time_point now) { return ++ends == 3 ? never : now + 1s; };
    keeper k(c);
    k.owe(std::move(one), manual_clock::now() + 1s);
    for (int i = 0; i < 3; ++i) {
        CHECK_FALSE(destroyed.load());
        manual_clock::advance(1s);
        REQUIRE(eventually([&] { return ends == i + 1; }));
    }
    CHECK(eventually([&] { return destroyed.load(); }));
}

TEST_CASE("what is owed is given up at the end of the keeper") {
    manual_clock::reset();
    std::atomic<bool> destroyed{false};
    pipelining c;
    {
        keeper k(c);
        auto one = std::make_unique<chore>("one");
        one->destroyed = &destroyed;
        k.owe(std::move(one), manual_clock::now() + 1h);
        CHECK_FALSE(destroyed.load());
    }
    CHECK(destroyed.load());
    CHECK(c.pipelines().empty());
}

TEST_CASE("what nobody can be waiting for any more is given up: debts do not fill the memory") {
    manual_clock::reset();
    std::atomic<bool> destroyed{false};
    pipelining c;
    keeper k(c);
    int owed = 0;
    for (; owed < 100'000 && !destroyed; ++owed) {
        auto one = std::make_unique<chore>("x");
        one->destroyed = &destroyed;
        k.owe(std::move(one), manual_clock::now() + 1h);
    }
    CHECK(owed > 1000);
    CHECK(owed < 100'000);
}

// ---- whatever the connection does ------------------------------------------------------------------------

TEST_CASE("an exception out of the connection is an answer that is missing, and the keeper goes on") {
    manual_clock::reset();
    std::atomic<int> calls{0};
    std::atomic<int> missing{0};
    pipelining c;
    c.during = [&] {
        switch (++calls) {
            case 1:
                throw std::runtime_error("of a client");
            case 2:
                throw std::bad_alloc();
            case 3:
                throw 3;
            default:
                break;
        }
    };
    chore one("one");
    one.on_end = [&](time_point now) {
        if (one.last_answer.is(distlock::reply_kind::no_answer)) ++missing;
        return now + 1s;
    };
    keeper k(c);
    k.list(one, manual_clock::now());
    for (int i = 1; i <= 4; ++i) {
        REQUIRE(eventually([&] { return one.ends == i; }));
        manual_clock::advance(1s);
    }
    k.strike(one);
    CHECK(missing == 3);
}

TEST_CASE("one connection that hangs delays nothing on another") {
    pipelining hanging;
    pipelining other;
    door hold;
    hanging.during = [&] { hold.pass(); };
    real_chore stuck("stuck");
    real_chore lucky("lucky");
    real_keeper k1(hanging);
    real_keeper k2(other);
    k1.list(stuck, clock::now());
    REQUIRE(eventually([&] { return hold.reached(); }));
    const auto at = clock::now();
    k2.list(lucky, at);
    REQUIRE(eventually([&] { return lucky.ends == 1; }));
    CHECK(lucky.last_now < at + slack);
    k2.strike(lucky);
    hold.open();
    k1.strike(stuck);
}

TEST_CASE("no signal of the program is handled while a chore is done") {
    manual_clock::reset();
    std::atomic<bool> blocked{false};
    pipelining c;
    c.during = [&] {
        sigset_t mask;
        pthread_sigmask(SIG_SETMASK, nullptr, &mask);
        blocked = sigismember(&mask, SIGINT) == 1 && sigismember(&mask, SIGUSR1) == 1;
    };
    chore one("one");
    keeper k(c);
    k.list(one, manual_clock::now());
    REQUIRE(eventually([&] { return one.ends == 1; }));
    CHECK(blocked.load());
    k.strike(one);
}

TEST_CASE("a chore stays listed while it is in hand: to enter it anew could need memory") {
    manual_clock::reset();
    std::atomic<bool> listed{false};
    pipelining c;
    keeper k(c);
    chore one("one");
    one.on_end = [&](time_point) {
        listed = one.listed();
        return never;
    };
    k.list(one, manual_clock::now());
    REQUIRE(eventually([&] { return one.ends == 1; }));
    CHECK(listed.load());
    k.strike(one);
}

TEST_CASE("when no thread is to be had, listing says so and nothing is listed") {
    if (!threads_in_a_child) return;
    CHECK(in_child([] {
        std::atomic<bool> destroyed{false};
        pipelining c;
        real_keeper k(c);
        pthread_attr_t endless;
        pthread_attr_init(&endless);
        pthread_attr_setstacksize(&endless, std::size_t{1} << 48U);  // refused to root, too
        if (pthread_setattr_default_np(&endless) != 0) return false;
        real_chore one("one");
        bool refused = false;
        try {
            k.list(one, clock::now());
        } catch (const std::system_error&) {
            refused = true;
        }
        auto owed = std::make_unique<real_chore>("owed");
        owed->destroyed = &destroyed;
        k.owe(std::move(owed), clock::now());
        return refused && destroyed && !one.listed();
    }));
}

// ---- whose keeper ----------------------------------------------------------------------------------------

TEST_CASE("the keeper of a connection that has a place for it lives as long as the connection") {
    std::weak_ptr<lease_keeper<hosting, real_clock>> seen;
    {
        hosting c;
        seen = keeper_of<real_clock>(c);
        CHECK_FALSE(seen.expired());
        CHECK(keeper_of<real_clock>(c) == seen.lock());
        hosting other;
        CHECK(keeper_of<real_clock>(other) != seen.lock());
    }
    CHECK(seen.expired());
}

TEST_CASE("the keeper of any other connection lives as long as somebody uses it") {
    pipelining c;
    auto first = keeper_of<real_clock>(c);
    auto second = keeper_of<real_clock>(c);
    CHECK(first == second);
    pipelining other;
    CHECK(keeper_of<real_clock>(other) != first);
    const auto threads = thread_count();
    real_chore one("of both");
    first->list(one, clock::now());
    REQUIRE(eventually([&] { return one.ends == 1; }));
    first->strike(one);
    first.reset();
    CHECK(thread_count() == threads + 1);
    second.reset();
    CHECK(thread_count() == threads);
    CHECK(keeper_of<real_clock>(c) != nullptr);
}

TEST_CASE("another connection at the same address has a keeper of its own") {
    std::optional<pipelining> place(std::in_place);
    const pipelining* const address = &*place;
    {
        const auto k = keeper_of<real_clock>(*place);
        real_chore one("of the first");
        k->list(one, clock::now());
        REQUIRE(eventually([&] { return one.ends == 1; }));
        k->strike(one);
    }
    CHECK(place->pipelines().size() == 1);
    place.emplace();
    REQUIRE(&*place == address);
    const auto k = keeper_of<real_clock>(*place);
    real_chore one("of the second");
    k->list(one, clock::now());
    REQUIRE(eventually([&] { return one.ends == 1; }));
    k->strike(one);
    CHECK(place->pipelines().size() == 1);
}

TEST_CASE("threads that ask for the keeper of a connection at once get the same") {
    pipelining c;
    std::vector<std::shared_ptr<real_keeper>> got(8);
    {
        std::vector<std::jthread> threads;
        for (auto& mine : got) threads.emplace_back([&] { mine = keeper_of<real_clock>(c); });
    }
    CHECK(std::set(got.begin(), got.end()).size() == 1);
}

// ---- fork ------------------------------------------------------------------------------------------------

TEST_CASE("a child ends its copy of a keeper that is at work, and comes back") {
    door hold;
    pipelining c;
    c.during = [&] { hold.pass(); };
    std::optional<real_keeper> k(std::in_place, c);
    real_chore one("one");
    k->list(one, clock::now());
    REQUIRE(eventually([&] { return hold.reached(); }));
    CHECK(in_child([&] {
        k.reset();
        return true;
    }));
    hold.open();
    k->strike(one);
    CHECK(one.ends == 1);
}

TEST_CASE("a child has keepers of its own, that work") {
    if (!threads_in_a_child) return;
    pipelining c;
    const auto of_the_parent = keeper_of<real_clock>(c);
    real_chore one("one");
    of_the_parent->list(one, clock::now() + 1h);
    CHECK(in_child([&] {
        pipelining mine;
        const auto k = keeper_of<real_clock>(mine);
        const auto again = keeper_of<real_clock>(c);
        real_chore mine_too("mine");
        again->list(mine_too, clock::now());
        const bool done = eventually([&] { return mine_too.ends == 1; });
        again->strike(mine_too);
        return done && again != of_the_parent && k != again;
    }));
    of_the_parent->strike(one);
}

#ifndef DISTLOCK_TEST_INSTRUMENTED  // the allocators of sanitizers do not survive a fork in the middle of an allocation
TEST_CASE("a child gets a keeper even if a thread of its parent was just asking for one") {
    // As many forks as it takes to fall into the middle of a question.
    std::atomic<bool> end{false};
    std::jthread asks([&] {
        while (!end) {
            pipelining c;
            static_cast<void>(keeper_of<real_clock>(c));
        }
    });
    bool all = true;
    for (int i = 0; i < 200 && all; ++i) {
        all = in_child([] {
            ::alarm(5);
            pipelining mine;
            return keeper_of<real_clock>(mine) != nullptr;
        });
    }
    end = true;
    CHECK(all);
}
#endif
