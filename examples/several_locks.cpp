// Several locks at once, all or none: a sale needs the account to itself, prices that nobody changes,
// and one of the tills.
// Usage: several_locks [URI]
#include <chrono>
#include <cstdio>
#include <exception>
#include <future>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

namespace {

void serve(int customer) { std::printf("customer %d is served\n", customer); }

void sell(distlock::hiredis_connection& redis, int customer) {
    using namespace std::chrono_literals;
    distlock::mutex account(redis, "{shop}account");
    distlock::shared_mutex price_list(redis, "{shop}prices");
    distlock::counting_semaphore tills(redis, "{shop}tills", 8);

    std::unique_lock books(account, std::defer_lock);
    std::shared_lock prices(price_list, std::defer_lock);
    distlock::permit till(tills, std::defer_lock);
    if (distlock::try_lock_for(2s, books, prices, till)) {  // throws if the server fails
        serve(customer);                                    // each ends with its scope
    } else {
        std::puts("one of them is taken, none is held");
    }
}

}  // namespace

int main(int argc, char** argv) {
    try {
        std::optional<distlock::testing::redis_server> server;
        if (argc < 2) server.emplace();
        const std::string uri = argc < 2 ? server->uri() : argv[1];
        std::vector<std::future<void>> customers;
        for (int i = 1; i <= 3; ++i) {
            customers.push_back(std::async(std::launch::async, [&, i] {
                distlock::hiredis_connection redis{uri};  // as a process of its own has it
                sell(redis, i);
            }));
        }
        for (auto& one : customers) one.get();
        return 0;
    } catch (const std::exception& failed) {
        std::fprintf(stderr, "%s\n", failed.what());
        return 1;
    }
}
