// What a fault proxy is to do, decided without a socket.
#include <chrono>
#include <string>
#include <vector>

#include <distlock/testing/fault_plan.hpp>

#include "support/catch.hpp"

namespace fault_plan_tests {

using namespace std::chrono_literals;
using distlock::testing::fault_plan;
using part = fault_plan::part;
using words = fault_plan::words;

namespace {

struct plan : fault_plan {
    using fault_plan::count_connection;
    using fault_plan::judge;
    using fault_plan::present;
    using fault_plan::rewritten;
    bool cuts_get() { return judge(1, 1, part::request, {"GET", "a"}, 20).has_value(); }
    int heeded = 0;

  private:
    void heed() noexcept override { ++heeded; }
};

fault_plan::which get() {
    return [](const words& w) { return w.at(0) == "GET"; };
}

}  // namespace

TEST_CASE("a plan that is forgotten has neither rules nor anything that came before") {
    plan p;
    p.count_connection();
    p.cut({.command = get(), .times = 3});
    CHECK(p.cuts_get());
    p.rewrite(get(), "+no\r\n", 2);
    p.delay(part::reply, 1s);
    p.hold(part::request);
    REQUIRE(p.cuts().size() == 1);
    REQUIRE(p.requests().size() == 1);
    p.forget();
    CHECK(p.heeded == 1);
    CHECK(p.connections() == 0);
    CHECK(p.cuts().empty());
    CHECK(p.requests().empty());
    CHECK_FALSE(p.cuts_get());
    CHECK(p.rewritten({"GET", "a"}, "+yes\r\n") == "+yes\r\n");
    CHECK(p.present().replies.delay == 0s);
    CHECK_FALSE(p.present().requests.held);
    CHECK(p.count_connection() == 1);
}

TEST_CASE("a plan that is left alone cuts no more, and knows what came before") {
    plan p;
    p.count_connection();
    p.cut({.times = 3});
    CHECK(p.cuts_get());
    p.storm(1, 1);
    p.slice(part::request, 1, 1s);
    const auto calms = p.present().calms;
    p.leave_alone();
    CHECK(p.present().calms == calms + 1);
    CHECK(p.present().requests.slice == 0);
    CHECK_FALSE(p.cuts_get());
    CHECK(p.cuts().size() == 1);
    CHECK(p.requests().size() == 2);
    CHECK(p.requests(get()).size() == 2);
    CHECK(p.connections() == 1);
}

TEST_CASE("a rule counts from the match that it names, and cuts no more than there is") {
    plan p;
    p.cut({.command = get(), .after = 100, .how = fault_plan::ending::close, .first = 2, .times = 2});
    CHECK_FALSE(p.cuts_get());
    CHECK_FALSE(p.judge(1, 2, part::request, {"SET", "a", "b"}, 30));
    CHECK_FALSE(p.judge(1, 2, part::reply, {"GET", "a"}, 5));
    const auto cut = p.judge(1, 3, part::request, {"GET", "a"}, 20);
    REQUIRE(cut);
    CHECK(cut->passes == 20);
    CHECK(cut->how == fault_plan::ending::close);
    CHECK(p.cuts_get());
    CHECK_FALSE(p.cuts_get());
    REQUIRE(p.cuts().size() == 2);
    CHECK(p.cuts().front().size == 20);
    CHECK(p.cuts().front().command == words{"GET", "a"});
}

TEST_CASE("letting go ends what is held in both directions, and no delay") {
    plan p;
    p.hold(part::request);
    p.hold(part::reply);
    p.delay(part::message, 2s);
    p.let_go();
    CHECK_FALSE(p.present().requests.held);
    CHECK_FALSE(p.present().replies.held);
    CHECK(p.present().replies.delay == 2s);
}

}  // namespace fault_plan_tests
