// Host names: a name server that does not answer, and a name that leads to another server after a fail-over.
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <time.h>
#include <vector>

#include "support/catch.hpp"
#include "support/deaf_listener.hpp"
#include "support/fake_cluster.hpp"
#include "support/fake_sentinel.hpp"
#include "support/fake_server.hpp"
#include "support/hiredis_test.hpp"
#include "support/in_child.hpp"
#include "support/no_threads.hpp"
#include "support/sleepers.hpp"
#include "support/stoppable.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace host_names_tests {

using namespace hiredis_test;

namespace {

// Whoever looks up a name that begins so waits until a test says that it is enough.
constexpr std::string_view slow_name = "slow.";
std::atomic<bool> names_are_slow{true};
std::atomic<int> looked_up{0};

// Of the thread that looks up a name that begins so it is noted whether it would handle a
// signal of the program.
constexpr std::string_view watched_name = "watched.";
std::atomic<int> looked_up_in_quiet{0};
// The same of a thread that is to connect to such a name: it finds out first that it is no address.
std::atomic<int> connected{0};
std::atomic<int> connected_in_quiet{0};

/// Returns: whether the calling thread would handle no signal of the program.
bool is_quiet() {
    sigset_t mask;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    return sigismember(&mask, SIGTERM) == 1 && sigismember(&mask, SIGUSR1) == 1;
}

/// A node of a Cluster that has the low slots; a watched name has the high ones.
std::string beside_a_watched_node(const fake_cluster& of, std::size_t, const fake_cluster::words& said) {
    if (said[0] != "CLUSTER") return "$-1\r\n";
    const auto map = of.slots({0, 0});
    return map.substr(0, map.rfind("$9\r\n127.0.0.1")) + "$15\r\nwatched.example\r\n:1\r\n";
}
constexpr std::string_view low = "hello";  // slot 866
constexpr std::string_view high = "foo";   // slot 12182

// The name of whatever port of this machine a test says.
constexpr std::string_view moving_name = "moving.";
std::atomic<int> moved_to{0};

// Another name of that port, which is not known where that is 0: the nth look-up takes until a test says that
// n may end. One of which `late_gone` tells has left its answer behind.
constexpr std::string_view late_name = "late.";
std::atomic<int> late_begun{0};
std::atomic<int> late_allowed{0};
std::atomic<int> late_gone{0};
struct leaving_thread {
    leaving_thread() = default;
    leaving_thread(const leaving_thread&) = delete;
    leaving_thread& operator=(const leaving_thread&) = delete;
    ~leaving_thread() { ++late_gone; }
};

/// Look-ups of late names are counted from here on; all of them have ended.
void count_late_names() {
    late_begun = 0;
    late_allowed = 0;
    late_gone = 0;
}
void let_late_names_end() {
    late_allowed = 1000;
    CHECK(eventually([] { return late_gone == late_begun; }));
}

/// Effects: a command to a late name is given up; only then the name server says what it knows now.
void give_up_the_first_late_name(hiredis_connection& redis) {
    command hasty{"GET", "a"};
    hasty.until(clock::now() + 50ms);
    CHECK(redis.execute(hasty).is(reply_kind::not_sent));
    late_allowed = 1;
    REQUIRE(eventually([] { return late_gone == 1; }));
}

// So much later than the system's is the clock of leases in this program.
std::atomic<std::chrono::seconds> moved_on{0s};

// The name of two ports of this machine.
constexpr std::string_view double_name = "two.";
std::atomic<int> first_of_two{0};
std::atomic<int> second_of_two{0};

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
    if (host != nullptr && std::string_view(host).starts_with(watched_name)) {
        if (numeric) ++connected;
        if (is_quiet()) ++(numeric ? connected_in_quiet : looked_up_in_quiet);
        return numeric ? EAI_NONAME : EAI_AGAIN;
    }
    // As on a host that has no other address of IPv4 than 127.0.0.1, which is not considered:
    // https://man7.org/linux/man-pages/man3/getaddrinfo.3.html
    const bool configured = hints != nullptr && (hints->ai_flags & AI_ADDRCONFIG) != 0;
    if (host != nullptr && std::string_view(host) == "localhost" && configured) return EAI_AGAIN;
    if (host != nullptr && std::string_view(host).starts_with(moving_name) && !numeric)
        return real("127.0.0.1", std::to_string(moved_to).c_str(), hints, found);
    if (host != nullptr && std::string_view(host).starts_with(late_name) && !numeric) {
        static thread_local const leaving_thread mine;
        const int which = ++late_begun;
        eventually([&] { return late_allowed >= which; });
        if (moved_to == 0) return EAI_AGAIN;
        return real("127.0.0.1", std::to_string(moved_to).c_str(), hints, found);
    }
    if (host != nullptr && std::string_view(host).starts_with(double_name) && !numeric) {
        addrinfo* more = nullptr;
        const bool both = real("127.0.0.1", std::to_string(first_of_two).c_str(), hints, found) == 0 &&
                          real("127.0.0.1", std::to_string(second_of_two).c_str(), hints, &more) == 0;
        if (!both) return EAI_AGAIN;
        (*found)->ai_next = more;
        return 0;
    }
    return real(host, service, hints, found);
}

