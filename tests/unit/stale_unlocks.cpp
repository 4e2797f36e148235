// The unlocks that are still to come for acquisitions that were lost.
#include <cstdint>
#include <thread>

#include <distlock/engine/stale_unlocks.hpp>

#include "support/allocations.hpp"
#include "support/catch.hpp"

namespace stale_unlocks_tests {

namespace {

using distlock::engine::stale_unlocks;
using by = stale_unlocks::by;

constexpr std::uint64_t bare = 0;

void add(stale_unlocks& book, std::thread::id owner, std::uint64_t serial = bare) {
    book.make_room();
    book.add(owner, serial == bare ? 1 : serial, serial == bare ? by::any_thread : by::guard);
}

// The id of a thread that is gone.
std::thread::id another_thread() {
    std::thread::id id;
    std::thread one([&] { id = std::this_thread::get_id(); });
    one.join();
    return id;
}

}  // namespace

TEST_CASE("nobody owes an unlock at the beginning") {
    stale_unlocks book;
    CHECK_FALSE(book.consume(std::this_thread::get_id()));
}

TEST_CASE("an unlock that is owed is taken off the books once") {
    stale_unlocks book;
    add(book, std::this_thread::get_id());
    CHECK(book.consume(std::this_thread::get_id()));
    CHECK_FALSE(book.consume(std::this_thread::get_id()));
}

TEST_CASE("a thread that owes two unlocks owes two") {
    stale_unlocks book;
    add(book, std::this_thread::get_id());
    add(book, std::this_thread::get_id());
    CHECK(book.consume(std::this_thread::get_id()));
    CHECK(book.consume(std::this_thread::get_id()));
    CHECK_FALSE(book.consume(std::this_thread::get_id()));
}

TEST_CASE("a thread that owes none takes another's: its lock may have been handed over") {
    stale_unlocks book;
    add(book, another_thread());
    CHECK(book.consume(std::this_thread::get_id()));
    CHECK_FALSE(book.consume(std::this_thread::get_id()));
}

TEST_CASE("a thread that gives up what it lost takes none but its own bare unlock off the books") {
    stale_unlocks book;
    add(book, another_thread());
    add(book, std::this_thread::get_id(), 7);
    CHECK_FALSE(book.consume_own(std::this_thread::get_id()));
    add(book, std::this_thread::get_id());
    CHECK(book.consume_own(std::this_thread::get_id()));
    CHECK_FALSE(book.consume_own(std::this_thread::get_id()));
    CHECK(book.contains(std::this_thread::get_id()));
}

// A lock that was left to another thread stayed locked, and was renewed without end.
TEST_CASE("an unlock that only its own thread may make is taken by no other") {
    const auto me = std::this_thread::get_id();
    stale_unlocks book;
    book.make_room();
    book.add(me, 7, by::its_thread);
    CHECK(book.contains(me));
    CHECK_FALSE(book.consume(another_thread()));
    add(book, another_thread());
    CHECK(book.consume(std::thread::id{}));
    CHECK_FALSE(book.consume(std::thread::id{}));
    CHECK(book.consume(me));
    CHECK_FALSE(book.contains(me));
}

TEST_CASE("a callback takes none of what its thread has left to others before off the books") {
    const auto me = std::this_thread::get_id();
    stale_unlocks book;
    book.make_room();
    book.add(me, 7, by::any_thread);
    CHECK_FALSE(book.consume_own(me, 7));
    CHECK(book.consume_own(me, 6));
}

TEST_CASE("a thread takes its own unlock off the books before another's") {
    const auto me = std::this_thread::get_id();
    const auto nobody = std::thread::id{};  // an id that no running thread has
    stale_unlocks book;
    add(book, nobody);
    add(book, me);
    CHECK(book.consume(me));
    // What is left is the other's: its own call finds it, and then nothing is.
    CHECK(book.consume(nobody));
    CHECK_FALSE(book.consume(me));
}

TEST_CASE("more unlocks than there is room for are still counted") {
    const auto me = std::this_thread::get_id();
    stale_unlocks book;
    for (int i = 0; i < 5000; ++i) add(book, me);
    for (std::uint64_t serial = 1; serial < 5000; ++serial) add(book, me, serial);
    int owed = 0;
    while (book.consume(me)) ++owed;
    CHECK(owed == 5000);
}

TEST_CASE("threads that never unlock take no more memory from some number on") {
    const auto me = std::this_thread::get_id();
    stale_unlocks book;
    for (int i = 0; i < 5000; ++i) add(book, me);
    NOT_TESTED_UNLESS(allocations_can_fail(), operator_new_is_not_ours);
    fail_allocation(1);
    for (int i = 0; i < 5000; ++i) add(book, me);
    fail_allocation(0);
    CHECK(book.contains(me));
}

TEST_CASE("an unlock is to come from a thread whose guard lost the lock, until the guard ends") {
    const auto me = std::this_thread::get_id();
    stale_unlocks book;
    add(book, me, 7);
    add(book, me, 9);
    CHECK(book.contains(me));
    CHECK_FALSE(book.contains(another_thread()));
    book.consume_guarded(8);
    book.consume_guarded(7);
    CHECK(book.contains(me));
    book.consume_guarded(9);
    CHECK_FALSE(book.contains(me));
}

TEST_CASE("a bare unlock takes no guard's place, and a guard no bare unlock's") {
    const auto me = std::this_thread::get_id();
    stale_unlocks book;
    add(book, me, 7);
    CHECK_FALSE(book.consume(me));
    add(book, me);
    book.consume_guarded(7);
    CHECK(book.contains(me));
    CHECK(book.consume(me));
    CHECK_FALSE(book.contains(me));
}

}  // namespace stale_unlocks_tests
