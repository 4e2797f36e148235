// The model server against a real one; and the shim that puts the real one's clock where the model's is.
//
// DISTLOCK_LAB_COUNT=200 makes a million commands of twenty thousand; DISTLOCK_LAB_SEED=7 plays one seed.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <dlfcn.h>
#include <stop_token>
#include <string>
#include <sys/time.h>
#include <thread>
#include <time.h>

#include <distlock/testing/redis_server.hpp>

#include "model/simulator/model_comparison.hpp"
#include "support/catch.hpp"
#include "support/lab_figures.hpp"
#include "support/shifted_clock.hpp"
#include "support/waiting.hpp"

TEST_CASE("the model server answers what a real server answers") {
    sim::standing_server server;
    const char* const one = std::getenv("DISTLOCK_LAB_SEED");
    const std::uint64_t first = one != nullptr ? std::strtoull(one, nullptr, 10) : 1;
    const std::size_t seeds = one != nullptr ? 1 : little_or_all<std::size_t>(10, 500);
    std::size_t sent = 0;
    std::size_t messages = 0;
    std::size_t errors = 0;
    const auto since = std::chrono::steady_clock::now();
    for (auto seed = first; seed < first + seeds; ++seed) {
        sim::comparison both(server, seed);
        const auto difference = both.run();
        sent += both.sent();
        messages += both.messages();
        errors += both.errors();
        if (!difference.empty()) FAIL("after " << sent << " commands: " << difference);
    }
    const auto took = std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
    figure("%zu commands in %.1f s, seeds %llu to %llu: %zu messages, %zu errors, 0 differences", sent, took,
           static_cast<unsigned long long>(first), static_cast<unsigned long long>(first + seeds - 1),
           messages, errors);
    CHECK(messages > 0);
    CHECK(errors > 0);
}

// The clock under the server's feet.

namespace {

using distlock::testing::redis_server;
using std::chrono::nanoseconds;
using namespace std::chrono_literals;

/// The shim in this process, called by name: what a process sees that is started with it.
class shim {
  public:
    explicit shim(const shifted_clock& clock) {
        for (const std::string& entry : clock.environment()) {
            if (const auto path = entry.find("DISTLOCK_CLOCK="); path == 0)
                ::setenv("DISTLOCK_CLOCK", entry.c_str() + entry.find('=') + 1, 1);
        }
        library_ = ::dlopen(DISTLOCK_CLOCK_SHIM, RTLD_NOW | RTLD_LOCAL);
        ::unsetenv("DISTLOCK_CLOCK");
        REQUIRE(library_ != nullptr);
        gettime_ = reinterpret_cast<decltype(gettime_)>(::dlsym(library_, "clock_gettime"));
        of_day_ = reinterpret_cast<decltype(of_day_)>(::dlsym(library_, "gettimeofday"));
        time_ = reinterpret_cast<decltype(time_)>(::dlsym(library_, "time"));
    }
    shim(const shim&) = delete;
    shim& operator=(const shim&) = delete;
    ~shim() { ::dlclose(library_); }

    nanoseconds now(clockid_t id) const { return read(gettime_, id); }
    nanoseconds of_day() const {
        timeval t{};
        of_day_(&t, nullptr);
        return std::chrono::seconds(t.tv_sec) + std::chrono::microseconds(t.tv_usec);
    }
    nanoseconds seconds() const { return std::chrono::seconds(time_(nullptr)); }
    static nanoseconds truly(clockid_t id) { return read(::clock_gettime, id); }

  private:
    static nanoseconds read(int (*gettime)(clockid_t, timespec*), clockid_t id) {
        timespec t{};
        gettime(id, &t);
        return std::chrono::seconds(t.tv_sec) + nanoseconds(t.tv_nsec);
    }
    void* library_ = nullptr;
    int (*gettime_)(clockid_t, timespec*) = nullptr;
    int (*of_day_)(timeval*, void*) = nullptr;
    time_t (*time_)(time_t*) = nullptr;
};

/// Returns: whether the clock shows `ahead` more than the true one, to the time that the three readings take.
bool is_ahead(const shim& seen, clockid_t id, nanoseconds ahead) {
    const auto before = shim::truly(id);
    const auto shown = seen.now(id);
    return before + ahead <= shown && shown <= shim::truly(id) + ahead;
}

}  // namespace

