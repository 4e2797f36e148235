// What is asked of a server to say what it is like for locks, and what its answers mean for them.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/diagnose.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/diagnosis.hpp>
#include <distlock/wire/examination.hpp>
#include <distlock/wire/reply.hpp>

#include "support/catch.hpp"

namespace examination_tests {

namespace {

using namespace std::chrono_literals;
using distlock::command;
using distlock::diagnose;
using distlock::diagnosis;
using distlock::errc;
using distlock::finding;
using distlock::reply;
using distlock::reply_kind;
using distlock::severity;
using distlock::detail::examination;
using distlock::detail::wall_time;

constexpr std::string_view no_permission = "NOPERM this user has no permissions to run the 'x' command";

reply texts(const std::vector<std::string>& all) {
    std::vector<reply> made;
    for (const auto& one : all) made.push_back(reply::string(one));
    return reply::array(std::move(made));
}

reply time_of(std::int64_t microseconds) {
    return texts({std::to_string(microseconds / 1'000'000), std::to_string(microseconds % 1'000'000)});
}

reply role_of_master(const std::vector<reply>& replicas = {}) {
    return reply::array({reply::string("master"), reply::integer(700), reply::array(replicas)});
}

// What a server answers to what begins with these words; the longest beginning counts. A connection that can
// do nothing but execute.
struct server {
    std::map<std::string, reply> says;
    std::vector<std::string> asked = {};

    reply operator()(const command& cmd) {
        std::string words;
        for (const auto one : cmd.argv()) words += (words.empty() ? "" : " ") + std::string(one);
        asked.push_back(words);
        CHECK_FALSE(cmd.routing_key().empty());
        const reply* best = nullptr;
        std::size_t length = 0;
        for (const auto& [beginning, answer] : says) {
            if (!words.starts_with(beginning) || (best != nullptr && beginning.size() < length)) continue;
            best = &answer;
            length = beginning.size();
        }
        return best != nullptr ? *best : reply::nil();
    }

