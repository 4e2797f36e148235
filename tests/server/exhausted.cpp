// A process at its end: no memory, no descriptors, a name server that does not answer, exit() while locks are held.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <dlfcn.h>
#include <memory>
#include <mutex>
#include <netdb.h>
#include <new>
#include <stop_token>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/interop.hpp>
#include <distlock/testing.hpp>

#include "catch.hpp"
#include "support/allocations.hpp"
#include "support/in_child.hpp"
#include "support/slack.hpp"
#include "support/waiting.hpp"

using namespace std::chrono_literals;
using distlock::errc;
using distlock::hiredis_connection;
using distlock::release_outcome;
using distlock::testing::redis_server;

namespace {

// Whoever looks up a name that begins so waits until a test says that it is enough.
constexpr std::string_view slow_name = "slow.";
std::atomic<bool> names_are_slow{true};
std::atomic<int> looked_up{0};

}  // namespace

// In the place of the system's, for the whole program.
extern "C" int getaddrinfo(const char* host, const char* service, const addrinfo* hints, addrinfo** found) {
    using function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
    static const auto real = reinterpret_cast<function>(::dlsym(RTLD_NEXT, "getaddrinfo"));
    const bool numeric = hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) != 0;
    if (host != nullptr && std::string_view(host).starts_with(slow_name) && !numeric) {
        ++looked_up;
        eventually([] { return !names_are_slow; });
        return EAI_AGAIN;
    }
    return real(host, service, hints, found);
}

TEST_CASE("a name server that does not answer keeps nobody beyond its deadline, and is asked once") {
    {
        hiredis_connection redis("redis://slow.example:6379?connect_timeout=100ms&command_timeout=100ms");
        distlock::mutex m{redis, "orders", {.patience = 0ms}};
        for (int i = 0; i < 3; ++i) {
            std::error_code ec;
            bool got = true;
            CHECK(time_of([&] { got = m.try_lock_for(50ms, ec); }) <= 50ms + 100ms + slack);
            CHECK_FALSE(got);
            CHECK(ec == errc::unreachable);
        }
    }
    CHECK(looked_up == 1);
    names_are_slow = false;
}

TEST_CASE("without descriptors a lock is an error, nothing is leaked, and it works again with them") {
    const redis_server server;
    CHECK(in_child([&] {
        hiredis_connection redis(server.uri());
        distlock::mutex m{redis, "orders", {.patience = 0ms, .release = distlock::confirmed}};
        rlimit all{};
        ::getrlimit(RLIMIT_NOFILE, &all);
        const int next = ::dup(0);
        ::close(next);
        const rlimit none{static_cast<rlim_t>(next), all.rlim_max};
        ::setrlimit(RLIMIT_NOFILE, &none);
        bool good = true;
        for (int i = 0; i < 20; ++i) {
            std::error_code ec;
            good = good && !m.try_lock(ec) && ec == errc::unreachable;
        }
        ::setrlimit(RLIMIT_NOFILE, &all);
        const int now = ::dup(0);
        return good && now == next && m.try_lock() && m.unlock() == release_outcome::released;
    }));
}

// The n-th call of operator new fails, for every n, in lock and unlock.
TEST_CASE(
    "without memory a lock is had or not, an unlock releases it, and nothing is left for longer than the "
    "lease") {
    const redis_server server;
    for (const bool contended : {false, true}) {
        int failures = 0;
        bool failed = true;
        for (long n = 1; failed && n < 400; ++n) {
            INFO("allocation " << n << (contended ? " of a contended lock" : ""));
            hiredis_connection redis(server.uri());
            auto m = std::make_unique<distlock::mutex<hiredis_connection>>(
                redis, "orders",
                distlock::lock_options{
                    .lease = 2s, .fencing = true, .patience = 0ms, .release = distlock::confirmed});
            if (contended) server.command({"SET", "orders", "somebody else's", "PX", "5"});
            bool held = false;
            fail_allocation(n);
            try {
                held = m->try_lock_for(1s);
            } catch (const std::bad_alloc&) {
            } catch (const std::system_error&) {}
            const auto what = held ? m->unlock() : release_outcome::not_held;
            failed = allocation_failed();
            fail_allocation(0);
            failures += failed;
            if (held) CHECK((what == release_outcome::released || what == release_outcome::unreachable));
            m.reset();
            CHECK(eventually([&] { return server.command({"EXISTS", "orders"}) == "0"; }));
        }
        CHECK(failures > 5);
        CHECK_FALSE(failed);  // else there are more
    }
}

// The n-th call of operator new fails, for every n, while a lock is left to others.
TEST_CASE("without memory to wait with, a lock fails, and can be taken later") {
    const redis_server server;
    bool failed = true;
    int failures = 0;
    for (long n = 1; failed && n < 100; ++n) {
        INFO("allocation " << n);
        hiredis_connection redis(server.uri());
        distlock::mutex<hiredis_connection, distlock::plain> m{
            redis, "orders", {.lease = 2s, .patience = 0ms, .release = distlock::confirmed}};
        server.command({"SET", "orders", "somebody else's", "PX", "5"});
        m.lock();
        const auto since = distlock::clock::now();
        CHECK(eventually([&] { return distlock::clock::now() - since >= 20ms; }));
        m.unlock();
        const std::stop_source stop;
        bool held = false;
        fail_allocation(n);
        try {
            m.lock(stop.get_token());
            held = true;
        } catch (const std::bad_alloc&) {
        } catch (const std::system_error&) {}
        failed = allocation_failed();
        fail_allocation(0);
        failures += failed;
        if (held) m.unlock();
        CHECK(m.try_lock_for(10s));
    }
    CHECK(failures > 0);
    CHECK_FALSE(failed);
}

namespace {

// With what a program has as static objects, destroyed by exit().
[[noreturn]] void exit_with_a_lock(const std::string& uri, bool from_another_thread) {
    static hiredis_connection redis(uri);
    static distlock::mutex m{redis, "orders", {.lease = 10s}};
    m.lock();
    const auto lost = m.lost();
    if (from_another_thread) std::thread([] { std::exit(7); }).join();
    std::exit(7);
}

}  // namespace

TEST_CASE("a process that exits while it holds a lock ends at once, and its lock with it") {
    const redis_server server;
    for (const bool from_another_thread : {false, true}) {
        int status = 0;
        const auto took = time_of([&] {
            const pid_t child = ::fork();
            if (child == 0) {
                ::alarm(20);
                exit_with_a_lock(server.uri(), from_another_thread);
            }
            REQUIRE(::waitpid(child, &status, 0) == child);
        });
        CHECK(WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == 7);
        CHECK(took <= 2 * 200ms + slack);
        CHECK(server.command({"EXISTS", "orders"}) == "0");
    }
}
