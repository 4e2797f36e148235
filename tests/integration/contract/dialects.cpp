// What every dialect promises, beside another client that speaks it: its commands, as they were
// recorded on the server.
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <poll.h>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <distlock/base/key.hpp>
#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/interop.hpp>
#include <distlock/wire/getset.hpp>

#include "support/answered.hpp"
#include "support/catch.hpp"
#include "support/connection_fixtures.hpp"
#include "support/error_of.hpp"
#include "support/hiredis_test.hpp"
#include "support/history.hpp"
#include "support/lease_observers.hpp"
#include "support/redis_link.hpp"
#include "support/replicated_server.hpp"
#include "support/round_trip.hpp"
#include "support/sanitizers.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace dialects_tests {

using namespace std::chrono_literals;
using distlock::errc;
using distlock::lock_options;
using distlock::release_outcome;
using hiredis_test::confirmed;
using clk = distlock::clock;

namespace {

distlock::testing::redis_server& server() { return connection_fixtures::unix_server(); }

// A time-out bounds the whole call: in less than its round trips nobody learns who has the lock.
const std::chrono::milliseconds a_moment = 20ms + 4 * round_trip();

using words = std::vector<std::string>;

std::string ask(const words& command) {
    return server().command(std::vector<std::string_view>(command.begin(), command.end()));
}

constexpr const char* delete_mine =
    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) else return 0 end";

// A client that uses a string with a token. `milliseconds`: of its key.
template <class Dialect>
struct string_client {
    using dialect = Dialect;
    static bool take(const std::string& key, int milliseconds) {
        return ask({"SET", key, "theirs", "PX", std::to_string(milliseconds), "NX"}) == "OK";
    }
    static bool release(const std::string& key) {
        return ask({"EVAL", delete_mine, "1", key, "theirs"}) == "1";
    }
    static bool wrong_type(const std::string& key) { return ask({"HSET", key, "a", "1"}) == "1"; }
    static constexpr const char* types = "holds a hash where this lock needs a string";
};

struct with_plain : string_client<distlock::plain> {
    static std::string key(const std::string& name) { return name; }
};
struct with_handoff : string_client<distlock::handoff> {
    static std::string key(const std::string& name) { return name; }
};
struct with_go_zero : string_client<distlock::go_zero> {
    static std::string key(const std::string& name) { return name; }
};
struct with_redigo : string_client<distlock::redigo> {
    static std::string key(const std::string& name) { return "lock->" + name; }
};
struct with_redis_semaphore : string_client<distlock::redis_semaphore> {
    static std::string key(const std::string& name) { return "mutex:" + name; }
};
struct with_python_redis_lock : string_client<distlock::python_redis_lock> {
    static std::string key(const std::string& name) { return "lock:" + name; }
};

struct with_getset {
    using dialect = distlock::getset;
    static std::int64_t now() {
        const std::string time = ask({"TIME"});
        const auto line = time.find('\n');
        return std::stoll(time.substr(0, line)) * 1000 + std::stoll(time.substr(line + 1)) / 1000;
    }
    static std::string key(const std::string& name) { return name; }
    static bool take(const std::string& key, int milliseconds) {
        const auto stamp = std::to_string(now() + milliseconds + 1);
        if (ask({"SETNX", key, stamp}) == "1") return true;
        const auto present = ask({"GET", key});
        return std::stoll(present) < now() && ask({"GETSET", key, stamp}) == present;
    }
    static bool release(const std::string& key) { return ask({"DEL", key}) == "1"; }
    static bool wrong_type(const std::string& key) { return ask({"HSET", key, "a", "1"}) == "1"; }
    static constexpr const char* types = "holds a hash where this lock needs a string";
};

struct with_redisson {
    using dialect = distlock::redisson;
    static constexpr const char* field = "0f8fad5b-d9cb-469f-a165-70867728950e:1";
    static std::string key(const std::string& name) { return name; }
    // One script each, as Redisson's are: in between a waiter would meet a hash that counts nothing.
    static bool take(const std::string& key, int milliseconds) {
        return ask({"EVAL",
                    "if redis.call('exists', KEYS[1]) == 1 and redis.call('hexists', KEYS[1], ARGV[1]) == 0 "
                    "then return 0 end "
                    "redis.call('hincrby', KEYS[1], ARGV[1], 1) "
                    "return redis.call('pexpire', KEYS[1], ARGV[2])",
                    "1", key, field, std::to_string(milliseconds)}) == "1";
    }
    static bool release(const std::string& key) {
        return ask({"EVAL",
                    "if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end "
                    "if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then return 1 end "
                    "redis.call('del', KEYS[1]) "
                    "redis.call('publish', KEYS[2], 0) "
                    "return 1",
                    "2", key, "redisson_lock__channel:{" + key + "}", field}) == "1";
    }
    static bool wrong_type(const std::string& key) { return ask({"SET", key, "a"}) == "OK"; }
    static constexpr const char* types = "holds a string where this lock needs a hash";
};

// Of those that differ in the names of their keys one is enough for a sanitizer.
using alike = std::conditional_t<instrumented, std::tuple<with_plain>,
                                 std::tuple<with_plain, with_go_zero, with_redigo, with_redis_semaphore>>;
template <class... More>
using alike_and = decltype(std::tuple_cat(std::declval<alike>(), std::declval<std::tuple<More...>>()));
using all = alike_and<with_handoff, with_python_redis_lock, with_getset, with_redisson>;
// Those that keep something beside a lock.
using with_siblings = alike_and<with_handoff, with_python_redis_lock, with_getset>;
using without_line = alike_and<with_python_redis_lock, with_getset, with_redisson>;

