// What is done in the background over a connection: one thread, one pipeline for all that is due.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
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
#include <string_view>
#include <sys/syscall.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/options.hpp>
#include <distlock/engine/background_io.hpp>
#include <distlock/mutex.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/net/hash_slot.hpp>
#include <distlock/net/service_registry.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/testing/manual_clock.hpp>
#include <distlock/wire/acknowledgement.hpp>
#include <distlock/wire/any_dialect.hpp>
#include <distlock/wire/handoff.hpp>

#include "in_child.hpp"
#include "lab_figures.hpp"
#include "sanitizers.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/counting_clock.hpp"
#include "support/gate.hpp"
#include "support/io_over.hpp"
#include "support/no_threads.hpp"
#include "support/publishing_connection.hpp"
#include "support/replaced_master.hpp"
#include "support/sleepers.hpp"
#include "timing_tolerance.hpp"
#include "waiting.hpp"

namespace background_io_tests {

namespace {

using distlock::clock;
using real_clock = distlock::clock;
using distlock::command;
using distlock::reply;
using distlock::engine::background_io;
using distlock::engine::background_io_of;
using distlock::testing::manual_clock;
using namespace std::chrono_literals;
using time_point = clock::time_point;
constexpr auto never = time_point::max();

/// Answers OK to everything, in pipelines, and notes how they were made up. A test can
/// make it slow, or throw.
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
    std::function<void()> during;  // set before there is background I/O

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

/// The same with a place for its background I/O.
struct hosting : pipelining {
    distlock::service_registry& services() { return services_; }
    distlock::service_registry services_;
};

struct task final : distlock::engine::background_task {
    explicit task(std::string called, clock::duration before_time = {}) : name(std::move(called)) {
        this->early = before_time;
    }
    ~task() override {
        if (destroyed != nullptr) *destroyed = true;
    }
    distlock::engine::background_task::step begin(time_point now) noexcept override {
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

using following = replaced_master<pipelining>;
static_assert(distlock::following_connection<following> && !distlock::following_connection<pipelining>);

/// One to a Cluster.
struct following_shards : following {
    static constexpr auto channels = distlock::channel_kind::sharded;
    std::shared_ptr<distlock::subscription> subscribe(std::string_view) { return nullptr; }
    void change_master_of(const std::string& lock) const {
        const std::array<std::uint16_t, 1> slots{distlock::hash_slot(lock)};
        if (const auto told = listener.lock()) told->master_changed_of(slots);
    }
};
static_assert(distlock::following_connection<following_shards> &&
              distlock::sharded_connection<following_shards>);

using manual_io = io_over<pipelining, manual_clock>;
using real_io = io_over<pipelining, clock>;

}  // namespace

// ---- when ------------------------------------------------------------------------------------------------

TEST_CASE("background I/O has no thread before its first task, and leaves none behind") {
    std::jthread([] {}).join();  // a sanitizer has a thread of its own from the first on
    const auto before = settled_thread_count();
    pipelining c;
    task one("one");
    {
        real_io io(c);
        CHECK(thread_count() == before);
        io.schedule_by(one, clock::now() + 1h);
        CHECK(thread_count() == before + 1);
        io.cancel(one);
    }
    CHECK(eventually([&] { return thread_count() <= before; }));
    CHECK(c.pipelines().empty());
}

TEST_CASE("a task begins at its time, is sent, and hears the answer and when it was sent") {
    pipelining c;
    task one("one");
    real_io io(c);
    const auto at = clock::now() + 30ms;
    io.schedule_by(one, at);
    REQUIRE(eventually([&] { return one.ends == 1; }));
    CHECK(one.last_answer.is_status("OK"));
    CHECK(one.last_sent >= at);
    CHECK(one.last_sent < at + timing_tolerance);
    CHECK(one.last_now >= one.last_sent);
    io.cancel(one);
    CHECK(c.pipelines().size() == 1);
}

// The system's timers stand still while the machine is suspended.
TEST_CASE("a thread that waits for its next task looks at the clock every second meanwhile") {
    pipelining c;
    task one("one");
    std::atomic<long> its{0};
    one.on_begin = [&](time_point now) {
        its = ::syscall(SYS_gettid);
        return now + 1h;
    };
    real_io io(c);
    io.schedule_by(one, clock::now());
    REQUIRE(eventually([&] { return its != 0; }));
    const auto count = wake_ups_of(its);
    CHECK(eventually([&] { return wake_ups_of(its) >= count + 3; }));
    io.cancel(one);
}

TEST_CASE("a task begins again at the time it asked for, sent or not") {
    manual_clock::reset();
    pipelining c;
    task one("one");
    int asked = 0;
    one.on_begin = [&](time_point now) -> std::optional<time_point> {
        if (++asked % 2 == 1) return now + 1s;  // not yet
        return {};
    };
    one.on_end = [](time_point now) { return now + 1s; };
    manual_io io(c);
    io.schedule_by(one, manual_clock::now());
    for (int i = 1; i <= 6; ++i) {
        REQUIRE(eventually([&] { return one.begins == i && one.ends == i / 2; }));
        manual_clock::advance(1s);
    }
    io.cancel(one);
    CHECK(c.pipelines().size() >= 3);
}

TEST_CASE("a task that has nothing to do any more does not begin any more") {
    manual_clock::reset();
    pipelining c;
    task sends("sends");
    task silent("silent");
    silent.on_begin = [](time_point) { return never; };
    manual_io io(c);
    io.schedule_by(sends, manual_clock::now());
    io.schedule_by(silent, manual_clock::now());
    REQUIRE(eventually([&] { return sends.ends == 1 && silent.begins == 1; }));
    io.cancel(sends);
    io.cancel(silent);
    manual_clock::advance(1h);
    CHECK_FALSE(sends.listed());
    CHECK_FALSE(silent.listed());
    CHECK(silent.begins == 1);
}

TEST_CASE("scheduling a task again makes it earlier, never later") {
    manual_clock::reset();
    pipelining c;
    task one("one");
    manual_io io(c);
    const auto start = manual_clock::now();
    io.schedule_by(one, start + 10s);
    io.schedule_by(one, start + 20s);
    manual_clock::advance(10s);
    REQUIRE(eventually([&] { return one.ends == 1; }));
    io.cancel(one);
    io.schedule_by(one, start + 30s);
    io.schedule_by(one, start + 20s);
    manual_clock::advance(10s);
    CHECK(eventually([&] { return one.ends == 2; }));
    io.cancel(one);
}

TEST_CASE("a task that is scheduled while it is being done begins at the earlier of both times") {
    for (const bool scheduled_earlier : {true, false}) {
        manual_clock::reset();
        const auto start = manual_clock::now();
        gate hold;
        pipelining c;
        c.during = [&] { hold.pass(); };
        task one("one");
        one.on_end = [&](time_point) {
            return one.ends == 0 ? start + (scheduled_earlier ? 20s : 10s) : never;
        };
        manual_io io(c);
        io.schedule_by(one, start);
        REQUIRE(eventually([&] { return hold.reached(); }));
        io.schedule_by(one, start + (scheduled_earlier ? 10s : 20s));
        hold.open();
        REQUIRE(eventually([&] { return one.ends == 1; }));
        manual_clock::advance(10s);
        CHECK(eventually([&] { return one.ends == 2; }));
        io.cancel(one);
    }
}

TEST_CASE("a task that becomes the earliest wakes the thread") {
    pipelining c;
    task late("late");
    task early("early");
    real_io io(c);
    io.schedule_by(late, clock::now() + 1h);
    const auto at = clock::now() + 20ms;
    io.schedule_by(early, at);
    REQUIRE(eventually([&] { return early.ends == 1; }));
    CHECK(early.last_sent < at + timing_tolerance);
    io.cancel(late);
    io.cancel(early);
    CHECK(late.begins == 0);
}

// Nobody else asks for it: it was done when something else woke the thread, if ever.
TEST_CASE("an adopted task wakes a thread that has nothing to do, or something later") {
    for (const bool something_later : {false, true}) {
        pipelining c;
        task late("late");
        real_io io(c);
        if (something_later) io.schedule_by(late, clock::now() + 1h);
        for (int i = 0; i < 3; ++i) {
            // A thread that had something to do a moment ago looks by itself, for 50 ms.
            const auto quiet = clock::now() + 100ms;
            REQUIRE(eventually([&] { return clock::now() >= quiet; }));
            std::atomic<bool> destroyed{false};
            auto one = std::make_shared<task>("one");
            one->destroyed = &destroyed;
            std::atomic<time_point> done{};
            one->on_end = [&](time_point now) { return done = now, never; };
            const auto at = clock::now();
            io.adopt(std::move(one), at);
            REQUIRE(eventually([&] { return destroyed.load(); }));
            CHECK(done.load() < at + timing_tolerance);
        }
        io.cancel(late);
    }
}

// ---- together --------------------------------------------------------------------------------------------

TEST_CASE("another master is told everything at once, in one pipeline") {
    following c;
    task one("one");
    task two("two");
    task idle("idle");
    task again("again");
    idle.on_begin = [](time_point) { return never; };
    io_over<following, real_clock> io(c);
    CHECK(io.master_since("x") == time_point::min());
    gate during;
    again.on_begin = [&](time_point) -> std::optional<time_point> {
        if (again.begins == 1) during.pass();
        return std::nullopt;
    };
    io.schedule_by(one, clock::now() + 1h);
    io.schedule_by(two, clock::now() + 2h);
    io.schedule_by(idle, never);
    io.schedule_by(again, clock::now());
    REQUIRE(eventually([&] { return during.reached(); }));
    const auto before = clock::now();
    c.change_master();
    CHECK(io.master_since("x") >= before);
    during.open();
    REQUIRE(eventually([&] { return one.ends == 1 && two.ends == 1 && again.ends == 2; }));
    CHECK(idle.begins == 1);
    const auto all = c.pipelines();
    REQUIRE(all.size() == 2);
    CHECK(std::set<std::string>(all[1].begin(), all[1].end()) ==
          std::set<std::string>{"one", "two", "again"});
    // The thread has nothing to do any more.
    const auto then = clock::now();
    c.change_master();
    REQUIRE(eventually([&] { return one.ends == 2; }));
    CHECK(one.last_sent < then + timing_tolerance);
    for (task* const each : {&one, &two, &idle, &again}) io.cancel(*each);
}

TEST_CASE("in a Cluster another master of some slots is the master of their locks alone") {
    following_shards c;
    io_over<following_shards, real_clock> io(c);
    const auto before = clock::now();
    c.change_master_of("{foo}:1");
    CHECK(io.master_since("{foo}:2") >= before);
    CHECK(io.master_since("hello") == time_point::min());
    c.change_master();
    CHECK(io.master_since("hello") >= before);
}

// Locks whose slots came late were not renewed at once, since their tasks saw the old master.
TEST_CASE("in a Cluster a task that another master wakes finds it noted, however many slots that has") {
    following_shards c;
    task one("one");
    std::atomic<time_point> noted = time_point::min();
    io_over<following_shards, real_clock> io(c);
    one.on_begin = [&](time_point) {
        noted = io.master_since("orders");
        return never;
    };
    io.schedule_by(one, clock::now() + 1h);
    // So many that the thread would wake while they are noted.
    std::vector<std::uint16_t> slots(4'000'000, distlock::hash_slot("hello"));
    slots.push_back(distlock::hash_slot("orders"));
    const auto before = clock::now();
    if (const auto told = c.listener.lock()) told->master_changed_of(slots);
    CHECK(eventually([&] { return one.begins == 1; }));
    io.cancel(one);
    CHECK(noted.load() >= before);
}

TEST_CASE(
    "a connection is asked to follow its master as long as something is to be done later, and else left in "
    "peace") {
    following c;
    task one("one");
    io_over<following, real_clock> io(c);
    io.schedule_by(one, clock::now() + 1h);
    REQUIRE(eventually([&] { return c.follows >= 2; }));
    CHECK(one.begins == 0);
    one.on_end = [](time_point) { return never; };
    c.change_master();
    REQUIRE(eventually([&] { return one.ends == 1; }));
    const int before = c.follows;
    const auto until = std::chrono::steady_clock::now() + 250ms;
    CHECK_FALSE(
        eventually([&] { return std::chrono::steady_clock::now() >= until && c.follows > before + 1; }, 1s));
    io.cancel(one);
}

TEST_CASE("a connection whose master changes when there is no background I/O any more tells nobody") {
    following c;
    task one("one");
    {
        io_over<following, real_clock> io(c);
        io.schedule_by(one, clock::now() + 1h);
        io.cancel(one);
        CHECK_FALSE(c.listener.expired());
    }
    c.change_master();
    CHECK(c.listener.expired());
    CHECK(one.begins == 0);
}

TEST_CASE("background I/O that has ended is not used by who is just telling it something") {
    using telling = replaced_master<publishing_connection>;
    telling c;
    std::optional<io_over<telling, counting_clock>> io(std::in_place, c);
    const auto dialect = std::make_shared<const distlock::any_dialect_of<distlock::handoff>>(
        "orders", distlock::lock_options{.lease = 30s});
    int unclaimed = 0;
    const auto messages = io->messages(
        dialect, [&](background_io&, const distlock::any_dialect&, std::string_view) { ++unclaimed; });
    const auto listener = c.listener.lock();
    REQUIRE(listener);
    const auto tell = [&] {
        const int before = counting_clock::asked;
        messages->deliver("a message");
        listener->master_changed();
        return counting_clock::asked - before;
    };
    CHECK(tell() > 0);
    CHECK(unclaimed == 1);
    io.reset();
    CHECK(tell() == 0);
    CHECK(unclaimed == 1);
}

// The end of a mutex that nothing was to be said about waited for another's renewal at a server that hung.
TEST_CASE("a task that has nothing to send is over before the answers to what others send") {
    manual_clock::reset();
    gate way;
    pipelining c;
    c.during = [&] { way.pass(); };
    manual_io io(c);
    task quiet("quiet", 1s);
    task loud("loud");
    std::atomic<bool> again{false};
    quiet.on_begin = [&](time_point now) { return again ? std::optional<time_point>() : now + 1h; };
    const auto due = manual_clock::now() + 1s;
    io.schedule_by(quiet, due);
    io.schedule_by(loud, due + 1ms);
    manual_clock::advance(2s);
    REQUIRE(eventually([&] { return way.reached(); }));
    CHECK(quiet.begins == 1);
    again = true;
    io.schedule_by(quiet, manual_clock::now());  // it is listed as any other
    CHECK(loud.ends == 0);
    io.cancel(quiet);  // does not wait
    CHECK(loud.ends == 0);
    way.open();
    io.cancel(loud);
    CHECK(loud.ends == 1);
    CHECK(quiet.begins == 1);
    CHECK(c.pipelines() == std::vector<std::vector<std::string>>{{"loud"}});
}

TEST_CASE("when background I/O ends, more than go in one pipeline go in two") {
    manual_clock::reset();
    pipelining c;
    std::optional<manual_io> io(std::in_place, c);
    for (int i = 0; i < 1500; ++i)
        REQUIRE(io->adopt(std::make_shared<task>(std::to_string(i)), manual_clock::now() + 1h, 2000));
    io.reset();
    const auto sent = c.pipelines();
    REQUIRE(sent.size() == 2);
    CHECK(sent[0].size() + sent[1].size() == 1500);
}

TEST_CASE(
    "tasks that are due together, some of which send nothing, keep their order, and each its next time") {
    manual_clock::reset();
    pipelining c;
    manual_io io(c);
    std::vector<std::unique_ptr<task>> all;
    const auto due = manual_clock::now() + 1s;
    for (int i = 0; i < 9; ++i) {
        all.push_back(std::make_unique<task>(std::to_string(i)));
        if (i % 3 != 1) all.back()->on_begin = [=](time_point now) { return now + 1min * (i + 1); };
        io.schedule_by(*all.back(), due + 1ms * i);
    }
    manual_clock::advance(2s);
    REQUIRE(eventually([&] { return all[7]->ends == 1; }));
    CHECK(c.pipelines() == std::vector<std::vector<std::string>>{{"1", "4", "7"}});
    for (std::size_t minutes = 1; minutes <= 9; ++minutes) {
        const auto& one = *all[minutes - 1];
        CHECK(one.begins == 1);
        manual_clock::advance(1min);
        if (one.on_begin) CHECK(eventually([&] { return one.begins == 2; }));
    }
    CHECK(all[1]->begins == 1);
    CHECK(all[7]->begins == 1);
    for (auto& one : all) io.cancel(*one);
}

// All but one stayed for their lease where the connection had no pipeline, all but 1024 where it had one.
TEST_CASE("when background I/O ends all that it has adopted is said, for as long as that takes 200 ms") {
    struct plain_connection {
        explicit plain_connection(pipelining& to) : all(to) {}
        reply execute(const command& cmd) { return all.execute(cmd); }
        pipelining& all;
    };
    for (const bool slow : {false, true}) {
        manual_clock::reset();
        pipelining c;
        if (slow) c.during = [] { manual_clock::advance(70ms); };
        plain_connection alone(c);
        std::optional<io_over<plain_connection, manual_clock>> io(std::in_place, alone);
        for (int i = 0; i < 50; ++i)
            REQUIRE(io->adopt(std::make_shared<task>(std::to_string(i)), manual_clock::now() + 1h + 1s * i));
        io.reset();
        const auto sent = c.pipelines();
        REQUIRE(sent.size() == (slow ? 3 : 50));
        for (std::size_t i = 0; i < sent.size(); ++i)
            CHECK(sent[i] == std::vector<std::string>{std::to_string(i)});
    }
}

TEST_CASE("tasks that are due together go in one pipeline, in the order of their times") {
    manual_clock::reset();
    pipelining c;
    manual_io io(c);
    std::vector<std::unique_ptr<task>> all;
    for (int i = 0; i < 100; ++i) {
        all.push_back(std::make_unique<task>(std::to_string(i)));
        io.schedule_by(*all.back(), manual_clock::now() + 1s + 1ms * i);
    }
    task later("later");
    io.schedule_by(later, manual_clock::now() + 1h);
    manual_clock::advance(2s);
    REQUIRE(eventually([&] { return all.back()->ends == 1; }));
    const auto sent = c.pipelines();
    REQUIRE(sent.size() == 1);
    REQUIRE(sent[0].size() == 100);
    for (std::size_t i = 0; i < 100; ++i) CHECK(sent[0][i] == std::to_string(i));
    CHECK(all.front()->last_sent == all.back()->last_sent);
    for (auto& one : all) io.cancel(*one);
    io.cancel(later);
    CHECK(later.begins == 0);
}

TEST_CASE("more than a server has patience for goes in several pipelines") {
    manual_clock::reset();
    pipelining c;
    manual_io io(c);
    std::vector<std::unique_ptr<task>> all;
    for (int i = 0; i < 2500; ++i) {
        all.push_back(std::make_unique<task>("x"));
        io.schedule_by(*all.back(), manual_clock::now() + 1s);
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
    for (auto& one : all) io.cancel(*one);
}

TEST_CASE("a task that may go early goes with another, and not alone") {
    manual_clock::reset();
    pipelining c;
    task due("due");
    task early("early", 2s);
    task not_so_early("not so early", 500ms);
    manual_io io(c);
    io.schedule_by(due, manual_clock::now() + 10s);
    io.schedule_by(early, manual_clock::now() + 11s);
    io.schedule_by(not_so_early, manual_clock::now() + 12s);
    manual_clock::advance(9s);
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    CHECK(early.begins == 0);
    manual_clock::advance(1s);
    REQUIRE(eventually([&] { return due.ends == 1; }));
    CHECK(c.pipelines() == std::vector<std::vector<std::string>>{{"due", "early"}});
    CHECK(not_so_early.begins == 0);
    io.cancel(due);
    io.cancel(early);
    io.cancel(not_so_early);
}

TEST_CASE("without a pipeline, an answer that does not come keeps no other answer back") {
    manual_clock::reset();
    gate hold;
    auto one_after_the_other = [&](const command& cmd) {
        if (cmd.argv().back() == "hangs") hold.pass();
        return reply::status("OK");
    };
    using plain = decltype(one_after_the_other);
    task quick("quick");
    task hangs("hangs");
    task behind("behind");
    io_over<plain, manual_clock> io(one_after_the_other);
    io.schedule_by(behind, manual_clock::now() + 3s);
    io.schedule_by(hangs, manual_clock::now() + 2s);
    io.schedule_by(quick, manual_clock::now() + 1s);
    manual_clock::advance(3s);
    REQUIRE(eventually([&] { return hold.reached(); }));
    CHECK(quick.ends == 1);
    io.cancel(quick);  // would hang, if it were not over
    hold.open();
    CHECK(eventually([&] { return hangs.ends == 1 && behind.ends == 1; }));
    io.cancel(hangs);
    io.cancel(behind);
}

// ---- cancel ----------------------------------------------------------------------------------------------

TEST_CASE("a task that was cancelled does not begin") {
    manual_clock::reset();
    pipelining c;
    task cancelled("cancelled");
    task witness("witness");
    manual_io io(c);
    io.schedule_by(cancelled, manual_clock::now() + 1s);
    io.schedule_by(witness, manual_clock::now() + 1s);
    io.cancel(cancelled);
    io.cancel(cancelled);  // once more is no harm
    manual_clock::advance(1s);
    REQUIRE(eventually([&] { return witness.ends == 1; }));
    CHECK(cancelled.begins == 0);
    io.cancel(witness);
}

TEST_CASE("cancelling waits for the end of what was begun, and nothing begins after it") {
    manual_clock::reset();
    gate hold;
    std::atomic<bool> cancelled{false};
    std::atomic<int> begins{0};
    std::atomic<int> ends{0};
    pipelining c;
    c.during = [&] { hold.pass(); };
    task one("one");
    one.on_end = [](time_point now) { return now; };  // again at once
    manual_io io(c);
    io.schedule_by(one, manual_clock::now());
    REQUIRE(eventually([&] { return hold.reached(); }));
    std::jthread canceller([&] {
        io.cancel(one);
        begins = one.begins.load();
        ends = one.ends.load();
        cancelled = true;
    });
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    CHECK_FALSE(cancelled.load());
    hold.open();
    canceller.join();
    CHECK(begins == ends);
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    CHECK(one.begins == begins);
    CHECK_FALSE(one.listed());
}

TEST_CASE("tasks that come and go on many threads are all done, and none after it was cancelled") {
    std::atomic<int> wrong{0};
    pipelining c;
    real_io io(c);
    {
        std::vector<std::jthread> threads;
        for (int t = 0; t < 4; ++t) {
            threads.emplace_back([&, t] {
                for (int i = 0; i < 200; ++i) {
                    task one("x", 1ms * (i % 3));
                    one.on_end = [&, i](time_point now) { return i % 2 == 0 ? never : now + 50us; };
                    io.schedule_by(one, clock::now() + 1us * ((i * 7 + t) % 200));
                    if (i % 3 == 0) io.schedule_by(one, clock::now());
                    if (i % 5 != 0) {
                        while (one.ends == 0) std::this_thread::yield();
                    }
                    io.cancel(one);
                    if (one.begins != one.ends || one.listed()) ++wrong;
                }
            });
        }
    }
    CHECK(wrong == 0);
}

// ---- adopted ----------------------------------------------------------------------------------------

TEST_CASE("an adopted task lives until it is done, and no longer") {
    manual_clock::reset();
    std::atomic<bool> destroyed{false};
    std::atomic<int> ends{0};
    pipelining c;
    auto one = std::make_shared<task>("one");
    one->destroyed = &destroyed;
    one->on_end = [&](time_point now) { return ++ends == 3 ? never : now + 1s; };
    manual_io io(c);
    io.adopt(std::move(one), manual_clock::now() + 1s);
    for (int i = 0; i < 3; ++i) {
        CHECK_FALSE(destroyed.load());
        manual_clock::advance(1s);
        REQUIRE(eventually([&] { return ends == i + 1; }));
    }
    CHECK(eventually([&] { return destroyed.load(); }));
}

// It began again, though it was over: one that had handed all it had to somebody crashed.
TEST_CASE("an adopted task that is done while another master takes over does not begin again") {
    following c;
    c.during = [&] { c.change_master(); };
    io_over<following, clock> io(c);
    const auto one = std::make_shared<task>("one");
    io.adopt(one, clock::now());
    CHECK(eventually([&] { return one.use_count() == 1; }));
    CHECK(one->begins == 1);
}

TEST_CASE("an adopted task that is scheduled while it runs begins again, whatever is advanced meanwhile") {
    following c;
    io_over<following, clock> io(c);
    const auto one = std::make_shared<task>("one");
    const bool advanced_first = GENERATE(true, false);
    c.during = [&] {
        if (one->begins > 1) return;
        if (advanced_first) c.change_master();
        io.adopt(one, clock::now());
        if (!advanced_first) c.change_master();
    };
    io.adopt(one, clock::now());
    CHECK(eventually([&] { return one.use_count() == 1; }));
    CHECK(one->begins == 2);
}

// What was to begin later was given up: a release that was to be repeated in a moment left
// the lock to its lease.
TEST_CASE("an adopted task that waits for its time when background I/O ends begins once, and is given up") {
    manual_clock::reset();
    std::atomic<bool> destroyed{false};
    pipelining c;
    {
        manual_io io(c);
        for (const char* const name : {"soon", "later"}) {
            auto one = std::make_shared<task>(name);
            one->destroyed = &destroyed;
            one->on_end = [](time_point now) { return now; };
            io.adopt(std::move(one), manual_clock::now() + 1h);
        }
        CHECK_FALSE(destroyed.load());
    }
    CHECK(destroyed.load());
    CHECK(c.pipelines() == std::vector<std::vector<std::string>>{{"soon", "later"}});
}

// A lock() that was stopped, and whose connection was gone right after, left the lock to its lease.
TEST_CASE("a task that is due when background I/O ends begins all the same, once") {
    constexpr int times = 300;
    int begun = 0;
    for (int i = 0; i < times; ++i) {
        auto one = std::make_shared<task>("one");
        one->on_end = [](time_point now) { return now; };
        pipelining c;
        {
            real_io io(c);
            io.adopt(one, clock::now());
        }
        if (one->begins > 0) ++begun;
        CHECK(c.pipelines().size() == static_cast<std::size_t>(one->begins.load()));
    }
    CHECK(begun == times);
}

TEST_CASE("background I/O that ends waits for what it has begun, and for one pipeline more at most") {
    pipelining c;
    gate answer;
    c.during = [&] { answer.pass(); };
    std::optional<real_io> io(std::in_place, c);
    const auto one = std::make_shared<task>("one");
    const auto two = std::make_shared<task>("two");
    for (task* each : {one.get(), two.get()}) each->on_end = [](time_point now) { return now; };
    io->adopt(one, clock::now());
    REQUIRE(eventually([&] { return answer.reached(); }));
    io->adopt(two, clock::now());
    sleeper ending([&] { io.reset(); });
    CHECK(ending.sleeps());
    answer.open();
    ending.join();
    CHECK(c.pipelines() == std::vector<std::vector<std::string>>{{"one"}, {"two", "one"}});
}

TEST_CASE(
    "a task that nobody can be waiting for any more is given up: adopted tasks do not fill the memory") {
    manual_clock::reset();
    std::atomic<bool> destroyed{false};
    pipelining c;
    manual_io io(c);
    int adopted = 0;
    for (; adopted < 100'000 && !destroyed; ++adopted) {
        auto one = std::make_shared<task>("x");
        one->destroyed = &destroyed;
        io.adopt(std::move(one), manual_clock::now() + 1h);
    }
    CHECK(adopted > 1000);
    CHECK(adopted < 100'000);
}

TEST_CASE("an adopted task that is done, or is cancelled, makes room for another") {
    pipelining c;
    real_io io(c);
    for (int i = 0; i < 10; ++i) {
        const auto one = std::make_shared<task>("one");
        const bool is_done = i % 2 == 0;
        REQUIRE(io.adopt(one, is_done ? clock::now() : clock::now() + 1h, 1));
        if (is_done) {
            REQUIRE(eventually([&] { return one.use_count() == 1; }));
        } else {
            CHECK_FALSE(io.adopt(std::make_shared<task>("two"), clock::now(), 1));
            io.cancel(*one);
        }
    }
}

TEST_CASE("an adopted task that is cancelled is let go, and does not begin") {
    manual_clock::reset();
    std::atomic<bool> destroyed{false};
    pipelining c;
    manual_io io(c);
    auto one = std::make_shared<task>("one");
    one->destroyed = &destroyed;
    io.adopt(one, manual_clock::now() + 1s);
    io.adopt(one, manual_clock::now() + 2s);  // once more is no harm
    io.cancel(*one);
    manual_clock::advance(2s);
    CHECK_FALSE(one->listed());
    CHECK(one->begins == 0);
    one.reset();
    CHECK(destroyed.load());
}

TEST_CASE("a task that is adopted and scheduled begins at the earlier of both times") {
    manual_clock::reset();
    pipelining c;
    manual_io io(c);
    const auto one = std::make_shared<task>("one");
    io.adopt(one, manual_clock::now() + 10s);
    io.schedule_by(*one, manual_clock::now() + 1s);
    manual_clock::advance(1s);
    CHECK(eventually([&] { return one->ends == 1; }));
    io.cancel(*one);
}

namespace {

/// Uses the background I/O when it is destroyed.
struct last_words final : manual_io::task {
    last_words(manual_io& of, task& wakes) : io(of), other(wakes) {}
    ~last_words() override { io.schedule_by(other, manual_clock::now()); }
    step begin(time_point) noexcept override { return {{}, never}; }
    time_point end(const reply&, time_point, time_point) noexcept override { return never; }
    manual_io& io;
    task& other;
};

}  // namespace

TEST_CASE("a task that is done or given up is destroyed without a lock") {
    manual_clock::reset();
    pipelining c;
    manual_io io(c);
    task other("other");
    io.adopt(std::make_shared<last_words>(io, other), manual_clock::now());
    CHECK(eventually([&] { return other.ends == 1; }));
    io.adopt(std::make_shared<last_words>(io, other), manual_clock::now(), 0);  // none may be adopted
    CHECK(eventually([&] { return other.ends == 2; }));
    io.cancel(other);
}

TEST_CASE("the last owner of background I/O may be a task that it adopted") {
    const auto threads = settled_thread_count();
    std::atomic<bool> destroyed{false};
    pipelining c;
    {
        auto io = std::make_shared<real_io>(c);
        auto one = std::make_shared<task>("one");
        one->destroyed = &destroyed;
        real_io& its = *io;
        one->on_end = [owned = std::move(io)](time_point) mutable {
            owned.reset();
            return never;
        };
        its.adopt(std::move(one), clock::now());
    }
    CHECK(eventually([&] { return destroyed.load(); }));
    CHECK(eventually([&] { return thread_count() <= threads; }));
}

TEST_CASE("a task that there is no memory to adopt is given up") {
    NOT_TESTED_UNLESS(allocations_can_fail(), operator_new_is_not_ours);
    manual_clock::reset();
    int failed = 0;
    for (int nth = 1; nth < 100; ++nth) {
        std::atomic<bool> destroyed{false};
        pipelining c;
        manual_io io(c);
        auto one = std::make_shared<task>("one");
        one->destroyed = &destroyed;
        fail_allocation(nth);
        io.adopt(std::move(one), manual_clock::now() + 1h);
        const bool hit = allocation_failed();
        fail_allocation(-1);
        if (!hit) break;
        ++failed;
        CHECK(destroyed.load());
    }
    CHECK(failed > 0);
}

// ---- whatever the connection does ------------------------------------------------------------------------

TEST_CASE("an exception out of the connection is an answer that is missing, and background I/O goes on") {
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
    task one("one");
    one.on_end = [&](time_point now) {
        if (one.last_answer.is(distlock::reply_kind::no_answer)) ++missing;
        return now + 1s;
    };
    manual_io io(c);
    io.schedule_by(one, manual_clock::now());
    for (int i = 1; i <= 4; ++i) {
        REQUIRE(eventually([&] { return one.ends == i; }));
        manual_clock::advance(1s);
    }
    io.cancel(one);
    CHECK(missing == 3);
}

TEST_CASE("one connection that hangs delays nothing on another") {
    pipelining hanging;
    pipelining other;
    gate hold;
    hanging.during = [&] { hold.pass(); };
    task stuck("stuck");
    task lucky("lucky");
    real_io io1(hanging);
    real_io io2(other);
    io1.schedule_by(stuck, clock::now());
    REQUIRE(eventually([&] { return hold.reached(); }));
    const auto at = clock::now();
    io2.schedule_by(lucky, at);
    REQUIRE(eventually([&] { return lucky.ends == 1; }));
    CHECK(lucky.last_now < at + timing_tolerance);
    io2.cancel(lucky);
    hold.open();
    io1.cancel(stuck);
}

TEST_CASE("a lock is renewed by its own clock, whatever clock another one over the same connection has") {
    struct generous {
        reply execute(const command& cmd) {
            if (cmd.argv()[0] == "SET") return reply::status("OK");
            ++others;
            return reply::integer(1);
        }
        std::atomic<int> others{0};
    };
    manual_clock::reset();
    generous server;
    distlock::mutex<generous, distlock::handoff, manual_clock> stands_still{server, "orders"};
    distlock::mutex runs{server, "invoices", {.lease = brief_lease}};
    runs.lock();
    CHECK(eventually([&] { return server.others > 0; }));
    CHECK(runs.owns_lock());
}

TEST_CASE("no signal of the program is handled while a task is done") {
    manual_clock::reset();
    std::atomic<bool> blocked{false};
    pipelining c;
    c.during = [&] {
        sigset_t mask;
        pthread_sigmask(SIG_SETMASK, nullptr, &mask);
        blocked = sigismember(&mask, SIGINT) == 1 && sigismember(&mask, SIGUSR1) == 1;
    };
    task one("one");
    manual_io io(c);
    io.schedule_by(one, manual_clock::now());
    REQUIRE(eventually([&] { return one.ends == 1; }));
    CHECK(blocked.load());
    io.cancel(one);
}

TEST_CASE("a task stays listed while it is done: to enter it anew could need memory") {
    manual_clock::reset();
    std::atomic<bool> listed{false};
    pipelining c;
    manual_io io(c);
    task one("one");
    one.on_end = [&](time_point) {
        listed = one.listed();
        return never;
    };
    io.schedule_by(one, manual_clock::now());
    REQUIRE(eventually([&] { return one.ends == 1; }));
    CHECK(listed.load());
    io.cancel(one);
}

TEST_CASE("when no thread is to be had, scheduling says so and nothing is listed") {
    NOT_TESTED_UNLESS(threads_in_a_child, child_has_no_threads);
    CHECK(in_child([] {
        std::atomic<bool> destroyed{false};
        pipelining c;
        real_io io(c);
        if (!let_no_thread_start()) return false;
        task one("one");
        bool refused = false;
        try {
            io.schedule_by(one, clock::now());
        } catch (const std::system_error&) {
            refused = true;
        }
        auto adopted = std::make_shared<task>("adopted");
        adopted->destroyed = &destroyed;
        io.adopt(std::move(adopted), clock::now());
        return refused && destroyed && !one.listed();
    }));
}

// ---- of which connection
// ----------------------------------------------------------------------------------------

TEST_CASE("the background I/O of a connection that has a place for it lives as long as the connection") {
    std::weak_ptr<background_io> seen;
    {
        hosting c;
        seen = background_io_of<real_clock>(c);
        CHECK_FALSE(seen.expired());
        CHECK(background_io_of<real_clock>(c) == seen.lock());
        hosting other;
        CHECK(background_io_of<real_clock>(other) != seen.lock());
    }
    CHECK(seen.expired());
}

TEST_CASE("the background I/O of any other connection lives as long as somebody uses it") {
    pipelining c;
    auto first = background_io_of<real_clock>(c);
    auto second = background_io_of<real_clock>(c);
    CHECK(first == second);
    pipelining other;
    CHECK(background_io_of<real_clock>(other) != first);
    const auto threads = settled_thread_count();
    task one("of both");
    first->schedule_by(one, clock::now());
    REQUIRE(eventually([&] { return one.ends == 1; }));
    first->cancel(one);
    first.reset();
    CHECK(thread_count() == threads + 1);
    second.reset();
    CHECK(eventually([&] { return thread_count() <= threads; }));
    CHECK(background_io_of<real_clock>(c) != nullptr);
}

TEST_CASE("another connection at the same address has background I/O of its own") {
    std::optional<pipelining> place(std::in_place);
    const pipelining* const address = &*place;
    {
        const auto io = background_io_of<real_clock>(*place);
        task one("of the first");
        io->schedule_by(one, clock::now());
        REQUIRE(eventually([&] { return one.ends == 1; }));
        io->cancel(one);
    }
    CHECK(place->pipelines().size() == 1);
    place.emplace();
    REQUIRE(&*place == address);
    const auto io = background_io_of<real_clock>(*place);
    task one("of the second");
    io->schedule_by(one, clock::now());
    REQUIRE(eventually([&] { return one.ends == 1; }));
    io->cancel(one);
    CHECK(place->pipelines().size() == 1);
}

TEST_CASE("threads that ask for the background I/O of a connection at once get the same") {
    pipelining c;
    std::vector<std::shared_ptr<background_io>> got(8);
    {
        std::vector<std::jthread> threads;
        for (auto& mine : got) threads.emplace_back([&] { mine = background_io_of<real_clock>(c); });
    }
    CHECK(std::set(got.begin(), got.end()).size() == 1);
}

// ---- fork ------------------------------------------------------------------------------------------------

TEST_CASE("a child ends its copy of background I/O that is at work, and comes back") {
    gate hold;
    pipelining c;
    c.during = [&] { hold.pass(); };
    std::optional<real_io> io(std::in_place, c);
    task one("one");
    io->schedule_by(one, clock::now());
    REQUIRE(eventually([&] { return hold.reached(); }));
    CHECK(in_child([&] {
        io.reset();
        return true;
    }));
    hold.open();
    io->cancel(one);
    CHECK(one.ends == 1);
}

TEST_CASE("a child has background I/O of its own, that works") {
    NOT_TESTED_UNLESS(threads_in_a_child, child_has_no_threads);
    pipelining c;
    const auto of_the_parent = background_io_of<real_clock>(c);
    task one("one");
    of_the_parent->schedule_by(one, clock::now() + 1h);
    CHECK(in_child([&] {
        pipelining mine;
        const auto io = background_io_of<real_clock>(mine);
        const auto again = background_io_of<real_clock>(c);
        task mine_too("mine");
        again->schedule_by(mine_too, clock::now());
        const bool done = eventually([&] { return mine_too.ends == 1; });
        again->cancel(mine_too);
        return done && again != of_the_parent && io != again;
    }));
    of_the_parent->cancel(one);
}

TEST_CASE("a child gets background I/O even if a thread of its parent was just asking for one") {
    NOT_TESTED_UNLESS(!instrumented,
                      "a sanitizer's allocator does not survive a fork in the middle of an allocation");
    // As many forks as it takes to fall into the middle of a question.
    std::atomic<bool> end{false};
    std::jthread asks([&] {
        while (!end) {
            pipelining c;
            static_cast<void>(background_io_of<real_clock>(c));
        }
    });
    bool all = true;
    for (int i = 0; i < 200 && all; ++i) {
        all = in_child([] {
            ::alarm(5);
            pipelining mine;
            return background_io_of<real_clock>(mine) != nullptr;
        });
    }
    end = true;
    CHECK(all);
}

// ---- what replicas have to acknowledge
// ---------------------------------------------------------------------

namespace {

struct replicated_task final : distlock::engine::background_task {
    distlock::engine::background_task::step begin(time_point) noexcept override {
        const command write{"ECHO", "write"};
        return {write, {}, wait.behind(write)};
    }
    time_point end(const reply&, time_point, time_point) noexcept override { return never; }
    time_point end_both(const reply& answer, const reply& replicated, time_point,
                        time_point) noexcept override {
        both = answer.is_status("OK") && replicated.is_status("OK");
        ++ends;
        return never;
    }
    const distlock::replica_wait wait{1, 7ms};
    bool both = false;
    std::atomic<int> ends{0};
};

}  // namespace

TEST_CASE("a renewal that waits for replicas goes in a pipeline of its own, after those that do not") {
    pipelining connection;
    manual_clock::reset();
    manual_io io(connection);
    replicated_task slow;
    task quick("quick");
    const auto at = manual_clock::now() + 1s;
    io.schedule_by(slow, at);
    io.schedule_by(quick, at);
    manual_clock::advance(1s);
    REQUIRE(eventually([&] { return slow.ends == 1 && quick.ends == 1; }));
    CHECK(slow.both);
    CHECK(connection.pipelines() == std::vector<std::vector<std::string>>{{"quick"}, {"write", "7"}});
    io.cancel(slow);
    io.cancel(quick);
}

}  // namespace background_io_tests
