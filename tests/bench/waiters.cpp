// What waiters cost their process and the server, and how soon they stop: many names, many objects, many
// processes; a server that stands still.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <system_error>
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
using distlock::testing::redis_server;
using mutex = distlock::mutex<distlock::hiredis_connection>;

constexpr std::size_t threads = 200;
// So many that begin at once on one core may wait long for their first answer.
const distlock::lock_options patient{.patience = 60s};

struct board {
    std::atomic<pid_t> waiters;        // their process
    std::atomic<std::size_t> may_ask;  // so many threads
    std::atomic<std::size_t> served;
    std::array<std::size_t, threads> order;
};

std::size_t queued(const redis_server& server, const std::string& name) {
    return std::strtoul(server.command({"ZCARD", "{" + name + "}:distlock:queue"}).c_str(), nullptr, 10);
}

void hold(const redis_server& server, const std::string& name) {
    server.command({"SET", name, "somebody", "PX", "100000"});
}

/// Threads of this process, each with a mutex object, over one connection. Each notes when it was served.
void wait_in_threads(const std::string& uri, const std::function<std::string(std::size_t)>& name_of,
                     board& all) {
    distlock::hiredis_connection redis(uri);
    std::vector<std::jthread> waiting;
    const auto wait = [&](std::size_t i) {
        mutex lock(redis, name_of(i), patient);
        while (all.may_ask <= i) pause(1ms);
        lock.lock();
        all.order[all.served++] = i;
        lock.unlock();
    };
    // This thread is one of them: what is beside them is the library's.
    for (std::size_t i = 1; i < threads; ++i) waiting.emplace_back(wait, i);
    all.waiters = ::getpid();
    wait(0);
}

std::size_t entries(pid_t process, const char* folder, const std::string& kind = "") {
    std::size_t count = 0;
    for (const auto& one : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + folder)) {
        std::error_code gone;
        const bool counts =
            kind.empty() || std::filesystem::read_symlink(one, gone).string().starts_with(kind);
        if (counts && !gone) ++count;
    }
    return count;
}

struct found {
    figure sockets;
    figure beside;  // threads beside those that wait
    /// Effects: looks ten times, when the sockets are closed that nobody needed for a second.
    void watch(child_group& group, pid_t process) {
        group.wait_until(now() + 2s);
        for (int i = 0; i < 10; ++i) {
            group.wait_until(now() + 200ms);
            sockets.add(static_cast<double>(entries(process, "/fd", "socket:")));
            beside.add(static_cast<double>(entries(process, "/task")) - threads);
        }
    }
};

/// Many names: how many sockets and threads wait for them.
void wait_for_names(const redis_server& server, found& f) {
    const auto name_of = [](std::size_t i) { return "name:" + std::to_string(i); };
    for (std::size_t i = 0; i < threads; ++i) hold(server, name_of(i));
    const shared_array<board> shared(1);
    board& all = shared[0];
    child_group group;
    group.start("the waiters", [&] { wait_in_threads(server.uri(), name_of, all); });
    all.may_ask = threads;
    for (std::size_t i = 0; i < threads; ++i)
        group.wait_for("all were queued", 20s, [&] { return queued(server, name_of(i)) == 1; });
    f.watch(group, all.waiters);
    for (std::size_t i = 0; i < threads; ++i) server.command({"DEL", name_of(i)});
    group.wait_for_end();
}

/// One name, many objects. Returns: whether they were served in the order in which they asked.
bool wait_for_one(const redis_server& server, const std::string& name, found& f) {
    hold(server, name);
    const shared_array<board> shared(1);
    board& all = shared[0];
    child_group group;
    group.start("the waiters", [&] {
        wait_in_threads(
            server.uri(), [&](std::size_t) { return name; }, all);
    });
    for (std::size_t i = 0; i < threads; ++i) {
        all.may_ask = i + 1;
        group.wait_for("the next was queued", 20s, [&] { return queued(server, name) == i + 1; });
    }
    f.watch(group, all.waiters);
    server.command({"DEL", name});
    group.wait_for_end();
    bool in_order = all.served == threads;
    for (std::size_t i = 0; i < threads; ++i) in_order = in_order && all.order[i] == i;
    return in_order;
}

