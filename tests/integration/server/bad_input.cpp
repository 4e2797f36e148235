// A mutex that is used wrongly, or whose server will not or cannot: real servers, one kind of trouble each.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <sys/syscall.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/fake_server.hpp"
#include "support/hiredis_test.hpp"
#include "support/in_child.hpp"
#include "support/server_counts.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace bad_input_tests {

using namespace hiredis_test;
using distlock::mutex;

namespace {

constexpr lock_options long_lease{.lease = 60s};
constexpr lock_options confirming{.lease = 60s, .release = distlock::confirmed};

lock_options releasing(distlock::release_mode how) { return {.lease = 60s, .release = how}; }

/// Returns: what unlock() says in this mode, where a server would answer `answer`.
release_outcome said(distlock::release_mode how, release_outcome answer) {
    return how == distlock::posted ? release_outcome::posted : answer;
}

std::string uri_of(const redis_server& server, const std::string& login) {
    return "unix://" + login + server.socket_path() + patient;
}

// Requires that `call` throws `expected`, and that the message says on which lock, what is
// wrong, and what to do.
template <class Call>
std::string refused(errc expected, const std::string& name, Call call) {
    try {
        call();
    } catch (const distlock::error& e) {
        CHECK(e.code() == expected);
        const std::string what = e.what();
        CHECK_THAT(what, contains_text(make_error_code(expected).message()));
        CHECK_THAT(what, contains_text(name));
        return what;
    }
    FAIL("nothing was thrown, expected: " << make_error_code(expected).message());
    return "";
}

// All ways to take a lock fail alike. Each has its own time limit where one is given.
template <class M>
void refuses_every_way(M& m, errc expected) {
    refused(expected, m.name(), [&] { m.lock(); });
    refused(expected, m.name(), [&] { static_cast<void>(m.try_lock()); });
    refused(expected, m.name(), [&] { static_cast<void>(m.try_lock_for(100ms)); });
    refused(expected, m.name(),
            [&] { static_cast<void>(m.try_lock_until(std::chrono::steady_clock::now() + 100ms)); });
    refused(expected, m.name(), [&] { const distlock::scoped_lock guard(m); });
    std::error_code ec;
    CHECK_FALSE(m.lock(ec));
    CHECK(ec == expected);
    CHECK_FALSE(m.try_lock(ec));
    CHECK(ec == expected);
    CHECK_FALSE(m.try_lock_for(100ms, ec));
    CHECK(ec == expected);
    CHECK_FALSE(m.owns_lock());
    CHECK(m.unlock() == release_outcome::not_held);
}

// Whether a waiter is queued for this lock.
bool is_queued(const redis_server& server, const std::string& name) {
    return server.command({"ZCARD", "{" + name + "}:distlock:queue"}) == "1";
}

// Whether a thread of this process sleeps in the kernel.
bool sleeps(pid_t thread) {
    std::ifstream stat("/proc/self/task/" + std::to_string(thread) + "/stat");
    std::string line;
    std::getline(stat, line);
    const auto end = line.rfind(')');
    return end != std::string::npos && line.substr(end + 2, 1) == "S";
}

pid_t thread_number() { return static_cast<pid_t>(::syscall(SYS_gettid)); }

}  // namespace

TEST_CASE("names that cannot be locks are refused before anything is sent") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    refused(errc::invalid_name, "empty", [&] { mutex m(redis, ""); });
    refused(errc::invalid_name, "5120 bytes", [&] { mutex m(redis, std::string(5 * 1024, 'x')); });
    refused(errc::invalid_name, "4097 bytes", [&] { mutex m(redis, std::string(4097, '\n')); });
    CHECK(server.command({"DBSIZE"}) == "0");
}

