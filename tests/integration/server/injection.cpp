// What a hostile name, label, password or server's answer could smuggle in, and how little a
// user has to be allowed.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <distlock/inspect.hpp>
#include <distlock/interop.hpp>

#include "support/catch.hpp"
#include "support/hiredis_test.hpp"
#include "support/permitted_user.hpp"
#include "support/waiting.hpp"

namespace injection_tests {

using namespace hiredis_test;
using distlock::mutex;

namespace {

const std::string set_injected = "*3\r\n$3\r\nSET\r\n$8\r\ninjected\r\n$1\r\n1\r\n";

// Texts that would be commands, or code, if a length were not believed or a text were pasted into another.
const std::vector<std::string> hostile{
    "a\r\n*1\r\n$4\r\nROLE\r\n",
    "a\r\n" + set_injected,
    set_injected,
    "a\n" + set_injected,
    std::string("a\0", 2) + set_injected,
    "a SET injected 1",
    "a\r\nSET injected 1\r\n",
    "'..redis.call('set','injected',1)..'",
    "a]] redis.call('set','injected',1) --[[",
    "a') redis.call('set','injected',1) --",
    "*",
    "?",
    "[a-z]",
    "%s%s%n",
    "$(touch injected)",
    std::string(4000, '\r'),
};

std::string percent_encoded(std::string_view text) {
    std::ostringstream out;
    out << std::hex << std::uppercase;
    for (const char c : text) {
        const auto byte = static_cast<unsigned>(static_cast<unsigned char>(c));
        out << (byte < 16 ? "%0" : "%") << byte;
    }
    return out.str();
}

bool knows_only_ours(const redis_server& server) {
    return server.command({"EXISTS", "injected"}) == "0" &&
           server.command({"INFO", "commandstats"}).find("cmdstat_role:") == std::string::npos;
}

// Taken, found taken, waited for, handed on, looked at, taken away, and released.
template <class Dialect>
void whole_life(hiredis_connection& redis, const std::string& name, lock_options options) {
    options.lease = 60s;
    options.release = distlock::confirmed;
    mutex<hiredis_connection, Dialect> m(redis, name, options);
    mutex<hiredis_connection, Dialect> other(redis, name, options);
    REQUIRE(m.try_lock());
    CHECK((m.fencing_token() > 0) == options.fencing);
    CHECK_FALSE(other.try_lock());
    std::error_code ec;
    CHECK_FALSE(other.try_lock_for(20ms, ec));
    CHECK((!ec || ec == errc::no_reply));
    std::atomic<bool> locked{false};
    std::thread waiter([&] { locked = other.try_lock_for(20s, ec); });
    const auto report = distlock::inspect<Dialect>(redis, name);
    const auto released = m.unlock();
    waiter.join();
    INFO(ec.message());
    REQUIRE(locked);
    CHECK(released == release_outcome::released);
    CHECK(report.holder.has_value());
    CHECK(distlock::force_release<Dialect>(redis, name));
    CHECK(other.unlock() == release_outcome::expired);
}

}  // namespace

TEST_CASE("no name and no label is ever anything else to the server, whatever it holds") {
    const redis_server server;
    server.command({"CONFIG", "RESETSTAT"});
    hiredis_connection redis(server.uri() + patient);
    for (const std::string& text : hostile) {
        INFO(text);
        const std::string label = text.substr(0, 256);
        mutex m(redis, text, {.lease = 60s, .fencing = true, .owner_info = label});
        REQUIRE(m.try_lock());
        const auto report = distlock::inspect(redis, text);
        REQUIRE(report.holder);
        CHECK(report.holder->label == label);
        CHECK(server.command({"STRLEN", text}) == "32");
        // The lock, its fence and its owner, and nothing else.
        CHECK(server.command({"DBSIZE"}) == "3");
        CHECK(knows_only_ours(server));
        m.unlock();
        CHECK(eventually([&] { return server.command({"EXISTS", text}) == "0"; }));
        whole_life<distlock::handoff>(redis, text, {.fencing = true, .owner_info = label});
        CHECK(knows_only_ours(server));
        CHECK(server.command({"FLUSHALL"}) == "OK");
    }
}

TEMPLATE_TEST_CASE("no name is anything else to the server in the dialects of other clients", "",
                   distlock::plain, distlock::redis_semaphore, distlock::python_redis_lock, distlock::getset,
                   distlock::redisson) {
    const redis_server server;
    server.command({"CONFIG", "RESETSTAT"});
    hiredis_connection redis(server.uri() + patient);
    for (const std::string& text : hostile) {
        INFO(text);
        whole_life<TestType>(redis, text, {.fencing = true});
        CHECK(knows_only_ours(server));
        CHECK(server.command({"FLUSHALL"}) == "OK");
    }
}

TEST_CASE("one name is never a pattern: what is taken away is that lock alone") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    mutex bystander(redis, "abc", {.lease = 60s, .release = distlock::confirmed});
    REQUIRE(bystander.try_lock());
    for (const char* pattern : {"*", "???", "a*", "[a-z]bc", "abc\n", "ABC"}) {
        INFO(pattern);
        CHECK_FALSE(distlock::force_release(redis, pattern));
        CHECK_FALSE(distlock::inspect(redis, pattern).holder);
    }
    CHECK(bystander.unlock() == release_outcome::released);
}

