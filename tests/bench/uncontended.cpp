// What an uncontended lock costs beside the bare hiredis loop that sends SET NX PX and a compare-and-delete.
//
// The two sides alternate, so that a machine that changes its speed changes both; the figure is the ratio of
// the two in each round.
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "allocations.hpp"
#include "bench.hpp"
#include "delay_proxy.hpp"
#include "redis_client.hpp"
#include "svg.hpp"

namespace {

using namespace bench;
using distlock::testing::redis_server;

struct variant {
    std::string name;
    distlock::lock_options options;
};

const std::vector<variant> variants{{"confirmed", {.release = distlock::confirmed}},
                                    {"posted", {.release = distlock::posted}},
                                    {"posted, fenced", {.fencing = true, .release = distlock::posted}}};

// One variant of ours at one place.
class side {
  public:
    side(const std::string& where, const variant& v) : redis_(where), mutex_(redis_, v.name, v.options) {}

    void operator()() {
        mutex_.lock();
        mutex_.unlock();
    }
    void warm_up(int cycles) {
        rate_of(cycles, *this);
        const auto before = allocations();
        rate_of(cycles, *this);
        allocated.add(static_cast<double>(allocations() - before) / cycles);
    }

    figure allocated;
    figure rate;
    figure ratio;

  private:
    distlock::hiredis_connection redis_;
    distlock::mutex<distlock::hiredis_connection> mutex_;
};

struct place {
    std::string name;
    std::string uri;
    int cycles;
    int rounds;
    double posted_bar;  // 0: none, for fences neither
};

void compare(const place& at, svg::bar_chart& chart, bars& held) {
    raw_loop raw(at.uri);
    rate_of(at.cycles / 5, raw);
    std::vector<std::unique_ptr<side>> sides;
    for (const variant& v : variants) {
        sides.push_back(std::make_unique<side>(at.uri, v));
        sides.back()->warm_up(at.cycles / 5 + 1);
    }
    figure raw_rate;
    for (int round = 0; round < at.rounds; ++round) {
        for (const auto& s : sides) {
            const double beside = rate_of(at.cycles, raw);
            raw_rate.add(beside);
            const double mine = rate_of(at.cycles, *s);
            s->rate.add(mine);
            s->ratio.add(mine / beside);
        }
    }
    chart.groups.push_back(at.name);
    for (std::size_t v = 0; v < variants.size(); ++v) {
        const side& s = *sides[v];
        print_row({at.name, variants[v].name, shown(raw_rate.median()), shown(s.rate.median()),
                   with_range(s.ratio), shown(s.allocated.median())});
        chart.all[v].values.push_back(s.ratio.median());
        const std::string what = at.name + ", " + variants[v].name;
        if (v == 0) held.at_least(what + ": x raw loop", s.ratio, 0.95);
        if (v == 1 && at.posted_bar > 0) held.at_least(what + ": x raw loop", s.ratio, at.posted_bar);
        if (v == 2 && at.posted_bar > 0) held.at_least(what + ": x raw loop", s.ratio, 1.0);
        held.at_most(what + ": operator new per cycle", s.allocated, 0);
    }
}

void measure(const settings& set) {
    const redis_server tcp({.tcp = true});
    const redis_server local;
    const delay_proxy far(tcp, 400us);
    const int rounds = set.rounds(7);
    const std::vector<place> places{
        {"TCP loopback", tcp.uri(), set.count(10'000), rounds, 1.20},
        {"unix socket", local.uri(), set.count(10'000), rounds, 0},
        {"0.4 ms round trip", far.uri(), set.count(1'000), rounds, 1.8},
    };
    svg::bar_chart chart{
        .title = "Uncontended lock + unlock",
        .note = "Cycles per second, as a multiple of a bare hiredis loop of the same two commands.",
        .x_axis = "way to the server",
        .y_axis = "x raw loop",
        .reference = 1};
    for (const variant& v : variants) chart.all.push_back({v.name, {}});
    bars held;
    print_head("Uncontended lock + unlock; " + std::to_string(rounds) + " rounds, alternating",
               {"over", "release", "raw hiredis, cycles/s", "distlock, cycles/s", "ratio, median (range)",
                "operator new per warm cycle"});
    for (const place& at : places) compare(at, chart, held);
    held.print();
    chart.save(set.chart("uncontended"));
}

}  // namespace

int main(int argc, char** argv) { return bench::run("uncontended", argc, argv, 300, measure); }
