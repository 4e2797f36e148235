// The plain dialect's scripts on a real server: what they answer, what they leave behind, and what a server
// that refuses something makes of them.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/owner.hpp>
#include <distlock/base/token.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/testing.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/plain.hpp>
#include <distlock/wire/plain_inspector.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/report.hpp>

#include "support/catch.hpp"
#include "support/fresh_name.hpp"
#include "support/waiting.hpp"

namespace plain_scripts_tests {

using namespace std::chrono_literals;
using distlock::acquire_outcome;
using distlock::errc;
using distlock::hiredis_connection;
using distlock::lock_options;
using distlock::lock_report;
using distlock::plain;
using distlock::plain_inspector;
using distlock::release_outcome;
using distlock::reply;
using distlock::token;
using distlock::testing::redis_server;
using distlock::testing::redis_server_options;
using got = distlock::acquire_outcome::kind;
using renewal = distlock::renew_outcome::kind;

namespace {

const std::string patient = "?connect_timeout=20s&command_timeout=20s";
const std::string past_2_53 =
    "9007199254740993";  // no double holds it; the year 2255 as a time in microseconds
constexpr std::uint64_t past_2_53_number = 9007199254740993;
constexpr std::uint64_t fence_step = 250;  // of one that is ahead of the server's time

redis_server& shared() {
    static redis_server server;
    return server;
}

// One lock, one owner of it, and what a stranger sees of both.
struct lock {
    lock(const redis_server& server, hiredis_connection& connection, const std::string& name,
         const lock_options& options)
        : at(server), redis(connection), dialect(name, options), about(name) {}

    acquire_outcome take() {
        owner = token::generate();
        return dialect.read_acquire(distlock::execute(redis, dialect.acquire(owner)));
    }
    acquire_outcome look() { return dialect.read_look(distlock::execute(redis, dialect.look(owner))); }
    renewal renew() { return dialect.read_renew(distlock::execute(redis, dialect.renew(owner))).what; }
    distlock::release_verdict release() {
        return dialect.read_release(distlock::execute(redis, dialect.release(owner)));
    }
    reply ask_report() { return distlock::execute(redis, about.inspect()); }
    lock_report report() {
        const reply answer = ask_report();
        INFO(answer.text());
        const auto read = about.read_inspect(answer);
        REQUIRE(read);
        return *read;
    }
    errc trouble_of_report() { return acquire_outcome::failure(ask_report()).cause; }
    errc trouble_of_force() { return acquire_outcome::failure(ask_force()).cause; }
    reply ask_force() { return distlock::execute(redis, about.force_release()); }
    std::optional<bool> force() { return about.read_force_release(ask_force()); }
    bool was_forced() { return about.was_forced(distlock::execute(redis, about.forced()), owner); }

    const std::string& name() const { return dialect.name(); }
    std::string fence_key() const { return "{" + name() + "}:distlock:fence"; }
    std::string owner_key() const { return "{" + name() + "}:distlock:owner"; }
    std::string mark_key() const { return "{" + name() + "}:distlock:forced"; }
    std::string owner_text() const {
        return std::string(owner.view()) + "\n" + distlock::describe_owner(label);
    }

    std::string get(const std::string& key) const { return at.command({"GET", key}); }
    bool exists(const std::string& key) const { return at.command({"EXISTS", key}) == "1"; }
    std::int64_t ttl(const std::string& key) const { return std::stoll(at.command({"PTTL", key})); }
    void set(const std::string& key, const std::string& value) const { at.command({"SET", key, value}); }
    bool is_ours() const { return get(name()) == owner.view(); }

