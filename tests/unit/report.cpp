// What inspect() saw, as a line for people.
#include <chrono>
#include <sstream>
#include <string>

#include <distlock/wire/report.hpp>

#include "support/catch.hpp"

namespace report_tests {

using namespace std::chrono_literals;
using distlock::lock_report;

namespace {

lock_report held() {
    lock_report of;
    of.holder = distlock::lock_holder{.token = "0123", .host = {}, .pid = 0, .label = {}, .holds = 1};
    of.remaining = 29'000ms;
    return of;
}

}  // namespace

TEST_CASE("a report says who has the lock, for how long, and how many wait") {
    lock_report of = held();
    CHECK(to_string(of) == "held by 0123, for 29000 ms more");
    of.holder->host = "web-3";
    of.holder->pid = 4711;
    CHECK(to_string(of) == "held by 0123 of process 4711 on web-3, for 29000 ms more");
    of.holder->label = "nightly";
    of.holder->holds = 2;
    of.fence = 7;
    of.waiters = 1;
    CHECK(to_string(of) ==
          "held by 0123 of process 4711 on web-3 (nightly), 2 times, for 29000 ms more; last fencing token "
          "7; 1 waits");
    of.waiters = 3;
    std::ostringstream out;
    out << of;
    CHECK(out.str() == to_string(of));
    CHECK(out.str().ends_with("; 3 wait"));
}

TEST_CASE("a report says that a lock is free, shared, or never expires, and what a semaphore has out") {
    lock_report of;
    CHECK(to_string(of) == "free");
    of.fence = 7;
    of.waiters = 0;
    of.remaining = 5ms;  // of nobody
    CHECK(to_string(of) == "free; last fencing token 7");
    of = held();
    of.remaining.reset();
    CHECK(to_string(of) == "held by 0123, without an end");
    of.holder.reset();
    of.shares = 2;
    of.remaining = 10ms;
    CHECK(to_string(of) == "shared by 2, for 10 ms more");
    of.limit = 5;
    CHECK(to_string(of) == "2 of 5 permits out, for 10 ms more");
    of.shares = 0;
    CHECK(to_string(of) == "0 of 5 permits out");
}

TEST_CASE("a report brings nothing to a terminal that others wrote there") {
    lock_report of = held();
    of.holder->token = "a\x1b[2J";
    of.holder->host = "b\n";
    of.holder->label = std::string(1000, 'c');
    const auto text = to_string(of);
    CHECK(text.find('\x1b') == std::string::npos);
    CHECK(text.find('\n') == std::string::npos);
    CHECK(text.size() < 400);
}

}  // namespace report_tests
