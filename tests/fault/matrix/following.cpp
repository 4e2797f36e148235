// The table of faults, part D: Sentinels or a Cluster put another server in the place of the master,
// and the crew follows.
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/net/hash_slot.hpp>
#include <distlock/testing.hpp>

#include "fault/matrix/campaign.hpp"
#include "fault/matrix/changed_master.hpp"
#include "support/catch.hpp"
#include "support/cluster.hpp"
#include "support/lab_figures.hpp"
#include "support/sentinels.hpp"
#include "support/waiting.hpp"

namespace following_tests {

using distlock::testing::redis_server;

namespace {

class over_sentinels final : public changed_master {
  public:
    explicit over_sentinels(const char* id, std::chrono::milliseconds long_work = 0ms)
        : changed_master(id, long_work) {
        group.set("failover-timeout", "1000");
        group.set("down-after-milliseconds", sentinels::never_down);
        people.begin(uri_);
        all_is_well();
    }

    /// Effects: `fault(the master)` when the replicas have not heard of what it did last. The owner of a
    /// lock, of that lease, that did not get there is to be told within `told_in`.
    template <class Fault>
    fault_end lose(Fault fault, clk::duration unseen, std::chrono::milliseconds how_long = long_lease,
                   clk::duration told_in = told_when_named_in) {
        // A machine without time for its servers looks to Sentinels as if they were down.
        REQUIRE(eventually([&] { return group.settled(); }, 60s));
        group.wait_for_acquaintance();  // or nobody would be there to take over
        redis_server& old = group.master();
        holder<distlock::sentinel_connection> owner(uri_, "owner", how_long);
        for (const auto& one : group.nodes())
            CHECK(eventually([&] { return sentinels::ask(*one, {"EXISTS", owner.held()}) == "1"; }));
        const auto from = clk::now();
        for (const auto& one : group.nodes()) {
            if (one.get() != &old) sentinels::ask(*one, {"REPLICAOF", "127.0.0.1", "1"});
        }
        owner.lock_gone();
        wait_for(unseen);
        fault(old);
        const bool named_another = eventually([&] { return group.most_name_another_than(old); }, 30s);
        const auto when = clk::now();
        if (!named_another) UNSCOPED_INFO(group.logs());
        REQUIRE(named_another);
        // They wait that long before they send a new master the first PING: some would call it down at once.
        group.set("down-after-milliseconds", sentinels::never_down);
        return named(owner, from, when, told_in);
    }

    /// Effects: the Sentinels call a master that does not answer them down, in a second. A machine without
    /// time for its servers looks like that, too.
    void look_closely() const { group.set("down-after-milliseconds", "1000"); }

    sentinels group;

  private:
    std::vector<const redis_server*> masters() const override { return {&group.master()}; }

    const std::string uri_ = group.uri("", time_outs);
};

class over_cluster final : public changed_master {
  public:
    explicit over_cluster(const char* id) : changed_master(id) {
        for (const auto& one : nodes.nodes())
            REQUIRE(one->command({"CONFIG", "SET", "cluster-node-timeout", "1000"}) == "OK");
        people.begin(uri);
        all_is_well();
    }

    /// Of the shard that has a lock of the crew, another one for each `n`, the server that has that role.
    redis_server& master_of(int n) const {
        return *nodes.nodes()[shard_of(n) + (is_master(shard_of(n)) ? 0 : cluster::masters)];
    }
    redis_server& replica_of(int n) const {
        return *nodes.nodes()[shard_of(n) + (is_master(shard_of(n)) ? cluster::masters : 0)];
    }
    static std::string lock_of(int n) { return crew::name(n % 4); }
    static bool is_master(const redis_server& one) {
        return one.running() && one.command({"ROLE"}).starts_with("master");
    }

    /// Effects: `fault(the master)` when its replica has not heard of what it did last.
    template <class Fault>
    fault_end lose(int n, Fault fault, clk::duration unseen, std::chrono::milliseconds how_long,
                   clk::duration told_in) {
        redis_server& old = master_of(n);
        redis_server& next = replica_of(n);
        holder<distlock::cluster_connection> owner(uri, lock_of(n), how_long);
        const auto slot = std::to_string(distlock::hash_slot(lock_of(n)));
        CHECK(eventually([&] {
            return next.command({"CLUSTER", "GETKEYSINSLOT", slot, "100"}).find(owner.held()) !=
                   std::string::npos;
        }));
        const auto from = clk::now();
        next.pause();
        REQUIRE(old.command({"CLIENT", "KILL", "TYPE", "replica"}) == "1");
        owner.lock_gone();
        wait_for(unseen);
        fault(old);
        next.resume();
        REQUIRE(eventually([&] { return is_master(next); }, 30s));
        return named(owner, from, clk::now(), told_in);
    }

    /// Effects: returns when that one is a replica that all know, and has all that its master has.
    void wait_for_replica(const redis_server& one, const redis_server& of) const {
        const auto id = cluster::id_of(of);
        REQUIRE(eventually(
            [&] {
                return one.command({"INFO", "replication"}).find("master_link_status:up") !=
                       std::string::npos;
            },
            30s));
        for (const auto& other : nodes.nodes()) {
            REQUIRE(eventually(
                [&] {
                    const auto replicas = other->command({"CLUSTER", "REPLICAS", id});
                    return replicas.find(cluster::id_of(one)) != std::string::npos &&
                           replicas.find("fail") == std::string::npos;
                },
                30s));
        }
    }

