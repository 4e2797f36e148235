// One mutex object, many threads: the waiting room inside a process, with scripted connections.
#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <signal.h>
#include <string>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <distlock/mutex.hpp>
#include <distlock/scoped_lock.hpp>
#include <distlock/testing/manual_clock.hpp>
#include <distlock/testing/scripted_connection.hpp>

#include "catch.hpp"
#include "support/slack.hpp"

using namespace std::chrono_literals;
using distlock::command;
using distlock::errc;
using distlock::release_outcome;
using distlock::reply;
using distlock::testing::manual_clock;

namespace {

const reply granted = reply::array({reply::integer(1), reply::string("")});

// A server of one key, enough for lock and unlock.
class one_key {
  public:
    reply execute(const command& cmd) {
        const std::lock_guard guard(lock_);
        const auto argv = cmd.argv();
        const bool set = argv[0] == "SET";
        const bool enter = argv[1] == enter_script.sha1() || argv[1] == enter_script.text();
        const std::string token(set ? argv[2] : argv[6]);
        if (manual_clock::now() >= expires_) key_.clear();
        if (set || enter) {
            if (!key_.empty() && key_ != token) return set ? reply::nil() : taken();
            key_ = token;
            expires_ = manual_clock::now() + 10s;
            return set ? reply::status("OK") : granted;
        }
        if (key_ != token) return reply::integer(key_.empty() ? 0 : -1);
        key_.clear();
        return reply::integer(1);
    }
    std::string owner() const {
        const std::lock_guard guard(lock_);
        return key_;
    }

  private:
    static constexpr const distlock::script& enter_script = distlock::detail::handoff_enter;
    static reply taken() { return reply::array({reply::integer(0), reply::integer(1)}); }

    mutable std::mutex lock_;
    std::string key_;
    manual_clock::time_point expires_{};
};

using shared = distlock::mutex<one_key, distlock::handoff, manual_clock>;

// Runs f on a thread of its own, to the end.
template <class F>
void elsewhere(F f) {
    std::jthread(std::move(f)).join();
}

void let_the_lease_run_out() { manual_clock::advance(10s); }

}  // namespace

TEST_CASE("however many threads still owe an unlock, none of them frees the present lock") {
    manual_clock::reset();
    one_key server;
    shared m{server, "orders", {.lease = 10s, .renew = false}};
    constexpr int owing = 100;
    std::latch all_have_had_it{owing};
    std::latch now_unlock{1};
    std::vector<std::jthread> threads;
    std::mutex one_at_a_time;
    std::atomic<int> expired{0};
    for (int i = 0; i < owing; ++i) {
        threads.emplace_back([&] {
            {
                const std::lock_guard turn(one_at_a_time);
                m.lock();
                let_the_lease_run_out();
            }
            all_have_had_it.count_down();
            now_unlock.wait();
            if (m.unlock() == release_outcome::expired)
                ++expired;  // Catch's macros are for one thread at a time
        });
    }
    all_have_had_it.wait();
    m.lock();
    const auto present = server.owner();
    now_unlock.count_down();
    threads.clear();
    CHECK(expired == owing);
    CHECK(server.owner() == present);
    CHECK(m.owns_lock());
    CHECK(m.unlock() == release_outcome::released);
}

TEST_CASE("a lock handed to another thread and lost there is not taken for the one that followed") {
    manual_clock::reset();
    one_key server;
    shared m{server, "orders", {.lease = 10s, .renew = false}};
    std::unique_lock<shared> handed_over{m};
    let_the_lease_run_out();
    std::latch taken{1};
    std::latch done{1};
    auto outcome = release_outcome::not_held;
    std::jthread next([&] {
        m.lock();
        taken.count_down();
        done.wait();
        outcome = m.unlock();
    });
    taken.wait();
    const auto present = server.owner();
    elsewhere([&, mine = std::move(handed_over)]() mutable { mine.unlock(); });
    CHECK(server.owner() == present);
    done.count_down();
    next.join();
    CHECK(outcome == release_outcome::released);
}

