// What people ask about locks: questions to commands, replies to reports. Nothing but the
// exact shape is believed.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/token.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/enter_mode.hpp>
#include <distlock/wire/handoff.hpp>
#include <distlock/wire/plain.hpp>
#include <distlock/wire/plain_inspector.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/report.hpp>

#include "support/argv_of.hpp"
#include "support/catch.hpp"

namespace plain_inspector_tests {

namespace {

using distlock::command;
using distlock::errc;
using distlock::lock_report;
using distlock::plain_inspector;
using distlock::reply;
using distlock::token;
using namespace std::chrono_literals;
using words = std::vector<std::string_view>;

const plain_inspector inspector("orders:42");
const plain_inspector alone("a}b");  // can have no keys beside it

reply report_of(const std::string& holder, std::int64_t ttl, const std::string& fence = "",
                const std::string& owner = "") {
    return reply::array(
        {reply::string(holder), reply::integer(ttl), reply::string(fence), reply::string(owner)});
}

lock_report must_read(const reply& r) {
    auto report = inspector.read_inspect(r);
    REQUIRE(report);
    return *report;
}

constexpr auto least = std::numeric_limits<std::int64_t>::min();

/// What is neither a report nor an answer to force_release.
std::vector<reply> nonsense() {
    return {reply::nil(),
            reply::string(""),
            reply::string("1"),
            reply::status("OK"),
            reply::integer(-1),
            reply::integer(2),
            reply::error("ERR x"),
            reply::error("READONLY x"),
            reply::not_sent(errc::unreachable, "x"),
            reply::no_answer(errc::no_reply, "x"),
            reply::array({}),
            reply::array({reply::integer(1)}),
            reply::array({reply::string("x"), reply::integer(1), reply::string("")}),
            reply::array({reply::string("x"), reply::integer(1), reply::string(""), reply::string(""),
                          reply::string("")}),
            reply::array({reply::nil(), reply::integer(1), reply::string(""), reply::string("")}),
            reply::array({reply::status("x"), reply::integer(1), reply::string(""), reply::string("")}),
            reply::array({reply::string("x"), reply::string("1"), reply::string(""), reply::string("")}),
            reply::array({reply::string("x"), reply::nil(), reply::string(""), reply::string("")}),
            reply::array({reply::string("x"), reply::integer(1), reply::nil(), reply::string("")}),
            reply::array({reply::string("x"), reply::integer(1), reply::integer(1), reply::string("")}),
            reply::array({reply::string("x"), reply::integer(1), reply::string(""), reply::nil()}),
            report_of("x", -3),
            report_of("x", least)};
}

}  // namespace

TEST_CASE("to inspect is a script with its body on the lock, its fence, its owner and its queue") {
    const command cmd = inspector.inspect();
    CHECK(argv_of(cmd) == words{"EVAL", distlock::detail::plain_inspect(), "4", "orders:42",
                                "{orders:42}:distlock:fence", "{orders:42}:distlock:owner",
                                "{orders:42}:distlock:queue"});
    CHECK(cmd.routing_key() == "orders:42");
    CHECK_FALSE(cmd.is_script());
}

TEST_CASE("to release by force is a script with its body on the lock, the queue and the mark") {
    const command cmd = inspector.force_release();
    CHECK(argv_of(cmd) == words{"EVAL", distlock::detail::plain_force_release(), "5", "orders:42",
                                "{orders:42}:distlock:queue", "{orders:42}:distlock:fence",
                                "{orders:42}:distlock:owner", "{orders:42}:distlock:forced"});
    CHECK(cmd.routing_key() == "orders:42");
    CHECK_FALSE(cmd.is_script());
}

TEST_CASE("to ask whether a lock was taken away by force is GET of the mark") {
    CHECK(argv_of(inspector.forced()) == words{"GET", "{orders:42}:distlock:forced"});
    CHECK(inspector.forced().routing_key() == "{orders:42}:distlock:forced");
}

TEST_CASE("a lock with a hash tag is inspected beside that tag") {
    const plain_inspector tagged("{orders}:42");
    CHECK(argv_of(tagged.inspect()) == words{"EVAL", distlock::detail::plain_inspect(), "4", "{orders}:42",
                                             "{orders}:42:distlock.:fence", "{orders}:42:distlock.:owner",
                                             "{orders}:42:distlock.:queue"});
    CHECK(argv_of(tagged.forced()) == words{"GET", "{orders}:42:distlock.:forced"});
}

TEST_CASE("a lock that can have no key beside it is inspected and released alone") {
    CHECK(alone.name() == "a}b");
    CHECK(argv_of(alone.inspect()) == words{"EVAL", distlock::detail::plain_inspect(), "1", "a}b"});
    CHECK(argv_of(alone.force_release()) ==
          words{"EVAL", distlock::detail::plain_force_release(), "1", "a}b"});
    CHECK(argv_of(alone.forced()) == words{"GET", "a}b"});
    CHECK(alone.inspect().routing_key() == "a}b");
    CHECK(alone.force_release().routing_key() == "a}b");
    CHECK(alone.forced().routing_key() == "a}b");
    const token owner = token::generate();
    CHECK_FALSE(alone.was_forced(reply::string(std::string(owner.view())), owner));
}

TEST_CASE("the inspector refuses a name that can be no lock's") {
    CHECK_THROWS_AS(plain_inspector(""), distlock::error);
    CHECK_THROWS_AS(plain_inspector("{a}:distlock:fence"), distlock::error);
    CHECK_THROWS_AS(plain_inspector(std::string(4097, 'x')), distlock::error);
}

TEST_CASE("the inspector asks for the keys that the dialect writes") {
    for (const char* name : {"orders:42", "{orders}:42", "{"}) {
        INFO(name);
        const distlock::plain dialect(name, {.fencing = true, .owner_info = "x"});
        const plain_inspector about(name);
        const token owner = token::generate();
        const command written = dialect.look(owner);
        const command asked = about.inspect();
        CHECK(asked.argv()[3] == written.argv()[3]);
        CHECK(asked.argv()[4] == written.argv()[4]);
        CHECK(asked.argv()[5] == written.argv()[5]);
        const distlock::handoff queues(name, {});
        const command entered = queues.enter(owner, distlock::enter_mode::join);
        CHECK(asked.argv()[6] == entered.argv()[4]);
        for (const std::size_t i : {3U, 4U, 5U, 6U})
            CHECK(about.force_release().argv()[i] == entered.argv()[i]);
    }
}

TEST_CASE("a lock without a TTL of its own is held for ever, one that is not there is free") {
    CHECK_FALSE(must_read(report_of("", -2)).holder);
    CHECK_FALSE(must_read(report_of("", -2)).remaining);
    const lock_report for_ever = must_read(report_of("x", -1));
    REQUIRE(for_ever.holder);
    CHECK(for_ever.holder->token == "x");
    CHECK_FALSE(for_ever.remaining);
    const lock_report held = must_read(report_of("x", 1500));
    REQUIRE(held.holder);
    CHECK(held.remaining == 1500ms);
    CHECK(must_read(report_of("x", 0)).remaining == 0ms);
    CHECK_FALSE(must_read(report_of("x", 0)).waiters);
    REQUIRE(must_read(report_of("", 10)).holder);  // an empty value holds a lock as well as any
    CHECK(must_read(report_of("", 10)).holder->token.empty());
}

TEST_CASE("waiters are reported in order, how long they wait, and who they are as far as it is told") {
    const std::string token(32, 'a');
    const auto queue = [](std::int64_t now, std::int64_t size, std::vector<reply> first) {
        auto report = report_of("x", 1000);
        report.elements().push_back(reply::integer(now));
        report.elements().push_back(reply::integer(size));
        report.elements().push_back(reply::array(std::move(first)));
        return report;
    };
    const auto report = must_read(
        queue(1'000'000, 7,
              {reply::string(token + " 30000 0 p4 herebox\n12\nnight job"), reply::string("400000"),
               reply::string("none"), reply::string("1"), reply::string(token + " 10 0 s0 "),
               reply::string("1000001"), reply::string(token + " 10 0 s0 x"), reply::string("inf")}));
    CHECK(report.holder);
    CHECK(report.waiters == 7U);
    REQUIRE(report.queue.size() == 3);
    CHECK(report.queue[0].waits == 600ms);
    CHECK(report.queue[0].lease == 30s);
    CHECK(report.queue[0].channel == "here");
    CHECK(report.queue[0].host == "box");
    CHECK(report.queue[0].pid == 12);
    CHECK(report.queue[0].label == "night job");
    CHECK(report.queue[1].waits == 0ms);  // the server's clock was set back
    CHECK(report.queue[1].lease == 10ms);
    CHECK(report.queue[1].channel.empty());
    CHECK(report.queue[1].host.empty());
    CHECK(must_read(queue(1, 0, {})).waiters == 0U);
    CHECK_FALSE(must_read(queue(1, -1, {})).waiters);
    CHECK_FALSE(must_read(report_of("x", 1000)).waiters);
    for (const reply& r :
         {queue(-1, 0, {}), queue(least, 0, {}), queue(1, -2, {}), queue(1, 1, {reply::string("x")}),
          queue(1, 1, {reply::string("x"), reply::integer(1)}),
          queue(1, 1, {reply::nil(), reply::string("1")})}) {
        CHECK_FALSE(inspector.read_inspect(r));
    }
    for (const std::size_t at : {4U, 5U, 6U}) {
        auto spoilt = queue(1, 0, {});
        spoilt.elements()[at] = reply::string("1");
        CHECK_FALSE(inspector.read_inspect(spoilt));
    }
}

TEST_CASE("a free lock has no holder, whatever stands beside it") {
    const lock_report report = must_read(report_of("", -2, "17", "x\nhost\n1\nlabel"));
    CHECK_FALSE(report.holder);
    CHECK(report.fence == 17U);
}

TEST_CASE("a fence is reported to its last digit, and what is none is left out") {
    CHECK(must_read(report_of("x", 1, "9007199254740993")).fence == 9007199254740993U);
    CHECK(must_read(report_of("x", 1, "9223372036854775807")).fence == 9223372036854775807U);
    for (const char* text : {"", "abc", "-1", "+1", "1 ", " 1", "1.0", "1e3", "99999999999999999999"}) {
        INFO(text);
        CHECK_FALSE(must_read(report_of("x", 1, text)).fence);
    }
}

TEST_CASE("host, process and label are shown of the token that holds the lock, and of no other") {
    const auto holder = [](const std::string& token, const std::string& beside) {
        const lock_report report = must_read(report_of(token, 1000, "", beside));
        REQUIRE(report.holder);
        CHECK(report.holder->token == token);
        return *report.holder;
    };
    const auto ours = holder("t1", "t1\nbox.local\n4711\nnight\njob\n");
    CHECK(ours.host == "box.local");
    CHECK(ours.pid == 4711);
    CHECK(ours.label == "night\njob\n");
    const auto quiet = holder("t1", "t1\nbox\n1\n");
    CHECK(quiet.host == "box");
    CHECK(quiet.label.empty());
    for (const char* beside :
         {"", "t2\nbox\n1\nx", "t11\nbox\n1\nx", "t\nbox\n1\nx", "\nbox\n1\nx", "\nt1\nbox\n1"}) {
        INFO(beside);
        const auto stranger = holder("t1", beside);
        CHECK(stranger.host.empty());
        CHECK(stranger.pid == 0);
        CHECK(stranger.label.empty());
    }
    // Another client's token may hold anything.
    CHECK(holder("t1\nbox", "t1\nbox\n1\nx").host.empty());
}

TEST_CASE("an owner's text that is cut short or spoilt is shown as far as it goes") {
    const auto holder = [](const std::string& beside) {
        const lock_report report = must_read(report_of("t1", 1000, "", beside));
        REQUIRE(report.holder);
        return *report.holder;
    };
    CHECK(holder("t1").host.empty());
    CHECK(holder("t1\n").host.empty());
    CHECK(holder("t1\nbox").host == "box");
    CHECK(holder("t1\nbox\n12").pid == 12);
    for (const char* pid : {"", "x", "12x", " 12", "99999999999999999999"}) {
        const auto spoilt = holder(std::string("t1\nbox\n") + pid + "\nlabel");
        CHECK(spoilt.pid == 0);
        CHECK(spoilt.label == "label");
    }
    CHECK(holder(std::string("t1\nb\0x\n1\n\0\xff", 11)).label == std::string("\0\xff", 2));
}

TEST_CASE("a reply of another shape is read as no report") {
    auto others = nonsense();
    others.push_back(reply::integer(0));
    others.push_back(reply::integer(1));
    for (const reply& r : others) {
        INFO(static_cast<int>(r.kind())
             << " " << r.text() << " " << r.number() << " " << r.elements().size());
        CHECK_FALSE(inspector.read_inspect(r));
    }
}

TEST_CASE("1 and 0 say whether somebody lost the lock, and any other reply says neither") {
    CHECK(inspector.read_force_release(reply::integer(1)) == true);
    CHECK(inspector.read_force_release(reply::integer(0)) == false);
    for (const reply& r : nonsense()) {
        INFO(static_cast<int>(r.kind()) << " " << r.text() << " " << r.number());
        CHECK_FALSE(inspector.read_force_release(r));
    }
}

TEST_CASE("only a mark with our own token says that the lock was taken from us") {
    const token owner = token::generate();
    const std::string ours(owner.view());
    CHECK(inspector.was_forced(reply::string(ours), owner));
    CHECK_FALSE(inspector.was_forced(reply::status(ours), owner));
    CHECK_FALSE(inspector.was_forced(reply::error(ours), owner));
    CHECK_FALSE(inspector.was_forced(reply::string(ours.substr(1)), owner));
    CHECK_FALSE(inspector.was_forced(reply::string(ours + " "), owner));
    CHECK_FALSE(inspector.was_forced(reply::string(""), owner));
    CHECK_FALSE(inspector.was_forced(reply::nil(), owner));
    CHECK_FALSE(inspector.was_forced(reply::no_answer(errc::no_reply, ours), owner));
    CHECK_FALSE(inspector.was_forced(reply::string(std::string(token::generate().view())), owner));
}

TEST_CASE("each script of the inspector states its contract first") {
    for (const auto text : {distlock::detail::plain_inspect(), distlock::detail::plain_force_release()}) {
        CHECK(text.starts_with("-- KEYS: lock"));
        CHECK(text.find("-- Returns ") != std::string_view::npos);
    }
}

}  // namespace plain_inspector_tests
