// A consumer without hiredis: a lambda is the connection, and the server behind it is never there.
#include <chrono>
#include <cstdio>

#include <distlock/distlock.hpp>

int main() {
    auto nobody = [](const distlock::command&) {
        return distlock::reply::not_sent(distlock::errc::unreachable, "nobody is there");
    };
    distlock::mutex orders{nobody, "orders:42", {.patience = std::chrono::seconds{0}}};
    try {
        distlock::scoped_lock guard{orders};
    } catch (const distlock::error& e) {
        std::puts(e.what());
        return e.code() == distlock::errc::unreachable ? 0 : 1;
    }
    return 1;
}