TEST_CASE("a name of any bytes, up to 4 KiB, is a lock of its own") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    std::string all;
    for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
    const std::vector<std::string> names{all,
                                         std::string("\0", 1),
                                         std::string("\0\0", 2),
                                         "a b",
                                         "a\r\nb",
                                         "*1\r\n$4\r\nPING\r\n",
                                         "{",
                                         "}",
                                         "{}a",
                                         "{a}b",
                                         "%s%n",
                                         "\xff\xfe",
                                         "KEYS[1]",
                                         std::string(4096, 'x'),
                                         std::string(4096, '\0')};
    const auto how = GENERATE(distlock::posted, distlock::confirmed);
    std::vector<std::unique_ptr<mutex<hiredis_connection>>> held;
    for (const std::string& name : names) {
        held.push_back(std::make_unique<mutex<hiredis_connection>>(redis, name, releasing(how)));
        CHECK(held.back()->name() == name);
        REQUIRE(held.back()->try_lock());
        mutex other(redis, name, long_lease);
        CHECK_FALSE(other.try_lock());
        CHECK(server.command({"STRLEN", name}) == "32");
    }
    CHECK(server.command({"DBSIZE"}) == std::to_string(names.size()));
    for (auto& m : held) CHECK(m->unlock() == said(how, release_outcome::released));
    if (how == distlock::posted) CHECK(eventually([&] { return server.command({"DBSIZE"}) == "0"; }));
    CHECK(server.command({"DBSIZE"}) == "0");
}

TEST_CASE("a message shows a binary name as printable text") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const std::string name("\x1b[31m\0\n\xff", 8);
    REQUIRE(server.command({"RPUSH", name, "x"}) == "1");
    mutex m(redis, name);
    const std::string what = refused(errc::wrong_type, "?[31m", [&] { m.lock(); });
    for (const char c : what) CHECK((c >= ' ' && c <= '~'));
}

TEST_CASE("leases that cannot be kept are refused before anything is sent") {
    const redis_server server;
    hiredis_connection redis(server.uri() + "?command_timeout=200ms");
    const auto lease_of = [&](distlock::time_span lease) {
        return refused(errc::invalid_lease, "lease", [&] { mutex m(redis, "orders", {.lease = lease}); });
    };
    lease_of(0ms);
    lease_of(-1ms);
    lease_of(1ms);
    lease_of(999us);
    lease_of(std::chrono::hours::max());
    lease_of(std::chrono::hours::min());
    lease_of(std::chrono::nanoseconds::max());
    lease_of(std::chrono::duration<double>(1e300));
    lease_of(std::chrono::duration<double>(-1e300));
    lease_of(24h + 1ms);
    CHECK_THAT(lease_of(150ms), contains_text("200 ms"));  // shorter than the command time-out
    lease_of(200ms);
    CHECK(server.command({"DBSIZE"}) == "0");

    mutex shortest(redis, "orders", {.lease = 201ms});
    CHECK(shortest.try_lock_for(20s));
    mutex longest(redis, "invoices", {.lease = 24h});
    CHECK(longest.try_lock_for(20s));
}

TEST_CASE("a time-out of zero or less tries once") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const auto check = [&](auto timeout) {
        mutex m(redis, "orders", long_lease);
        mutex other(redis, "orders", long_lease);
        REQUIRE(m.try_lock_for(timeout));
        bool locked = true;
        CHECK(time_of([&] { locked = other.try_lock_for(timeout); }) <= timing_tolerance);
        CHECK_FALSE(locked);
        std::error_code ec = errc::no_reply;
        CHECK_FALSE(other.try_lock_for(timeout, ec));
        CHECK_FALSE(ec);
    };
    check(0ms);
    check(-1ms);
    check(-10h);
    check(std::chrono::hours::min());
    check(std::chrono::nanoseconds::min());
    check(std::chrono::duration<double>(-1e300));
}

TEST_CASE("a deadline that has passed tries once, on any clock") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const auto check = [&](auto deadline) {
        mutex m(redis, "orders", long_lease);
        mutex other(redis, "orders", long_lease);
        REQUIRE(m.try_lock_until(deadline));
        CHECK(time_of([&] { CHECK_FALSE(other.try_lock_until(deadline)); }) <= timing_tolerance);
    };
    check(std::chrono::steady_clock::now() - 1s);
    check(std::chrono::system_clock::now() - 1s);
    check(std::chrono::system_clock::time_point{});
    check(distlock::clock::time_point{});
}