    bool was_asked(std::string_view beginning) const {
        return std::any_of(asked.begin(), asked.end(),
                           [&](const std::string& one) { return one.starts_with(beginning); });
    }
    server& with(const std::string& beginning, reply answer) {
        says[beginning] = std::move(answer);
        return *this;
    }
    server& refusing(const std::vector<std::string>& all) {
        for (const auto& one : all) says[one] = reply::error(std::string(no_permission));
        return *this;
    }
};

// INFO of a master, with these lines besides; those of the same field count first.
reply info(const std::string& more = "", const std::string& version = "redis_version:8.2.2\r\n") {
    return reply::string(
        "# Server\r\n" + version + more +
        "redis_mode:standalone\r\nuptime_in_seconds:86400\r\n\r\n# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:"
        "noeviction\r\nrole:master\r\nconnected_slaves:0\r\naof_enabled:0\r\nloading:0\r\ncluster_enabled:"
        "0\r\n");
}

server sound() {
    return {{{"TIME", time_of(distlock::detail::our_wall_time().time_since_epoch().count())},
             {"INFO", info()},
             {"ROLE", role_of_master()},
             {"CONFIG GET maxmemory", texts({"maxmemory", "1000000", "maxmemory-policy", "noeviction"})},
             {"CONFIG GET min-replicas", texts({"min-replicas-to-write", "0", "min-replicas-max-lag", "10"})},
             {"CONFIG GET *append", texts({"appendonly", "yes", "appendfsync", "always"})},
             {"CONFIG GET save", texts({"save", ""})},
             {"ACL WHOAMI", reply::string("worker")},
             {"ACL DRYRUN worker", reply::status("OK")},
             {"CLUSTER INFO", reply::error("ERR This instance has cluster support disabled")}}};
}

std::string lines(const diagnosis& of, std::string_view subject) {
    std::string all;
    for (const finding& one : of) {
        if (one.subject == subject) all += std::string(to_string(one.how)) + ": " + one.text + "\n";
    }
    return all;
}

bool says(const diagnosis& of, severity how, std::string_view subject, std::string_view words) {
    const bool found = std::any_of(of.begin(), of.end(), [&](const finding& one) {
        return one.how == how && one.subject == subject && one.text.find(words) != std::string::npos;
    });
    if (!found)
        UNSCOPED_INFO(subject << " has no " << to_string(how) << " \"" << words << "\":\n" << to_string(of));
    return found;
}

severity worst_of(const diagnosis& of, std::string_view subject) {
    severity worst = severity::ok;
    bool any = false;
    for (const finding& one : of) {
        if (one.subject != subject) continue;
        worst = std::max(worst, one.how);
        any = true;
    }
    INFO(to_string(of));
    CHECK(any);
    return worst;
}

}  // namespace

TEST_CASE("the report of a sound master finds everything in order") {
    auto it = sound();
    const auto seen = diagnose(it);
    for (const auto* subject : {"server", "role", "replicas", "min-replicas-to-write", "maxmemory-policy",
                                "persistence", "clock", "writes", "permissions"})
        CHECK(worst_of(seen, subject) == severity::ok);
    CHECK(seen.about("cluster") == nullptr);
    CHECK(seen.about("uptime") == nullptr);
    CHECK(says(seen, severity::ok, "permissions", "user worker may do all"));
    CHECK(says(seen, severity::warning, "messages", "cannot subscribe"));
    CHECK(seen.worst() == severity::warning);
}

TEST_CASE("a server is told the mistakes of its version, and no other's") {
    struct row {
        const char* version;
        bool ignores_replicas, rewrites, lua, too_old;
    };
    for (const row& it : {row{"redis_version:6.0.16", true, false, true, true},
                          row{"redis_version:6.2.6", true, false, true, false},
                          row{"redis_version:6.2.7", false, false, true, false},
                          row{"redis_version:6.2.20", false, false, false, false},
                          row{"redis_version:7.0.0", false, true, true, false},
                          row{"redis_version:7.0.4", false, true, true, false},
                          row{"redis_version:7.0.5", false, false, true, false},
                          row{"redis_version:7.0.15", false, false, true, false},
                          row{"redis_version:7.2.10", false, false, true, false},
                          row{"redis_version:7.2.11", false, false, false, false},
                          row{"redis_version:7.4.0", false, false, true, false},
                          row{"redis_version:7.4.5", false, false, true, false},
                          row{"redis_version:7.4.6", false, false, false, false},
                          row{"redis_version:8.0.0", false, false, true, false},
                          row{"redis_version:8.0.3", false, false, true, false},
                          row{"redis_version:8.0.4", false, false, false, false},
                          row{"redis_version:8.1.0", false, false, true, false},
                          row{"redis_version:8.2.1", false, false, true, false},
                          row{"redis_version:8.4.0", false, false, false, false},
                          row{"redis_version:7.2.4\r\nvalkey_version:7.2.10", false, false, true, false},
                          row{"redis_version:7.2.4\r\nvalkey_version:7.2.11", false, false, false, false},
                          row{"redis_version:7.2.4\r\nvalkey_version:8.0.0", false, false, true, false},
                          row{"redis_version:7.2.4\r\nvalkey_version:8.0.5", false, false, true, false},
                          row{"redis_version:7.2.4\r\nvalkey_version:8.0.6", false, false, false, false},
                          row{"redis_version:7.2.4\r\nvalkey_version:8.1.0", false, false, true, false},
                          row{"redis_version:7.2.4\r\nvalkey_version:8.1.3", false, false, true, false},
                          row{"redis_version:7.2.4\r\nvalkey_version:8.1.4", false, false, false, false},
                          row{"redis_version:7.2.4\r\nvalkey_version:9.0.0", false, false, false, false}}) {
        auto of = sound();
        of.with("INFO", info("", std::string(it.version) + "\r\n"));
        const auto seen = diagnose(of);
        const auto said = lines(seen, "server");
        INFO(it.version << "\n" << said);
        CHECK((said.find("redis#9993") != std::string::npos) == it.ignores_replicas);
        CHECK((said.find("redis#11004") != std::string::npos) == it.rewrites);
        CHECK((said.find("CVE-2025-49844") != std::string::npos) == it.lua);
        CHECK((said.find("problem: ") != std::string::npos) == it.too_old);
        CHECK((said.find("Valkey") != std::string::npos) ==
              (std::string_view(it.version).find("valkey") != std::string::npos));
    }
    auto dragonfly = sound().with("INFO", info("", "redis_version:6.2.0\r\ndragonfly_version:df-v1.2\r\n"));
    CHECK(says(diagnose(dragonfly), severity::unknown, "server", "Dragonfly"));
    auto without_file = sound()
                            .with("INFO", info("", "redis_version:7.0.4\r\n"))
                            .with("CONFIG GET *append", texts({"appendonly", "no", "appendfsync", "always"}));
    CHECK(lines(diagnose(without_file), "server").find("11004") == std::string::npos);
}

TEST_CASE(
    "a service that refuses CONFIG, ROLE and ACL is known by what INFO says, and the rest could not be "
    "asked") {
    auto it = sound();
    for (const char* command : {"CONFIG", "ROLE", "ACL", "CLUSTER"})
        it.with(command, reply::error("ERR unknown command '" + std::string(command) + "'"));
    for (const char* known : {"CONFIG GET maxmemory", "CONFIG GET min-replicas", "CONFIG GET *append",
                              "CONFIG GET save", "ACL WHOAMI", "ACL DRYRUN worker", "CLUSTER INFO"})
        it.says.erase(known);
    it.with("INFO", info("role:master\r\nmaxmemory:500\r\nmaxmemory_policy:volatile-lru\r\naof_enabled:1\r\n"
                         "connected_slaves:1\r\nmaster_repl_offset:900\r\n"
                         "slave0:ip=10.0.0.2,port=6379,state=online,offset=800,lag=1\r\n"));
    const auto seen = diagnose(it);
    CHECK(says(seen, severity::ok, "role", "a master"));
    CHECK(says(seen, severity::ok, "replicas", "10.0.0.2:6379, heard 1 s ago, 100 bytes behind"));
    CHECK(says(seen, severity::warning, "min-replicas-to-write", "off"));
    CHECK(says(seen, severity::problem, "maxmemory-policy", "volatile-lru"));
    CHECK(
        says(seen, severity::unknown, "persistence", "appendfsync could not be asked (ERR unknown command"));
    CHECK(says(seen, severity::ok, "permissions", "this user may do all"));
    CHECK(it.was_asked("ZADD"));

    it.with("INFO", info("min_slaves_good_slaves:1\r\n"));
    CHECK(says(diagnose(it), severity::unknown, "persistence",
               "unless the service keeps its data in a way of its own"));
    CHECK(says(diagnose(it), severity::unknown, "min-replicas-to-write",
               "set, but its value could not be asked"));
}

// It was told to allow what it allowed.
TEST_CASE("a server that was busy when it was asked for INFO is to be asked again") {
    for (const auto& [refusal, advice] :
         {std::pair("BUSY Redis is busy running a script", "ask again when it answers"),
          std::pair("NOPERM this user has no permissions", "allow INFO")}) {
        server it;
        it.with("INFO", reply::error(refusal));
        CHECK(says(diagnose(it), severity::unknown, "server", advice));
    }
}

TEST_CASE("a server that refuses every question leaves findings, not an exception") {
    for (const char* refusal : {"NOPERM this user has no permissions to run the 'x' command",
                                "ERR unknown command 'x'", "ERR odd"}) {
        server it;
        it.with("", reply::error(refusal));
        const auto seen = diagnose(it, {.prefix = "orders:"});
        for (const auto* subject : {"server", "role", "replicas", "min-replicas-to-write", "maxmemory-policy",
                                    "persistence", "clock"})
            CHECK(says(seen, severity::unknown, subject, refusal));
    }
    // Nil, a number, an array, of everything; and what nobody counts to.
    const auto huge = std::string("9223372036854775807");
    const auto low = std::string("-9223372036854775808");
    const auto odd = "redis_version:" + huge + "." + huge + "\r\nrole:master\r\nmaster_repl_offset:" + huge +
                     "\r\nconnected_slaves:1\r\nuptime_in_seconds:" + low +
                     "\r\nslave0:ip=,port=,lag=" + huge + ",offset=" + low +
                     "\r\nslave1:\r\nslave2:=,,=\r\nmin_slaves_good_slaves:" + low;
    const auto answers = {
        reply::nil(),
        reply::integer(INT64_MAX),
        reply::array({}),
        reply::string(odd),
        reply::status("OK"),
        texts({"min-replicas-to-write", huge, "min-replicas-max-lag", huge, "maxmemory"}),
        texts({huge, low}),
        reply::array({reply::array({}), reply::nil(), reply::array({reply::array({reply::nil()})})}),
        reply::array({reply::string("master"), reply::integer(INT64_MIN),
                      reply::array({texts({"h", "1", huge}), texts({"h"}), reply::integer(1)})})};
    for (const reply& all : answers) {
        server it;
        it.with("", all);
        CHECK_FALSE(diagnose(it).findings().empty());
    }
    server it = sound();
    it.with("INFO", reply::string(odd))
        .with("ROLE", reply::nil())
        .with("CONFIG", texts({"min-replicas-to-write", huge}));
    CHECK_FALSE(diagnose(it).findings().empty());
}

TEST_CASE("no finding holds a control character, or a text without end, whatever the server says") {
    const auto loud = "\x1b[2J\a" + std::string(5000, 'a');
    for (const char* question : {"INFO", "ROLE", "CONFIG", "ACL", "CLUSTER", "TIME", "SET", "GET", "ZADD"}) {
        auto it = sound();
        std::erase_if(it.says, [&](const auto& one) { return one.first.starts_with(question); });
        for (const reply& answer :
             {reply::error(loud),
              reply::string("role:" + loud + "\r\nredis_version:" + loud + "\r\nmaxmemory_policy:" + loud +
                            "\r\n" + "cluster_enabled:1\r\ncluster_state:" + loud + "\r\nslave0:ip=" + loud +
                            "\r\n"),
              texts({"maxmemory-policy", loud, "appendonly", "yes", "appendfsync", loud, "save", loud})}) {
            it.with(question, answer);
            const auto text = to_string(diagnose(it));
            CHECK(std::none_of(text.begin(), text.end(),
                               [](char c) { return c != '\n' && (c < ' ' || c > '~'); }));
            CHECK(text.size() < 20000);
        }
    }
}

TEST_CASE("a policy that evicts is a problem where there is a limit, and a warning where there is none") {
    for (const char* policy : {"allkeys-lru", "volatile-lru", "volatile-ttl", "allkeys-random"}) {
        auto it = sound();
        it.with("CONFIG GET maxmemory", texts({"maxmemory", "1", "maxmemory-policy", policy}));
        CHECK(says(diagnose(it), severity::problem, "maxmemory-policy", policy));
        it.with("CONFIG GET maxmemory", texts({"maxmemory", "0", "maxmemory-policy", policy}));
        CHECK(says(diagnose(it), severity::warning, "maxmemory-policy", policy));
    }
}

TEST_CASE("locks that wait for replicas need so many, and WAIT") {
    auto it = sound();
    CHECK(says(diagnose(it, {.replicas = 1}), severity::problem, "replicas",
               "0 online: locks with .replicas = 1 fail"));
    it.with("INFO", info("connected_slaves:2\r\nslave0:ip=h,port=1,state=online,offset=0,lag=0\r\n"
                         "slave1:ip=h,port=2,state=wait_bgsave,offset=0,lag=0\r\n"));
    CHECK(says(diagnose(it, {.replicas = 2}), severity::problem, "replicas",
               "1 online: locks with .replicas = 2 fail"));
    CHECK(worst_of(diagnose(it, {.replicas = 1}), "replicas") == severity::warning);

    it.with("ACL DRYRUN worker WAIT",
            reply::string("User worker has no permissions to run the 'wait' command"));
    CHECK(says(diagnose(it, {.replicas = 1}), severity::problem, "permissions", "lacks +wait"));
    CHECK(says(diagnose(it), severity::ok, "permissions", "may do all"));
}

TEST_CASE("a replica that is late, or not online, is a warning") {
    const auto with = [](const std::string& state, const std::string& lag,
                         std::chrono::milliseconds lease = 10s) {
        auto it = sound();
        it.with("INFO", info("connected_slaves:1\r\nslave0:ip=h,port=1,state=" + state +
                             ",offset=0,lag=" + lag + "\r\n"));
        return worst_of(diagnose(it, {.lease = lease}), "replicas");
    };
    CHECK(with("online", "9") == severity::ok);
    CHECK(with("online", "10") == severity::warning);
    CHECK(with("online", "0", 500ms) == severity::ok);
    CHECK(with("online", "1", 500ms) == severity::warning);
    CHECK(with("wait_bgsave", "0") == severity::warning);

    auto only_role =
        sound().refusing({"INFO"}).with("ROLE", role_of_master({texts({"10.0.0.3", "6380", "650"})}));
    CHECK(says(diagnose(only_role), severity::ok, "replicas", "10.0.0.3:6380, 50 bytes behind"));
}

TEST_CASE(
    "without min-replicas-to-write an old master goes on; with a lag as long as the lease it does for so "
    "long") {
    const auto with = [](const std::string& count, const std::string& lag, const std::string& more) {
        auto it = sound();
        it.with("CONFIG GET min-replicas",
                texts({"min-replicas-to-write", count, "min-replicas-max-lag", lag}))
            .with("INFO", info(more));
        return worst_of(diagnose(it, {.lease = 10s}), "min-replicas-to-write");
    };
    const std::string one = "connected_slaves:1\r\nslave0:ip=h,port=1,state=online,offset=0,lag=0\r\n";
    CHECK(with("0", "10", "") == severity::ok);
    CHECK(with("0", "10", one) == severity::warning);
    CHECK(with("1", "0", one) == severity::warning);
    CHECK(with("1", "10", one) == severity::warning);
    CHECK(with("1", "9", one) == severity::ok);
    CHECK(with("2", "9", one) == severity::problem);
    CHECK(with("1", "9", one + "min_slaves_good_slaves:0\r\n") == severity::problem);
    CHECK(with("1", "9", "") == severity::problem);
    auto it = sound().with("INFO", info(one));
    it.with("CONFIG GET min-replicas", texts({"min-replicas-to-write", "1", "min-replicas-max-lag", "10"}));
    CHECK(says(diagnose(it, {.lease = 1500ms}), severity::warning, "min-replicas-to-write",
               "no less than the lease of 1500 ms"));
    // A service may say the one and not the other: that was called good.
    it.with("CONFIG GET min-replicas", texts({"min-replicas-to-write", "1"}));
    CHECK(says(diagnose(it), severity::unknown, "min-replicas-to-write", "min-replicas-max-lag unknown"));
}

TEST_CASE("the report does not say that locks fail on a replica that takes writes") {
    auto it = sound().with("INFO", info("role:slave\r\nslave_read_only:0\r\n"));
    it.with("ROLE", reply::array({reply::string("slave"), reply::string("h"), reply::integer(1)}));
    CHECK(says(diagnose(it), severity::problem, "role", "two may own one"));
    it.with("INFO", info("role:slave\r\nslave_read_only:1\r\n"));
    CHECK(says(diagnose(it), severity::problem, "role", "errc::read_only"));
}

TEST_CASE("the loss by a restart depends on what is written, and when") {
    const auto with = [](const std::string& file, const std::string& fsync, const std::string& save,
                         const std::string& more = "") {
        auto it = sound();
        it.with("CONFIG GET *append", texts({"appendonly", file, "appendfsync", fsync}))
            .with("CONFIG GET save", texts({"save", save}));
        it.with("INFO", info(more));
        return lines(diagnose(it), "persistence");
    };
    CHECK(with("yes", "always", "").starts_with("ok: appendonly yes, appendfsync always"));
    auto rewrites = sound().with("CONFIG GET *append", texts({"appendonly", "yes", "appendfsync", "always",
                                                              "no-appendfsync-on-rewrite", "yes"}));
    CHECK(says(diagnose(rewrites), severity::warning, "persistence", "no-appendfsync-on-rewrite"));
    CHECK(worst_of(diagnose(rewrites.with("INFO", info("uptime_in_seconds:7\r\n"))), "uptime") ==
          severity::warning);
    rewrites.with("CONFIG GET *append", texts({"appendonly", "yes", "appendfsync", "everysec",
                                               "no-appendfsync-on-rewrite", "yes"}));
    CHECK(says(diagnose(rewrites), severity::warning, "persistence", "half minute"));
    CHECK(with("yes", "everysec", "").find("of the last second") != std::string::npos);
    CHECK(with("yes", "no", "").starts_with("warning: "));
    CHECK(with("yes", "no", "").find("of the last half minute") != std::string::npos);
    CHECK(with("no", "always", "3600 1").starts_with("warning: snapshots only (save 3600 1)"));
    CHECK(with("no", "always", "").starts_with("warning: none: a restart frees all locks, and their owners"));
    CHECK(with("no", "always", "", "connected_slaves:1\r\nslave0:ip=h,port=1,state=online\r\n")
              .starts_with("warning: none: a restart frees all locks, on its replicas, too"));
    CHECK(
        with("yes", "always", "", "aof_enabled:1\r\naof_last_write_status:err\r\n").starts_with("problem: "));
    CHECK(with("no", "always", "3600 1", "rdb_last_bgsave_status:err\r\n").find("snapshot failed") !=
          std::string::npos);
}

TEST_CASE("a server that started less than a lease ago may have lost locks, unless it loses none") {
    auto it = sound().with("INFO", info("uptime_in_seconds:7\r\n"));
    CHECK(diagnose(it).about("uptime") == nullptr);
    it.with("CONFIG GET *append", texts({"appendonly", "yes", "appendfsync", "everysec"}));
    CHECK(worst_of(diagnose(it), "uptime") == severity::warning);
    CHECK(diagnose(it, {.lease = 7s}).about("uptime") == nullptr);
    it.with("INFO", info("uptime_in_seconds:0\r\n"));
    CHECK(worst_of(diagnose(it, {.lease = 500ms}), "uptime") == severity::warning);
    CHECK(says(diagnose(it.with("INFO", info("loading:1\r\n"))), severity::problem, "server", "loads"));
}

namespace {

// What an examination finds when our clock stood so before and after the questions.
diagnosis at(std::int64_t before, std::int64_t after, server it, examination::abilities can = {},
             const std::string& prefix = {}) {
    examination asked({.prefix = prefix}, can, "0123456789abcdef0123456789abcdef");
    for (auto commands = asked.questions(); !commands.empty(); commands = asked.questions()) {
        std::vector<reply> replies;
        for (const command& one : commands) replies.push_back(it(one));
        asked.on_answers(replies, wall_time(std::chrono::microseconds(before)),
                         wall_time(std::chrono::microseconds(after)));
    }
    return asked.conclude();
}

}  // namespace

TEST_CASE("a master whose replicas may have left it is not said to lose nothing by a fail-over") {
    const auto worst = [](server of, const char* subject, bool follows = false) {
        return worst_of(at(0, 0, of, {.follow = follows}), subject);
    };
    CHECK(worst(sound(), "replicas") == severity::ok);
    CHECK(worst(sound(), "min-replicas-to-write") == severity::ok);
    auto alone = sound().with("INFO", info("connected_slaves:0\r\nrepl_backlog_active:1\r\n"));
    for (const auto* subject : {"replicas", "min-replicas-to-write"}) {
        CHECK(worst(alone, subject) == severity::warning);
        CHECK(worst(sound(), subject, true) == severity::warning);
    }
    // It said that there are none.
    auto silent = sound();
    for (const char* command : {"INFO", "ROLE"}) silent.with(command, reply::error("NOPERM x"));
    CHECK(worst(silent, "replicas") == severity::unknown);
    CHECK(worst(silent, "min-replicas-to-write") == severity::warning);
}

TEST_CASE("a clock is off when no delay of the answer explains it") {
    constexpr std::int64_t ours = 1'700'000'000'000'000;
    constexpr std::int64_t second = 1'000'000;
    const auto clock = [&](std::int64_t theirs, std::int64_t took) {
        return lines(at(ours, ours + took, sound().with("TIME", time_of(theirs))), "clock");
    };
    CHECK(clock(ours + 400'000, 2000).starts_with("ok: 399 ms ahead of ours"));
    CHECK(clock(ours - 400'000, 2000).starts_with("ok: 401 ms behind ours"));
    CHECK(clock(ours + 600'000, 2000).starts_with("warning: 599 ms ahead of ours"));
    CHECK(clock(ours - 600'000, 2000).starts_with("warning: 601 ms behind ours"));
    CHECK(clock(ours + 60 * second, 2000).starts_with("warning: 59999 ms ahead"));
    CHECK(clock(ours - 60 * second, 2000).starts_with("warning: 60001 ms behind"));
    CHECK(clock(ours + 2 * second, 4 * second).starts_with("ok: 0 ms"));
    CHECK(clock(ours + 4 * second, 4 * second).starts_with("ok: 2000 ms ahead"));
    CHECK(lines(at(ours, ours - second, sound().with("TIME", time_of(ours))), "clock")
              .starts_with("unknown: "));
    CHECK(lines(at(ours, ours, sound().with("TIME", texts({"x", "y"}))), "clock").starts_with("unknown: "));
}

TEST_CASE("nothing is written to a replica, not even in vain") {
    auto it =
        sound()
            .with("INFO", info("role:slave\r\nmaster_link_status:up\r\n"))
            .with("ROLE", reply::array({reply::string("slave"), reply::string("h"), reply::integer(1)}));
    const auto writes = [&] {
        return std::any_of(it.asked.begin(), it.asked.end(), [](const std::string& one) {
            return !one.starts_with("ACL DRYRUN ") &&
                   (one.starts_with("SET ") || one.starts_with("DEL ") || one.starts_with("PUBLISH "));
        });
    };
    auto seen = diagnose(it);
    CHECK(says(seen, severity::problem, "role", "a replica"));
    CHECK(says(seen, severity::ok, "permissions", "user worker may do all"));
    CHECK(seen.about("writes") == nullptr);
    CHECK_FALSE(writes());

    it.refusing({"ACL WHOAMI"});
    seen = diagnose(it);
    CHECK(says(seen, severity::unknown, "permissions", "not tried on a replica"));
    it.says.erase("ACL WHOAMI");
    it.with("ACL WHOAMI", reply::string("worker")).refusing({"ACL DRYRUN worker"});
    CHECK(says(diagnose(it), severity::unknown, "permissions", "could not be tried"));
    CHECK_FALSE(writes());
}

TEST_CASE("a Sentinel is told apart, and asked nothing more") {
    auto it = sound().with("ROLE", reply::array({reply::string("sentinel"), texts({"m"})}));
    const auto seen = diagnose(it);
    CHECK(says(seen, severity::problem, "role", "a Sentinel"));
    CHECK(seen.findings().size() == 2);
    CHECK_FALSE(it.was_asked("ACL DRYRUN"));
}

TEST_CASE("a connection that follows a master needs ROLE") {
    const auto refused = sound().refusing({"ROLE"});
    CHECK(says(at(0, 0, refused, {.follow = true}), severity::warning, "role", "ROLE is refused"));
    CHECK_FALSE(says(at(0, 0, refused), severity::warning, "role", "ROLE is refused"));
}

TEST_CASE("the state of a Cluster is what its node says") {
    const auto state = [](const std::string& said, bool shard = true) {
        auto it =
            sound().with("INFO", info("cluster_enabled:1\r\n")).with("CLUSTER INFO", reply::string(said));
        return lines(at(0, 0, it, {.subscribe = true, .shard = shard}), "cluster");
    };
    const std::string good =
        "cluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_slots_pfail:0\r\ncluster_size:3\r\n";
    CHECK(state(good).starts_with("ok: state ok, 3 masters"));
    CHECK(state(good, false)
              .starts_with("warning: a node of a Cluster, over a connection that is not made for one"));
    CHECK(state("cluster_state:fail\r\n").starts_with("problem: state fail"));
    CHECK(state("cluster_state:ok\r\ncluster_slots_assigned:16380\r\n")
              .starts_with("problem: 4 slots belong to no node"));
    CHECK(state("cluster_slots_fail:5\r\n" + good).starts_with("warning: 5 slots"));
    CHECK(state("cluster_slots_fail:5\r\ncluster_slots_pfail:2\r\n" + good).starts_with("warning: 7 slots"));
    CHECK(state("").starts_with("unknown: "));
    auto secretive =
        sound().with("INFO", info("redis_mode:cluster\r\n")).with("CLUSTER INFO", reply::error("NOPERM x"));
    CHECK(lines(at(0, 0, secretive), "cluster").starts_with("warning: a node of a Cluster"));
    auto old = sound()
                   .with("INFO", info("cluster_enabled:1\r\n", "redis_version:6.2.20\r\n"))
                   .with("CLUSTER INFO", reply::string(good));
    CHECK(
        says(at(0, 0, old, {.subscribe = true, .shard = true}), severity::warning, "cluster", "SSUBSCRIBE"));
}

TEST_CASE("permissions are those that the connection's way of listening needs") {
    auto it = sound();
    examination asked({.prefix = "orders:"}, {.subscribe = true, .shard = true},
                      "0123456789abcdef0123456789abcdef");
    std::vector<reply> replies;
    for (const command& one : asked.questions()) replies.push_back(it(one));
    asked.on_answers(replies, {}, {});
    std::vector<std::string> all;
    for (const command& one : asked.questions()) {
        if (one.argv().front() == "ACL") all.emplace_back(one.argv()[3]);
        CHECK(one.routing_key() == "orders:diagnose-0123456789abcdef0123456789abcdef");
    }
    const auto has = [&](const char* name) { return std::find(all.begin(), all.end(), name) != all.end(); };
    CHECK(has("SPUBLISH"));
    CHECK(has("ASKING"));
    CHECK_FALSE(has("PUBLISH"));
    CHECK(asked.channel() == "{orders:diagnose-0123456789abcdef0123456789abcdef}:distlock:0123456789abcdef");
}

TEST_CASE("a permission that ACL DRYRUN refuses is named with its cost") {
    auto it = sound();
    const auto without = [&](const std::string& words) {
        auto of = it;
        of.with("ACL DRYRUN worker " + words,
                reply::string("User worker has no permissions to run the 'x' command"));
        const auto seen = diagnose(of);
        CHECK_FALSE(of.was_asked("ZADD "));
        return lines(seen, "permissions");
    };
    CHECK(without("GET").starts_with("problem: user worker lacks +get (User worker has"));
    CHECK(without("EVAL").starts_with("problem: user worker lacks +eval +evalsha"));
    CHECK(without("ZADD").find("problem: user worker lacks +zadd") != std::string::npos);
    CHECK(without("INCRBY").starts_with("warning: user worker lacks +incrby"));
    CHECK(without("ZCARD").find("inspect()") != std::string::npos);
    CHECK(without("PUBSUB").find("two seconds") != std::string::npos);
    CHECK(without("PUBLISH").find("re-check") != std::string::npos);
    CHECK(without("PTTL").find("SECURITY.md") != std::string::npos);
}

TEST_CASE("a command that ACL DRYRUN does not find is lacking; where it does not find the user it is tried") {
    auto it = sound().with("ACL DRYRUN worker EVAL ", reply::error("ERR Command 'EVAL' not found"));
    CHECK(says(diagnose(it), severity::problem, "permissions",
               "user worker lacks +eval (ERR Command 'EVAL' not found)"));
    CHECK_FALSE(it.was_asked("EVAL "));
    it.with("ACL DRYRUN worker EVAL ", reply::error("ERR User 'worker' not found"));
    CHECK(says(diagnose(it), severity::ok, "permissions", "may do all"));
    CHECK(it.was_asked("EVAL "));
}

TEST_CASE("a Cluster's user that may not ask for the slots is warned of what that costs") {
    auto it = sound();
    it.with("ACL DRYRUN worker CLUSTER SLOTS",
            reply::string("User worker has no permissions to run the 'cluster|slots' command"));
    const auto said = lines(at(0, 0, it, {.subscribe = true, .shard = true}), "permissions");
    INFO(said);
    CHECK(said.starts_with("warning: user worker lacks +cluster|slots (User"));
    CHECK(said.find("each slot is found by its first redirection") != std::string::npos);
}

TEST_CASE("the channel of a Cluster that the user may not use has the hash tag of its lock") {
    const auto text = [](const std::string& prefix) {
        auto it = sound();
        it.with("ACL DRYRUN worker SPUBLISH",
                reply::string("User worker has no permissions to access the 'x' channel"));
        return lines(at(0, 0, it, {.subscribe = true, .shard = true}, prefix), "permissions");
    };
    CHECK(text("orders:").find("worker lacks &{orders:*}:distlock:* (User") != std::string::npos);
    CHECK(text("{orders}:").find("worker lacks &{orders}:distlock:* (User") != std::string::npos);
}

// It named the command, which the user had: "lacks +zadd", where the pattern of the keys was missing.
TEST_CASE("a key or a channel that the user may not use is named as an ACL has it, once") {
    const auto text = [](const std::string& prefix, const std::string& words, const std::string& what) {
        auto it = sound();
        it.with("ACL DRYRUN worker " + words,
                reply::string("User worker has no permissions to access the 'x' " + what));
        return lines(diagnose(it, {.prefix = prefix}), "permissions");
    };
    CHECK(text("orders:", "GET", "key").starts_with("problem: user worker lacks ~orders:* (User"));
    CHECK(text("orders:", "Z", "key").find("worker lacks ~{orders:*}:distlock:* (User") != std::string::npos);
    CHECK(text("{orders}:", "Z", "key").find("worker lacks ~{orders}:* (User") != std::string::npos);
    CHECK(text("a{b", "Z", "key").find("worker lacks ~{a{b*}:distlock:* (User") != std::string::npos);
    CHECK(text("orders:", "PUBLISH", "channel").starts_with("warning: user worker lacks &distlock:* (User"));
    // What an ACL would take for a pattern.
    CHECK(text("a[1]?:", "GET", "key").starts_with(R"(problem: user worker lacks ~a\[1\]\?:* (User)"));
}

TEST_CASE("permissions are tried by commands that do nothing where ACL DRYRUN is refused") {
    const auto with = [](const std::string& beginning, const std::string& error, const std::string& prefix) {
        auto it = sound().refusing({"ACL DRYRUN worker"});
        it.with("INCRBY", reply::error("ERR value is not an integer or out of range"))
            .with("EVAL (", reply::error("ERR Error compiling script"))
            .with("EVALSHA", reply::error("NOSCRIPT No matching script."))
            .with("ZADD", reply::error("ERR value is not a valid float"));
        if (!beginning.empty()) it.with(beginning, reply::error(error));
        const auto seen = diagnose(it, {.prefix = prefix});
        for (const char* const of_a_cluster : {"SPUBLISH", "CLUSTER SLOTS"})
            CHECK_FALSE(it.was_asked(of_a_cluster));
        return lines(seen, "permissions");
    };
    CHECK(with("", "", "").starts_with("ok: "));
    CHECK(with("GET", "NOPERM this user has no permissions to run the 'get' command or its subcommand", "")
              .starts_with("problem: user worker lacks +get"));
    CHECK(with("EVALSHA", "ERR unknown command 'EVALSHA', with args beginning with: 'x'", "")
              .starts_with("problem: user worker lacks +evalsha"));
    CHECK(with("PUBSUB", "ERR Unknown subcommand or wrong number of arguments for 'NUMSUB'", "")
              .starts_with("warning: user worker lacks +pubsub|numsub"));
    CHECK(with("PUBSUB", "ERR unknown subcommand 'NUMSUB'", "")
              .starts_with("warning: user worker lacks +pubsub|numsub"));
    for (const char* keys :
         {"NOPERM No permissions to access a key",
          "NOPERM this user has no permissions to access one of the keys used as arguments"}) {
        CHECK(with("SET", keys, "").starts_with("unknown: user worker may not use keys of any name"));
        CHECK(with("SET", keys, "orders:").starts_with("problem: user worker lacks ~orders:* ("));
    }
    auto unanswered = sound().refusing({"ACL DRYRUN worker"});
    unanswered.with("ZRANK", reply::no_answer(errc::no_reply, "lost"));
    CHECK(says(diagnose(unanswered), severity::unknown, "permissions",
               "zrank zrem zscore time could not be tried"));
}

TEST_CASE("a server that refuses writes says so") {
    for (const char* error : {"OOM command not allowed", "MISCONF Redis is configured to save",
                              "NOREPLICAS Not enough good replicas", "READONLY You can't write",
                              "MOVED 5 h:1", "LOADING it is", "CLUSTERDOWN it is"}) {
        for (const bool by_dry_run : {true, false}) {
            auto it = sound().with("SET", reply::error(error));
            if (!by_dry_run) it.refusing({"ACL"});
            if (!by_dry_run)
                std::erase_if(it.says, [](const auto& one) { return one.first.starts_with("ACL "); });
            const auto seen = diagnose(it);
            CHECK(says(seen, severity::problem, "writes", error));
            CHECK(says(seen, severity::ok, "permissions", "may do all"));
        }
    }
}

TEST_CASE("a server that does not answer, or asks for a password, is one finding") {
    server gone;
    gone.with("", reply::not_sent(errc::unreachable, "redis://h"));
    auto seen = diagnose(gone);
    REQUIRE(seen.findings().size() == 1);
    CHECK(says(seen, severity::problem, "server",
               distlock::error(errc::unreachable, "not answered: redis://h").what()));
    CHECK(gone.asked.size() == 1);

    server strict;
    strict.with("", reply::error("NOAUTH Authentication required."));
    seen = diagnose(strict);
    REQUIRE(seen.findings().size() == 1);
    CHECK(says(seen, severity::problem, "server", "NOAUTH"));
    CHECK_FALSE(strict.was_asked("SET"));
}

TEST_CASE("a server that refused the password has answered") {
    server strict;
    strict.with("", reply::not_sent(errc::authentication_failed, "redis://h: AUTH was refused"));
    const auto seen = diagnose(strict);
    REQUIRE(seen.findings().size() == 1);
    CHECK(says(seen, severity::problem, "server",
               distlock::error(errc::authentication_failed, "redis://h: AUTH was refused").what()));
    CHECK_FALSE(says(seen, severity::problem, "server", "not answered"));
}

TEST_CASE("a prefix that no lock's name can begin with is refused before anything is asked") {
    server it;
    for (const auto& prefix : {std::string(distlock::max_name_size, 'x'), std::string("a}b")}) {
        CHECK_THROWS_AS(diagnose(it, {.prefix = prefix}), distlock::error);
    }
    CHECK(it.asked.empty());
}

TEST_CASE("whether messages arrive is what the subscription showed") {
    examination asked({}, {.subscribe = true}, "0123456789abcdef0123456789abcdef");
    auto it = sound();
    std::vector<reply> replies;
    for (const command& one : asked.questions()) replies.push_back(it(one));
    asked.on_answers(replies, {}, {});
    CHECK(asked.channel() == "distlock:0123456789abcdef");
    CHECK(asked.conclude().about("messages") == nullptr);
    asked.on_subscribed(true, "");
    CHECK(says(asked.conclude(), severity::ok, "messages", "served in order"));
    asked.on_subscribed(false, "no way");
    CHECK(says(asked.conclude(), severity::warning, "messages", "(no way)"));
}

}  // namespace examination_tests