    static constexpr const char* label = "night job";
    const redis_server& at;
    hiredis_connection& redis;
    plain dialect;
    plain_inspector about;
    token owner = token::generate();
};

const lock_options bare{.lease = 30s};
const lock_options fenced{.lease = 30s, .fencing = true};
const lock_options labelled{.lease = 30s, .owner_info = lock::label};
const lock_options all{.lease = 30s, .fencing = true, .owner_info = lock::label};
constexpr std::int64_t lease = 30'000;
constexpr std::int64_t fence_life = 3'900'000;

// A TTL that was set to `full` within the last ten seconds.
bool just_set(std::int64_t ttl, std::int64_t full) { return ttl <= full && ttl > full - 10'000; }

std::uint64_t time_of(const redis_server& server) {
    const std::string time = server.command({"TIME"});
    const auto line = time.find('\n');
    return std::stoull(time.substr(0, line)) * 1'000'000 + std::stoull(time.substr(line + 1));
}

// How often anything was written since the server started.
std::string changes(const redis_server& server) {
    const std::string info = server.command({"INFO", "persistence"});
    const auto at = info.find("rdb_changes_since_last_save:");
    return info.substr(at, info.find('\r', at) - at);
}

}  // namespace

// The fence.

TEST_CASE("a fence grows with every acquisition") {
    hiredis_connection redis(shared().uri() + patient);
    const auto name = fresh_name();
    lock one(shared(), redis, name, fenced);
    lock other(shared(), redis, name, all);
    std::uint64_t last = 0;
    bool grows = true;
    for (int i = 0; i < 500; ++i) {
        for (lock* taker : {&one, &other}) {
            const auto outcome = taker->take();
            grows = grows && outcome.what == got::granted && outcome.fence > last;
            last = outcome.fence;
            grows = grows && taker->release().what == release_outcome::released;
        }
    }
    CHECK(grows);
    CHECK(one.get(one.fence_key()) == std::to_string(last));
}

TEST_CASE("a fence is the server's time in microseconds where that is ahead") {
    hiredis_connection redis(shared().uri() + patient);
    lock it(shared(), redis, fresh_name(), fenced);
    it.set(it.fence_key(), "17");
    const auto before = time_of(shared());
    const auto outcome = it.take();
    CHECK(outcome.what == got::granted);
    CHECK(outcome.fence >= before);
    CHECK(outcome.fence <= time_of(shared()));
    CHECK(it.get(it.fence_key()) == std::to_string(outcome.fence));
}

TEST_CASE("a fence that is ahead of the server's time grows by 250, to the last digit") {
    hiredis_connection redis(shared().uri() + patient);
    lock it(shared(), redis, fresh_name(), all);
    it.set(it.fence_key(), past_2_53);
    for (std::uint64_t i = 1; i <= 5; ++i) {
        const std::uint64_t expected = past_2_53_number + i * fence_step;
        CHECK(it.take().fence == expected);
        CHECK(it.get(it.fence_key()) == std::to_string(expected));
        CHECK(it.report().fence == expected);
        CHECK(just_set(it.ttl(it.fence_key()), fence_life));
        CHECK(it.release().what == release_outcome::released);
    }
    it.set(it.fence_key(), std::to_string(9223372036854775807U - fence_step));
    CHECK(it.take().fence == 9223372036854775807U);
    it.release();
}

TEST_CASE("a fence grows although the last one was lost") {
    hiredis_connection redis(shared().uri() + patient);
    lock it(shared(), redis, fresh_name(), fenced);
    std::uint64_t last = it.take().fence;
    it.release();
    for (int i = 0; i < 10; ++i) {
        shared().command({"DEL", it.fence_key()});
        const auto outcome = it.take();
        CHECK(outcome.fence > last);
        last = outcome.fence;
        it.release();
    }
}

TEST_CASE("a value at the fence's key that is no number is replaced by the time") {
    hiredis_connection redis(shared().uri() + patient);
    for (const char* text : {"", "garbage", "-5", "0", "nan", "inf", "1e300", "0x7fffffffffffffff", " 12",
                             "9007199254740993 ", "9007199254740993.5", "09007199254740993", "12\n"}) {
        INFO("\"" << text << "\"");
        lock it(shared(), redis, fresh_name(), fenced);
        it.set(it.fence_key(), text);
        const auto before = time_of(shared());
        const auto outcome = it.take();
        CHECK(outcome.what == got::granted);
        CHECK(outcome.fence >= before);
        CHECK(outcome.fence <= time_of(shared()));
        CHECK(just_set(it.ttl(it.fence_key()), fence_life));
    }
}

TEST_CASE("a fence that was spoilt while the lock is ours is made anew when we ask again") {
    hiredis_connection redis(shared().uri() + patient);
    lock it(shared(), redis, fresh_name(), fenced);
    const auto first = it.take();
    it.set(it.fence_key(), "garbage");
    const auto spoilt = it.look();
    CHECK(spoilt.what == got::granted);
    CHECK(spoilt.fence > first.fence);
    shared().command({"DEL", it.fence_key()});
    const auto gone = it.look();
    CHECK(gone.what == got::granted);
    CHECK(gone.fence > spoilt.fence);
}

TEST_CASE("a fence that cannot grow is an error before anything is written") {
    hiredis_connection redis(shared().uri() + patient);
    for (const char* text : {"9223372036854775807", "9223372036854775808", "99999999999999999999999"}) {
        INFO(text);
        lock it(shared(), redis, fresh_name(), all);
        it.set(it.fence_key(), text);
        const auto outcome = it.take();
        CHECK(outcome.what == got::refused);
        CHECK(outcome.cause == errc::server_error);
        CHECK_FALSE(it.exists(it.name()));
        CHECK_FALSE(it.exists(it.owner_key()));
        CHECK(it.get(it.fence_key()) == text);
        CHECK(it.ttl(it.fence_key()) == -1);
    }
}

TEST_CASE("another type at the fence's key is an error before anything is written") {
    hiredis_connection redis(shared().uri() + patient);
    lock it(shared(), redis, fresh_name(), all);
    shared().command({"RPUSH", it.fence_key(), "x"});
    const auto outcome = it.take();
    CHECK(outcome.what == got::refused);
    CHECK(outcome.cause == errc::wrong_type);
    CHECK_FALSE(it.exists(it.name()));
    CHECK_FALSE(it.exists(it.owner_key()));
    CHECK(shared().command({"TYPE", it.fence_key()}) == "list");
}

// Taking.

TEST_CASE("the server keeps the fence of a lock for an hour and ten leases, the owner info for the lease") {
    hiredis_connection redis(shared().uri() + patient);
    lock it(shared(), redis, fresh_name(), all);
    const auto outcome = it.take();
    CHECK(outcome.what == got::granted);
    CHECK(it.is_ours());
    CHECK(it.get(it.owner_key()) == it.owner_text());
    CHECK(it.get(it.fence_key()) == std::to_string(outcome.fence));
    CHECK(just_set(it.ttl(it.name()), lease));
    CHECK(just_set(it.ttl(it.owner_key()), lease));
    CHECK(just_set(it.ttl(it.fence_key()), fence_life));
}

TEST_CASE("nothing is kept beside a lock that was not asked for") {
    hiredis_connection redis(shared().uri() + patient);
    lock neither(shared(), redis, fresh_name(), bare);
    CHECK(neither.take().what == got::granted);
    CHECK_FALSE(neither.exists(neither.fence_key()));
    CHECK_FALSE(neither.exists(neither.owner_key()));
    lock counted(shared(), redis, fresh_name(), fenced);
    CHECK(counted.take().fence != 0);
    CHECK_FALSE(counted.exists(counted.owner_key()));
    lock named(shared(), redis, fresh_name(), labelled);
    const auto outcome = named.take();
    CHECK(outcome.what == got::granted);
    CHECK(outcome.fence == 0);
    CHECK_FALSE(named.exists(named.fence_key()));
    CHECK(named.get(named.owner_key()) == named.owner_text());
}

TEST_CASE("asked again with the same token, a lock has the same fence and a whole lease") {
    hiredis_connection redis(shared().uri() + patient);
    for (const auto& options : {bare, fenced, labelled, all}) {
        lock it(shared(), redis, fresh_name(), options);
        const auto first = it.take();
        shared().command({"PEXPIRE", it.name(), "15000"});
        const auto again = it.look();
        CHECK(again.what == got::granted);
        CHECK(again.fence == first.fence);
        CHECK(it.is_ours());
        CHECK(just_set(it.ttl(it.name()), lease));
        if (!options.owner_info.empty()) {
            CHECK(it.get(it.owner_key()) == it.owner_text());
            CHECK(just_set(it.ttl(it.owner_key()), lease));
        }
    }
}

TEST_CASE("a lock that is taken says for how long, and nothing beside it changes") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    for (const auto& options : {bare, fenced, labelled, all}) {
        const auto name = fresh_name();
        lock holder(server, redis, name, all);
        lock waiter(server, redis, name, options);
        holder.take();
        const auto fence = holder.get(holder.fence_key());
        const auto before = changes(server);
        const auto busy = waiter.look();
        CHECK(busy.what == got::busy);
        REQUIRE(busy.ttl);
        CHECK(just_set(busy.ttl->count(), lease));
        CHECK(waiter.take().what == got::busy);
        CHECK(changes(server) == before);
        CHECK(holder.is_ours());
        CHECK(holder.get(holder.fence_key()) == fence);
        CHECK(holder.get(holder.owner_key()) == holder.owner_text());

        server.command({"SET", name, "for ever"});
        const auto for_ever = waiter.look();
        CHECK(for_ever.what == got::busy);
        REQUIRE(for_ever.ttl);
        CHECK(for_ever.ttl->count() == -1);
        CHECK(server.command({"GET", name}) == "for ever");
        CHECK(waiter.ttl(name) == -1);
    }
}

TEST_CASE("a key of another type is an error to every script, and stays") {
    hiredis_connection redis(shared().uri() + patient);
    for (const auto& options : {bare, fenced, labelled, all}) {
        lock it(shared(), redis, fresh_name(), options);
        shared().command({"HSET", it.name(), "a", "b"});
        const auto outcome = it.look();
        CHECK(outcome.what == got::refused);
        CHECK(outcome.cause == errc::wrong_type);
        CHECK(it.renew() == renewal::taken);
        CHECK(it.release().what == release_outcome::refused);
        CHECK(it.trouble_of_report() == errc::wrong_type);
        CHECK(it.trouble_of_force() == errc::wrong_type);
        CHECK(shared().command({"HGETALL", it.name()}) == "a\nb");
        CHECK(it.ttl(it.name()) == -1);
        CHECK_FALSE(it.exists(it.fence_key()));
        CHECK_FALSE(it.exists(it.owner_key()));
        CHECK_FALSE(it.exists(it.mark_key()));
    }
}

TEST_CASE("any bytes may stand in a name and in an owner's text") {
    hiredis_connection redis(shared().uri() + patient);
    const std::string name = fresh_name() + std::string("\0\r\n*1\r\n\xff", 8);
    const std::string text("\0\n\r\n\xff", 5);
    lock it(shared(), redis, name, {.lease = 30s, .fencing = true, .owner_info = text});
    CHECK(it.take().what == got::granted);
    CHECK(it.is_ours());
    const auto report = it.report();
    REQUIRE(report.holder);
    CHECK(report.holder->label == text);
    CHECK(it.renew() == renewal::kept);
    CHECK(it.release().what == release_outcome::released);
}

// Giving back.

TEST_CASE("a release takes the owner's text with it and leaves the fence") {
    hiredis_connection redis(shared().uri() + patient);
    lock it(shared(), redis, fresh_name(), all);
    const auto fence = it.take().fence;
    CHECK(it.release().what == release_outcome::released);
    CHECK_FALSE(it.exists(it.name()));
    CHECK_FALSE(it.exists(it.owner_key()));
    CHECK(it.get(it.fence_key()) == std::to_string(fence));
    CHECK(it.ttl(it.fence_key()) > lease);
    CHECK(it.release().what == release_outcome::expired);
}

// The server knew only the fence it had given: with its clock set back a little, it gave one
// that was used already.
TEST_CASE("a release and a renewal keep the largest fence that was used since, and the next one is larger") {
    hiredis_connection redis(shared().uri() + patient);
    for (const auto& options : {fenced, all}) {
        for (const bool renews : {false, true}) {
            for (const char* last : {"", "9", "garbage"}) {
                INFO((renews ? "renewal, " : "release, ") << last);
                lock it(shared(), redis, fresh_name(), options);
                const std::uint64_t used =
                    it.take().fence + 3'600'000'000;  // of a clock that was an hour ahead
                if (*last != '\0') it.set(it.fence_key(), last);
                it.owner.fence(used);
                if (renews) {
                    CHECK(it.renew() == renewal::kept);
                    CHECK(it.is_ours());
                    CHECK(just_set(it.ttl(it.name()), lease));
                } else {
                    CHECK(it.release().what == release_outcome::released);
                    CHECK_FALSE(it.exists(it.name()));
                    CHECK_FALSE(it.exists(it.owner_key()));
                }
                CHECK(it.get(it.fence_key()) == std::to_string(used));
                CHECK(just_set(it.ttl(it.fence_key()), fence_life));
                shared().command({"DEL", it.name()});
                CHECK(it.take().fence > used);
            }
        }
    }
}

TEST_CASE("a fence that was used is never put in the place of a larger one, to the last digit") {
    hiredis_connection redis(shared().uri() + patient);
    lock it(shared(), redis, fresh_name(), fenced);
    for (const bool renews : {false, true}) {
        it.take();
        it.set(it.fence_key(), past_2_53);
        for (const std::uint64_t used : {past_2_53_number - 1, std::uint64_t{9}, past_2_53_number}) {
            it.owner.fence(used);
            CHECK((renews ? it.renew() == renewal::kept : it.release().what != release_outcome::refused));
            CHECK(it.get(it.fence_key()) == past_2_53);
        }
        shared().command({"DEL", it.name()});
        it.take();
        it.set(it.fence_key(), std::to_string(past_2_53_number - 1));
        it.owner.fence(past_2_53_number);
        CHECK((renews ? it.renew() == renewal::kept : it.release().what == release_outcome::released));
        CHECK(it.get(it.fence_key()) == past_2_53);
        it.release();
    }
}

TEST_CASE("a fence that the server cannot keep is no reason to keep a lock, nor to lose one") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    for (const auto& options : {fenced, all}) {
        for (const char* trouble : {"out of memory", "another type"}) {
            INFO(trouble);
            lock it(server, redis, fresh_name(), options);
            it.owner.fence(it.take().fence + 3'600'000'000);
            if (*trouble == 'o') {
                server.command({"CONFIG", "SET", "maxmemory", "1"});
            } else {
                server.command({"DEL", it.fence_key()});
                server.command({"RPUSH", it.fence_key(), "somebody's"});
            }
            CHECK(it.renew() == renewal::kept);
            CHECK(it.release().what == release_outcome::released);
            CHECK_FALSE(it.exists(it.name()));
            if (*trouble == 'a') CHECK(server.command({"LLEN", it.fence_key()}) == "1");
            server.command({"CONFIG", "SET", "maxmemory", "0"});
        }
    }
}

TEST_CASE("a release leaves alone what somebody else has, and all beside it") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    for (const auto& options : {bare, fenced, labelled, all}) {
        const auto name = fresh_name();
        lock holder(server, redis, name, all);
        lock stranger(server, redis, name, options);
        holder.take();
        const auto before = changes(server);
        CHECK(stranger.release().what == release_outcome::taken);
        CHECK(changes(server) == before);
        CHECK(holder.is_ours());
        CHECK(holder.get(holder.owner_key()) == holder.owner_text());
    }
}

