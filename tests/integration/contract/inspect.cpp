// What inspect() and force_release() promise, over every kind of connection and a real
// server; and how they fail.
#include <chrono>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include <distlock/base/owner.hpp>
#include <distlock/inspect.hpp>
#include <distlock/mutex.hpp>
#include <distlock/wire/plain.hpp>
#include <distlock/wire/redisson.hpp>

#include "support/catch.hpp"
#include "support/connection_fixtures.hpp"
#include "support/error_of.hpp"
#include "support/in_child.hpp"

namespace inspect_tests {

using namespace std::chrono_literals;
using distlock::errc;
using distlock::force_release;
using distlock::inspect;
using distlock::lock_options;
using distlock::lock_report;
using distlock::release_outcome;
using distlock::reply;
using distlock::testing::scripted_connection;

namespace {

const lock_options told{.lease = 20s, .fencing = true, .owner_info = "night job"};

// Requires that `call` throws `expected`, with a message that says what was being done and why it failed.
template <class Call>
void refused(errc expected, const std::string& said, Call call) {
    try {
        call();
    } catch (const distlock::error& e) {
        CHECK(e.code() == expected);
        CHECK(std::string(e.what()) == said + ": " + make_error_code(expected).message());
        return;
    }
    FAIL("nothing was thrown, expected: " << make_error_code(expected).message());
}

template <class Conn>
constexpr bool quiet_forms_throw_nothing = noexcept(
    inspect(std::declval<Conn&>(), std::declval<std::string&&>(),
            std::declval<std::error_code&>())) && noexcept(force_release(std::declval<Conn&>(),
                                                                         std::declval<std::string&&>(),
                                                                         std::declval<std::error_code&>()));
static_assert(quiet_forms_throw_nothing<distlock::hiredis_connection>);
static_assert(quiet_forms_throw_nothing<scripted_connection>);

}  // namespace

TEMPLATE_LIST_TEST_CASE("inspect says who holds a lock, where, for how long, and under which fence", "",
                        connection_fixtures::all) {
    TestType fixture;
    const auto name = connection_fixtures::fresh_name();
    distlock::mutex m{fixture.connection, name, told};
    m.lock();
    const lock_report report = inspect(fixture.connection, name);
    REQUIRE(report.holder);
    CHECK(report.holder->token == fixture.server().command({"GET", name}));
    const std::string owner = distlock::describe_owner("night job");
    CHECK(report.holder->host == owner.substr(0, owner.find('\n')));
    CHECK(report.holder->pid == ::getpid());
    CHECK(report.holder->label == "night job");
    REQUIRE(report.remaining);
    CHECK(*report.remaining <= 20s);
    CHECK(*report.remaining > 10s);
    REQUIRE(report.fence);
    CHECK(*report.fence > 0);
    CHECK(*report.fence == m.fencing_token());
    CHECK(report.waiters == 0U);
    CHECK(report.queue.empty());

    CHECK(m.unlock() == connection_fixtures::said<TestType>());
    CHECK(connection_fixtures::gone(fixture, {name}));
    const lock_report after = inspect(fixture.connection, name);
    CHECK_FALSE(after.holder);
    CHECK_FALSE(after.remaining);
    CHECK(after.fence == report.fence);
}

TEMPLATE_LIST_TEST_CASE("inspect shows the next owner as soon as there is one", "",
                        connection_fixtures::all) {
    TestType fixture;
    const auto name = connection_fixtures::fresh_name();
    distlock::mutex first{fixture.connection, name, told};
    distlock::mutex second{fixture.connection, name, {.lease = 20s}};
    first.lock();
    const auto before = inspect(fixture.connection, name);
    first.unlock();
    second.lock();
    const auto report = inspect(fixture.connection, name);
    REQUIRE(before.holder);
    REQUIRE(report.holder);
    CHECK(report.holder->token != before.holder->token);
    CHECK(report.holder->host.empty());
    CHECK(report.holder->pid == 0);
    CHECK(report.holder->label.empty());
    second.unlock();
}

TEMPLATE_LIST_TEST_CASE("inspect changes nothing: not of a free lock, nor of one that is held", "",
                        connection_fixtures::all) {
    TestType fixture;
    const auto name = connection_fixtures::fresh_name();
    std::error_code ec = errc::no_reply;
    CHECK_FALSE(inspect(fixture.connection, name).holder);
    CHECK_FALSE(inspect(fixture.connection, name, ec).holder);
    CHECK_FALSE(ec);
    CHECK(fixture.server().command(
              {"EXISTS", name, "{" + name + "}:distlock:fence", "{" + name + "}:distlock:owner"}) == "0");
    fixture.server().command({"SET", name, "somebody"});
    const auto report = inspect<distlock::plain>(fixture.connection, name);
    REQUIRE(report.holder);
    CHECK(report.holder->token == "somebody");
    CHECK_FALSE(report.remaining);
    CHECK(fixture.server().command({"GET", name}) == "somebody");
    CHECK(fixture.server().command({"PTTL", name}) == "-1");
}

TEMPLATE_LIST_TEST_CASE("force_release frees a lock for the next, and its owner's unlock() says so", "",
                        connection_fixtures::all) {
    TestType fixture;
    const auto name = connection_fixtures::fresh_name();
    lock_options confirming = told;
    confirming.release = distlock::confirmed;
    distlock::mutex owner{fixture.connection, name, confirming};
    distlock::mutex next{fixture.connection, name, told};
    owner.lock();
    const auto before = inspect(fixture.connection, name).fence;
    std::error_code ec = errc::no_reply;
    SECTION("and throws") { CHECK(force_release(fixture.connection, name)); }
    SECTION("with the plain dialect named") {
        CHECK(force_release<distlock::plain>(fixture.connection, name));
    }
    SECTION("and throws nothing") {
        CHECK(force_release(fixture.connection, name, ec));
        CHECK_FALSE(ec);
    }
    CHECK(fixture.server().command({"EXISTS", name, "{" + name + "}:distlock:owner"}) == "0");
    REQUIRE(next.try_lock());
    CHECK(inspect(fixture.connection, name).fence > before);
    CHECK(owner.unlock() == release_outcome::taken);
    CHECK(next.owns_lock());
    CHECK(inspect(fixture.connection, name).holder);
    CHECK(next.unlock() == connection_fixtures::said<TestType>());
}

TEMPLATE_LIST_TEST_CASE("force_release of a free lock is false, and no error", "", connection_fixtures::all) {
    TestType fixture;
    const auto name = connection_fixtures::fresh_name();
    std::error_code ec = errc::no_reply;
    CHECK_FALSE(force_release(fixture.connection, name));
    CHECK_FALSE(force_release(fixture.connection, name, ec));
    CHECK_FALSE(ec);
    CHECK(fixture.server().command({"EXISTS", "{" + name + "}:distlock:forced"}) == "0");
}

TEMPLATE_LIST_TEST_CASE("a key that is no lock is an error to inspect and force_release, and stays", "",
                        connection_fixtures::all) {
    TestType fixture;
    const auto name = connection_fixtures::fresh_name();
    fixture.server().command({"RPUSH", name, "x"});
    std::error_code ec;
    CHECK_FALSE(inspect(fixture.connection, name, ec).holder);
    CHECK(ec == errc::wrong_type);
    CHECK_FALSE(force_release(fixture.connection, name, ec));
    CHECK(ec == errc::wrong_type);
    CHECK_THROWS_AS(inspect(fixture.connection, name), distlock::error);
    CHECK_THROWS_AS(force_release(fixture.connection, name), distlock::error);
    CHECK(fixture.server().command({"LRANGE", name, "0", "-1"}) == "x");
}

TEMPLATE_LIST_TEST_CASE("a text that can be no lock's name cannot be inspected", "",
                        connection_fixtures::all) {
    TestType fixture;
    std::error_code ec;
    for (const auto& name : {std::string(), std::string(4097, 'x'), std::string("{a}:distlock:fence")}) {
        CHECK_FALSE(inspect(fixture.connection, name, ec).holder);
        CHECK(ec == errc::invalid_name);
        CHECK_FALSE(force_release(fixture.connection, name, ec));
        CHECK(ec == errc::invalid_name);
        CHECK_THROWS_AS(inspect(fixture.connection, name), distlock::error);
        CHECK_THROWS_AS(force_release(fixture.connection, name), distlock::error);
    }
}

TEST_CASE("without a server inspect and force_release say that it cannot be reached") {
    distlock::testing::redis_server server;
    distlock::hiredis_connection redis{server.uri()};
    CHECK_FALSE(inspect(redis, "orders:42").holder);
    server.stop();
    std::error_code ec;
    CHECK_FALSE(inspect(redis, "orders:42", ec).holder);
    CHECK(ec == errc::unreachable);
    CHECK_FALSE(force_release(redis, "orders:42", ec));
    CHECK(ec == errc::unreachable);
    CHECK(in_child([&] {
        static_cast<void>(inspect(redis, "orders:42", ec));
        const bool inspected = ec == errc::wrong_process;
        return !force_release(redis, "orders:42", ec) && ec == errc::wrong_process && inspected;
    }));
}

TEST_CASE("every trouble has its code and its sentence, and nothing is asked twice") {
    struct row {
        reply answer;
        errc cause;
        std::string said;
    };
    const std::vector<row> rows{
        {reply::not_sent(errc::unreachable, "redis://h: refused"), errc::unreachable, ": redis://h: refused"},
        {reply::not_sent(errc::wrong_process, ""), errc::wrong_process, ""},
        {reply::not_sent(errc::authentication_failed, "WRONGPASS x"), errc::authentication_failed,
         ": WRONGPASS x"},
        {reply::no_answer(errc::no_reply, "redis://h: silent"), errc::no_reply, ": redis://h: silent"},
        {reply::no_answer(errc::reply_too_large, "x"), errc::reply_too_large, ": x"},
        {reply::error("READONLY replica"), errc::read_only, ": READONLY replica"},
        {reply::error("LOADING x"), errc::unavailable, ": LOADING x"},
        {reply::error("OOM x"), errc::out_of_memory, ": OOM x"},
        {reply::error("NOPERM x"), errc::permission_denied, ": NOPERM x"},
        {reply::error("WRONGTYPE x"), errc::wrong_type, ": WRONGTYPE x"},
        {reply::error("MOVED 1 h:1"), errc::wrong_node, ": MOVED 1 h:1"},
        {reply::error("ERR unknown command 'EVAL'"), errc::unsupported_command,
         ": ERR unknown command 'EVAL'"},
        {reply::error("NOSCRIPT x"), errc::unavailable, ": NOSCRIPT x"},
        {reply::error("ERR a\nb\x1b"), errc::server_error, ": ERR a?b?"},
        {reply::nil(), errc::protocol_error, ""},
        {reply::status("PONG"), errc::protocol_error, ": PONG"},
        {reply::integer(7), errc::protocol_error, ""},
        {reply::array({reply::integer(1)}), errc::protocol_error, ""},
    };
    for (const row& row : rows) {
        INFO(static_cast<int>(row.answer.kind()) << " " << row.answer.text());
        scripted_connection redis;
        // The text says what type a key has that is no lock; a code does not, and asks nothing more.
        const bool asks = row.cause == errc::wrong_type;
        redis.then(row.answer);
        if (asks) redis.then(reply::status("none"));
        redis.then(row.answer);
        if (asks) redis.then(reply::error("NOPERM x"));
        for (int i = 0; i < 2; ++i) redis.then(row.answer);
        refused(row.cause, "inspect orders:42" + row.said, [&] { inspect(redis, "orders:42"); });
        refused(row.cause, "force_release orders:42" + row.said, [&] { force_release(redis, "orders:42"); });
        std::error_code ec;
        const lock_report report = inspect(redis, "orders:42", ec);
        CHECK(ec == row.cause);
        CHECK_FALSE(report.holder);
        CHECK_FALSE(report.fence);
        CHECK_FALSE(force_release(redis, "orders:42", ec));
        CHECK(ec == row.cause);
        CHECK(redis.commands().size() == (asks ? 6 : 4));
        CHECK(redis.left() == 0);
    }
}

namespace {

const std::string by_server = "WRONGTYPE Operation against a key holding the wrong kind of value";

// Returns: what `ask(connection)` fails with where it is refused so, of a key of that type.
template <class Ask>
std::string said_of_refused(const std::string& why, const std::string& type, Ask ask) {
    scripted_connection redis{reply::error(why), reply::status(type)};
    return error_of([&] { ask(redis); }).what();
}

}  // namespace

// "Remove the key": it was a lock that somebody held, and its fence of another type.
TEST_CASE("inspect does not blame the key of a lock for one that lies beside it") {
    const auto said_of = [](const std::string& why, const std::string& type) {
        const auto said = said_of_refused(why, type, [](auto& redis) { inspect(redis, "orders:42"); });
        CHECK_THAT(said, contains_text("the key holds a " + type));
        return said;
    };
    const auto wrapped = "ERR Error running script (call to f_1): @user_script:1: " + by_server;  // 6.2
    for (const std::string type : {"string", "zset"}) {
        CHECK_THAT(said_of(by_server, type), contains_text("{name}:distlock:*"));
        CHECK_THAT(said_of(wrapped, type), contains_text("{name}:distlock:*"));
    }
    CHECK_THAT(said_of(by_server, "list"), !contains_text("{name}:distlock:*"));
    CHECK_THAT(said_of(by_server, "hash"), contains_text("inspect<redisson>"));
    // inspect<redisson> said so, too.
    CHECK_THAT(said_of("WRONGTYPE a read-write lock of Redisson holds this name", "hash"),
               !contains_text("inspect<redisson>"));
    CHECK_THAT(said_of("WRONGTYPE a string that is no time stamp", "string"),
               !contains_text("{name}:distlock:*"));
}

TEST_CASE("an operator who names a kind of lock is told the type that its locks have") {
    const auto of_a_string = [](auto ask) { return said_of_refused(by_server, "string", ask); };
    const auto needs_a_hash = contains_text("the key holds a string where this kind of lock needs a hash");
    CHECK_THAT(of_a_string([](auto& redis) { inspect<distlock::redisson>(redis, "orders:42"); }),
               needs_a_hash);
    CHECK_THAT(of_a_string([](auto& redis) { force_release<distlock::redisson>(redis, "orders:42"); }),
               needs_a_hash);
}

TEST_CASE("inspect and force_release send one script with its body, and a name that cannot be used nothing") {
    scripted_connection redis{reply::integer(1), reply::array({reply::string(""), reply::integer(-2),
                                                               reply::string(""), reply::string("")})};
    CHECK(force_release(redis, "orders:42"));
    CHECK_FALSE(inspect(redis, "orders:42").holder);
    REQUIRE(redis.commands().size() == 2);
    for (const auto& asked : redis.commands()) {
        CHECK(asked.argv.front() == "EVAL");
        CHECK(asked.routing_key == "orders:42");
    }
    CHECK_THROWS_AS(inspect(redis, ""), distlock::error);
    CHECK_THROWS_AS(force_release(redis, ""), distlock::error);
    CHECK(redis.commands().size() == 2);
}

namespace {

// Says its server anew for each that asks.
struct says_its_server {
    reply execute(const distlock::command&) { return reply::error("ERR no"); }
    std::string identity() const {
        if (where.empty()) throw std::runtime_error("not now");
        return where + where;
    }
    std::string where;
};

}  // namespace

// A view of what was gone was shown, and what identity() threw came out.
TEST_CASE(
    "a refusal names its server also where the connection makes the name anew for each question, and is told "
    "without it where it cannot") {
    says_its_server redis{"redis://a-server-with-a-name"};
    const std::string named = " orders: " + redis.where + redis.where + ": ERR no";
    refused(errc::server_error, "inspect" + named, [&] { inspect(redis, "orders"); });
    refused(errc::server_error, "force_release" + named, [&] { force_release(redis, "orders"); });
    redis.where.clear();
    refused(errc::server_error, "inspect orders: ERR no", [&] { inspect(redis, "orders"); });
    refused(errc::server_error, "force_release orders: ERR no", [&] { force_release(redis, "orders"); });
}

TEST_CASE("a client that throws has no answer, and a name is shown fit for a message") {
    auto redis = [](const distlock::command&) -> reply { throw std::runtime_error("the\nclient broke"); };
    const std::string name = "a\n" + std::string(200, 'b');
    const std::string shown = "a?" + std::string(98, 'b') + "...: the?client broke";
    refused(errc::no_reply, "inspect " + shown, [&] { inspect(redis, name); });
    refused(errc::no_reply, "force_release " + shown, [&] { force_release(redis, name); });
}

}  // namespace inspect_tests
