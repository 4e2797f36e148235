// An acquisition from its grant to its end, over a server in memory and a clock that stands still.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <distlock/base/observer.hpp>
#include <distlock/engine/background_io.hpp>
#include <distlock/mutex.hpp>
#include <distlock/scoped_lock.hpp>
#include <distlock/testing/manual_clock.hpp>
#include <distlock/testing/scripted_connection.hpp>

#include "in_child.hpp"
#include "lab_figures.hpp"
#include "sanitizers.hpp"
#include "sleepers.hpp"
#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/lease_observers.hpp"
#include "support/locks_in_memory.hpp"
#include "support/no_threads.hpp"
#include "support/processor_time.hpp"
#include "support/tokens_in_doubt.hpp"
#include "timing_tolerance.hpp"
#include "waiting.hpp"

namespace acquisition_tests {

namespace {

using distlock::command;
using distlock::errc;
using distlock::lease_observer;
using distlock::lock_options;
using distlock::loss_reason;
using distlock::release_outcome;
using distlock::reply;
using distlock::validity_end;
using distlock::testing::manual_clock;
using namespace std::chrono_literals;
using real_clock = distlock::clock;
using words = std::vector<std::string>;

const reply no_answer = reply::no_answer(errc::no_reply, "the answer was lost");
const reply unreachable = reply::not_sent(errc::unreachable, "nobody listens");

/// One that takes many commands at once.
struct piped_locks : hosted_locks {
    void pipeline(std::span<const command> commands, std::span<reply> replies) {
        std::transform(commands.begin(), commands.end(), replies.begin(),
                       [&](const command& cmd) { return execute(cmd); });
    }
};

/// One that has a replica, which acknowledges what is written until a test puts another answer in that place.
struct replicated_locks : hosted_locks {
    void pipeline(std::span<const command> commands, std::span<reply> replies) {
        std::transform(commands.begin(), commands.end(), replies.begin(), [&](const command& cmd) {
            if (cmd.argv()[0] != "WAIT") return execute(cmd);
            const std::lock_guard guard(lock_);
            return said_;
        });
    }
    void answer_of_the_replica(reply said) {
        const std::lock_guard guard(lock_);
        said_ = std::move(said);
    }

