// One shared_mutex object, its readers and writers, with scripted connections.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <malloc.h>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/base/lease.hpp>
#include <distlock/counting_semaphore.hpp>
#include <distlock/mutex.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/scoped_lock.hpp>
#include <distlock/shared_mutex.hpp>
#include <distlock/shared_scoped_lock.hpp>
#include <distlock/testing/manual_clock.hpp>
#include <distlock/testing/scripted_connection.hpp>
#include <distlock/try_lock_for.hpp>
#include <distlock/wire/plain.hpp>
#include <distlock/wire/shared_scripts.hpp>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/handoff_answers.hpp"
#include "support/in_child.hpp"
#include "support/late_posts.hpp"
#include "support/lease_observers.hpp"
#include "support/script_calls.hpp"
#include "support/sleepers.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace shared_object_tests {

using namespace std::chrono_literals;
using distlock::command;
using distlock::errc;
using distlock::lock_options;
using distlock::release_outcome;
using distlock::reply;
using distlock::testing::manual_clock;
using distlock::testing::scripted_connection;
using handoff_answers::granted;
using handoff_answers::taken;

namespace {

// It gives the lock to every caller.
struct granting_server {
    reply execute(const command& cmd) {
        using namespace distlock::detail;
        if (cmd.argv()[0] == "SET") return reply::status("OK");
        const bool asks = calls(cmd, shared_enter) || calls(cmd, shared_exchange);
        return asks ? granted("", 30'000) : reply::integer(1);
    }
};

}  // namespace

// It went on reading: the first request came late, made it the writer, and its release let
// others write meanwhile.
TEST_CASE("a reader does not read on beside an exchange that was not answered and may still arrive") {
    const auto lost = reply::no_answer(errc::no_reply, "the answer was lost");
    scripted_connection redis{granted("", 30'000), lost, taken()};
    distlock::shared_mutex m{redis, "orders", {.renew = false}};
    m.lock_shared();
    std::error_code ec;
    CHECK_FALSE(m.try_upgrade(ec));
    CHECK(ec == errc::no_reply);
    CHECK(m.shared_until() == distlock::clock::time_point{});
    CHECK(m.unlock_shared() == release_outcome::not_held);
}

TEST_CASE("readers that were neither refused nor let in as writers leave nothing behind") {
    struct unsure_server {
        reply execute(const command& cmd) {
            if (cmd.argv()[0] == "SET") return granted("", 30'000);
            if (cmd.argv()[1] == distlock::detail::shared_exchange.sha1()) return reply::error("NOPERM x");
            return cmd.argv()[1] == distlock::detail::shared_enter.sha1() ? granted("", 30'000)
                                                                          : reply::integer(1);
        }
    };
    unsure_server server;
    distlock::shared_mutex m{server, "orders", {.renew = false, .release = distlock::confirmed}};
    const auto after = [&](int upgrades) {
        for (int i = 0; i < upgrades; ++i) {
            m.lock_shared();
            std::error_code ec;
            CHECK_FALSE(m.try_upgrade(ec));
            CHECK(ec == errc::permission_denied);
            CHECK(m.unlock_shared() == release_outcome::not_held);
            CHECK(eventually([&] { return m.residual() == 0s; }));
        }
        return ::mallinfo2().uordblks;
    };
    const auto before = after(5);
    CHECK(after(100) < before + 32'768);
}

TEST_CASE("an object keeps no more for its readers the more often they read") {
    granting_server server;
    distlock::shared_mutex m{server, "orders", {.renew = false, .local_budget = 0ms}};
    const auto after = [&](int reads) {
        for (int i = 0; i < reads; ++i) {
            m.lock_shared();
            m.unlock_shared();
        }
        const auto now = ::mallinfo2();
        return now.uordblks + now.hblkhd;
    };
    const auto before = after(100);
    CHECK(after(5000) < before + 32'768);
}

// After a burst each try of a writer looked at all of them, for good.
TEST_CASE("an object that many have read through at once keeps nothing of most of them") {
    granting_server server;
    distlock::shared_mutex m{
        server, "orders", {.renew = false, .release = distlock::confirmed, .local_budget = 0ms}};
    const auto used = [] { return ::mallinfo2().uordblks; };
    { const std::shared_lock one(m); }
    const auto before = used();
    for (int i = 0; i < 1000; ++i) m.lock_shared();
    for (int i = 0; i < 1000; ++i) m.unlock_shared();
    // The allocator of a sanitizer says nothing.
    if (before > 0) CHECK(used() > before + 1'000'000);
    for (int i = 0; i < 100; ++i) const std::shared_lock one(m);
    CHECK(used() < before + 200'000);
}

TEST_CASE("a burst of readers keeps what was given back and is not confirmed") {
    struct answers_the_last_twenty : granting_server {
        bool post(const command&, const std::shared_ptr<distlock::receipt>& wanted = nullptr) {
            if (++posts > 20 && wanted) wanted->settle(reply::integer(1));
            return true;
        }
        void collect() {}
        int posts = 0;
    };
    manual_clock::reset();
    answers_the_last_twenty server;
    distlock::shared_mutex<answers_the_last_twenty, manual_clock> m{
        server, "orders", {.renew = false, .local_budget = 0ms}};
    for (int i = 0; i < 40; ++i) m.lock_shared();
    for (int i = 0; i < 40; ++i) CHECK(m.unlock_shared() == release_outcome::posted);
    m.lock_shared();
    CHECK(m.residual() > 0s);
    m.unlock_shared();
}

// It freed the writer's lock, and another process wrote beside it.
TEST_CASE("an unlock() by an observer that hears of a lost read leaves the present writer alone") {
    manual_clock::reset();
    using shared = distlock::shared_mutex<granting_server, manual_clock>;
    gate written;
    unlocks_at_a_loss<shared> unlocks;
    granting_server server;
    shared m{server, "orders", {.renew = false}, unlocks.observer};
    unlocks.lock = &m;
    m.lock_shared();
    manual_clock::advance(30s);
    bool owned_by_writer = false;
    auto end_of_writer = release_outcome::not_held;
    sleeper writer([&] {
        m.lock();
        unlocks.may.open();
        written.pass();
        owned_by_writer = m.owns_lock();
        end_of_writer = m.unlock();
    });
    CHECK(unlocks.done());
    written.open();
    writer.join();
    CHECK_FALSE(unlocks.owned);
    CHECK(unlocks.end == release_outcome::expired);
    CHECK(owned_by_writer);
    CHECK(end_of_writer == release_outcome::released);
    CHECK(m.unlock_shared() == release_outcome::expired);
}

TEST_CASE("a reader that is refused as a writer reads on") {
    scripted_connection redis{granted("", 30'000), taken(), reply::integer(1)};
    distlock::shared_mutex m{redis, "orders", {.renew = false}};
    m.lock_shared();
    std::error_code ec = errc::deadlock;
    CHECK_FALSE(m.try_upgrade(ec));
    CHECK_FALSE(ec);
    CHECK(m.shared_until() > distlock::clock::now());
    CHECK(m.unlock_shared() == release_outcome::released);
}

// It lost its read to the other thread's trouble: the server had not been asked for it.
TEST_CASE("a reader reads on while a writer of its object waits for a server in trouble, or for its answer") {
    manual_clock::reset();
    struct server_in_trouble {
        reply execute(const command& cmd) {
            const bool enters = cmd.argv()[1] == distlock::detail::shared_enter.sha1();
            if (cmd.argv()[0] != "SET" && !enters) return reply::integer(1);
            if (enters && !reads.exchange(true)) return granted("", 3'600'000);
            ++asked;
            const auto* const stop = cmd.stop();
            while (!answers && stop != nullptr && !stop->stop_requested()) std::this_thread::yield();
            return reply::error("LOADING the dataset");
        }
        std::atomic<bool> reads{false};
        std::atomic<int> asked{0};  // by the writer
        std::atomic<bool> answers{false};
    };
    const bool answered = GENERATE(true, false);
    server_in_trouble server;
    distlock::shared_mutex<server_in_trouble, manual_clock> m{
        server, "orders", {.lease = 1h, .renew = false, .patience = 1h}};
    m.lock_shared();
    const std::jthread writer([&](const std::stop_token& stop) {
        std::error_code ignored;
        m.lock(stop, ignored);
    });
    server.answers = answered;
    REQUIRE(eventually([&] {
        manual_clock::advance(1ms);
        return server.asked >= (answered ? 2 : 1);
    }));
    std::jthread time([](const std::stop_token& over) {
        eventually([&] {
            manual_clock::advance(10ms);
            return over.stop_requested();
        });
    });
    std::error_code ec = errc::deadlock;
    CHECK_FALSE(m.try_upgrade(ec));
    time.request_stop();
    time.join();
    CHECK_FALSE(ec);
    CHECK(m.shared_until() > manual_clock::now());
    CHECK(m.unlock_shared() == release_outcome::released);
}

namespace {

// Refuses everybody, the first one when it is told to; `then` runs before that, on the thread that asked.
template <class Then>
struct refusing_server {
    reply execute(const command&) {
        const bool is_first = asked.fetch_add(1) == 0;
        while (is_first ? !first : !others) std::this_thread::yield();
        auto refused = reply::error("NOPERM x");
        then(is_first);
        return refused;
    }
    Then then;
    std::atomic<int> asked{0};
    std::atomic<bool> first{false};
    std::atomic<bool> others{false};
};

}  // namespace

// Those that shared its answer waited for ever, and whoever came later.
TEST_CASE("a reader that fails and has no memory to say so lets the next one of its object ask") {
    NOT_TESTED_UNLESS(allocations_can_fail(), operator_new_is_not_ours);
    const bool of_the_first = GENERATE(true, false);
    bool failed = true;
    for (long nth = 1; failed; ++nth) {
        const auto short_of_memory = [&](bool is_first) {
            if (is_first == of_the_first) fail_allocation(nth);
        };
        refusing_server<decltype(short_of_memory)> server{short_of_memory};
        distlock::shared_mutex m{
            server, "a name that is long enough to need memory in a message", {.patience = 0ms}};
        std::atomic<int> had{0};
        failed = false;
        std::atomic<bool> one_failed{false};
        const auto read = [&] {
            std::error_code ignored;
            had += m.lock_shared(ignored);
            if (allocation_failed()) one_failed = true;
            fail_allocation(0);
        };
        sleeper first(read);
        REQUIRE(eventually([&] { return server.asked == 1; }));
        sleeper second(read);
        REQUIRE(second.sleeps());
        sleeper third(read);
        REQUIRE(third.sleeps());
        server.others = true;
        server.first = true;
        if (!eventually([&] { return first.done() && second.done() && third.done(); })) {
            FAIL_CHECK("they wait for ever");
            std::_Exit(1);
        }
        first.join();
        second.join();
        third.join();
        CHECK(had == 0);
        failed = one_failed;
        REQUIRE(nth < 50);
    }
}

TEST_CASE("a reader behind one that was stopped is not told of trouble that is over") {
    enum class phase { down, hanging, up };
    struct recovering_server {
        reply execute(const command& cmd) {
            if (now == phase::down) return reply::not_sent(errc::unreachable, "nobody listens");
            if (cmd.argv()[0] != "SET" && cmd.argv()[1] != distlock::detail::shared_enter.sha1())
                return reply::integer(1);
            if (now == phase::up) return granted("", 30'000);
            hold.pass();
            return reply::not_sent(errc::cancelled, "stopped");
        }
        std::atomic<phase> now{phase::down};
        gate hold;
    };
    recovering_server server;
    distlock::shared_mutex m{server, "orders", {.renew = false, .patience = 50ms}};
    std::error_code ec;
    CHECK_FALSE(m.lock_shared(ec));
    CHECK(ec == errc::unreachable);

    server.now = phase::hanging;
    std::stop_source source;
    std::error_code of_first;
    std::error_code of_second;
    bool had = false;
    sleeper first([&] { static_cast<void>(m.lock_shared(source.get_token(), of_first)); });
    REQUIRE(eventually([&] { return server.hold.reached(); }));
    sleeper second([&] { had = m.lock_shared(of_second); });
    REQUIRE(second.sleeps());
    const auto long_behind = distlock::clock::now() + 100ms;
    REQUIRE(eventually([&] { return distlock::clock::now() > long_behind; }));
    source.request_stop();
    server.now = phase::up;
    server.hold.open();
    first.join();
    second.join();
    CHECK(of_first == errc::cancelled);
    CHECK_FALSE(of_second);
    CHECK(had);
}

// It read on, and was told that it did not.
TEST_CASE("a reader that has no memory to become the writer is neither") {
    NOT_TESTED_UNLESS(allocations_can_fail(), operator_new_is_not_ours);
    const bool guarded = GENERATE(true, false);
    bool failed = true;
    for (long nth = 1; failed; ++nth) {
        REQUIRE(nth < 50);
        granting_server server;
        distlock::shared_mutex m{server, "orders", {.renew = false, .release = distlock::confirmed}};
        std::optional<distlock::shared_scoped_lock<decltype(m)>> guard;
        if (guarded) {
            guard.emplace(m);
        } else {
            m.lock_shared();
        }
        failed = false;
        fail_allocation(nth);
        try {
            static_cast<void>(m.try_upgrade());
        } catch (const std::exception&) {
            failed = true;
        }
        fail_allocation(0);
        if (!failed) continue;
        CHECK_FALSE(m.owns_lock());
        CHECK(m.shared_until() == distlock::clock::time_point{});
        if (guarded) CHECK_FALSE(guard->owns_lock());
        CHECK(m.unlock_shared() == release_outcome::not_held);
    }
}

// Where the readers had no memory it went on as the writer, and nobody knew.
TEST_CASE("a writer that has no memory to become a reader is neither, and keeps nobody out") {
    NOT_TESTED_UNLESS(allocations_can_fail(), operator_new_is_not_ours);
    struct counting_server {
        reply execute(const command& cmd) {
            if (cmd.argv()[0] == "SET") return reply::status("OK");
            if (cmd.argv()[1] == distlock::detail::shared_exchange.sha1()) return granted("", 30'000);
            ++released;
            return reply::integer(1);
        }
        std::atomic<int> released{0};
    };
    bool failed = true;
    for (long nth = 1; failed; ++nth) {
        REQUIRE(nth < 50);
        counting_server server;
        distlock::shared_mutex m{server, "orders", {.renew = false, .release = distlock::confirmed}};
        m.lock();
        failed = false;
        fail_allocation(nth);
        try {
            m.downgrade();
        } catch (const std::exception&) {
            failed = true;
        }
        fail_allocation(0);
        if (!failed) continue;
        CHECK_FALSE(m.owns_lock());
        CHECK(m.unlock_shared() == release_outcome::not_held);
        REQUIRE(eventually([&] { return server.released > 0; }));
    }
}

// It ended the read of another thread's guard: that thread was over, and the next had its id.
TEST_CASE("unlock_shared() does not end what a guard is to end") {
    scripted_connection redis{granted("", 30'000), reply::integer(1)};
    distlock::shared_mutex m{redis, "orders", {.renew = false}};
    {
        const distlock::shared_scoped_lock reads(m);
        CHECK(m.unlock_shared() == release_outcome::not_held);
        CHECK(reads.owns_lock());
        CHECK(redis.left() == 1);
    }
    CHECK(redis.left() == 0);
}

// It was answered about the one it had lost, and ended that: the other was renewed on, and kept writers out.
TEST_CASE("a thread that lost a read and reads anew is told of the new one, and ends that first") {
    manual_clock::reset();
    scripted_connection redis{granted("3", 10'000), granted("8", 10'000), reply::integer(1),
                              reply::integer(0)};
    distlock::shared_mutex<scripted_connection, manual_clock> m{
        redis, "orders", {.lease = 10s, .renew = false, .fencing = true, .release = distlock::confirmed}};
    std::shared_lock before(m);
    CHECK(m.shared_fencing_token() == 3);
    manual_clock::advance(10s);
    CHECK(m.shared_lost().stop_requested());
    std::shared_lock now(m);
    CHECK(m.shared_until() > manual_clock::now());
    CHECK_FALSE(m.shared_lost().stop_requested());
    CHECK(m.shared_fencing_token() == 8);
    now.release();
    CHECK(m.unlock_shared() == release_outcome::released);
    CHECK(redis.left() == 1);
    before.release();
    CHECK(m.unlock_shared() == release_outcome::expired);
    CHECK(m.unlock_shared() == release_outcome::not_held);
}

// It took the lock from the thread that wrote, which went on writing.
TEST_CASE("a thread does not downgrade what another one has locked") {
    scripted_connection redis{reply::status("OK"), reply::integer(1)};
    distlock::shared_mutex m{redis, "orders", {.renew = false}};
    m.lock();
    std::error_code ec;
    bool reads = true;
    std::jthread([&] { reads = m.downgrade(ec); }).join();
    CHECK_FALSE(reads);
    CHECK(ec == errc::not_held);
    CHECK(redis.commands().size() == 1);
    CHECK(m.owns_lock());
    CHECK(m.unlock() == release_outcome::released);
}

TEST_CASE(
    "a thread that has lost its hold neither becomes a reader nor the writer, though the server still has "
    "its key") {
    manual_clock::reset();
    using shared_mutex = distlock::shared_mutex<scripted_connection, manual_clock>;
    const distlock::lock_options ten_seconds{.lease = 30s, .renew = false, .max_hold = 10s};
    std::error_code ec;
    scripted_connection of_writer{reply::status("OK"), reply::integer(1)};
    shared_mutex writes{of_writer, "orders", ten_seconds};
    writes.lock();
    manual_clock::advance(10s);
    CHECK_FALSE(writes.downgrade(ec));
    CHECK(ec == errc::not_held);
    CHECK(writes.unlock() == release_outcome::expired);
    CHECK(of_writer.left() == 0);  // it was released
    scripted_connection of_reader{granted("", 30'000)};
    shared_mutex reads{of_reader, "orders", ten_seconds};
    reads.lock_shared();
    manual_clock::advance(10s);
    CHECK_FALSE(reads.try_upgrade(ec));
    CHECK(of_reader.commands().size() == 1);
}

// A script for each read cost a third more than a write.
TEST_CASE(
    "a reader that was alone and reads again at once takes the lock by one plain command; where somebody may "
    "wait for it, it asks the script") {
    manual_clock::reset();
    using shared_mutex = distlock::shared_mutex<scripted_connection, manual_clock>;
    const auto alone = granted("", 10'000);
    const auto set = reply::status("OK"), released = reply::integer(1);
    const auto beside =
        reply::array({reply::integer(1), reply::string(""), reply::integer(10'000), reply::integer(1)});
    const distlock::lock_options options{.lease = 10s, .renew = false, .local_budget = 0ms};
    struct reader {
        reader(std::initializer_list<reply> replies, const distlock::lock_options& how)
            : redis(replies), m(redis, "orders", how) {}
        /// Effects: reads for so long. Returns: the command that took the lock.
        std::string reads(distlock::clock::duration span = 0ms) {
            m.lock_shared();
            const auto asked = redis.commands().back().argv.at(0);
            manual_clock::advance(span);
            m.unlock_shared();
            return asked;
        }
        scripted_connection redis;
        shared_mutex m;
    };
    SECTION("at once, and again") {
        reader one{{alone, released, set, released, set, released}, options};
        CHECK(one.reads() == "EVALSHA");
        for (int i = 0; i < 2; ++i) {
            manual_clock::advance(4ms);
            CHECK(one.reads() == "SET");
        }
        CHECK(one.redis.left() == 0);
    }
    SECTION("somebody had it meanwhile, if only for the shortest lease") {
        reader one{{alone, released, alone, released}, options};
        one.reads();
        manual_clock::advance(distlock::min_lease / 2);
        CHECK(one.reads() == "EVALSHA");
    }
    SECTION("others read, too") {
        reader one{{beside, released, alone, released, set, released}, options};
        one.reads();
        CHECK(one.reads() == "EVALSHA");
        CHECK(one.reads() == "SET");
    }
    // It overtook a writer, where a reader that had been let in beside it died meanwhile.
    SECTION("it read for as long as another one's lease may last") {
        reader one{{alone, released, alone, released}, options};
        one.reads(distlock::min_lease / 2);
        CHECK(one.reads() == "EVALSHA");
    }
    SECTION("it had been lost when it was released") {
        reader one{{alone, reply::integer(0), alone, released}, options};
        one.reads(10s);
        CHECK(one.reads() == "EVALSHA");
    }
    SECTION("its lease is over when it reads again") {
        reader one{{alone, released, alone, released}, options};
        one.m.lock_shared();
        manual_clock::advance(one.m.shared_until() - manual_clock::now() - 2ms);
        one.m.unlock_shared();
        manual_clock::advance(2ms);
        CHECK(one.reads() == "EVALSHA");
    }
    SECTION("it writes: that says nothing of readers") {
        reader one{{set, released, alone, released}, options};
        one.m.lock();
        one.m.unlock();
        CHECK(one.reads() == "EVALSHA");
    }
}

// Some four of a hundred were told that somebody else has it, on a busy machine.
TEST_CASE("a try comes after what its object has released, be it for reading or writing") {
    for (const bool once : {true, false}) {
        late_posts server;
        distlock::shared_mutex m{server, "orders", {.renew = false}};
        for (int i = 0; i < 2; ++i) {
            REQUIRE((once ? m.try_lock_shared() : m.try_lock_shared_for(0ms)));
            CHECK(m.unlock_shared() == release_outcome::posted);
            REQUIRE((once ? m.try_lock() : m.try_lock_for(0ms)));
            CHECK(m.unlock() == release_outcome::posted);
        }
        // Of what nobody of the object has released nothing is hoped for.
        REQUIRE(m.try_lock());
        bool had = true;
        std::jthread([&] { had = m.try_lock_shared(); }).join();
        CHECK_FALSE(had);
    }
}

// An observer was told of a risk by each renewal that came between, were it refused or not.
TEST_CASE("a renewal while its writer becomes a reader is no loss, and no risk") {
    const auto answer = GENERATE(-1, 1);
    manual_clock::reset();
    struct exchanging_server {
        reply execute(const command& cmd) {
            if (cmd.argv()[0] == "SET") return reply::status("OK");
            if (cmd.argv()[1] == distlock::detail::plain_renew.sha1()) {
                ++renewals;
                return reply::integer(answer);
            }
            if (cmd.argv()[1] != distlock::detail::shared_exchange.sha1()) return reply::integer(1);
            // That it is tried again shows what was made of it.
            CHECK(eventually([&] {
                manual_clock::advance(10ms);
                return renewals >= 2 || losses > 0;
            }));
            return granted("", 30'000);
        }
        const int answer;
        std::atomic<int> renewals{0};
        std::atomic<int> losses{0};
        std::atomic<int> risks{0};
    };
    struct observing final : distlock::lease_observer {
        explicit observing(exchanging_server& at) : server(at) {}
        void lost(const std::string&, distlock::loss_reason) override { ++server.losses; }
        void at_risk(const std::string&, distlock::clock::duration) override { ++server.risks; }
        exchanging_server& server;
    };
    exchanging_server server{answer};
    distlock::shared_mutex<exchanging_server, manual_clock> m{server,
                                                              "orders",
                                                              {.lease = 30s, .release = distlock::confirmed},
                                                              std::make_shared<observing>(server)};
    m.lock();
    m.downgrade();
    CHECK(server.losses == 0);
    CHECK(server.risks == 0);
    CHECK(m.unlock_shared() == release_outcome::released);
}

TEST_CASE("a reader that was refused as the writer is told of a loss as before") {
    manual_clock::reset();
    struct losing_server {
        reply execute(const command& cmd) {
            if (cmd.argv()[1] == distlock::detail::shared_exchange.sha1()) return taken();
            if (cmd.argv()[1] == distlock::detail::shared_renew.sha1()) return reply::integer(0);
            return granted("", 30'000);
        }
    };
    struct observing final : distlock::lease_observer {
        void lost(const std::string&, distlock::loss_reason) override { ++losses; }
        std::atomic<int> losses{0};
    };
    losing_server server;
    const auto seen = std::make_shared<observing>();
    distlock::shared_mutex<losing_server, manual_clock> m{server, "orders", {.lease = 30s}, seen};
    const auto began = manual_clock::now();
    m.lock_shared();
    CHECK_FALSE(m.try_upgrade());
    CHECK(eventually([&] {
        manual_clock::advance(10ms);
        return seen->losses == 1;
    }));
    CHECK(manual_clock::now() < began + 20s);  // by the first renewal, not by the end of the lease
    m.unlock_shared();
}

namespace {

// A thread that locks, and lives on: its id is no other thread's.
class other_owner {
  public:
    template <class Mutex>
    explicit other_owner(Mutex& m)
        : thread_([this, &m] {
              m.lock();
              may_end_.pass();
          }) {
        CHECK(eventually([&] { return may_end_.reached(); }));
    }
    ~other_owner() { may_end_.open(); }

  private:
    gate may_end_;
    std::jthread thread_;
};

// Preconditions: another thread has the lock, in the place of the calling one.
template <class Mutex>
void check_that_one_unlock_is_to_come(Mutex& m, scripted_connection& redis) {
    CHECK_FALSE(m.owns_lock());
    CHECK(m.unlock() == release_outcome::expired);  // by a guard of the standard
    CHECK(m.owns_lock());
    redis.then(reply::integer(1));
    CHECK(m.unlock() == release_outcome::released);
}

using timed_mutex = distlock::shared_mutex<scripted_connection, manual_clock>;
constexpr lock_options timed{.lease = 10s, .renew = false};

// The calling thread has locked it, and lost it while it was to become a reader.
struct failed_downgrade {
    failed_downgrade() {
        manual_clock::reset();
        redis.then(reply::status("OK"));
        m.lock();
        redis.then(reply::error("OOM command not allowed"));
        redis.then(reply::integer(1));  // to the release in the background
        std::error_code ec;
        CHECK_FALSE(m.downgrade(ec));
        CHECK(ec == errc::out_of_memory);
        CHECK(eventually([&] { return redis.left() == 0; }));
    }

    scripted_connection redis;
    timed_mutex m{redis, "orders", timed};
};

void check_that_the_next_owner_keeps_it(timed_mutex& m, scripted_connection& redis) {
    redis.then(reply::status("OK"));
    const other_owner next(m);
    check_that_one_unlock_is_to_come(m, redis);
}

}  // namespace

// The unlock() of a std::unique_lock freed the next owner's lock: two wrote.
TEST_CASE("a writer that had lost its lock when it was to become a reader unlocks, which frees nothing") {
    manual_clock::reset();
    scripted_connection redis{reply::status("OK")};
    timed_mutex m{redis, "orders", timed};
    m.lock();
    manual_clock::advance(20s);
    std::error_code ec;
    CHECK_FALSE(m.downgrade(ec));
    CHECK(ec == errc::not_held);
    check_that_the_next_owner_keeps_it(m, redis);
    CHECK(redis.left() == 0);
}

TEST_CASE("a writer that could not become a reader unlocks once, which frees nothing") {
    failed_downgrade writer;
    auto& redis = writer.redis;
    auto& m = writer.m;
    CHECK_FALSE(m.owns_lock());
    SECTION("while another thread has the lock") { check_that_the_next_owner_keeps_it(m, redis); }
    SECTION("which is no other thread's unlock") {
        redis.then(reply::status("OK"));
        const other_owner next(m);
        redis.then(reply::integer(1));
        std::jthread([&] {
            CHECK(m.owns_lock());
            CHECK(m.unlock() == release_outcome::released);
        }).join();
    }
    SECTION("while nobody has it") {
        CHECK(m.unlock() == release_outcome::expired);
        CHECK(m.unlock() == release_outcome::not_held);
    }
    CHECK(redis.left() == 0);
}

// A retry in the catch block made the old guard's unlock() another owner's: two wrote.
TEST_CASE("a writer that could not become a reader, and locks again, still unlocks once in vain") {
    failed_downgrade writer;
    auto& redis = writer.redis;
    auto& m = writer.m;
    redis.then(reply::status("OK"));
    m.lock();
    CHECK(m.owns_lock());
    redis.then(reply::integer(1));
    CHECK(m.unlock() == release_outcome::released);
    check_that_the_next_owner_keeps_it(m, redis);
}

// It ended the guard's: the thread went on without the lock.
TEST_CASE("the unlock of a writer that could not become a reader does not end what a guard has taken since") {
    failed_downgrade writer;
    auto& redis = writer.redis;
    auto& m = writer.m;
    redis.then(reply::status("OK"));
    const distlock::scoped_lock again(m);
    CHECK(m.unlock() == release_outcome::expired);
    CHECK(again.owns_lock());
    redis.then(reply::integer(1));
    CHECK(m.unlock() == release_outcome::released);  // by hand, all the same
    CHECK_FALSE(again.owns_lock());
}

// Its thread did not see the lock that another one handed to it, nor could it unlock that.
TEST_CASE("a writer that loses its lock while it becomes a reader unlocks, which frees nothing") {
    manual_clock::reset();
    scripted_connection redis{reply::status("OK")};
    timed_mutex m{redis, "orders", timed};
    m.lock();
    std::optional<other_owner> next;
    redis.then(
        [&] {
            manual_clock::advance(20s);
            next.emplace(m);
        },
        taken());
    redis.then(reply::status("OK"));
    CHECK_THROWS_AS(m.downgrade(), distlock::error);
    check_that_one_unlock_is_to_come(m, redis);
}

namespace {

// While a lock is exchanged another thread does something first.
struct interrupted_server {
    reply execute(const command& cmd) {
        if (cmd.argv()[0] == "SET") return free.exchange(false) ? reply::status("OK") : reply::nil();
        const auto script = cmd.argv()[1];
        if (script == distlock::detail::shared_exchange.sha1()) {
            std::jthread(during).join();
            return exchanged;
        }
        const std::lock_guard guard(lock);
        const std::string token(cmd.argv()[3 + std::stoul(std::string(cmd.argv()[2]))]);
        if (script == distlock::detail::shared_enter.sha1()) {
            if (!reads.exchange(false)) return taken();
            readers.push_back(token);
            return granted("", 30'000);
        }
        if (script == distlock::detail::shared_leave.sha1()) released.push_back(token);
        return reply::integer(1);
    }
    /// Returns: how often the nth reader was released.
    std::ptrdiff_t releases_of(std::size_t n) {
        const std::lock_guard guard(lock);
        return n < readers.size() ? std::count(released.begin(), released.end(), readers[n]) : -1;
    }
    // What was released is not asked about again before it was looked at here.
    static std::chrono::milliseconds command_timeout() { return 10s; }
    std::function<void()> during;
    reply exchanged = granted("", 30'000);
    std::atomic<bool> free{true};
    std::atomic<bool> reads{true};
    std::mutex lock;
    std::vector<std::string> readers;   // tokens, as they came in
    std::vector<std::string> released;  // tokens
};

}  // namespace

// It was passed on, and downgrade() took it from the next thread: two wrote, and nobody was told.
TEST_CASE("a write that ends on another thread while it becomes a read passes the lock to no thread") {
    const bool guarded = GENERATE(true, false);
    interrupted_server server;
    server.reads = false;
    distlock::shared_mutex m{
        server, "orders", {.renew = false, .release = distlock::confirmed, .local_budget = 1h}};
    std::optional<distlock::scoped_lock<decltype(m)>> guard;
    if (guarded) {
        guard.emplace(m);
    } else {
        m.lock();
    }
    std::stop_source stop;
    bool wrote = false;
    sleeper writes([&] {
        std::error_code ec;
        wrote = m.lock(stop.get_token(), ec);
    });
    REQUIRE(writes.sleeps());
    server.during = [&] {
        if (guarded) {
            guard.reset();
        } else {
            m.unlock();
        }
    };
    std::error_code ec;
    CHECK(m.downgrade(ec) == !guarded);
    CHECK((m.shared_until() > distlock::clock::now()) == !guarded);
    CHECK_FALSE(m.owns_lock());
    stop.request_stop();
    writes.join();
    CHECK_FALSE(wrote);
    CHECK(m.unlock_shared() == (guarded ? release_outcome::not_held : release_outcome::released));
}

// The program crashed.
TEST_CASE(
    "a read that ends on another thread while it asks to become a write is over, whatever comes of that") {
    interrupted_server server;
    const auto answer = GENERATE(0, 1, 2);
    server.exchanged = answer == 0   ? taken()
                       : answer == 1 ? granted("", 30'000)
                                     : reply::no_answer(errc::no_reply, "the answer was lost");
    distlock::shared_mutex m{server, "orders", {.renew = false, .release = distlock::confirmed}};
    std::optional<distlock::shared_scoped_lock<decltype(m)>> guard(std::in_place, m);
    std::optional<distlock::shared_scoped_lock<decltype(m)>> next;
    server.during = [&] {
        if (next) return;  // a lost answer is asked for again
        guard.reset();
        server.reads = true;
        next.emplace(m);
    };
    std::error_code ec;
    CHECK_FALSE(m.try_upgrade(ec));
    CHECK((ec == errc::no_reply) == (answer == 2));
    CHECK_FALSE(m.owns_lock());
    CHECK(m.shared_until() == distlock::clock::time_point{});
    CHECK(m.unlock_shared() == release_outcome::not_held);
    // A token in doubt is released again and again.
    const auto is_over = [&](std::size_t reader) {
        const auto times = server.releases_of(reader);
        return answer == 2 ? times >= 1 : times == 1;
    };
    CHECK(eventually([&] { return is_over(0); }));
    CHECK(next->valid_until() > distlock::clock::now());  // by another grant
    CHECK(server.releases_of(1) == 0);
    next.reset();
    CHECK(eventually([&] { return is_over(1); }));
}

TEST_CASE("a reader becomes the writer after another one of its object has ended") {
    struct posting {
        reply execute(const command& cmd) { return inner.execute(cmd); }
        bool post(const command&, const std::shared_ptr<distlock::receipt>& = nullptr) { return true; }
        void collect() {}
        scripted_connection inner;
    };
    posting redis;
    for (const auto& answer :
         {granted("", 30'000), granted("", 30'000), taken(), reply::integer(1), granted("", 30'000)})
        redis.inner.then(answer);
    distlock::shared_mutex m{redis, "orders", {.renew = false, .local_budget = 0ms}};
    distlock::shared_scoped_lock other(m);
    m.lock_shared();
    { const auto ended = std::move(other); }
    CHECK(m.try_upgrade());
    CHECK(redis.inner.left() == 0);
    CHECK(m.owns_lock());
}

namespace {

/// The read of a guard has become a write, which its thread unlocks, or loses.
struct upgraded_guard {
    using mutex_type = distlock::shared_mutex<granting_server, manual_clock>;

    upgraded_guard() {
        manual_clock::reset();
        guard.emplace(m);
        CHECK(m.try_upgrade());
    }
    void let_another_thread_have_it() {
        manual_clock::advance(30s);
        std::jthread([this] { m.lock(); }).join();
    }

    granting_server server;
    mutex_type m{server, "orders", {.renew = false, .release = distlock::confirmed}};
    std::optional<distlock::shared_scoped_lock<mutex_type>> guard;
};

}  // namespace

TEST_CASE("a guard whose read has become a write that was unlocked takes nobody's unlock that is to come") {
    upgraded_guard was;
    CHECK(was.m.unlock() == release_outcome::released);
    was.m.lock();
    was.let_another_thread_have_it();
    was.guard.reset();
    CHECK(was.m.unlock() == release_outcome::expired);
    bool has = false;
    std::jthread([&] { has = was.m.owns_lock() && was.m.unlock() == release_outcome::released; }).join();
    CHECK(has);
}

TEST_CASE("a guard whose read has become a write that was lost leaves no unlock to come") {
    upgraded_guard was;
    SECTION("it ends") {
        was.let_another_thread_have_it();
        CHECK_FALSE(was.guard->owns_lock());
        was.guard.reset();
    }
    SECTION("it ends after another one that has upgraded, too") {
        manual_clock::advance(30s);
        {
            const distlock::shared_scoped_lock another(was.m);
            CHECK(was.m.try_upgrade());
        }
        was.let_another_thread_have_it();
        CHECK_FALSE(was.m.owns_lock());
        was.guard.reset();
    }
    CHECK(was.m.owns_lock());
    CHECK(was.m.unlock() == release_outcome::released);  // for the other thread
}

TEST_CASE("a write that a guard's read has become is not ended by a thread that has nothing") {
    upgraded_guard was;
    std::jthread([&] { CHECK(was.m.unlock() == release_outcome::not_held); }).join();
    CHECK(was.guard->owns_lock());
    std::jthread([&, moved = *std::move(was.guard)] { CHECK(moved.owns_lock()); }).join();
    CHECK_FALSE(was.m.owns_lock());
}

namespace {

// It knows by which token the lock is held: an exchange takes it from the last one.
struct remembering_server {
    reply execute(const command& cmd) {
        if (cmd.argv()[0] == "SET") {
            hold(cmd.argv()[2]);
            return reply::status("OK");
        }
        const std::string_view token = cmd.argv()[3 + std::stoul(std::string(cmd.argv()[2]))];
        const bool exchanges = calls(cmd, distlock::detail::shared_exchange);
        if (exchanges) during();
        if (exchanges || calls(cmd, distlock::detail::shared_enter)) {
            hold(token);
            return granted("", 30'000);
        }
        const std::lock_guard guard(lock);
        if (token == held) held.clear();
        return reply::integer(1);
    }
    void hold(std::string_view token) {
        const std::lock_guard guard(lock);
        held = token;
    }
    bool is_free() {
        const std::lock_guard guard(lock);
        return held.empty();
    }
    std::function<void()> during = [] {};
    std::mutex lock;
    std::string held;
};

}  // namespace

// The new acquisition was renewed for ever: no guard knew of it.
TEST_CASE("a guard that ends on another thread during an exchange ends what comes of it") {
    remembering_server server;
    distlock::shared_mutex m{server, "orders", {.renew = false, .release = distlock::confirmed}};
    using mutex_type = decltype(m);
    std::optional<distlock::scoped_lock<mutex_type>> writes;
    std::optional<distlock::shared_scoped_lock<mutex_type>> reads;
    const bool began_as_writer = GENERATE(true, false);
    if (began_as_writer) {
        writes.emplace(m);
    } else {
        reads.emplace(m);
    }
    const auto end_elsewhere = [&] {
        std::jthread([&] {
            writes.reset();
            reads.reset();
        }).join();
    };
    std::error_code ec;
    const auto exchange = [&](bool to_read) { return to_read ? m.downgrade(ec) : m.try_upgrade(ec); };
    const int nth = GENERATE(1, 2, 3);
    for (int i = 1; i < nth; ++i) REQUIRE(exchange(began_as_writer == (i % 2 == 1)));
    server.during = end_elsewhere;
    CHECK_FALSE(exchange(began_as_writer == (nth % 2 == 1)));
    CHECK(m.shared_until() == distlock::clock::time_point{});
    CHECK_FALSE(m.owns_lock());
    CHECK(m.unlock() == release_outcome::not_held);
    CHECK(m.unlock_shared() == release_outcome::not_held);
    CHECK(server.is_free());
}

TEST_CASE("a guard that ends while its thread goes on exchanging leaves nothing behind") {
    for (int i = 0; i < 400; ++i) {
        remembering_server server;
        distlock::shared_mutex m{server, "orders", {.renew = false, .release = distlock::confirmed}};
        std::optional<distlock::scoped_lock<decltype(m)>> guard(std::in_place, m);
        std::atomic<int> exchanged{0};
        std::jthread ends([&] {
            while (exchanged <= i % 16) {}
            guard.reset();
        });
        std::error_code ec;
        while (m.downgrade(ec) && m.try_upgrade(ec)) ++exchanged;
        ++exchanged;
        ends.join();
        REQUIRE(server.is_free());
    }
}

// It was "lost" for a moment in each: a worker that asked for lost() then was told so for ever.
TEST_CASE("a guard owns its lock throughout an exchange, whichever thread asks") {
    granting_server server;
    distlock::shared_mutex m{server, "orders"};
    const bool began_as_writer = GENERATE(true, false);
    std::optional<distlock::scoped_lock<decltype(m)>> writes;
    std::optional<distlock::shared_scoped_lock<decltype(m)>> reads;
    if (began_as_writer) {
        writes.emplace(m);
    } else {
        reads.emplace(m);
    }
    std::atomic<long> asked{0};
    std::atomic<bool> was_lost{false};
    std::jthread asks([&](const std::stop_token& over) {
        for (; !over.stop_requested(); ++asked) {
            const bool owns = writes ? writes->owns_lock() : reads->owns_lock();
            if (!owns || (writes ? writes->lost() : reads->lost()).stop_requested()) was_lost = true;
        }
    });
    for (int i = 0; i < 300 && !was_lost; ++i) {
        const long before = asked;
        if (began_as_writer) m.downgrade();
        REQUIRE(m.try_upgrade());
        if (!began_as_writer) m.downgrade();
        eventually([&] { return asked > before; });
    }
    asks.request_stop();
    asks.join();
    CHECK_FALSE(was_lost);
}

TEST_CASE("readers share a grant also after a thread that wrote nothing has asked to read on") {
    scripted_connection redis{granted("", 30'000)};
    distlock::shared_mutex m{redis, "orders", {.renew = false, .local_budget = 1h}};
    m.lock_shared();
    std::error_code ec;
    CHECK_FALSE(m.downgrade(ec));
    CHECK(ec == errc::not_held);
    bool reads = false;
    std::jthread([&] { reads = m.lock_shared(ec) && m.unlock_shared() == release_outcome::released; }).join();
    CHECK(reads);
    CHECK(redis.commands().size() == 1);
    redis.then(reply::integer(1));
    CHECK(m.unlock_shared() == release_outcome::released);
}

TEST_CASE("a child neither reads on where its parent writes nor writes where it reads") {
    scripted_connection redis{reply::status("OK"), reply::integer(1), granted("", 30'000), reply::integer(1)};
    distlock::shared_mutex m{redis, "orders", {.renew = false}};
    std::error_code ec;
    m.lock();
    CHECK(in_child([&] { return !m.downgrade(ec) && ec == errc::wrong_process; }));
    CHECK(m.unlock() == release_outcome::released);
    m.lock_shared();
    CHECK(in_child([&] { return !m.try_upgrade(ec) && ec == errc::wrong_process; }));
    CHECK(m.unlock_shared() == release_outcome::released);
}

TEST_CASE("a reader's guard that is assigned ends its own and has all of the other's, which has none") {
    scripted_connection redis{granted("7", 30'000), granted("8", 30'000), reply::integer(1)};
    distlock::shared_mutex first{redis, "orders", {.renew = false, .fencing = true}};
    distlock::shared_mutex second{redis, "prices", {.renew = false, .fencing = true}};
    distlock::shared_scoped_lock one(first);
    distlock::shared_scoped_lock other(second);
    one = std::move(other);
    CHECK(redis.left() == 0);
    CHECK(one.name() == "prices");
    CHECK(one.owns_lock());
    CHECK(one.fencing_token() == 8);
    CHECK_FALSE(other.owns_lock());  // NOLINT: what is left of it is promised
    CHECK(other.fencing_token() == 0);
    redis.then(reply::integer(1));
}

TEST_CASE("a reader's guard that moved to another thread is told of its loss there, and not before") {
    manual_clock::reset();
    scripted_connection redis{granted("", 10'000)};
    distlock::shared_mutex<scripted_connection, manual_clock> m{
        redis, "orders", {.lease = 10s, .renew = false}};
    distlock::shared_scoped_lock guard(m);
    bool early = true;
    bool in_time = false;
    std::jthread([&, mine = std::move(guard)] {
        const auto lost = mine.lost();
        early = lost.stop_requested();
        manual_clock::advance(10s);
        in_time = eventually([&] { return lost.stop_requested(); });
    }).join();
    CHECK_FALSE(early);
    CHECK(in_time);
}

TEST_CASE("a reader's guard goes by the clock of the mutex in what it says of its lease") {
    manual_clock::reset();
    scripted_connection redis{granted("", 10'000)};
    distlock::shared_mutex<scripted_connection, manual_clock> m{
        redis, "orders", {.lease = 10s, .renew = false}};
    const distlock::shared_scoped_lock guard(m);
    CHECK(guard.owns_lock());
    CHECK(guard.remaining() == guard.valid_until() - manual_clock::now());
    manual_clock::advance(10s);
    CHECK_FALSE(guard.owns_lock());
    CHECK(guard.remaining() == 0s);
}

TEST_CASE("a reader has its fencing token also after a loss, and so has its guard") {
    manual_clock::reset();
    scripted_connection redis{granted("7", 10'000)};
    distlock::shared_mutex<scripted_connection, manual_clock> m{
        redis, "orders", {.lease = 10s, .renew = false, .fencing = true}};
    const distlock::shared_scoped_lock guard(m);
    manual_clock::advance(10s);
    REQUIRE_FALSE(guard.owns_lock());
    CHECK(guard.fencing_token() == 7);
    CHECK(m.shared_fencing_token() == 7);
}

TEST_CASE("a child has no fencing token of what its parent reads") {
    scripted_connection redis{granted("7", 30'000), reply::integer(1)};
    distlock::shared_mutex m{redis, "orders", {.renew = false, .fencing = true}};
    m.lock_shared();
    CHECK(in_child([&] { return m.shared_fencing_token() == 0; }));
    CHECK(m.shared_fencing_token() == 7);
    CHECK(m.unlock_shared() == release_outcome::released);
}

namespace {

// Keeps the first that asks waiting until it is to answer.
struct slow_for_the_first {
    reply execute(const command& cmd) {
        const bool is_first = asked.fetch_add(1) == 0;
        while (is_first && !answers) std::this_thread::yield();
        if (cmd.argv()[0] == "SET") ++written;
        if (is_first) return writes ? reply::status("OK") : granted("", 30'000);
        return answers ? reply::integer(1) : writes ? granted("", 30'000) : taken();
    }
    const bool writes = true;  // the first one; otherwise the others are told that somebody has it
    std::atomic<int> asked{0};
    std::atomic<int> written{0};  // requests of writers
    std::atomic<bool> answers{false};
};

template <class Mutex>
auto reads_once(Mutex& m) {
    return [&m] {
        m.lock_shared();
        m.unlock_shared();
    };
}

}  // namespace

// The server alone knows who comes first: the writer's request may be there before theirs.
TEST_CASE("readers do not share a grant while a writer of their object waits") {
    const bool has_a_deadline = GENERATE(false, true);
    slow_for_the_first server;
    distlock::shared_mutex m{server, "orders", {.renew = false, .local_budget = 1h}};
    std::atomic<int> reading{0};
    const auto read = [&] {
        m.lock_shared();
        ++reading;
        while (!server.answers) std::this_thread::yield();
        m.unlock_shared();
    };
    sleeper writer([&] {
        if (!has_a_deadline) {
            m.lock();
        } else if (!m.try_lock_for(1h)) {
            return;
        }
        m.unlock();
    });
    CHECK(eventually([&] { return server.asked == 1; }));
    sleeper first(read);
    CHECK(eventually([&] { return reading == 1; }));
    sleeper second(read);
    CHECK(eventually([&] { return reading == 2; }));
    CHECK(server.asked == 3);
    server.answers = true;
}

TEST_CASE(
    "a reader whose time is up while another of its object asks is refused by the server, as a reader") {
    slow_for_the_first server{.writes = false};
    distlock::shared_mutex m{server, "orders", {.renew = false}};
    sleeper first(reads_once(m));
    CHECK(eventually([&] { return server.asked == 1; }));
    std::error_code ec;
    CHECK_FALSE(m.try_lock_shared_for(20ms, ec));
    CHECK_FALSE(ec);
    CHECK(server.asked > 1);
    CHECK(server.written == 0);
    server.answers = true;
}

TEST_CASE("readers that share a grant have its fencing token, whichever of them asked for it") {
    struct fencing_server {
        reply execute(const command&) {
            if (asked.fetch_add(1) > 0) return reply::integer(1);
            while (!answers) std::this_thread::yield();
            return granted("7", 30'000);
        }
        std::atomic<int> asked{0};
        std::atomic<bool> answers{false};
    };
    fencing_server server;
    distlock::shared_mutex m{server, "orders", {.renew = false, .fencing = true}};
    std::atomic<std::uint64_t> sum{0};
    const auto read = [&] {
        const distlock::shared_scoped_lock mine(m);
        sum += mine.fencing_token();
    };
    sleeper first(read);
    REQUIRE(eventually([&] { return server.asked == 1; }));
    sleeper second(read), third(read);
    CHECK(second.sleeps());
    CHECK(third.sleeps());
    server.answers = true;
    first.join();
    second.join();
    third.join();
    CHECK(sum == 3 * 7);
}

TEST_CASE("readers whose time is up while another of their object asks leave no memory behind") {
    slow_for_the_first server{.writes = false};
    distlock::shared_mutex m{server, "orders", {.renew = false}};
    sleeper first(reads_once(m));
    CHECK(eventually([&] { return server.asked == 1; }));
    const auto memory_for = [&](int readers) {
        const auto before = allocations();
        for (int i = 0; i < readers; ++i) static_cast<void>(m.try_lock_shared_for(1us));
        return allocations() - before;
    };
    memory_for(16);
    const auto usual = memory_for(16);
    CHECK(memory_for(16) == usual);
    CHECK(memory_for(16) == usual);
    CHECK(memory_for(128) == 8 * usual);
    server.answers = true;
}

namespace {

// In the hand of a writer, or in trouble, as a test says.
struct moody {
    reply execute(const command&) {
        ++asked;
        return troubled ? reply::no_answer(errc::no_reply, "no reply in time") : taken();
    }
    std::atomic<bool> troubled{false};
    std::atomic<int> asked{0};
};

// Three readers of one object. The first one has failed, before the patience of the others was spent; the
// server is itself again, and a writer has the lock.
struct readers_after_trouble {
    using shared_mutex = distlock::shared_mutex<moody, manual_clock>;

    // `reads(m, stop, ec)`: how the second one does.
    template <class Reads>
    explicit readers_after_trouble(Reads reads) {
        manual_clock::reset();
        server.troubled = true;
        first.emplace([this] { note(m.lock_shared(of_first)); });
        REQUIRE(first->sleeps());
        manual_clock::advance(500ms);
        second.emplace([this, reads] { note(reads(m, stop_second.get_token(), of_second)); });
        REQUIRE(second->sleeps());
        third.emplace([this] { note(m.lock_shared(stop_third.get_token(), of_third)); });
        REQUIRE(third->sleeps());
        manual_clock::advance(1400ms);
        CHECK(ends(*first, 1ms));
        CHECK(of_first == errc::no_reply);
        server.troubled = false;
    }
    void note(bool got) {
        if (got) had = true;
    }
    void check_third_waits() {
        CHECK(third->sleeps());
        CHECK_FALSE(third->done());
        stop_third.request_stop();
        third->join();
        CHECK_FALSE(had);
        CHECK(of_third == errc::cancelled);
    }

    moody server;
    shared_mutex m{server, "orders", {.renew = false, .patience = 2s}};
    std::error_code of_first;
    std::error_code of_second;
    std::error_code of_third;
    std::atomic<bool> had{false};
    std::stop_source stop_second;
    std::stop_source stop_third;
    std::optional<sleeper> first;
    std::optional<sleeper> second;
    std::optional<sleeper> third;
};

}  // namespace

// It failed at once, by the time that the other one had waited for a writer.
TEST_CASE("a reader's patience is spent by the server's trouble, not by the writer that others waited for") {
    manual_clock::reset();
    moody server;
    distlock::shared_mutex<moody, manual_clock> m{server, "orders", {.renew = false, .patience = 2s}};
    std::error_code of_first;
    bool had = false;
    sleeper first([&] { had = m.try_lock_shared_for(3s, of_first); });
    REQUIRE(first.sleeps());
    std::stop_source stop;
    std::error_code of_second;
    sleeper second([&] { had = m.lock_shared(stop.get_token(), of_second) || had; });
    REQUIRE(second.sleeps());
    manual_clock::advance(2900ms);
    server.troubled = true;
    CHECK(ends(first));
    CHECK(of_first == errc::no_reply);
    const int asked = server.asked;
    CHECK(eventually([&] {
        manual_clock::advance(1ms);
        return server.asked > asked || second.done();
    }));
    CHECK_FALSE(second.done());
    stop.request_stop();
    second.join();
    CHECK_FALSE(had);
    CHECK(of_second == errc::cancelled);
}

namespace {

// A reader waits for a server in trouble, by `enter(m, ec)`, and another one of its object, which came so
// much later, behind it.
struct readers_in_trouble {
    using shared_mutex = distlock::shared_mutex<moody, manual_clock>;

    template <class Enter>
    readers_in_trouble(const distlock::lock_options& options, Enter enter, std::chrono::milliseconds later)
        : m(server, "orders", options) {
        manual_clock::reset();
        server.troubled = true;
        first.emplace([this, enter] { had = enter(m, of_first); });
        REQUIRE(eventually([&] { return server.asked > 0; }));
        REQUIRE(first->sleeps());
        manual_clock::advance(later);
        came = manual_clock::now();
        second.emplace([this] { had = m.lock_shared(stop.get_token(), of_second) || had; });
        REQUIRE(second->sleeps());
    }

    // The second one waits on when the first one has failed.
    void check_that_the_second_waits_on() {
        CHECK(ends(*first, 1ms));
        CHECK(of_first == errc::no_reply);
        CHECK(second->sleeps());
        CHECK_FALSE(second->done());
        stop.request_stop();
        second->join();
        CHECK_FALSE(had);
        CHECK(of_second == errc::cancelled);
    }

    moody server;
    shared_mutex m;
    std::error_code of_first;
    std::error_code of_second;
    std::stop_source stop;
    bool had = false;
    manual_clock::time_point came;
    std::optional<sleeper> first;
    std::optional<sleeper> second;
};

const auto for_ever = [](readers_in_trouble::shared_mutex& m, std::error_code& ec) {
    return m.lock_shared(ec);
};

}  // namespace

TEST_CASE("a reader that comes late to others of its object has a patience of its own") {
    readers_in_trouble of({.renew = false, .patience = 2s}, for_ever, 1900ms);
    of.check_that_the_second_waits_on();
}

// It asked for a whole patience more.
TEST_CASE("a reader that waits behind another one for a silent server fails when its own patience is over") {
    readers_in_trouble of({.renew = false, .patience = 2s}, for_ever, 100ms);
    CHECK(ends(*of.first));
    CHECK(of.of_first == errc::no_reply);
    CHECK(ends(*of.second));
    CHECK(of.of_second == errc::no_reply);
    CHECK(manual_clock::now() - of.came >= 2s);
    CHECK(manual_clock::now() - of.came <= 2500ms);
    CHECK_FALSE(of.had);
}

// A mutex's threads had that, too: the product overflowed, and there was no patience at all.
TEST_CASE("readers that wait for another one of their object share any patience") {
    readers_in_trouble of(
        {.renew = false, .patience = std::chrono::hours::max()},
        [](auto& m, std::error_code& ec) { return m.try_lock_shared_for(3s, ec); }, 0ms);
    of.check_that_the_second_waits_on();
}

// It was told of a trouble that had ended long before.
TEST_CASE("a reader hears of no trouble that ended while another of its object asked") {
    readers_after_trouble of(
        [](auto& m, const std::stop_token&, std::error_code& ec) { return m.try_lock_shared_for(6s, ec); });
    CHECK(ends(*of.second));
    CHECK_FALSE(of.of_second);
    of.check_third_waits();
}

// The next one was woken, and told of what had been over for seconds.
TEST_CASE("a reader hears of no trouble that ended before another one of its object was stopped") {
    readers_after_trouble of(
        [](auto& m, const std::stop_token& stop, std::error_code& ec) { return m.lock_shared(stop, ec); });
    const int asked = of.server.asked;
    CHECK(eventually([&] {
        manual_clock::advance(10ms);
        return of.server.asked > asked;
    }));
    manual_clock::advance(2s);
    of.stop_second.request_stop();
    of.second->join();
    CHECK(of.of_second == errc::cancelled);
    of.check_third_waits();
}

TEST_CASE("a stop request wakes a reader that waits behind another of its object, limited in time or not") {
    struct slow_server {
        reply execute(const command& cmd) {
            if (!calls(cmd, distlock::detail::shared_enter)) return reply::integer(1);
            hold.pass();
            return granted("", 30'000);
        }
        gate hold;
    };
    const bool limited = GENERATE(true, false);
    slow_server server;
    distlock::shared_mutex m{server, "orders", {.renew = false}};
    sleeper first([&] {
        m.lock_shared();
        m.unlock_shared();
    });
    REQUIRE(eventually([&] { return server.hold.reached(); }));
    std::stop_source stop;
    std::error_code ec;
    bool had = true;
    distlock::clock::time_point ended;
    sleeper second([&] {
        const auto token = stop.get_token();
        had = limited ? m.try_lock_shared_for(1min, token, ec) : m.lock_shared(token, ec);
        ended = distlock::clock::now();
    });
    const bool waited = second.sleeps() && !second.done();
    const auto asked = distlock::clock::now();
    stop.request_stop();
    second.join();
    server.hold.open();
    first.join();
    CHECK(waited);
    CHECK(ended - asked < timing_tolerance);
    CHECK_FALSE(had);
    CHECK(ec == errc::cancelled);
}

// The request that was late made it an owner again, whom nobody knew.
TEST_CASE("a writer's request in doubt is looked for also after the writer has become a reader") {
    manual_clock::reset();
    const auto lost = reply::no_answer(errc::no_reply, "the answer was lost");
    scripted_connection redis{lost, granted("", 30'000), granted("", 30'000)};
    distlock::shared_mutex<scripted_connection, manual_clock> m{
        redis, "orders", {.lease = 30s, .renew = false, .release = distlock::confirmed}};
    m.lock();
    const auto first = redis.commands().at(0).argv.at(2);
    redis.then(reply::integer(-1));
    m.downgrade();
    const auto left = [&] {
        const auto all = redis.commands();
        return std::count_if(all.begin(), all.end(), [&](const auto& one) {
            return one.argv[0] == "EVALSHA" && one.argv[1] == distlock::detail::shared_leave.sha1() &&
                   std::find(one.argv.begin(), one.argv.end(), first) != one.argv.end();
        });
    };
    REQUIRE(eventually([&] { return left() == 1; }));
    CHECK(m.residual() > 0ms);
    redis.then(reply::integer(1));
    CHECK(eventually([&] {
        manual_clock::advance(10ms);
        return left() >= 2;
    }));
    CHECK(m.unlock_shared() != release_outcome::not_held);
}

TEST_CASE(
    "a reader that has no patience shares the trouble of another of its object, and asks nobody itself") {
    manual_clock::reset();
    struct busy_server {
        reply execute(const command&) {
            ++asked;
            while (!answers) std::this_thread::yield();
            return reply::error("LOADING the dataset");
        }
        std::atomic<int> asked{0};
        std::atomic<bool> answers{false};
    };
    busy_server server;
    distlock::shared_mutex<busy_server, manual_clock> m{server, "orders", {.renew = false, .patience = 0ms}};
    std::error_code of_first;
    std::error_code of_second;
    sleeper first([&] { m.lock_shared(of_first); });
    CHECK(eventually([&] { return server.asked == 1; }));
    std::string said;
    sleeper second([&] {
        try {
            m.lock_shared();
        } catch (const distlock::error& e) {
            of_second = e.code();
            said = e.what();
        }
    });
    CHECK(second.sleeps());
    server.answers = true;
    first.join();
    second.join();
    CHECK(of_first == errc::unavailable);
    CHECK(of_second == errc::unavailable);
    CHECK_THAT(said, contains_text("lock orders"));
    CHECK(server.asked == 1);
}

TEST_CASE("readers and writers, and permits, have no options that a mutex may not have") {
    struct timed {
        reply execute(const command&) { return reply::nil(); }
        std::chrono::milliseconds command_timeout() const { return 200ms; }
    };
    timed redis;
    const auto code = [](auto make) {
        try {
            make();
        } catch (const distlock::error& e) {
            return e.code();
        }
        return std::error_code();
    };
    const auto refusals = [&](const distlock::lock_options& options) {
        return std::pair(code([&] { distlock::shared_mutex(redis, "orders", options); }),
                         code([&] { distlock::counting_semaphore(redis, "orders", 3, options); }));
    };
    const auto both = [](errc why) { return std::pair(make_error_code(why), make_error_code(why)); };
    CHECK(refusals({.lease = 0s}) == both(errc::invalid_lease));
    CHECK(refusals({.lease = 150ms}) == both(errc::invalid_lease));  // the command time-out is 200 ms
    CHECK(refusals({.patience = -1ms}) == both(errc::invalid_option));
    CHECK(refusals({.lease = 30s}) == std::pair(std::error_code(), std::error_code()));
}

namespace {

// Answers so many readers that ask as it is told to, and every writer and release.
struct patient_server {
    reply execute(const command& cmd) {
        if (cmd.argv()[0] == "SET") return reply::status("OK");
        if (cmd.argv()[1] != distlock::detail::shared_enter.sha1()) return reply::integer(1);
        const int nth = ++asked;
        while (nth > answers) std::this_thread::yield();
        return nth == refuses ? reply::error("NOPERM x") : granted("", 30'000);
    }
    std::atomic<int> asked{0};
    std::atomic<int> answers{1};
    std::atomic<int> refuses{0};  // the one of that number
};

}  // namespace

// All readers of an object slept while one of them asked for the next batch.
TEST_CASE("readers go on joining a batch while one of them asks for the next") {
    manual_clock::reset();
    patient_server server;
    distlock::shared_mutex<patient_server, manual_clock> m{
        server, "orders", {.renew = false, .local_budget = 10s}};
    const auto read = [&m] {
        m.lock_shared();
        m.unlock_shared();
    };
    const auto another_reads = [&read] { std::jthread{read}.join(); };
    m.lock_shared();
    another_reads();
    CHECK(server.asked == 1);
    manual_clock::advance(8s);
    sleeper asks(read);
    REQUIRE(eventually([&] { return server.asked == 2; }));
    SECTION("they are let in at once") {
        another_reads();
        another_reads();
        CHECK(server.asked == 2);
        server.answers = 2;
    }
    SECTION("they wait for the next once the time of this one is over") {
        manual_clock::advance(5s);
        sleeper waits(read);
        CHECK(waits.sleeps());
        server.answers = 2;
        waits.join();
        CHECK(server.asked == 2);
    }
    SECTION("they wait for the next once nobody reads") {
        m.unlock_shared();
        sleeper waits(read);
        CHECK(waits.sleeps());
        server.answers = 2;
        waits.join();
        CHECK(server.asked == 2);
        server.answers = 3;
        m.lock_shared();
    }
    SECTION("a try joins whatever time is left") {
        CHECK(m.try_lock_shared());
        CHECK(m.unlock_shared() == release_outcome::released);
        CHECK(server.asked == 2);
        server.answers = 2;
    }
    asks.join();
    CHECK(m.unlock_shared() == release_outcome::released);
}

// It had the grant for as long as that still lasted: 9.8 ms of 300.
TEST_CASE(
    "a reader joins while half of the lease is left, and of the longest hold, and asks for its own then") {
    const bool by_hold = GENERATE(false, true);
    manual_clock::reset();
    patient_server server;
    server.answers = 2;
    const distlock::lock_options leased{.lease = 30s, .renew = false, .local_budget = 1h};
    const distlock::lock_options held{.lease = 30s, .renew = false, .max_hold = 20s, .local_budget = 1h};
    const std::chrono::seconds half = by_hold ? 10s : 15s;
    distlock::shared_mutex<patient_server, manual_clock> m{server, "orders", by_hold ? held : leased};
    const auto another_reads = [&m] { std::jthread{reads_once(m)}.join(); };
    m.lock_shared();
    manual_clock::advance(half - 3s);
    another_reads();
    CHECK(server.asked == 1);
    manual_clock::advance(3s);
    another_reads();
    CHECK(server.asked == 2);
    CHECK(m.unlock_shared() == release_outcome::released);
}

TEST_CASE("readers go on joining a grant whose lease is renewed") {
    manual_clock::reset();
    patient_server server;
    distlock::shared_mutex<patient_server, manual_clock> m{
        server, "orders", {.lease = 30s, .local_budget = 1h}};
    m.lock_shared();
    for (int i = 0; i < 4; ++i) {
        const auto until = m.shared_until();
        manual_clock::advance(11s);
        REQUIRE(eventually([&] { return m.shared_until() > until; }));
        std::jthread{reads_once(m)}.join();
    }
    CHECK(server.asked == 1);
    CHECK(m.unlock_shared() == release_outcome::released);
}

TEST_CASE("a reader joins a grant that is renewed until half of its longest hold is over") {
    manual_clock::reset();
    patient_server server;
    server.answers = 2;
    distlock::shared_mutex<patient_server, manual_clock> m{
        server, "orders", {.lease = 30s, .max_hold = 100s, .local_budget = 1h}};
    m.lock_shared();
    for (int i = 1; i <= 5; ++i) {
        const auto until = m.shared_until();
        manual_clock::advance(11s);
        REQUIRE(eventually([&] { return m.shared_until() > until; }));
        CHECK(m.try_lock_shared());
        CHECK(server.asked == (i < 5 ? 1 : 2));
        CHECK(m.unlock_shared() == release_outcome::released);
    }
    CHECK(m.unlock_shared() == release_outcome::released);
}

TEST_CASE("when a reader that asked for the next batch was refused, the next one asks for it") {
    manual_clock::reset();
    patient_server server;
    server.answers = 3;
    server.refuses = 2;
    distlock::shared_mutex<patient_server, manual_clock> m{
        server, "orders", {.renew = false, .local_budget = 10s}};
    m.lock_shared();
    manual_clock::advance(8s);
    std::error_code ec;
    std::jthread([&] { m.lock_shared(ec); }).join();
    CHECK(ec == errc::permission_denied);
    std::jthread(reads_once(m)).join();
    CHECK(server.asked == 3);
    CHECK(m.unlock_shared() == release_outcome::released);
}

TEST_CASE("readers share a grant again once a writer of their object has ended") {
    patient_server server;
    server.answers = 2;
    distlock::shared_mutex m{server, "orders", {.renew = false, .local_budget = 1h}};
    m.lock();
    CHECK(m.unlock() == release_outcome::released);
    m.lock_shared();
    std::jthread([&m] {
        m.lock_shared();
        m.unlock_shared();
    }).join();
    CHECK(server.asked == 1);
    CHECK(m.unlock_shared() == release_outcome::released);
}

TEST_CASE("a reader that several locks at once gave back has not read: hold_at_least keeps nobody out") {
    const bool reads = GENERATE(false, true);
    const bool has_read = GENERATE(false, true);
    scripted_connection readers;
    if (reads) readers.then(granted("", 41'000));
    if (has_read) readers.then(granted("", 41'000));
    readers.then(granted("", 41'000));
    readers.then(reply::integer(1));
    scripted_connection others{reply::nil(), taken(), taken(), taken()};
    distlock::shared_mutex a{readers, "a", {.lease = 41s, .renew = false, .hold_at_least = 40s}};
    distlock::mutex b{others, "b"};
    if (reads) a.lock_shared();  // this one has read
    if (has_read) {
        a.lock_shared();
        CHECK(a.unlock_shared() == release_outcome::posted);
    }
    std::shared_lock first(a, std::defer_lock);
    std::unique_lock second(b, std::defer_lock);
    CHECK_FALSE(distlock::try_lock_for(0ms, first, second));
    CHECK(readers.left() == 0);
    if (reads) CHECK(a.unlock_shared() == release_outcome::posted);
}

TEST_CASE(
    "a grant that one reader has read under is kept for hold_at_least, though another one gave it back "
    "last") {
    struct slow_server {
        reply execute(const command& cmd) {
            if (cmd.argv()[1] != distlock::detail::shared_enter.sha1()) {
                ++released;
                return reply::integer(1);
            }
            asked.pass();
            return granted("", 41'000);
        }
        gate asked;
        std::atomic<int> released{0};
    };
    struct refusing {
        reply execute(const command&) {
            other_reads_no_more.open();
            over.pass();
            return reply::error("NOPERM x");
        }
        gate other_reads_no_more;
        gate over;
    };
    refusing others;
    slow_server readers;
    distlock::shared_mutex a{readers, "a", {.lease = 41s, .renew = false, .hold_at_least = 40s}};
    distlock::mutex b{others, "b"};
    sleeper reader([&] {
        a.lock_shared();
        others.other_reads_no_more.pass();
        a.unlock_shared();
        others.over.open();
    });
    REQUIRE(eventually([&] { return readers.asked.reached(); }));
    std::error_code why;
    sleeper both([&] {
        std::shared_lock first(a, std::defer_lock);
        std::unique_lock second(b, std::defer_lock);
        try {
            static_cast<void>(distlock::try_lock_for(1h, first, second));
        } catch (const distlock::error& e) {
            why = e.code();
        }
    });
    REQUIRE(both.sleeps());
    readers.asked.open();
    both.join();
    reader.join();
    CHECK(why == errc::permission_denied);
    CHECK(readers.released == 0);
}

// It did, for local_budget, and kept others out for as much less than hold_at_least.
TEST_CASE("no reader joins a grant that is to be held for a least time: its own would be shorter") {
    scripted_connection redis{granted("", 41'000), granted("", 41'000)};
    distlock::shared_mutex m{
        redis, "a", {.lease = 41s, .renew = false, .hold_at_least = 40s, .local_budget = 1h}};
    m.lock_shared();
    std::thread([&] {
        m.lock_shared();
        m.unlock_shared();
    }).join();
    CHECK(redis.commands().size() == 2);
    CHECK(m.unlock_shared() == release_outcome::posted);
}

}  // namespace shared_object_tests