TEST_CASE("the longest time-outs wait until the holder releases") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const auto check = [&](auto wait) {
        mutex holder(redis, "orders", long_lease);
        mutex waiter(redis, "orders", long_lease);
        REQUIRE(holder.try_lock());
        std::atomic<bool> locked{false};
        std::thread thread([&] { locked = wait(waiter); });
        const bool waits = eventually([&] { return is_queued(server, "orders"); });
        const bool too_early = locked;
        const auto released = holder.unlock();
        thread.join();
        CHECK(waits);
        CHECK_FALSE(too_early);
        CHECK(released == release_outcome::posted);
        CHECK(locked);
    };
    check([](auto& m) { return m.try_lock_for(std::chrono::hours::max()); });
    check([](auto& m) { return m.try_lock_for(std::chrono::nanoseconds::max()); });
    check([](auto& m) { return m.try_lock_for(std::chrono::duration<double>(1e300)); });
    check([](auto& m) { return m.try_lock_until(std::chrono::system_clock::time_point::max()); });
    check([](auto& m) { return m.try_lock_until(std::chrono::steady_clock::time_point::max()); });
    check([](auto& m) { return m.try_lock_until(distlock::clock::time_point::max()); });
    check([](auto& m) {
        m.lock();
        return true;
    });
}

TEST_CASE("a wrong password is an error at once, on every way to lock, and is not shown") {
    const redis_server server(with({"--requirepass", "right"}));
    hiredis_connection redis(uri_of(server, ":hunter2-canary@"));
    mutex m(redis, "orders");
    CHECK(time_of([&] { refuses_every_way(m, errc::authentication_failed); }) <= 8 * timing_tolerance);
    const std::string what = refused(errc::authentication_failed, "orders", [&] { m.lock(); });
    CHECK_THAT(what, !contains_text("hunter2"));
    CHECK_THAT(what, contains_text(server.socket_path()));
}

TEST_CASE("a missing password is an error at once") {
    const redis_server server(with({"--requirepass", "right"}));
    hiredis_connection redis(uri_of(server, ""));
    mutex m(redis, "orders");
    refuses_every_way(m, errc::authentication_failed);
}

