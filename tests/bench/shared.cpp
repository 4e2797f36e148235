// What a shared_mutex costs readers beside its writers, and how long a writer and many readers
// wait for each other.
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <shared_mutex>
#include <string>
#include <thread>
#include <unistd.h>
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
using shared = distlock::shared_mutex<hiredis_connection>;

figure beside_writing(const redis_server& server, const settings& set, int rounds) {
    hiredis_connection redis(server.uri());
    shared lock(redis, "uncontended");
    const auto writes = [&] { const std::lock_guard guard(lock); };
    const auto reads = [&] { const std::shared_lock guard(lock); };
    const int count = set.count(10'000);
    rate_of(count, writes);
    rate_of(count, reads);
    figure ratio;
    for (int i = 0; i < rounds; ++i) {
        const double beside = rate_of(count, writes);
        ratio.add(rate_of(count, reads) / beside);
    }
    return ratio;
}

// 64 processes that read for 5 to 15 ms all the time, and a writer.
struct readers {
    std::atomic<int> ready;
    std::atomic<bool> stop;
    std::atomic<nanoseconds::rep> longest;
};

struct writer_waits {
    figure beyond;  // ms, of the longest read
    int late = 0;
    int times = 0;
};

writer_waits beside_readers(const redis_server& server, const settings& set, double hand_over) {
    constexpr int most = 64;
    const shared_array<readers> shared_memory(1);
    readers& all = shared_memory[0];
    child_group group;
    for (int i = 0; i < most; ++i) {
        group.start("reader", [&] {
            hiredis_connection redis(server.uri());
            shared lock(redis, "read");
            std::minstd_rand d(static_cast<unsigned>(::getpid()));
            ++all.ready;
            while (!all.stop) {
                const std::shared_lock guard(lock);
                const auto begin = now();
                pause(1ms * (5 + d() % 11));
                const auto took = (now() - begin).count();
                auto known = all.longest.load();
                while (took > known && !all.longest.compare_exchange_weak(known, took)) continue;
            }
        });
    }
    group.wait_for("all readers were there", 20s, [&] { return all.ready == most; });
    writer_waits found;
    hiredis_connection redis(server.uri());
    shared lock(redis, "read");
    for (found.times = 0; found.times < set.count(200); ++found.times) {
        group.wait_until(now() + 20ms);
        all.longest = 0;
        const auto asked = now();
        lock.lock();
        const auto waited = now() - asked;
        lock.unlock();
        group.wait_until(now() + 20ms);
        const double beyond = in_us(waited - nanoseconds{all.longest.load()}) / 1e3;
        found.beyond.add(beyond);
        if (beyond > 2 * hand_over) ++found.late;
    }
    all.stop = true;
    group.wait_for_end();
    return found;
}

// A writer, and waiters that are let in by its release: from the unlock to the last of them, beside so many
// writes to a pipe for each of which one process wakes up.
struct crowd {
    static constexpr int most = 50;
    std::atomic<int> ready;
    std::atomic<int> round;
    std::atomic<int> out;
    std::atomic<bool> stop;
    std::atomic<nanoseconds::rep> last;
    std::atomic<nanoseconds::rep> last_of_pipe;
    std::atomic<int> woken;
};

void note(std::atomic<nanoseconds::rep>& last) {
    const auto mine = now().count();
    auto known = last.load();
    while (mine > known && !last.compare_exchange_weak(known, mine)) continue;
}

struct let_in {
    figure beyond;  // ms
    figure commands;
};

let_in behind_a_writer(const redis_server& server, const settings& set) {
    const shared_array<crowd> shared_memory(1);
    crowd& all = shared_memory[0];
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
    child_group group;
    for (int i = 0; i < crowd::most; ++i) {
        group.start("reader", [&] {
            hiredis_connection redis(server.uri());
            shared lock(redis, "crowd");
            { const std::shared_lock once(lock); }
            ++all.ready;
            for (int round = 1;; ++round) {
                while (all.round < round && !all.stop) pause(200us);
                if (all.stop) return;
                {
                    const std::shared_lock guard(lock);
                    note(all.last);
                    pause(50ms);  // nobody is in the way of those who come in
                }
                ++all.out;
                char one = 0;
                if (::read(ends[0], &one, 1) != 1) return;
                note(all.last_of_pipe);
                ++all.woken;
            }
        });
    }
    group.wait_for("all readers were there", 20s, [&] { return all.ready == crowd::most; });
    let_in found;
    hiredis_connection redis(server.uri());
    shared lock(redis, "crowd");
    redis_client beside(server.uri());
    const auto queued = [&] {
        const auto r = beside.run({"ZCARD", "{crowd}:distlock:queue"});
        return r->integer;
    };
    const int rounds = set.count(50);
    for (int round = 1; round <= rounds; ++round) {
        all.out = all.woken = 0;
        lock.lock();
        all.round = round;
        group.wait_for("all readers wait", 20s, [&] { return queued() == crowd::most; });
        pause(2ms);
        all.last = 0;
        const auto from = now();
        lock.unlock();
        group.wait_for("all readers were in", 20s, [&] { return all.out == crowd::most; });
        const auto took = nanoseconds{all.last.load()} - from;
        pause(2ms);
        all.last_of_pipe = 0;
        const auto begin = now();
        const std::array<char, crowd::most> bytes{};
        for (const char& one : bytes) {
            if (::write(ends[1], &one, 1) != 1) throw std::runtime_error("the pipe is gone");
        }
        group.wait_for("all were woken", 20s, [&] { return all.woken == crowd::most; });
        const auto wake_ups = nanoseconds{all.last_of_pipe.load()} - begin;
        found.beyond.add(in_us(took - wake_ups) / 1e3);
    }
    all.stop = true;
    group.wait_for_end();
    ::close(ends[0]);
    ::close(ends[1]);
    return found;
}

struct rates {
    double reads;
    double commands;  // per read
};

// `threads` threads read, over one object or each over its own.
rates reading(const redis_server& server, int threads, bool one_object, nanoseconds window) {
    hiredis_connection redis(server.uri() + "?max_idle=64");
    std::vector<std::unique_ptr<shared>> locks;
    for (int i = 0; i < (one_object ? 1 : threads); ++i)
        locks.push_back(std::make_unique<shared>(redis, "threads"));
    std::atomic<bool> stop{false};
    std::atomic<bool> counts{false};
    std::atomic<std::uint64_t> reads{0};
    std::vector<std::jthread> all;
    for (int i = 0; i < threads; ++i) {
        all.emplace_back([&, i] {
            shared& mine = *locks[static_cast<std::size_t>(i) % locks.size()];
            while (!stop) {
                const std::shared_lock guard(mine);
                if (counts) ++reads;
            }
        });
    }
    command_meter meter(server);
    pause(300ms);
    meter.learn(now() + 150ms);
    meter.begin();
    counts = true;
    const auto begin = now();
    pause(window);
    counts = false;
    const double took = in_seconds(now() - begin);
    const double sent = meter.sent();
    stop = true;
    all.clear();
    const auto n = static_cast<double>(reads.load());
    return {n / took, sent / n};
}

double hand_over_of(const redis_server& server) {
    hiredis_connection first(server.uri());
    hiredis_connection second(server.uri());
    shared a(first, "handed over");
    shared b(second, "handed over");
    redis_client beside(server.uri());
    std::vector<double> took;
    for (int i = 0; i < 50; ++i) {
        a.lock();
        std::atomic<nanoseconds::rep> got{0};
        std::jthread waiter([&] {
            b.lock();
            got = now().count();
            b.unlock();
        });
        while (beside.run({"ZCARD", "{handed over}:distlock:queue"})->integer != 1) pause(200us);
        pause(1ms);
        const auto from = now().count();
        a.unlock();
        waiter.join();
        took.push_back(static_cast<double>(got - from) / 1e6);
    }
    return quantile(took, 0.5);
}

void measure(const settings& set) {
    const redis_server server({.tcp = true});
    const int rounds = set.rounds(7);
    bars held;
    const auto ratio = beside_writing(server, set, rounds);
    held.at_least("read, uncontended: x write", ratio, 0.85);

    const double hand_over = hand_over_of(server);
    auto waits = beside_readers(server, set, hand_over);
    print_head("64 processes that read for 5 to 15 ms all the time, and a writer; a hand-over takes " +
                   shown(hand_over) + " ms",
               {"the writer waits longer than the longest read by, ms", "by more than two hand-overs"});
    print_row({with_range(waits.beyond), std::to_string(waits.late) + " of " + std::to_string(waits.times)});
    figure late;
    late.add(waits.late);
    held.at_most("a writer beside 64 readers: waits that are longer than a read and two hand-overs", late, 0);

    const auto crowd = behind_a_writer(server, set);
    print_head("50 readers behind a writer", {"unlock to the last in, beyond 50 wake-ups by a pipe, ms"});
    print_row({with_range(crowd.beyond)});
    held.at_most("50 readers behind a writer: ms beyond 50 wake-ups", crowd.beyond, 3);

    figure commands;
    figure shared_rate;
    figure beside;
    for (int i = 0; i < set.rounds(3); ++i) {
        const auto one = reading(server, 1000, true, set.window(1500ms));
        const auto each = reading(server, 1000, false, set.window(1500ms));
        commands.add(one.commands);
        shared_rate.add(one.reads);
        beside.add(one.reads / each.reads);
    }
    print_head("1,000 threads that read", {"reads/s", "commands per read", "x one object each"});
    print_row({with_range(shared_rate), with_range(commands), with_range(beside)});
    held.at_most("1,000 reading threads on one object: commands per read", commands, 0.05);
    held.at_least("1,000 reading threads on one object: x one object each", beside, 20);
    held.print();
}

}  // namespace

int main(int argc, char** argv) { return bench::run("shared", argc, argv, 300, measure); }