extern "C" int clock_gettime(clockid_t which, timespec* shown) noexcept {
    using function = int (*)(clockid_t, timespec*);
    static const auto real = reinterpret_cast<function>(::dlsym(RTLD_NEXT, "clock_gettime"));
    const int failed = real(which, shown);
    if (which == CLOCK_BOOTTIME) shown->tv_sec += moved_on.load().count();
    return failed;
}

TEST_CASE("a name server that does not answer keeps nobody beyond its deadline, and is asked once") {
    {
        hiredis_connection redis("redis://slow.example:6379?connect_timeout=100ms&command_timeout=100ms");
        distlock::mutex m{redis, "orders", {.patience = 0ms}};
        for (int i = 0; i < 3; ++i) {
            std::error_code ec;
            bool got = true;
            CHECK(time_of([&] { got = m.try_lock_for(50ms, ec); }) <= 50ms + 100ms + timing_tolerance);
            CHECK_FALSE(got);
            CHECK(ec == errc::unreachable);
        }
    }
    CHECK(looked_up == 1);
    names_are_slow = false;
}

TEST_CASE("localhost is found on a host that has no address of IPv4 but 127.0.0.1") {
    const fake_server server(scripts::always("+OK\r\n"));
    hiredis_connection redis("redis://localhost:" + std::to_string(server.port()));
    CHECK(redis.execute({"GET", "a"}).answered());
}

TEST_CASE("a slow name server's answer is heard when it comes") {
    names_are_slow = true;
    hiredis_connection redis("redis://slow.example:6379?connect_timeout=20s");
    const int before = looked_up;
    distlock::reply answer;
    clock::time_point ended;
    sleeper caller([&] {
        answer = redis.execute({"PING"});
        ended = clock::now();
    });
    const bool looks_up = eventually([&] { return looked_up > before; });
    CHECK(caller.sleeps());
    const auto said = clock::now();
    names_are_slow = false;
    caller.join();
    CHECK(looks_up);
    CHECK(answer.cause() == errc::unreachable);
    CHECK(ended - said <= timing_tolerance);
}

TEST_CASE("a name server that does not answer keeps no waiter that is told to stop") {
    names_are_slow = true;
    hiredis_connection redis("redis://slow.example:6379?connect_timeout=20s");
    const auto news = redis.subscribe("news");
    const int before = looked_up;
    std::stop_source stop;
    clock::time_point ended;
    std::thread waiter([&] {
        distlock::listener mine(news, "");
        mine.wait(clock::now() + 20s, stop.get_token());
        ended = clock::now();
    });
    const bool looks_up = eventually([&] { return looked_up > before; });
    const auto asked = clock::now();
    stop.request_stop();
    waiter.join();
    names_are_slow = false;
    CHECK(looks_up);
    CHECK(ended - asked <= timing_tolerance / 3);
}