TEST_CASE("a user who may not run a command, or not on this key, is told so at once") {
    const redis_server server;
    const auto user = [&](std::initializer_list<std::string_view> rules) {
        std::vector<std::string_view> words{"ACL", "SETUSER", "anna", "reset", "on", ">secret"};
        words.insert(words.end(), rules);
        REQUIRE(server.command(words) == "OK");
    };
    hiredis_connection admin(server.uri() + patient);
    mutex held(admin, "held", confirming);
    REQUIRE(held.try_lock());

    SECTION("not SET") {
        user({"~*", "+@all", "-set"});
        hiredis_connection redis(uri_of(server, "anna:secret@"));
        mutex m(redis, "free");
        refuses_every_way(m, errc::permission_denied);
        CHECK(server.command({"EXISTS", "free"}) == "0");
    }
    SECTION("no scripts") {
        user({"~*", "+@all", "-eval", "-evalsha"});
        hiredis_connection redis(uri_of(server, "anna:secret@"));
        mutex m(redis, "held");
        refuses_every_way(m, errc::permission_denied);
    }
    SECTION("no GET within scripts") {
        user({"~*", "+@all", "-get"});
        hiredis_connection redis(uri_of(server, "anna:secret@"));
        mutex m(redis, "held");
        refuses_every_way(m, errc::permission_denied);
    }
    SECTION("no PTTL within scripts") {
        user({"~*", "+@all", "-pttl"});
        hiredis_connection redis(uri_of(server, "anna:secret@"));
        mutex m(redis, "held");
        refuses_every_way(m, errc::permission_denied);
    }
    SECTION("not this key") {
        user({"~other:*", "+@all"});
        hiredis_connection redis(uri_of(server, "anna:secret@"));
        mutex m(redis, "held");
        refuses_every_way(m, errc::permission_denied);
        // A lock needs keys beside it, to be waited for; but not to be taken and freed.
        const auto how = GENERATE(distlock::posted, distlock::confirmed);
        mutex elsewhere(redis, "other:1", releasing(how));
        CHECK(elsewhere.try_lock());
        CHECK(elsewhere.unlock() == said(how, release_outcome::released));
        CHECK(eventually([&] { return elsewhere.residual() == 0s; }));
        CHECK(server.command({"EXISTS", "other:1"}) == "0");
    }
    SECTION("no DEL: a lock that cannot be released says so, and its lease ends it") {
        user({"~*", "+@all", "-del"});
        const auto how = GENERATE(distlock::posted, distlock::confirmed);
        hiredis_connection redis(uri_of(server, "anna:secret@"));
        mutex m(redis, "free", {.lease = 30s, .release = how});
        REQUIRE(m.try_lock());
        const auto before = scripts_at(server);
        CHECK(m.unlock() == said(how, release_outcome::refused));
        CHECK(eventually([&] { return scripts_at(server) >= before + 4; }));  // it is tried again
        CHECK(m.residual() > 0s);
        CHECK(std::stol(server.command({"PTTL", "free"})) > 0);
    }
    SECTION("the least a user needs is enough") {
        user({"~*",          "&distlock:*", "-@all", "+eval",   "+evalsha",       "+set",     "+get",
              "+del",        "+pexpire",    "+pttl", "+time",   "+incrby",        "+zadd",    "+zcard",
              "+zrange",     "+zrank",      "+zrem", "+zscore", "+pubsub|numsub", "+publish", "+subscribe",
              "+unsubscribe"});
        hiredis_connection redis(uri_of(server, "anna:secret@"));
        mutex m(redis, "free", confirming);
        mutex again(redis, "free", confirming);
        REQUIRE(m.try_lock());
        CHECK_FALSE(again.try_lock());
        CHECK_FALSE(again.try_lock_for(50ms));
        bool locked = false;
        std::thread waiter([&] { locked = again.try_lock_for(20s); });
        const bool waits = eventually([&] { return is_queued(server, "free"); });
        const auto released = m.unlock();
        waiter.join();
        CHECK(waits);
        CHECK(released == release_outcome::released);
        CHECK(locked);
        CHECK(again.unlock() == release_outcome::released);
        CHECK(server.command({"EXISTS", "free"}) == "0");
    }
    CHECK(held.unlock() == release_outcome::released);
}

TEST_CASE("a key of another type is an error, not 'busy', and stays untouched") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    REQUIRE(server.command({"RPUSH", "list", "a", "b"}) == "2");
    REQUIRE(server.command({"HSET", "hash", "field", "value"}) == "1");
    REQUIRE(server.command({"SADD", "set", "a"}) == "1");
    REQUIRE(server.command({"XADD", "stream", "*", "a", "b"})[0] != '-');
    for (const std::string name : {"list", "hash", "set", "stream"}) {
        mutex m(redis, name);
        const std::string before = server.command({"DUMP", name});
        refuses_every_way(m, errc::wrong_type);
        CHECK(server.command({"DUMP", name}) == before);
        CHECK(server.command({"PTTL", name}) == "-1");
    }
}

TEST_CASE("a key without a TTL is somebody's lock for ever, is said to be, and stays untouched") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    REQUIRE(server.command({"SET", "orders", "somebody"}) == "OK");
    mutex m(redis, "orders");
    CHECK_FALSE(m.try_lock());
    bool locked = true;
    const auto took = time_of([&] { locked = m.try_lock_for(100ms); });
    CHECK_FALSE(locked);
    CHECK(took <= 100ms + timing_tolerance);
    std::error_code ec;
    CHECK_FALSE(m.try_lock(ec));
    CHECK(ec == errc::holder_without_ttl);
    CHECK_FALSE(m.try_lock_for(100ms, ec));
    CHECK(ec == errc::holder_without_ttl);
    CHECK(server.command({"GET", "orders"}) == "somebody");
    CHECK(server.command({"PTTL", "orders"}) == "-1");

    REQUIRE(server.command({"DEL", "orders"}) == "1");
    CHECK(m.try_lock_for(20s, ec));
    CHECK_FALSE(ec);
}

