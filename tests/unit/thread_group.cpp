// Threads of the library that are joined together.
#include <atomic>
#include <cstddef>
#include <memory>
#include <system_error>
#include <thread>

#include <distlock/detail/thread_group.hpp>

#include "in_child.hpp"
#include "lab_figures.hpp"
#include "sanitizers.hpp"
#include "support/catch.hpp"
#include "support/no_threads.hpp"
#include "waiting.hpp"

namespace thread_group_tests {

using distlock::detail::thread_group;

TEST_CASE("joining a thread group waits for all its threads") {
    std::jthread([] {}).join();  // a sanitizer has a thread of its own from the first on
    const auto before = thread_count();
    const auto group = std::make_shared<thread_group>();
    std::atomic<int> over{0};
    for (int i = 0; i < 20; ++i) {
        group->start([&, i] {
            for (int k = 0; k < i * 100; ++k) std::this_thread::yield();
            ++over;
        });
    }
    group->join();
    CHECK(over == 20);
    CHECK(eventually([&] { return thread_count() <= before; }));  // the system counts them a little longer
}

TEST_CASE("a thread group tells its threads from others") {
    const auto group = std::make_shared<thread_group>();
    const auto other = std::make_shared<thread_group>();
    std::atomic<bool> ours{false};
    std::atomic<bool> theirs{true};
    std::atomic<bool> asked{false};
    group->start([&] {
        ours = group->has_this_thread();
        theirs = other->has_this_thread();
        asked = true;
    });
    CHECK_FALSE(group->has_this_thread());
    REQUIRE(eventually([&] { return asked.load(); }));
    group->join();
    CHECK(ours.load());
    CHECK_FALSE(theirs.load());
}

TEST_CASE("a thread of a group may join it: it waits for the others, not for itself") {
    auto group = std::make_shared<thread_group>();
    std::atomic<bool> go{false};
    std::atomic<int> over{0};
    std::atomic<int> seen{-1};
    for (int i = 0; i < 3; ++i) {
        group->start([&] {
            while (!go) std::this_thread::yield();
            ++over;
        });
    }
    const std::weak_ptr<thread_group> alive = group;
    group->start([&, of = group] {
        go = true;
        of->join();
        seen = over.load();
    });
    group.reset();
    CHECK(eventually([&] { return seen == 3; }));
    CHECK(eventually([&] { return alive.expired(); }));
}

TEST_CASE("threads of a group that came to their end are joined meanwhile") {
    const auto group = std::make_shared<thread_group>();
    const auto before = thread_count();
    for (int i = 0; i < 100; ++i) {
        std::atomic<bool> over{false};
        group->start([&] { over = true; });
        REQUIRE(eventually([&] { return over.load(); }));
    }
    CHECK(eventually([&] { return thread_count() <= before; }));
    group->join();
}

TEST_CASE("a thread that cannot be had is said, and is not waited for") {
    NOT_TESTED_UNLESS(threads_in_a_child, child_has_no_threads);
    CHECK(in_child([] {
        const auto group = std::make_shared<thread_group>();
        if (!let_no_thread_start()) return false;
        bool refused = false;
        try {
            group->start([] {});
        } catch (const std::system_error&) {
            refused = true;
        }
        group->join();
        return refused;
    }));
}

}  // namespace thread_group_tests