TEST_CASE("a name server that does not answer keeps no lock() that is told to stop") {
    names_are_slow = true;
    hiredis_connection redis("redis://slow.example:6379?connect_timeout=20s");
    distlock::mutex m{redis, "orders"};
    const int before = looked_up;
    {
        stoppable call(m);
        CHECK(eventually([&] { return looked_up > before; }));
        CHECK(call.sleeps());
        call.stop();
    }
    names_are_slow = false;
}

// It was a plain thread: a handler of the program ran there, or sigwait() missed the signal.
TEST_CASE("no signal of the program is handled on the thread that looks up a name") {
    hiredis_connection redis("redis://watched.example:6379?connect_timeout=20s");
    CHECK(redis.execute({"PING"}).cause() == errc::unreachable);
    CHECK(looked_up_in_quiet == 1);
}

TEST_CASE("no signal of the program is handled on the threads that ask the Sentinels") {
    connected = connected_in_quiet = 0;
    distlock::sentinel_connection redis("redis+sentinel://watched.example:1,watched.too:1/m");
    CHECK(redis.execute({"PING"}).is(reply_kind::not_sent));
    CHECK(connected >= 2);
    CHECK(connected_in_quiet == connected);
}

TEST_CASE("no signal of the program is handled on the threads that send a pipeline to other nodes") {
    connected = connected_in_quiet = 0;
    const fake_cluster all(1, beside_a_watched_node);
    distlock::cluster_connection redis{all.uri()};
    const std::vector<command> both{command{"GET", low}, command{"GET", high}};
    std::vector<distlock::reply> replies(2);
    redis.pipeline(both, replies);
    CHECK(replies[0].is(reply_kind::nil));
    CHECK(replies[1].is(reply_kind::not_sent));
    CHECK(connected > 0);
    CHECK(connected_in_quiet == connected);
}

TEST_CASE("no signal of the program is handled on the threads that open sockets for messages") {
    connected = connected_in_quiet = 0;
    const fake_cluster all(1, beside_a_watched_node);
    distlock::cluster_connection redis{all.uri()};
    static_cast<void>(redis.execute(command{"GET", low}));
    distlock::listener mine(redis.subscribe(high), "");
    CHECK(eventually([&] {
        mine.wait(clock::now() + 20ms, {});
        return connected > 0;
    }));
    CHECK(connected_in_quiet == connected);
}

TEST_CASE("a name that leads elsewhere after a fail-over is looked up again, and followed") {
    redis_server old(redis_server_options{.tcp = true});
    const redis_server fresh(redis_server_options{.tcp = true});
    moved_to = old.port();
    hiredis_connection redis("redis://moving.example:1?command_timeout=5s");
    distlock::mutex m{redis, "orders", {.patience = 10s, .release = distlock::confirmed}};
    m.lock();
    CHECK(old.command({"EXISTS", "orders"}) == "1");
    CHECK(m.unlock() == distlock::release_outcome::released);
    const bool is_replica = GENERATE(true, false);
    moved_to = fresh.port();
    if (is_replica) {
        old.command({"REPLICAOF", "127.0.0.1", std::to_string(fresh.port())});
    } else {
        old.kill();
    }
    m.lock();
    CHECK(fresh.command({"EXISTS", "orders"}) == "1");
    CHECK(m.unlock() == distlock::release_outcome::released);
}

// Each call began a look-up, gave up before it ended, and dropped what the last one had found.
TEST_CASE("the next caller uses a slow name server's answer for which nobody waited any more, once") {
    const fake_server server([](fake_server::peer& p) {
        if (p.next_command()) p.send("+OK\r\n");
    });
    moved_to = server.port();
    count_late_names();
    hiredis_connection redis("redis://late.example:1?connect_timeout=100ms&command_timeout=20s");
    const distlock::command ask{"GET", "a"};
    CHECK(redis.execute(ask).cause() == errc::unreachable);
    late_allowed = 1;
    REQUIRE(eventually([] { return late_gone == 1; }));
    CHECK(redis.execute(ask).is_status("OK"));
    CHECK(late_begun == 1);
    CHECK(eventually([&] { return redis.execute(ask).cause() == errc::unreachable; }));
    CHECK(late_begun == 2);
    let_late_names_end();
}