TEST_CASE("a lock held with a TTL is busy and no error") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    REQUIRE(server.command({"SET", "orders", "somebody", "PX", "60000"}) == "OK");
    mutex m(redis, "orders");
    std::error_code ec = errc::no_reply;
    CHECK_FALSE(m.try_lock_for(100ms, ec));
    CHECK_FALSE(ec);
    CHECK(server.command({"GET", "orders"}) == "somebody");
}

TEST_CASE("a server that is down is unreachable, by the caller's deadline") {
    redis_server_options options;
    options.tcp = GENERATE(false, true);
    redis_server server(options);
    hiredis_connection redis(server.uri());
    mutex m(redis, "orders", {.lease = 30s, .patience = 400ms});
    mutex held(redis, "invoices", long_lease);
    REQUIRE(held.try_lock_for(20s));
    server.kill();
    CHECK(time_of([&] { refused(errc::unreachable, "orders", [&] { static_cast<void>(m.try_lock()); }); }) <=
          timing_tolerance);
    const auto took = time_of(
        [&] { refused(errc::unreachable, "orders", [&] { static_cast<void>(m.try_lock_for(200ms)); }); });
    CHECK(took >= 199ms);  // the server might have come back
    CHECK(took <= 200ms + timing_tolerance);
    CHECK(time_of([&] { refused(errc::unreachable, "orders", [&] { m.lock(); }); }) <=
          400ms + timing_tolerance);
    std::error_code ec;
    CHECK_FALSE(m.try_lock_for(100ms, ec));
    CHECK(ec == errc::unreachable);
    CHECK(time_of([&] { CHECK(held.unlock() == release_outcome::unreachable); }) <= timing_tolerance);
    CHECK_FALSE(held.owns_lock());
}

TEST_CASE("a wait rides out a server that goes and comes back") {
    redis_server server;
    hiredis_connection redis(server.uri());
    mutex m(redis, "orders", {.lease = 60s, .patience = 60s});
    server.kill();
    std::error_code ec;
    bool locked = false;
    std::thread waiter([&] { locked = m.try_lock_for(30s, ec); });
    server.start();
    waiter.join();
    CHECK(locked);
    CHECK_FALSE(ec);
}

TEST_CASE("threads that share a mutex are told the truth when the server is down") {
    redis_server server;
    hiredis_connection redis(server.uri());
    mutex m(redis, "orders", {.lease = 60s, .patience = 60s});
    server.kill();
    std::error_code first;
    std::atomic<pid_t> number{0};
    std::stop_source stop;
    std::thread other([&] {
        number = thread_number();
        static_cast<void>(m.try_lock_for(20s, stop.get_token(), first));
    });
    const bool waits = eventually([&] { return number != 0 && sleeps(number); });
    std::error_code second;
    std::error_code third;
    CHECK_FALSE(m.try_lock_for(200ms, second));
    CHECK_FALSE(m.try_lock(third));
    stop.request_stop();
    other.join();
    REQUIRE(waits);
    CHECK(second == errc::unreachable);  // "somebody else has it" would be an invention
    CHECK(third == errc::unreachable);
}

