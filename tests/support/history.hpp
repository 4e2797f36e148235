// Threads that take turns, and whether two ever had the lock at once.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/testing.hpp>

/// Returns: how many asked for the lock while another had it. Where nobody did, there was nothing to exclude.
inline std::size_t contended(std::vector<distlock::testing::history_event> events) {
    const auto holds = distlock::testing::beliefs_in(std::move(events));
    std::size_t count = 0;
    for (std::size_t i = 1; i < holds.size(); ++i) count += holds[i].granted.from < holds[i - 1].to;
    return count;
}

/// Returns: how many grants had a fencing token.
inline std::size_t fenced(const std::vector<distlock::testing::history_event>& events) {
    return static_cast<std::size_t>(
        std::count_if(events.begin(), events.end(), [](const auto& e) { return e.fence != 0; }));
}

struct turns_taken : distlock::testing::history_report {
    std::size_t contended = 0;
    std::size_t fenced = 0;
};

/// Effects: `threads` threads, two or more, take `turns` turns each. `turn(who, inside)` takes the lock,
/// calls inside(m), with the lock or its guard, and releases it. The first to be inside waits until another
/// one asks, so that a run without contention cannot be.
template <class Turn>
turns_taken take_turns(int threads, int turns, Turn turn) {
    using distlock::clock;
    distlock::testing::recorder book;
    std::atomic<int> asked{0};  // threads that have called turn() at least once
    {
        std::vector<std::jthread> running;
        for (int who = 0; who < threads; ++who) {
            running.emplace_back([&book, &asked, turns, turn, who]() mutable {
                clock::time_point called{};
                const auto inside = [&](const auto& m) {
                    std::uint64_t fence = 0;
                    if constexpr (requires { m.fencing_token(); }) fence = m.fencing_token();
                    const auto hold = book.granted("lock", called, m.valid_until(), fence);
                    const auto longest = clock::now() + std::chrono::seconds{5};
                    do {
                        std::this_thread::yield();
                    } while (asked < 2 && clock::now() < longest);
                    book.released(hold, clock::now());
                };
                for (int i = 0; i < turns; ++i) {
                    called = clock::now();
                    if (i == 0) ++asked;
                    turn(who, inside);
                }
            });
        }
    }
    const auto events = book.events();
    return {distlock::testing::check_history(events), contended(events), fenced(events)};
}
