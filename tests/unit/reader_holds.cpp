// The table of readers: whoever comes and goes, each finds its own.
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include <distlock/engine/reader_holds.hpp>

#include "support/catch.hpp"

namespace reader_holds_tests {

namespace {

using distlock::engine::ended_by;

struct batch {};
using table = distlock::engine::reader_holds<batch>;

}  // namespace

TEST_CASE("a thread finds what it read under last, also of what no guard ends") {
    table holds;
    batch one, two;
    const auto me = std::this_thread::get_id();
    CHECK(holds.newest() == nullptr);
    CHECK(holds.newest_unguarded() == nullptr);
    CHECK(holds.find(7) == nullptr);
    holds.make_room(4);
    holds.add({me, 1, &one, ended_by::guard});
    REQUIRE(holds.newest() != nullptr);
    CHECK(holds.newest()->serial == 1);
    CHECK(holds.newest_unguarded() == nullptr);
    holds.add({me, 2, &two, ended_by::thread});
    holds.add({me, 3, &one, ended_by::thread});
    holds.add({me, 4, &two, ended_by::guard});
    CHECK(holds.size() == 4);
    CHECK(holds.newest()->serial == 4);
    CHECK(holds.newest_unguarded()->serial == 3);
    CHECK(holds.find(2)->in == &two);
    CHECK(holds.find(5) == nullptr);
    bool none = false;
    const table::hold* of_another = nullptr;
    std::jthread([&] {
        none = holds.newest() == nullptr && holds.newest_unguarded() == nullptr;
        of_another = holds.find(2);
    }).join();
    CHECK(none);
    REQUIRE(of_another != nullptr);
    CHECK(of_another->in == &two);
    holds.remove(*holds.newest_unguarded());
    CHECK(holds.newest_unguarded()->serial == 2);
    holds.remove(*holds.newest());
    CHECK(holds.newest()->serial == 2);
    holds.set_ended_by(*holds.newest_unguarded(), ended_by::guard);
    CHECK(holds.newest_unguarded() == nullptr);
    CHECK(holds.size() == 2);
    holds.remove(*holds.find(1));
    CHECK(holds.find(1) == nullptr);
    holds.remove(*holds.find(2));
    CHECK(holds.newest() == nullptr);
    CHECK(holds.size() == 0);
}

TEST_CASE("threads that come and go in any order never find another one's, and always their own") {
    constexpr int threads = 40;
    constexpr int steps = 2'000;
    table holds;
    batch any;
    std::mutex lock;
    std::condition_variable all_there;
    int there = 0;
    std::uint64_t serial = 0;
    int wrong = 0;
    std::vector<std::jthread> all;
    for (unsigned i = 0; i < threads; ++i) {
        all.emplace_back([&, i] {
            std::minstd_rand dice(i + 1);
            std::vector<std::uint64_t> mine;
            std::unique_lock guard(lock);
            ++there;
            all_there.notify_all();
            all_there.wait(guard, [&] { return there == threads; });
            const auto me = std::this_thread::get_id();
            const auto end_one = [&] {
                const auto* const one = holds.newest();
                if (one == nullptr || one->thread != me || std::erase(mine, one->serial) != 1) {
                    ++wrong;
                } else {
                    holds.remove(*one);
                }
            };
            for (int step = 0; step < steps; ++step) {
                if (mine.size() < 3 && dice() % 2 == 0) {
                    holds.make_room(1);
                    holds.add({me, ++serial, &any, dice() % 2 == 0 ? ended_by::guard : ended_by::thread});
                    mine.push_back(serial);
                } else if (!mine.empty()) {
                    end_one();
                } else if (holds.newest() != nullptr) {
                    ++wrong;
                }
                for (const auto own : mine) wrong += holds.find(own) == nullptr;
                guard.unlock();
                std::this_thread::yield();
                guard.lock();
            }
            while (!mine.empty() && wrong == 0) end_one();
        });
    }
    all.clear();
    CHECK(wrong == 0);
    CHECK(holds.size() == 0);
}

}  // namespace reader_holds_tests
