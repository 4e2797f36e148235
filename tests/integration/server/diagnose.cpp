// What diagnose() finds on real servers, and what it leaves there.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <distlock/diagnose.hpp>

#include "support/catch.hpp"
#include "support/cluster.hpp"
#include "support/hiredis_test.hpp"
#include "support/minimal_connection.hpp"
#include "support/permitted_user.hpp"
#include "support/sentinels.hpp"
#include "support/waiting.hpp"

namespace diagnose_tests {

using namespace hiredis_test;
using distlock::diagnose;
using distlock::diagnosis;
using distlock::severity;

namespace {

const std::string secret = "worker:secret@";

std::string login(const redis_server& server) { return "unix://" + secret + server.socket_path() + patient; }

// Returns: whether there is such a finding; says what there is otherwise.
bool says(const diagnosis& of, severity how, std::string_view subject, std::string_view text = {}) {
    const bool found = std::any_of(of.begin(), of.end(), [&](const distlock::finding& one) {
        return one.how == how && one.subject == subject && one.text.find(text) != std::string::npos;
    });
    if (!found)
        UNSCOPED_INFO(subject << " has no " << to_string(how) << " \"" << text << "\":\n" << to_string(of));
    return found;
}

// Returns: a field of INFO.
std::string field(const redis_server& server, const char* section, const std::string& name) {
    const auto all = server.command({"INFO", section});
    const auto at = all.find("\n" + name + ":");
    REQUIRE(at != std::string::npos);
    const auto from = at + name.size() + 2;
    return all.substr(from, all.find_first_of("\r\n", from) - from);
}

}  // namespace

TEST_CASE("diagnose leaves nothing on a server: no key, no write, no subscription, no refusal") {
    const redis_server server;
    make(server, {"ACL", "SETUSER", "worker", "reset", "on", ">secret", "~*", "&*", "+@all", "-acl"});
    const auto before = field(server, "persistence", "rdb_changes_since_last_save");
    const auto expect_nothing = [&] {
        CHECK(server.command({"DBSIZE"}) == "0");
        CHECK(field(server, "persistence", "rdb_changes_since_last_save") == before);
    };
    {
        hiredis_connection redis(server.uri() + patient);
        const auto seen = diagnose(redis);
        CHECK(says(seen, severity::ok, "role", "a master"));
        CHECK(says(seen, severity::ok, "replicas", "none"));
        CHECK(says(seen, severity::ok, "maxmemory-policy", "noeviction"));
        CHECK(says(seen, severity::warning, "persistence", "none: a restart frees all locks"));
        CHECK(says(seen, severity::ok, "clock"));
        CHECK(says(seen, severity::ok, "writes", "accepted"));
        CHECK(says(seen, severity::ok, "permissions", "user default may do all"));
        CHECK(says(seen, severity::ok, "messages"));
        CHECK(seen.about("cluster") == nullptr);
        expect_nothing();
        // ACL DRYRUN asks without trying.
        CHECK(server.command({"ACL", "LOG"}).empty());
    }
    CHECK(eventually([&] { return server.command({"PUBSUB", "CHANNELS"}).empty(); }));
    minimal_connection bare(login(server));
    CHECK(says(diagnose(bare, {.prefix = "orders:"}), severity::warning, "messages", "cannot subscribe"));
    expect_nothing();
}

TEST_CASE("a lock that is held, and its waiters, are none of diagnose's business") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    distlock::mutex held{redis, "orders:42", {.fencing = true}};
    distlock::scoped_lock guard{held};
    const auto ticket = server.command({"ZADD", "{orders:42}:distlock:queue", "1", "not a ticket"});
    const auto all = [&] {
        return server.command({"GET", "orders:42"}) +
               server.command({"ZRANGE", "{orders:42}:distlock:queue", "0", "-1"}) +
               server.command({"GET", "{orders:42}:distlock:fence"});
    };
    const auto before = all();
    for (const char* prefix : {"orders:42", "orders:", ""}) {
        CHECK(says(diagnose(redis, {.prefix = prefix}), severity::ok, "permissions"));
        CHECK(all() == before);
    }
    CHECK(guard.owns_lock());
}