TEST_CASE("a server's wall clock stands, jumps and goes on as it is told") {
    shifted_clock clock;
    clock.freeze_wall(1'700'000'000'123'456us);
    clock.freeze_steady();  // Valkey adds what has passed by this one
    const redis_server server({.environment = clock.environment()});
    CHECK(server.command({"TIME"}) == "1700000000\n123456");
    server.command({"SET", "lock", "token", "PX", "1000"});
    clock.jump_wall(600ms);
    CHECK(server.command({"PTTL", "lock"}) == "400");
    clock.jump_wall(-600ms);
    CHECK(server.command({"PTTL", "lock"}) == "1000");
    clock.jump_wall(1001ms);
    CHECK(server.command({"GET", "lock"}) == "(nil)");
    clock.thaw_wall();
    clock.thaw_steady();
    const auto frozen = std::string("1700000001\n124456");
    CHECK(eventually([&] { return server.command({"TIME"}) != frozen; }));
    CHECK(server.command({"TIME"}).starts_with("17000000"));
}

TEST_CASE("a server's own environment wins over the inherited one") {
    shifted_clock clock;
    clock.freeze_wall(1s);
    clock.freeze_steady();
    ::setenv("DISTLOCK_CLOCK", "/nowhere", 1);
    const redis_server server({.environment = clock.environment()});
    ::unsetenv("DISTLOCK_CLOCK");
    CHECK(server.command({"TIME"}) == "1\n0");
}

TEST_CASE("each clock follows its own control, and the others stay true") {
    shifted_clock clock;
    const shim seen(clock);
    const auto show = [&](nanoseconds wall_ahead, nanoseconds steady_ahead) {
        for (const clockid_t id :
             {CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_MONOTONIC_COARSE, CLOCK_BOOTTIME})
            CHECK(is_ahead(seen, id, steady_ahead));
        for (const clockid_t id : {CLOCK_REALTIME, CLOCK_REALTIME_COARSE})
            CHECK(is_ahead(seen, id, wall_ahead));
        CHECK(is_ahead(seen, CLOCK_PROCESS_CPUTIME_ID, 0ns));
    };
    show(0ns, 0ns);
    clock.jump_wall(1h);
    show(1h, 0ns);
    clock.jump_steady(-5s);
    show(1h, -5s);
    clock.jump_wall(-2h);
    show(-1h, -5s);

    clock.freeze_wall(-1ns);  // before the epoch
    CHECK(seen.now(CLOCK_REALTIME) == -1ns);
    CHECK(seen.of_day() == -1us);
    CHECK(seen.seconds() == -1s);
    clock.freeze_wall(1'999'999'999ns);
    CHECK(seen.of_day() == 1'999'999us);
    CHECK(seen.seconds() == 1s);
    clock.freeze_steady(7ns);
    CHECK(seen.now(CLOCK_BOOTTIME) == 7ns);
    clock.jump_steady(1s);
    CHECK(seen.now(CLOCK_MONOTONIC) == 1s + 7ns);
}

TEST_CASE("a clock runs as much faster as it is told, from then on") {
    shifted_clock clock;
    const shim seen(clock);
    for (const std::int64_t rate : {500'000, -500'000, 10'000, 0}) {
        const auto looked = shim::truly(CLOCK_MONOTONIC);
        const auto ahead = seen.now(CLOCK_MONOTONIC) - looked;
        const auto set_after = shim::truly(CLOCK_MONOTONIC);
        clock.rate_steady(rate);
        const auto set_before = shim::truly(CLOCK_MONOTONIC);
        CHECK(eventually([&] { return shim::truly(CLOCK_MONOTONIC) > set_before + 5ms; }));
        const auto before = shim::truly(CLOCK_MONOTONIC);
        const auto shown = seen.now(CLOCK_MONOTONIC);
        const auto after = shim::truly(CLOCK_MONOTONIC);
        const auto gained = shown - before - ahead;
        // However long this thread is kept waiting between two of these.
        const auto skew = 2 * (after - before) + 2 * (set_before - looked) + 1us;
        CHECK(gained >= (before - set_before) * rate / 1'000'000 - skew);
        CHECK(gained <= (after - set_after) * rate / 1'000'000 + skew);
    }
}

TEST_CASE("a clock whose rate changes all the time is never seen torn") {
    shifted_clock clock;
    const shim seen(clock);
    std::jthread changes([&](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
            clock.rate_steady(500'000);
            clock.rate_steady(-500'000);
        }
    });
    // While the rate is between half and one and a half, so is what passes between two looks.
    std::size_t torn = 0;
    nanoseconds last{};
    nanoseconds last_true{};
    for (int looks = 0; looks < 100'000; ++looks) {
        const auto before = shim::truly(CLOCK_MONOTONIC);
        const auto shown = seen.now(CLOCK_MONOTONIC);
        const auto after = shim::truly(CLOCK_MONOTONIC);
        const auto most = (after - last_true) * 3 / 2 + 1us;
        if (looks > 0 && (shown < last || shown - last > most)) ++torn;
        last = shown;
        last_true = before;
    }
    CHECK(torn == 0);
}
