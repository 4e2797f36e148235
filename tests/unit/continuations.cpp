// What guards end after exchanges, told apart by serials.
#include <cstdint>
#include <thread>

#include <distlock/engine/continuations.hpp>

#include "support/catch.hpp"

namespace continuations_tests {

using distlock::engine::continuations;
using distlock::engine::serials;

namespace {

const auto me = std::this_thread::get_id();
const auto all = [](std::uint64_t) { return true; };

// Returns: what the guard of it knows.
serials exchange(continuations& known, const serials& from, const serials& to, bool guarded) {
    const serials guards = known.begin(from, guarded);
    CHECK(known.finish(guards, to, me));
    return guards;
}

}  // namespace

TEST_CASE("an acquisition that no guard ends has no continuation, however often it is exchanged") {
    continuations known;
    CHECK_FALSE(exchange(known, {.write = 1}, {.read = 1}, false));
    CHECK_FALSE(exchange(known, {.read = 1}, {.write = 2}, false));
    CHECK_FALSE(known.now({.write = 1}));
    CHECK_FALSE(known.take({.write = 1}));
    CHECK_FALSE(known.write_by(me, all));
}

TEST_CASE("a guard knows its acquisition by its first serial through all exchanges") {
    continuations known;
    CHECK_FALSE(known.now({.read = 7}));
    CHECK(exchange(known, {.read = 7}, {.write = 7}, true) == serials{.read = 7});
    CHECK(exchange(known, {.read = 8}, {.write = 9}, true) == serials{.read = 8});
    CHECK(exchange(known, {.write = 7}, {.read = 10}, true) == serials{.read = 7});
    CHECK(known.now({.read = 7}) == serials{.read = 10});
    CHECK(known.now({.read = 8}) == serials{.write = 9});
    CHECK(known.take({.read = 7}) == serials{.read = 10});
    CHECK_FALSE(known.take({.read = 7}));
    CHECK(known.take({.read = 8}) == serials{.write = 9});
}

TEST_CASE("until an exchange is finished the guard has the acquisition from before it") {
    continuations known;
    const serials guards = known.begin({.write = 1}, true);
    CHECK_FALSE(known.now(guards));
    CHECK(known.finish(guards, {.read = 1}, me));
    CHECK(known.begin({.read = 1}, true) == guards);
    CHECK(known.now(guards) == serials{.read = 1});
    known.give_up(guards);
    CHECK(known.now(guards) == serials{.read = 1});
}

TEST_CASE("an exchange whose guard ends meanwhile hears of it, and leaves nothing behind") {
    continuations known;
    serials guards = known.begin({.write = 1}, true);
    CHECK_FALSE(known.take(guards));
    CHECK_FALSE(known.finish(guards, {.read = 1}, me));
    CHECK_FALSE(known.now(guards));
    guards = exchange(known, {.write = 2}, {.read = 2}, true);
    CHECK(known.begin({.read = 2}, true) == guards);
    CHECK(known.take(guards) == serials{.read = 2});
    CHECK_FALSE(known.finish(guards, {.write = 3}, me));
    CHECK_FALSE(known.write_by(me, all));
}

TEST_CASE("a guard whose exchange was in vain has what it had") {
    continuations known;
    const serials guards = known.begin({.read = 1}, true);
    known.give_up(guards);
    CHECK_FALSE(known.finish(guards, {.write = 1}, me));
    CHECK_FALSE(known.take(guards));
}

TEST_CASE("the first guard does not end what another one adopts") {
    continuations known;
    exchange(known, {.read = 1}, {.write = 1}, true);
    exchange(known, {.read = 2}, {.write = 2}, true);
    known.adopt({.write = 1});
    CHECK_FALSE(known.take({.read = 1}));
    CHECK(known.take({.read = 2}) == serials{.write = 2});
}

TEST_CASE("a thread finds the write that its own upgrade has made, if it still has it") {
    continuations known;
    exchange(known, {.read = 1}, {.write = 1}, true);
    exchange(known, {.write = 5}, {.read = 5}, true);
    exchange(known, {.read = 2}, {.write = 2}, true);
    CHECK(known.write_by(me, [](std::uint64_t serial) { return serial == 2; }) == serials{.write = 2});
    CHECK_FALSE(known.write_by(me, [](std::uint64_t) { return false; }));
    CHECK_FALSE(known.write_by({}, all));
}

}  // namespace continuations_tests
