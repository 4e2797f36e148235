// What waiting costs: 2, 8 and 64 client processes want one lock, over distlock and over
// what is used without it.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <distlock/testing.hpp>

#include "allocations.hpp"
#include "bench.hpp"
#include "command_meter.hpp"
#include "processes.hpp"
#include "rivals.hpp"
#include "svg.hpp"

namespace {

using namespace bench;
using distlock::testing::redis_server;

const std::vector<const way*> ways{&ours, &polling_1, &polling_5, &polling_100, &published};

struct load {
    int clients;
    nanoseconds inside;
    nanoseconds window;

    std::string name() const {
        return std::to_string(clients) + " clients, " + (inside.count() == 0 ? "no work" : "2 ms of work");
    }
};

// What all processes of a run see.
struct board {
    std::atomic<int> ready;
    std::atomic<bool> go;
    std::atomic<bool> measuring;
    std::atomic<bool> stop;
};

// What one client has done: its waits while it was measured, and since when it waits.
struct client {
    using wait = std::uint32_t;  // in 0.1 us
    static constexpr std::size_t most = 1U << 18;

    std::atomic<std::uint64_t> taken;
    std::atomic<std::int64_t> waiting_since;  // ns; 0: does not wait
    std::size_t waits;
    std::size_t allocated;
    std::array<wait, most> waited;

    void add(nanoseconds length) {
        if (waits == most) throw std::runtime_error("no room for so many waits");
        waited[waits++] = static_cast<wait>(length.count() / 100);
    }
};

void compete(const load& l, const way& how, const std::string& where, const std::string& name, board& all,
             client& mine) {
    const auto lock = how.make(where, name);
    ++all.ready;
    while (!all.go) pause(1ms);
    bool counting = false;
    std::size_t before = 0;
    while (!all.stop) {
        const auto asked = now();
        mine.waiting_since = asked.count();
        if (!lock->lock(all.stop)) break;
        const auto got = now();
        mine.waiting_since = 0;
        ++mine.taken;
        if (l.inside.count() > 0) pause(l.inside);
        lock->unlock();
        const bool measured = all.measuring;
        if (measured) mine.add(got - asked);
        if (measured && !counting) before = allocations();
        if (measured) mine.allocated = allocations() - before;
        counting = measured;
    }
}

// What came out of one run.
struct outcome {
    double rate = 0;
    double commands = 0;  // per acquisition
    nanoseconds median{};
    nanoseconds late{};  // 99 of 100 waited less
    nanoseconds longest{};
    std::size_t fewest = 0;
    std::size_t most = 0;
    double allocated = 0;
};

double taken(const shared_array<client>& clients) {
    double sum = 0;
    for (const client& c : clients) sum += static_cast<double>(c.taken.load());
    return sum;
}

// Somebody who waits when the time is up, and may have waited all the time, counts for the longest wait.
nanoseconds longest_unserved(const shared_array<client>& clients) {
    nanoseconds longest{};
    for (const client& c : clients) {
        const nanoseconds since{c.waiting_since.load()};
        if (since.count() != 0) longest = std::max(longest, now() - since);
    }
    return longest;
}

outcome summary(const shared_array<client>& clients, nanoseconds unserved) {
    outcome o;
    std::vector<client::wait> waits;
    double allocated = 0;
    o.fewest = client::most;
    for (const client& c : clients) {
        waits.insert(waits.end(), c.waited.begin(), c.waited.begin() + static_cast<std::ptrdiff_t>(c.waits));
        o.fewest = std::min(o.fewest, c.waits);
        o.most = std::max(o.most, c.waits);
        allocated += static_cast<double>(c.allocated);
    }
    const auto wait_of = [&](double share) { return nanoseconds{100} * quantile(waits, share); };
    o.median = wait_of(0.5);
    o.late = wait_of(0.99);
    o.longest = std::max(wait_of(1), unserved);
    o.allocated = waits.empty() ? 0 : allocated / static_cast<double>(waits.size());
    return o;
}

outcome run_once(const load& l, const way& how, const redis_server& server, const std::string& name) {
    const shared_array<board> shared(1);
    const shared_array<client> clients(static_cast<std::size_t>(l.clients));
    board& all = shared[0];
    child_group group;
    for (int i = 0; i < l.clients; ++i) {
        group.start(how.name + ", client " + std::to_string(i + 1), [&, i] {
            compete(l, how, server.uri(), name, all, clients[static_cast<std::size_t>(i)]);
        });
    }
    group.wait_for("all clients were connected", 20s, [&] { return all.ready == l.clients; });

    command_meter meter(server);
    const auto start = now();
    all.go = true;
    group.wait_until(start + 300ms);
    meter.learn(start + 450ms);
    group.wait_until(start + 500ms);
    meter.begin();
    const double taken_before = taken(clients);
    const auto begin = now();
    all.measuring = true;
    group.wait_until(begin + l.window);
    all.measuring = false;
    const auto unserved = longest_unserved(clients);
    const double acquired = taken(clients) - taken_before;
    const auto length = now() - begin;
    const double commands = meter.sent();
    all.stop = true;
    group.wait_for_end();

    outcome o = summary(clients, unserved);
    o.rate = acquired / in_seconds(length);
    o.commands = acquired > 0 ? commands / acquired : 0;
    return o;
}

// A way's figures under one load.
struct figures {
    figure rate;
    figure to_ours;
    figure commands;
    figure median;
    figure late;
    figure longest;
    figure share;
    figure late_to_median;
    figure allocated;
    figure to_raw;
    figure to_alone;  // to one client of ours alone, that does the same work
    std::size_t fewest = 0;
    std::size_t most = 0;

