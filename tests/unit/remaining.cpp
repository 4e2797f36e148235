// What an owner is told of its lease while another thread keeps the lock object busy: the clock is read last.
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include <distlock/counting_semaphore.hpp>
#include <distlock/mutex.hpp>
#include <distlock/recursive_mutex.hpp>
#include <distlock/scoped_lock.hpp>
#include <distlock/shared_mutex.hpp>
#include <distlock/shared_scoped_lock.hpp>
#include <distlock/testing/manual_clock.hpp>
#include <distlock/testing/scripted_connection.hpp>
#include <distlock/wire/plain.hpp>
#include <distlock/wire/reply.hpp>

#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/locks_in_memory.hpp"
#include "support/waiting.hpp"

namespace remaining_tests {

namespace {

using namespace std::chrono_literals;
using distlock::lock_options;
using distlock::reply;
using distlock::testing::manual_clock;
using distlock::testing::scripted_connection;

/// At a gate a thread that has shut it waits when it reads the clock next.
struct gated_clock : manual_clock {
    static time_point now() noexcept {
        if (reads != nullptr) *reads = true;
        if (gate* const mine = std::exchange(shut, nullptr)) mine->pass();
        return manual_clock::now();
    }
    static inline thread_local gate* shut = nullptr;
    static inline thread_local std::atomic<bool>* reads = nullptr;  // of this thread, if it is watched
};

using lock = distlock::mutex<locks_in_memory, distlock::plain, gated_clock>;
const lock_options brief{.lease = 10s, .renew = false};

/// Effects: a thread in busy.lost() keeps the object's state to itself; meanwhile another one calls `ask`,
/// and the lease ends. Returns: what `ask` has returned.
template <class Busy, class Ask>
auto asked_meanwhile(const Busy& busy, Ask ask) {
    gate open_at_the_end;
    std::atomic<bool> too_soon = false;
    std::jthread inside([&] {
        gated_clock::shut = &open_at_the_end;
        static_cast<void>(busy.lost());
    });
    REQUIRE(eventually([&] { return open_at_the_end.reached(); }));
    std::atomic<bool> asks = false;
    decltype(ask()) said{};
    std::jthread asker([&] {
        gated_clock::reads = &too_soon;
        asks = true;
        said = ask();
    });
    REQUIRE(eventually([&] { return asks.load(); }));
    eventually([&] { return too_soon.load(); }, 50ms);
    manual_clock::advance(1min);
    open_at_the_end.open();
    asker.join();
    return said;
}

}  // namespace

// Which of the two was read first was the compiler's choice, and differed.
TEST_CASE("an owner that was kept waiting for the answer is not told that a lease that is over is not") {
    locks_in_memory redis;
    SECTION("mutex") {
        lock mutex(redis, "orders", brief);
        mutex.lock();
        CHECK_FALSE(asked_meanwhile(mutex, [&] { return mutex.owns_lock(); }));
        mutex.unlock();
        mutex.lock();
        CHECK(asked_meanwhile(mutex, [&] { return mutex.remaining(); }) == 0s);
    }
    SECTION("guard of one") {
        lock mutex(redis, "orders", brief);
        const distlock::scoped_lock one(mutex);
        CHECK_FALSE(asked_meanwhile(mutex, [&] { return one.owns_lock(); }));
    }
    SECTION("guard of two, the other of which lasts longer") {
        lock first(redis, "orders", brief);
        lock second(redis, "invoices", {.lease = 1h, .renew = false});
        first.lock();
        second.lock();
        const distlock::scoped_lock both(std::adopt_lock, first, second);
        CHECK(asked_meanwhile(second, [&] { return both.remaining(); }) == 0s);
    }
    SECTION("reader") {
        scripted_connection lets_in{
            reply::array({reply::integer(1), reply::string(""), reply::integer(10'000)})};
        distlock::shared_mutex<scripted_connection, gated_clock> mutex(lets_in, "orders", brief);
        const distlock::shared_scoped_lock reads(mutex);
        CHECK_FALSE(asked_meanwhile(reads, [&] { return reads.owns_lock(); }));
    }
    SECTION("permit") {
        scripted_connection gives{
            reply::array({reply::integer(1), reply::string(""), reply::integer(10'000)})};
        distlock::counting_semaphore<scripted_connection, gated_clock> pool(gives, "pool", 3, brief);
        const distlock::permit one = pool.acquire();
        CHECK_FALSE(asked_meanwhile(one, [&] { return static_cast<bool>(one); }));
    }
}

}  // namespace remaining_tests
