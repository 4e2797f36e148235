// A process that holds renewed locks forks, at any moment: the child has none of them, says so, and says
// nothing to the server; the parent holds and renews as before.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <random>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>
#include <distlock/wire/plain.hpp>

#include "fault/monitor.hpp"
#include "fault/row.hpp"
#include "support/catch.hpp"
#include "support/in_child.hpp"
#include "support/lab_figures.hpp"
#include "support/lease_observers.hpp"
#include "support/minimal_connection.hpp"
#include "support/sanitizers.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace forked_child_tests {

using namespace std::chrono_literals;
using clk = distlock::clock;
using distlock::command;
using distlock::errc;
using distlock::hiredis_connection;
using distlock::lock_options;
using distlock::release_outcome;
using distlock::reply;
using distlock::testing::redis_server;

namespace {

constexpr std::chrono::milliseconds lease = 10 * timing_tolerance;

// ThreadSanitizer lets the child of a process with threads start none.
constexpr bool may_renew = !instrumented;

// All kinds of locks, held.
struct household {
    explicit household(const std::string& uri)
        : redis(std::make_unique<hiredis_connection>(uri)),
          client(new minimal_connection(uri)),
          single(std::make_unique<lock_type>(*redis, "single",
                                             lock_options{.lease = lease, .release = distlock::confirmed})),
          rich(std::make_unique<lock_type>(
              *redis, "rich",
              lock_options{
                  .lease = lease, .fencing = true, .owner_info = "parent", .release = distlock::confirmed},
              watching)),
          guarded(std::make_unique<lock_type>(*redis, "guarded", lock_options{.lease = lease})),
          users(std::make_unique<client_lock_type>(*client, "users", lock_options{.lease = lease})) {
        single->lock();
        rich->lock();
        guard = std::make_unique<distlock::scoped_lock<lock_type>>(*guarded);
        users->lock();
        for (int i = 0; i < 20; ++i) {
            const std::string name = "busy:" + std::to_string(i);
            busy.push_back(std::make_unique<lock_type>(*redis, name, lock_options{.lease = 100ms}));
            busy.back()->lock();
        }
        lost = {single->lost(), rich->lost(), guard->lost(), users->lost()};
    }

    using lock_type = distlock::mutex<hiredis_connection>;
    using client_lock_type = distlock::mutex<minimal_connection>;

    std::shared_ptr<counting_observer> watching = std::make_shared<counting_observer>();
    std::unique_ptr<hiredis_connection> redis;
    std::unique_ptr<minimal_connection> client;
    std::unique_ptr<lock_type> single;
    std::unique_ptr<lock_type> rich;
    std::unique_ptr<lock_type> guarded;
    std::unique_ptr<client_lock_type> users;
    std::vector<std::unique_ptr<lock_type>> busy;  // keep the connection talking
    std::unique_ptr<distlock::scoped_lock<lock_type>> guard;
    std::vector<std::stop_token> lost;
};

// In the child. Returns: whether every call says that there is nothing here.
class child {
  public:
    bool finds_nothing(household& all) {
        finds_no_lock(*all.single);
        finds_no_lock(*all.rich);
        finds_no_lock(*all.guarded);
        finds_no_lock(*all.users);
        must(!all.guard->owns_lock(), "guard.owns_lock()");
        must(all.guard->remaining() == 0s, "guard.remaining()");
        must(all.guard->valid_until() == clk::time_point{}, "guard.valid_until()");
        must(all.guard->lost().stop_requested(), "guard.lost()");
        finds_no_connection(*all.redis);
        all.guard.reset();
        all.single.reset();
        all.rich.reset();
        all.guarded.reset();
        all.users.reset();
        all.busy.clear();
        all.redis.reset();
        all.client.reset();
        return good_;
    }

  private:
    template <class Lock>
    void finds_no_lock(Lock& m) {
        std::error_code ec;
        must(!m.owns_lock(), "owns_lock()");
        must(m.valid_until() == clk::time_point{}, "valid_until()");
        must(m.remaining() == 0s, "remaining()");
        must(m.residual() == 0s, "residual()");
        must(m.fencing_token() == 0, "fencing_token()");
        must(m.lost().stop_requested(), "lost()");
        must(m.unlock() == release_outcome::wrong_process, "unlock()");
        must(!m.lock(ec) && ec == errc::wrong_process, "lock()");
        must(!m.try_lock(ec) && ec == errc::wrong_process, "try_lock()");
        must(!m.try_lock_for(1s, ec) && ec == errc::wrong_process, "try_lock_for()");
        must(!m.try_lock_until(clk::now() + 1s, ec) && ec == errc::wrong_process, "try_lock_until()");
        try {
            m.lock();
            must(false, "lock() that throws");
        } catch (const distlock::error& e) {
            must(e.code() == errc::wrong_process, "what lock() throws");
        }
    }