  private:
    std::mutex lock_;
    reply said_ = reply::integer(1);
};

template <class Conn>
using lock_of = distlock::mutex<Conn, distlock::plain, manual_clock>;
using lock = lock_of<hosted_locks>;

/// Time for the threads of the library to do what they should not.
void a_while() {
    const auto until = std::chrono::steady_clock::now() + 20ms;
    while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
}

bool renewed(const locks_in_memory& server, int times = 1) {
    return eventually([&] { return server.count("renew") >= times; });
}

/// Effects: lets the first renewal succeed.
template <class M, class Conn>
bool renew_once(M& m, Conn& server) {
    const auto before = m.valid_until();
    const int renewals = server.count("renew");
    manual_clock::advance(10s);
    return renewed(server, renewals + 1) && eventually([&] { return m.valid_until() > before; });
}

/// Effects: locks `m`; another master takes over before the server answers.
void lock_while_the_master_changes(lock_of<following_locks>& m, following_locks& server) {
    gate answer;
    server.wait_at("take", answer);
    std::jthread taker([&] { m.lock(); });
    CHECK(eventually([&] { return answer.reached(); }));
    manual_clock::advance(1s);
    server.change_master();
    answer.open();
    taker.join();
}

struct setting {
    setting() { manual_clock::reset(); }
    hosted_locks server;
    std::shared_ptr<recording_observer> seen = std::make_shared<recording_observer>();
};

}  // namespace

// ---- renewal ---------------------------------------------------------------------------------------------

TEST_CASE("a lock is renewed at a third of its lease, by the same token, for as long as it is held") {
    setting s;
    lock m{s.server, "orders", {}, s.seen};
    m.lock();
    const auto token = s.server.owner();
    manual_clock::advance(8s);
    a_while();
    CHECK(s.server.count("renew") == 0);
    manual_clock::advance(2s);
    REQUIRE(renewed(s.server));
    CHECK(eventually([&] { return m.valid_until() == validity_end(manual_clock::now(), 30s); }));
    for (int i = 0; i < 20; ++i) REQUIRE(renew_once(m, s.server));
    CHECK(m.owns_lock());
    CHECK(s.server.owner() == token);
    for (const auto& one : s.server.sent()) CHECK(one.token == token);
    CHECK(m.unlock() == release_outcome::released);
    CHECK(s.seen->heard().empty());
}

TEST_CASE("a lock that is not to be renewed is not, and starts no thread") {
    setting s;
    std::jthread([] {}).join();  // a sanitizer has a thread of its own from the first on
    const auto threads = settled_thread_count();
    lock m{s.server, "orders", {.renew = false}};
    m.lock();
    CHECK(thread_count() == threads);
    manual_clock::advance(29s);
    a_while();
    CHECK(m.owns_lock());
    CHECK(s.server.count("renew") == 0);
    manual_clock::advance(1s);
    CHECK_FALSE(m.owns_lock());
    CHECK(m.unlock() == release_outcome::expired);
}

TEST_CASE("a thousand locks and unlocks leave nothing that is renewed") {
    setting s;
    lock m{s.server, "orders"};
    for (int i = 0; i < 1000; ++i) {
        m.lock();
        REQUIRE(m.unlock() == release_outcome::released);
    }
    for (int i = 0; i < 5; ++i) {
        manual_clock::advance(10s);
        a_while();
    }
    CHECK(s.server.count("renew") == 0);
    CHECK(s.server.owner().empty());
    m.lock();  // and the next one is renewed
    CHECK(renew_once(m, s.server));
}

TEST_CASE("an acquisition that follows another is renewed by its own token and its own time") {
    setting s;
    lock m{s.server, "orders"};
    m.lock();
    manual_clock::advance(5s);
    m.unlock();
    m.lock();
    const auto token = s.server.owner();
    const auto from = manual_clock::now();
    manual_clock::advance(5s);  // when the first would have been renewed
    a_while();
    CHECK(s.server.count("renew") == 0);
    CHECK(m.valid_until() == validity_end(from, 30s));
    manual_clock::advance(5s);
    REQUIRE(renewed(s.server));
    CHECK(s.server.sent().back().token == token);
}

TEST_CASE("locks that are held are renewed at once by another master, and their observers are told") {
    manual_clock::reset();
    following_locks server;
    const auto seen = std::make_shared<counting_observer>();
    lock_of<following_locks> held{server, "orders", {}, seen};
    lock_of<following_locks> free{server, "other", {}, seen};
    free.lock();
    free.unlock();
    held.lock();
    const auto before = held.valid_until();
    manual_clock::advance(1s);
    server.change_master();
    REQUIRE(renewed(server));
    CHECK(eventually([&] { return held.valid_until() == before + 1s; }));
    CHECK(eventually([&] { return seen->masters == 1; }));
    manual_clock::advance(9s);
    a_while();
    CHECK(server.count("renew") == 1);
    CHECK(seen->masters == 1);
    CHECK(seen->losses == 0);
}

TEST_CASE("an observer that is told of another master may unlock the lock; its owner is told so") {
    manual_clock::reset();
    struct unlocking final : lease_observer {
        void master_changed(const std::string&) override {
            end = held->unlock();
            done = true;
        }
        lock_of<following_locks>* held = nullptr;
        std::atomic<release_outcome> end{release_outcome::not_held};
        std::atomic<bool> done{false};
    };
    const auto seen = std::make_shared<unlocking>();
    following_locks server;
    lock_of<following_locks> held{server, "orders", {}, seen};
    seen->held = &held;
    held.lock();
    manual_clock::advance(1s);
    server.change_master();
    CHECK(eventually([&] { return seen->done.load(); }));
    CHECK(seen->end == release_outcome::released);
    CHECK(held.unlock() == release_outcome::expired);
}

// It is not looked at: its owner watches the clock.
TEST_CASE("a lock that is not renewed is neither renewed by another master nor told of one") {
    manual_clock::reset();
    following_locks server;
    const auto seen = std::make_shared<counting_observer>();
    lock_of<following_locks> held{server, "orders", {.renew = false}, seen};
    lock_while_the_master_changes(held, server);
    manual_clock::advance(1s);
    server.change_master();
    a_while();
    CHECK(server.count("renew") == 0);
    CHECK(seen->masters == 0);
}

TEST_CASE(
    "a lock whose longest hold is over before it would be renewed follows its master, too, and is renewed by "
    "another") {
    const bool renewed_before = GENERATE(false, true);
    manual_clock::reset();
    following_locks server;
    lock_of<following_locks> held{server, "orders", {.max_hold = renewed_before ? 35s : 20s}};
    held.lock();
    if (renewed_before) REQUIRE(renew_once(held, server));
    const int follows = server.follows;
    CHECK(eventually([&] { return server.follows >= follows + 2; }));
    const int renewals = server.count("renew");
    manual_clock::advance(1s);
    a_while();
    CHECK(server.count("renew") == renewals);
    server.change_master();
    CHECK(renewed(server, renewals + 1));
    const auto until = held.valid_until();
    manual_clock::advance(until - manual_clock::now());
    CHECK_FALSE(held.owns_lock());
    a_while();
    CHECK(server.count("renew") == renewals + 1);
}

TEST_CASE("a lock that was granted while another master took over is renewed there") {
    manual_clock::reset();
    following_locks server;
    const auto seen = std::make_shared<counting_observer>();
    lock_of<following_locks> m{server, "orders", {}, seen};
    lock_while_the_master_changes(m, server);
    CHECK(renewed(server));
    a_while();
    CHECK(seen->masters == 0);  // it may be that one that granted it
}

TEST_CASE("a lock that another master does not have is lost at once") {
    manual_clock::reset();
    following_locks server;
    const auto seen = std::make_shared<counting_observer>();
    lock_of<following_locks> held{server, "orders", {}, seen};
    held.lock();
    const auto lost = held.lost();
    manual_clock::advance(1s);
    server.delete_key();
    server.change_master();
    CHECK(eventually([&] { return lost.stop_requested(); }));
    CHECK(eventually([&] { return seen->losses == 1; }));
}

// It waited for as long as a command may take.
TEST_CASE("an unlock does not wait for a renewal on its way, and none is sent after it") {
    for (const bool refused : {false, true}) {
        gate hold;
        setting s;
        lock m{s.server, "orders"};
        m.lock();
        s.server.instead([&](const std::string& what) -> std::optional<reply> {
            if (what == "renew") hold.pass();
            if (what == "release" && refused) return unreachable;
            return {};
        });
        manual_clock::advance(10s);
        REQUIRE(eventually([&] { return hold.reached(); }));
        if (refused) {
            CHECK(m.unlock() == release_outcome::unreachable);
            CHECK(m.residual() > 30s);  // the renewal may come after all that is sent now
            CHECK(m.residual() < 31s);
            s.server.as_usual();
            hold.open();
            CHECK(eventually([&] {
                manual_clock::advance(10ms);
                return m.residual() == 0ns && s.server.owner().empty();
            }));
            continue;
        }
        CHECK(m.unlock() == release_outcome::released);
        CHECK(m.residual() == 0ns);
        CHECK(s.server.count("release") == 1);
        // The next acquisition is another: the answer to come says nothing of it.
        m.lock();
        const auto until = m.valid_until();
        s.server.give_to("somebody");
        hold.open();
        a_while();
        CHECK(m.valid_until() == until);
        CHECK(s.server.count("release") == 1);
        CHECK(s.server.count("renew") == 1);
    }
}

TEST_CASE(
    "a renewal that was applied before the unlock of its acquisition is followed by no second release") {
    gate hold;
    setting s;
    lock m{s.server, "orders"};
    m.lock();
    s.server.instead([&](const std::string& what) -> std::optional<reply> {
        if (what != "renew") return {};
        hold.pass();
        return reply::integer(1);  // its answer comes late
    });
    manual_clock::advance(10s);
    REQUIRE(eventually([&] { return hold.reached(); }));
    CHECK(m.unlock() == release_outcome::released);
    hold.open();
    a_while();
    CHECK(s.server.count("release") == 1);
}

TEST_CASE("one dropped connection does not lose a lock with most of its lease left") {
    std::atomic<int> failures{0};
    setting s;
    lock m{s.server, "orders", {}, s.seen};
    m.lock();
    const auto lost = m.lost();
    const auto until = m.valid_until();
    const auto token = s.server.owner();
    s.server.instead([&](const std::string& what) -> std::optional<reply> {
        if (what == "renew" && ++failures <= 3) return failures % 2 == 1 ? no_answer : unreachable;
        return {};
    });
    manual_clock::advance(10s);
    REQUIRE(s.seen->hears({"at risk: orders"}));
    CHECK(m.valid_until() == until);
    CHECK(m.owns_lock());
    CHECK(s.seen->risks().back() == until - manual_clock::now());
    while (failures <= 3) {
        manual_clock::advance(10ms);
        a_while();
    }
    CHECK(eventually([&] { return m.valid_until() > until; }));
    CHECK_FALSE(lost.stop_requested());
    CHECK(s.seen->heard() == words{"at risk: orders"});
    for (const auto& one : s.server.sent()) CHECK(one.token == token);
    CHECK(m.unlock() == release_outcome::released);
}

TEST_CASE("the lock is at risk once for a series of failures, and again after a success") {
    setting s;
    lock m{s.server, "orders", {}, s.seen};
    m.lock();
    for (const words& heard : {words{"at risk: orders"}, words{"at risk: orders", "at risk: orders"}}) {
        s.server.answer("renew", no_answer);
        manual_clock::advance(10s);
        REQUIRE(s.seen->hears(heard));
        s.server.as_usual();
        const auto until = m.valid_until();
        while (m.valid_until() == until) {
            manual_clock::advance(10ms);
            a_while();
        }
    }
}

TEST_CASE("a renewal of which it is not known what replicas have does not count") {
    for (const reply& said : {no_answer, unreachable, reply::error("NOPERM x"), reply::error("LOADING x"),
                              reply::status("OK"), reply::integer(-1), reply::integer(0)}) {
        manual_clock::reset();
        replicated_locks server;
        const auto seen = std::make_shared<recording_observer>();
        lock_of<replicated_locks> m{server, "orders", {.replicas = 1}, seen};
        m.lock();
        REQUIRE(renew_once(m, server));
        const auto until = m.valid_until();
        server.answer_of_the_replica(said);
        manual_clock::advance(10s);
        REQUIRE(seen->hears({"at risk: orders"}));
        CHECK(m.valid_until() == until);
        CHECK(server.owner() != "");  // the server itself has it
        manual_clock::advance(20s);
        CHECK_FALSE(m.owns_lock());
        CHECK(m.unlock() == release_outcome::expired);
    }
}

TEST_CASE("an unlock does not wait for the renewal of an acquisition that was lost before") {
    gate hold;
    std::atomic<int> outcome{-1};
    setting s;
    lock m{s.server, "orders", {.recheck = 1ms}};
    m.lock();
    s.server.wait_at("renew", hold);
    manual_clock::advance(10s);
    REQUIRE(eventually([&] { return hold.reached(); }));
    manual_clock::advance(20s);
    std::jthread next([&] {
        m.lock();
        outcome = static_cast<int>(m.unlock());
    });
    CHECK(eventually([&] { return outcome == static_cast<int>(release_outcome::released); }));
    hold.open();
}

TEST_CASE("a renewal that finds the key of a lost acquisition gone releases nothing") {
    for (const int answered : {0, -1}) {
        std::atomic<bool> answering{false};
        gate hold;
        setting s;
        lock m{s.server, "orders", {.recheck = 1ms}};
        m.lock();
        s.server.instead([&](const std::string& what) -> std::optional<reply> {
            if (what != "renew" || answering.exchange(true)) return {};
            hold.pass();
            return reply::integer(answered);
        });
        manual_clock::advance(10s);
        REQUIRE(eventually([&] { return hold.reached(); }));
        manual_clock::advance(20s);
        m.lock();
        hold.open();
        CHECK(renew_once(m, s.server));  // a background release would have had its time
        CHECK(s.server.count("release") == 0);
    }
}

TEST_CASE("nobody waits for a renewal's answer for longer than the lease") {
    setting s;
    lock m{s.server, "orders"};
    m.lock();
    const auto until = m.valid_until();
    REQUIRE(renew_once(m, s.server));
    const auto sent = s.server.sent();
    REQUIRE(sent.back().what == "renew");
    CHECK(sent.back().deadline == until);
}

TEST_CASE("validity counts from before the lock was asked for, not from the answer") {
    setting s;
    s.server.instead([&](const std::string& what) -> std::optional<reply> {
        if (what == "take") manual_clock::advance(100ms);
        return {};
    });
    lock m{s.server, "orders"};
    const auto before = manual_clock::now();
    m.lock();
    CHECK(m.valid_until() == validity_end(before, 30s));
}

TEST_CASE("an acquisition is renewed that follows one which was lost, or too short to be renewed") {
    setting s;
    lock m{s.server, "orders"};
    for (int i = 0; i < 3; ++i) {
        m.lock();
        const auto lost = m.lost();
        s.server.delete_key();
        manual_clock::advance(10s);
        REQUIRE(eventually([&] { return lost.stop_requested(); }));
        m.unlock();
    }
    m.lock();
    CHECK(renew_once(m, s.server));
    m.unlock();

    // Whether there is anything to be won depends on how long the answer took.
    lock brief{s.server, "brief", {.max_hold = 29690ms}};
    const auto take = [&](manual_clock::duration answered_after) {
        s.server.instead([=](const std::string& what) -> std::optional<reply> {
            if (what == "take") manual_clock::advance(answered_after);
            return {};
        });
        brief.lock();
    };
    take(100ms);
    brief.unlock();
    take(0ms);
    const auto renewals = [&] { return s.server.count("renew", "brief"); };
    const auto before = renewals();
    manual_clock::advance(11s);
    a_while();
    CHECK(renewals() == before);
    brief.unlock();
    take(100ms);
    manual_clock::advance(11s);
    CHECK(eventually([&] { return renewals() > before; }));
}

TEST_CASE("a lock whose lease has run out leaves the background I/O in peace") {
    setting s;
    lock m{s.server, "orders"};
    m.lock();
    manual_clock::advance(31s);
    CHECK(busy_percent() < idle_percent);
    CHECK(s.server.count("renew") == 0);
}

// A clock that knows how often one looks at it.
struct watched_clock : manual_clock {
    static time_point now() noexcept {
        ++looks;
        return manual_clock::now();
    }