    void add(const outcome& o, double our_rate, double raw_rate, double alone_rate) {
        rate.add(o.rate);
        to_ours.add(o.rate / our_rate);
        commands.add(o.commands);
        median.add(static_cast<double>(o.median.count()));
        late.add(static_cast<double>(o.late.count()));
        longest.add(static_cast<double>(o.longest.count()));
        share.add(o.most > 0 ? static_cast<double>(o.fewest) / static_cast<double>(o.most) : 0);
        late_to_median.add(o.median.count() > 0 ? in_us(o.late) / in_us(o.median) : 0);
        allocated.add(o.allocated);
        to_raw.add(o.rate / raw_rate);
        to_alone.add(o.rate / alone_rate);
        fewest = o.fewest;
        most = o.most;
    }
};

using by_way = std::vector<figures>;  // in the order of `ways`

std::string time_cell(const figure& f) {
    return shown_time(nanoseconds{static_cast<nanoseconds::rep>(f.median())});
}

by_way compare(const load& l, const redis_server& server, int rounds) {
    by_way found(ways.size());
    raw_loop raw(server.uri());
    for (int round = 0; round < rounds; ++round) {
        double our_rate = 0;
        const load alone{1, l.inside, l.window};
        const bool works = l.inside.count() > 0;
        const double alone_rate =
            works ? run_once(alone, ours, server, "alone:" + std::to_string(round) + l.name()).rate : 1;
        for (std::size_t w = 0; w < ways.size(); ++w) {
            const double raw_rate = rate_of(3'000, raw);
            const std::string name = "lock:" + std::to_string(round) + ":" + std::to_string(w) + l.name();
            const outcome o = run_once(l, *ways[w], server, name);
            if (w == 0) our_rate = o.rate;
            found[w].add(o, our_rate, raw_rate, alone_rate);
        }
    }
    for (std::size_t w = 0; w < ways.size(); ++w) {
        const figures& f = found[w];
        print_row({l.name(), ways[w]->name, shown(f.rate.median()), with_range(f.to_ours),
                   shown(f.commands.median()), time_cell(f.median), time_cell(f.late), time_cell(f.longest),
                   std::to_string(f.fewest) + " / " + std::to_string(f.most), with_range(f.to_raw),
                   with_range(f.late_to_median)});
    }
    return found;
}

void fairness(bars& held, const std::string& what, const figures& f, double bar) {
    // Whoever's turn lies across the edge of the time has one more.
    if (static_cast<double>(f.most) * (1 - bar) < 1) {
        held.not_judged(what, f.share, "too few turns to tell");
    } else {
        held.at_least(what, f.share, bar);
    }
}

void hold(bars& held, const load& l, const figures& f) {
    held.at_most(l.name() + ": operator new per acquisition", f.allocated, 0);
    held.at_most(l.name() + ": commands per acquisition", f.commands, 2.02);
    const bool works = l.inside.count() > 0;
    if (l.clients <= 8 && !works)
        held.at_least(l.name() + ": x raw uncontended loop", f.to_raw, l.clients == 8 ? 0.62 : 0.8);
    if (l.clients != 8 || !works) return;
    held.at_least(l.name() + ": x one client alone with the same work", f.to_alone, 0.97);
    held.at_most(l.name() + ": 99 % wait / median wait", f.late_to_median, 1.2);
    fairness(held, l.name() + ": fewest / most", f, 0.98);
}

void draw(const std::vector<load>& loads, const std::vector<by_way>& found, const std::string& title,
          const std::string& file, const settings& set) {
    svg::bar_chart rates{
        .title = "Acquisitions per second, " + title,
        .note = "Processes that compete for one lock; all of them and the server on one core.",
        .x_axis = "client processes",
        .y_axis = "acquisitions / s"};
    // Not a quantile: a client that takes the lock again and again has many short waits, those it
    // starves few long ones.
    svg::bar_chart waits{
        .title = "Longest wait of a client, " + title,
        .note = "From the call of lock() to its return, or to the end of the run; shorter is better.",
        .x_axis = "client processes",
        .y_axis = "ms",
        .logarithmic = true};
    for (std::size_t w = 0; w < ways.size(); ++w) {
        rates.all.push_back({ways[w]->name, {}});
        waits.all.push_back({ways[w]->name, {}});
    }
    for (std::size_t i = 0; i < loads.size(); ++i) {
        rates.groups.push_back(std::to_string(loads[i].clients));
        waits.groups.push_back(rates.groups.back());
        for (std::size_t w = 0; w < ways.size(); ++w) {
            rates.all[w].values.push_back(found[i][w].rate.median());
            waits.all[w].values.push_back(found[i][w].longest.median() / 1e6);
        }
    }
    rates.save(set.chart(file + "-rate"));
    waits.save(set.chart(file + "-wait"));
}

void measure(const settings& set) {
    const redis_server server({.tcp = true});
    const int rounds = set.rounds(3);
    bars held;
    print_head("Contention; " + std::to_string(rounds) + " rounds, alternating; medians",
               {"load", "way", "acq/s", "x ours (range)", "commands per acq", "wait, median", "wait, 99 %",
                "wait, longest", "fewest / most per client", "x raw uncontended loop (range)",
                "99 % / median wait (range)"});
    const nanoseconds usual = set.window(1500ms);
    // A client's turns must be so many that one more or less does not count.
    const std::vector<std::vector<load>> tables{
        {{2, 0ms, usual}, {8, 0ms, usual}, {64, 0ms, usual}},
        {{2, 2ms, usual}, {8, 2ms, usual}, {64, 2ms, set.window(4s)}}};
    std::vector<std::vector<by_way>> found(tables.size());
    for (std::size_t t = 0; t < tables.size(); ++t) {
        for (const load& l : tables[t]) {
            found[t].push_back(compare(l, server, rounds));
            hold(held, l, found[t].back()[0]);
        }
    }
    held.print();
    draw(tables[0], found[0], "no work inside", "contention-no-work", set);
    draw(tables[1], found[1], "2 ms of work inside", "contention-2-ms", set);
}

}  // namespace

int main(int argc, char** argv) { return bench::run("contended", argc, argv, 600, measure); }
