// The book of the unlocks that are still to come.
#include <thread>

#include <distlock/engine/strays.hpp>

#include "catch.hpp"

namespace {

using distlock::engine::strays;

// The id of a thread that is gone.
std::thread::id another_thread() {
    std::thread::id id;
    std::thread one([&] { id = std::this_thread::get_id(); });
    one.join();
    return id;
}

}  // namespace

TEST_CASE("nobody owes an unlock at the beginning") {
    strays book;
    CHECK_FALSE(book.forget(std::this_thread::get_id()));
}

TEST_CASE("an unlock that is owed is taken off the books once") {
    strays book;
    book.remember(std::this_thread::get_id());
    CHECK(book.forget(std::this_thread::get_id()));
    CHECK_FALSE(book.forget(std::this_thread::get_id()));
}

TEST_CASE("a thread that owes two unlocks owes two") {
    strays book;
    book.remember(std::this_thread::get_id());
    book.remember(std::this_thread::get_id());
    CHECK(book.forget(std::this_thread::get_id()));
    CHECK(book.forget(std::this_thread::get_id()));
    CHECK_FALSE(book.forget(std::this_thread::get_id()));
}

TEST_CASE("a thread that owes none takes another's: its lock may have been handed over") {
    strays book;
    book.remember(another_thread());
    CHECK(book.forget(std::this_thread::get_id()));
    CHECK_FALSE(book.forget(std::this_thread::get_id()));
}

TEST_CASE("a thread takes its own unlock off the books before another's") {
    const auto me = std::this_thread::get_id();
    const auto nobody = std::thread::id{};  // an id that no running thread has
    strays book;
    book.remember(nobody);
    book.remember(me);
    CHECK(book.forget(me));
    // What is left is the other's: its own call finds it, and then nothing is.
    CHECK(book.forget(nobody));
    CHECK_FALSE(book.forget(me));
}

TEST_CASE("more unlocks than the book has lines for are still counted") {
    const auto me = std::this_thread::get_id();
    strays book;
    for (int i = 0; i < 1000; ++i) book.remember(me);
    int owed = 0;
    while (book.forget(me)) ++owed;
    CHECK(owed == 1000);
}