TEST_CASE("settings that lose locks are found on a server that has them") {
    const redis_server server(
        with({"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru", "--appendonly", "yes",
              "--appendfsync", "everysec", "--min-replicas-to-write", "1"}));
    for (const bool pipelines : {true, false}) {
        hiredis_connection redis(server.uri() + patient);
        minimal_connection bare(server.uri() + patient);
        const auto seen = pipelines ? diagnose(redis) : diagnose(bare);
        CHECK(says(seen, severity::problem, "maxmemory-policy", "allkeys-lru"));
        CHECK(says(seen, severity::warning, "persistence", "appendfsync everysec"));
        CHECK(says(seen, severity::problem, "min-replicas-to-write", "1, and there are 0"));
        CHECK(says(seen, severity::problem, "writes", "NOREPLICAS"));
        CHECK(seen.worst() == severity::problem);
    }
}

TEST_CASE("a user of SECURITY.md may do all that a mutex needs; each permission taken away is named") {
    const redis_server server;
    const words user = user_in(".github/SECURITY.md");
    for (const bool may_dry_run : {false, true}) {
        INFO("ACL DRYRUN " << may_dry_run);
        const auto seen_by = [&](const std::string& lacks) {
            make(server, user);
            if (may_dry_run) make(server, {"ACL", "SETUSER", "worker", "+acl|dryrun", "+acl|whoami"});
            if (!lacks.empty()) make(server, {"ACL", "SETUSER", "worker", "-" + lacks});
            minimal_connection redis(login(server));
            return diagnose(redis, {.prefix = "orders:"});
        };
        CHECK(says(seen_by(""), severity::ok, "permissions", "may do all"));
        int taken = 0;
        for (const auto& one : user) {
            if (one[0] != '+' || one == "+subscribe" || one == "+unsubscribe") continue;
            ++taken;
            INFO(one);
            const auto seen = seen_by(one.substr(1));
            const auto found = std::find_if(seen.begin(), seen.end(), [&](const distlock::finding& f) {
                return f.subject == "permissions" && f.how != severity::ok && f.how != severity::unknown &&
                       (f.text + " ").find(" lacks " + one + " ") != std::string::npos;
            });
            INFO(to_string(seen));
            CHECK(found != seen.end());
            CHECK(std::count_if(seen.begin(), seen.end(),
                                [](const auto& f) { return f.subject == "permissions"; }) == 1);
        }
        CHECK(taken >= 15);
    }
    CHECK(server.command({"DBSIZE"}) == "0");
}

// Commands were said to be missing that the user had.
TEST_CASE("diagnose() tells apart what is missing whatever the password is") {
    const redis_server server;
    words user = user_in(".github/SECURITY.md");
    std::replace(user.begin(), user.end(), std::string(">secret"), std::string(">access"));
    make(server, user);
    hiredis_connection redis("unix://worker:access@" + server.socket_path() + "?command_timeout=1s");
    CHECK(says(diagnose(redis, {.prefix = "invoices:"}), severity::problem, "permissions",
               "lacks ~invoices:* "));
}

TEST_CASE("a user whose messages or keys are forbidden is told so") {
    const redis_server server;
    make(server, user_in(".github/SECURITY.md"));
    hiredis_connection redis("unix://" + secret + server.socket_path() + "?command_timeout=1s");
    CHECK(says(diagnose(redis, {.prefix = "orders:"}), severity::ok, "messages"));
    CHECK(says(diagnose(redis, {.prefix = "orders:", .replicas = 1}), severity::problem, "permissions",
               "lacks +wait"));
    CHECK(says(diagnose(redis), severity::unknown, "permissions", "may not use keys of any name"));
    CHECK(says(diagnose(redis, {.prefix = "invoices:"}), severity::problem, "permissions",
               "lacks ~invoices:* "));

    make(server, {"ACL", "SETUSER", "worker", "-subscribe"});
    hiredis_connection deaf("unix://" + secret + server.socket_path() + "?command_timeout=3600s");
    CHECK(says(diagnose(deaf, {.prefix = "orders:"}), severity::warning, "messages",
               "does not confirm a subscription (refused"));
}

