// What a connection is, what it may be besides, and how a script's body is sent.
#include <cerrno>
#include <chrono>
#include <memory>
#include <new>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <distlock/net/connection.hpp>
#include <distlock/testing/scripted_connection.hpp>

#include "catch.hpp"

namespace {

using distlock::check_connection;
using distlock::command;
using distlock::connection;
using distlock::errc;
using distlock::identified_connection;
using distlock::posting_connection;
using distlock::reply;
using distlock::reply_kind;
using distlock::timed_connection;
using distlock::waiting_connection;
using distlock::testing::scripted_connection;

inline constexpr distlock::script answer_one{"return 1"};
const command by_name(answer_one, {"orders"}, {"token"});

struct minimal {
    reply execute(const command&) { return reply::nil(); }
};
struct by_value {
    reply execute(command) { return reply::nil(); }
};
struct const_call {
    reply operator()(const command&) const { return reply::nil(); }
};
struct full {
    reply execute(const command&) { return reply::nil(); }
    reply wait(const command&, distlock::clock::time_point, const std::stop_token&) { return reply::nil(); }
    bool post(const command&) { return true; }
    std::chrono::seconds command_timeout() const { return std::chrono::seconds(1); }
    std::string identity() const { return "here"; }
};
using lambda = decltype([](const command&) { return reply::nil(); });
reply function(const command&) { return reply::nil(); }

static_assert(connection<minimal> && check_connection<minimal>());
static_assert(connection<by_value>);
static_assert(connection<const_call> && connection<const const_call>);
static_assert(connection<lambda> && check_connection<lambda>());
static_assert(connection<decltype(function)*>);
static_assert(connection<scripted_connection> && check_connection<scripted_connection>());
static_assert(connection<full> && check_connection<full>());

struct void_result {
    void execute(const command&) {}
};
struct converting_result {
    std::string execute(const command&) { return {}; }
};
struct reference_result {
    reply& execute(const command&) { return last; }
    reply last;
};
struct owning_result {
    std::unique_ptr<reply> execute(const command&) { return nullptr; }
};
struct mutable_argument {
    reply execute(command&) { return reply::nil(); }
};
struct text_argument {
    reply execute(const std::string&) { return reply::nil(); }
};
class hidden {
    reply execute(const command&);
};
static_assert(!connection<void_result>);
static_assert(!connection<converting_result>);
static_assert(!connection<reference_result>);
static_assert(!connection<owning_result>);
static_assert(!connection<mutable_argument>);
static_assert(!connection<text_argument>);
static_assert(!connection<hidden>);
static_assert(!connection<const minimal>, "execute of a const object is not offered");
static_assert(!connection<int> && !connection<std::string>);
static_assert(!connection<decltype([](const command&) { return true; })>);

static_assert(waiting_connection<full> && posting_connection<full> && timed_connection<full>);
static_assert(identified_connection<full> && !identified_connection<minimal>);
static_assert(!waiting_connection<minimal> && !posting_connection<minimal> && !timed_connection<minimal>);
static_assert(!waiting_connection<lambda> && !posting_connection<lambda>);

struct only_posts {
    bool post(const command&) { return true; }
};
struct posts_nothing_back {
    reply execute(const command&) { return reply::nil(); }
    void post(const command&) {}
};
struct mutable_timeout {
    reply execute(const command&) { return reply::nil(); }
    std::chrono::milliseconds command_timeout() { return {}; }
};
struct bare_timeout {
    reply execute(const command&) { return reply::nil(); }
    int command_timeout() const { return 200; }
};
static_assert(!posting_connection<only_posts>, "a refinement is a connection first");
static_assert(!posting_connection<posts_nothing_back>);
static_assert(!timed_connection<mutable_timeout>);
static_assert(!timed_connection<bare_timeout>);
struct numbered {
    reply execute(const command&) { return reply::nil(); }
    int identity() const { return 1; }
};
static_assert(!identified_connection<numbered>);

static_assert(noexcept(distlock::execute(std::declval<minimal&>(), by_name)));

std::vector<std::string> first_words(const scripted_connection& c) {
    std::vector<std::string> all;
    for (const auto& cmd : c.commands()) all.push_back(cmd.argv.at(0));
    return all;
}
using words = std::vector<std::string>;

template <class Exception>
reply answer_of_one_that_throws(const Exception& what) {
    auto throws = [&](const command&) -> reply { throw what; };
    return distlock::execute(throws, by_name);
}

}  // namespace

