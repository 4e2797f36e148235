// What waiting for permits costs: 64 client processes share eight.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "bench.hpp"
#include "command_meter.hpp"
#include "processes.hpp"
#include "redis_client.hpp"

namespace {

using namespace bench;
using distlock::hiredis_connection;
using distlock::testing::redis_server;

constexpr int clients = 64;
constexpr int limit = 8;
constexpr nanoseconds inside = 2ms;

// What all processes of a run see.
struct board {
    std::atomic<int> ready;
    std::atomic<bool> go;
    std::atomic<bool> measuring;
    std::atomic<bool> stop;
};

// What one client has done while it was measured.
struct client {
    std::atomic<std::uint64_t> acquisitions;
    std::atomic<nanoseconds::rep> held;
};

void compete(const std::string& where, const std::string& name, board& all, client& mine) {
    hiredis_connection redis(where);
    distlock::counting_semaphore pool(redis, name, limit);
    ++all.ready;
    while (!all.go) pause(1ms);
    while (!all.stop) {
        const distlock::permit one = pool.acquire();
        const auto got = now();
        pause(inside);
        if (!all.measuring) continue;
        ++mine.acquisitions;
        mine.held += (now() - got).count();
    }
}

struct shares {
    double in_use;  // of the limit, by those who use them
    double given;   // of the limit, by the server
    double commands;
    double fairness;
    double rate;
};

shares sharing(const redis_server& server, const std::string& name, nanoseconds window) {
    const shared_array<board> boards(1);
    board& all = boards[0];
    const shared_array<client> each(clients);
    child_group group;
    for (std::size_t i = 0; i < clients; ++i)
        group.start("client", [&] { compete(server.uri(), name, all, each[i]); });
    group.wait_for("all clients were there", 20s, [&] { return all.ready == clients; });
    all.go = true;
    command_meter meter(server);
    group.wait_until(now() + 300ms);
    meter.learn(now() + 300ms);
    meter.begin();
    all.measuring = true;
    const auto begin = now();
    redis_client beside(server.uri());
    double given = 0, looks = 0;
    for (const auto end = now() + window; now() < end; ++looks) {
        const auto used = beside.run({"HGET", "{" + name + "}:distlock:limit", "used"});
        if (used->str != nullptr) given += std::stod(used->str);
        group.wait_until(now() + 10ms);
    }
    all.measuring = false;
    const double took = in_seconds(now() - begin);
    const double sent = meter.sent();
    all.stop = true;
    group.wait_for_end();

    std::vector<double> counts;
    double held = 0, sum = 0;
    for (const client& one : each) {
        counts.push_back(static_cast<double>(one.acquisitions.load()));
        sum += counts.back();
        held += in_seconds(nanoseconds{one.held.load()});
    }
    const auto [fewest, most] = std::minmax_element(counts.begin(), counts.end());
    return {held / took / limit, given / looks / limit, (sent - looks) / sum, *fewest / *most, sum / took};
}

void measure(const settings& set) {
    const redis_server server({.tcp = true});
    figure in_use, given, commands, fairness, rate;
    for (int i = 0; i < set.rounds(5); ++i) {
        const auto one = sharing(server, "pool " + std::to_string(i), set.window(4s));
        in_use.add(one.in_use);
        given.add(one.given);
        commands.add(one.commands);
        fairness.add(one.fairness);
        rate.add(one.rate);
    }
    print_head("64 clients, 8 permits, 2 ms of work",
               {"in use / limit", "given by the server / limit", "commands per acquisition", "fewest / most",
                "acquisitions/s"});
    print_row({with_range(in_use), with_range(given), with_range(commands), with_range(fairness),
               with_range(rate)});
    bars held;
    held.at_least("64 clients, 8 permits: in use / limit", in_use, 0.97);
    held.at_most("64 clients, 8 permits: commands per acquisition", commands, 2.05);
    held.at_least("64 clients, 8 permits: fewest / most", fairness, 0.95);
    held.print();
}

}  // namespace

int main(int argc, char** argv) { return bench::run("permits", argc, argv, 300, measure); }