    /// Effects: advances, and waits until the background I/O, the only thread beside the test's, has done
    /// what is due: it has looked more often than in one round.
    static bool advance_for_background(duration by) {
        advance(by);
        looks = 0;
        return eventually([] { return looks > 6; });
    }

  private:
    static inline std::atomic<int> looks{0};
};

TEST_CASE("locks taken at one time are renewed at different times, and those near each other together") {
    using watched = distlock::mutex<piped_locks, distlock::plain, watched_clock>;
    manual_clock::reset();
    piped_locks server;
    std::vector<std::unique_ptr<watched>> many;
    // Few might all have nearly the same jitter: 20 have once in a thousand runs.
    for (int i = 0; i < 100; ++i) {
        many.push_back(std::make_unique<watched>(server, "orders", lock_options{}));
        many.back()->lock();
        server.delete_key();  // nobody asks for it before it is renewed
    }
    server.answer("renew", reply::integer(1));
    manual_clock::advance(8950ms);
    int groups = 0;
    int last = 0;
    for (int step = 0; step < 11; ++step) {
        REQUIRE(watched_clock::advance_for_background(100ms));
        const int now = server.count("renew");
        if (now != last) ++groups;
        last = now;
    }
    CHECK(last == 100);
    CHECK(groups >= 2);
    CHECK(groups <= 4);
}

// ---- loss ------------------------------------------------------------------------------------------------

TEST_CASE("a failed renewal does not leave owns_lock true past the lease") {
    setting s;
    lock m{s.server, "orders", {}, s.seen};
    m.lock();
    const auto lost = m.lost();
    const auto until = m.valid_until();
    s.server.answer("renew", no_answer);
    manual_clock::advance(10s);
    REQUIRE(s.seen->hears({"at risk: orders"}));
    while (manual_clock::now() < until) {
        CHECK_FALSE(lost.stop_requested());
        CHECK(m.owns_lock());
        manual_clock::advance(std::min<manual_clock::duration>(1s, until - manual_clock::now()));
    }
    CHECK_FALSE(m.owns_lock());
    CHECK(m.valid_until() == until);
    CHECK(eventually([&] { return lost.stop_requested(); }));
    CHECK(s.seen->hears({"at risk: orders", "expired: orders"}));
    CHECK(m.unlock() == release_outcome::expired);
}

TEST_CASE("the loss signal fires when the server hangs") {
    for (const bool observed : {false, true}) {
        gate hold;
        setting s;
        lock m{s.server, "orders", {}, observed ? s.seen : nullptr};
        m.lock();
        const auto lost = m.lost();
        s.server.instead([&](const std::string&) -> std::optional<reply> {
            hold.pass();
            return no_answer;
        });
        manual_clock::advance(10s);
        REQUIRE(eventually([&] { return hold.reached(); }));
        CHECK_FALSE(lost.stop_requested());
        manual_clock::advance(20s);
        CHECK(eventually([&] { return lost.stop_requested(); }));
        CHECK(s.seen->hears(observed ? words{"expired: orders"} : words{}));
        CHECK_FALSE(m.owns_lock());
        hold.open();
    }
}

TEST_CASE("a server that lost the key, or gave it to somebody else, ends the lock at once") {
    for (const bool somebody : {false, true}) {
        setting s;
        lock m{s.server, "orders", {}, s.seen};
        m.lock();
        const auto lost = m.lost();
        somebody ? s.server.give_to("somebody") : s.server.delete_key();
        manual_clock::advance(10s);
        REQUIRE(eventually([&] { return lost.stop_requested(); }));
        CHECK_FALSE(m.owns_lock());
        CHECK(m.valid_until() <= manual_clock::now());
        CHECK(s.seen->hears({somebody ? "taken: orders" : "expired: orders"}));
        CHECK(s.server.count("mark") == 1);
        CHECK(m.unlock() == (somebody ? release_outcome::taken : release_outcome::expired));
        CHECK(s.server.owner() == (somebody ? "somebody" : ""));
        manual_clock::advance(1h);
        a_while();
        CHECK(s.seen->heard().size() == 1);
        CHECK(s.server.count("renew") == 1);
    }
}

TEST_CASE("a lock that an operator took away is lost by force") {
    setting s;
    lock m{s.server, "orders", {}, s.seen};
    m.lock();
    SECTION("also while very many tokens are in doubt") {
        fill_with_doubt(*distlock::engine::background_io_of<manual_clock>(s.server));
    }
    SECTION("while none is") {}
    s.server.force_release();
    manual_clock::advance(10s);
    CHECK(s.seen->hears({"forced: orders"}));
    CHECK_FALSE(m.owns_lock());
}

TEST_CASE("a mark that names another owner is not about us, and one that cannot be read is none") {
    for (const auto& mark : {reply::string("somebody"), reply::nil(), no_answer, reply::error("NOPERM x")}) {
        setting s;
        lock m{s.server, "orders", {}, s.seen};
        m.lock();
        s.server.delete_key();
        s.server.answer("mark", mark);
        manual_clock::advance(10s);
        CHECK(s.seen->hears({"expired: orders"}));
    }
}

TEST_CASE("the stop token does not wait for the answer to why") {
    gate hold;
    setting s;
    lock m{s.server, "orders", {}, s.seen};
    m.lock();
    const auto lost = m.lost();
    s.server.delete_key();
    s.server.wait_at("mark", hold);
    manual_clock::advance(10s);
    REQUIRE(eventually([&] { return hold.reached(); }));
    CHECK(eventually([&] { return lost.stop_requested(); }));
    CHECK(s.seen->heard().empty());
    hold.open();
    CHECK(s.seen->hears({"expired: orders"}));
}

TEST_CASE("an observer does not wait longer than a second for the answer to why") {
    gate hold;
    setting s;
    lock m{s.server, "orders", {}, s.seen};
    m.lock();
    s.server.delete_key();
    s.server.wait_at("mark", hold);
    manual_clock::advance(10s);
    REQUIRE(eventually([&] { return hold.reached(); }));
    manual_clock::advance(999ms);
    a_while();
    CHECK(s.seen->heard().empty());
    manual_clock::advance(1ms);
    CHECK(s.seen->hears({"expired: orders"}));
    hold.open();
    a_while();
    CHECK(s.seen->heard().size() == 1);
    m.unlock();
    m.lock();  // the next one is renewed as ever
    CHECK(renew_once(m, s.server));
    CHECK(renew_once(m, s.server));
}

TEST_CASE("the answer to why is not waited for longer than a second") {
    setting s;
    lock m{s.server, "orders", {}, s.seen};
    m.lock();
    s.server.delete_key();
    manual_clock::advance(10s);
    CHECK(s.seen->hears({"expired: orders"}));
    const auto sent = s.server.sent();
    REQUIRE(sent.back().what == "mark");
    CHECK(sent.back().deadline == manual_clock::now() + 1s);
}

TEST_CASE("the losses of many locks are asked about in one pipeline, and no thread waits for each answer") {
    constexpr std::size_t many = 50;
    manual_clock::reset();
    gate hold;
    piped_locks server;
    const auto seen = std::make_shared<recording_observer>();
    std::vector<std::unique_ptr<lock_of<piped_locks>>> locks;
    for (std::size_t i = 0; i < many; ++i) {
        locks.push_back(std::make_unique<lock_of<piped_locks>>(server, "orders", lock_options{}, seen));
        locks.back()->lock();
        server.delete_key();
    }
    server.wait_at("mark", hold);
    const auto threads = thread_count();
    manual_clock::advance(10s);
    REQUIRE(eventually([&] { return hold.reached(); }));
    a_while();
    CHECK(thread_count() <= threads + 2);
    CHECK(server.count("mark") == 1);
    hold.open();
    CHECK(eventually([&] { return seen->heard().size() == many; }));
    CHECK(server.count("mark") == many);
}

// Or the questions would take the places of releases.
TEST_CASE("an observer is told of a loss without the reason while very many other losses are asked about") {
    constexpr std::size_t most = distlock::engine::background_io::most_questions;
    constexpr std::size_t more = 50;
    manual_clock::reset();
    piped_locks server;
    const auto seen = std::make_shared<recording_observer>();
    std::vector<std::unique_ptr<lock_of<piped_locks>>> locks;
    for (std::size_t i = 0; i < most + more; ++i) {
        locks.push_back(std::make_unique<lock_of<piped_locks>>(server, "orders", lock_options{}, seen));
        locks.back()->lock();
        server.delete_key();
    }
    manual_clock::advance(10s);
    CHECK(eventually([&] { return seen->heard().size() == most + more; }));
    CHECK(server.count("mark") == int{most});
}

TEST_CASE(
    "the last mutex of a connection that ends before the server is asked why tells its observer all the "
    "same") {
    manual_clock::reset();
    gate hold;
    locks_in_memory server;
    const auto seen = std::make_shared<recording_observer>();
    std::vector<std::unique_ptr<lock_of<locks_in_memory>>> locks;
    for (int i = 0; i < 3; ++i) {
        locks.push_back(std::make_unique<lock_of<locks_in_memory>>(server, "orders", lock_options{}, seen));
        locks.back()->lock();
        server.delete_key();
    }
    server.wait_at("mark", hold);
    manual_clock::advance(10s);
    // The server is being asked for the first; it will be for the second at the end, and for
    // the third not at all.
    REQUIRE(eventually([&] { return hold.reached(); }));
    std::jthread ending([&] { locks.clear(); });
    a_while();
    hold.open();
    CHECK(seen->hears({"expired: orders", "expired: orders", "expired: orders"}));
}

// The question was asked again, and its second answer found nobody to tell: the process crashed.
TEST_CASE("a loss is told once though another master takes over while the server is asked why") {
    gate hold;
    manual_clock::reset();
    following_locks server;
    const auto seen = std::make_shared<recording_observer>();
    lock_of<following_locks> m{server, "orders", {}, seen};
    m.lock();
    server.delete_key();
    server.wait_at("mark", hold);
    manual_clock::advance(10s);
    REQUIRE(eventually([&] { return hold.reached(); }));
    server.change_master();
    hold.open();
    CHECK(seen->hears({"expired: orders"}));
    a_while();
    CHECK(server.count("mark") == 1);
    CHECK(seen->heard().size() == 1);
}

// It was told "expired" at once: an owner that stops at the loss, and ends its mutex, never
// heard of the operator.
TEST_CASE("a mutex that ends while the server is asked why leaves the answer to its observer") {
    gate hold;
    setting s;
    std::optional<lock> m(std::in_place, s.server, "orders", lock_options{}, s.seen);
    m->lock();
    s.server.force_release();
    s.server.wait_at("mark", hold);
    manual_clock::advance(10s);
    REQUIRE(eventually([&] { return hold.reached(); }));
    m.reset();
    CHECK(s.seen->heard().empty());
    hold.open();
    CHECK(s.seen->hears({"forced: orders"}));
}

TEST_CASE("a renewal that succeeds too late is released in the background and revives nothing") {
    gate hold;
    setting s;
    lock m{s.server, "orders", {}, s.seen};
    m.lock();
    const auto lost = m.lost();
    const auto token = s.server.owner();
    const auto until = m.valid_until();
    s.server.wait_at("renew", hold);
    manual_clock::advance(10s);
    REQUIRE(eventually([&] { return hold.reached(); }));
    manual_clock::advance(until - manual_clock::now());  // the key is there still, by the margin
    REQUIRE(eventually([&] { return lost.stop_requested(); }));
    CHECK(s.server.owner() == token);
    hold.open();
    REQUIRE(eventually([&] { return s.server.count("release") == 1; }));
    CHECK(s.server.sent().back().token == token);
    CHECK(eventually([&] { return s.server.owner().empty(); }));
    CHECK_FALSE(m.owns_lock());
    CHECK(m.valid_until() == until);
    CHECK(s.seen->hears({"expired: orders"}));
    CHECK(m.unlock() == release_outcome::expired);
}

namespace {

/// Moves on after the next reading of a thread.
struct jumping_clock : manual_clock {
    static time_point now() noexcept {
        const auto read = manual_clock::now();
        manual_clock::advance(std::exchange(jump, 0s));
        return read;
    }
    static inline thread_local std::chrono::seconds jump{0};
};

}  // namespace

TEST_CASE("a renewal whose answer comes in time, and is looked at when the lease is over, revives nothing") {
    setting s;
    distlock::mutex<hosted_locks, distlock::plain, jumping_clock> m{s.server, "orders", {}, s.seen};
    m.lock();
    const auto until = m.valid_until();
    s.server.instead([](const std::string& what) -> std::optional<reply> {
        if (what == "renew") jumping_clock::jump = 25s;
        return {};
    });
    manual_clock::advance(10s);
    REQUIRE(eventually([&] { return s.server.count("release") == 1; }));
    CHECK_FALSE(m.owns_lock());
    CHECK(m.valid_until() == until);
    CHECK(s.seen->hears({"expired: orders"}));
    CHECK(m.unlock() == release_outcome::expired);
}

TEST_CASE(
    "a renewal that succeeds when another acquisition has followed is released, and not taken for its own") {
    gate hold;
    std::atomic<int> renewals{0};
    setting s;
    lock m{s.server, "orders", {.recheck = 1ms}};
    m.lock();
    const auto first = s.server.owner();
    s.server.instead([&](const std::string& what) -> std::optional<reply> {
        if (what == "renew" && ++renewals == 1) {
            hold.pass();
            return reply::integer(1);  // it was applied, and answered late
        }
        return {};
    });
    manual_clock::advance(10s);
    REQUIRE(eventually([&] { return hold.reached(); }));
    manual_clock::advance(20s);
    m.lock();
    const auto second = s.server.owner();
    REQUIRE(second != first);
    const auto until = m.valid_until();
    hold.open();
    REQUIRE(eventually([&] { return s.server.count("release") == 1; }));
    CHECK(s.server.sent().back().token == first);
    CHECK(m.valid_until() == until);
    CHECK(s.server.owner() == second);
    CHECK(renew_once(m, s.server));
    CHECK(m.unlock() == release_outcome::released);
}

TEST_CASE("a renewal that may have been applied when another thread wants the lock is released") {
    gate hold;
    std::atomic<bool> taken{false};
    setting s;
    lock m{s.server, "orders", {.recheck = 1ms}};
    m.lock();
    const auto first = s.server.owner();
    s.server.instead([&](const std::string& what) -> std::optional<reply> {
        if (what != "renew") return {};
        hold.pass();
        s.server.prolong();  // it is applied late, and the answer is lost
        return no_answer;
    });
    manual_clock::advance(10s);
    REQUIRE(eventually([&] { return hold.reached(); }));
    manual_clock::advance(m.remaining());
    std::jthread second([&] {
        m.lock();
        taken = true;
    });
    REQUIRE(eventually([&] { return s.server.count("take") >= 2; }));
    hold.open();
    const auto start = manual_clock::now();
    CHECK(eventually([&] {
        if (manual_clock::now() < start + 20s) manual_clock::advance(2ms);
        return taken.load();
    }));
    CHECK(s.server.count("release") == 1);
    manual_clock::advance(1h);
}

TEST_CASE("after the longest hold another thread of the object does not wait for the key to expire") {
    std::atomic<bool> taken{false};
    setting s;
    lock m{s.server, "orders", {.max_hold = 45s, .recheck = 1ms}};
    const auto start = manual_clock::now();
    m.lock();
    REQUIRE(renew_once(m, s.server));
    REQUIRE(renew_once(m, s.server));
    manual_clock::advance(start + 45s - manual_clock::now());
    std::jthread second([&] {
        m.lock();
        taken = true;
    });
    CHECK(eventually([&] {
        if (manual_clock::now() < start + 46s) manual_clock::advance(2ms);
        return taken.load();
    }));
    CHECK(s.server.count("release") == 1);
    manual_clock::advance(1h);
}

TEST_CASE("a hold is over at its longest, however well it is renewed") {
    setting s;
    lock m{s.server, "orders", {.max_hold = 45s}, s.seen};
    const auto start = manual_clock::now();
    m.lock();
    const auto lost = m.lost();
    REQUIRE(renew_once(m, s.server));
    REQUIRE(renew_once(m, s.server));
    CHECK(m.valid_until() == start + 45s);
    manual_clock::advance(25s - 1ms);
    a_while();
    CHECK(m.owns_lock());
    CHECK(s.server.count("renew") == 2);
    CHECK_FALSE(lost.stop_requested());
    manual_clock::advance(1ms);
    CHECK_FALSE(m.owns_lock());
    CHECK(eventually([&] { return lost.stop_requested(); }));
    CHECK(s.seen->hears({"max_hold: orders"}));
    CHECK(m.unlock() == release_outcome::expired);
}

// It was believed for the rest of the lease, and never renewed: the first hold had needed no renewal.
TEST_CASE(
    "a hold that was passed on has its own longest time, and is renewed for it though the one before was "
    "not") {
    setting s;
    lock m{s.server, "orders", {.lease = 30s, .max_hold = 25s, .local_budget = 1h}, s.seen};
    m.lock();
    std::latch had{1};
    std::latch enough{1};
    sleeper next([&] {
        m.lock();
        had.count_down();
        enough.wait();
    });
    REQUIRE(next.sleeps());
    manual_clock::advance(14s);
    const auto passed = manual_clock::now();
    CHECK(s.server.count("renew") == 0);
    m.unlock();
    had.wait();
    CHECK(renewed(s.server));
    CHECK(eventually([&] { return m.valid_until() == passed + 25s; }));
    enough.count_down();
    next.join();
    CHECK(m.unlock() == release_outcome::released);
    CHECK(s.seen->heard().empty());
}

TEST_CASE("a thread that waits for the lock takes it as soon as the renewal finds it lost") {
    std::atomic<bool> taken{false};
    setting s;
    lock m{s.server, "orders"};
    m.lock();
    std::jthread waiter([&] {
        m.lock();
        taken = true;
        m.unlock();
    });
    a_while();
    s.server.delete_key();
    manual_clock::advance(10s);
    CHECK(eventually([&] { return taken.load(); }));
    waiter.join();
    CHECK(m.unlock() == release_outcome::expired);
}

TEST_CASE("threads that wait for the lock do not wait for the end of a lease that was found lost") {
    hosted_locks server;
    distlock::mutex m{server, "orders", {.lease = 3s}};
    m.lock();
    const auto until = m.valid_until();
    std::atomic<int> early{0};
    std::vector<std::jthread> waiters;
    for (int i = 0; i < 2; ++i) {
        waiters.emplace_back([&] {
            m.lock();
            if (real_clock::now() < until) ++early;
            m.unlock();
        });
    }
    a_while();
    server.delete_key();
    waiters.clear();
    CHECK(early == 2);
}

// ---- the token of a loss ---------------------------------------------------------------------------------

TEST_CASE("the loss token of a mutex that holds nothing is stopped") {
    setting s;
    lock m{s.server, "orders"};
    CHECK(m.lost().stop_requested());
    m.lock();
    CHECK_FALSE(m.lost().stop_requested());
    m.unlock();
    CHECK(m.lost().stop_requested());
}

TEST_CASE("the loss token is the same within an acquisition and another in the next") {
    setting s;
    lock m{s.server, "orders"};
    m.lock();
    const auto first = m.lost();
    CHECK(m.lost() == first);
    REQUIRE(renew_once(m, s.server));
    CHECK(m.lost() == first);
    m.unlock();
    m.lock();
    const auto second = m.lost();
    CHECK_FALSE(second == first);
    CHECK_FALSE(second.stop_requested());
    m.unlock();
}

TEST_CASE(
    "the loss token of a thread that the lock was passed on to is its own, and is stopped by the loss") {
    setting s;
    lock m{s.server, "orders", {.renew = false, .local_budget = 1h}};
    m.lock();
    const auto first = m.lost();
    std::stop_token second;
    sleeper next([&] {
        m.lock();
        second = m.lost();
    });
    REQUIRE(next.sleeps());
    CHECK(m.unlock() == release_outcome::released);
    next.join();
    CHECK_FALSE(second == first);
    CHECK_FALSE(second.stop_requested());
    manual_clock::advance(30s);
    CHECK(eventually([&] { return second.stop_requested(); }));
    CHECK_FALSE(first.stop_requested());
}

TEST_CASE("a thread that passed the lock on in time is not told when the next one loses it") {
    setting s;
    lock m{s.server, "orders", {.renew = false, .local_budget = 1h}};
    m.lock();
    const auto first = m.lost();
    release_outcome late{};
    sleeper next([&] {
        m.lock();
        manual_clock::advance(30s);
        late = m.unlock();
    });
    REQUIRE(next.sleeps());
    CHECK(m.unlock() == release_outcome::released);
    next.join();
    CHECK(late == release_outcome::expired);
    a_while();
    CHECK_FALSE(first.stop_requested());
}

TEST_CASE("the loss token is never stopped when the lock was released in time") {
    setting s;
    std::stop_token first;
    {
        lock m{s.server, "orders", {}, s.seen};
        m.lock();
        first = m.lost();
        manual_clock::advance(9s);
        CHECK(m.unlock() == release_outcome::released);
        manual_clock::advance(1h);
        a_while();
        CHECK_FALSE(first.stop_requested());
    }
    CHECK_FALSE(first.stop_requested());
    CHECK(s.seen->heard().empty());
}

TEST_CASE("the loss token that is asked for after the loss is stopped") {
    setting s;
    lock m{s.server, "orders", {.renew = false}};
    m.lock();
    const auto before = m.lost();
    manual_clock::advance(30s);
    CHECK(m.lost().stop_requested());
    CHECK(eventually([&] { return before.stop_requested(); }));
    CHECK(m.lost() == before);
    CHECK(m.unlock() == release_outcome::expired);
}

// Most often the unlock comes before a timer has looked; so it is done several times.
TEST_CASE("an owner that unlocks too late is told of the loss") {
    setting s;
    lock m{s.server, "orders", {.renew = false}, s.seen};
    words told;
    for (int i = 0; i < 20; ++i) {
        m.lock();
        const auto lost = m.lost();
        manual_clock::advance(30s);
        CHECK(m.unlock() == release_outcome::expired);
        CHECK(eventually([&] { return lost.stop_requested(); }));
        told.emplace_back("expired: orders");
        REQUIRE(s.seen->hears(told));
    }
}

TEST_CASE("the loss of one acquisition is told though nobody unlocks and another follows") {
    setting s;
    lock m{s.server, "orders", {.renew = false}, s.seen};
    m.lock();
    const auto first = m.lost();
    manual_clock::advance(30s);
    m.lock();
    const auto second = m.lost();
    CHECK(eventually([&] { return first.stop_requested(); }));
    CHECK(s.seen->hears({"expired: orders"}));
    CHECK_FALSE(second.stop_requested());
    CHECK(m.unlock() == release_outcome::released);
}

TEST_CASE("a guard's loss token is stopped with its own lock") {
    setting s;
    lock m{s.server, "orders", {.renew = false}};
    const distlock::scoped_lock guard{m};
    const auto lost = guard.lost();
    CHECK(guard.lost() == lost);
    CHECK_FALSE(lost.stop_requested());
    manual_clock::advance(30s);
    CHECK(eventually([&] { return lost.stop_requested(); }));
    CHECK(guard.lost().stop_requested());
}

TEST_CASE(
    "a guard whose lease ran out neither ends nor speaks for the acquisition that followed, nor "
    "leaves a stale unlock") {
    setting s;
    lock m{s.server, "orders", {.renew = false}};
    std::optional<distlock::scoped_lock<lock>> guard(std::in_place, m);
    manual_clock::advance(30s);
    std::jthread([&] { m.lock(); }).join();
    const auto second = s.server.owner();
    CHECK_FALSE(guard->owns_lock());
    CHECK(guard->valid_until() == real_clock::time_point{});
    CHECK(guard->lost().stop_requested());
    guard.reset();
    CHECK(m.owns_lock());
    CHECK(s.server.owner() == second);
    CHECK(m.unlock() == release_outcome::released);  // handed over by the other thread
}

// ---- callbacks -------------------------------------------------------------------------------------------

TEST_CASE("unlock in the lost callback does not deadlock") {
    std::atomic<int> outcome{-1};
    std::atomic<int> stopped{-1};
    setting s;
    std::optional<lock> m;
    s.seen->on_loss = [&] { outcome = static_cast<int>(m->unlock()); };
    m.emplace(s.server, "orders", lock_options{}, s.seen);
    m->lock();
    const std::stop_callback on_stop(m->lost(), [&] { stopped = static_cast<int>(m->unlock()); });
    s.server.give_to("somebody");
    manual_clock::advance(10s);
    CHECK(eventually([&] { return outcome >= 0 && stopped >= 0; }));
    const auto taken = static_cast<int>(release_outcome::taken);
    const auto expired = static_cast<int>(release_outcome::expired);
    CHECK(((outcome == taken && stopped == expired) || (stopped == taken && outcome == expired)));
    CHECK(s.server.owner() == "somebody");
    CHECK(m->unlock() == release_outcome::expired);  // the owner's
}

TEST_CASE(
    "an observer that unlocks a lock at risk which its owner has unlocked is told that it is not held") {
    setting s;
    std::optional<lock> m;
    gate unlocked;
    std::atomic<release_outcome> end{release_outcome::released};
    std::atomic<bool> done{false};
    s.seen->on_risk = [&] {
        unlocked.pass();
        end = m->unlock();
        done = true;
    };
    m.emplace(s.server, "orders", lock_options{}, s.seen);
    m->lock();
    s.server.answer("renew", unreachable);
    manual_clock::advance(10s);
    CHECK(eventually([&] { return unlocked.reached(); }));
    CHECK(m->unlock() == release_outcome::released);
    unlocked.open();
    CHECK(eventually([&] { return done.load(); }));
    CHECK(end == release_outcome::not_held);
}

TEST_CASE(
    "an observer that unlocks a lock at risk frees it; its owner is told so, and unlocks it all the same") {
    setting s;
    std::optional<lock> m;
    std::atomic<release_outcome> end{release_outcome::not_held};
    std::atomic<bool> done{false};
    s.seen->on_risk = [&] {
        end = m->unlock();
        done = true;
    };
    m.emplace(s.server, "orders", lock_options{.lease = 30s}, s.seen);
    m->lock();
    s.server.answer("renew", unreachable);
    manual_clock::advance(10s);
    CHECK(eventually([&] { return done.load(); }));
    CHECK(end == release_outcome::released);
    CHECK(s.server.owner().empty());
    std::jthread([&] { m->lock(); }).join();
    CHECK_FALSE(m->owns_lock());
    CHECK(m->unlock() == release_outcome::expired);
    CHECK(m->owns_lock());
}

TEST_CASE("the lost callback may take the lock again, and ask what it likes") {
    std::atomic<bool> again{false};
    setting s;
    std::optional<lock> m;
    s.seen->on_loss = [&] {
        m->unlock();
        const bool nothing = m->lost().stop_requested() && !m->owns_lock() && m->remaining() == 0ns;
        again = nothing && m->try_lock() && m->owns_lock() && !m->lost().stop_requested();
    };
    m.emplace(s.server, "orders", lock_options{}, s.seen);
    m->lock();
    s.server.delete_key();
    manual_clock::advance(10s);
    CHECK(eventually([&] { return again.load(); }));
    CHECK(m->unlock() == release_outcome::expired);  // this thread's own
    CHECK(m->owns_lock());
}

TEST_CASE("a callback that blocks or throws delays neither other locks nor the loss token") {
    gate hold;
    setting s;
    s.seen->on_loss = [&] { hold.pass(); };
    s.seen->on_risk = [&] { throw std::runtime_error("of the user"); };
    lock blocked{s.server, "orders", {.renew = false}, s.seen};
    hosted_locks* const same = &s.server;
    blocked.lock();
    manual_clock::advance(30s);
    REQUIRE(eventually([&] { return hold.reached(); }));
    // Over the same connection, on the same threads.
    const auto told = std::make_shared<recording_observer>();
    told->on_risk = [] { throw std::runtime_error("of the user"); };
    told->on_loss = [] { throw 1; };
    lock m{*same, "orders", {}, told};
    CHECK(blocked.unlock() == release_outcome::expired);
    m.lock();
    const auto lost = m.lost();
    REQUIRE(renew_once(m, *same));
    same->answer("renew", no_answer);
    manual_clock::advance(10s);
    REQUIRE(told->hears({"at risk: orders"}));
    manual_clock::advance(20s);
    CHECK(eventually([&] { return lost.stop_requested(); }));
    CHECK(told->hears({"at risk: orders", "expired: orders"}));
    hold.open();
}

TEST_CASE("a callback may destroy the last mutex of its connection") {
    const auto destroys_it = []<class Conn>(Conn&& server) {
        manual_clock::reset();
        const auto seen = std::make_shared<recording_observer>();
        std::unique_ptr<lock_of<std::remove_cvref_t<Conn>>> m;
        std::atomic<bool> destroyed{false};
        seen->on_loss = [&] {
            m.reset();
            destroyed = true;
        };
        m = std::make_unique<lock_of<std::remove_cvref_t<Conn>>>(server, "orders", lock_options{}, seen);
        m->lock();
        server.delete_key();
        manual_clock::advance(10s);
        return eventually([&] { return destroyed.load(); });
    };
    CHECK(destroys_it(hosted_locks{}));
    CHECK(destroys_it(locks_in_memory{}));  // whose background I/O ends with it
}

TEST_CASE("a stop callback may destroy its mutex and its connection") {
    for (int round = 0; round < 10; ++round) {
        manual_clock::reset();
        auto server = std::make_unique<hosted_locks>();
        auto m = std::make_unique<lock>(*server, "orders");
        std::atomic<bool> destroyed{false};
        m->lock();
        const std::stop_callback on_stop(m->lost(), [&] {
            m.reset();
            server.reset();
            destroyed = true;
        });
        server->delete_key();
        manual_clock::advance(10s);
        REQUIRE(eventually([&] { return destroyed.load(); }));
    }
}

TEST_CASE(
    "an observer is told although a stop callback of the same loss destroyed the connection, which is not "
    "asked then") {
    for (int round = 0; round < 10; ++round) {
        manual_clock::reset();
        auto server = std::make_unique<hosted_locks>();
        const auto seen = std::make_shared<recording_observer>();
        auto m = std::make_unique<lock>(*server, "orders", lock_options{}, seen);
        std::atomic<bool> destroyed{false};
        bool told_before = false;
        m->lock();
        const std::stop_callback on_stop(m->lost(), [&] {
            m.reset();
            server.reset();
            told_before = seen->heard().size() == 1;
            destroyed = true;
        });
        server->delete_key();
        manual_clock::advance(10s);
        REQUIRE(eventually([&] { return destroyed.load(); }));
        CHECK(told_before);  // none is told anything after its connection is gone
        CHECK(seen->hears({"expired: orders"}));
    }
}

TEST_CASE("a mutex may end in the middle of a renewal, or of its loss") {
    setting s;
    for (int round = 0; round < 50; ++round) {
        std::optional<lock> m(std::in_place, s.server, "orders", lock_options{}, s.seen);
        m->lock();
        const auto lost = m->lost();
        if (round % 3 == 1) s.server.delete_key();
        manual_clock::advance(round % 3 == 2 ? 31s : 10s);
        for (int i = 0; i < round * 50; ++i) std::this_thread::yield();
        m.reset();
        REQUIRE(s.server.owner().empty());
    }
}

TEST_CASE("nothing is renewed, and nobody told, for a mutex that is gone") {
    setting s;
    auto m = std::make_unique<lock>(s.server, "orders", lock_options{}, s.seen);
    m->lock();
    const auto lost = m->lost();
    m.reset();
    manual_clock::advance(31s);
    a_while();
    CHECK_FALSE(lost.stop_requested());
    CHECK(s.seen->heard().empty());
    CHECK(s.server.count("renew") == 0);
}

// ---- background releases
// ----------------------------------------------------------------------------------------

TEST_CASE("an unlock whose release failed is tried again in the background until the lock is free") {
    setting s;
    lock m{s.server, "orders"};
    CHECK(m.residual() == 0ns);
    m.lock();
    const auto token = s.server.owner();
    s.server.answer("release", unreachable);
    CHECK(m.unlock() == release_outcome::unreachable);
    CHECK(m.residual() == 30s);
    CHECK_FALSE(m.owns_lock());
    manual_clock::advance(1s);
    CHECK(m.residual() == 29s);
    CHECK(s.server.owner() == token);
    s.server.as_usual();
    REQUIRE(eventually([&] {
        manual_clock::advance(1ms);
        return m.residual() == 0ns;
    }));
    CHECK(s.server.owner().empty());
    CHECK(manual_clock::now() < real_clock::time_point(1h) + 29s);
    m.lock();
    CHECK(m.unlock() == release_outcome::released);
}

TEST_CASE("a lock that an unconfirmed unlock left stays no longer than its lease, whatever the server does") {
    setting s;
    lock m{s.server, "orders"};
    m.lock();
    REQUIRE(renew_once(m, s.server));
    s.server.answer("release", no_answer);
    CHECK(m.unlock() == release_outcome::unreachable);
    CHECK(m.residual() == 30s);
    manual_clock::advance(30s);
    CHECK(m.residual() == 0ns);
    a_while();
    const auto asked = s.server.count("release");
    manual_clock::advance(10s);
    a_while();
    CHECK(s.server.count("release") == asked);
}

// The first request arrived after the release, with residual() at zero, and kept the lock for a lease.
TEST_CASE(
    "a request for the lock that was given up and arrives after the unlock is released, and counts as "
    "residual") {
    for (const auto held_for : {0ms, 20000ms}) {
        setting s;
        std::atomic<int> takes{0};
        std::string token;
        lock m{s.server, "orders"};
        s.server.instead([&](const std::string& what) -> std::optional<reply> {
            if (what == "take" && ++takes == 1) return no_answer;
            return {};
        });
        m.lock();
        token = s.server.owner();
        if (held_for > 0ms) {
            REQUIRE(renew_once(m, s.server));
            REQUIRE(renew_once(m, s.server));
        }
        CHECK(m.unlock() == release_outcome::released);
        CHECK(m.residual() > 0ns);
        CHECK(m.residual() <= 31s);
        const auto asked = s.server.count("release");
        REQUIRE(eventually([&] {
            manual_clock::advance(5ms);
            return s.server.count("release") >= asked + 3;
        }));
        s.server.give_to(token);
        const auto arrived = manual_clock::now();
        CHECK(eventually([&] {
            manual_clock::advance(5ms);
            return s.server.owner().empty();
        }));
        CHECK(manual_clock::now() < arrived + 2s);
        manual_clock::advance(31s);
        CHECK(m.residual() == 0ns);
    }
}

// It was forgotten with the hold that was lost, or with the next release that was confirmed.
TEST_CASE(
    "a request for the lock that was given up counts as residual, though its hold was lost, or another "
    "followed") {
    for (const bool lost : {false, true}) {
        setting s;
        std::atomic<int> takes{0};
        std::atomic<int> releases{0};
        lock m{s.server, "orders", {.max_hold = lost ? 1s : 25s}};
        s.server.instead([&](const std::string& what) -> std::optional<reply> {
            if (what == "take" && ++takes == 1) return no_answer;
            return {};
        });
        m.lock();
        const auto token = s.server.owner();
        if (lost) {
            manual_clock::advance(1s);
            s.server.delete_key();
        } else {
            CHECK(m.unlock() == release_outcome::released);
        }
        m.lock();
        s.server.instead([&](const std::string& what) -> std::optional<reply> {
            if (what == "release" && ++releases <= 2) return no_answer;
            return {};
        });
        m.unlock();
        s.server.as_usual();
        REQUIRE(eventually([&] {
            manual_clock::advance(5ms);
            return s.server.owner().empty();
        }));
        CHECK(m.residual() > 5s);
        s.server.give_to(token);
        CHECK(eventually([&] {
            manual_clock::advance(5ms);
            return s.server.owner().empty();
        }));
    }
}

TEST_CASE("a background release goes on although the mutex is gone") {
    setting s;
    {
        lock m{s.server, "orders"};
        m.lock();
        s.server.answer("release", unreachable);
    }
    CHECK_FALSE(s.server.owner().empty());
    s.server.as_usual();
    CHECK(eventually([&] {
        manual_clock::advance(1ms);
        return s.server.owner().empty();
    }));
    CHECK(manual_clock::now() < real_clock::time_point(1h) + 29s);
}

TEST_CASE("a clean-up is sent although the caller has been cancelled") {
    std::atomic<int> takes{0};
    setting s;
    lock m{s.server, "orders"};
    std::stop_source stop;
    s.server.instead([&](const std::string& what) -> std::optional<reply> {
        if (what == "take" && ++takes == 1) {
            stop.request_stop();
            return no_answer;
        }
        // The first clean-up is lost, too: it is repeated in the background.
        if (what == "release" && takes == 1 && ++takes == 2) return no_answer;
        return {};
    });
    std::error_code ec;
    CHECK_FALSE(m.lock(stop.get_token(), ec));
    CHECK(ec == errc::cancelled);
    REQUIRE(eventually([&] { return s.server.count("release") >= 1; }));
    a_while();
    CHECK(s.server.count("release") == 1);
    manual_clock::advance(200ms);  // when the answer must have come
    CHECK(eventually([&] { return s.server.count("release") >= 2; }));
    const auto sent = s.server.sent();
    for (const auto& one : sent) CHECK(one.token == sent.front().token);
}

// ---- fencing, threads, fork ------------------------------------------------------------------------------

TEST_CASE("the fencing token is the grant's, and outlives a loss until the unlock") {
    manual_clock::reset();
    const auto granted = [](const char* fence) {
        return reply::array({reply::integer(1), reply::string(fence)});
    };
    distlock::testing::scripted_connection redis{granted("1763718245123456"), reply::integer(1),
                                                 granted("1763718245123457")};
    lock_of<distlock::testing::scripted_connection> m{redis, "orders", {.renew = false, .fencing = true}};
    CHECK(m.fencing_token() == 0);
    m.lock();
    CHECK(m.fencing_token() == 1763718245123456U);
    m.unlock();
    CHECK(m.fencing_token() == 0);
    m.lock();
    manual_clock::advance(30s);
    CHECK(m.fencing_token() == 1763718245123457U);
    redis.then(reply::integer(0));
    CHECK(m.unlock() == release_outcome::expired);
    CHECK(m.fencing_token() == 0);
    redis.then(granted("1763718245123458"));
    redis.then(reply::integer(1));
    const distlock::scoped_lock guard{m};
    manual_clock::advance(30s);
    CHECK(guard.fencing_token() == 1763718245123458U);
}

TEST_CASE("one thread of a process asks the server at a time, also while the lock is released") {
    for (const std::string asked : {"take", "release"}) {
        gate hold;
        std::atomic<bool> blocking{true};
        setting s;
        lock m{s.server, "orders"};
        s.server.instead([&](const std::string& what) -> std::optional<reply> {
            if (what == asked && blocking.exchange(false)) hold.pass();
            return {};
        });
        std::jthread first([&] {
            m.lock();
            m.unlock();
        });
        REQUIRE(eventually([&] { return hold.reached(); }));
        const auto sent = s.server.sent().size();
        std::error_code ec;
        bool had = true;
        std::atomic<bool> tried{false};
        std::jthread second([&] {
            had = m.try_lock(ec);
            tried = true;
        });
        REQUIRE(eventually([&] {
            manual_clock::advance(10ms);
            return tried.load();
        }));
        CHECK_FALSE(had);
        CHECK(ec == errc::no_reply);  // whose it is before that answer, nobody knows
        CHECK(s.server.sent().size() == sent);
        hold.open();
        m.lock();  // waits until the other has done
        CHECK(m.unlock() == release_outcome::released);
    }
}

TEST_CASE("without fencing there is no fencing token") {
    setting s;
    lock m{s.server, "orders"};
    m.lock();
    CHECK(m.fencing_token() == 0);
}

TEST_CASE("when no thread is to be had to renew a lock, it is given back and that is said") {
    NOT_TESTED_UNLESS(threads_in_a_child, child_has_no_threads);
    CHECK(in_child([] {
        manual_clock::reset();
        if (!let_no_thread_start()) return false;
        locks_in_memory server;
        lock_of<locks_in_memory> m{server, "orders"};
        std::error_code ec;
        const bool refused = !m.try_lock(ec) && ec == errc::no_thread && !m.owns_lock() && !m.try_lock(ec) &&
                             ec == errc::no_thread;
        lock_of<locks_in_memory> unwatched{server, "orders", {.renew = false}};
        unwatched.lock();
        bool said = false;
        try {
            static_cast<void>(unwatched.lost());
        } catch (const distlock::error& e) {
            said = e.code() == errc::no_thread && std::string(e.what()).starts_with("lock orders: ");
        }
        return refused && said && unwatched.owns_lock() && server.count("release") == 2 &&
               unwatched.unlock() == release_outcome::released && server.owner().empty();
    }));
}

TEST_CASE(
    "a lock that is given back for want of a thread counts as residual while another request for it may "
    "arrive") {
    NOT_TESTED_UNLESS(threads_in_a_child, child_has_no_threads);
    CHECK(in_child([] {
        setting s;
        lock keeps_a_thread{s.server, "other"};
        keeps_a_thread.lock();
        if (!let_no_thread_start()) return false;
        lock m{s.server, "orders", {}, s.seen};
        int takes = 0;
        s.server.instead([&](const std::string& what) -> std::optional<reply> {
            if (what == "take" && ++takes == 1) return no_answer;
            return {};
        });
        std::error_code ec;
        return !m.lock(ec) && ec == errc::no_thread && s.server.owner().empty() && m.residual() > 0ns;
    }));
}

// It slept until the other one unlocked: only the thread that was first in line when the lock was taken knew
// that nobody would wake it.
TEST_CASE(
    "a thread that is first behind one that was passed the lock gets it at the end of the lease, though no "
    "thread can be had to say so") {
    NOT_TESTED_UNLESS(threads_in_a_child, child_has_no_threads);
    CHECK(in_child([] {
        hosted_locks server;
        distlock::mutex m{server, "orders", {.lease = 2s, .renew = false, .local_budget = 1h}};
        std::atomic<int> stage{0};
        std::atomic<bool> passed{false};
        std::atomic<bool> served{false};
        const auto reaches = [&](int wanted) { return eventually([&] { return stage >= wanted; }); };
        sleeper second([&] {
            reaches(1);
            m.lock();
            passed = true;
            reaches(3);  // without an unlock
        });
        sleeper third([&] {
            reaches(2);
            m.lock();
            served = true;
            m.unlock();
        });
        if (!let_no_thread_start()) return false;
        m.lock();
        stage = 1;
        bool right = second.sleeps();
        a_while();
        stage = 2;
        right = right && third.sleeps();
        a_while();
        m.unlock();
        right = right && eventually([&] { return passed.load(); });
        server.delete_key();  // as its TTL would
        right = right && eventually([&] { return served.load(); });
        stage = 3;
        second.join();
        third.join();
        return right;
    }));
}

TEST_CASE(
    "a thread behind one whose time is up gets the lock at the end of the lease, though no thread can be had "
    "to say so") {
    NOT_TESTED_UNLESS(threads_in_a_child, child_has_no_threads);
    CHECK(in_child([] {
        hosted_locks server;
        distlock::mutex m{server, "orders", {.lease = 3s, .renew = false}};
        std::atomic<int> stage{0};
        std::atomic<bool> gave_up{false};
        std::atomic<bool> served{false};
        std::stop_source enough;
        const auto reaches = [&](int wanted) { return eventually([&] { return stage >= wanted; }); };
        sleeper first([&] {
            reaches(1);
            gave_up = !m.try_lock_for(1s);
        });
        sleeper second([&] {
            reaches(2);
            std::error_code ec;
            if (!m.lock(enough.get_token(), ec)) return;
            served = true;
            m.unlock();
        });
        if (!let_no_thread_start()) return false;
        m.lock();
        stage = 1;
        bool right = first.sleeps();
        a_while();
        stage = 2;
        right = right && second.sleeps();
        right = right && eventually([&] { return gave_up.load(); });
        server.delete_key();  // as its TTL would
        right = right && eventually([&] { return served.load(); });
        enough.request_stop();
        first.join();
        second.join();
        return right;
    }));
}

// It was told when the system had threads again.
TEST_CASE(
    "a loss is told in time though the system has no thread to give, and a callback blocks the one there "
    "is") {
    NOT_TESTED_UNLESS(threads_in_a_child, child_has_no_threads);
    CHECK(in_child([] {
        setting s;
        lock m{s.server, "orders", {.renew = false}, s.seen};
        m.lock();
        std::atomic<bool> blocked{false};
        std::atomic<bool> told{false};
        gate hold;
        s.seen->on_loss = [&] {
            blocked = true;
            hold.pass();
        };
        if (!let_no_thread_start()) return false;
        manual_clock::advance(30s);
        if (!eventually([&] { return blocked.load(); })) return false;
        m.lock();
        const std::stop_callback callback(m.lost(), [&] { told = true; });
        manual_clock::advance(30s);
        const bool in_time = eventually([&] { return told.load(); });
        hold.open();
        return in_time && s.seen->hears({"expired: orders", "expired: orders"});
    }));
}

TEST_CASE("a child of a process whose lock is renewed and watched leaves it alone, and has its own") {
    NOT_TESTED_UNLESS(threads_in_a_child, child_has_no_threads);
    setting s;
    std::optional<lock> m(std::in_place, s.server, "orders", lock_options{}, s.seen);
    m->lock();
    const auto lost = m->lost();
    REQUIRE(renew_once(*m, s.server));
    CHECK(in_child([&] {
        const bool foreign = m->lost().stop_requested() && m->fencing_token() == 0 && m->residual() == 0ns &&
                             !m->owns_lock() && m->unlock() == release_outcome::wrong_process;
        m.reset();
        hosted_locks mine;
        lock own{mine, "orders"};
        own.lock();
        return foreign && renew_once(own, mine) && own.unlock() == release_outcome::released;
    }));
    CHECK(m->owns_lock());
    CHECK_FALSE(lost.stop_requested());
    CHECK(renew_once(*m, s.server));
    CHECK(m->unlock() == release_outcome::released);
}

// The thread that unlocked told it of the server's answer before it let go of the lock itself: every third of
// such tries was told that somebody has the lock.
TEST_CASE("a try that waits for another thread's unlock() is not told of an owner that there is not") {
    struct emptied {
        reply execute(const command& cmd) {
            if (cmd.argv()[0] == "SET") return reply::status("OK");
            hold.pass();
            return reply::integer(0);
        }
        gate hold;
    };
    int had = 0;
    std::error_code ec;
    for (int i = 0; i < 20; ++i) {
        manual_clock::reset();
        emptied server;
        lock_of<emptied> m{server, "orders", {.lease = 10s, .renew = false}};
        m.lock();
        manual_clock::advance(11s);
        sleeper tries([&] {
            while (!server.hold.reached()) std::this_thread::yield();
            if (m.try_lock(ec)) ++had;
        });
        sleeper opens([&] {
            static_cast<void>(eventually([&] { return server.hold.reached(); }) && tries.sleeps());
            server.hold.open();
        });
        CHECK(m.unlock() == release_outcome::expired);
        opens.join();
        tries.join();
        CHECK_FALSE(ec);
    }
    CHECK(had == 20);
}

}  // namespace acquisition_tests
