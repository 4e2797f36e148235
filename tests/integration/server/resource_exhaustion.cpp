// A process at its end: no memory, no descriptors, exit() while locks are held.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <poll.h>
#include <span>
#include <stop_token>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include <distlock/hiredis/handshake.hpp>
#include <distlock/hiredis/node_pool.hpp>
#include <distlock/net/uri.hpp>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/fake_sentinel.hpp"
#include "support/few_descriptors.hpp"
#include "support/hiredis_test.hpp"
#include "support/in_child.hpp"
#include "support/moody_server.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace resource_exhaustion_tests {

using namespace hiredis_test;

TEST_CASE("without descriptors a lock is an error, nothing is leaked, and it works again with them") {
    const redis_server server;
    CHECK(in_child([&] {
        hiredis_connection redis(server.uri());
        distlock::mutex m{redis, "orders", {.patience = 0ms, .release = distlock::confirmed}};
        const int next = ::dup(0);
        ::close(next);
        bool good = true;
        {
            const few_descriptors none;
            for (int i = 0; i < 20; ++i) {
                std::error_code ec;
                good = good && !m.try_lock(ec) && ec == errc::unreachable;
            }
        }
        const int now = ::dup(0);
        return good && now == next && m.try_lock() && m.unlock() == release_outcome::released;
    }));
}

// It was lost: the waiters of its own process had all descriptors, so that none was left to renew it with.
TEST_CASE("a held lock is renewed while waiters of its process have all descriptors") {
    const redis_server server;
    CHECK(in_child([&] {
        const std::string uri = server.uri() + "?connect_timeout=5s&command_timeout=300ms";
        hiredis_connection apart(uri);
        distlock::mutex busy{apart, "busy", {.lease = 60s, .renew = false}};
        hiredis_connection redis(uri);
        distlock::mutex held{redis, "held", {.lease = 1s}};
        busy.lock();
        held.lock();
        const few_descriptors few(6);
        for (int i = 0; i < 12; ++i) {
            std::thread([&] {
                distlock::mutex m{redis, "busy", {.lease = 60s, .patience = 1h}};
                m.lock();
            }).detach();
        }
        // So many renewals take longer than the lease.
        int renewals = 0;
        std::int64_t before = 0;
        const bool renewed = eventually([&] {
            const auto left = apart.execute({"PTTL", "held"}).number();
            if (left > before) ++renewals;
            before = left;
            return renewals > 6;
        });
        ::_exit(renewed && held.owns_lock() ? 0 : 1);  // the waiters wait for ever
        return false;
    }));
}

namespace {

std::array<reply, 2> pipeline(hiredis_connection& redis, const command& first, const command& second) {
    const std::array<command, 2> both{first, second};
    std::array<reply, 2> replies;
    redis.pipeline(both, replies);
    return replies;
}

}  // namespace

TEST_CASE("without descriptors commands, posts and pipelines pass on the socket for pipelines") {
    moody_server server;
    hiredis_connection redis(server.uri());
    CHECK(pipeline(redis, {"GET", "a"}, {"GET", "b"})[1].is_status("OK"));
    std::thread other([&] { redis.execute({"HOLD"}); });
    const bool holds = eventually([&] { return server.holding() == 1; });
    int good = 0;
    {
        const few_descriptors none;
        for (int i = 0; i < 5; ++i) {
            if (redis.execute({"GET", "a"}).is_status("OK") && redis.post({"DEL", "a"}) &&
                pipeline(redis, {"GET", "a"}, {"GET", "b"})[1].is_status("OK"))
                ++good;
        }
    }
    server.let_go();
    other.join();
    REQUIRE(holds);
    CHECK(good == 5);
    CHECK(server.accepted() == 2);
    CHECK(server.commands("DEL") == 5);
}

TEST_CASE("a command that was given up is not applied later: its socket is aborted when it is replaced") {
    moody_server server;
    hiredis_connection redis(server.uri());
    CHECK(pipeline(redis, {"GET", "a"}, {"GET", "b"})[1].is_status("OK"));
    std::thread other([&] { static_cast<void>(redis.execute({"HOLD"})); });
    const bool holds = eventually([&] { return server.holding() == 1; });
    server.change("");
    const int before = server.accepted();
    {
        const few_descriptors none;
        CHECK(redis.execute(command{"GET", "a"}.until(clock::now() + 300ms)).is(reply_kind::no_answer));
    }
    CHECK(pipeline(redis, {"GET", "a"}, {"GET", "b"})[1].is_status("OK"));
    CHECK(server.accepted() == before + 1);
    CHECK(eventually([&] { return server.reset() == 1; }));
    server.let_go();
    other.join();
    CHECK(holds);
}