template <class Row>
struct setting : Row {
    using lock = distlock::mutex<distlock::hiredis_connection, typename Row::dialect>;
    using recursive = distlock::recursive_mutex<distlock::hiredis_connection, typename Row::dialect>;
    distlock::hiredis_connection redis{uri_of(server())};
    std::string name = connection_fixtures::fresh_name("dialect");
    std::string key = Row::key(name);
    bool free() const {
        return eventually([&] { return !report().holder; });
    }
    distlock::lock_report report() const {
        distlock::hiredis_connection other{uri_of(server())};
        return distlock::inspect<typename Row::dialect>(other, name);
    }
};

// One acquisition, command by command.
template <class Dialect>
struct acquisition {
    using outcome = distlock::acquire_outcome;
    acquisition(distlock::hiredis_connection& connection, const std::string& name,
                const lock_options& options)
        : redis(connection), dialect(name, options) {}
    outcome take() { return dialect.read_acquire(distlock::execute(redis, dialect.acquire(owner))); }
    outcome look() { return dialect.read_look(distlock::execute(redis, dialect.look(owner))); }
    auto renew() { return dialect.read_renew(distlock::execute(redis, dialect.renew(owner))).what; }
    auto release() { return dialect.read_release(distlock::execute(redis, dialect.release(owner))); }

    distlock::hiredis_connection& redis;
    Dialect dialect;
    distlock::token owner = distlock::token::generate();
};
using got = distlock::acquire_outcome::kind;
using renewal = distlock::renew_outcome::kind;
constexpr lock_options usual{.lease = 30s};
const lock_options fenced_and_described{.lease = 30s, .fencing = true, .owner_info = "night job"};

std::int64_t ttl_beside(const std::string& key, const char* what) {
    return std::stoll(ask({"PTTL", distlock::key(key).sibling(what)}));
}

