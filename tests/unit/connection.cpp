// What a connection is, what it may be besides, and how a script's body is sent.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <system_error>
#include <utility>
#include <vector>

#include <distlock/net/any_connection.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/testing/scripted_connection.hpp>
#include <distlock/wire/acknowledgement.hpp>

#include "support/catch.hpp"
#include "support/in_child.hpp"
#include "support/sanitizers.hpp"

namespace connection_tests {

namespace {

using distlock::check_connection;
using distlock::command;
using distlock::connection;
using distlock::errc;
using distlock::identified_connection;
using distlock::pipelining_connection;
using distlock::posting_connection;
using distlock::reply;
using distlock::reply_kind;
using distlock::service_hosting_connection;
using distlock::service_registry;
using distlock::subscribing_connection;
using distlock::subscription;
using distlock::timed_connection;
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
    std::shared_ptr<subscription> subscribe(std::string_view) { return nullptr; }
    bool post(const command&) { return true; }
    void pipeline(std::span<const command>, std::span<reply>) {}
    service_registry& services() { return place; }
    std::chrono::seconds command_timeout() const { return std::chrono::seconds(1); }
    std::string identity() const { return "here"; }
    service_registry place;
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

static_assert(subscribing_connection<full> && posting_connection<full> && timed_connection<full>);
static_assert(identified_connection<full> && !identified_connection<minimal>);
static_assert(!subscribing_connection<minimal> && !posting_connection<minimal> && !timed_connection<minimal>);
static_assert(!subscribing_connection<lambda> && !posting_connection<lambda>);

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

static_assert(pipelining_connection<full> && service_hosting_connection<full>);
static_assert(!pipelining_connection<minimal> && !service_hosting_connection<minimal>);
static_assert(!pipelining_connection<lambda> && !service_hosting_connection<lambda>);

struct only_pipelines {
    void pipeline(std::span<const command>, std::span<reply>) {}
    service_registry& services();
};
struct returns_replies {
    reply execute(const command&) { return reply::nil(); }
    std::vector<reply> pipeline(std::span<const command>) { return {}; }
};
struct changes_commands {
    reply execute(const command&) { return reply::nil(); }
    void pipeline(std::span<command>, std::span<reply>) {}
};
struct const_services {
    reply execute(const command&) { return reply::nil(); }
    const service_registry& services();
};
static_assert(!pipelining_connection<only_pipelines> && !service_hosting_connection<only_pipelines>);
static_assert(!pipelining_connection<returns_replies> && !pipelining_connection<changes_commands>);
static_assert(!service_hosting_connection<const_services>);

// Clients have services() that is a text, and pipelines of their own kind: no reason to turn them away.
struct client_with_names_of_its_own {
    reply execute(const command&) { return reply::nil(); }
    std::string services() const { return "db1"; }
    std::vector<std::string> pipeline(bool new_connection = true);
};
static_assert(check_connection<client_with_names_of_its_own>());
static_assert(!pipelining_connection<client_with_names_of_its_own>);
static_assert(!service_hosting_connection<client_with_names_of_its_own>);

static_assert(noexcept(distlock::execute(std::declval<minimal&>(), by_name)));
static_assert(noexcept(distlock::execute_all(std::declval<full&>(), {}, {})));

using words = std::vector<std::string>;

words first_words(const scripted_connection& c) {
    words all;
    for (const auto& cmd : c.commands()) all.push_back(cmd.argv.at(0));
    return all;
}

// Answers by what it is told, and writes down what came together; one by one it answers nothing.
template <class Answer>
struct pipelining {
    explicit pipelining(Answer a) : answer(std::move(a)) {}
    reply execute(const command& cmd) {
        single.emplace_back(cmd.argv()[0]);
        return answer(cmd);
    }
    void pipeline(std::span<const command> commands, std::span<reply> replies) {
        all.emplace_back();
        for (const command& cmd : commands) all.back().push_back(std::string(cmd.argv().back()));
        std::transform(commands.begin(), commands.end(), replies.begin(), answer);
    }
    Answer answer;
    std::vector<words> all;  // the last words of each pipeline
    words single;
};

inline constexpr distlock::script answer_two{"return 2"};

// Three scripts and two commands; the last word says which.
std::vector<command> five() {
    return {command(answer_one, {"orders"}, {"a"}), command{"GET", "b"},
            command(answer_two, {"orders"}, {"c"}), command{"EVALSHA", "x", "0", "d"},
            command(answer_one, {"orders"}, {"e"})};
}

// Returns: what a server that has no script makes of a command.
reply scriptless(const command& cmd) {
    if (cmd.argv()[0] == "EVALSHA") return reply::error("NOSCRIPT No matching script.");
    return reply::string(std::string(cmd.argv()[0]) + " " + std::string(cmd.argv().back()));
}

words texts(const std::vector<reply>& replies) {
    words out;
    for (const reply& r : replies) out.push_back(r.text());
    return out;
}

template <class C>
std::vector<reply> answers_to(C& c, const std::vector<command>& commands) {
    std::vector<reply> replies(commands.size(), reply::integer(-1));
    distlock::execute_all(c, commands, replies);
    return replies;
}

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

TEST_CASE("the answer to the body is the answer, whatever it is") {
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

TEST_CASE("a command that the connection cannot post was handed to nobody") {
    struct throws_on_post {
        reply execute(const command&) { return reply::nil(); }
        bool post(const command&) { throw std::runtime_error("no"); }
    };
    minimal without;
    throws_on_post throwing;
    full with;
    CHECK_FALSE(distlock::post(without, by_name));
    CHECK_FALSE(distlock::post(throwing, by_name));
    CHECK(distlock::post(with, by_name));
}

TEST_CASE("a connection that throws where it is to follow its master ends no program") {
    struct throws_on_follow {
        reply execute(const command&) { return reply::nil(); }
        void on_master_change(const std::weak_ptr<distlock::master_listener>&) {}
        void follow() {
            ++calls;
            throw 42;
        }
        int calls = 0;
    };
    static_assert(distlock::following_connection<throws_on_follow>);
    throws_on_follow throwing;
    distlock::any_connection_of(throwing).follow();
    CHECK(throwing.calls == 1);
}

namespace {

struct hesitant {
    distlock::reply execute(const command&) { return distlock::reply::nil(); }
    std::chrono::milliseconds command_timeout() const { throw std::runtime_error("not now"); }
    std::chrono::milliseconds connect_timeout() const { throw std::runtime_error("not now"); }
    std::string identity() const { throw std::runtime_error("not now"); }
};
struct boundless {
    distlock::reply execute(const command&) { return distlock::reply::nil(); }
    std::chrono::milliseconds command_timeout() const { return all; }
    std::chrono::milliseconds connect_timeout() const { return all; }
    std::chrono::milliseconds all;
};

}  // namespace

// A mutex whose connection threw there once could never be locked again.
TEST_CASE("a connection that throws when it is asked for its time-outs does not say them") {
    hesitant c;
    const distlock::any_connection_of any(c);
    CHECK(any.command_timeout() == std::nullopt);
    CHECK(any.connect_timeout() == std::chrono::milliseconds{0});
}

// What was told of a server that could not be reached was that there is no memory.
TEST_CASE("a connection that throws when it is asked for its server does not say it") {
    hesitant c;
    static_assert(distlock::identified_connection<hesitant>);
    CHECK(distlock::any_connection_of(c).identity().empty());
}

TEST_CASE("time-outs that make no sense are the shortest or a day") {
    using std::chrono::milliseconds;
    for (const auto& [said, taken] :
         {std::pair{milliseconds::min(), milliseconds{0}}, std::pair{milliseconds{-1}, milliseconds{0}},
          std::pair{milliseconds{1}, milliseconds{1}},
          std::pair{milliseconds::max(), milliseconds{86'400'000}}}) {
        boundless c{said};
        const distlock::any_connection_of any(c);
        CHECK(any.command_timeout() == taken);
        CHECK(any.connect_timeout() == taken);
    }
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

TEST_CASE("many commands go through one pipeline where there is one, and are answered in order") {
    pipelining c([](const command& cmd) { return reply::string(std::string(cmd.argv().back())); });
    CHECK(texts(answers_to(c, five())) == words{"a", "b", "c", "d", "e"});
    CHECK(c.all == std::vector<words>{{"a", "b", "c", "d", "e"}});
    CHECK(c.single.empty());
}

TEST_CASE("without a pipeline many commands are executed one by one, in order") {
    int count = 0;
    auto counts = [&](const command& cmd) {
        return reply::string(std::to_string(count++) + std::string(cmd.argv().back()));
    };
    CHECK(texts(answers_to(counts, five())) == words{"0a", "1b", "2c", "3d", "4e"});

    scripted_connection c{reply::integer(1), reply::error("NOSCRIPT x"), reply::integer(2),
                          reply::integer(3)};
    const auto replies = answers_to(c, {by_name, by_name, by_name});
    CHECK(replies[0].is_integer(1));
    CHECK(replies[1].is_integer(2));
    CHECK(replies[2].is_integer(3));
    CHECK(first_words(c) == words{"EVALSHA", "EVALSHA", "EVAL", "EVALSHA"});
}

TEST_CASE("no command at all is no pipeline to speak of") {
    pipelining c(scriptless);
    CHECK(answers_to(c, {}).empty());
    auto unasked = [](const command&) -> reply { throw 1; };
    CHECK(answers_to(unasked, {}).empty());
}

TEST_CASE(
    "scripts that the server lacks are asked again with their bodies, in one more pipeline, and no others") {
    pipelining c(scriptless);
    const auto replies = answers_to(c, five());
    CHECK(texts(replies) == words{"EVAL a", "GET b", "EVAL c", "NOSCRIPT No matching script.", "EVAL e"});
    CHECK(c.all == std::vector<words>{{"a", "b", "c", "d", "e"}, {"a", "c", "e"}});
    CHECK(c.single.empty());
}

TEST_CASE("one script that the server lacks among many is asked again alone") {
    pipelining c([](const command& cmd) {
        return cmd.argv().back() == "c" ? scriptless(cmd) : reply::string("first");
    });
    CHECK(texts(answers_to(c, five())) == words{"first", "first", "EVAL c", "first", "first"});
    CHECK(c.all == std::vector<words>{{"a", "b", "c", "d", "e"}, {"c"}});
}

TEST_CASE("a script asked again keeps its keys, arguments and deadline") {
    std::vector<command> again;
    pipelining c([&](const command& cmd) {
        again.push_back(cmd);
        return scriptless(cmd);
    });
    const auto deadline = distlock::clock::time_point(std::chrono::seconds(9));
    command cmd(answer_two, {"orders"}, {"token"});
    cmd.until(deadline);
    CHECK(texts(answers_to(c, {cmd})) == words{"EVAL token"});
    REQUIRE(again.size() == 2);
    const auto argv = again[1].argv();
    CHECK(words(argv.begin(), argv.end()) == words{"EVAL", "return 2", "1", "orders", "token"});
    CHECK(again[1].routing_key() == "orders");
    CHECK(again[1].deadline() == deadline);
}

TEST_CASE("a server that answers NOSCRIPT to bodies, too, is not asked a third time") {
    pipelining c([](const command&) { return reply::error("NOSCRIPT x"); });
    CHECK(texts(answers_to(c, {by_name, by_name})) == words{"NOSCRIPT x", "NOSCRIPT x"});
    CHECK(c.all.size() == 2);
}

TEST_CASE("a command that has no answer in a pipeline is not asked again") {
    for (const reply& r : {reply::not_sent(errc::unreachable, "NOSCRIPT x"),
                           reply::no_answer(errc::no_reply, "NOSCRIPT x"), reply::string("NOSCRIPT x")}) {
        pipelining c([&](const command&) { return r; });
        CHECK(answers_to(c, {by_name})[0].kind() == r.kind());
        CHECK(c.all.size() == 1);
    }
}

TEST_CASE("an exception out of a pipeline is no answer to any of its commands, whatever was filled") {
    const auto check = [](const auto& what, const std::string& said) {
        struct {
            reply execute(const command&) { return reply::nil(); }
            void pipeline(std::span<const command>, std::span<reply> replies) {
                std::fill(replies.begin(), replies.end(), reply::integer(1));
                raise();
            }
            std::function<void()> raise;
        } c{[&] { throw what; }};
        for (const reply& r : answers_to(c, five())) {
            CHECK(r.is(reply_kind::no_answer));
            CHECK(r.cause() == errc::no_reply);
            CHECK_THAT(r.text(), contains_text(said));
        }
    };
    check(std::runtime_error("broken \x1b"), "broken ?");
    check(distlock::error(errc::unreachable, "host db1"), "host db1");
    check(std::bad_alloc(), "");
    check(42, "client threw");
}

TEST_CASE("an exception out of the second pipeline is no answer to what was asked again, and only to that") {
    pipelining c([](const command& cmd) {
        if (cmd.argv()[0] == "EVAL") throw std::runtime_error("gone");
        return scriptless(cmd);
    });
    const auto replies = answers_to(c, five());
    for (const std::size_t i : {0U, 2U, 4U}) {
        CHECK(replies[i].is(reply_kind::no_answer));
        CHECK(replies[i].text() == "gone");
    }
    CHECK(replies[1].text() == "GET b");
    CHECK(replies[3].is(reply_kind::error));
}

TEST_CASE("a reply that a pipeline does not fill is no answer, and not what stood there before") {
    struct {
        reply execute(const command&) { return reply::nil(); }
        void pipeline(std::span<const command>, std::span<reply> replies) { replies[1] = reply::integer(1); }
    } c;
    const auto replies = answers_to(c, {by_name, by_name, by_name});
    CHECK(replies[0].is(reply_kind::no_answer));
    CHECK(replies[1].is_integer(1));
    CHECK(replies[2].is(reply_kind::no_answer));
}

namespace {

/// Lacks every script until it is sent the body, and answers one to all else.
struct bodiless {
    reply execute(const command& cmd) { return answer(cmd, single); }
    void pipeline(std::span<const command> commands, std::span<reply> replies) {
        for (std::size_t i = 0; i < commands.size(); ++i) replies[i] = answer(commands[i], together);
    }
    static reply answer(const command& cmd, std::size_t& count) {
        ++count;
        if (cmd.argv()[0] == "EVALSHA") return reply::error("NOSCRIPT x");
        return reply::integer(1);
    }
    std::size_t single = 0;
    std::size_t together = 0;
};

/// Returns: whether that holds of the replies to `commands` in a child that has no memory left.
template <class Condition>
bool holds_without_memory(const std::vector<command>& commands, Condition condition) {
    std::vector<reply> replies(commands.size());
    return in_child([&] {
        bodiless c;
        const rlimit none{0, RLIM_INFINITY};
        ::setrlimit(RLIMIT_AS, &none);
        while (std::malloc(4096) != nullptr) continue;
        distlock::execute_all(c, commands, replies);
        return c.together == commands.size() && condition(c, replies);
    });
}

}  // namespace

TEST_CASE("without memory for a second pipeline the bodies are sent one by one") {
    NOT_TESTED_UNLESS(!instrumented, "a sanitizer ends the program when there is no memory");
    const std::vector<command> commands(1024, by_name);
    CHECK(holds_without_memory(commands, [](const bodiless& c, const std::vector<reply>& replies) {
        return c.single == replies.size() &&
               std::all_of(replies.begin(), replies.end(), [](const reply& r) { return r.is_integer(1); });
    }));
}

// ---- a write, and what waits for its replicas
// ---------------------------------------------------------------

namespace {

/// Lacks every script once; notes what was sent, in order.
struct forgetful {
    reply execute(const command& cmd) { return answer(cmd); }
    reply answer(const command& cmd) {
        sent.emplace_back(cmd.argv()[0]);
        if (cmd.argv()[0] == "EVALSHA") return reply::error("NOSCRIPT No matching script.");
        // A WAIT is about the write before it.
        if (cmd.argv()[0] == "WAIT") return reply::string("WAIT behind " + sent.at(sent.size() - 2));
        return reply::string(sent.back());
    }
    words sent;
};
struct pipelining_forgetful : forgetful {
    void pipeline(std::span<const command> commands, std::span<reply> replies) {
        for (std::size_t i = 0; i < commands.size(); ++i) replies[i] = answer(commands[i]);
    }
};
struct acknowledging_forgetful : pipelining_forgetful {
    distlock::acknowledged_reply execute_acknowledged(const command& write, const command& wait) {
        if (throws) throw std::runtime_error("broken");
        sent.emplace_back("both");
        auto first = answer(write);
        return {std::move(first), answer(wait)};
    }
    bool throws = false;
};
static_assert(distlock::acknowledging_connection<acknowledging_forgetful> &&
              !distlock::acknowledging_connection<pipelining_forgetful>);

const distlock::replica_wait one_replica(1, std::chrono::milliseconds{100});

}  // namespace

TEST_CASE(
    "a script that the server lacks is sent again with the wait for replicas behind it, in a pipeline") {
    pipelining_forgetful c;
    const std::vector<command> commands{command(answer_one, {"a"}, {}), one_replica.behind(by_name),
                                        command{"GET", "b"}, command(answer_two, {"c"}, {}),
                                        one_replica.behind(by_name)};
    const auto replies = answers_to(c, commands);
    CHECK(c.sent == words{"EVALSHA", "WAIT", "GET", "EVALSHA", "WAIT", "EVAL", "WAIT", "EVAL", "WAIT"});
    CHECK(texts(replies) == words{"EVAL", "WAIT behind EVAL", "GET", "EVAL", "WAIT behind EVAL"});
}

TEST_CASE("without memory for a second pipeline nothing is said of the replicas of what is sent one by one") {
    NOT_TESTED_UNLESS(!instrumented, "a sanitizer ends the program when there is no memory");
    std::vector<command> commands;
    for (int i = 0; i < 512; ++i) {
        commands.push_back(by_name);
        commands.push_back(one_replica.behind(by_name));
    }
    CHECK(holds_without_memory(commands, [](const bodiless& c, const std::vector<reply>& replies) {
        if (c.single != replies.size() / 2) return false;
        for (std::size_t i = 0; i < replies.size(); i += 2) {
            if (!replies[i].is_integer(1) || !replies[i + 1].is(reply_kind::no_answer)) return false;
        }
        return true;
    }));
}

TEST_CASE("a write and the wait for its replicas go together, also when the server lacks the script") {
    pipelining_forgetful piped;
    distlock::any_connection_of<pipelining_forgetful> over_pipeline(piped);
    const auto first = over_pipeline.execute_acknowledged(by_name, one_replica.behind(by_name));
    CHECK(first.answer.is_string("EVAL"));
    CHECK(first.replicated.is_string("WAIT behind EVAL"));
    CHECK(piped.sent == words{"EVALSHA", "WAIT", "EVAL", "WAIT"});

    acknowledging_forgetful whole;
    distlock::any_connection_of<acknowledging_forgetful> over_both(whole);
    const auto second = over_both.execute_acknowledged(by_name, one_replica.behind(by_name));
    CHECK(second.answer.is_string("EVAL"));
    CHECK(second.replicated.is_string("WAIT behind EVAL"));
    CHECK(whole.sent == words{"both", "EVALSHA", "WAIT", "both", "EVAL", "WAIT"});

    whole.throws = true;
    const auto third = over_both.execute_acknowledged(by_name, one_replica.behind(by_name));
    CHECK(third.answer.is(reply_kind::no_answer));
    CHECK(third.replicated.is(reply_kind::no_answer));
}

TEST_CASE("without a pipeline the wait for replicas is sent with its write, or not at all") {
    struct acknowledging_only : forgetful {
        distlock::acknowledged_reply execute_acknowledged(const command& write, const command& wait) {
            sent.emplace_back("both");
            auto first = answer(write);
            return {std::move(first), answer(wait)};
        }
    } c;
    const std::vector<command> commands{command{"GET", "a"}, command(answer_one, {"b"}, {}),
                                        one_replica.behind(by_name), command{"GET", "c"}};
    auto replies = answers_to(c, commands);
    CHECK(c.sent == words{"GET", "both", "EVALSHA", "WAIT", "both", "EVAL", "WAIT", "GET"});
    CHECK(texts(replies) == words{"GET", "EVAL", "WAIT behind EVAL", "GET"});

    forgetful plain;
    replies = answers_to(plain, commands);
    CHECK(plain.sent == words{"GET", "EVALSHA", "EVAL", "GET"});
    CHECK(replies[2].is(reply_kind::not_sent));
}

}  // namespace connection_tests
