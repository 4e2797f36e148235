// The findings of an examination: each answer, and its consequence for locks.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/detail/concat.hpp>
#include <distlock/detail/printable.hpp>
#include <distlock/wire/diagnosis.hpp>
#include <distlock/wire/examination_permissions.hpp>
#include <distlock/wire/examination_questions.hpp>
#include <distlock/wire/examined.hpp>
#include <distlock/wire/known_bugs.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/server_error.hpp>
#include <distlock/wire/server_facts.hpp>

namespace distlock::detail {

// The findings, as they come together.
class examination_report {
  public:
    explicit examination_report(const examined& of) : of_(of), info_(of.facts[asked_for::info]) {}

    diagnosis all() {
        server();
        role();
        if (of_.standing() == role_of::sentinel) return diagnosis(std::move(findings_));
        replicas();
        min_replicas();
        maxmemory_policy();
        persistence();
        uptime();
        clock();
        cluster();
        writes();
        if (is_replica() && of_.user.empty()) {
            add(severity::unknown, "permissions", "not tried on a replica");
        } else {
            add_permissions(of_, findings_);
        }
        messages();
        return diagnosis(std::move(findings_));
    }

  private:
    using text = std::string_view;
    using role_of = examined::role;

    void add(severity how, text subject, std::string what) {
        findings_.push_back({how, std::string(subject), std::move(what)});
    }
    const reply& fact(asked_for::fact which) const noexcept { return of_.facts[which]; }
    // Returns: why there is nothing to be read in an answer.
    static std::string could_not(const reply& answer) {
        return "could not be asked" +
               (answer.text().empty() ? "" : " (" + printable(answer.text(), 120) + ")");
    }
    void unknown(text subject, const reply& answer, std::string_view so = {}) {
        add(severity::unknown, subject, could_not(answer).append(so));
    }
    static std::string number(std::int64_t n) { return std::to_string(n); }
    std::string shown_lease() const {
        const auto ms = of_.options.lease.count();
        return ms % 1000 == 0 ? number(ms / 1000) + " s" : number(ms) + " ms";
    }
    bool is_late(std::int64_t seconds) const noexcept {
        return seconds >= std::max<std::int64_t>(of_.options.lease.count() / 1000, 1);
    }
    bool is_replica() const noexcept { return of_.standing() == role_of::replica; }
    bool is_cluster() const { return info_.is("cluster_enabled", "1") || info_.is("redis_mode", "cluster"); }
    bool has_aof() const {
        return info_.is("aof_enabled", "1") || value_of(fact(asked_for::append), "appendonly") == "yes";
    }
    std::vector<replica_state> seen_replicas() const {
        auto all = replicas_in(info_);
        return all.empty() ? replicas_in(fact(asked_for::role)) : all;
    }
    bool knows_replicas() const {
        return info_.field("connected_slaves").has_value() || !fact(asked_for::role).elements().empty();
    }

    // The backlog is made for the first replica, and freed an hour after the last.
    bool may_have_had_replicas() const { return of_.can.follow || info_.is("repl_backlog_active", "1"); }

    void server() {
        const auto valkey = info_.field("valkey_version");
        const auto redis = info_.field("redis_version");
        if (!valkey && !redis) {
            const reply& said = fact(asked_for::info);
            const bool busy = said.is(reply_kind::error) && classify_error(said.said()).transient;
            return unknown("server", said,
                           busy ? ": ask again when it answers"
                                : ": allow INFO, or look up which mistakes its version has");
        }
        if (info_.field("dragonfly_version")) {
            return add(severity::unknown, "server",
                       "Dragonfly " + printable(*info_.field("dragonfly_version"), 40) +
                           ": locks are not tested with it");
        }
        const auto shown = (valkey ? "Valkey " : "Redis ") + printable(valkey ? *valkey : *redis, 40);
        const auto version = read_version(valkey ? *valkey : *redis);
        bool sound = true;
        for (const auto& bug : known_bugs) {
            if (!version || bug.valkey != valkey.has_value() || *version < bug.first ||
                *version >= bug.mended)
                continue;
            if (bug.only_with_aof && !has_aof()) continue;
            sound = false;
            add(bug.how, "server", shown + ": " + std::string(bug.text));
        }
        if (sound) add(severity::ok, "server", shown);
        if (info_.is("loading", "1"))
            add(severity::problem, "server",
                "it loads its data: locks fail with errc::unavailable until it has");
    }