TEST_CASE("a thread that waits while another asks sees the end of the lease that one got") {
    distlock::testing::scripted_connection redis;
    distlock::mutex m{redis, "orders", {.lease = 100ms, .renew = false}};
    std::latch waiting{1};
    std::jthread second;
    redis.then(
        [&] {  // while the first asks, the second comes and waits in the process
            second = std::jthread([&] {
                waiting.count_down();
                CHECK(m.try_lock_for(20s));  // the first never unlocks
            });
            waiting.wait();
        },
        reply::status("OK"));
    redis.then(reply::status("OK"));
    redis.then(reply::integer(1));
    const auto start = distlock::clock::now();
    m.lock();
    second.join();
    CHECK(distlock::clock::now() - start < 100ms + slack);
}

TEST_CASE("a thread that finds another of its process busy with a silent server hears of the server") {
    distlock::testing::scripted_connection redis;
    distlock::mutex m{redis, "orders", {.patience = 20s}};
    std::latch asked{1};
    std::latch checked{1};
    redis.then(reply::not_sent(errc::unreachable, "gone"));
    redis.then(
        [&] {
            asked.count_down();
            checked.wait();
        },
        granted);
    std::jthread first([&] { m.lock(); });
    asked.wait();
    std::error_code ec;
    CHECK_FALSE(m.try_lock(ec));
    CHECK(ec == errc::unreachable);
    CHECK_FALSE(m.try_lock_for(1ms, ec));
    CHECK(ec == errc::unreachable);
    checked.count_down();
    first.join();
    redis.then(reply::integer(1));
    CHECK(m.unlock() == release_outcome::released);
}

TEST_CASE("a child destroys a mutex on which threads of its parent wait") {
    one_key server;
    manual_clock::reset();
    std::optional<shared> m(std::in_place, server, "orders",
                            distlock::lock_options{.lease = 10s, .renew = false});
    m->lock();
    std::latch started{1};
    bool had = false;
    std::jthread waiter([&] {
        started.count_down();
        had = m->try_lock_for(1h);
        m->unlock();
    });
    started.wait();
    const pid_t child = ::fork();
    if (child == 0) {
        std::error_code ec;
        const bool refused = !m->try_lock(ec) && ec == errc::wrong_process &&
                             m->unlock() == release_outcome::wrong_process && !m->owns_lock();
        m.reset();
        ::_exit(refused ? 0 : 1);
    }
    int status = -1;
    const auto deadline = distlock::clock::now() + 10s;
    while (::waitpid(child, &status, WNOHANG) == 0 && distlock::clock::now() < deadline)
        std::this_thread::yield();
    CHECK(status == 0);
    if (status == -1) ::kill(child, SIGKILL);
    CHECK(m->unlock() == release_outcome::released);
    waiter.join();
    CHECK(had);
}

TEST_CASE("a guard that was moved from may outlive its mutex") {
    manual_clock::reset();
    one_key server;
    auto m = std::make_unique<shared>(server, "orders", distlock::lock_options{.lease = 10s, .renew = false});
    auto guard = std::make_unique<distlock::scoped_lock<shared>>(*m);
    { const auto taken_over = std::move(*guard); }
    m.reset();
    CHECK_FALSE(guard->owns_lock());
    CHECK(guard->remaining() == 0ns);
    CHECK(guard->valid_until() == manual_clock::time_point{});
}

TEST_CASE("a guard whose lease ran out does not swallow another thread's unlock") {
    manual_clock::reset();
    one_key server;
    shared m{server, "orders", {.lease = 10s, .renew = false}};
    {
        const distlock::scoped_lock stale{m};
        let_the_lease_run_out();
        elsewhere([&] { m.lock(); });
        elsewhere([&] { CHECK(m.unlock() == release_outcome::released); });  // handed over to a third thread
        CHECK(server.owner().empty());
    }
    CHECK(m.try_lock());
    m.unlock();
}

