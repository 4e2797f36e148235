// Many locks held on one connection: one thread renews them all, in pipelines, and next to
// nothing is spent on it.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <deque>
#include <hiredis/hiredis.h>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <time.h>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>
#include <distlock/wire/plain.hpp>

#include "support/catch.hpp"
#include "support/lab_figures.hpp"
#include "support/server_counts.hpp"
#include "support/waiting.hpp"

namespace many_locks_tests {

using namespace std::chrono_literals;
using clk = distlock::clock;
using distlock::hiredis_connection;
using distlock::release_outcome;
using distlock::testing::redis_server;

namespace {

using seconds = std::chrono::duration<double>;

// Processor time: of the whole process, or of the calling thread.
seconds used_by(clockid_t whom) {
    timespec used{};
    ::clock_gettime(whom, &used);
    return seconds(static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9);
}

// Of all threads but the calling one, which only looks.
seconds used_by_others() { return used_by(CLOCK_PROCESS_CPUTIME_ID) - used_by(CLOCK_THREAD_CPUTIME_ID); }

// What it would cost to say the same by hand: hiredis, blocking, a pipeline of a thousand at a time.
class plain_pipeline {
  public:
    explicit plain_pipeline(const redis_server& server)
        : context_(::redisConnectUnix(server.socket_path().c_str()), ::redisFree) {
        REQUIRE((context_ && context_->err == 0));
    }

    // Returns: how many replies were integers. `words(i)` are those of the command number i.
    template <class Words>
    long run(long commands, Words words) {
        long good = 0;
        for (long i = 0; i < commands;) {
            const long end = std::min(commands, i + 1024);
            const long asked = end - i;
            for (; i < end; ++i) append(words(i));
            for (long k = 0; k < asked; ++k) good += integer_comes();
        }
        return good;
    }

  private:
    template <std::size_t Size>
    void append(const std::array<std::string_view, Size>& words) {
        std::array<const char*, Size> argv{};
        std::array<std::size_t, Size> sizes{};
        for (std::size_t i = 0; i < Size; ++i) {
            argv[i] = words[i].data();
            sizes[i] = words[i].size();
        }
        ::redisAppendCommandArgv(context_.get(), static_cast<int>(Size), argv.data(), sizes.data());
    }

    bool integer_comes() {
        void* reply = nullptr;
        if (::redisGetReply(context_.get(), &reply) != REDIS_OK || reply == nullptr) return false;
        const bool is_integer = static_cast<const redisReply*>(reply)->type == REDIS_REPLY_INTEGER;
        ::freeReplyObject(reply);
        return is_integer;
    }

    std::unique_ptr<redisContext, void (*)(redisContext*)> context_;
};

}  // namespace

TEST_CASE("thousands of locks are renewed on one connection by one thread, and none is lost") {
    const std::size_t count = little_or_all<std::size_t>(1000, 10'000);
    const std::chrono::milliseconds lease = little_or_all<std::chrono::milliseconds>(900ms, 6s);
    const std::chrono::milliseconds span = little_or_all<std::chrono::milliseconds>(3s, 60s);
    redis_server server;
    hiredis_connection redis{server.uri()};
    std::thread([] {}).join();  // a sanitizer's own thread comes with the first
    const auto threads_before = settled_thread_count();
    std::deque<distlock::mutex<hiredis_connection>> held;
    std::vector<std::string> names;
    for (std::size_t i = 0; i < count; ++i) {
        names.push_back("many:" + std::to_string(i));
        held.emplace_back(redis, names.back(), distlock::lock_options{.lease = lease}).lock();
    }
    CHECK(thread_count() == threads_before + 1);

    std::size_t lost = 0;
    const auto look = [&] {
        lost += static_cast<std::size_t>(
            std::count_if(held.begin(), held.end(), [](const auto& m) { return !m.owns_lock(); }));
    };
    const auto calls_before = calls_at(server, "evalsha");
    const auto reads_before = counted(server, "stats", "total_reads_processed:");
    const auto used_before = used_by_others();
    const auto begin = clk::now();
    for (auto next = begin; next < begin + span;) {
        look();
        next += std::min<clk::duration>(1s, begin + span - next);
        REQUIRE(eventually([&] { return clk::now() >= next; }));
    }
    const auto used = used_by_others() - used_before;
    const seconds took = clk::now() - begin;
    look();
    const auto renewals = calls_at(server, "evalsha") - calls_before;
    const auto reads = counted(server, "stats", "total_reads_processed:") - reads_before;
    const auto threads = thread_count() - threads_before;
    CHECK(server.command({"DBSIZE"}) == std::to_string(count));

    // The same by hand: what the renewals do, and what they say.
    plain_pipeline by_hand{server};
    const std::string ttl = std::to_string(lease.count());
    const std::string token(32, '0');
    const auto name = [&](long i) -> std::string_view { return names[static_cast<std::size_t>(i) % count]; };
    const auto hand_begin = used_by(CLOCK_THREAD_CPUTIME_ID);
    const long expires = by_hand.run(renewals, [&](long i) {
        return std::array<std::string_view, 3>{"PEXPIRE", name(i), ttl};
    });
    const auto between = used_by(CLOCK_THREAD_CPUTIME_ID);
    const long scripts = by_hand.run(renewals, [&](long i) {
        return std::array<std::string_view, 6>{
            "EVALSHA", distlock::detail::plain_renew.sha1(), "1", name(i), token, ttl};
    });
    const auto hand_end = used_by(CLOCK_THREAD_CPUTIME_ID);
    const seconds by_expire = between - hand_begin;
    const seconds by_script = hand_end - between;
    CHECK(expires == renewals);
    CHECK(scripts == renewals);

    std::size_t released = 0;
    for (auto& m : held) released += m.unlock() == release_outcome::posted;
    CHECK(eventually([&] { return server.command({"DBSIZE"}) == "0"; }));
    CHECK(eventually([&] {
        return std::all_of(held.begin(), held.end(), [](const auto& m) { return m.residual() == 0ms; });
    }));
    const double rounds = took / (seconds(lease) / 3.0);
    const double per_round = static_cast<double>(renewals) / rounds / static_cast<double>(count);
    const auto micros = [&](seconds all) { return 1e6 * all.count() / static_cast<double>(renewals); };
    figure(
        "%zu locks with a lease of %s ms, held for %.1f s on one connection: threads for it: %ld, lost: %zu",
        count, ttl.c_str(), took.count(), static_cast<long>(threads), lost);
    figure("  %ld renewals, %.2f for each lock and third of a lease, in %ld reads of the server", renewals,
           per_round, reads);
    figure("  processor time: %.2f %% of one core, %.2f us a renewal", 100 * used / took, micros(used));
    figure("  by hand: PEXPIRE %.2f us, ratio %.1f; EVALSHA %.2f us, ratio %.1f", micros(by_expire),
           used / by_expire, micros(by_script), used / by_script);
    CHECK(threads == 1);
    CHECK(lost == 0);
    CHECK(released == count);
    // Renewals come up to a tenth and a sixteenth of a third too early, and what was begun
    // before may end later.
    CHECK(per_round > 1.0 - 1.0 / rounds);
    CHECK(per_round < 1.0 / (1.0 - 0.1 - 0.0625) + 1.0 / rounds);
    // In pipelines.
    CHECK(reads < renewals / 2);
}

}  // namespace many_locks_tests