    void finds_no_connection(hiredis_connection& redis) {
        const command cmd{"SET", "child", "was here"};
        reply answer = reply::nil();
        std::error_code ec;
        must(redis.execute(cmd).cause() == errc::wrong_process, "execute()");
        try {
            redis.subscribe("news");
            must(false, "subscribe()");
        } catch (const distlock::error& e) {
            must(e.code() == errc::wrong_process, "what subscribe() throws");
        }
        must(!redis.post(cmd), "post()");
        redis.pipeline({&cmd, 1}, {&answer, 1});
        must(answer.cause() == errc::wrong_process, "pipeline()");
        distlock::inspect(redis, "single", ec);
        must(ec == errc::wrong_process, "inspect()");
        must(!distlock::force_release(redis, "single", ec) && ec == errc::wrong_process, "force_release()");
        household::lock_type another{redis, "another", {.lease = lease}};
        must(!another.lock(ec) && ec == errc::wrong_process, "lock() of a mutex of its own");
    }

    void must(bool held, const char* what) {
        if (!held) std::fprintf(stderr, "in the child: %s\n", what);
        good_ = good_ && held;
    }

    bool good_ = true;
};

}  // namespace

TEST_CASE("a child after fork() has none of its parent's locks and says nothing to the server") {
    redis_server server;
    household all{server.uri() + "?command_timeout=60ms"};
    const auto tokens = [&] { return server.command({"MGET", "single", "rich", "guarded", "users"}); };
    const std::string ours = tokens();
    const int count = injections(20);
    int wrong = 0;
    int shaken = 0;  // times that the parent did not hold all of them afterwards
    monitor watched{server};
    std::mt19937 random;
    for (int i = 0; i < count; ++i) {
        const auto moment = clk::now() + std::chrono::microseconds(random() % 100'000);
        while (clk::now() < moment) std::this_thread::yield();
        watched.mark("child begins");
        wrong += !in_child([&] { return child{}.finds_nothing(all); });
        watched.mark("child ended");
        const bool holds = all.single->owns_lock() && all.rich->owns_lock() && all.guard->owns_lock() &&
                           all.users->owns_lock() && all.rich->fencing_token() != 0 && tokens() == ours &&
                           std::none_of(all.lost.begin(), all.lost.end(),
                                        [](const std::stop_token& t) { return t.stop_requested(); });
        shaken += !holds;
    }
    const auto last_child = clk::now();
    // Validity counts from before the renewal was sent.
    const auto renewed = [&](const auto& m) { return m.valid_until() > last_child + lease; };
    CHECK(eventually([&] {
        return renewed(*all.single) && renewed(*all.rich) && renewed(*all.guard) && renewed(*all.users);
    }));
    const auto commands = watched.end();

    // While there was a child the parent renewed; whatever else was said came from the child.
    int foreign = 0;
    std::string from_child;
    int renewals = 0;
    bool child_lives = false;
    for (const auto& w : commands) {
        if (w[0] == "ECHO") child_lives = w[1] == "child begins";
        if (w[0] == "ECHO" || w[0] == "lua") continue;
        const bool renewal = monitor::runs(w, distlock::detail::plain_renew);
        renewals += renewal;
        if (!child_lives || renewal) continue;
        ++foreign;
        from_child += w[0] + (w.size() > 1 ? " " + w[1].substr(0, 60) : "") + "; ";
    }
    figure("forked children: %d; wrong: %d; commands they sent: %d; parent shaken: %d; its renewals: %d",
           count, wrong, foreign, shaken, renewals);
    show_row("F4", count, static_cast<std::size_t>(wrong + foreign + shaken), 0, 0);
    INFO(from_child);
    CHECK(wrong == 0);
    CHECK(foreign == 0);
    CHECK(shaken == 0);
    CHECK(renewals >= count);
    CHECK(all.watching->losses == 0);
    CHECK(all.single->unlock() == release_outcome::released);
    CHECK(all.rich->unlock() == release_outcome::released);
    CHECK(all.users->unlock() == release_outcome::released);
    all.guard.reset();
    CHECK(eventually([&] { return server.command({"EXISTS", "guarded"}) == "0"; }));  // posted
    CHECK(server.command({"EXISTS", "single", "rich", "guarded", "users", "child", "another"}) == "0");
}

TEST_CASE("a child after fork() locks and renews with connections and locks of its own") {
    redis_server server;
    household all{server.uri() + "?command_timeout=60ms"};
    CHECK(in_child([&] {
        hiredis_connection redis{server.uri()};
        std::error_code ec;
        household::lock_type theirs{redis, "single"};
        if (theirs.try_lock(ec) || ec) return false;
        household::lock_type mine{
            redis, "the child's", {.lease = lease, .renew = may_renew, .release = distlock::confirmed}};
        if (!mine.try_lock(ec)) return false;
        const auto first = mine.valid_until();
        if (may_renew && !eventually([&] { return mine.valid_until() > first; })) return false;
        return mine.unlock() == release_outcome::released;
    }));
    CHECK(all.single->owns_lock());
    CHECK(all.single->unlock() == release_outcome::released);
}

}  // namespace forked_child_tests