TEST_CASE("a lock that somebody keeps without a TTL is taken from them by force") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    REQUIRE(server.command({"SET", "orders", "squatter"}) == "OK");
    mutex m(redis, "orders", {.lease = 60s});
    CHECK_FALSE(m.try_lock());
    CHECK(distlock::force_release(redis, "orders"));
    CHECK(m.try_lock());
}

TEST_CASE("no user and no password is a command, whatever it holds") {
    const redis_server server;
    for (const std::string& text : hostile) {
        const std::string password = text.substr(0, 200) + "\r\n" + set_injected;
        INFO(password);
        REQUIRE(server.command({"ACL", "SETUSER", "anna", "reset", "on", ">" + password, "~*", "+@all"}) ==
                "OK");
        hiredis_connection right("unix://anna:" + percent_encoded(password) + "@" + server.socket_path() +
                                 patient);
        CHECK(right.execute({"GET", "a"}).is(distlock::reply_kind::nil));
        hiredis_connection wrong("unix://" + percent_encoded(text.substr(0, 200)) + ":" +
                                 percent_encoded("x" + password) + "@" + server.socket_path() + patient);
        const auto refused = wrong.execute({"GET", "a"});
        CHECK(refused.is(distlock::reply_kind::not_sent));
        CHECK(refused.cause() == errc::authentication_failed);
        CHECK_THAT(refused.text(), !contains_text("redis.call("));
        CHECK_THAT(refused.text(), !contains_text("\n"));
        CHECK(server.command({"EXISTS", "injected"}) == "0");
    }
}

namespace {

// What a user of the other dialects needs, beside connecting, as .github/SECURITY.md lists it.
struct permissions {
    std::string commands;
    std::string keys;
};

template <class Dialect>
const permissions least{};
template <>
const permissions least<distlock::plain>{"SET GET DEL PTTL PEXPIRE INCRBY TIME EVAL EVALSHA",
                                         "~orders:* ~{orders:*}:distlock:*"};
template <>
const permissions least<distlock::go_zero> = least<distlock::plain>;
template <>
const permissions least<distlock::redis_semaphore>{least<distlock::plain>.commands,
                                                   "~mutex:orders:* ~{mutex:orders:*}:distlock:*"};
template <>
const permissions least<distlock::python_redis_lock>{
    "SET GET DEL PTTL PEXPIRE INCRBY TIME RPUSH EVAL EVALSHA",
    "~lock:orders:* ~lock-signal:orders:* ~{lock:orders:*}:distlock:*"};
template <>
const permissions least<distlock::getset>{"SET GET DEL PTTL PEXPIRE INCRBY TIME EVAL EVALSHA",
                                          "~orders:* ~{orders:*}:distlock:*"};

words user_with(const permissions& what) {
    words user{"ACL", "SETUSER", "worker", "reset", "resetchannels", "on", ">secret"};
    std::istringstream commands(what.commands);
    for (std::string one; commands >> one;) user.push_back("+" + one);
    std::istringstream keys(what.keys);
    for (std::string one; keys >> one;) user.push_back(one);
    return user;
}

template <class Dialect>
words least_user() {
    if constexpr (std::same_as<Dialect, distlock::handoff>) return user_in(".github/SECURITY.md");
    if constexpr (std::same_as<Dialect, distlock::redisson>) return user_in("examples/interop.md");
    return user_with(least<Dialect>);
}

}  // namespace

