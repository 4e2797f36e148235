// A consumer with hiredis: nothing listens on the port, and the lock must say so.
#include <chrono>
#include <cstdio>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>

int main() {
    distlock::hiredis_connection redis{"redis://127.0.0.1:1"};
    distlock::mutex orders{redis, "orders:42", {.patience = std::chrono::seconds{0}}};
    try {
        distlock::scoped_lock guard{orders};
    } catch (const distlock::error& e) {
        std::puts(e.what());
        return e.code() == distlock::errc::unreachable ? 0 : 1;
    }
    return 1;
}
