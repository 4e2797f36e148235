// A consumer with hiredis: nothing listens on the port, and the lock must say so.
#include <chrono>
#include <cstdio>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>

// In the separate form the default dialect is only declared here.
template <distlock::connection Conn, distlock::dialect Dialect, class Clock>
void lock_any(distlock::mutex<Conn, Dialect, Clock>& one) {
    distlock::scoped_lock guard{one};
}

// In the separate form the URI of Sentinels was only declared.
distlock::sentinel_connection over_sentinels(const distlock::sentinel_uri& where) {
    return distlock::sentinel_connection(where);
}

int main() {
    static_cast<void>(over_sentinels(distlock::parse_sentinel_uri("redis+sentinel://s1,s2,s3/mymaster")));
    distlock::hiredis_connection redis{"redis://127.0.0.1:1"};
    distlock::mutex orders{redis, "orders:42", {.patience = std::chrono::seconds{0}}};
    try {
        lock_any(orders);
    } catch (const distlock::error& e) {
        std::puts(e.what());
        return e.code() == distlock::errc::unreachable ? 0 : 1;
    }
    return 1;
}