TEST_CASE("a server that stands still is given up by the caller's deadline") {
    redis_server_options options;
    options.tcp = GENERATE(false, true);
    redis_server server(options);
    hiredis_connection redis(server.uri());
    mutex m(redis, "orders", long_lease);
    const auto how = GENERATE(distlock::posted, distlock::confirmed);
    mutex held(redis, "invoices", releasing(how));
    REQUIRE(held.try_lock_for(20s));
    server.pause();
    CHECK(time_of([&] {
              refused(errc::no_reply, "orders", [&] { static_cast<void>(m.try_lock_for(300ms)); });
          }) <= 300ms + timing_tolerance);
    CHECK(time_of([&] {
              refused(errc::no_reply, "orders", [&] { static_cast<void>(m.try_lock_for(0ms)); });
          }) <= timing_tolerance);
    std::error_code ec;
    CHECK(time_of([&] { CHECK_FALSE(m.try_lock_for(100ms, ec)); }) <= 100ms + timing_tolerance);
    CHECK(ec == errc::no_reply);
    CHECK(time_of([&] { CHECK(held.unlock() == said(how, release_outcome::unreachable)); }) <=
          (how == distlock::posted ? 0 : 2) * 200ms + timing_tolerance);
    CHECK(held.residual() > 50s);
    server.resume();
    CHECK(eventually([&] { return held.residual() == 0s; }));
    CHECK(server.command({"EXISTS", "invoices"}) == "0");
}

TEST_CASE(
    "a lock that a standing server may have granted is given back when it goes on, however often it was "
    "asked") {
    redis_server_options options;
    options.tcp = GENERATE(false, true);
    redis_server server(options);
    const int times = GENERATE(1, 3);
    INFO("asked " << times << " times over " << (options.tcp ? "TCP" : "a unix socket"));
    hiredis_connection redis(server.uri());
    const auto how = GENERATE(distlock::posted, distlock::confirmed);
    mutex m(redis, "orders", releasing(how));
    REQUIRE(m.try_lock_for(20s));
    REQUIRE(m.unlock() == said(how, release_outcome::released));
    server.pause();
    for (int i = 0; i < times; ++i) {
        std::error_code ec;
        CHECK_FALSE(m.try_lock_for(100ms, ec));
        CHECK(ec == errc::no_reply);
    }
    server.resume();
    // Nobody knows when the server reads what it was sent; once it has, the lock is free for good.
    mutex next(redis, "orders", long_lease);
    CHECK(next.try_lock_for(20s));
}

TEST_CASE("a server without memory refuses locks, and takes them back") {
    const redis_server server(with({"--maxmemory-policy", "noeviction"}));
    hiredis_connection redis(server.uri() + patient);
    const auto how = GENERATE(distlock::posted, distlock::confirmed);
    mutex held(redis, "held", releasing(how));
    REQUIRE(held.try_lock());
    REQUIRE(server.command({"CONFIG", "SET", "maxmemory", "1"}) == "OK");
    mutex m(redis, "orders", long_lease);
    refuses_every_way(m, errc::out_of_memory);
    CHECK(held.unlock() == said(how, release_outcome::released));
    if (how == distlock::posted) CHECK(eventually([&] { return held.residual() == 0s; }));
    CHECK(server.command({"EXISTS", "held"}) == "0");
    CHECK(server.command({"EXISTS", "orders"}) == "0");
}

TEST_CASE("a replica is named as one, and never says that a lock is gone") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const auto how = GENERATE(distlock::posted, distlock::confirmed);
    mutex held(redis, "held", releasing(how));
    REQUIRE(held.try_lock());
    REQUIRE(server.command({"REPLICAOF", "127.0.0.1", "1"}) == "OK");
    mutex m(redis, "orders", {.lease = 60s, .patience = 0ms});
    refuses_every_way(m, errc::read_only);
    const auto before = scripts_at(server);
    CHECK(held.unlock() == said(how, release_outcome::refused));
    CHECK(eventually([&] { return scripts_at(server) >= before + 4; }));  // it is tried again
    CHECK(held.residual() > 0s);
    CHECK(server.command({"EXISTS", "held"}) == "1");
    mutex again(redis, "held", {.lease = 60s, .patience = 0ms});
    std::error_code ec;
    CHECK_FALSE(again.try_lock(ec));
    CHECK(ec == errc::read_only);
}

