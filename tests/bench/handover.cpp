// How long a lock is on its way from one process to the next: from the call of unlock() to the return of the
// waiter's lock(), beside the round trip of a PING in the same run.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <distlock/testing.hpp>

#include "bench.hpp"
#include "delay_proxy.hpp"
#include "processes.hpp"
#include "redis_client.hpp"
#include "rivals.hpp"
#include "svg.hpp"

namespace {

using namespace bench;
using distlock::testing::redis_server;

const std::vector<const way*> ways{&ours, &published, &polling_1};

struct party {
    static constexpr std::size_t most = 4096;

    std::atomic<std::size_t> asked;  // how often it has called lock()
    std::atomic<std::size_t> got;    // how often that returned
    std::size_t count;
    nanoseconds::rep on_the_way[most];
    nanoseconds::rep pings[most];
};

struct board {
    std::atomic<int> ready;
    std::atomic<bool> go;
    std::atomic<nanoseconds::rep> released_at;
    std::atomic<bool> stop;  // stays false
    party parties[2];
};

struct place {
    std::string name;
    std::string uri;
    nanoseconds round_trip;
    double bar;
};

template <class Condition>
void wait_until(Condition done) {
    while (!done()) pause(100us);
}

// Takes the lock `turns` times, in turns with the other. It releases when the other waits on the
// server, and asks again when the other has the lock: so each release is a hand-over, whichever way
// the waiters are served.
void take_turns(const place& at, const way& how, int who, std::size_t turns, board& all) {
    const auto lock = how.make(at.uri, "handed over");
    redis_client beside(at.uri);
    party& mine = all.parties[who];
    party& other = all.parties[1 - who];
    ++all.ready;
    wait_until([&] { return all.go.load() && (who == 0 || other.got > 0); });
    const auto to_settle = 500us + 2 * at.round_trip;
    for (std::size_t turn = 1; turn <= turns; ++turn) {
        mine.asked = turn;
        lock->lock(all.stop);
        const auto got = now();
        const auto released = all.released_at.load();
        if (released != 0) mine.on_the_way[mine.count++] = got.count() - released;
        mine.got = turn;
        const bool last = who == 1 && turn == turns;
        const std::size_t next = who == 0 ? turn : turn + 1;
        if (!last) wait_until([&] { return other.asked >= next; });
        pause(to_settle);
        const auto begin = now();
        beside.run({"PING"});
        mine.pings[turn - 1] = (now() - begin).count();
        all.released_at = now().count();
        lock->unlock();
        if (last) return;
        pause(to_settle);
        wait_until([&] { return other.got >= next; });
    }
}

struct medians {
    double on_the_way;
    double ping;
};

medians run_once(const place& at, const way& how, std::size_t turns) {
    const shared_array<board> shared(1);
    board& all = shared[0];
    child_group group;
    for (const int who : {0, 1}) {
        group.start(how.name + ", party " + std::to_string(who + 1),
                    [&, who] { take_turns(at, how, who, turns, all); });
    }
    group.wait_for("both parties were connected", 10s, [&] { return all.ready == 2; });
    all.go = true;
    group.wait_for_end(60s);
    std::vector<nanoseconds::rep> on_the_way;
    std::vector<nanoseconds::rep> pings;
    for (const party& p : all.parties) {
        on_the_way.insert(on_the_way.end(), p.on_the_way, p.on_the_way + p.count);
        pings.insert(pings.end(), p.pings, p.pings + turns);
    }
    return {static_cast<double>(quantile(on_the_way, 0.5)), static_cast<double>(quantile(pings, 0.5))};
}

struct figures {
    figure on_the_way;
    figure ping;
    figure ratio;
};

void compare(const place& at, const settings& set, svg::bar_chart& chart, bars& held) {
    const std::size_t turns = static_cast<std::size_t>(set.count(250));  // two hand-overs each
    std::vector<figures> found(ways.size());
    for (int round = 0; round < set.rounds(5); ++round) {
        for (std::size_t w = 0; w < ways.size(); ++w) {
            const medians m = run_once(at, *ways[w], turns);
            found[w].on_the_way.add(m.on_the_way / 1e3);
            found[w].ping.add(m.ping / 1e3);
            found[w].ratio.add(m.on_the_way / m.ping);
        }
    }
    chart.groups.push_back(at.name);
    for (std::size_t w = 0; w < ways.size(); ++w) {
        const figures& f = found[w];
        print_row(
            {at.name, ways[w]->name, with_range(f.on_the_way), with_range(f.ping), with_range(f.ratio)});
        chart.all[w].values.push_back(f.ratio.median());
    }
    held.at_most(at.name + ": hand-over / PING", found[0].ratio, at.bar);
}

void measure(const settings& set) {
    const redis_server server({.tcp = true});
    const delay_proxy far(server, 400us);
    svg::bar_chart chart{
        .title = "Hand-over from one process to the next",
        .note =
            "From the call of unlock() to the return of the waiter's lock(), as a multiple of a "
            "PING; medians.",
        .x_axis = "way to the server",
        .y_axis = "x PING round trip",
        .reference = 1};
    for (const way* w : ways) chart.all.push_back({w->name, {}});
    bars held;
    print_head("Hand-over; " + std::to_string(set.rounds(5)) + " rounds, alternating; median of each round",
               {"over", "way", "hand-over, us (range)", "PING, us (range)", "ratio (range)"});
    compare({"TCP loopback", server.uri(), 0ms, 2.0}, set, chart, held);
    compare({"0.4 ms round trip", far.uri(), 400us, 1.1}, set, chart, held);
    held.print();
    chart.save(set.chart("handover"));
}

}  // namespace

int main(int argc, char** argv) { return bench::run("handover", argc, argv, 300, measure); }