// Renewing.

TEST_CASE("a renewal gives the lock and what is beside it their whole time again") {
    hiredis_connection redis(shared().uri() + patient);
    for (const auto& options : {bare, fenced, labelled, all}) {
        lock it(shared(), redis, fresh_name(), options);
        const auto fence = it.take().fence;
        for (const auto& key : {it.name(), it.fence_key(), it.owner_key()}) {
            shared().command({"PEXPIRE", key, "15000"});
        }
        CHECK(it.renew() == renewal::kept);
        CHECK(it.is_ours());
        CHECK(just_set(it.ttl(it.name()), lease));
        CHECK(it.exists(it.fence_key()) == options.fencing);
        if (options.fencing) {
            CHECK(just_set(it.ttl(it.fence_key()), fence_life));
            CHECK(it.get(it.fence_key()) == std::to_string(fence));
        }
        if (!options.owner_info.empty()) {
            CHECK(just_set(it.ttl(it.owner_key()), lease));
            CHECK(it.get(it.owner_key()) == it.owner_text());
        }
        CHECK(it.exists(it.owner_key()) == !options.owner_info.empty());
    }
}

TEST_CASE("a renewal leaves a fence and an owner's text alone that it did not make") {
    hiredis_connection redis(shared().uri() + patient);
    for (const auto& options : {bare, fenced, labelled}) {
        lock it(shared(), redis, fresh_name(), options);
        it.take();
        if (!options.fencing) shared().command({"SET", it.fence_key(), past_2_53, "PX", "900000"});
        if (options.owner_info.empty()) shared().command({"SET", it.owner_key(), "x", "PX", "900000"});
        CHECK(it.renew() == renewal::kept);
        if (!options.fencing) {
            CHECK(it.get(it.fence_key()) == past_2_53);
            CHECK(just_set(it.ttl(it.fence_key()), 900'000));
        }
        if (options.owner_info.empty()) {
            CHECK(it.get(it.owner_key()) == "x");
            CHECK(just_set(it.ttl(it.owner_key()), 900'000));
        }
        CHECK(it.release().what == release_outcome::released);
        CHECK(it.exists(it.owner_key()) == options.owner_info.empty());
        if (!options.fencing) CHECK(it.get(it.fence_key()) == past_2_53);
    }
}

TEST_CASE("a renewal of what is not ours changes nothing") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    for (const auto& options : {bare, fenced, labelled, all}) {
        const auto name = fresh_name();
        lock holder(server, redis, name, all);
        lock stranger(server, redis, name, options);

        const auto at_first = changes(server);
        CHECK(stranger.renew() == renewal::gone);
        CHECK(server.command({"EXISTS", name}) == "0");
        CHECK(changes(server) == at_first);

        holder.take();
        const auto held = changes(server);
        CHECK(stranger.renew() == renewal::taken);
        CHECK(holder.is_ours());
        CHECK(holder.ttl(name) > 1'000);
        CHECK(changes(server) == held);

        // A prefix of our token is not our token, and what has no TTL gets none from us.
        const std::string prefix(stranger.owner.view().substr(0, 16));
        server.command({"SET", name, prefix});
        CHECK(stranger.renew() == renewal::taken);
        CHECK(server.command({"GET", name}) == prefix);
        CHECK(stranger.ttl(name) == -1);
    }
}

// Servers that refuse.

TEST_CASE("a replica never says of a plain lock that it is somebody else's, or gone") {
    const redis_server master({.tcp = true, .arguments = {"--repl-diskless-sync-delay", "0"}});
    const redis_server replica;
    hiredis_connection to_master(master.uri() + patient);
    hiredis_connection to_replica(replica.uri() + patient);
    replica.command({"REPLICAOF", "127.0.0.1", std::to_string(master.port())});
    REQUIRE(eventually([&] {
        return replica.command({"INFO", "replication"}).find("master_link_status:up") != std::string::npos;
    }));
    for (const auto& options : {bare, fenced, labelled, all}) {
        const auto name = fresh_name();
        lock holder(master, to_master, name, all);
        lock ours(replica, to_replica, name, options);
        const auto read_only = [](const acquire_outcome& outcome) {
            return outcome.what == got::later && outcome.cause == errc::read_only;
        };
        const auto refuses_all = [&] {
            CHECK(read_only(ours.look()));
            CHECK(ours.renew() == renewal::later);
            const auto verdict = ours.release();
            CHECK(verdict.what == release_outcome::refused);
            CHECK(verdict.again);
            CHECK_FALSE(verdict.in_doubt);
            CHECK(ours.trouble_of_force() == errc::read_only);
        };
        {
            INFO("free");
            refuses_all();
            CHECK_FALSE(ours.report().holder);
        }
        holder.take();
        REQUIRE(eventually([&] { return ours.get(name) == holder.owner.view(); }));
        {
            INFO("somebody else's");
            refuses_all();
            const auto report = ours.report();
            REQUIRE(report.holder);
            CHECK(report.holder->token == holder.owner.view());
            CHECK(report.holder->label == lock::label);
            CHECK(read_only(ours.take()));
        }
        ours.owner = holder.owner;
        {
            INFO("ours");
            refuses_all();
        }
        CHECK(holder.is_ours());
        CHECK(ours.is_ours());
        CHECK_FALSE(holder.exists(holder.mark_key()));
    }
}

TEST_CASE("out of memory, a lock of ours is renewed and released, and no lock is taken") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const auto memory = [&](const char* limit) { server.command({"CONFIG", "SET", "maxmemory", limit}); };
    for (const auto& options : {bare, fenced, labelled, all}) {
        memory("0");
        lock ours(server, redis, fresh_name(), options);
        lock theirs(server, redis, fresh_name(), all);
        lock stranger(server, redis, theirs.name(), options);
        const auto fence = ours.take().fence;
        theirs.take();
        memory("1");
        server.command({"PEXPIRE", ours.name(), "15000"});
        CHECK(ours.renew() == renewal::kept);
        CHECK(just_set(ours.ttl(ours.name()), lease));
        const auto again = ours.look();
        CHECK(again.what == got::granted);
        CHECK(again.fence == fence);
        CHECK(ours.release().what == release_outcome::released);
        CHECK_FALSE(ours.exists(ours.name()));
        CHECK_FALSE(ours.exists(ours.owner_key()));

        CHECK(stranger.look().what == got::busy);
        CHECK(stranger.renew() == renewal::taken);
        CHECK(stranger.release().what == release_outcome::taken);
        CHECK(theirs.is_ours());

        // No fence yet, one behind the time, one ahead of it.
        for (const char* last : {"", "17", past_2_53.c_str()}) {
            INFO(last);
            memory("0");
            lock late(server, redis, fresh_name(), options);
            if (*last != '\0') late.set(late.fence_key(), last);
            memory("1");
            for (const auto& outcome : {late.take(), late.look()}) {
                CHECK(outcome.what == got::refused);
                CHECK(outcome.cause == errc::out_of_memory);
            }
            CHECK_FALSE(late.exists(late.name()));
            CHECK_FALSE(late.exists(late.owner_key()));
            CHECK(late.get(late.fence_key()) == (*last != '\0' ? last : "(nil)"));
        }
    }
}

TEST_CASE("out of memory, a lock can be taken away by force, and its owner is told") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    lock it(server, redis, fresh_name(), all);
    it.take();
    server.command({"CONFIG", "SET", "maxmemory", "1"});
    CHECK(it.force() == true);
    CHECK_FALSE(it.exists(it.name()));
    CHECK_FALSE(it.exists(it.owner_key()));
    CHECK(it.was_forced());
}

TEST_CASE("a server that refuses writes leaves every lock as it is, and still knows whose it is") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    // What cannot be saved must not be written: MISCONF.
    std::filesystem::create_directory(server.folder() + "/dump.rdb");
    server.command({"CONFIG", "SET", "save", "3600 100000"});
    server.command({"BGSAVE"});
    REQUIRE(eventually([&] {
        return server.command({"INFO", "persistence"}).find("rdb_last_bgsave_status:err") !=
               std::string::npos;
    }));
    const auto refuse = [&](const char* what) {
        REQUIRE(server.command({"CONFIG", "SET", "stop-writes-on-bgsave-error", what}) == "OK");
    };
    for (const auto& options : {bare, fenced, labelled, all}) {
        refuse("no");
        lock ours(server, redis, fresh_name(), options);
        lock theirs(server, redis, fresh_name(), all);
        lock stranger(server, redis, theirs.name(), options);
        lock late(server, redis, fresh_name(), options);
        ours.take();
        theirs.take();
        refuse("yes");
        const auto before = changes(server);
        CHECK(ours.renew() == renewal::later);
        CHECK(ours.release().what == release_outcome::refused);
        CHECK(ours.trouble_of_force() == errc::writes_refused);
        CHECK(late.take().cause == errc::writes_refused);
        CHECK(late.look().cause == errc::writes_refused);
        CHECK(stranger.look().what == got::busy);
        CHECK(stranger.renew() == renewal::taken);
        CHECK(stranger.release().what == release_outcome::taken);
        CHECK(changes(server) == before);
        CHECK(ours.is_ours());
        CHECK(theirs.is_ours());
    }
}

// Permissions.

namespace {

const std::vector<std::string> without_fencing{"eval", "evalsha", "get", "set", "del", "pexpire", "pttl"};
const std::vector<std::string> needed{"eval",    "evalsha", "get",    "set", "del",
                                      "pexpire", "pttl",    "incrby", "time"};

// A server with a user who may run these commands and no others.
struct guarded {
    explicit guarded(const std::vector<std::string>& commands, const std::string& keys = "*") {
        REQUIRE(server.command({"ACL", "SETUSER", "worker", "reset", "on", ">secret", "~" + keys}) == "OK");
        for (const auto& command : commands) allow(command);
    }
    void forbid(const std::string& command) const {
        server.command({"ACL", "SETUSER", "worker", "-" + command});
        server.command({"SCRIPT", "FLUSH"});  // so that EVAL is needed as well as EVALSHA
    }
    void allow(const std::string& command) const {
        server.command({"ACL", "SETUSER", "worker", "+" + command});
    }

    redis_server server;
    hiredis_connection redis{"unix://worker:secret@" + server.socket_path() + patient};
};

void goes_through_a_whole_life(guarded& place, const lock_options& options, bool fence_ahead) {
    lock it(place.server, place.redis, fresh_name(), options);
    lock other(place.server, place.redis, it.name(), options);
    if (fence_ahead) it.set(it.fence_key(), past_2_53);
    CHECK(it.take().what == got::granted);
    CHECK(it.look().what == got::granted);
    CHECK(it.renew() == renewal::kept);
    CHECK(other.look().what == got::busy);
    CHECK(other.renew() == renewal::taken);
    CHECK(other.release().what == release_outcome::taken);
    CHECK(it.report().holder);
    CHECK(it.release().what == release_outcome::released);
    CHECK(it.renew() == renewal::gone);
    CHECK(it.release().what == release_outcome::expired);
    CHECK(it.force() == false);
    CHECK(it.take().what == got::granted);
    CHECK(it.force() == true);
    CHECK(it.was_forced());
}

}  // namespace

TEST_CASE("nine commands are all that locks with everything beside them need") {
    guarded place(needed);
    for (const auto& options : {bare, fenced, labelled, all}) {
        goes_through_a_whole_life(place, options, false);
        goes_through_a_whole_life(place, options, true);
    }
}

TEST_CASE("without fencing seven commands are all that locks need") {
    guarded place(without_fencing);
    goes_through_a_whole_life(place, bare, false);
    goes_through_a_whole_life(place, labelled, true);
}

TEST_CASE("a user who may use the lock's key only, takes plain locks and no others") {
    guarded place(needed, "lock:*");
    lock it(place.server, place.redis, fresh_name(), bare);
    CHECK(it.take().what == got::granted);
    CHECK(it.look().what == got::granted);
    CHECK(it.renew() == renewal::kept);
    CHECK(it.release().what == release_outcome::released);
    for (const auto& options : {fenced, labelled, all}) {
        lock beside(place.server, place.redis, fresh_name(), options);
        const auto outcome = beside.take();
        CHECK(outcome.what == got::refused);
        CHECK(outcome.cause == errc::permission_denied);
        for (const auto& key : {beside.name(), beside.fence_key(), beside.owner_key()}) {
            CHECK_FALSE(beside.exists(key));
        }
    }
}

TEST_CASE("a missing permission leaves no lock behind that nobody holds") {
    guarded place(needed);
    struct row {
        const char* missing;
        bool fence_ahead;  // of the server's time: then it is counted up, else it is set
        bool granted;
        std::uint64_t fence_after = 0;  // of what was refused
    };
    constexpr std::uint64_t behind = 17;
    constexpr std::uint64_t ahead = past_2_53_number;
    // The fence comes first: where the lock is refused after it, a number was skipped and
    // nothing else happened.
    const std::vector<row> rows{
        {"eval", false, false, behind},
        {"eval", true, false, ahead},
        {"evalsha", false, false, behind},
        {"evalsha", true, false, ahead},
        {"get", false, false, behind},
        {"get", true, false, ahead},
        {"set", false, false, behind},
        {"set", true, false, ahead + fence_step},
        {"del", false, true},
        {"del", true, true},
        {"pexpire", false, true},
        {"pexpire", true, false, ahead + fence_step},
        {"pttl", false, true},
        {"pttl", true, true},
        {"incrby", false, true},
        {"incrby", true, false, ahead},
        {"time", false, false, behind},
        {"time", true, false, ahead},
    };
    for (const row& row : rows) {
        INFO(row.missing << (row.fence_ahead ? ", the fence counts" : ", the fence is the time"));
        lock it(place.server, place.redis, fresh_name(), all);
        it.set(it.fence_key(), std::to_string(row.fence_ahead ? ahead : behind));
        place.forbid(row.missing);
        const auto outcome = it.take();
        place.allow(row.missing);
        if (row.granted) {
            CHECK(outcome.what == got::granted);
            CHECK(it.is_ours());
            continue;
        }
        CHECK(outcome.what == got::refused);
        CHECK(outcome.cause == errc::permission_denied);
        CHECK_FALSE(it.exists(it.name()));
        CHECK_FALSE(it.exists(it.owner_key()));
        CHECK(it.get(it.fence_key()) == std::to_string(row.fence_after));
    }
}

TEST_CASE("a missing permission leaves no lock behind without fencing either") {
    guarded place(needed);
    for (const auto& options : {bare, labelled}) {
        for (const std::string& missing : needed) {
            INFO(missing << (options.owner_info.empty() ? "" : ", with owner_info"));
            lock it(place.server, place.redis, fresh_name(), options);
            place.forbid(missing);
            // A free lock is taken by one SET, where nothing is kept beside it.
            const bool script = !options.owner_info.empty();
            const auto outcome = it.take();
            place.allow(missing);
            const bool needs = missing == "set" ||
                               (script && (missing == "eval" || missing == "evalsha" || missing == "get"));
            CHECK(outcome.what == (needs ? got::refused : got::granted));
            if (needs) CHECK(outcome.cause == errc::permission_denied);
            CHECK(it.exists(it.name()) == !needs);
            CHECK(it.exists(it.owner_key()) == (script && !needs));
        }
    }
}

TEST_CASE("a renewal without permission is not the lock's end, and changes nothing") {
    guarded place(needed);
    for (const std::string& missing : needed) {
        INFO(missing);
        lock it(place.server, place.redis, fresh_name(), all);
        lock stranger(place.server, place.redis, it.name(), all);
        it.take();
        for (const auto& key : {it.name(), it.owner_key(), it.fence_key()}) {
            place.server.command({"PEXPIRE", key, "15000"});
        }
        place.forbid(missing);
        const bool script = missing == "eval" || missing == "evalsha" || missing == "get";
        const bool needs = script || missing == "pexpire";
        CHECK(it.renew() == (needs ? renewal::later : renewal::kept));
        CHECK(stranger.renew() == (script ? renewal::later : renewal::taken));
        place.allow(missing);
        for (const auto& key : {it.name(), it.owner_key(), it.fence_key()}) {
            CHECK((it.ttl(key) <= 15'000) == needs);
        }
        CHECK(it.is_ours());
        place.server.command({"DEL", it.name()});
        place.forbid(missing);
        CHECK(it.renew() == (script || missing == "del" ? renewal::later : renewal::gone));
        place.allow(missing);
    }
}

TEST_CASE("a release without permission is refused for good, and the lease ends the lock") {
    guarded place(needed);
    for (const std::string& missing : needed) {
        INFO(missing);
        lock it(place.server, place.redis, fresh_name(), all);
        it.take();
        place.forbid(missing);
        const auto verdict = it.release();
        place.allow(missing);
        const bool needs = missing == "eval" || missing == "evalsha" || missing == "get" || missing == "del";
        CHECK(verdict.what == (needs ? release_outcome::refused : release_outcome::released));
        CHECK_FALSE(verdict.again);
        CHECK(it.exists(it.name()) == needs);
        CHECK(it.exists(it.owner_key()) == needs);
        if (needs) CHECK(just_set(it.ttl(it.name()), lease));
    }
}

TEST_CASE("a look at a lock that is taken needs three commands and EVAL") {
    guarded place(needed);
    for (const auto& options : {bare, all}) {
        for (const std::string& missing : needed) {
            INFO(missing);
            lock holder(place.server, place.redis, fresh_name(), all);
            lock waiter(place.server, place.redis, holder.name(), options);
            holder.take();
            place.forbid(missing);
            const auto outcome = waiter.look();
            place.allow(missing);
            const bool needs =
                missing == "eval" || missing == "evalsha" || missing == "get" || missing == "pttl";
            CHECK(outcome.what == (needs ? got::refused : got::busy));
            if (needs) CHECK(outcome.cause == errc::permission_denied);
            CHECK(holder.is_ours());
            CHECK(holder.get(holder.owner_key()) == holder.owner_text());
        }
    }
}

TEST_CASE("to inspect needs EVAL, GET and PTTL; to release by force SET and DEL besides, or the lock stays") {
    guarded place(needed);
    for (const std::string& missing : needed) {
        INFO(missing);
        lock it(place.server, place.redis, fresh_name(), all);
        it.take();
        place.forbid(missing);
        const reply report = it.ask_report();
        const reply forced = it.ask_force();
        place.allow(missing);
        const bool reads = missing == "eval" || missing == "get" || missing == "pttl";
        const bool needs = reads || missing == "set" || missing == "del";
        CHECK(it.about.read_inspect(report).has_value() == !reads);
        if (reads) CHECK(acquire_outcome::failure(report).cause == errc::permission_denied);
        CHECK(it.about.read_force_release(forced).has_value() == !needs);
        if (needs) CHECK(acquire_outcome::failure(forced).cause == errc::permission_denied);
        CHECK(it.exists(it.name()) == needs);
        CHECK(it.was_forced() == !needs);
        // The owner's text goes first; without it the lock is as much a lock as before.
        CHECK(it.exists(it.owner_key()) == (needs && missing != "set"));
    }
}

// Inspecting.

TEST_CASE("to inspect changes nothing, and a free lock has no holder") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    lock it(server, redis, fresh_name(), all);
    CHECK_FALSE(it.report().holder);
    CHECK_FALSE(it.report().remaining);
    CHECK_FALSE(it.report().fence);
    CHECK(it.report().waiters.value_or(0) == 0);
    CHECK(server.command({"DBSIZE"}) == "0");
    const auto fence = it.take().fence;
    const auto before = changes(server);
    CHECK(it.report().holder);
    CHECK(changes(server) == before);
    it.release();
    CHECK_FALSE(it.report().holder);
    CHECK_FALSE(it.report().remaining);
    CHECK(it.report().fence == fence);
}

TEST_CASE("a report says who holds the lock, for how long, and under which fence") {
    hiredis_connection redis(shared().uri() + patient);
    lock it(shared(), redis, fresh_name(), all);
    const auto fence = it.take().fence;
    const auto report = it.report();
    REQUIRE(report.holder);
    CHECK(report.holder->token == it.owner.view());
    CHECK("\n" + distlock::describe_owner(lock::label) == "\n" + report.holder->host + "\n" +
                                                              std::to_string(report.holder->pid) + "\n" +
                                                              report.holder->label);
    CHECK(report.holder->pid == ::getpid());
    REQUIRE(report.remaining);
    CHECK(just_set(report.remaining->count(), lease));
    CHECK(report.fence == fence);

    lock quiet(shared(), redis, fresh_name(), bare);
    quiet.take();
    const auto little = quiet.report();
    REQUIRE(little.holder);
    CHECK(little.holder->token == quiet.owner.view());
    CHECK(little.holder->host.empty());
    CHECK(little.holder->pid == 0);
    CHECK_FALSE(little.fence);
}

TEST_CASE("another client's lock is reported with what its key says") {
    hiredis_connection redis(shared().uri() + patient);
    lock it(shared(), redis, fresh_name(), all);
    it.set(it.name(), "somebody");
    auto report = it.report();
    REQUIRE(report.holder);
    CHECK(report.holder->token == "somebody");
    CHECK(report.holder->host.empty());
    CHECK(report.holder->label.empty());
    CHECK_FALSE(report.remaining);
    shared().command({"PEXPIRE", it.name(), "25000"});
    report = it.report();
    REQUIRE(report.remaining);
    CHECK(just_set(report.remaining->count(), 25'000));
    it.set(it.name(), "");
    REQUIRE(it.report().holder);
    CHECK(it.report().holder->token.empty());
}

TEST_CASE("an owner's text of an earlier token is nobody's") {
    hiredis_connection redis(shared().uri() + patient);
    lock it(shared(), redis, fresh_name(), labelled);
    it.take();
    shared().command({"SET", it.name(), "somebody", "PX", "30000"});
    CHECK(it.get(it.owner_key()) == it.owner_text());
    const auto report = it.report();
    REQUIRE(report.holder);
    CHECK(report.holder->token == "somebody");
    CHECK(report.holder->host.empty());
    CHECK(report.holder->pid == 0);
    CHECK(report.holder->label.empty());
    shared().command({"DEL", it.name()});
    CHECK_FALSE(it.report().holder);
}

TEST_CASE("a lock that can have no key beside it is inspected and taken away like any other") {
    hiredis_connection redis(shared().uri() + patient);
    lock it(shared(), redis, fresh_name() + "}", bare);
    CHECK_FALSE(it.report().holder);
    CHECK(it.force() == false);
    it.take();
    const auto report = it.report();
    REQUIRE(report.holder);
    CHECK(report.holder->token == it.owner.view());
    CHECK(it.force() == true);
    CHECK_FALSE(it.exists(it.name()));
    CHECK_FALSE(it.was_forced());
}

// By force.

TEST_CASE("a lock taken away by force is free, and its owner can tell") {
    hiredis_connection redis(shared().uri() + patient);
    for (const auto& options : {bare, fenced, labelled, all}) {
        lock it(shared(), redis, fresh_name(), options);
        const auto fence = it.take().fence;
        CHECK_FALSE(it.was_forced());
        CHECK(it.force() == true);
        CHECK_FALSE(it.exists(it.name()));
        CHECK_FALSE(it.exists(it.owner_key()));
        CHECK(it.was_forced());
        CHECK(it.get(it.mark_key()) == it.owner.view());
        CHECK(just_set(it.ttl(it.mark_key()), lease));
        CHECK(it.renew() == renewal::gone);
        CHECK(it.release().what == release_outcome::expired);
        CHECK(it.was_forced());
        CHECK(it.force() == false);

        const auto next = it.take();  // with a token of its own
        CHECK(next.what == got::granted);
        CHECK_FALSE(it.was_forced());
        if (options.fencing) CHECK(next.fence > fence);
    }
}

TEST_CASE("to take away a free lock changes nothing") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    lock it(server, redis, fresh_name(), all);
    CHECK(it.force() == false);
    CHECK(server.command({"DBSIZE"}) == "0");
    it.take();
    it.release();
    const auto before = changes(server);
    CHECK(it.force() == false);
    CHECK(changes(server) == before);
    CHECK_FALSE(it.exists(it.mark_key()));
}

TEST_CASE("the mark of a lock that was taken away never stays for ever") {
    hiredis_connection redis(shared().uri() + patient);
    const auto mark_after = [&](std::initializer_list<std::string_view> ttl) {
        lock it(shared(), redis, fresh_name(), bare);
        std::vector<std::string_view> words{"SET", it.name(), "somebody"};
        words.insert(words.end(), ttl);
        REQUIRE(shared().command(words) == "OK");
        CHECK(it.force() == true);
        CHECK_FALSE(it.exists(it.name()));
        return it.ttl(it.mark_key());
    };
    CHECK(just_set(mark_after({"PX", "600000"}), 600'000));
    const auto for_ever = mark_after({});
    CHECK(for_ever != -1);
    CHECK(for_ever <= 1'000);
    const auto brief = mark_after({"PX", "500"});
    CHECK(brief != -1);
    CHECK(brief <= 1'000);
    CHECK(just_set(mark_after({"PX", "9000000000000000000"}), 86'400'000));
}

}  // namespace plain_scripts_tests