    void role() {
        switch (of_.standing()) {
            case role_of::sentinel:
                return add(severity::problem, "role",
                           "a Sentinel, which keeps no locks: name it in a redis+sentinel:// URI");
            case role_of::replica:
                return add(
                    severity::problem, "role",
                    info_.is("slave_read_only", "0")
                        ? "a replica that takes writes: it grants locks beside its master, so two may own "
                          "one; connect to its master, and set replica-read-only"
                        : "a replica: locks fail with errc::read_only; connect to its master, or through "
                          "sentinel_connection");
            case role_of::master:
                add(severity::ok, "role", "a master");
                break;
            case role_of::unknown:
                unknown("role", fact(asked_for::role), ": a replica is only found out by its answers");
        }
        if (of_.can.follow && !of_.can.shard && fact(asked_for::role).elements().empty()) {
            add(severity::warning, "role",
                "ROLE is refused: sentinel_connection cannot check what Sentinels call the master, and "
                "notices a replica only when it answers READONLY");
        }
    }

    void replicas() {
        if (is_replica()) return;
        if (!knows_replicas())
            return unknown("replicas", fact(asked_for::info), ": what a fail-over would lose is not known");
        const auto all = seen_replicas();
        if (online(all) < of_.options.replicas) {
            add(severity::problem, "replicas",
                number(online(all)) + " online: locks with .replicas = " + number(of_.options.replicas) +
                    " fail with errc::not_replicated");
            if (all.empty()) return;
        }
        if (all.empty() && may_have_had_replicas())
            return add(
                severity::warning, "replicas",
                "none is connected now: one that was cut off may take over, with the locks of that time");
        if (all.empty())
            return add(severity::ok, "replicas", "none: nothing takes over, and no fail-over loses a lock");
        for (const replica_state& one : all) {
            std::string state = printable(one.where, 80);
            const bool late = one.lag && is_late(*one.lag);
            if (!one.online) state += ", not online yet";
            if (one.lag) state += ", heard " + number(*one.lag) + " s ago";
            if (one.behind) state += ", " + number(*one.behind) + " bytes behind";
            state += !one.online || late ? ": a fail-over to it loses the locks it has not heard of"
                                         : ": a fail-over to it loses what it has not acknowledged, for "
                                           "replication is asynchronous";
            add(!one.online || late ? severity::warning : severity::ok, "replicas", state);
        }
    }

    void min_replicas() {
        constexpr text subject = "min-replicas-to-write";
        if (is_replica()) return;
        const auto all = seen_replicas();
        auto value = value_of(fact(asked_for::min_replicas), "min-replicas-to-write");
        const auto max_lag = value_of(fact(asked_for::min_replicas), "min-replicas-max-lag");
        const auto good = info_.number("min_slaves_good_slaves");
        if (!value && info_.field("role") && !good) value = "0";  // INFO has this field where it is set, only
        if (!value) {
            return add(severity::unknown, subject,
                       (good ? "set, but its value " : "") + could_not(fact(asked_for::min_replicas)) +
                           ": after a fail-over the old master may go on granting and renewing locks");
        }
        const auto needed = count_in(*value).value_or(0);
        const auto lag = count_in(max_lag.value_or(""));
        if (needed == 0 || lag == 0) {
            if (all.empty() && knows_replicas() && !may_have_had_replicas())
                return add(severity::ok, subject, "off, and there are no replicas");
            return add(
                severity::warning, subject,
                "off: after a fail-over the old master goes on granting and renewing locks for clients that "
                "still reach it; set it to 1, with a min-replicas-max-lag below the lease");
        }
        const auto have = good.value_or(online(all));
        if (knows_replicas() && have < needed) {
            return add(severity::problem, subject,
                       number(needed) + ", and there are " + number(have) +
                           ": the server refuses writes, locks and releases fail with errc::writes_refused");
        }
        const auto goes_on = ": an old master goes on granting and renewing locks for that long";
        if (!lag)
            return add(severity::unknown, subject,
                       number(needed) + ", min-replicas-max-lag unknown" + goes_on);
        const auto set = number(needed) + ", min-replicas-max-lag " + number(*lag) + " s";
        if (is_late(*lag))
            return add(severity::warning, subject,
                       set + ", no less than the lease of " + shown_lease() + goes_on);
        add(severity::ok, subject,
            set + ": after that an old master whose replicas left it grants and renews nothing");
    }

