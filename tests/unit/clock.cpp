// The clock: the standard's requirements, and that it is the one that also runs while the machine sleeps.
#include <chrono>
#include <concepts>
#include <cstddef>
#include <fcntl.h>
#include <ratio>
#include <sched.h>
#include <stop_token>
#include <string_view>
#include <sys/wait.h>
#include <time.h>
#include <type_traits>
#include <unistd.h>

#include <distlock/base/clock.hpp>
#include <distlock/base/time_source.hpp>

#include "support/catch.hpp"
#include "support/sleepers.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace clock_tests {

namespace {

using distlock::clock;

// [time.clock.req], and what the library adds: nanoseconds, and a now() that cannot throw.
template <class C>
concept meets_the_clock_requirements = requires {
    typename C::rep;
    typename C::period;
    typename C::duration;
    typename C::time_point;
    { C::is_steady } -> std::convertible_to<bool>;
    { C::now() } -> std::same_as<typename C::time_point>;
    requires std::is_arithmetic_v<typename C::rep>;
    requires std::same_as<typename C::duration, std::chrono::duration<typename C::rep, typename C::period>>;
    requires std::same_as<typename C::time_point, std::chrono::time_point<C, typename C::duration>>;
};

static_assert(meets_the_clock_requirements<clock>);
static_assert(std::same_as<clock::duration, std::chrono::nanoseconds>,
              "or a sum of the two is of a third type: the standard libraries' nanoseconds differ");
static_assert(clock::is_steady);
static_assert(noexcept(clock::now()));
static_assert(std::is_signed_v<clock::rep> && sizeof(clock::rep) == 8);
static_assert(std::same_as<clock::period, std::nano>);
static_assert(!std::is_convertible_v<std::chrono::steady_clock::time_point, clock::time_point>,
              "points of another clock must not slip in");

#ifdef DISTLOCK_ON_LINUX
clock::time_point boot_time() {
    timespec t{};
    ::clock_gettime(CLOCK_BOOTTIME, &t);
    return clock::time_point(std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec));
}
bool runs_on_boot_time() {
    const auto before = boot_time();
    const auto now = clock::now();
    return before <= now && now <= boot_time();
}
#endif

}  // namespace

#ifdef DISTLOCK_ON_LINUX
TEST_CASE("the clock is CLOCK_BOOTTIME") { CHECK(runs_on_boot_time()); }

#ifdef CLONE_NEWTIME
// On a machine that was never suspended CLOCK_MONOTONIC shows the same time. A time namespace pulls the two
// apart; where one may not be made, the case above has to do.
TEST_CASE("the clock counts the time that the machine was suspended") {
    constexpr int not_possible = 77;
    const pid_t maker = ::fork();
    REQUIRE(maker >= 0);
    if (maker == 0) {
        if (::unshare(CLONE_NEWTIME) != 0) ::_exit(not_possible);
        const int offsets = ::open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
        constexpr std::string_view a_day = "boottime 86400 0\n";
        if (offsets < 0 ||
            ::write(offsets, a_day.data(), a_day.size()) != static_cast<ssize_t>(a_day.size())) {
            ::_exit(not_possible);
        }
        const pid_t sleeper = ::fork();
        if (sleeper == 0) ::_exit(runs_on_boot_time() ? 0 : 1);
        int status = 0;
        ::waitpid(sleeper, &status, 0);
        ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 2);
    }
    int status = 0;
    REQUIRE(::waitpid(maker, &status, 0) == maker);
    REQUIRE(WIFEXITED(status));
    NOT_TESTED_UNLESS(WEXITSTATUS(status) != not_possible, "no time namespace can be made here");
    CHECK(WEXITSTATUS(status) == 0);
}
#endif
#endif

TEST_CASE("a wait looks at the clock every second, since the system's timers stand still with the machine") {
    const distlock::time_source real;
    CHECK(real.slice(clock::now() + std::chrono::hours(1)) == std::chrono::seconds(1));
    CHECK(real.slice(clock::now()) == clock::duration::zero());
}

TEST_CASE("a stop request ends a pause at once") {
    std::stop_source source;
    sleeper paused(
        [&] { distlock::detail::pause_until(source.get_token(), clock::now() + std::chrono::hours{1}); });
    REQUIRE(paused.sleeps());
    const auto asked = clock::now();
    source.request_stop();
    CHECK(eventually([&] { return paused.done(); }));
    CHECK(clock::now() - asked < timing_tolerance);
}

TEST_CASE("the clock never goes back and moves on") {
    const auto first = clock::now();
    auto last = first;
    std::size_t backwards = 0;
    // The bound is for a clock that stands still: the loop ends by the other condition.
    for (std::size_t i = 0; i < 1'000'000 && last < first + std::chrono::microseconds(100); ++i) {
        const auto now = clock::now();
        if (now < last) ++backwards;
        last = now;
    }
    CHECK(backwards == 0);
    CHECK(last > first);
}

}  // namespace clock_tests