// It saw the next thread's acquisition, and took it for its own: two threads were in at once.
TEST_CASE(
    "a thread whose acquisition was lost owns nothing when another thread of its process has the lock") {
    manual_clock::reset();
    one_key server;
    shared m{server, "orders", {.lease = 10s, .renew = false}};
    m.lock();
    CHECK(m.owns_lock());
    let_the_lease_run_out();
    elsewhere([&] {
        m.lock();
        CHECK(m.owns_lock());
    });
    CHECK_FALSE(m.owns_lock());
    CHECK(m.valid_until() == manual_clock::time_point{});
    CHECK(m.remaining() == 0ns);
    CHECK(m.lost().stop_requested());
    elsewhere([&] { CHECK(m.owns_lock()); });  // who has lost nothing asks about the lock
    CHECK(m.unlock() == release_outcome::expired);
    CHECK(m.owns_lock());
    elsewhere([&] { CHECK(m.unlock() == release_outcome::released); });
}

TEST_CASE("threads that queue for a lock lose patience with a silent server together") {
    const auto gone = [](const command&) { return reply::not_sent(errc::unreachable, "gone"); };
    distlock::mutex m{gone, "orders", {.patience = 200ms}};
    const auto start = distlock::clock::now();
    std::atomic<int> unreachable{0};
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 8; ++i) {
            threads.emplace_back([&] {
                std::error_code ec;
                if (!m.lock(ec) && ec == errc::unreachable) ++unreachable;
            });
        }
    }
    CHECK(unreachable == 8);
    CHECK(distlock::clock::now() - start < 2 * 200ms + slack);  // a late comer may have a patience of its own
}

// It was told that its call was cancelled, which nobody had asked for.
TEST_CASE(
    "a thread whose time is up while another one's wait is cancelled hears that somebody else has the lock") {
    struct one_in_line {
        reply execute(const command& cmd) {
            const bool leaves = cmd.argv()[1] == distlock::detail::handoff_leave.sha1();
            if (!leaves) return reply::array({reply::integer(0), reply::integer(20'000)});
            leaving.count_down();
            told.wait();
            return reply::integer(0);
        }
        reply wait(const command&, distlock::clock::time_point, const std::stop_token& stop) {
            waiting.count_down();
            while (!stop.stop_requested()) std::this_thread::yield();
            return reply::no_answer(errc::cancelled, "stopped");
        }
        std::latch waiting{1};
        std::latch leaving{1};
        std::latch told{1};
    };
    one_in_line server;
    distlock::mutex m{server, "orders"};
    std::error_code ec;
    std::error_code cancelled;
    {
        std::jthread first([&](const std::stop_token& stop) { m.lock(stop, cancelled); });
        server.waiting.wait();
        first.request_stop();
        server.leaving.wait();
        CHECK_FALSE(m.try_lock_for(1ms, ec));
        server.told.count_down();
    }
    CHECK_FALSE(ec);
    CHECK(cancelled == errc::cancelled);
}

TEST_CASE("guards order locks by what their connections say of their server, text or view") {
    struct named_by_value : one_key {
        std::string where;
        std::string identity() const { return where; }
    };
    manual_clock::reset();
    named_by_value one;
    named_by_value two;
    one.where = std::string(40, 'b');
    two.where = std::string(40, 'a');
    distlock::mutex<named_by_value, distlock::handoff, manual_clock> a{one, "orders"};
    distlock::mutex<named_by_value, distlock::handoff, manual_clock> b{two, "orders"};
    CHECK(distlock::scoped_lock{a, b}.owns_lock());
    two.where = one.where;
    CHECK_THROWS_AS((distlock::scoped_lock{a, b}), distlock::error);
}