const replicated_server& replicated() {
    static const replicated_server one;
    return one;
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("a lock excludes the other client, and the other client excludes it", "", all) {
    setting<TestType> s;
    typename setting<TestType>::lock m{s.redis, s.name, confirmed};
    CHECK(m.name() == s.key);
    REQUIRE(m.try_lock());
    CHECK_FALSE(s.take(s.key, 10'000));
    CHECK_FALSE(typename setting<TestType>::lock(s.redis, s.name).try_lock());
    CHECK(m.unlock() == release_outcome::released);
    REQUIRE(s.take(s.key, 10'000));
    CHECK_FALSE(m.try_lock());
    CHECK_FALSE(answered([&] { return m.try_lock_for(a_moment); }));
    CHECK(s.release(s.key));
    CHECK(m.try_lock());
}

TEMPLATE_LIST_TEST_CASE("a waiter has the lock soon after the other client released it", "", all) {
    setting<TestType> s;
    typename setting<TestType>::lock m{s.redis, s.name, {.recheck = 20ms}};
    REQUIRE(s.take(s.key, 20'000));
    clk::time_point had{};
    std::jthread waiter([&] {
        m.lock();
        had = clk::now();
    });
    ::poll(nullptr, 0, 60);
    const auto released = clk::now();
    CHECK(s.release(s.key));
    waiter.join();
    CHECK(had - released < 150ms + round_trip_tolerance);
}

TEMPLATE_LIST_TEST_CASE("a waiter has the lock when the other client's time is over, and not before", "",
                        all) {
    setting<TestType> s;
    typename setting<TestType>::lock m{s.redis, s.name};
    const auto before = clk::now();
    REQUIRE(s.take(s.key, 200));
    const auto taken = clk::now();
    m.lock();
    CHECK(clk::now() - before >= 199ms);
    CHECK(clk::now() - taken < 1300ms + round_trip_tolerance);
}

TEMPLATE_LIST_TEST_CASE("a lock is renewed for as long as it is held, and what it is told of it holds", "",
                        all) {
    setting<TestType> s;
    typename setting<TestType>::lock m{s.redis, s.name, {.lease = brief_lease}};
    m.lock();
    const auto granted = m.valid_until();
    const auto seen = s.report();
    REQUIRE(seen.holder);
    CHECK(seen.holder->token.size() == 32);
    CHECK(seen.holder->holds == 1);
    REQUIRE(seen.remaining);
    CHECK(*seen.remaining <= brief_lease + 1500ms);  // go-zero's are whole seconds and a half
    bool always = true;
    const auto renewed_twice = [&] { return m.valid_until() > granted + brief_lease / 2; };
    CHECK(eventually([&] {
        always = always && !s.take(s.key, 10'000) && m.owns_lock();
        return renewed_twice() || !always;
    }));
    CHECK(always);
    CHECK(s.report().holder->token == seen.holder->token);
    m.unlock();
    CHECK(s.free());
}

TEMPLATE_LIST_TEST_CASE("a lock that the other client got after its time is neither freed nor renewed", "",
                        all) {
    setting<TestType> s;
    typename setting<TestType>::lock m{s.redis, s.name, {.lease = 250ms, .renew = false}};
    m.lock();
    REQUIRE(eventually([&] { return s.take(s.key, 20'000); }));
    const auto other = s.report().holder->token;
    CHECK(m.unlock() != release_outcome::released);
    CHECK(s.report().holder->token == other);
    CHECK_FALSE(m.try_lock());
    CHECK(s.release(s.key));
}

TEMPLATE_LIST_TEST_CASE("a lock that is deleted under its owner is lost", "", all) {
    setting<TestType> s;
    typename setting<TestType>::lock m{s.redis, s.name, {.lease = brief_lease}};
    m.lock();
    const auto lost = m.lost();
    ask({"DEL", s.key});
    CHECK(eventually([&] { return lost.stop_requested(); }));
    CHECK_FALSE(m.owns_lock());
    CHECK(m.unlock() == release_outcome::expired);
}

// With a stamp that nobody had replaced it said that somebody else has it.
TEMPLATE_LIST_TEST_CASE("a lock whose lease ran out, and that nobody took, is expired", "", all) {
    setting<TestType> s;
    typename setting<TestType>::lock m{
        s.redis, s.name, {.lease = 300ms, .renew = false, .release = distlock::confirmed}};
    m.lock();
    const auto until = m.valid_until() + 50ms;
    REQUIRE(eventually([&] { return distlock::clock::now() > until; }));
    CHECK(m.unlock() == release_outcome::expired);
}

TEMPLATE_LIST_TEST_CASE("an operator takes a lock away, and the owner is told who did", "", all) {
    setting<TestType> s;
    const auto heard = std::make_shared<recording_observer>();
    typename setting<TestType>::lock m{s.redis, s.name, {.lease = brief_lease}, heard};
    m.lock();
    const auto lost = m.lost();
    distlock::hiredis_connection other{uri_of(server())};
    CHECK(distlock::force_release<typename TestType::dialect>(other, s.name));
    if constexpr (std::is_same_v<TestType, with_python_redis_lock>)
        CHECK(ask({"PTTL", "lock-signal:" + s.name}) != "-1");
    CHECK_FALSE(distlock::force_release<typename TestType::dialect>(other, s.name));
    CHECK(s.take(s.key, 20'000));
    CHECK(eventually([&] { return lost.stop_requested(); }));
    if constexpr (std::is_same_v<TestType, with_redisson>) {
        // It keeps nothing beside a lock that could say so: a renewal finds nobody, or the next one.
        CHECK(eventually([&] { return !heard->heard().empty(); }));
        CHECK((heard->hears({"taken: " + m.name()}) || heard->hears({"expired: " + m.name()})));
    } else {
        CHECK(heard->hears({"forced: " + m.name()}));
    }
    CHECK(m.unlock() != release_outcome::released);
}

TEMPLATE_LIST_TEST_CASE(
    "the server knows from whom a lock was taken for as long as the lock would have lasted", "",
    with_siblings) {
    setting<TestType> s;
    typename setting<TestType>::lock m{s.redis, s.name, usual};
    m.lock();
    distlock::hiredis_connection other{uri_of(server())};
    CHECK(distlock::force_release<typename TestType::dialect>(other, s.name));
    CHECK(ttl_beside(s.key, "forced") > 20'000);
}

TEMPLATE_LIST_TEST_CASE("a lock that was unlocked before hold_at_least is over ends with that time", "",
                        all) {
    setting<TestType> s;
    const auto lease = GENERATE(2s, 200s);
    typename setting<TestType>::lock m{s.redis, s.name, {.lease = lease, .hold_at_least = 100s}};
    m.lock();
    CHECK(m.unlock() == release_outcome::posted);
    // getset's own key never ends.
    const auto key = std::is_same_v<TestType, with_getset> ? distlock::key(s.key).sibling("mine") : s.key;
    CHECK(eventually([&] {
        const auto left = std::stoll(ask({"PTTL", key}));
        return left > 90'000 && left <= 102'000;
    }));
}

// A fence must outlive clocks that are set back, by as much as the options say.
TEMPLATE_LIST_TEST_CASE("the fence of a lock that was unlocked before hold_at_least is over keeps its life",
                        "", with_siblings) {
    setting<TestType> s;
    typename setting<TestType>::lock m{
        s.redis, s.name, {.lease = 10h, .hold_at_least = 100s, .fencing = true}};
    m.lock();
    m.unlock();
    const auto key = std::is_same_v<TestType, with_getset> ? distlock::key(s.key).sibling("mine") : s.key;
    REQUIRE(eventually([&] { return std::stoll(ask({"PTTL", key})) <= 102'000; }));
    const auto left =
        std::chrono::milliseconds(std::stoll(ask({"PTTL", distlock::key(s.key).sibling("fence")})));
    CHECK(left > 100h);
}

// It reads that at its next renewal, which may come when a short lease is over.
TEMPLATE_LIST_TEST_CASE("the server knows for a second from whom a lock with a short lease was taken", "",
                        with_siblings) {
    setting<TestType> s;
    typename setting<TestType>::lock m{s.redis, s.name, {.lease = 500ms, .renew = false}};
    m.lock();
    distlock::hiredis_connection other{uri_of(server())};
    CHECK(distlock::force_release<typename TestType::dialect>(other, s.name));
    CHECK(ttl_beside(s.key, "forced") > 500);
}

TEMPLATE_LIST_TEST_CASE("a renewal lasts a whole lease for what says who the owner is, too", "",
                        with_siblings) {
    setting<TestType> s;
    acquisition<typename TestType::dialect> it{s.redis, s.name, fenced_and_described};
    REQUIRE(it.take().what == got::granted);
    for (const char* what : {"owner", "fence"}) {
        REQUIRE(ask({"PEXPIRE", distlock::key(s.key).sibling(what), "15000"}) == "1");
    }
    CHECK(it.renew() == renewal::kept);
    CHECK(ttl_beside(s.key, "owner") > 20'000);
    CHECK(ttl_beside(s.key, "fence") > 3'600'000);
}

TEMPLATE_LIST_TEST_CASE("a lock that was released leaves nothing but the fence", "", with_siblings) {
    setting<TestType> s;
    typename setting<TestType>::lock m{s.redis, s.name, fenced_and_described};
    m.lock();
    const auto beside = [&](const char* what) { return distlock::key(s.key).sibling(what); };
    REQUIRE(ask({"EXISTS", s.key, beside("owner"), beside("fence")}) == "3");
    m.unlock();
    CHECK(eventually([&] { return ask({"EXISTS", s.key, beside("owner"), beside("mine")}) == "0"; }));
    CHECK(ask({"EXISTS", beside("fence")}) == "1");
}

TEMPLATE_LIST_TEST_CASE(
    "a fence grows also where the last one is ahead of the server's clock, or is no number", "",
    with_siblings) {
    const std::uint64_t last = 9'007'199'254'740'993;  // no double has its last digit
    for (const auto& there : {std::to_string(last), std::string("garbage")}) {
        setting<TestType> s;
        const auto fence_key = distlock::key(s.key).sibling("fence");
        REQUIRE(ask({"SET", fence_key, there, "PX", "900000"}) == "OK");
        acquisition<typename TestType::dialect> it{s.redis, s.name, fenced_and_described};
        const auto outcome = it.take();
        REQUIRE(outcome.what == got::granted);
        CHECK(outcome.fence > (there == "garbage" ? 0 : last));
        CHECK(ask({"GET", fence_key}) == std::to_string(outcome.fence));
        CHECK(ttl_beside(s.key, "fence") > 3'600'000);
    }
}

// Redisson's kind was refused.
TEMPLATE_LIST_TEST_CASE("a server that is full grants what is ours again, renews it and takes it back", "",
                        all) {
    const distlock::testing::redis_server own;
    distlock::hiredis_connection redis{uri_of(own)};
    acquisition<typename TestType::dialect> it{redis, "a", usual};
    REQUIRE(it.take().what == got::granted);
    own.command({"CONFIG", "SET", "maxmemory", "1"});
    CHECK(it.look().what == got::granted);
    CHECK(it.renew() == renewal::kept);
    CHECK(it.release().what == release_outcome::released);
}

TEMPLATE_LIST_TEST_CASE("a replica never says of a lock that it is somebody else's, or gone", "", all) {
    distlock::hiredis_connection to_master{uri_of(replicated().master())};
    distlock::hiredis_connection to_replica{uri_of(replicated().replica())};
    const auto name = connection_fixtures::fresh_name("dialect");
    acquisition<typename TestType::dialect> holder{to_master, name, usual};
    acquisition<typename TestType::dialect> other{to_replica, name, usual};
    const auto says_nothing = [&] {
        for (const auto& outcome : {other.take(), other.look()}) {
            CHECK(outcome.what == got::later);
            CHECK(outcome.cause == errc::read_only);
        }
        CHECK(other.renew() == renewal::later);
        const auto verdict = other.release();
        CHECK(verdict.what == release_outcome::refused);
        CHECK(verdict.again);
    };
    says_nothing();
    REQUIRE(holder.take().what == got::granted);
    REQUIRE(eventually([&] {
        return replicated().replica().command({"EXISTS", TestType::key(name)}) == "1";
    }));
    says_nothing();
    other.owner = holder.owner;
    says_nothing();
    CHECK(holder.release().what == release_outcome::released);
}

// GETSET's took any string for a stamp that is past, and deleted it: another client's lock, too.
TEST_CASE("a string that is no time stamp is no lock of GETSET, and stays") {
    setting<with_getset> s;
    for (const std::string text : {"hello", "", "-5", "12x", "0123456789abcdef0123456789abcdef"}) {
        INFO(text);
        ask({"SET", s.key, text});
        std::error_code ec;
        CHECK_FALSE(distlock::force_release<distlock::getset>(s.redis, s.name, ec));
        CHECK(ec == errc::wrong_type);
        CHECK_FALSE(distlock::inspect<distlock::getset>(s.redis, s.name, ec).holder);
        CHECK(ec == errc::wrong_type);
        CHECK(ask({"GET", s.key}) == text);
    }
}

TEST_CASE("a stamp beyond all time is somebody else's, and no error") {
    setting<with_getset> s;
    setting<with_getset>::lock m{s.redis, s.name};
    ask({"SET", s.key, "99999999999999999999999"});
    std::error_code ec;
    CHECK_FALSE(m.try_lock(ec));
    CHECK_FALSE(ec);
    CHECK(s.report().holder);
    ask({"DEL", s.key});
}

// The other client counts itself as the owner until its stamp is past.
TEST_CASE("in the very millisecond of its stamp a lock is somebody else's, also to a late release") {
    setting<with_getset> s;
    const auto at = [&](const std::string& stamp,
                        const distlock::script& what = distlock::detail::getset_enter) {
        std::string script(what.text());
        const std::string time = "redis.call('time')";
        REQUIRE(script.find(time) != std::string::npos);
        script.replace(script.find(time), time.size(), "{'1700000000', '123456'}");
        ask({"SET", s.key, stamp});
        return ask({"EVAL", script, "4", s.key, s.key + ":mine", s.key + ":fence", s.key + ":owner", "token",
                    "30000", "0", ""});
    };
    CHECK(at("1700000000123") == "0\n1");
    CHECK(at("1700000000124") == "0\n2");
    CHECK(at("1700000000122") == "1\n");
    ask({"DEL", s.key, s.key + ":mine"});
    CHECK(at("1700000000123", distlock::detail::getset_release) == "-1");
    CHECK(at("1700000000124", distlock::detail::getset_release) == "-1");
    CHECK(at("1700000000122", distlock::detail::getset_release) == "0");
    ask({"DEL", s.key});
}

TEST_CASE("a stamp that is past is nobody's, and an operator removes it") {
    setting<with_getset> s;
    ask({"SET", s.key, "1000"});
    CHECK_FALSE(distlock::force_release<distlock::getset>(s.redis, s.name));
    CHECK(ask({"EXISTS", s.key}) == "0");
}

TEST_CASE("a read-write lock of Redisson that nobody has is none of ours, and stays") {
    setting<with_redisson> s;
    ask({"HSET", s.key, "mode", "read"});
    std::error_code ec;
    distlock::inspect<distlock::redisson>(s.redis, s.name, ec);
    CHECK(ec == errc::wrong_type);
    CHECK_FALSE(distlock::force_release<distlock::redisson>(s.redis, s.name, ec));
    CHECK(ec == errc::wrong_type);
    CHECK(ask({"HGET", s.key, "mode"}) == "read");
}

// Any hash of an application was waited for, shown as held and deleted.
TEST_CASE("a hash that Redisson's locks do not make is an error, not a lock, and stays") {
    setting<with_redisson> s;
    const auto fields = GENERATE(words{"name", "Anna"}, words{"count", "0"}, words{"count", "-1"},
                                 words{"a", "1", "b", "2"}, words{"a", ""});
    words make{"HSET", s.key};
    make.insert(make.end(), fields.begin(), fields.end());
    ask(make);
    const auto before = ask({"HGETALL", s.key});
    std::error_code ec;
    setting<with_redisson>::lock m{s.redis, s.name};
    CHECK_FALSE(m.try_lock(ec));
    CHECK(ec == errc::wrong_type);
    CHECK_FALSE(distlock::inspect<distlock::redisson>(s.redis, s.name, ec).holder);
    CHECK(ec == errc::wrong_type);
    CHECK_FALSE(distlock::force_release<distlock::redisson>(s.redis, s.name, ec));
    CHECK(ec == errc::wrong_type);
    CHECK(ask({"HGETALL", s.key}) == before);
}

namespace {

bool awaited(distlock::hiredis_connection& redis) {
    acquisition<distlock::redisson> it{redis, "a", usual};
    const auto outcome = it.take();
    REQUIRE(outcome.what == got::granted);
    CHECK(it.release().what == release_outcome::released);
    return outcome.awaited;
}

}  // namespace

TEST_CASE("a waiter of Redisson is counted whichever way it listens") {
    const bool sharded = GENERATE(false, true);
    const distlock::testing::redis_server own;
    distlock::hiredis_connection redis{uri_of(own)};
    CHECK_FALSE(awaited(redis));
    redis_link waits(own.socket_path());
    waits.subscribe("redisson_lock__channel:{a}", sharded);
    CHECK(awaited(redis));
}

// Who may not ask for listeners took it that there are none: waiters in Java starved behind
// threads of one process.
TEST_CASE("a user that may not count listeners takes it that somebody listens") {
    const distlock::testing::redis_server own;
    distlock::hiredis_connection redis{uri_of(own)};
    CHECK_FALSE(awaited(redis));
    own.command({"ACL", "SETUSER", "default", "-pubsub|shardnumsub"});
    CHECK_FALSE(awaited(redis));
    own.command({"ACL", "SETUSER", "default", "+pubsub|shardnumsub", "-pubsub|numsub"});
    CHECK(awaited(redis));
    own.command({"ACL", "SETUSER", "default", "-pubsub"});
    CHECK(awaited(redis));
}

// What python-redis-lock sets has none unless it is asked for one.
TEMPLATE_LIST_TEST_CASE("an operator takes away a lock without a TTL, too", "", all) {
    setting<TestType> s;
    REQUIRE(s.take(s.key, 20'000));
    ask({"PERSIST", s.key});
    REQUIRE(ask({"PTTL", s.key}) == "-1");
    CHECK(distlock::force_release<typename TestType::dialect>(s.redis, s.name));
    CHECK(ask({"EXISTS", s.key}) == "0");
}

TEMPLATE_LIST_TEST_CASE("a key of another type is an error that names key and types, and stays", "", all) {
    setting<TestType> s;
    typename setting<TestType>::lock m{s.redis, s.name};
    REQUIRE(s.wrong_type(s.key));
    const auto refused = error_of([&] { m.lock(); });
    CHECK(refused.code() == errc::wrong_type);
    INFO(refused.what());
    CHECK(std::string(refused.what()).find(s.key) != std::string::npos);
    CHECK(std::string(refused.what()).find(TestType::types) != std::string::npos);
    const std::string type = ask({"TYPE", s.key});
    for (const bool forced : {false, true}) {
        try {
            if (forced) distlock::force_release<typename TestType::dialect>(s.redis, s.name);
            if (!forced) distlock::inspect<typename TestType::dialect>(s.redis, s.name);
            FAIL("no error");
        } catch (const distlock::error& e) {
            INFO(e.what());
            CHECK(std::string(e.what()).find("the key holds a " + type) != std::string::npos);
        }
    }
    std::error_code ec;
    CHECK_FALSE(m.try_lock(ec));
    CHECK(ec == errc::wrong_type);
    CHECK(ask({"EXISTS", s.key}) == "1");
}

// A stamp has none, and needs none.
TEMPLATE_TEST_CASE("a holder without a TTL is reported, and left alone", "", with_plain, with_handoff,
                   with_go_zero, with_redigo, with_redis_semaphore, with_python_redis_lock, with_redisson) {
    setting<TestType> s;
    typename setting<TestType>::lock m{s.redis, s.name};
    REQUIRE(s.take(s.key, 60'000));
    REQUIRE(ask({"PERSIST", s.key}) == "1");
    std::error_code ec;
    CHECK_FALSE(m.try_lock(ec));
    CHECK(ec == errc::holder_without_ttl);
    CHECK_FALSE(answered(ec, [&] { return m.try_lock_for(a_moment, ec); }));
    CHECK(ec == errc::holder_without_ttl);
    CHECK(ask({"PTTL", s.key}) == "-1");
    CHECK_FALSE(s.report().remaining);
    CHECK(s.release(s.key));
    CHECK(m.try_lock());
}

TEMPLATE_LIST_TEST_CASE("fencing tokens grow over owners, and a lost lock has none that passes", "", all) {
    setting<TestType> s;
    std::uint64_t last = 0;
    for (int i = 0; i < 5; ++i) {
        typename setting<TestType>::lock m{
            s.redis, s.name, {.fencing = true, .release = distlock::confirmed}};
        m.lock();
        CHECK(m.fencing_token() > last);
        last = m.fencing_token();
        CHECK(s.report().fence == last);
        if (i == 2) ask({"DEL", s.key});
    }
}

TEMPLATE_LIST_TEST_CASE("a name that would be another lock's key, or none, is refused", "", all) {
    setting<TestType> s;
    using lock = typename setting<TestType>::lock;
    CHECK_THROWS_AS(lock(s.redis, ""), distlock::error);
    CHECK_THROWS_AS(lock(s.redis, std::string(5000, 'x')), distlock::error);
    CHECK_THROWS_AS(lock(s.redis, "{a}:distlock:mine"), distlock::error);
}

TEMPLATE_LIST_TEST_CASE("a recursive mutex is one hold for everybody else, and free after as many unlocks",
                        "", all) {
    setting<TestType> s;
    typename setting<TestType>::recursive m{s.redis, s.name, confirmed};
    m.lock();
    CHECK(m.try_lock());
    m.lock();
    CHECK(m.hold_count() == 3);
    CHECK(s.report().holder->holds == 1);
    CHECK_FALSE(s.take(s.key, 10'000));
    CHECK(m.unlock() == release_outcome::nested);
    CHECK(m.unlock() == release_outcome::nested);
    CHECK_FALSE(s.take(s.key, 10'000));
    CHECK(m.unlock() == release_outcome::released);
    CHECK(m.unlock() == release_outcome::not_held);
    CHECK(s.take(s.key, 10'000));
    CHECK(s.release(s.key));
}

TEMPLATE_LIST_TEST_CASE("processes that share a lock never have it at once", "", without_line) {
    setting<TestType> s;
    const auto told = take_turns(6, 30, [&](int, auto inside) {
        distlock::hiredis_connection redis{uri_of(server())};
        typename setting<TestType>::lock m{redis, s.name, {.recheck = 5ms}};
        m.lock();
        inside(m);
        m.unlock();
    });
    CHECK(told.grants == 180);
    CHECK(told.contended > 0);
    CHECK(told.text() == "");
}

TEMPLATE_LIST_TEST_CASE("guards of a recursive mutex nest, and the last one frees it", "", all) {
    setting<TestType> s;
    typename setting<TestType>::recursive m{s.redis, s.name, confirmed};
    {
        const distlock::scoped_lock outer{m};
        CHECK(outer.owns_lock());
        {
            const distlock::scoped_lock inner{m};
            CHECK(inner.owns_lock());
            CHECK(m.hold_count() == 2);
        }
        CHECK(outer.owns_lock());
        CHECK_FALSE(s.take(s.key, 10'000));
        const std::lock_guard standard{m};
        CHECK(m.hold_count() == 2);
    }
    CHECK(m.hold_count() == 0);
    CHECK(s.take(s.key, 10'000));
    CHECK(s.release(s.key));
}

// Of one dialect.

TEST_CASE("the TTL of a go-zero lock is whole seconds and a half, what is believed the lease") {
    setting<with_go_zero> s;
    setting<with_go_zero>::lock m{s.redis, s.name, {.lease = 1200ms, .renew = false}};
    m.lock();
    const auto ttl = std::stol(ask({"PTTL", s.key}));
    CHECK(ttl > 2000);
    CHECK(ttl <= 2500);
    CHECK(m.remaining() <= 1200ms);
}

TEST_CASE("a release wakes who waits in Python, and a signal nobody took is gone after a second") {
    setting<with_python_redis_lock> s;
    setting<with_python_redis_lock>::lock m{
        s.redis, s.name, {.owner_info = "night job", .release = distlock::confirmed}};
    m.lock();
    ask({"RPUSH", "lock-signal:" + s.name, "old", "older"});
    CHECK(m.unlock() == release_outcome::released);
    CHECK(ask({"LRANGE", "lock-signal:" + s.name, "0", "-1"}) == "1");
    const auto ttl = std::stol(ask({"PTTL", "lock-signal:" + s.name}));
    CHECK(ttl > 0);
    CHECK(ttl <= 1000);
    CHECK(ask({"EXISTS", s.key, "{" + s.key + "}:distlock:owner"}) == "0");
}

TEST_CASE("a release wakes who waits in Python also where the lease had run out") {
    setting<with_python_redis_lock> s;
    setting<with_python_redis_lock>::lock m{s.redis, s.name, {.release = distlock::confirmed}};
    m.lock();
    ask({"DEL", s.key});
    CHECK(m.unlock() == release_outcome::expired);
    CHECK(ask({"LRANGE", "lock-signal:" + s.name, "0", "-1"}) == "1");
    ask({"DEL", "lock-signal:" + s.name});
    CHECK_FALSE(distlock::force_release<distlock::python_redis_lock>(s.redis, s.name));
    CHECK(ask({"LRANGE", "lock-signal:" + s.name, "0", "-1"}) == "1");
}

TEST_CASE("a stamp is the time now, the lease and one, in Unix milliseconds, on a key without a TTL") {
    setting<with_getset> s;
    setting<with_getset>::lock m{s.redis, s.name, {.lease = 10s}};
    // As soon as all of it falls into one millisecond.
    std::int64_t before = 0;
    std::int64_t after = 1;
    REQUIRE(eventually([&] {
        if (m.owns_lock()) m.unlock();
        before = with_getset::now();
        m.lock();
        after = with_getset::now();
        return before == after || round_trip() > 0ms;
    }));
    const auto stamp = std::stoll(ask({"GET", s.key}));
    CHECK(stamp >= before + 10'001);
    CHECK(stamp <= after + 10'001);
    CHECK(ask({"PTTL", s.key}) == "-1");
}

TEST_CASE("a stamp that was shifted is not ours any more: it is heard, and left alone") {
    setting<with_getset> s;
    setting<with_getset>::lock m{s.redis, s.name, {.lease = brief_lease}};
    m.lock();
    const auto lost = m.lost();
    const auto shifted = std::to_string(std::stoll(ask({"GET", s.key})) + 3);
    CHECK_FALSE(ask({"GETSET", s.key, shifted}).empty());
    CHECK(eventually([&] { return lost.stop_requested(); }));
    CHECK(m.unlock() != release_outcome::released);
    CHECK(ask({"GET", s.key}) == shifted);
    CHECK(m.try_lock_for(2 * brief_lease));
}

TEST_CASE("a string that is no time stamp is an error, not a lock") {
    setting<with_getset> s;
    setting<with_getset>::lock m{s.redis, s.name};
    ask({"SET", s.key, "theirs"});
    std::error_code ec;
    CHECK_FALSE(m.try_lock(ec));
    CHECK(ec == errc::wrong_type);
    CHECK(ask({"GET", s.key}) == "theirs");
}

namespace {

// As getReadWriteLock(name).writeLock().lock() of Redisson, which asks for nothing but the mode.
const std::string writer_has_it = "mode\nwrite\n0f8fad5b-d9cb-469f-a165-70867728950e:1:write\n1";
void take_for_writing(const std::string& key) {
    REQUIRE(ask({"HEXISTS", key, "mode"}) == "0");
    ask({"HSET", key, "mode", "write", "0f8fad5b-d9cb-469f-a165-70867728950e:1:write", "1"});
    REQUIRE(ask({"PEXPIRE", key, "30000"}) == "1");
}

}  // namespace

// Redisson listens by SUBSCRIBE on a single server, and by SSUBSCRIBE on a Cluster.
TEST_CASE("a waiter of Redisson is woken when an operator takes the lock away") {
    const bool sharded = GENERATE(false, true);
    setting<with_redisson> s;
    redis_link waits(server().socket_path());
    waits.subscribe("redisson_lock__channel:{" + s.key + "}", sharded);
    REQUIRE(s.take(s.key, 20'000));
    REQUIRE(distlock::force_release<distlock::redisson>(s.redis, s.name));
    CHECK(waits.message());
}

TEST_CASE("a waiter of Redisson is woken by a release, whichever way it listens") {
    const bool sharded = GENERATE(false, true);
    setting<with_redisson> s;
    setting<with_redisson>::lock m{s.redis, s.name};
    redis_link waits(server().socket_path());
    waits.subscribe("redisson_lock__channel:{" + s.key + "}", sharded);
    m.lock();
    m.unlock();
    CHECK(waits.message());
}

// Ours waited for it as for a lock like itself, Redisson's was granted on top of ours, and the
// first release freed both.
TEST_CASE("a read-write lock of Redisson that has the name is an error that says so, and stays") {
    setting<with_redisson> s;
    setting<with_redisson>::lock m{s.redis, s.name, {.fencing = true}};
    take_for_writing(s.key);
    const auto refused = error_of([&] { m.lock(); });
    CHECK(refused.code() == errc::wrong_type);
    INFO(refused.what());
    CHECK(std::string(refused.what()).find("a read-write lock of Redisson holds this name") !=
          std::string::npos);
    std::error_code ec;
    CHECK_FALSE(m.try_lock_for(1s, ec));
    CHECK(ec == errc::wrong_type);
    CHECK_FALSE(distlock::inspect<distlock::redisson>(s.redis, s.name, ec).holder);
    CHECK(ec == errc::wrong_type);
    CHECK_FALSE(distlock::force_release<distlock::redisson>(s.redis, s.name, ec));
    CHECK(ec == errc::wrong_type);
    CHECK(ask({"HGETALL", s.key}) == writer_has_it);
    CHECK(std::stol(ask({"PTTL", s.key})) > 20'000);
    CHECK(ask({"EXISTS", "redisson_lock_token:{" + s.name + "}"}) == "0");
    ask({"DEL", s.key});
    CHECK(m.try_lock());
}

TEST_CASE("a read-write lock of Redisson that is granted on top of ours is our loss, and is left alone") {
    setting<with_redisson> s;
    setting<with_redisson>::lock m{s.redis, s.name, {.lease = brief_lease}};
    m.lock();
    const auto lost = m.lost();
    take_for_writing(s.key);
    CHECK(eventually([&] { return lost.stop_requested(); }));
    CHECK(eventually([&] { return ask({"HGETALL", s.key}) == writer_has_it; }));
    CHECK(m.unlock() == release_outcome::taken);
    CHECK(ask({"HGETALL", s.key}) == writer_has_it);
    CHECK(std::stol(ask({"PTTL", s.key})) > 20'000);
}

TEST_CASE("a release leaves a read-write lock of Redisson alone that was granted on top of ours") {
    setting<with_redisson> s;
    setting<with_redisson>::lock m{s.redis, s.name, {.release = distlock::confirmed}};
    m.lock();
    take_for_writing(s.key);
    CHECK(m.unlock() == release_outcome::taken);
    CHECK(ask({"HGETALL", s.key}) == writer_has_it);
}

TEST_CASE("a release is told on Redisson's channel, as it makes it of any name") {
    for (const auto& [name, channel] : {std::pair{"a", "redisson_lock__channel:{a}"},
                                        {"a{t}b", "redisson_lock__channel:a{t}b"},
                                        {"{", "redisson_lock__channel:{"},
                                        {"b}", "redisson_lock__channel:{b}}"}}) {
        distlock::hiredis_connection redis{uri_of(server())};
        using woken = distlock::listener::woken;
        distlock::listener heard(redis.subscribe(channel), "");
        REQUIRE(heard.wait(clk::now() + 10s, {}) == woken::by_confirmation);
        distlock::mutex<distlock::hiredis_connection, distlock::redisson> m{redis, name};
        m.lock();
        // By PUBLISH, and where the server has shards, by SPUBLISH.
        const bool shards = ask({"COMMAND", "INFO", "spublish"}).find("spublish") != std::string::npos;
        const char* const heard_on = channel;  // clang 14 captures no structured binding
        if (shards)
            CHECK(eventually([&] { return ask({"PUBSUB", "SHARDNUMSUB", heard_on}).ends_with("1"); }));
        CHECK(heard.wait(clk::now(), {}) == woken::by_time);
        m.unlock();
        CHECK(heard.wait(clk::now() + 10s, {}) == woken::by_message);
    }
}

TEST_CASE("a waiter is woken by a message, long before it would look") {
    setting<with_redisson> s;
    setting<with_redisson>::lock m{s.redis, s.name, {.recheck = 1h}};
    REQUIRE(s.take(s.key, 3'600'000));
    clk::time_point had{};
    std::jthread waiter([&] {
        m.lock();
        had = clk::now();
    });
    const std::string channel = "redisson_lock__channel:{" + s.key + "}";
    REQUIRE(eventually([&] { return ask({"PUBSUB", "NUMSUB", channel}) == channel + "\n1"; }));
    const auto released = clk::now();
    CHECK(s.release(s.key));
    waiter.join();
    CHECK(had - released < round_trip_tolerance);
}

TEST_CASE("a waiter whose subscription broke looks again when it is made anew") {
    setting<with_redisson> s;
    setting<with_redisson>::lock m{s.redis, s.name, {.recheck = 1h}};
    REQUIRE(s.take(s.key, 3'600'000));
    const std::string channel = "redisson_lock__channel:{" + s.key + "}";
    const auto subscribed = [&] { return ask({"PUBSUB", "NUMSUB", channel}) == channel + "\n1"; };
    bool had = false;
    std::jthread waiter([&] { had = m.try_lock_for(20s); });
    REQUIRE(eventually(subscribed));
    ask({"DEL", s.key});
    ask({"CLIENT", "KILL", "TYPE", "pubsub"});
    waiter.join();
    CHECK(had);
}

TEST_CASE("a wait for a message ends when it is stopped, and when its time is up") {
    setting<with_redisson> s;
    setting<with_redisson>::lock m{s.redis, s.name, {.recheck = 1h}};
    REQUIRE(s.take(s.key, 3'600'000));
    clk::time_point start;
    CHECK_FALSE(answered([&] {
        start = clk::now();
        return m.try_lock_for(100ms);
    }));
    CHECK(clk::now() - start >= 100ms);
    CHECK(clk::now() - start < 100ms + round_trip_tolerance);
    std::stop_source stop;
    std::error_code ec;
    std::jthread waiter([&] { m.lock(stop.get_token(), ec); });
    ::poll(nullptr, 0, 30);
    stop.request_stop();
    waiter.join();
    CHECK(ec == errc::cancelled);
    CHECK(s.release(s.key));
}

TEST_CASE("the label of an owner has no place in Redisson's hash") {
    distlock::hiredis_connection redis{uri_of(server())};
    using lock = distlock::mutex<distlock::hiredis_connection, distlock::redisson>;
    CHECK_THROWS_AS(lock(redis, "a", {.owner_info = "night job"}), distlock::error);
}

TEST_CASE(
    "a thread that had a recursive mutex and lost it is told before it adds a hold, and frees nobody's "
    "lock") {
    setting<with_plain> s;
    setting<with_plain>::recursive m{s.redis, s.name, {.lease = 250ms, .renew = false}};
    m.lock();
    m.lock();
    REQUIRE(eventually([&] { return !m.owns_lock(); }));
    std::error_code ec;
    CHECK_FALSE(m.lock(ec));
    CHECK(ec == errc::lease_expired);
    bool others = false;
    std::jthread([&] {
        m.lock();
        others = m.hold_count() == 1;
        others = others && m.unlock() != release_outcome::nested;
        others = others && m.unlock() == release_outcome::not_held;
    }).join();
    CHECK(others);
    CHECK(m.unlock() == release_outcome::nested);
    CHECK(m.unlock() == release_outcome::expired);
    CHECK(m.unlock() == release_outcome::not_held);
    CHECK(m.try_lock());
}

}  // namespace dialects_tests
