// A lease is renewed while the lock is held, and can be lost all the same: how the owner
// learns of it, and stops.
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/inspect.hpp>
#include <distlock/testing.hpp>

using namespace std::chrono_literals;

namespace {

using milliseconds = std::chrono::milliseconds;

milliseconds in_ms(distlock::clock::duration d) { return std::chrono::duration_cast<milliseconds>(d); }

// A line each, with the time since the start. From any thread.
void say(const char* who, const std::string& what) {
    static const auto start = distlock::clock::now();
    const auto passed = static_cast<int>(in_ms(distlock::clock::now() - start).count());
    std::printf("%5d ms  %-9s %s\n", passed, who, what.c_str());
}

int failures = 0;
void expect(bool holds, const char* what) {
    if (!holds) ++failures;
    std::printf("     %s: %s\n", holds ? "ok" : "FAILED", what);
}

// What a service logs and counts. It is called on threads of the library.
class watcher : public distlock::lease_observer {
  public:
    void at_risk(const std::string& name, distlock::clock::duration left) override {
        say("observer", name + " is at risk: " + std::to_string(in_ms(left).count()) + " ms left");
        const std::lock_guard guard{changing_};
        warned_ = true;
    }
    void lost(const std::string& name, distlock::loss_reason why) override {
        say("observer", name + " is lost: " + std::string(to_string(why)));
        const std::lock_guard guard{changing_};
        reason_ = why;
        changed_.notify_all();
    }

    struct news {
        bool warned;
        std::optional<distlock::loss_reason> reason;
    };
    // Returns: what was told since the last call, once a loss was: that may be a moment after
    // lost() of the guard.
    news next_loss() {
        std::unique_lock lock{changing_};
        changed_.wait_for(lock, 2s, [&] { return reason_.has_value(); });
        return {std::exchange(warned_, false), std::exchange(reason_, std::nullopt)};
    }

  private:
    std::mutex changing_;
    std::condition_variable changed_;
    bool warned_ = false;
    std::optional<distlock::loss_reason> reason_;
};

constexpr const char* lock_name = "nightly-report";
constexpr auto lease = 800ms;
constexpr int all_pages = 400;

// Takes 10 ms, and less when `stop` is requested: whatever can wait can be woken by it.
void print(int /*page*/, const std::stop_token& stop) {
    std::mutex m;
    std::unique_lock lock{m};
    std::condition_variable_any printed;
    printed.wait_for(lock, stop, 10ms, [] { return false; });
}

struct work_done {
    int pages;
    distlock::clock::time_point stopped;
};

// The owner.
work_done work(distlock::hiredis_connection& redis, const std::shared_ptr<watcher>& observer) {
    distlock::mutex report{redis, lock_name, {.lease = lease, .owner_info = "report job"}, observer};

    distlock::scoped_lock guard{report};  // its lease is renewed from here on
    const std::stop_token lost = guard.lost();
    int page = 0;
    while (page < all_pages && !lost.stop_requested()) print(page++, lost);

    say("owner", (guard.owns_lock() ? "is done after page " : "stops after page ") + std::to_string(page));
    return {page, distlock::clock::now()};
}

bool is_held(distlock::hiredis_connection& redis) {
    return distlock::inspect(redis, lock_name).holder.has_value();
}

// Starts an owner, and waits until it has the lock.
std::future<work_done> start_work(distlock::hiredis_connection& redis,
                                  const std::shared_ptr<watcher>& observer) {
    auto owner = std::async(std::launch::async, work, std::ref(redis), observer);
    while (!is_held(redis) && owner.wait_for(5ms) == std::future_status::timeout) continue;
    say("owner", "has the lock");
    return owner;
}

void server_hangs(distlock::testing::redis_server& server, distlock::hiredis_connection& redis,
                  const std::shared_ptr<watcher>& observer) {
    auto owner = start_work(redis, observer);
    std::this_thread::sleep_for(lease + lease / 2);
    expect(is_held(redis), "one lease and a half later it still has it: it is renewed");

    const auto hung = distlock::clock::now();
    say("server", "hangs");
    server.pause();
    const work_done done = owner.get();
    server.resume();
    say("server", "goes on");

    const auto told = observer->next_loss();
    expect(told.warned, "the observer was warned");
    expect(told.reason == distlock::loss_reason::expired, "and was told the reason");
    expect(done.pages < all_pages, "the owner stopped in the middle of its work");
    expect(done.stopped - hung < lease + 500ms, "by its own clock: not one call was answered");
}

void operator_steps_in(distlock::hiredis_connection& redis, const std::shared_ptr<watcher>& observer) {
    auto owner = start_work(redis, observer);

    const distlock::lock_report seen = distlock::inspect(redis, lock_name);
    say("operator", "asks: " + distlock::to_string(seen));
    expect(seen.holder && seen.holder->label == "report job" && seen.holder->pid == ::getpid(),
           "who it is, is told by owner_info");

    say("operator", "takes it away");
    expect(distlock::force_release(redis, lock_name), "it was held");
    const work_done done = owner.get();
    expect(observer->next_loss().reason == distlock::loss_reason::forced, "the observer was told the reason");
    expect(done.pages < all_pages, "the owner stopped at its next renewal");
    expect(!is_held(redis), "the lock is free");
}

}  // namespace

int main() {
    try {
        distlock::testing::redis_server server;
        distlock::hiredis_connection redis{server.uri()};
        const auto observer = std::make_shared<watcher>();
        say("", "a lease of " + std::to_string(lease.count()) + " ms, renewed at every third of it");
        server_hangs(server, redis, observer);
        operator_steps_in(redis, observer);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
    return failures;
}
