// Locks shared with services in other languages. Usage: interop [URI]
#include <chrono>
#include <cstdio>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/interop.hpp>

using namespace std::chrono_literals;

namespace {

void charge_card() { std::puts("charged"); }

void with_java(distlock::hiredis_connection& redis) {
    distlock::mutex<distlock::hiredis_connection, distlock::redisson> order{redis, "orders:42"};

    distlock::scoped_lock guard{order};  // Java's getLock("orders:42") waits, and is woken at the end
    charge_card();
}

void again(distlock::hiredis_connection& redis) {
    distlock::recursive_mutex<distlock::hiredis_connection> order{redis, "orders:43", {.lease = 10s}};

    order.lock();
    order.lock();    // the thread has it already: no round trip
    order.unlock();  // release_outcome::nested: it has it still
    order.unlock();
}

}  // namespace

int main(int argc, char** argv) {
    try {
        distlock::hiredis_connection redis{argc > 1 ? argv[1] : "redis://127.0.0.1:6379"};
        with_java(redis);
        again(redis);
    } catch (const distlock::error& e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}