    const cluster nodes{true};
    const std::string uri = nodes.uri("", time_outs);

    std::vector<const redis_server*> masters() const override {
        std::vector<const redis_server*> all;
        for (const auto& one : nodes.nodes()) {
            if (is_master(*one)) all.push_back(one.get());
        }
        return all;
    }

  private:
    static std::size_t shard_of(int n) {
        return distlock::hash_slot(lock_of(n)) * cluster::masters / distlock::slot_count;
    }
    bool is_master(std::size_t node) const { return is_master(*nodes.nodes()[node]); }
};

}  // namespace

TEST_CASE(
    "D14: when Sentinels replace a master that was killed, owners are told in time, and no late write is "
    "accepted") {
    over_sentinels c("D14", 2s);
    c.repeat(
        [&](int n) {
            redis_server& old = c.group.master();
            const auto kill = [&](redis_server& one) {
                c.look_closely();
                one.kill();
            };
            const auto end = c.lose(kill, 100ms * (n % 5));
            old.start();
            c.group.take_back(old);
            return end;
        },
        1);
    c.finish();
}

TEST_CASE(
    "D15: when Sentinels replace a master that stands still, and then goes on as one, owners are told in "
    "time, and no late write is accepted") {
    over_sentinels c("D15", 2s);
    c.repeat(
        [&](int n) {
            redis_server& old = c.group.master();
            const auto pause = [&](redis_server& one) {
                c.look_closely();
                one.pause();
            };
            const auto end = c.lose(pause, 100ms * (n % 5));
            old.resume();
            campaign_over::wait_for(100ms);
            c.group.take_back(old);
            return end;
        },
        1);
    c.finish();
}

TEST_CASE(
    "D16: when Sentinels fail over on demand, or are told of another master by hand, owners are told in "
    "time, and no late write is accepted") {
    over_sentinels c("D16");
    c.repeat([&](int n) {
        redis_server& old = c.group.master();
        const auto unseen = 100ms * (n % 5);
        const auto on_demand = [&](redis_server&) { c.group.demand(); };
        const auto by_hand = [&](redis_server& one) { c.group.replace_by_hand(one); };
        // Nobody says +switch-master of what is done by hand: the old master says what it is
        // at the next renewal.
        const auto end = n % 2 == 0 ? c.lose(on_demand, unseen) : c.lose(by_hand, unseen, 3s, 1s);
        c.group.take_back(old);
        return end;
    });
    c.finish();
}

TEST_CASE("D1: when a Cluster fails over to a replica that has all locks, none is lost and nobody is stuck") {
    over_cluster c("D1");
    c.repeat([&](int n) {
        redis_server& old = c.master_of(n);
        redis_server& next = c.replica_of(n);
        holder<distlock::cluster_connection> owner(c.uri, over_cluster::lock_of(n), 3s);
        REQUIRE(next.command({"CLUSTER", "FAILOVER"}) == "OK");
        REQUIRE(eventually([&] { return over_cluster::is_master(next); }, 30s));
        const campaign_over::fault_end end{.at = campaign_over::clk::now()};
        owner.unlock_held();
        c.wait_for_replica(old, next);
        return end;
    });
    c.finish();
    CHECK(c.people.lost() == 0);
}

TEST_CASE(
    "D5: while slots are moved back and forth, key by key, and in one piece where the server can, no lock is "
    "lost and nobody is let in twice") {
    over_cluster c("D5");
    std::string way;
    c.repeat([&](int n) {
        const auto slot = distlock::hash_slot(over_cluster::lock_of(n));
        const redis_server& home = c.master_of(n);
        const auto others = c.masters();
        const redis_server& away = *(others.front() == &home ? others.back() : others.front());
        c.nodes.migrate(slot, home, away);
        way = c.nodes.migrate_whole(slot, away, home);
    });
    figure("D5: slots came back: %s", way.c_str());
    c.finish();
    CHECK(c.people.lost() == 0);
    CHECK(c.people.all_errors() == 0);
}

TEST_CASE(
    "D17: when a Cluster replaces a master that was killed, or stands still, owners are told in time, and no "
    "late write "
    "is accepted") {
    over_cluster c("D17");
    c.repeat(
        [&](int n) {
            redis_server& old = c.master_of(n);
            redis_server& next = c.replica_of(n);
            const bool dies = n % 2 == 0;
            const auto kill = [](redis_server& one) { one.kill(); };
            const auto stop = [](redis_server& one) { one.pause(); };
            const auto unseen = 100ms * (n % 5);
            // Nothing tells that it stands still before the next renewal is due, after a third of the lease.
            const auto end =
                dies ? c.lose(n, kill, unseen, over_cluster::long_lease, over_cluster::told_when_named_in)
                     : c.lose(n, stop, unseen, 6s, 2s);
            dies ? old.start() : old.resume();
            c.wait_for_replica(old, next);
            return end;
        },
        1);
    c.finish();
}

}  // namespace following_tests