TEST_CASE("a pipeline waits for a short command that has the last socket; a child after fork() does not") {
    moody_server server;
    auto redis = std::make_unique<hiredis_connection>(server.uri());
    CHECK(pipeline(*redis, {"GET", "a"}, {"GET", "b"})[1].is_status("OK"));
    std::thread first([&] { static_cast<void>(redis->execute({"HOLD"})); });
    const bool holds = eventually([&] { return server.holding() == 1; });
    bool executes = false;
    bool child_ends = false;
    std::array<reply, 2> replies;
    std::atomic<bool> begun{false};
    {
        const few_descriptors none;
        std::thread other([&] { static_cast<void>(redis->execute({"HOLD"})); });
        executes = eventually([&] { return server.holding() == 2; });
        std::thread renewals([&] {
            begun = true;
            replies = pipeline(*redis, {"GET", "a"}, {"GET", "b"});
        });
        eventually([&] { return begun.load(); });
        ::poll(nullptr, 0, 50);  // by now it holds, as a rule
        child_ends = in_child([&] {
            redis.reset();
            return true;
        });
        server.let_go();
        renewals.join();
        other.join();
    }
    first.join();
    REQUIRE(holds);
    REQUIRE(executes);
    CHECK(child_ends);
    CHECK(replies[0].is_status("OK"));
    CHECK(replies[1].is_status("OK"));
}

