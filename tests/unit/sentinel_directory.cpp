// Which Sentinels are asked: those of the URI, and those that trusted ones name.
#include <cstddef>
#include <new>
#include <string>
#include <vector>

#include <distlock/net/node_address.hpp>
#include <distlock/net/sentinel_answer.hpp>
#include <distlock/net/sentinel_directory.hpp>

#include "support/allocations.hpp"
#include "support/catch.hpp"

namespace sentinel_directory_tests {

namespace {

using distlock::known_sentinel;
using distlock::node_address;
using distlock::sentinel_answer;
using distlock::sentinel_directory;
using addresses = std::vector<node_address>;

const node_address master{"10.0.0.1", 6379};
const node_address stranger{"10.6.6.6", 6379};
const node_address s1{"s1", 26379};
const node_address s2{"s2", 26379};
const known_sentinel s1_by_address{{"10.0.1.1", 26379}, "a0"};
const known_sentinel s2_by_address{{"10.0.1.2", 26379}, "b0"};
const known_sentinel s3{{"10.0.1.3", 26379}, "c0"};

sentinel_answer from(std::size_t place, const std::string& id, std::vector<known_sentinel> others,
                     const node_address& named = master) {
    return {.what = sentinel_answer::kind::names_master,
            .place = place,
            .master = named,
            .id = id,
            .others = std::move(others)};
}

}  // namespace

TEST_CASE("Sentinels are found through others, and those of the URI are kept") {
    sentinel_directory all({s1, s2});
    CHECK(all.all() == addresses{s1, s2});
    all.learn(std::vector{from(0, "a0", {s2_by_address, s3}), from(1, "b0", {s1_by_address, s3})}, master);
    CHECK(all.all() == addresses{s1, s2, s3.at});
    // As long as those of the URI are silent the others stay.
    all.learn(std::vector{from(2, "c0", {})}, master);
    CHECK(all.all() == addresses{s1, s2, s3.at});
    all.learn(std::vector{from(0, "a0", {s2_by_address}), from(1, "b0", {s1_by_address})}, master);
    CHECK(all.all() == addresses{s1, s2});
}

TEST_CASE("one Sentinel of the URI is believed about all others") {
    sentinel_directory all({s1});
    all.learn(std::vector{from(0, "a0", {s2_by_address, s3})}, master);
    CHECK(all.all() == addresses{s1, s2_by_address.at, s3.at});
    // Those that it named name nobody.
    const known_sentinel s4{{"10.0.1.4", 26379}, "d0"};
    all.learn(std::vector{from(0, "a0", {s2_by_address}), from(1, "b0", {s4}), from(2, "c0", {s4})}, master);
    CHECK(all.all() == addresses{s1, s2_by_address.at});
}

// One that named the right master once could name thirty of its own, and they another master.
TEST_CASE("one Sentinel of three cannot bring others of its kind") {
    const node_address uri3{"s3", 26379};
    std::vector<known_sentinel> crowd;
    for (int i = 0; i < 30; ++i) crowd.push_back({{"10.6.6." + std::to_string(i), 26379}, std::to_string(i)});
    const std::vector<known_sentinel> honest{s1_by_address, s2_by_address, s3};
    sentinel_directory all({s1, s2, uri3});
    all.learn(std::vector{from(2, "c0", crowd)}, master);
    CHECK(all.all() == addresses{s1, s2, uri3});
    auto twice = crowd;
    twice.insert(twice.end(), crowd.begin(), crowd.end());
    all.learn(std::vector{from(0, "a0", honest), from(1, "b0", honest), from(2, "c0", twice)}, master);
    CHECK(all.all() == addresses{s1, s2, uri3});
    all.learn(std::vector{from(0, "a0", {crowd[0]}), from(2, "c0", crowd)}, master);
    CHECK(all.all() == addresses{s1, s2, uri3, crowd[0].at});
}

TEST_CASE("one Sentinel that the URI has by two names is one Sentinel") {
    const node_address alias{"s2-alias", 26379};
    sentinel_directory all({s1, s2, alias});
    all.learn(std::vector{from(0, "a0", {}), from(1, "b0", {s3}), from(2, "b0", {s3})}, master);
    CHECK(all.all() == addresses{s1, s2, alias});
    all.learn(std::vector{from(0, "a0", {s3}), from(1, "b0", {s3}), from(2, "b0", {s3})}, master);
    CHECK(all.all() == addresses{s1, s2, alias, s3.at});
}

TEST_CASE("one Sentinel that the URI has by two names, and no other, is believed about all others") {
    const node_address alias{"s1-alias", 26379};
    sentinel_directory all({s1, alias});
    all.learn(std::vector{from(0, "a0", {s2_by_address, s3}), from(1, "a0", {s2_by_address, s3})}, master);
    CHECK(all.all() == addresses{s1, alias, s2_by_address.at, s3.at});
    sentinel_directory half({s1, alias, s2});
    half.learn(std::vector{from(0, "a0", {s3}), from(1, "a0", {s3})}, master);
    CHECK(half.all() == addresses{s1, alias, s2});
}

TEST_CASE("a Sentinel has one vote, however it is reached") {
    sentinel_directory all({s1, s2});
    // The second one does not say who it is.
    const auto heard = std::vector{from(0, "a0", {s2_by_address, s3}), from(1, "", {s2_by_address, s3})};
    all.learn(heard, master);
    CHECK(all.all() == addresses{s1, s2, s2_by_address.at, s3.at});
    all.learn(std::vector{from(0, "a0", {s2_by_address, s3}), from(1, "b0", {s1_by_address, s3})}, master);
    CHECK(all.all() == addresses{s1, s2, s3.at});
    // It is remembered, though it does not say so now.
    all.learn(heard, master);
    CHECK(all.all() == addresses{s1, s2, s3.at});
    const std::vector<known_sentinel> nameless{{s1, ""}, s3, {s3.at, ""}};
    all.learn(std::vector{from(0, "", nameless), from(1, "", nameless)}, master);
    CHECK(all.all() == addresses{s1, s2, s3.at});
}

TEST_CASE("a Sentinel that names another master than the one that is believed in brings no others") {
    sentinel_directory all({s1});
    all.learn(std::vector{from(0, "b0", {s3}, stranger)}, master);
    CHECK(all.all() == addresses{s1});
    auto ignorant = from(0, "a0", {s3});
    ignorant.what = sentinel_answer::kind::unknown_name;
    all.learn(std::vector{ignorant}, master);
    CHECK(all.all() == addresses{s1});
}

TEST_CASE("a Sentinel that names another master keeps out none by saying that it is that one") {
    sentinel_directory all({s1, s2, {"s0", 26379}});
    all.learn(std::vector{from(0, "a0", {s3}), from(1, "b0", {s3}), from(2, s3.id, {}, stranger)}, master);
    CHECK(all.all().size() == 4);
    CHECK(all.all().back() == s3.at);
}

TEST_CASE("there are never too many Sentinels to ask") {
    std::vector<known_sentinel> many;
    for (int i = 0; i < 100; ++i) many.push_back({{"h" + std::to_string(i), 26379}, std::to_string(i)});
    sentinel_directory all({s1, s2});
    all.learn(std::vector{from(0, "a0", many), from(1, "b0", many)}, master);
    CHECK(all.all().size() == sentinel_directory::most);
    CHECK(all.all()[1] == s2);
}

// One Sentinel more was known by its address than by its id: the next answer was noted beyond the end.
TEST_CASE("without memory nothing is learned of Sentinels, and all is learned the next time") {
    NOT_TESTED_UNLESS(allocations_can_fail(), operator_new_is_not_ours);
    const std::vector<known_sentinel> others{{{"10.0.1.3", 26379}, std::string(40, 'c')},
                                             {{"10.0.1.4", 26379}, std::string(40, 'd')}};
    const std::vector heard{from(0, "a0", others), from(1, "b0", others)};
    bool failed = true;
    for (long nth = 1; failed; ++nth) {
        sentinel_directory all({s1, s2});
        fail_allocation(nth);
        try {
            all.learn(heard, master);
        } catch (const std::bad_alloc&) {}
        failed = allocation_failed();
        fail_allocation(0);
        INFO("the allocation that failed: " << nth);
        CHECK(all.all().size() == (failed ? 2 : 4));
        all.learn(std::vector{from(0, "a0", others), from(1, std::string(40, 'e'), others)}, master);
        CHECK(all.all() == addresses{s1, s2, others[0].at, others[1].at});
    }
}

}  // namespace sentinel_directory_tests