TEST_CASE(
    "an exception of a connection that subscribes is in the finding about messages, but for want of memory") {
    struct deaf {
        distlock::reply execute(const distlock::command& cmd) { return inner.execute(cmd); }
        std::shared_ptr<distlock::subscription> subscribe(std::string_view) const {
            if (full) throw std::bad_alloc();
            throw std::runtime_error("no socket is left");
        }
        hiredis_connection inner;
        bool full = false;
    };
    const redis_server server;
    deaf redis{hiredis_connection(server.uri() + patient)};
    const auto seen = diagnose(redis);
    CHECK(says(seen, severity::ok, "role", "a master"));
    CHECK(says(seen, severity::warning, "messages", "no socket is left"));
    redis.full = true;
    CHECK_THROWS_AS(diagnose(redis), std::bad_alloc);
}

TEST_CASE("the report of a connection whose subscriptions are null says that messages do not arrive") {
    struct without_messages {
        distlock::reply execute(const distlock::command& cmd) { return inner.execute(cmd); }
        static std::shared_ptr<distlock::subscription> subscribe(std::string_view) { return nullptr; }
        hiredis_connection inner;
    };
    const redis_server server;
    without_messages redis{hiredis_connection(server.uri() + patient)};
    CHECK(says(diagnose(redis), severity::warning, "messages", "the connection has none"));
}

TEST_CASE("a subscription that is neither confirmed nor refused in time is no way for messages") {
    struct unheard {
        distlock::reply execute(const distlock::command& cmd) { return inner.execute(cmd); }
        static std::shared_ptr<distlock::subscription> subscribe(std::string_view channel) {
            return std::make_shared<distlock::subscription>(std::string(channel));
        }
        hiredis_connection inner;
    };
    const redis_server server;
    unheard redis{hiredis_connection(server.uri() + patient)};
    CHECK(says(diagnose(redis), severity::warning, "messages", "does not confirm a subscription"));
}

// Twice its time-out overflowed, and the confirmation was not waited for.
TEST_CASE("messages are seen to come over a connection whose time-out is the longest there is") {
    struct without_end {
        distlock::reply execute(const distlock::command& cmd) { return inner.execute(cmd); }
        auto subscribe(std::string_view channel) { return inner.subscribe(channel); }
        std::chrono::milliseconds command_timeout() const { return std::chrono::milliseconds::max(); }
        hiredis_connection inner;
    };
    const redis_server server;
    without_end redis{hiredis_connection(server.uri() + patient)};
    CHECK(diagnose(redis).about("messages")->how == severity::ok);
}

TEST_CASE("a master and its replica are told apart, and the lag is seen") {
    const redis_server master(redis_server_options{.tcp = true});
    const redis_server replica(
        redis_server_options{.tcp = true, .arguments = {"--repl-diskless-sync-delay", "0"}});
    master.command({"CONFIG", "SET", "repl-diskless-sync-delay", "0"});
    REQUIRE(replica.command({"REPLICAOF", "127.0.0.1", std::to_string(master.port())}) == "OK");
    REQUIRE(eventually([&] {
        return master.command({"INFO", "replication"}).find("state=online") != std::string::npos;
    }));

    hiredis_connection to_master(master.uri() + patient);
    auto seen = diagnose(to_master);
    CHECK(says(seen, severity::ok, "replicas", "127.0.0.1:" + std::to_string(replica.port()) + ", heard "));
    CHECK(says(seen, severity::warning, "min-replicas-to-write", "off"));
    master.command({"CONFIG", "SET", "min-replicas-to-write", "1"});
    CHECK(says(diagnose(to_master, {.lease = 30s}), severity::ok, "min-replicas-to-write",
               "min-replicas-max-lag 10 s"));
    CHECK(says(diagnose(to_master, {.lease = 10s}), severity::warning, "min-replicas-to-write",
               "no less than the lease of 10 s"));

    CHECK(diagnose(to_master, {.replicas = 1}).about("replicas")->how == severity::ok);
    CHECK(says(diagnose(to_master, {.replicas = 2}), severity::problem, "replicas", "1 online"));

    hiredis_connection to_replica(replica.uri() + patient);
    seen = diagnose(to_replica);
    CHECK(says(seen, severity::problem, "role", "a replica"));
    CHECK(says(seen, severity::ok, "permissions"));
    CHECK(seen.about("writes") == nullptr);
}

