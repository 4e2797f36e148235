// The history checker: no false alarm in histories that can be, and every one that cannot is found.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <distlock/testing.hpp>

#include "support/catch.hpp"

namespace history_tests {

using namespace std::chrono_literals;
using distlock::testing::check_history;
using distlock::testing::history_event;
using distlock::testing::recorder;
using kind = history_event::kind;
using clk = distlock::clock;

namespace {

clk::time_point at(std::int64_t ms) {
    return clk::time_point(std::chrono::hours{1} + std::chrono::milliseconds(ms));
}

template <std::size_t N>
void set(std::array<char, N>& text, const std::string& to) {
    text = {};
    std::copy_n(to.begin(), std::min(to.size(), N), text.begin());
}

history_event granted(std::uint64_t hold, std::int64_t when, std::int64_t until, std::uint64_t fence = 0) {
    history_event e;
    e.what = kind::granted;
    e.process = static_cast<std::int32_t>(hold % 7 + 1);
    e.hold = hold;
    e.from = at(when - 1);
    e.at = at(when);
    e.until = at(until);
    e.fence = fence;
    set(e.lock, "orders");
    return e;
}
history_event of(kind what, std::uint64_t hold, std::int64_t when, std::int64_t until = 0) {
    history_event e;
    e.what = what;
    e.hold = hold;
    e.from = e.at = at(when);
    e.until = at(until);
    return e;
}
history_event wrote(std::uint64_t fence, std::int64_t when, bool accepted = true) {
    history_event e = of(kind::wrote, 0, when);
    e.fence = fence;
    e.accepted = accepted;
    set(e.lock, "account");
    return e;
}

std::string said(std::vector<history_event> events) { return check_history(std::move(events)).text(); }
bool says(const std::vector<history_event>& events, const std::string& what) {
    return said(events).find(what) != std::string::npos;
}

// Holds one after the other: some are released, some run out, some are renewed, some owners die; and a
// resource that looks at fences.
std::vector<history_event> clean(std::mt19937& random, int holds) {
    std::vector<history_event> all;
    std::int64_t now = 0;
    const auto some = [&](int most) {
        return static_cast<std::int64_t>(random() % static_cast<unsigned>(most)) + 1;
    };
    for (int i = 1; i <= holds; ++i) {
        const auto hold = static_cast<std::uint64_t>(i);
        const auto from = now += some(50);
        auto until = from + 4 + some(100);
        all.push_back(granted(hold, from, until, hold * 10));
        set(all.back().owner, "token " + std::to_string(i));
        all.push_back(wrote(hold * 10, from + 1));
        if (random() % 3 == 0) {
            const auto look = from + 2;
            until += some(50);
            all.push_back(of(kind::held, hold, look, until));
        }
        switch (random() % 4) {
            case 0:
                now = until;
                break;
            case 1:
                now = from + 3;
                all.push_back(of(kind::died, 0, now));
                all.back().process = all[all.size() - 2].process;
                for (auto e = all.rbegin(); e != all.rend(); ++e) {
                    if (e->what == kind::granted && e->hold == hold) all.back().process = e->process;
                }
                break;
            default:
                now =
                    from + 3 + static_cast<std::int64_t>(random() % static_cast<unsigned>(until - from - 3));
                all.push_back(of(random() % 5 == 0 ? kind::not_held : kind::released, hold, now));
        }
    }
    return all;
}

// Effects: makes the history impossible in one place, in the way of that number.
void spoil(std::vector<history_event>& events, int way, std::mt19937& random) {
    std::vector<std::size_t> grants;
    for (std::size_t i = 0; i < events.size(); ++i) {
        if (events[i].what == kind::granted) grants.push_back(i);
    }
    const std::size_t which = 1 + random() % (grants.size() - 1);
    history_event& later = events[grants[which]];
    history_event& earlier = events[grants[which - 1]];
    switch (way) {
        case 0: {  // the earlier one is not over
            const auto hold = earlier.hold;
            earlier.until = later.at + 5ms;
            earlier.process = 99;
            std::erase_if(events,
                          [&](const history_event& e) { return e.hold == hold && e.what != kind::granted; });
            break;
        }
        case 1:
            later.fence = 1;
            break;
        case 2:
            later.owner = earlier.owner;
            break;
        case 3:
            later.until = later.at;
            break;
        case 4:
            later.fence = earlier.fence;
            break;
        case 5: {  // believed in again
            const auto hold = earlier.hold;
            events.push_back(of(kind::not_held, hold, 10'000'000));
            events.push_back(of(kind::held, hold, 10'000'001, 10'000'005));
            break;
        }
        case 6: {  // a late write, which is accepted
            history_event late = wrote(earlier.fence, 0);
            late.at = later.at + 2ms;
            events.push_back(late);
            break;
        }
        default:
            events.push_back(granted(later.hold, 10'000'000, 10'000'001));
    }
}

}  // namespace

TEST_CASE("two thousand histories that can be are found to be so, and two thousand spoilt ones are not") {
    std::mt19937 random(1);
    int alarms = 0;
    int missed = 0;
    for (int i = 0; i < 2000; ++i) {
        auto events = clean(random, 60);
        const auto first = said(events);
        if (!first.empty() && alarms++ == 0) UNSCOPED_INFO(first);
        spoil(events, i % 8, random);
        if (said(events).empty() && missed++ == 0) UNSCOPED_INFO("spoilt in the way " << i % 8);
    }
    CHECK(alarms == 0);
    CHECK(missed == 0);
}

TEST_CASE(
    "a belief ends with the release, the loss, the end of validity or of the process, whichever is first") {
    const auto overlap = "overlaps hold 1";
    CHECK(says({granted(1, 0, 100), granted(2, 50, 100)}, overlap));
    CHECK(said({granted(1, 0, 100), granted(2, 100, 200)}).empty());
    CHECK(said({granted(1, 0, 100), of(kind::released, 1, 50), granted(2, 50, 100)}).empty());
    CHECK(said({granted(1, 0, 100), of(kind::not_held, 1, 50), granted(2, 50, 100)}).empty());
    CHECK(says({granted(1, 0, 100), of(kind::released, 1, 51), granted(2, 50, 100)}, overlap));
    CHECK(says({granted(1, 0, 100), of(kind::held, 1, 90, 200), granted(2, 150, 160)}, overlap));
    history_event death = of(kind::died, 0, 40);
    death.process = granted(1, 0, 0).process;
    CHECK(said({granted(1, 0, 100), death, granted(2, 50, 100)}).empty());
    CHECK(says({granted(1, 0, 1000), granted(2, 10, 11), granted(3, 20, 21)},
               "hold 3"));  // not only neighbours
}

TEST_CASE(
    "an overlap, or a smaller fence, is excused in the time of a declared fault of that lock, and not else") {
    const std::vector<history_event> both{granted(1, 0, 100), granted(2, 50, 100)};
    const auto with = [&](std::int64_t from, std::int64_t until, const std::string& lock) {
        auto events = both;
        history_event f = of(kind::fault, 0, from, until);
        set(f.lock, lock);
        events.push_back(f);
        return check_history(events);
    };
    CHECK(with(40, 60, "").violations.empty());
    CHECK(with(40, 60, "").excused == 1);
    CHECK(with(40, 60, "orders").violations.empty());
    CHECK_FALSE(with(40, 60, "others").violations.empty());
    CHECK_FALSE(with(40, 50, "").violations.empty());
    CHECK_FALSE(with(51, 60, "").violations.empty());

    const auto before = granted(1, 0, 10, 7);
    const auto after = granted(2, 50, 60, 3);
    CHECK(says({before, after}, "has the fence 3"));
    CHECK(said({before, after, of(kind::fault, 0, 40, 60)}).empty());
}

TEST_CASE("a line about a hold that was never granted is a violation") {
    CHECK(says({of(kind::released, 5, 1)}, "never granted"));
}

TEST_CASE(
    "one belief that does not end is found against every later grant, in the time it takes to sort them") {
    std::vector<history_event> all;
    for (std::uint64_t i = 1; i <= 100'000; ++i) {
        const auto now = static_cast<std::int64_t>(i * 10);
        all.push_back(granted(i, now, now + 9, i));
    }
    CHECK(said(all).empty());
    all[50'000].until = at(10'000'000);
    CHECK(check_history(all).violations.size() == 49'999);
}

TEST_CASE("a process's history survives its death, and holds of all processes have numbers of their own") {
    const std::string file =
        (std::filesystem::temp_directory_path() / ("distlock-history-" + std::to_string(::getpid())))
            .string();
    {
        recorder in_memory(1000);
        recorder in_file(file, 1000);
        const auto first = in_memory.granted("orders", clk::now(), clk::now() + 1h, 7);
        const pid_t child = ::fork();
        if (child == 0) {
            in_memory.granted("invoices", clk::now(), clk::now() + 1h);
            recorder mine(file, 1000);
            mine.wrote("account", 3, true);
            ::kill(::getpid(), SIGKILL);
        }
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        REQUIRE(WIFSIGNALED(status));
        in_memory.died(child);
        in_memory.looked(first, clk::now() + 1h);
        in_memory.looked(first, clk::time_point{});
        const auto seen = in_memory.events();
        REQUIRE(seen.size() == 5);
        CHECK(seen[0].fence == 7);
        CHECK(seen[1].lock_name() == "invoices");
        CHECK(seen[1].process == child);
        CHECK(seen[1].hold != seen[0].hold);
        CHECK(seen[3].what == kind::held);
        CHECK(seen[4].what == kind::not_held);
        CHECK(said(seen).empty());
        REQUIRE(in_file.events().size() == 1);
        CHECK(in_file.events()[0].fence == 3);
    }
    std::filesystem::remove(file);
}

TEST_CASE("a grant that is written down late is not taken for one that came late") {
    recorder book(10);
    const auto came = clk::now() - 2s;
    book.released(book.granted("orders", came, came + 1s, 0, {}, came), clk::now());
    CHECK(said(book.events()) == "");
    book.granted("orders", came, came + 1s);
    CHECK(says(book.events(), "was over when it was granted"));
}

// All before it was believed to be in order, whoever else had the lock.
TEST_CASE("a loss that was noted ends a belief when it was noted, and not before") {
    recorder book(10);
    const auto until = clk::now() + 1h;
    const auto first = book.granted("orders", clk::now(), until);
    book.lost(first);
    const auto second = book.granted("orders", clk::now(), until);
    CHECK(said(book.events()).empty());
    book.granted("orders", clk::now(), until);
    book.lost(second);
    CHECK(says(book.events(), "overlaps hold " + std::to_string(second)));
}

// They came in the order in which they were written down.
TEST_CASE("a history tells what owners believed in the order of the grants, whoever wrote first") {
    recorder book(10);
    const auto now = clk::now();
    for (const auto came : {now - 1s, now - 3s, now - 2s})
        book.granted("orders", came, now + 1h, 0, {}, came);
    const auto told = distlock::testing::beliefs_in(book.events());
    REQUIRE(told.size() == 3);
    CHECK(told[0].granted.at == now - 3s);
    CHECK(told[1].granted.at == now - 2s);
    CHECK(told[2].granted.at == now - 1s);
}

// The number of bytes ran over, and the first event was written beside the little memory that there was.
TEST_CASE("a history that no memory can hold is refused") {
    CHECK_THROWS_AS(recorder(std::size_t{1} << 61U), std::system_error);
    CHECK_THROWS_AS(recorder(std::numeric_limits<std::size_t>::max()), std::system_error);
}

// It was asked twice how many there are, and read behind the last one.
TEST_CASE("a history that others fill while it is read is told whole, or is full") {
    for (int round = 0; round < 200; ++round) {
        recorder book(1'000);
        std::jthread writes([&] {
            while (!book.full()) book.granted("orders", {}, {});
        });
        for (bool fits = true; fits;) {
            try {
                fits = book.events().size() <= 1'000;
                CHECK(fits);
            } catch (const std::length_error&) {
                fits = false;
            }
        }
    }
}

TEST_CASE("a history that is full says so, and is not taken for a clean one") {
    recorder small(2);
    for (int i = 0; i < 3; ++i) small.lost(1);
    CHECK(small.full());
    CHECK_THROWS_AS(small.events(), std::length_error);
}

}  // namespace history_tests