TEST_CASE("a lambda, a function and a struct are executed") {
    const auto ping = command({"PING"});
    auto pong = [](const command& cmd) { return reply::status(std::string(cmd.argv()[0])); };
    CHECK(distlock::execute(pong, ping).is_status("PING"));
    auto* pointer = &function;
    CHECK(distlock::execute(pointer, ping).is(reply_kind::nil));
    minimal m;
    CHECK(distlock::execute(m, ping).is(reply_kind::nil));
}

TEST_CASE("a type that has both is asked through execute") {
    struct both {
        reply execute(const command&) { return reply::integer(1); }
        reply operator()(const command&) { return reply::integer(2); }
    } c;
    CHECK(distlock::execute(c, command({"PING"})).is_integer(1));
}

TEST_CASE("a script that the server has is sent by name only") {
    scripted_connection c{reply::integer(1)};
    CHECK(distlock::execute(c, by_name).is_integer(1));
    CHECK(first_words(c) == words{"EVALSHA"});
}

TEST_CASE("after NOSCRIPT the body is sent, exactly once") {
    scripted_connection c{reply::error("NOSCRIPT No matching script. Please use EVAL."), reply::integer(1)};
    command cmd = by_name;
    cmd.until(distlock::clock::time_point(std::chrono::seconds(9)));
    CHECK(distlock::execute(c, cmd).is_integer(1));
    const auto asked = c.commands();
    REQUIRE(asked.size() == 2);
    CHECK(asked[0].argv == words{"EVALSHA", std::string(answer_one.sha1()), "1", "orders", "token"});
    CHECK(asked[1].argv == words{"EVAL", "return 1", "1", "orders", "token"});
    CHECK(asked[1].routing_key == "orders");
    CHECK(asked[1].deadline == cmd.deadline());
}

TEST_CASE("a server that answers NOSCRIPT to the body is not asked a third time") {
    scripted_connection c{reply::error("NOSCRIPT a"), reply::error("NOSCRIPT b"), reply::integer(1)};
    CHECK(distlock::execute(c, by_name).text() == "NOSCRIPT b");
    CHECK(c.commands().size() == 2);
}

TEST_CASE("whatever the body is answered is the answer") {
    scripted_connection c{reply::error("NOSCRIPT a"), reply::no_answer(errc::no_reply, "lost")};
    CHECK(distlock::execute(c, by_name).is(reply_kind::no_answer));
}

TEST_CASE("the body is sent for nothing but an error NOSCRIPT of a script") {
    for (const reply& r :
         {reply::error("ERR x"), reply::error("WRONGTYPE x"), reply::error("ERR NOSCRIPT x"),
          reply::string("NOSCRIPT x"), reply::status("NOSCRIPT x"), reply::nil(),
          reply::not_sent(errc::unreachable, "NOSCRIPT x"), reply::no_answer(errc::no_reply, "NOSCRIPT x")}) {
        scripted_connection c{r, reply::integer(1)};
        CHECK(distlock::execute(c, by_name).kind() == r.kind());
        CHECK(c.commands().size() == 1);
    }
    scripted_connection c{reply::error("NOSCRIPT x"), reply::integer(1)};
    CHECK(distlock::execute(c, command({"EVALSHA", "x", "0"})).is(reply_kind::error));
    CHECK(c.commands().size() == 1);
}

TEST_CASE("an exception out of a connection is no answer, whatever it is") {
    for (const reply& r :
         {answer_of_one_that_throws(std::runtime_error("broken \x1b[2J")),
          answer_of_one_that_throws(std::bad_alloc()), answer_of_one_that_throws(42),
          answer_of_one_that_throws(std::system_error(ECONNREFUSED, std::generic_category(), "connect"))}) {
        CHECK(r.is(reply_kind::no_answer));
        CHECK(r.cause() == errc::no_reply);
        CHECK_FALSE(r.text().empty());
        for (const char letter : r.text()) CHECK((letter >= ' ' && letter <= '~'));
    }
    const reply ours = answer_of_one_that_throws(distlock::error(errc::unreachable, "host db1"));
    CHECK(ours.is(reply_kind::no_answer));
    CHECK_THAT(ours.text(), contains_text("host db1"));
}

TEST_CASE("an exception while the body is sent is no answer either") {
    int calls = 0;
    auto throws_later = [&](const command&) -> reply {
        if (++calls == 1) return reply::error("NOSCRIPT x");
        throw std::runtime_error("x");
    };
    CHECK(distlock::execute(throws_later, by_name).is(reply_kind::no_answer));
    CHECK(calls == 2);
}
