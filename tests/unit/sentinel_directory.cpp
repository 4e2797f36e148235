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
    all.learn(std::vector{from(2, "c0", {})}, master);
    CHECK(all.all() == addresses{s1, s2});
}

TEST_CASE("a Sentinel has one vote, however it is reached") {
    sentinel_directory all({s1, s2});
    // The second one has not said yet who it is.
    all.learn(std::vector{from(0, "a0", {s2_by_address, s3})}, master);
    CHECK(all.all() == addresses{s1, s2, s2_by_address.at, s3.at});
    all.learn(std::vector{from(1, "b0", {s1_by_address, s3})}, master);
    CHECK(all.all() == addresses{s1, s2, s3.at});
    // It is remembered, though it is silent now.
    all.learn(std::vector{from(0, "a0", {s2_by_address, s3})}, master);
    CHECK(all.all() == addresses{s1, s2, s3.at});
    all.learn(std::vector{from(0, "", {{s1, ""}, s3, {s3.at, ""}})}, master);
    CHECK(all.all() == addresses{s1, s2, s3.at});
}

TEST_CASE("a Sentinel that names another master than the one that is believed in brings no others") {
    sentinel_directory all({s1, s2});
    all.learn(std::vector{from(0, "b0", {s3}, stranger), from(1, "b0", {s1_by_address})}, master);
    CHECK(all.all() == addresses{s1, s2, s1_by_address.at});
    auto ignorant = from(0, "a0", {s3});
    ignorant.what = sentinel_answer::kind::unknown_name;
    all.learn(std::vector{ignorant}, master);
    CHECK(all.all() == addresses{s1, s2});
}

TEST_CASE("there are never too many Sentinels to ask") {
    std::vector<known_sentinel> many;
    for (int i = 0; i < 100; ++i) many.push_back({{"h" + std::to_string(i), 26379}, std::to_string(i)});
    sentinel_directory all({s1, s2});
    all.learn(std::vector{from(0, "a0", many)}, master);
    CHECK(all.all().size() == sentinel_directory::most);
    CHECK(all.all()[1] == s2);
}

// One Sentinel more was known by its address than by its id: the next answer was noted beyond the end.
TEST_CASE("without memory nothing is learned of Sentinels, and all is learned the next time") {
    if (!allocations_can_fail()) return;
    const std::vector<known_sentinel> others{{{"10.0.1.3", 26379}, std::string(40, 'c')},
                                             {{"10.0.1.4", 26379}, std::string(40, 'd')}};
    const std::vector heard{from(0, "a0", others)};
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
        all.learn(std::vector{from(all.all().size() - 1, std::string(40, 'e'), others)}, master);
        CHECK(all.all() == addresses{s1, s2, others[0].at, others[1].at});
    }
}

}  // namespace sentinel_directory_tests