    void maxmemory_policy() {
        constexpr text subject = "maxmemory-policy";
        auto policy = value_of(fact(asked_for::maxmemory), "maxmemory-policy");
        auto limit = value_of(fact(asked_for::maxmemory), "maxmemory");
        if (!policy) policy = info_.field("maxmemory_policy");
        if (!limit) limit = info_.field("maxmemory");
        if (!policy) {
            return unknown(subject, fact(asked_for::maxmemory),
                           ": with any but noeviction a full server drops locks that are held");
        }
        const auto shown = printable(*policy, 40);
        if (*policy == "noeviction")
            return add(severity::ok, subject, "noeviction: a full server refuses new locks and drops none");
        if (limit == "0") {
            return add(
                severity::warning, subject,
                shown + ", and no maxmemory: nothing is dropped, until somebody sets one; set noeviction");
        }
        add(severity::problem, subject,
            shown + ": a full server drops locks that are held, and gives them to others; set noeviction");
    }

    void persistence() {
        constexpr text subject = "persistence";
        const auto loses_all = std::string(": a restart frees all locks") +
                               (seen_replicas().empty() ? "" : ", on its replicas, too") +
                               ", and their owners do not know until their next renewal; set appendonly yes";
        const reply& append = fact(asked_for::append);
        const auto aof = value_of(append, "appendonly");
        const auto fsync = value_of(append, "appendfsync");
        const auto save = value_of(fact(asked_for::save), "save");
        if (info_.is("aof_enabled", "1") && info_.is("aof_last_write_status", "err"))
            add(severity::problem, subject,
                "the append-only file could not be written: the server refuses writes");
        if (info_.is("rdb_last_bgsave_status", "err"))
            add(severity::warning, subject,
                "the last snapshot failed: with stop-writes-on-bgsave-error the server refuses writes");
        if (!aof && !info_.field("aof_enabled"))
            return unknown(subject, append, ": what a restart would lose is not known");
        if (has_aof()) {
            if (!fsync) {
                return add(severity::unknown, subject,
                           "appendonly yes; appendfsync " + could_not(append) +
                               ": with any but always a crash of the machine frees locks that are held");
            }
            if (syncs_each_write(append))
                return add(severity::ok, subject,
                           "appendonly yes, appendfsync always: a restart keeps all locks");
            if (*fsync == "always")
                return add(
                    severity::warning, subject,
                    "appendonly yes, no-appendfsync-on-rewrite yes: a crash of the machine while a child "
                    "process writes a file or fills a replica frees locks of the last half minute or so");
            return add(
                severity::warning, subject,
                "appendonly yes, appendfsync " + printable(*fsync, 20) +
                    ": a restart keeps all locks, but a crash of the machine frees those of the last " +
                    (*fsync == "everysec" && !waits_for_rewrites(append) ? "second" : "half minute or so"));
        }
        if (!save) {
            return add(severity::unknown, subject,
                       "no append-only file; snapshots " + could_not(fact(asked_for::save)) +
                           ": unless the service keeps its data in a way of its own, a restart frees locks "
                           "that are held");
        }
        if (save->empty()) return add(severity::warning, subject, "none" + loses_all);
        add(severity::warning, subject,
            "snapshots only (save " + printable(*save, 60) +
                "): a crash frees the locks that were taken since the last one, and brings back others; set "
                "appendonly yes");
    }

    void uptime() {
        const auto up = info_.number("uptime_in_seconds");
        if (!up || is_late(*up)) return;
        if (has_aof() && syncs_each_write(fact(asked_for::append))) return;
        add(severity::warning, "uptime",
            number(*up) +
                " s, less than a lease: owners of locks that it lost when it started may not know yet");
    }

