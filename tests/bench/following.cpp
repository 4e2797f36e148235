// What an uncontended lock costs over the connections that follow their master, beside the same over
// hiredis_connection; and in round trips, where a replica has to acknowledge it.
#include <chrono>
#include <stdexcept>
#include <string>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "bench.hpp"
#include "delay_proxy.hpp"
#include "redis_client.hpp"
#include "support/waiting.hpp"

namespace {

using namespace bench;
using distlock::testing::redis_server;

void must(bool holds, const std::string& what) {
    if (!holds) throw std::runtime_error("the bench needs " + what);
}

template <class Connection>
struct cycles {
    Connection redis;
    distlock::mutex<Connection> mutex;

    explicit cycles(const std::string& uri, const distlock::lock_options& options = {})
        : redis(uri), mutex(redis, "orders", options) {}
    void operator()() {
        mutex.lock();
        mutex.unlock();
    }
};

/// Returns: over `following`, x the same over hiredis_connection.
template <class Connection>
figure beside_one_server(const std::string& following, const std::string& server, int count, int rounds) {
    cycles<Connection> mine(following);
    cycles<distlock::hiredis_connection> plain(server);
    rate_of(count, mine);
    rate_of(count, plain);
    figure ratio;
    for (int i = 0; i < rounds; ++i) {
        const double beside = rate_of(count, plain);
        ratio.add(rate_of(count, mine) / beside);
    }
    return ratio;
}

std::string address(const redis_server& of) { return "127.0.0.1:" + std::to_string(of.port()); }

figure over_sentinel(const settings& set, int rounds) {
    const redis_server master({.tcp = true});
    const redis_server watcher({.tcp = true, .arguments = {"--sentinel"}});
    must(watcher.command({"SENTINEL", "MONITOR", "m", "127.0.0.1", std::to_string(master.port()), "1"}) ==
             "OK",
         "a Sentinel");
    return beside_one_server<distlock::sentinel_connection>("redis+sentinel://" + address(watcher) + "/m",
                                                            master.uri(), set.count(10'000), rounds);
}

figure over_cluster(const settings& set, int rounds) {
    const redis_server node({.tcp = true,
                             .arguments = {"--cluster-enabled", "yes", "--cluster-port",
                                           std::to_string(distlock::testing::impl::unused_port())}});
    must(node.command({"CLUSTER", "ADDSLOTSRANGE", "0", "16383"}) == "OK", "Redis 7 for a Cluster");
    must(eventually([&] {
             return node.command({"CLUSTER", "INFO"}).find("cluster_state:ok") != std::string::npos;
         }),
         "a Cluster");
    return beside_one_server<distlock::cluster_connection>("redis+cluster://" + address(node), node.uri(),
                                                           set.count(10'000), rounds);
}

/// Returns: how many round trips a cycle takes, where one takes 0.4 ms.
figure with_a_replica(const settings& set, int rounds) {
    const redis_server master({.tcp = true, .arguments = {"--repl-diskless-sync-delay", "0"}});
    const redis_server replica(
        {.tcp = true, .arguments = {"--replicaof", "127.0.0.1 " + std::to_string(master.port())}});
    must(master.command({"SET", "there", "yes"}) == "OK" && eventually([&] {
             return replica.command({"GET", "there"}) == "yes";
         }),
         "a replica");
    const delay_proxy far(master, std::chrono::microseconds{400});
    cycles<distlock::hiredis_connection> mine(far.uri(), {.replicas = 1});
    const auto ping = [&] { must(mine.redis.execute({"PING"}).is_status("PONG"), "a server"); };
    const int count = set.count(1'000);
    rate_of(count / 5 + 1, mine);
    figure trips;
    for (int i = 0; i < rounds; ++i) {
        const double pings = rate_of(count, ping);
        trips.add(pings / rate_of(count, mine));
    }
    return trips;
}

void measure(const settings& set) {
    const int rounds = set.rounds(7);
    bars held;
    const auto sentinel = over_sentinel(set, rounds);
    const auto cluster = over_cluster(set, rounds);
    const auto replicated = with_a_replica(set, rounds);
    print_head("Uncontended lock + unlock; " + std::to_string(rounds) + " rounds, alternating",
               {"what", "median (range)"});
    print_row({"sentinel_connection, x hiredis_connection", with_range(sentinel)});
    print_row({"cluster_connection, x hiredis_connection", with_range(cluster)});
    print_row({"`.replicas = 1` behind 0.4 ms, round trips of PING", with_range(replicated)});
    held.at_least("over Sentinel: x hiredis_connection", sentinel, 0.97);
    held.at_least("over Cluster: x hiredis_connection", cluster, 0.97);
    held.at_most("`.replicas = 1` behind 0.4 ms: round trips", replicated, 2.2);
    held.print();
}

}  // namespace

int main(int argc, char** argv) { return bench::run("following", argc, argv, 300, measure); }