TEST_CASE("a server that hangs, or is gone, is one finding within the time-outs of one command") {
    redis_server server;
    hiredis_connection redis(server.uri() + "?command_timeout=100ms");
    minimal_connection bare(server.uri() + "?command_timeout=100ms");
    const auto expect_one = [&](const char* text) {
        for (const bool pipelines : {true, false}) {
            diagnosis seen;
            const auto took = time_of([&] { seen = pipelines ? diagnose(redis) : diagnose(bare); });
            CHECK(seen.findings().size() == 1);
            CHECK(says(seen, severity::problem, "server", text));
            CHECK(took < 1s);
        }
    };
    server.pause();
    expect_one("no reply in time");
    server.resume();
    server.kill();
    expect_one("not answered");

    redis_server locked(with({"--requirepass", "secret"}));
    hiredis_connection nobody(locked.uri() + patient);
    CHECK(says(diagnose(nobody), severity::problem, "server", "NOAUTH"));
}

TEST_CASE(
    "a node of a Cluster is asked through a connection that is made for it, and found out through one that "
    "is not") {
    const auto& nodes = three_masters();
    words least = cluster_user();
    least[2] = "watcher";
    for (const auto& one : nodes.nodes()) make(*one, least);
    for (const std::string user : {"", "watcher:secret@"}) {
        distlock::cluster_connection redis(nodes.uri(user, patient));
        const auto seen = diagnose(redis, {.prefix = "orders:"});
        CHECK(says(seen, severity::ok, "writes", "accepted"));
        CHECK(says(seen, severity::ok, "permissions", "may do all"));
        CHECK(says(seen, severity::ok, "messages"));
        if (user.empty()) CHECK(says(seen, severity::ok, "cluster", "3 masters"));
    }
    for (const auto& one : nodes.nodes()) make(*one, {"ACL", "SETUSER", "watcher", "-spublish"});
    distlock::cluster_connection mute(nodes.uri("watcher:secret@", patient));
    CHECK(says(diagnose(mute, {.prefix = "orders:"}), severity::warning, "permissions", "lacks +spublish"));

    // Of three nodes one has the slot of the tag, and two send elsewhere.
    std::size_t elsewhere = 0;
    for (const auto& one : nodes.nodes()) {
        hiredis_connection redis(one->uri() + patient);
        const auto seen = diagnose(redis, {.prefix = "{tag}"});
        CHECK(says(seen, severity::warning, "cluster", "use cluster_connection"));
        elsewhere += seen.about("writes")->text.find("MOVED") != std::string::npos;
        CHECK(one->command({"DBSIZE"}) == "0");
    }
    CHECK(elsewhere == 2);
}

TEST_CASE("the master that Sentinels name is diagnosed, and a Sentinel itself is found out") {
    const sentinels all;
    distlock::sentinel_connection redis(all.uri("", patient));
    const auto seen = diagnose(redis);
    CHECK(says(seen, severity::ok, "role", "a master"));
    CHECK(std::count_if(seen.begin(), seen.end(), [](const auto& f) { return f.subject == "replicas"; }) ==
          2);
    CHECK(says(seen, severity::ok, "messages"));

    hiredis_connection watcher(all.watchers()[0]->uri() + patient);
    CHECK(says(diagnose(watcher), severity::problem, "role", "a Sentinel"));
}

}  // namespace diagnose_tests
