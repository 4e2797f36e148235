// One of a fleet leads: three candidates, each with a connection of its own; the leader gives up
// twice, then all stop.
// Usage: leader [URI]
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

using namespace std::chrono_literals;

namespace {

std::atomic<int> batches{0};
std::atomic<bool> failed{false};

void schedule_jobs(std::uint64_t term) {
    std::printf("term %llu: schedules batch %d\n", static_cast<unsigned long long>(term), ++batches);
    std::this_thread::sleep_for(10ms);
}

struct log final : distlock::election_observer {
    void stopped(std::uint64_t, distlock::stop_reason why) noexcept override {
        std::puts(why == distlock::stop_reason::lost ? "lost the leadership" : "gave up the leadership");
    }
    void failed(std::error_code why) noexcept override {
        std::fprintf(stderr, "%s\n", why.message().c_str());
    }
};

void stand(distlock::hiredis_connection& redis, const std::string& who, std::stop_token stop) {
    distlock::leader_election election{redis, "scheduler", {.identity = who}, std::make_shared<log>()};

    election.run(stop, [&](const distlock::leadership& mine) {
        for (int i = 0; i < 3 && !stop.stop_requested() && !mine.lost().stop_requested(); ++i) {
            schedule_jobs(mine.term());  // whoever stores the jobs refuses an earlier term
        }
    });  // stands again, behind the others
}

}  // namespace

int main(int argc, char** argv) {
    try {
        std::optional<distlock::testing::redis_server> server;
        if (argc < 2) server.emplace();
        const std::string uri = argc < 2 ? server->uri() : argv[1];
        std::vector<std::jthread> candidates;
        for (int i = 1; i <= 3; ++i) {
            candidates.emplace_back([&, i](std::stop_token stop) {
                try {
                    distlock::hiredis_connection redis{uri};  // as a process of its own has it
                    stand(redis, "candidate " + std::to_string(i), stop);
                } catch (const std::exception& refused) {  // what standing again does not help
                    std::fprintf(stderr, "%s\n", refused.what());
                    failed = true;
                }
            });
        }
        while (batches < 9 && !failed) std::this_thread::sleep_for(1ms);
        distlock::hiredis_connection redis{uri};
        const distlock::leader_election asks{redis, "scheduler"};
        if (const auto leader = asks.leader())
            std::printf("%s leads, in process %d\n", leader->identity.c_str(), static_cast<int>(leader->pid));
        return failed ? 1 : 0;
    } catch (const std::exception& refused) {
        std::fprintf(stderr, "%s\n", refused.what());
        return 1;
    }
}
