// What threads of a process gain by sharing a mutex object, and how soon another process
// gets its turn meanwhile.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "bench.hpp"
#include "command_meter.hpp"
#include "processes.hpp"
#include "svg.hpp"

namespace {

using namespace bench;
using distlock::testing::redis_server;
using mutex = distlock::mutex<distlock::hiredis_connection>;

struct load {
    int processes;
    int threads;  // of each process
    bool one_object;
    nanoseconds inside;
    std::chrono::milliseconds budget;
    nanoseconds window;
};

// For how long one process had the lock before another got it. Whoever holds the lock writes it.
class turns {
  public:
    static constexpr std::size_t most = 1U << 20;

    void taken_by(int process, bool measuring) {
        if (process == owner_ && since_ != 0) return;
        const auto time = now().count();
        const bool counts = measuring && since_ != 0 && count_ < most;
        if (counts) lengths_[count_] = time - since_;
        if (counts) ++count_;
        since_ = time;
        owner_ = process;
    }
    /// Returns: the length below which `share` of the turns are that ended while measured, in ms; 0 when none
    /// did. Nobody may take turns any more.
    double length(double share) const {
        const std::vector<std::int64_t> all(lengths_.begin(),
                                            lengths_.begin() + static_cast<std::ptrdiff_t>(count_));
        return static_cast<double>(quantile(all, share)) / 1e6;
    }
    /// Returns: the length of the present turn so far. Others may be taking turns.
    double unended() const { return in_us(now() - nanoseconds{since_.load()}) / 1e3; }

