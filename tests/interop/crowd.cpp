// Four of ours and four of theirs, who want one lock all the time.
#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <mutex>
#include <poll.h>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "interop/peer.hpp"
#include "interop/rows.hpp"
#include "support/catch.hpp"
#include "support/history.hpp"
#include "support/lab_figures.hpp"

namespace crowd_tests {

using namespace interop;

TEMPLATE_LIST_TEST_CASE(
    "in a crowd of theirs and ours nobody has the lock beside another, and everybody has it", "", rows) {
    const auto name = fresh_name();
    const auto length = std::chrono::seconds(little_or_all(5, 60));
    constexpr int each = 4;
    // The others tell a hold when it is over, by CLOCK_MONOTONIC: nobody writes while it lasts.
    std::vector<distlock::testing::history_event> holds;
    std::mutex writing;
    const auto held = [&](int who, clk::time_point asked, clk::time_point began, clk::time_point ended) {
        const std::lock_guard guard(writing);
        distlock::testing::history_event e;
        e.process = who;
        e.hold = holds.size() + 1;
        e.from = asked;
        e.at = began;
        e.until = std::max(ended, began + 1ns);
        holds.push_back(e);
    };
    std::vector<int> turns(2 * each);
    std::vector<peer> theirs;
    for (int i = 0; i < each; ++i) theirs.push_back(TestType::theirs().start());
    const auto stamp = [] { return clk::time_point(std::chrono::steady_clock::now().time_since_epoch()); };
    const auto want_it = [&] {
        for (auto& one : theirs) one.say("crowd " + name + " " + std::to_string(length.count()));
        {
            std::vector<std::jthread> ours;
            const auto end = clk::now() + length;
            for (int i = 0; i < each; ++i) {
                ours.emplace_back([&, i] {
                    distlock::hiredis_connection redis{server().uri()};
                    auto options = patient<TestType>();
                    options.lease = 5s;
                    lock_of<TestType> m{redis, name, options};
                    while (clk::now() < end) {
                        const auto asked = stamp();
                        m.lock();
                        const auto began = stamp();
                        ::poll(nullptr, 0, 1);
                        held(i, asked, began, stamp());
                        m.unlock();
                        ++turns[static_cast<std::size_t>(i)];
                    }
                });
            }
        }
        for (int i = each; i < 2 * each; ++i) {
            auto& one = theirs[static_cast<std::size_t>(i - each)];
            for (auto said = one.line(); said != "done"; said = one.line()) {
                std::int64_t began = 0;
                std::int64_t ended = 0;
                REQUIRE(std::istringstream(said) >> began >> ended);
                const auto from = clk::time_point(std::chrono::nanoseconds(began));
                held(i, from, from, clk::time_point(std::chrono::nanoseconds(ended)));
                ++turns[static_cast<std::size_t>(i)];
            }
        }
    };
    want_it();
    // Queued waiters hand it to each other. Of a poller that looks now and then, seconds say nothing.
    const bool hand_over = std::same_as<typename TestType::dialect, distlock::handoff>;
    const auto fewest = [&] { return *std::min_element(turns.begin(), turns.end()); };
    for (int more = 0; more < 10 && !hand_over && fewest() == 0; ++more) want_it();
    CHECK(contended(holds) > 0);
    CHECK(distlock::testing::check_history(holds).text() == "");
    if (!hand_over) CHECK(fewest() > 0);
    const auto sum = [&](int from) {
        int all = 0;
        for (int i = from; i < from + each; ++i) all += turns[static_cast<std::size_t>(i)];
        return all;
    };
    figure("crowd of %d s: ours %d turns, theirs %d; the fewest of one %d", static_cast<int>(length.count()),
           sum(0), sum(each), fewest());
}

}  // namespace crowd_tests
