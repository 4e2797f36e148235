// At most so many at once: workers of several processes that share a service which takes
// two requests at a time.
// Usage: worker_pool [URI]
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <future>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

using namespace std::chrono_literals;

namespace {

std::atomic<int> at_work{0};
std::atomic<int> most_at_work{0};

void send_request(int worker) {
    const int now = ++at_work;
    int known = most_at_work;
    while (now > known && !most_at_work.compare_exchange_weak(known, now)) continue;
    std::printf("worker %d: sends, %d at once\n", worker, now);
    std::this_thread::sleep_for(20ms);
    --at_work;
}

void back_off() { std::puts("all permits are out"); }

void work(distlock::hiredis_connection& redis, int worker) {
    distlock::counting_semaphore service{redis, "payment-service", 2, {.lease = 10s}};

    distlock::permit mine = service.acquire();  // waits for its turn; the end of the scope gives it back
    send_request(worker);
    if (mine.lost().stop_requested()) std::puts("the permit was lost: another may have been at it, too");
}

void work_if_there_is_room(distlock::hiredis_connection& redis) {
    distlock::counting_semaphore service{redis, "payment-service", 2, {.lease = 10s}};

    std::error_code ec;
    if (auto both = service.try_acquire_for(200ms, 2, ec)) {
        std::printf("has %d permits\n", static_cast<int>(both->n()));
    } else if (!ec) {
        back_off();
    } else {
        std::fprintf(stderr, "%s\n", ec.message().c_str());
    }
}

}  // namespace

int main(int argc, char** argv) {
    try {
        std::optional<distlock::testing::redis_server> server;
        if (argc < 2) server.emplace();
        const std::string uri = argc < 2 ? server->uri() : argv[1];
        {
            std::vector<std::future<void>> workers;
            for (int i = 1; i <= 6; ++i) {
                workers.push_back(std::async(std::launch::async, [&, i] {
                    distlock::hiredis_connection redis{uri};  // as a process of its own has it
                    work(redis, i);
                }));
            }
            for (auto& one : workers) one.get();
        }
        distlock::hiredis_connection redis{uri};
        work_if_there_is_room(redis);
        std::printf("never more than %d at once\n", most_at_work.load());
        return most_at_work <= 2 ? 0 : 1;
    } catch (const std::exception& failed) {
        std::fprintf(stderr, "%s\n", failed.what());
        return 1;
    }
}
