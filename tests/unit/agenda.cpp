// The agenda, against a std::multimap that does the same slowly.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <map>
#include <random>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/detail/agenda.hpp>

#include "allocations.hpp"
#include "support/catch.hpp"

namespace agenda_tests {

namespace {

using time_point = distlock::clock::time_point;

struct item : distlock::detail::agenda_item<time_point> {};
using agenda = distlock::detail::agenda<item>;

time_point at(int when) { return time_point(std::chrono::milliseconds(when)); }

}  // namespace

TEST_CASE("an agenda says what is first, whatever is entered, moved and dropped") {
    constexpr std::size_t items = 300;
    std::mt19937 random(1);  // NOLINT: the same sequence every time
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    std::deque<item> all(items);
    std::multimap<time_point, item*> expected;
    std::map<item*, std::multimap<time_point, item*>::iterator> where;
    agenda tested;
    std::size_t wrong = 0;
    std::size_t moved = 0;
    std::size_t dropped = 0;
    for (int step = 0; step < 100'000; ++step) {
        item& one = all[below(items)];
        const auto found = where.find(&one);
        // Phases that fill it and phases that empty it.
        if (below(10) < (step / 10'000 % 2 == 0 ? 7U : 3U)) {
            const auto when = at(static_cast<int>(below(50)));  // many share a time
            if (found != where.end()) {
                expected.erase(found->second);
                ++moved;
            }
            where[&one] = expected.emplace(when, &one);
            tested.put(one, when);
        } else {
            if (found != where.end()) {
                expected.erase(found->second);
                where.erase(found);
                ++dropped;
            }
            tested.drop(one);
        }
        if (one.listed() != (where.count(&one) == 1)) ++wrong;
        if (one.listed() && one.at() != where[&one]->first) ++wrong;
        const item* const first = tested.first();
        if ((first == nullptr) != expected.empty()) ++wrong;
        if (first != nullptr && (!first->listed() || first->at() != expected.begin()->first)) ++wrong;
    }
    CHECK(wrong == 0);
    CHECK(moved > 10'000);
    CHECK(dropped > 10'000);
    for (; tested.first() != nullptr; tested.drop(*tested.first())) {
        if (tested.first()->at() != expected.begin()->first) ++wrong;
        expected.erase(where[tested.first()]);
    }
    CHECK(wrong == 0);
    CHECK(expected.empty());
}

TEST_CASE("an agenda that has held so many items allocates nothing for as many") {
    std::deque<item> all(1000);
    agenda tested;
    int when = 0;
    for (item& one : all) tested.put(one, at(--when));
    for (item& one : all) tested.drop(one);
    const auto before = allocations();
    for (int round = 0; round < 3; ++round) {
        for (item& one : all) tested.put(one, at(++when));
        for (item& one : all) tested.put(one, at(when - 500));
        for (item& one : all) tested.drop(one);
    }
    CHECK(allocations() == before);
    CHECK(tested.first() == nullptr);
}

TEST_CASE("an agenda allocates nothing for items it has room for") {
    std::deque<item> all(100);
    agenda tested;
    tested.reserve(all.size());
    const auto before = allocations();
    for (item& one : all) tested.put(one, at(1));
    CHECK(allocations() == before);
    for (item& one : all) tested.drop(one);
}

TEST_CASE("items that are advanced come no later, in the order they had") {
    std::mt19937 random(2);  // NOLINT: the same sequence every time
    for (int round = 0; round < 100; ++round) {
        std::deque<item> all(40);
        agenda tested;
        std::multimap<time_point, item*> expected;
        for (item& one : all) {
            const auto when = at(static_cast<int>(random() % 50));
            tested.put(one, when);
            expected.emplace(std::min(when, at(25)), &one);
        }
        tested.advance_all(at(25));
        for (const auto& [when, unused] : expected) {
            item* const first = tested.first();
            REQUIRE(first != nullptr);
            REQUIRE(first->at() == when);
            tested.drop(*first);
        }
        REQUIRE(tested.first() == nullptr);
    }
}

TEST_CASE("an item that is not listed is dropped without a trace") {
    item one;
    item other;
    agenda tested;
    tested.drop(one);
    CHECK(tested.first() == nullptr);
    tested.put(other, at(1));
    tested.drop(one);
    CHECK(tested.first() == &other);
    CHECK_FALSE(one.listed());
    tested.drop(other);
}

TEST_CASE("times at both ends of the clock's range are in order") {
    item never;
    item long_ago;
    item now;
    agenda tested;
    tested.put(never, time_point::max());
    tested.put(now, at(1));
    tested.put(long_ago, time_point::min());
    CHECK(tested.first() == &long_ago);
    tested.put(long_ago, time_point::max());
    CHECK(tested.first() == &now);
    tested.drop(now);
    CHECK(tested.first()->at() == time_point::max());
    tested.drop(long_ago);
    CHECK(tested.first() == &never);
    tested.drop(never);
}

}  // namespace agenda_tests