TEST_CASE("unlock without owning says so, and sends nothing") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    mutex m(redis, "orders", confirming);
    mutex other(redis, "orders", long_lease);
    CHECK(m.unlock() == release_outcome::not_held);
    const std::string clients = server.command({"CLIENT", "LIST"});
    CHECK(std::count(clients.begin(), clients.end(), '\n') == 1);  // the one that asks
    REQUIRE(m.try_lock());
    CHECK(other.unlock() == release_outcome::not_held);
    const auto evals = scripts_at(server);
    CHECK(other.unlock() == release_outcome::not_held);
    CHECK(scripts_at(server) == evals);
    CHECK(m.unlock() == release_outcome::released);
    CHECK(m.unlock() == release_outcome::not_held);
}

TEST_CASE("a lock that is destroyed while held is released") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const auto how = GENERATE(distlock::posted, distlock::confirmed);
    {
        mutex m(redis, "orders", releasing(how));
        REQUIRE(m.try_lock());
        CHECK(server.command({"EXISTS", "orders"}) == "1");
    }
    if (how == distlock::posted)
        CHECK(eventually([&] { return server.command({"EXISTS", "orders"}) == "0"; }));
    CHECK(server.command({"EXISTS", "orders"}) == "0");
}

TEST_CASE("destroying a lock that somebody else took meanwhile leaves it to them") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const auto how = GENERATE(distlock::posted, distlock::confirmed);
    const auto before = scripts_at(server);
    {
        mutex m(redis, "orders", releasing(how));
        REQUIRE(m.try_lock());
        REQUIRE(server.command({"SET", "orders", "somebody", "PX", "60000"}) == "OK");
    }
    CHECK(eventually([&] { return scripts_at(server) > before; }));
    CHECK(server.command({"GET", "orders"}) == "somebody");
}

TEST_CASE("unlock says when the lock was taken by another, or was gone") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    mutex m(redis, "orders", confirming);
    REQUIRE(m.try_lock());
    REQUIRE(server.command({"SET", "orders", "somebody", "PX", "60000"}) == "OK");
    CHECK(m.unlock() == release_outcome::taken);
    CHECK(server.command({"GET", "orders"}) == "somebody");
    REQUIRE(server.command({"DEL", "orders"}) == "1");
    REQUIRE(m.try_lock());
    REQUIRE(server.command({"DEL", "orders"}) == "1");
    CHECK(m.unlock() == release_outcome::expired);
}

TEST_CASE("a posted release of a lock that was taken by another, or was gone, leaves it and owes nothing") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    mutex m(redis, "orders", long_lease);
    REQUIRE(m.try_lock());
    REQUIRE(server.command({"SET", "orders", "somebody", "PX", "60000"}) == "OK");
    CHECK(m.unlock() == release_outcome::posted);
    CHECK(eventually([&] { return m.residual() == 0s; }));
    CHECK(server.command({"GET", "orders"}) == "somebody");
    REQUIRE(server.command({"DEL", "orders"}) == "1");
    REQUIRE(m.try_lock());
    REQUIRE(server.command({"DEL", "orders"}) == "1");
    CHECK(m.unlock() == release_outcome::posted);
    CHECK(eventually([&] { return m.residual() == 0s; }));
    CHECK(server.command({"DBSIZE"}) == "0");
}

TEST_CASE("a child after fork() cannot use its parent's lock, and the parent keeps it") {
    const redis_server server;
    auto redis = std::make_unique<hiredis_connection>(server.uri() + patient);
    auto m = std::make_unique<mutex<hiredis_connection>>(*redis, "orders", long_lease);
    auto held = std::make_unique<mutex<hiredis_connection>>(*redis, "held", long_lease);
    REQUIRE(held->try_lock());
    const std::string owner = server.command({"GET", "held"});
    const auto wrong_process = [](auto& l, const char* name) {
        try {
            l.lock();
        } catch (const distlock::error& e) {
            const std::string what = e.what();
            return e.code() == errc::wrong_process && what.find(name) != std::string::npos &&
                   what.find("after fork()") != std::string::npos;
        }
        return false;
    };
    CHECK(in_child([&] { return wrong_process(*m, "orders"); }));
    CHECK(in_child([&] { return wrong_process(*held, "held"); }));
    CHECK(in_child([&] { return held->unlock() == release_outcome::wrong_process; }));
    CHECK(in_child([&] { return !held->owns_lock() && held->remaining() == 0s; }));
    CHECK(in_child([&] {
        std::error_code ec;
        return !m->try_lock(ec) && ec == errc::wrong_process;
    }));
    CHECK(server.command({"EXISTS", "orders"}) == "0");

    const auto before = scripts_at(server);
    CHECK(in_child([&] {
        held.reset();
        m.reset();
        redis.reset();
        return true;
    }));
    CHECK(scripts_at(server) == before);
    CHECK(server.command({"GET", "held"}) == owner);
    CHECK(held->owns_lock());
    CHECK(held->unlock() == release_outcome::posted);
    CHECK(m->try_lock());
    CHECK(eventually([&] { return server.command({"EXISTS", "held"}) == "0"; }));
}