void count_in_one_process(const redis_server& server, const settings& set, bars& held) {
    found names;
    found one;
    figure in_order;
    for (int round = 0; round < set.rounds(3); ++round) {
        wait_for_names(server, names);
        in_order.add(wait_for_one(server, "one:" + std::to_string(round), one) ? 1 : 0);
    }
    held.at_most("200 threads wait for 200 names: sockets", names.sockets, 4);
    held.at_most("200 threads wait for 200 names: threads beside them", names.beside, 3);
    held.at_most("200 threads, an object each, wait for one name: sockets", one.sockets, 4);
    held.at_most("200 threads, an object each, wait for one name: threads beside them", one.beside, 3);
    held.at_least("200 threads, an object each, wait for one name: served in order (1: yes)", in_order, 1);
}

/// A thousand waiters in ten processes: how often they look while nothing happens.
void count_looks(const redis_server& server, const settings& set, bars& held) {
    constexpr std::size_t processes = 10;
    constexpr std::size_t each = 100;
    hold(server, "held");
    child_group group;
    for (std::size_t p = 0; p < processes; ++p) {
        group.start("process " + std::to_string(p + 1), [&] {
            distlock::hiredis_connection redis(server.uri());
            std::vector<std::jthread> waiting;
            for (std::size_t i = 0; i < each; ++i)
                waiting.emplace_back([&] { mutex(redis, "held", patient).lock(); });
        });
    }
    group.wait_for("all were queued", 60s, [&] { return queued(server, "held") == processes * each; });
    command_meter meter(server);
    meter.learn(now() + 2s);
    figure rate;
    for (int round = 0; round < set.rounds(3); ++round) {
        meter.begin();
        const auto begin = now();
        group.wait_until(begin + set.window(5s));
        rate.add(meter.sent() / in_seconds(now() - begin));
    }
    held.at_most("1000 waiters in 10 processes, one lock that is held: commands per second", rate, 100);
}

/// Stop requests of a call of lock() while the server stands still.
class stopping {
  public:
    explicit stopping(redis_server& server)
        : server_(server), redis_(server.uri()), lock_(redis_, "stopped") {
        hold(server, "stopped");
    }

    /// The server stands still from before the call, or only when the waiter is queued.
    void once(bool before) {
        if (before) server_.pause();
        std::stop_source stop;
        nanoseconds returned{};
        std::jthread waiter([&] {
            std::error_code ended;
            lock_.lock(stop.get_token(), ended);
            returned = now();
        });
        if (before) {
            bench::pause(5ms);  // the call has sent its command, or is about to
        } else {
            while (queued(server_, "stopped") == 0) bench::pause(1ms);
            server_.pause();
        }
        const auto asked = now();
        stop.request_stop();
        waiter.join();
        longest_ = std::max(longest_, returned - asked);
        in_time_ += returned - asked <= 5ms ? 1 : 0;
        server_.resume();
        while (queued(server_, "stopped") != 0) bench::pause(1ms);
    }
    double in_time() const { return in_time_; }
    nanoseconds longest() const { return longest_; }

  private:
    redis_server& server_;
    distlock::hiredis_connection redis_;
    mutex lock_;
    nanoseconds longest_{};
    int in_time_ = 0;
};

void stop_beside_a_stopped_server(redis_server& server, bars& held) {
    constexpr int times = 200;
    for (const bool before : {false, true}) {
        stopping calls(server);
        for (int i = 0; i < times; ++i) calls.once(before);
        figure in_time;
        in_time.add(calls.in_time());
        held.at_least(std::string("a stop request, the server stands still ") +
                          (before ? "from before the call" : "since the call was queued") +
                          ": of 200 returned within 5 ms (the last after " + shown_time(calls.longest()) +
                          ")",
                      in_time, times);
    }
}

void measure(const settings& set) {
    redis_server server({.tcp = true});
    bars held;
    count_in_one_process(server, set, held);
    count_looks(server, set, held);
    stop_beside_a_stopped_server(server, held);
    held.print();
}

}  // namespace

int main(int argc, char** argv) { return bench::run("waiters", argc, argv, 300, measure); }
