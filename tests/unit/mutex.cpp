// What distlock::mutex sends and believes, with a scripted connection and a clock that stands still.
#include <chrono>
#include <cstddef>
#include <limits>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <distlock/counting_semaphore.hpp>
#include <distlock/inspect.hpp>
#include <distlock/mutex.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/recursive_mutex.hpp>
#include <distlock/shared_mutex.hpp>
#include <distlock/testing/manual_clock.hpp>
#include <distlock/testing/scripted_connection.hpp>
#include <distlock/wire/plain.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/handoff_answers.hpp"
#include "support/locks_in_memory.hpp"
#include "support/slow_clock.hpp"
#include "support/ticking_clock.hpp"
#include "support/waiting.hpp"

namespace mutex_tests {

using namespace std::chrono_literals;
using distlock::errc;
using distlock::error;
using distlock::lock_options;
using distlock::release_outcome;
using distlock::reply;
using distlock::testing::manual_clock;
using slowly = slow_clock<manual_clock>;
using distlock::testing::scripted_connection;
using handoff_answers::taken;
using manual_mutex = distlock::mutex<scripted_connection, distlock::handoff, manual_clock>;
using words = std::vector<std::string>;

namespace {

const reply ok = reply::status("OK");
const reply released = reply::integer(1);
const reply granted = handoff_answers::granted("", 30'000);

constexpr std::size_t owner = 7;  // behind the script and its four keys

static_assert(distlock::detail::any_clock<slowly>);

reply always_ok(const distlock::command&) { return ok; }

struct timed_connection {
    reply execute(const distlock::command&) { return ok; }
    std::chrono::milliseconds command_timeout() const { return 200ms; }
};

// A master whose replicas have everything: how long it was to wait for them.
struct replicated_locks : locks_in_memory {
    explicit replicated_locks(std::chrono::milliseconds timeout) : timeout_(timeout) {}
    std::chrono::milliseconds command_timeout() const { return timeout_; }
    reply answer(const distlock::command& cmd) {
        if (cmd.argv()[0] != "WAIT") return execute(cmd);
        waits.emplace_back(cmd.argv()[2]);
        return reply::integer(1);
    }
    words waits;

  private:
    std::chrono::milliseconds timeout_;
};
struct acknowledging : replicated_locks {
    using replicated_locks::replicated_locks;
    distlock::acknowledged_reply execute_acknowledged(const distlock::command& write,
                                                      const distlock::command& wait) {
        auto wrote = answer(write);
        return {std::move(wrote), answer(wait)};
    }
};
struct pipelining : replicated_locks {
    using replicated_locks::replicated_locks;
    void pipeline(std::span<const distlock::command> commands, std::span<reply> replies) {
        for (std::size_t i = 0; i < commands.size(); ++i) replies[i] = answer(commands[i]);
    }
};

template <class Connection>
std::string wait_of_a_grant(std::chrono::milliseconds command_timeout, lock_options options) {
    Connection redis{command_timeout};
    options.replicas = 1;
    options.renew = false;
    distlock::mutex<Connection, distlock::plain, manual_clock> m{redis, "orders", options};
    m.lock();
    return redis.waits.empty() ? "none" : redis.waits.front();
}

}  // namespace

TEST_CASE("replicas are waited for as long as was said, and no longer than a sixth of the lease") {
    CHECK(wait_of_a_grant<acknowledging>(5s, {.lease = 6s, .replica_timeout = 900ms}) == "900");
    CHECK(wait_of_a_grant<acknowledging>(5s, {.lease = 6s, .replica_timeout = 3s}) == "1000");
    CHECK(wait_of_a_grant<acknowledging>(200ms, {.lease = 6s, .replica_timeout = 900ms}) == "900");
}

TEST_CASE("a renewal waits for replicas no longer than a command may take") {
    manual_clock::reset();
    acknowledging redis{200ms};
    {
        distlock::mutex<acknowledging, distlock::plain, manual_clock> m{
            redis, "orders", {.lease = 6s, .replicas = 1, .replica_timeout = 900ms}};
        m.lock();
        manual_clock::advance(2s);
        REQUIRE(eventually([&] { return redis.count("renew") > 0; }));
    }
    CHECK(redis.waits == words{"900", "200"});
}

TEST_CASE(
    "replicas are waited for no longer than half of a command's time where the answers come in one "
    "pipeline") {
    CHECK(wait_of_a_grant<pipelining>(400ms, {.lease = 6s, .replica_timeout = 900ms}) == "200");
    CHECK(wait_of_a_grant<pipelining>(400ms, {.lease = 6s, .replica_timeout = 150ms}) == "150");
    CHECK(wait_of_a_grant<pipelining>(500ms, {.lease = 600ms, .replica_timeout = 900ms}) == "100");
}

// A pointer to it is none to an object.
TEST_CASE("a function is a connection") {
    distlock::mutex m{always_ok, "orders", {.renew = false}};
    CHECK(m.try_lock());
    CHECK(m.owns_lock());
}

TEST_CASE("a mutex is neither copied nor moved") {
    STATIC_REQUIRE_FALSE(std::is_copy_constructible_v<manual_mutex>);
    STATIC_REQUIRE_FALSE(std::is_move_constructible_v<manual_mutex>);
    STATIC_REQUIRE_FALSE(std::is_copy_assignable_v<manual_mutex>);
    STATIC_REQUIRE_FALSE(std::is_move_assignable_v<manual_mutex>);
}

TEST_CASE(
    "an uncontended lock and unlock are two commands: SET NX PX and the script that hands over or frees") {
    scripted_connection redis{ok, released};
    distlock::mutex m{redis, "orders:42", {.lease = 5s}};
    m.lock();
    CHECK(m.unlock() == release_outcome::released);
    const auto sent = redis.commands();
    REQUIRE(sent.size() == 2);
    const auto token = sent[0].argv.at(2);
    CHECK(token.size() == 32);
    CHECK(sent[0].argv == words{"SET", "orders:42", token, "NX", "PX", "5000"});
    REQUIRE(sent[1].argv.size() == 9);
    CHECK(words(sent[1].argv.begin(), sent[1].argv.end() - 1) ==
          words{"EVALSHA", std::string(distlock::detail::handoff_leave.sha1()), "4", "orders:42",
                "{orders:42}:distlock:queue", "{orders:42}:distlock:fence", "{orders:42}:distlock:owner",
                token});
    CHECK(sent[0].routing_key == "orders:42");
    CHECK(sent[1].routing_key == "orders:42");
}

TEST_CASE("in the plain dialect they are SET NX PX and the compare-and-delete") {
    scripted_connection redis{ok, released};
    distlock::mutex<scripted_connection, distlock::plain> m{redis, "orders:42", {.lease = 5s}};
    m.lock();
    CHECK(m.unlock() == release_outcome::released);
    const auto sent = redis.commands();
    REQUIRE(sent.size() == 2);
    const auto token = sent[0].argv.at(2);
    CHECK(token.size() == 32);
    CHECK(sent[0].argv == words{"SET", "orders:42", token, "NX", "PX", "5000"});
    CHECK(sent[1].argv ==
          words{"EVALSHA", std::string(distlock::detail::plain_release.sha1()), "1", "orders:42", token});
    CHECK(sent[0].routing_key == "orders:42");
    CHECK(sent[1].routing_key == "orders:42");
}

TEST_CASE("validity counts from before the command was sent, less one per cent and 2 ms") {
    manual_clock::reset();
    scripted_connection redis;
    redis.then([] { manual_clock::advance(3s); }, ok);
    manual_mutex m{redis, "orders", {.lease = 10s, .renew = false}};
    const auto before = manual_clock::now();
    m.lock();
    CHECK(m.valid_until() == before + 10s - 102ms);
    CHECK(m.remaining() == 7s - 102ms);
    manual_clock::advance(7s - 103ms);
    CHECK(m.owns_lock());
    CHECK(m.remaining() == 1ms);
    manual_clock::advance(1ms);
    CHECK_FALSE(m.owns_lock());
    CHECK(m.remaining() == 0ms);
    redis.then(reply::integer(0));
    CHECK(m.unlock() == release_outcome::expired);
    CHECK(m.valid_until() == manual_clock::time_point{});
}

// Medallion, redlock-cpp, node-redlock: an expired lock returned as success.
TEST_CASE("a grant whose answer comes after its lease is given back and not believed") {
    manual_clock::reset();
    scripted_connection redis;
    redis.then([] { manual_clock::advance(10s); }, ok);
    redis.then(released);
    manual_mutex m{redis, "orders", {.lease = 10s, .renew = false}};
    std::error_code ec;
    CHECK_FALSE(m.try_lock(ec));
    CHECK(ec == errc::lease_expired);
    CHECK_FALSE(m.owns_lock());
    const auto sent = redis.commands();
    REQUIRE(sent.size() == 2);
    CHECK(sent[1].argv.at(0) == "EVAL");
    CHECK(sent[1].argv.at(owner) == sent[0].argv.at(2));
}

TEST_CASE("a lost answer to the acquire is settled with the same token") {
    scripted_connection redis{reply::no_answer(errc::no_reply, "no reply in time"), granted, released};
    distlock::mutex m{redis, "orders"};
    REQUIRE(m.try_lock());
    m.unlock();
    const auto sent = redis.commands();
    REQUIRE(sent.size() == 3);
    CHECK(sent[1].argv.at(0) == "EVALSHA");
    CHECK(sent[1].argv.at(owner) == sent[0].argv.at(2));
}

TEST_CASE("an acquire that stays unanswered is an error, and is taken back") {
    manual_clock::reset();  // a release in doubt is repeated after a while
    scripted_connection redis;
    for (int i = 0; i < 2; ++i) redis.then(reply::no_answer(errc::no_reply, "no reply in time"));
    redis.then(released);
    manual_mutex m{redis, "orders"};
    CHECK_THROWS_WITH(m.try_lock(), contains_text("orders") && contains_text("no reply in time") &&
                                        contains_text("for one lease at most"));
    const auto sent = redis.commands();
    REQUIRE(sent.size() == 3);
    CHECK(sent[2].argv.at(0) == "EVAL");
    CHECK(sent[2].argv.at(owner) == sent[0].argv.at(2));
}

TEST_CASE("an error that says nothing is not quoted") {
    scripted_connection redis;
    for (int i = 0; i < 2; ++i) redis.then(reply::no_answer(errc::no_reply, ""));
    redis.then(released);
    distlock::mutex m{redis, "orders", {.patience = 0ms}};
    CHECK_THROWS_WITH(m.lock(), contains_text("lock orders: this request may lock it"));
}

// An attempt that was never sent was said to be in doubt; one that was, before a refused connect, was not.
TEST_CASE(
    "an error says that the name may be locked where a request was sent and not answered, and only there") {
    const auto refused_after = [](const reply& first) {
        scripted_connection redis{first, reply::not_sent(errc::unreachable, "connect: refused"), released};
        distlock::mutex m{redis, "orders", {.patience = 0ms}};
        try {
            m.lock();
        } catch (const error& e) {
            return std::string(e.what());
        }
        return std::string("it was locked");
    };
    CHECK_THAT(refused_after(reply::no_answer(errc::no_reply, "no reply in time")),
               contains_text("connect: refused") && contains_text("may lock it, for one lease at most"));
    CHECK_THAT(refused_after(reply::not_sent(errc::no_reply, "AUTH: no reply in time")),
               !contains_text("may lock it"));
}

// The longest reasons lost their end, and inspect() showed what was too long for a log.
TEST_CASE("an error has room for what it says of a lock behind the longest reason") {
    const auto of = [](std::size_t size) { return std::string(size, 'x'); };
    const std::string longest = of(280);
    for (const std::size_t more : {0U, 1U, 10'000U}) {
        scripted_connection redis{reply::no_answer(errc::no_reply, "no reply in time"),
                                  reply::not_sent(errc::unreachable, longest + of(more)), released};
        distlock::mutex m{redis, "orders", {.patience = 0ms}};
        CHECK_THROWS_WITH(m.lock(), contains_text("orders: " + longest + (more == 0 ? ";" : "...;")) &&
                                        contains_text("this request may lock it, for one lease at most: "));
        scripted_connection silent{reply::not_sent(errc::unreachable, longest + of(more))};
        CHECK_THROWS_WITH(distlock::inspect(silent, "orders"),
                          contains_text("orders: " + longest + (more == 0 ? ": " : "...: ")));
    }
}

TEST_CASE("try_lock is false for a lock somebody else has, and an error for a server that is gone") {
    scripted_connection redis{reply::nil(), taken(1000)};
    distlock::mutex m{redis, "orders"};
    CHECK_FALSE(m.try_lock());
    CHECK_THROWS_AS(m.try_lock(), error);  // the script has run out: nobody answers
    std::error_code ec;
    CHECK_FALSE(m.try_lock(ec));
    CHECK(ec == errc::unreachable);
    CHECK(ec == std::errc::not_connected);
}

TEST_CASE("an error code is cleared by success and by contention") {
    scripted_connection redis{ok, released, reply::nil(), taken(1000)};
    distlock::mutex m{redis, "orders"};
    std::error_code ec = errc::no_reply;
    CHECK(m.lock(ec));
    CHECK_FALSE(ec);
    m.unlock();
    ec = errc::no_reply;
    CHECK_FALSE(m.try_lock(ec));
    CHECK_FALSE(ec);
}

TEST_CASE("a holder without a TTL is reported beside false") {
    scripted_connection redis{reply::nil(), taken(-1)};
    distlock::mutex m{redis, "orders"};
    std::error_code ec;
    CHECK_FALSE(m.try_lock(ec));
    CHECK(ec == errc::holder_without_ttl);
}

TEST_CASE("a mutex that met contention starts with the script, which saves a command") {
    scripted_connection redis{reply::nil(), taken(1000), granted, released, ok, released};
    distlock::mutex m{redis, "orders"};
    CHECK_FALSE(m.try_lock());
    REQUIRE(m.try_lock());
    m.unlock();
    REQUIRE(m.try_lock());
    m.unlock();
    const auto sent = redis.commands();
    REQUIRE(sent.size() == 6);
    CHECK(sent[2].argv.at(0) == "EVALSHA");
    CHECK(sent[4].argv.at(0) == "SET");
}

TEST_CASE("nothing is sent for a stopped token, a thread's own lock, or an unlock without owning") {
    scripted_connection redis{ok};
    distlock::mutex m{redis, "orders"};
    std::stop_source stop;
    stop.request_stop();
    CHECK_THROWS_AS(m.lock(stop.get_token()), error);
    CHECK(m.unlock() == release_outcome::not_held);
    CHECK(redis.commands().empty());
    REQUIRE(m.try_lock());
    CHECK_FALSE(m.try_lock());  // a thread of this process has it: no need to ask
    CHECK_FALSE(m.try_lock_for(1ms));
    CHECK(redis.commands().size() == 1);
    redis.then(released);
    m.unlock();
}

TEST_CASE("an unlock whose answers are lost says unreachable and gives the lock up locally") {
    scripted_connection redis{ok, reply::no_answer(errc::no_reply, "gone"),
                              reply::not_sent(errc::unreachable, "gone")};
    distlock::mutex m{redis, "orders"};
    m.lock();
    CHECK(m.unlock() == release_outcome::unreachable);
    CHECK_FALSE(m.owns_lock());
    CHECK(m.unlock() == release_outcome::not_held);
}

TEST_CASE("a release that found nothing after its first answer was lost was a release") {
    scripted_connection redis{ok, reply::no_answer(errc::no_reply, "gone"), reply::integer(0)};
    distlock::mutex m{redis, "orders"};
    m.lock();
    CHECK(m.unlock() == release_outcome::released);
}

TEST_CASE("a name that cannot be used is refused at construction") {
    scripted_connection redis;
    const auto code = [&](std::string name) {
        try {
            distlock::mutex m{redis, std::move(name)};
        } catch (const error& e) {
            return e.code();
        }
        return std::error_code{};
    };
    CHECK(code("") == errc::invalid_name);
    CHECK(code(std::string(5 * 1024, 'x')) == errc::invalid_name);
    CHECK_FALSE(code(std::string(4096, 'x')));
    CHECK_FALSE(code(std::string("\0\r\n\xff", 4)));
}

TEST_CASE("a lease that cannot be kept is refused at construction") {
    timed_connection redis;
    const auto code = [&](lock_options options) {
        try {
            distlock::mutex m{redis, "orders", options};
        } catch (const error& e) {
            return e.code();
        }
        return std::error_code{};
    };
    CHECK(code({.lease = 0s}) == errc::invalid_lease);
    CHECK(code({.lease = -1s}) == errc::invalid_lease);
    CHECK(code({.lease = 1ms}) == errc::invalid_lease);
    CHECK(code({.lease = std::chrono::hours::max()}) == errc::invalid_lease);
    CHECK(code({.lease = std::chrono::hours::min()}) == errc::invalid_lease);
    CHECK(code({.lease = 150ms}) == errc::invalid_lease);  // the connection's command time-out is 200 ms
    CHECK_FALSE(code({.lease = 201ms}));
    CHECK(code({.recheck = 0ms}) == errc::invalid_option);
    CHECK(code({.patience = -1ms}) == errc::invalid_option);
}

TEST_CASE("a wait until an instant of another clock lasts until that clock reaches it") {
    manual_clock::reset();
    locks_in_memory server;
    distlock::mutex<locks_in_memory, distlock::plain> somebody(server, "orders", {.renew = false});
    somebody.lock();
    distlock::mutex<locks_in_memory, distlock::plain, ticking_clock> m{server, "orders"};
    distlock::recursive_mutex<locks_in_memory, distlock::plain, ticking_clock> r{server, "orders"};
    const auto until = slowly::now() + 100ms;
    CHECK_FALSE(m.try_lock_until(until));
    CHECK(slowly::now() >= until);
    CHECK(slowly::now() < until + 50ms);
    const auto later = slowly::now() + 100ms;
    CHECK_FALSE(r.try_lock_until(later));
    CHECK(slowly::now() >= later);
    CHECK(slowly::now() < later + 50ms);
    somebody.unlock();
    CHECK(m.try_lock_until(slowly::now()));
}

// It asked the server again and again, for ever.
TEST_CASE("a wait until an instant that is no number tries once") {
    locks_in_memory server;
    distlock::mutex<locks_in_memory, distlock::plain> somebody(server, "orders", {.renew = false});
    somebody.lock();
    distlock::mutex<locks_in_memory, distlock::plain> m{server, "orders"};
    using seconds = std::chrono::duration<double>;
    const std::chrono::time_point<std::chrono::steady_clock, seconds> never{
        seconds{std::numeric_limits<double>::quiet_NaN()}};
    CHECK_FALSE(m.try_lock_until(never));
    somebody.unlock();
    CHECK(m.try_lock_until(never));
}

TEST_CASE("a connection's words about its trouble become short and printable in a message") {
    const std::string said = "\x1b[2J\r\n" + std::string(5'000, 'x');
    scripted_connection redis{reply::not_sent(errc::unreachable, said)};
    distlock::mutex m{redis, "orders", {.patience = 0ms}};
    const std::string what = error_of([&] { m.lock(); }).what();
    CHECK(what.find("\x1b") == std::string::npos);
    CHECK(what.find('\n') == std::string::npos);
    CHECK(what.size() < 1'000);
    CHECK_THAT(what, contains_text("[2J"));
}

// Between polls of other clients it got few turns.
TEST_CASE("a waiter that polls looks every 50 ms where it was not told how often") {
    manual_clock::reset();
    locks_in_memory server;
    server.give_to("somebody");
    distlock::mutex<locks_in_memory, distlock::plain, ticking_clock> m{server, "orders"};
    CHECK_FALSE(m.try_lock_for(3s));
    CHECK(server.count("take") >= 50);
    CHECK(server.count("take") <= 130);  // pauses are jittered
}

TEST_CASE("an option that is refused is refused in the name of its lock, in every kind of lock") {
    scripted_connection redis;
    const auto named = contains_text("lock orders: a lease of 5 ms: the lease cannot be used; ");
    const lock_options shortly{.lease = 5ms};
    CHECK_THROWS_WITH(distlock::mutex(redis, "orders", shortly), named);
    CHECK_THROWS_WITH((distlock::mutex<scripted_connection, distlock::plain>(redis, "orders", shortly)),
                      named);
    CHECK_THROWS_WITH(distlock::recursive_mutex(redis, "orders", shortly), named);
    CHECK_THROWS_WITH(distlock::shared_mutex(redis, "orders", shortly), named);
    CHECK_THROWS_WITH(distlock::counting_semaphore(redis, "orders", 2, shortly), named);
    CHECK_THROWS_WITH(distlock::mutex(redis, "orders", {.replicas = 1}),
                      contains_text("lock orders: replicas is 1"));
}

// It was released again and again for a lease: hundreds of commands a second, all refused.
TEST_CASE("a lock that a user may not take is given back once, and not again") {
    manual_clock::reset();
    const reply refused = reply::error(
        "ERR The user executing the script can't run this command or subcommand script: 1155, on "
        "@user_script:6.");
    scripted_connection redis{refused, refused};
    distlock::mutex<scripted_connection, distlock::handoff, manual_clock> m{
        redis, "orders", {.fencing = true}};
    std::error_code ec;
    CHECK_FALSE(m.try_lock(ec));
    CHECK(ec == errc::permission_denied);
    CHECK(redis.left() == 0);
    CHECK(m.residual() == 0ms);
    CHECK(redis.commands().size() == 2);
}

}  // namespace mutex_tests