TEST_CASE("a child's guard releases nothing") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    mutex m(redis, "orders", long_lease);
    std::optional guard{distlock::scoped_lock(m)};
    REQUIRE(guard->owns_lock());
    CHECK(in_child([&] {
        guard.reset();
        return true;
    }));
    CHECK(server.command({"EXISTS", "orders"}) == "1");
    CHECK(guard->owns_lock());
}

TEST_CASE("a child can lock through a connection of its own") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    mutex m(redis, "orders", confirming);
    REQUIRE(m.try_lock());
    CHECK(in_child([&] {
        hiredis_connection own(server.uri() + patient);
        // Nothing is renewed or confirmed later: the thread sanitizer allows no threads in a child.
        const lock_options alone{.lease = 60s, .renew = false, .release = distlock::confirmed};
        mutex busy(own, "orders", alone);
        mutex free(own, "invoices", alone);
        return !busy.try_lock() && free.try_lock() && free.unlock() == release_outcome::released;
    }));
    CHECK(m.unlock() == release_outcome::released);
}

TEST_CASE("a thread waiting behind another of its process gets the lock when that one's lease runs out") {
    const redis_server server;
    hiredis_connection redis(server.uri());
    mutex m(redis, "orders", {.lease = 1s, .renew = false});
    REQUIRE(server.command({"SET", "orders", "somebody", "PX", "60000"}) == "OK");
    std::atomic<bool> first{false};
    std::thread taker([&] {
        static_cast<void>(m.try_lock_for(20s));
        first = true;  // and never unlocks
    });
    const bool looks = eventually([&] { return calls_at(server, "pttl") >= 2; });
    std::atomic<pid_t> number{0};
    bool locked = false;
    std::thread waiter([&] {
        number = thread_number();
        locked = m.try_lock_for(6s);
    });
    const bool behind = eventually([&] { return number != 0 && sleeps(number); });
    server.command({"DEL", "orders"});
    taker.join();
    const auto took = time_of([&] { waiter.join(); });
    REQUIRE(looks);
    REQUIRE(behind);
    REQUIRE(first);
    CHECK(locked);
    CHECK(took <= 2s + timing_tolerance);
    static_cast<void>(m.unlock());
}

TEST_CASE("a wait for a lock is cancelled at once") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    mutex holder(redis, "orders", long_lease);
    REQUIRE(holder.try_lock());
    mutex m(redis, "orders", {.lease = 60s, .recheck = 1h});
    std::stop_source stop;
    std::error_code ec;
    distlock::clock::time_point ended;
    std::thread waiter([&] {
        static_cast<void>(m.lock(stop.get_token(), ec));
        ended = distlock::clock::now();
    });
    const bool waits = eventually([&] { return is_queued(server, "orders"); });
    const auto asked = distlock::clock::now();
    stop.request_stop();
    waiter.join();
    REQUIRE(waits);
    CHECK(ec == errc::cancelled);
    CHECK(ended - asked <= timing_tolerance / 3);
    refused(errc::cancelled, "orders", [&] { m.lock(stop.get_token()); });
}

}  // namespace bad_input_tests