// The n-th call of operator new fails, in a pipeline.
TEST_CASE("a pipeline without memory does not leave its socket lent for ever") {
    const redis_server server;
    hiredis_connection redis(server.uri() + "?connect_timeout=20s&command_timeout=20s");
    std::array<distlock::reply, 2> replies;
    int failures = 0;
    bool failed = true;
    for (long n = 1; failed && n < 100; ++n) {
        INFO("allocation " << n);
        redis.pipeline(std::array<distlock::command, 1>{distlock::command({"PING"})},
                       std::span(replies).first(1));
        // Than what there is memory for, which grows to twice what is needed; and below
        // what a reply may have.
        const std::string larger(std::min(std::size_t{500} << 2 * n, std::size_t{60'000}), 'x');
        const std::array<distlock::command, 2> commands{distlock::command{"ECHO", larger},
                                                        distlock::command{"CLIENT", "ID"}};
        fail_allocation(n);
        try {
            redis.pipeline(commands, replies);
        } catch (const std::bad_alloc&) {}
        failed = allocation_failed();
        fail_allocation(0);
        failures += failed;
        redis.pipeline(commands, replies);
        const auto reserved = replies[1].number();
        CHECK(redis.execute({"CLIENT", "ID"}).number() != reserved);
        redis.pipeline(commands, replies);
        CHECK(replies[1].is_integer(reserved));
    }
    CHECK(failures > 1);
    CHECK_FALSE(failed);
}

// What was posted was forgotten when there was no memory to expect its answer, and its socket closed; the
// release that followed needed memory for a new one.
TEST_CASE("a post without memory says whether it was sent, and does not cost its socket") {
    const redis_server server;
    int failures = 0;
    bool failed = true;
    for (long n = 1; failed && n < 100; ++n) {
        INFO("allocation " << n);
        hiredis_connection redis(server.uri());
        const auto id = redis.execute({"CLIENT", "ID"}).number();
        const std::string name = "posted:" + std::to_string(n);
        const distlock::command count{{"INCR", name}, name};
        int sent = 0;
        fail_allocation(n);
        try {
            for (int i = 0; i < 40 && !allocation_failed(); ++i) sent += redis.post(count, nullptr) ? 1 : 0;
        } catch (const std::bad_alloc&) {}
        failed = allocation_failed();
        fail_allocation(0);
        failures += failed;
        CHECK(redis.execute({{"INCRBY", name, "0"}, name}).is_integer(sent));
        CHECK(redis.execute({"CLIENT", "ID"}).is_integer(id));
    }
    CHECK(failures > 1);
    CHECK_FALSE(failed);
}

// A node that imports a slot executes what comes behind ASKING, whosever command it is.
TEST_CASE(
    "a socket on which ASKING was sent and its command was not, for lack of memory, is not used again") {
    std::atomic<bool> executed{false};
    fake_server node([&](fake_server::peer& p) {
        bool asking = false;
        while (const auto words = p.next_command()) {
            if (words->front() == "GET" && asking) executed = true;
            asking = words->front() == "ASKING";
            p.send("+OK\r\n");
        }
    });
    int failures = 0;
    bool failed = true;
    for (long n = 1; failed && n < 100; ++n) {
        INFO("allocation " << n);
        distlock::detail::node_pool pool(distlock::parse_uri(node.uri()), nullptr, {},
                                         distlock::detail::handshake::role::any);
        REQUIRE(pool.execute({"PING"}).is_status("OK"));
        const std::string large(5'000, 'x');  // than what the socket has room for
        const distlock::command moved{"SET", "orders", large};
        fail_allocation(n);
        try {
            static_cast<void>(pool.execute(moved, true));
        } catch (const std::bad_alloc&) {}
        failed = allocation_failed();
        fail_allocation(0);
        failures += failed;
        CHECK(pool.execute({"GET", "orders"}).is_status("OK"));
        CHECK_FALSE(executed);
    }
    CHECK(failures > 1);
    CHECK_FALSE(failed);
}

// The error was that this is no Redis or Valkey server.
TEST_CASE("a reply that there is no memory for is no answer, and says nothing against the server") {
    const redis_server server;
    hiredis_connection redis(server.uri());
    const std::string text(1000, 'x');
    int unread = 0;
    bool failed = true;
    for (long n = 1; failed && n < 100; ++n) {
        INFO("allocation " << n);
        REQUIRE(redis.execute({"PING"}).is_status("PONG"));
        const distlock::command question{"ECHO", text};
        distlock::reply answer;
        fail_allocation(n);
        try {
            answer = redis.execute(question);
        } catch (const std::bad_alloc&) {}
        failed = allocation_failed();
        fail_allocation(0);
        if (!answer.is(distlock::reply_kind::no_answer)) continue;
        CHECK(answer.cause() == errc::no_reply);
        ++unread;
    }
    CHECK(unread > 0);
    CHECK_FALSE(failed);
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

namespace {

// A program of its own, with what that has as static objects, destroyed by exit(): those of other tests have
// threads that a forked child could not join.
constexpr const char* server_of_program = "DISTLOCK_TEST_EXITS_WITH_A_LOCK_OF";
constexpr const char* from_a_thread = "DISTLOCK_TEST_EXITS_FROM_A_THREAD";

}  // namespace

TEST_CASE("(a program that exits while it holds a lock)", "[.exits]") {
    const char* const uri = std::getenv(server_of_program);
    if (uri == nullptr) return;
    static hiredis_connection redis(uri);
    static distlock::mutex m{redis, "orders", {.lease = 10s}};
    m.lock();
    const auto lost = m.lost();
    if (std::getenv(from_a_thread) != nullptr) std::thread([] { std::exit(7); }).join();
    std::exit(7);
}

TEST_CASE("a process that exits while it holds a lock ends at once, and its lock with it") {
    const redis_server server;
    for (const bool from_another_thread : {false, true}) {
        int status = 0;
        const auto took = time_of([&] {
            const pid_t child = ::fork();
            if (child == 0) {
                ::alarm(20);
                ::setenv(server_of_program, server.uri().c_str(), 1);
                if (from_another_thread) ::setenv(from_a_thread, "1", 1);
                ::execl("/proc/self/exe", "exits", "[.exits]", static_cast<char*>(nullptr));
                ::_exit(1);
            }
            REQUIRE(::waitpid(child, &status, 0) == child);
        });
        CHECK(WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == 7);
        CHECK(took <= 2 * 200ms + timing_tolerance);
        CHECK(server.command({"EXISTS", "orders"}) == "0");
    }
}

// It said "no memory".
TEST_CASE("without descriptors the error says so, and with them the Sentinels are asked again") {
    const redis_server server(distlock::testing::redis_server_options{.tcp = true});
    const fake_sentinel one(server.port(), 1);
    CHECK(in_child([&] {
        distlock::sentinel_connection c(sentinel_uri_of({one.port()}));
        const distlock::command ping{distlock::argument("PING")};
        bool good = true;
        // None at all; none but for the thread that waits; none but for what wakes those that ask, too.
        for (rlim_t left = 0; left < 3; ++left) {
            const few_descriptors few(left);
            const std::string said{c.execute(ping).text()};
            const bool told = said.find("Too many open files") != std::string::npos &&
                              said.starts_with("redis+sentinel://127.0.0.1:");
            if (!told) std::fprintf(stderr, "with %d left: %s\n", static_cast<int>(left), said.c_str());
            good = good && told;
        }
        return good && eventually([&] { return c.execute(ping).is_status("PONG"); });
    }));
}

TEST_CASE("without descriptors there is no subscription, or none that is in force; with them there is") {
    const redis_server server;
    hiredis_connection redis(server.uri());
    {
        const few_descriptors none;
        CHECK_THROWS_AS(redis.subscribe("news"), std::system_error);
    }
    std::optional<few_descriptors> one(std::in_place, 1U);
    const auto news = redis.subscribe("news");
    distlock::listener mine(news, "");
    CHECK(mine.wait(clock::now() + 50ms, {}) == distlock::listener::woken::by_time);
    one.reset();
    CHECK(mine.wait(clock::now() + 20s, {}) == distlock::listener::woken::by_confirmation);
}

}  // namespace resource_exhaustion_tests