// Each question began a look-up of its own: such Sentinels were never reached.
TEST_CASE("the next question to a Sentinel uses a slow name server's answer to the last one") {
    const redis_server master(redis_server_options{.tcp = true});
    const fake_sentinel sentinel(master.port(), 1);
    moved_to = sentinel.port();
    count_late_names();
    distlock::sentinel_connection redis(
        "redis+sentinel://late.example:1/m?connect_timeout=100ms&command_timeout=100ms");
    CHECK(redis.execute({"PING"}).is(reply_kind::not_sent));
    late_allowed = 1;
    REQUIRE(eventually([] { return late_gone == 1; }));
    CHECK(eventually([&] { return redis.execute({"PING"}).is_status("PONG"); }));
    CHECK(late_begun == 1);
    let_late_names_end();
}

TEST_CASE("a slow name server's answer for which nobody waited any more is used for a minute") {
    const fake_server server(scripts::always("+OK\r\n"));
    moved_to = server.port();
    count_late_names();
    hiredis_connection redis("redis://late.example:1" + patient);
    give_up_the_first_late_name(redis);
    moved_on = 55s;
    command once_more{"GET", "a"};
    once_more.until(clock::now() + 2s);  // where it is looked up again, that takes too long
    CHECK(redis.execute(once_more).is_status("OK"));
    CHECK(late_begun == 1);
    let_late_names_end();
    moved_on = 0s;
}

TEST_CASE("a slow name server's answer for which nobody waited any more is not used a minute later") {
    const fake_server old(scripts::always("+old\r\n"));
    const fake_server next(scripts::always("+next\r\n"));
    moved_to = old.port();
    count_late_names();
    hiredis_connection redis("redis://late.example:1" + patient);
    give_up_the_first_late_name(redis);
    moved_on = 61s;
    moved_to = next.port();
    late_allowed = 2;
    CHECK(redis.execute({"GET", "a"}).is_status("next"));
    CHECK(late_begun == 2);
    CHECK(old.accepted() == 0);
    let_late_names_end();
    moved_on = 0s;
}

TEST_CASE("a look-up that failed when nobody waited for it any more fails no later call") {
    const fake_server server(scripts::always("+OK\r\n"));
    moved_to = 0;
    count_late_names();
    hiredis_connection redis("redis://late.example:1" + patient);
    give_up_the_first_late_name(redis);
    moved_to = server.port();
    late_allowed = 2;
    CHECK(redis.execute({"GET", "a"}).is_status("OK"));
    CHECK(late_begun == 2);
    let_late_names_end();
}

TEST_CASE("an address that swallows what is sent to it leaves the next one of its name the time to answer") {
    const deaf_listener deaf;
    const fake_server server([](fake_server::peer& p) {
        while (const auto asked = p.next_command()) {
            if (asked->at(0) == "SELECT" && !p.nap(20ms)) return;
            if (!p.send("+OK\r\n")) return;
        }
    });
    first_of_two = deaf.port();
    second_of_two = server.port();
    hiredis_connection redis("redis://two.example:1/2?connect_timeout=400ms&command_timeout=20s");
    CHECK(redis.execute({"GET", "a"}).is_status("OK"));
}

TEST_CASE("without a thread that looks a name up the error says so") {
    CHECK(in_child([]() noexcept {
        if (!let_no_thread_start()) return false;
        hiredis_connection redis("redis://watched.example:6379");
        const auto answer = redis.execute({"PING"});
        return answer.cause() == errc::unreachable &&
               answer.text().find("no thread to look the name up") != std::string::npos;
    }));
}

}  // namespace host_names_tests