  private:
    int owner_;
    std::atomic<std::int64_t> since_;  // 0: nobody had the lock yet
    std::size_t count_;
    std::array<std::int64_t, most> lengths_;
};

struct board {
    std::atomic<int> ready;
    std::atomic<bool> go;
    std::atomic<bool> measuring;
    std::atomic<bool> stop;
    std::array<std::atomic<std::uint64_t>, 2> taken;  // by each process
    turns between;
};

void contend(const load& l, int process, mutex& lock, board& all) {
    ++all.ready;
    while (!all.go) pause(1ms);
    while (!all.stop) {
        lock.lock();
        all.between.taken_by(process, all.measuring);
        if (l.inside.count() > 0) pause(l.inside);
        ++all.taken[static_cast<std::size_t>(process)];
        lock.unlock();
    }
}

void run_process(const load& l, int process, const std::string& uri, board& all) {
    distlock::hiredis_connection redis(uri + "?max_idle=128");
    std::vector<std::unique_ptr<mutex>> objects;
    for (int i = 0; i < (l.one_object ? 1 : l.threads); ++i) {
        objects.push_back(
            std::make_unique<mutex>(redis, "threads", distlock::lock_options{.local_budget = l.budget}));
    }
    std::vector<std::jthread> threads;
    std::exception_ptr failure;
    std::atomic<bool> failed{false};
    for (int i = 0; i < l.threads; ++i) {
        mutex& lock = *objects[static_cast<std::size_t>(i) % objects.size()];
        threads.emplace_back([&] {
            try {
                contend(l, process, lock, all);
            } catch (...) {
                if (!failed.exchange(true)) failure = std::current_exception();
                all.stop = true;
            }
        });
    }
    threads.clear();
    if (failed) std::rethrow_exception(failure);
}

struct outcome {
    double rate;
    double commands;  // per acquisition
    double least_share;
    double longest_turn;  // ms
    double usual_turn;
};

outcome run_once(const load& l, const redis_server& server) {
    server.command({"FLUSHALL"});
    const shared_array<board> shared(1);
    board& all = shared[0];
    child_group group;
    for (int p = 0; p < l.processes; ++p) {
        group.start("process " + std::to_string(p + 1), [&, p] { run_process(l, p, server.uri(), all); });
    }
    group.wait_for("all threads were there", 20s, [&] { return all.ready == l.processes * l.threads; });
    const auto counts = [&] {
        return std::array{static_cast<double>(all.taken[0].load()), static_cast<double>(all.taken[1].load())};
    };
    command_meter meter(server);
    const auto start = now();
    all.go = true;
    group.wait_until(start + 300ms);
    meter.learn(start + 450ms);
    group.wait_until(start + 500ms);
    meter.begin();
    const auto before = counts();
    const auto begin = now();
    all.measuring = true;
    group.wait_until(begin + l.window);
    all.measuring = false;
    const auto after = counts();
    const auto end = now();
    // The other may be starved: then this turn would end only when all stop.
    const double unended = all.between.unended();
    const double commands = meter.sent();
    all.stop = true;
    group.wait_for_end();

    const std::array<double, 2> mine{after[0] - before[0], after[1] - before[1]};
    const double acquired = mine[0] + mine[1];
    if (acquired == 0) throw std::runtime_error("nobody got the lock");
    return {acquired / in_seconds(end - begin), commands / acquired, std::min(mine[0], mine[1]) / acquired,
            std::max(all.between.length(1), unended), all.between.length(0.5)};
}

void compare_objects(const redis_server& server, const settings& set, bars& held) {
    const load shared{1, 64, true, 0ms, 5ms, set.window(1500ms)};
    load apart = shared;
    apart.one_object = false;
    std::array<figure, 2> rates;
    std::array<figure, 2> commands;
    figure ratio;
    for (int round = 0; round < set.rounds(3); ++round) {
        const outcome one = run_once(shared, server);
        const outcome each = run_once(apart, server);
        rates[0].add(one.rate);
        rates[1].add(each.rate);
        commands[0].add(one.commands);
        commands[1].add(each.commands);
        ratio.add(one.rate / each.rate);
    }
    print_head(
        "64 threads of one process, no work; " + std::to_string(set.rounds(3)) + " rounds, alternating",
        {"objects", "acq/s (range)", "commands per acq (range)", "ratio (range)"});
    print_row({"one for all threads", with_range(rates[0]), with_range(commands[0]), with_range(ratio)});
    print_row({"one for each thread", with_range(rates[1]), with_range(commands[1]), "1"});
    held.at_least("64 threads on one object: x one object each", ratio, 16);
    held.at_most("64 threads on one object: commands per acquisition", commands[0], 0.05);
    svg::bar_chart chart{.title = "64 threads of one process that share a lock",
                         .note = "Threads that use one mutex object pass the lock on without the server.",
                         .x_axis = "mutex objects",
                         .y_axis = "acquisitions / s",
                         .groups = {"one for all threads", "one for each thread"},
                         .all = {{"distlock", {rates[0].median(), rates[1].median()}}}};
    chart.save(set.chart("threads"));
}

constexpr std::array budgets{1ms, 2ms, 5ms, 10ms, 20ms};

struct figures {
    figure rate;
    figure commands;
    figure share;
    figure usual;
    figure longest;  // in budgets
};

struct budget_charts {
    svg::bar_chart rates;
    svg::bar_chart turns;
};

std::array<figures, budgets.size()> measure_budgets(const redis_server& server, nanoseconds inside,
                                                    const settings& set) {
    std::array<figures, budgets.size()> found;
    for (int round = 0; round < set.rounds(3); ++round) {
        for (std::size_t b = 0; b < budgets.size(); ++b) {
            const outcome o = run_once({2, 32, true, inside, budgets[b], set.window(1500ms)}, server);
            found[b].rate.add(o.rate);
            found[b].commands.add(o.commands);
            found[b].share.add(o.least_share);
            found[b].usual.add(o.usual_turn);
            found[b].longest.add(o.longest_turn / static_cast<double>(budgets[b].count()));
        }
    }
    return found;
}

void compare_budgets(const redis_server& server, const settings& set, bars& held) {
    budget_charts charts{{.title = "Two processes of 32 threads each, one mutex object in each",
                          .note = "How much the time for which a process may keep the lock to itself gains.",
                          .x_axis = "local_budget",
                          .y_axis = "acquisitions / s"},
                         {.title = "Until the other process gets its turn",
                          .note = "The longest turn of a process, as a multiple of its local_budget.",
                          .x_axis = "local_budget",
                          .y_axis = "x local_budget",
                          .reference = 2}};
    for (const auto b : budgets) charts.rates.groups.push_back(std::to_string(b.count()) + " ms");
    charts.turns.groups = charts.rates.groups;
    print_head(
        "Two processes of 32 threads each, one object in each; " + std::to_string(set.rounds(3)) + " rounds",
        {"work", "local_budget", "acq/s (range)", "commands per acq", "share of the lesser process",
         "turn, median", "longest turn / budget (range)"});
    for (const nanoseconds inside : {nanoseconds{0}, nanoseconds{100us}}) {
        const std::string work = inside.count() == 0 ? "none" : "0.1 ms";
        const auto found = measure_budgets(server, inside, set);
        charts.rates.all.push_back({"work: " + work, {}});
        charts.turns.all.push_back({"work: " + work, {}});
        for (std::size_t b = 0; b < budgets.size(); ++b) {
            const figures& f = found[b];
            print_row({work, charts.rates.groups[b], with_range(f.rate), shown(f.commands.median()),
                       shown(f.share.median()), shown(f.usual.median()) + " ms", with_range(f.longest)});
            charts.rates.all.back().values.push_back(f.rate.median());
            charts.turns.all.back().values.push_back(f.longest.median());
            if (budgets[b] == distlock::lock_options{}.local_budget.get())
                held.at_most("two processes, work " + work + ": longest turn / local_budget", f.longest, 2);
        }
    }
    charts.rates.save(set.chart("budget-rate"));
    charts.turns.save(set.chart("budget-turns"));
}

void measure(const settings& set) {
    const redis_server server({.tcp = true});
    bars held;
    compare_objects(server, set, held);
    compare_budgets(server, set, held);
    held.print();
}

}  // namespace

int main(int argc, char** argv) { return bench::run("threads", argc, argv, 300, measure); }