TEMPLATE_TEST_CASE("the least that a user must be allowed is enough, and is for the named locks only", "",
                   distlock::handoff, distlock::plain, distlock::go_zero, distlock::redis_semaphore,
                   distlock::python_redis_lock, distlock::getset, distlock::redisson) {
    // Redis 6.2 opens all channels to a new user, later servers none.
    const std::string channels = GENERATE(as<std::string>{}, "allchannels", "resetchannels");
    INFO(channels);
    const redis_server server(with({"--acl-pubsub-default", channels}));
    make(server, least_user<TestType>());
    hiredis_connection redis("unix://worker:secret@" + server.socket_path() + "?command_timeout=1s");
    for (const bool fencing : {false, true}) {
        INFO("fencing " << fencing);
        whole_life<TestType>(redis, "orders:42", {.fencing = fencing});
        // One that is renewed, and counts its fence on.
        mutex<hiredis_connection, TestType> m(redis, "orders:43", {.lease = 1500ms, .fencing = fencing});
        REQUIRE(m.try_lock());
        const auto first = m.valid_until();
        CHECK(eventually([&] { return m.valid_until() > first; }));
    }
    mutex<hiredis_connection, TestType> foreign(redis, "invoices:1", {.lease = 60s});
    std::error_code ec;
    CHECK_FALSE(foreign.try_lock(ec));
    CHECK(ec == errc::permission_denied);
}

// A hash of Redisson's was made first, and stayed for ever.
TEMPLATE_TEST_CASE("a user who may not set the end of a key leaves no lock that has none", "",
                   distlock::handoff, distlock::plain, distlock::go_zero, distlock::redis_semaphore,
                   distlock::python_redis_lock, distlock::getset, distlock::redisson) {
    const redis_server server;
    make(server, {"ACL", "SETUSER", "worker", "reset", "on", ">secret", "~*", "&*", "+@all", "-pexpire"});
    hiredis_connection redis("unix://worker:secret@" + server.socket_path() + patient);
    for (const bool fencing : {false, true}) {
        INFO("fencing " << fencing);
        mutex<hiredis_connection, TestType> m(redis, "orders:42", {.fencing = fencing});
        std::error_code ec;
        if (m.try_lock(ec)) {
            m.unlock();
        } else {
            CHECK(ec == errc::permission_denied);
        }
        CHECK(eventually([&] {
            return server.command({"EXISTS", TestType("orders:42", {}).name()}) == "0";
        }));
    }
}

TEST_CASE("a user of a database needs SELECT besides") {
    const redis_server server;
    make(server, least_user<distlock::handoff>());
    hiredis_connection redis("unix://worker:secret@" + server.socket_path() + patient + "&db=2");
    mutex m(redis, "orders:42");
    std::error_code ec;
    CHECK_FALSE(m.try_lock(ec));
    CHECK(ec == errc::permission_denied);
    make(server, {"ACL", "SETUSER", "worker", "+select"});
    CHECK(m.try_lock());
}

}  // namespace injection_tests
