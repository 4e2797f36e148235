// The whole life of a lock, failure branch included. Usage: life_of_a_lock [URI]
#include <chrono>
#include <cstdio>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>

using namespace std::chrono_literals;

namespace {

constexpr int parts = 3;
void charge_card() { std::puts("charged"); }
void ship(int part) { std::printf("shipped part %d\n", part); }

int fulfil(const char* where) {
    distlock::hiredis_connection redis{where};
    distlock::mutex order{redis, "orders:42"};

    try {
        distlock::scoped_lock guard{order};  // waits its turn; then its lease is renewed
        charge_card();
        const auto lost = guard.lost();  // stop is requested once the loss is known
        for (int part = 0; part < parts; ++part) {
            if (lost.stop_requested()) return 1;  // another may own it now
            ship(part);
        }
    } catch (const distlock::error& e) {  // the server failed; contention is no error
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }

    if (order.try_lock_for(200ms)) {  // throws if the server fails
        distlock::scoped_lock guard{std::adopt_lock, order};
        if (!guard.owns_lock()) std::puts("lost");
    } else {
        std::puts("taken, or others wait");
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return fulfil(argc > 1 ? argv[1] : "redis://127.0.0.1:6379");
    } catch (const distlock::error& e) {
        std::fprintf(stderr, "life_of_a_lock: %s\n", e.what());
        return 1;
    }
}
