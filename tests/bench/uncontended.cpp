// What an uncontended lock costs beside the bare hiredis loop that sends the same two commands.
//
// Client and server share one core: across cores, wake-ups are measured instead of work. The two sides alternate, so that
// a machine that changes its speed changes both; the figure is the ratio of the two in each pair.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sched.h>
#include <string>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "allocations.hpp"

namespace {

using distlock::testing::redis_server;
using distlock::testing::redis_server_options;

using seconds = std::chrono::duration<double>;

template <class F>
double cycles_per_second(int cycles, F& cycle) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < cycles; ++i) cycle();
    return cycles / seconds(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

// The plainest way to write it: redisCommandArgv, blocking, a constant token.
class raw_loop {
  public:
    explicit raw_loop(const redis_server& server)
        : context_(server.port() != 0 ? ::redisConnect("127.0.0.1", server.port())
                                      : ::redisConnectUnix(server.socket_path().c_str()),
                   ::redisFree) {
        if (!context_ || context_->err != 0) std::abort();
    }
    void operator()() {
        run({"SET", "raw", token_, "NX", "PX", "30000"});
        const auto& release = distlock::detail::plain_release;
        const reply_ptr r = run({"EVALSHA", release.sha1(), "1", "raw", token_});
        if (r->type == REDIS_REPLY_ERROR) run({"EVAL", release.text(), "1", "raw", token_});
    }

  private:
    using reply_ptr = std::unique_ptr<redisReply, void (*)(void*)>;

    reply_ptr run(std::initializer_list<std::string_view> words) {
        std::array<const char*, 8> argv{};
        std::array<std::size_t, 8> sizes{};
        int count = 0;
        for (const auto word : words) {
            argv.at(static_cast<std::size_t>(count)) = word.data();
            sizes.at(static_cast<std::size_t>(count++)) = word.size();
        }
        void* r = ::redisCommandArgv(context_.get(), count, argv.data(), sizes.data());
        if (r == nullptr) std::abort();
        return {static_cast<redisReply*>(r), ::freeReplyObject};
    }

    std::unique_ptr<redisContext, void (*)(redisContext*)> context_;
    std::string token_ = "0123456789abcdef0123456789abcdef";
};

void pin_to_one_core() {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    for (int cpu = CPU_SETSIZE - 1; cpu >= 0; --cpu) {
        if (!CPU_ISSET(static_cast<std::size_t>(cpu), &allowed)) continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(static_cast<std::size_t>(cpu), &one);
        ::sched_setaffinity(0, sizeof one, &one);
        return;
    }
}

void compare(const char* where, const redis_server& server, int pairs) {
    constexpr int cycles = 10'000;
    raw_loop raw(server);
    distlock::hiredis_connection redis(server.uri());
    distlock::mutex orders(redis, "ours");
    auto ours = [&] {
        orders.lock();
        orders.unlock();
    };
    cycles_per_second(cycles, raw);
    cycles_per_second(cycles, ours);
    const auto before = allocations();
    cycles_per_second(cycles, ours);
    const auto allocated = static_cast<double>(allocations() - before) / cycles;

    std::vector<double> ratios;
    std::vector<double> raws;
    std::vector<double> mine;
    for (int i = 0; i < pairs; ++i) {
        raws.push_back(cycles_per_second(cycles, raw));
        mine.push_back(cycles_per_second(cycles, ours));
        ratios.push_back(mine.back() / raws.back());
    }
    const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
    std::printf("| %s | %.0f | %.0f | %.3f | %.3f - %.3f | %.4f |\n", where, median(raws), median(mine),
                median(ratios), *low, *high, allocated);
}

}  // namespace

int main(int argc, char** argv) {
    const int pairs = argc > 1 ? std::atoi(argv[1]) : 15;
    if (pairs < 1) {
        std::fputs("usage: uncontended [pairs]\n", stderr);
        return 2;
    }
    pin_to_one_core();  // the servers inherit it
    std::printf(
        "Uncontended lock + unlock, release confirmed; client and server on one core; %d pairs of 10000 "
        "cycles.\n\n"
        "| over | raw hiredis, cycles/s | distlock, cycles/s | ratio, median | range | operator new per warm "
        "cycle |\n"
        "|---|---|---|---|---|---|\n",
        pairs);
    compare("TCP loopback", redis_server(redis_server_options{.tcp = true}), pairs);
    compare("unix socket", redis_server(), pairs);
}