    void clock() {
        const auto theirs = time_in(fact(asked_for::time));
        if (!theirs || of_.after < of_.before) return unknown("clock", fact(asked_for::time));
        const auto half = (of_.after - of_.before) / 2;
        const auto ahead = *theirs - (of_.before + half);
        const auto off = std::chrono::abs(ahead);
        const auto doubt = half + std::chrono::milliseconds{1};
        const auto ms = [](auto d) { return std::chrono::round<std::chrono::milliseconds>(d).count(); };
        const auto shown = concat(
            {ms(off), " ms", ahead.count() < 0 ? " behind" : " ahead of", " ours (+- ", ms(doubt), " ms)"});
        if (off - doubt < std::chrono::milliseconds{500})
            return add(severity::ok, "clock",
                       shown + ": leases do not depend on it, fail-overs do: keep the servers' clocks alike");
        add(severity::warning, "clock",
            shown +
                ": if the server's clock is the wrong one, slew it: setting it forward ends leases early, "
                "and so does a fail-over to a replica whose clock is ahead of it");
    }

    void cluster() {
        const info_text state(fact(asked_for::cluster));
        if (!is_cluster() && !state.field("cluster_state")) {
            if (of_.can.shard) unknown("cluster", fact(asked_for::cluster));
            return;
        }
        const bool old =
            !info_.field("valkey_version") &&
            read_version(info_.field("redis_version").value_or("")).value_or(server_version{{7, 0, 0}}) <
                server_version{{7, 0, 0}};
        if (!of_.can.shard) {
            add(severity::warning, "cluster",
                "a node of a Cluster, over a connection that is not made for one: locks of other nodes fail "
                "with errc::wrong_node, and waiters may poll; use cluster_connection");
        } else if (old) {
            add(severity::warning, "cluster",
                "older than Redis 7, it has no SSUBSCRIBE: waiters poll for their turn");
        }
        const auto is = state.field("cluster_state");
        if (!is) return unknown("cluster", fact(asked_for::cluster));
        const auto assigned = state.number("cluster_slots_assigned").value_or(16384);
        const auto failing =
            state.number("cluster_slots_fail").value_or(0) + state.number("cluster_slots_pfail").value_or(0);
        if (*is != "ok") {
            add(severity::problem, "cluster",
                "state " + printable(*is, 20) + ": locks fail with errc::unavailable");
        } else if (assigned < 16384) {
            add(severity::problem, "cluster",
                number(16384 - assigned) + " slots belong to no node: their locks fail");
        } else if (failing > 0) {
            add(severity::warning, "cluster",
                number(failing) +
                    " slots are on nodes that do not answer: their locks fail until a fail-over");
        } else {
            add(severity::ok, "cluster",
                "state ok, " + number(state.number("cluster_size").value_or(0)) +
                    " masters with slots; this node was asked, the others were not");
        }
    }

    void writes() {
        if (is_replica()) return;
        if (!of_.write) return;
        const reply& said = *of_.write;
        if (!said.answered())
            return add(severity::unknown, "writes", "not answered: " + printable(said.text(), 120));
        if (!said.is(reply_kind::error)) return add(severity::ok, "writes", "accepted");
        switch (classify_error(said.said()).cause) {
            case errc::permission_denied:
            case errc::authentication_failed:
            case errc::unsupported_command:
                return;  // is among the permissions
            default:
                return add(severity::problem, "writes",
                           "refused: " + printable(said.text(), 160) + ": locks fail");
        }
    }

    void messages() {
        if (!of_.can.subscribe)
            return add(severity::warning, "messages",
                       "this connection cannot subscribe: waiters poll, in any order");
        if (!of_.subscribed) return;
        if (*of_.subscribed)
            return add(severity::ok, "messages",
                       "the server confirms subscriptions: waiters are served in order");
        add(severity::warning, "messages",
            "the server does not confirm a subscription" +
                (of_.why_not.empty() ? "" : " (" + printable(of_.why_not, 120) + ")") + ": " +
                "waiters poll for their turn; ask again if it was busy, else allow SUBSCRIBE, on a Cluster "
                "SSUBSCRIBE, and the channels in .github/SECURITY.md, and leave room for one more client "
                "(maxclients)");
    }

    const examined& of_;
    const info_text info_;
    std::vector<finding> findings_;
};

}  // namespace distlock::detail
