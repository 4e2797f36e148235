// A release that no thread waits for: when it counts as done, and what is asked when nothing is heard of it.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/base/token.hpp>
#include <distlock/engine/background_io.hpp>
#include <distlock/engine/background_release.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/testing/manual_clock.hpp>
#include <distlock/wire/channel_kind.hpp>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/io_over.hpp"
#include "support/release_fixtures.hpp"
#include "support/replaced_master.hpp"
#include "support/tokens_in_doubt.hpp"
#include "support/waiting.hpp"

namespace background_release_tests {

namespace {

using namespace release_test;
using distlock::engine::background_io;
using distlock::engine::background_release;
using distlock::engine::certainty;
using distlock::engine::release;

const token first = token::generate();
const token second = token::generate();

template <class Conn>
struct background {
    using tested = background_release;

    background() { manual_clock::reset(); }

    static release until(time_point expiry, certainty sure = certainty::granted) { return {sure, expiry}; }
    bool post(const token& owner = first, std::size_t most = background_io::most_adopted) {
        return post_by(it, owner, most);
    }
    static bool post_by(const std::shared_ptr<tested>& one, const token& owner,
                        std::size_t most = background_io::most_adopted) {
        return tested::post(one, {owner, until(manual_clock::now() + lease), answer_time}, most) ==
               tested::posting::sent;
    }
    /// Returns: one of another lock object.
    std::shared_ptr<tested> another() { return std::make_shared<tested>(*io, dialect); }
    void repeat(const token& owner = first, certainty sure = certainty::granted,
                distlock::clock::duration expiry = lease) {
        tested::repeat(it, owner, until(manual_clock::now() + expiry, sure), manual_clock::now());
    }
    bool pends() { return !it->pending().empty(); }
    /// Returns: whether it is confirmed by and by, while time goes on.
    bool confirmed() {
        return eventually([&] {
            manual_clock::advance(1ms);
            return !pends();
        });
    }
    scripted_connection& script() { return redis.inner; }

    /// Returns: what was executed by and by, when that is so much.
    words asked(std::size_t count) {
        if (!eventually([&] { return script().commands().size() >= count; })) return {};
        return executed_by(script());
    }
    /// Returns: the same, while time goes on.
    words asked_by_and_by(std::size_t count) {
        REQUIRE(eventually([&] {
            manual_clock::advance(10ms);
            return script().commands().size() >= count;
        }));
        return asked(count);
    }
    /// Returns: what was executed when all that is due has been done.
    words asked_by_now() {
        // What is repeated from now on is due after all that was before.
        script().then(done);
        const auto last = another();
        tested::repeat(last, token::generate(), until(manual_clock::now() + lease), manual_clock::now());
        const bool over = eventually([&] { return last->pending().empty(); });
        REQUIRE(over);
        words all = asked(1);
        all.pop_back();
        return all;
    }
    /// Returns: whether the answer is looked for when the time has moved.
    bool collects_after(distlock::clock::duration span) {
        const int before = redis.collected;
        manual_clock::advance(span);
        return eventually([&] { return redis.collected > before; });
    }

    Conn redis;
    std::shared_ptr<background_io> io = std::make_shared<io_over<Conn, manual_clock>>(redis);
    std::shared_ptr<tested> it = std::make_shared<tested>(*io, dialect);
};
using posted = background<posting>;

}  // namespace

// ---- posted ----------------------------------------------------------------------------------------------

TEST_CASE("a posted release is pending until the server has said that the key is not ours") {
    for (const int word : {1, 2, 0, -1}) {
        posted r;
        CHECK_FALSE(r.pends());
        CHECK(r.it->latest_expiry() == time_point{});
        REQUIRE(r.post());
        CHECK(r.it->pending() == first);
        CHECK(r.it->latest_expiry() == manual_clock::now() + lease);
        r.redis.receipts[0]->settle(reply::integer(word));
        CHECK_FALSE(r.pends());
        CHECK(r.it->latest_expiry() == time_point{});
        manual_clock::advance(1s);
        CHECK(r.asked_by_now().empty());
    }
}

TEST_CASE("a posted release is pending no longer than its lease") {
    posted r;
    REQUIRE(r.post());
    manual_clock::advance(lease - 1ns);
    CHECK(r.pends());
    manual_clock::advance(1ns);
    CHECK_FALSE(r.pends());
    CHECK(r.it->latest_expiry() == time_point{});
}

TEST_CASE("a release that could not be posted is not pending, and is not asked for") {
    for (const bool throws : {false, true}) {
        posted r;
        r.redis.takes = false;
        r.redis.post_throws = throws;
        CHECK_FALSE(r.post());
        CHECK_FALSE(r.pends());
        manual_clock::advance(1s);
        CHECK(r.asked_by_now().empty());
        r.redis.takes = true;
        r.redis.post_throws = false;
        CHECK(r.post());
        CHECK(r.pends());
    }
}

TEST_CASE("a posted release is pending also once the one before it is known to be done") {
    posted r;
    REQUIRE(r.post(first));
    REQUIRE(r.post(second));
    r.it->confirm(first);
    CHECK(r.it->pending() == second);
    r.it->confirm(second);
    CHECK_FALSE(r.pends());
}

TEST_CASE("a posted release carries the script until the server is known to have it") {
    const bool is_asked_about = GENERATE(true, false);
    posted r;
    const auto post = [&](const reply& answer, bool confirms) {
        REQUIRE(r.post());
        r.redis.receipts.back()->settle(answer);
        if (is_asked_about) CHECK(r.pends() != confirms);
        r.it->confirm();
        return r.redis.posted.back().at(0);
    };
    CHECK(post(reply::integer(1), true) == "EVAL");
    CHECK(post(reply::integer(1), true) == "EVALSHA");
    CHECK(post(reply::error("NOSCRIPT No matching script"), false) == "EVALSHA");
    CHECK(post(reply::integer(2), true) == "EVAL");
    CHECK(post(lost, false) == "EVALSHA");
    CHECK(post(reply::integer(0), true) == "EVAL");
    CHECK(post(reply::integer(1), true) == "EVALSHA");
}

// Each object had to be told: a mutex made for each use sent the script with every unlock().
TEST_CASE(
    "the script that a server is known to have is known to all of a connection, until its master changes") {
    posted r;
    const auto other = r.another();
    const auto post = [&](const std::shared_ptr<posted::tested>& by, const reply& answer) {
        REQUIRE(posted::post_by(by, first));
        r.redis.receipts.back()->settle(answer);
        by->confirm();
        return r.redis.posted.back().at(0);
    };
    CHECK(post(r.it, done) == "EVAL");
    CHECK(post(other, done) == "EVALSHA");
    CHECK(post(other, reply::error("NOSCRIPT No matching script")) == "EVALSHA");
    CHECK(post(r.it, done) == "EVAL");
    CHECK(post(other, done) == "EVALSHA");
    r.io->scripts().forget();
    CHECK(post(r.it, done) == "EVAL");
}

TEST_CASE("another master is posted to with the script") {
    background<replaced_master<posting>> r;
    const auto post = [&] {
        REQUIRE(r.post());
        r.redis.receipts.back()->settle(done);
        return r.redis.posted.back().at(0);
    };
    CHECK(post() == "EVAL");
    CHECK(post() == "EVALSHA");
    r.redis.change_master();
    CHECK(post() == "EVAL");
}

// A user may run minimal releases only: the next post was a digest that the server did not know.
TEST_CASE("a minimal release says nothing of the whole one's script") {
    posted r;
    r.script().then(done);
    REQUIRE(r.post());
    r.redis.receipts[0]->settle(reply::error("NOPERM x"));
    CHECK(r.asked_by_and_by(1) == words{minimal(first)});
    REQUIRE(r.confirmed());
    REQUIRE(r.post(second));
    CHECK(r.redis.posted.back().at(0) == "EVAL");
}

TEST_CASE("an answer that has come is looked for before the server is asked") {
    posted r;
    r.script().then(done);
    REQUIRE(r.post());
    REQUIRE(r.collects_after(50ms));
    CHECK(r.script().commands().empty());
    REQUIRE(r.collects_after(50ms));
    CHECK(r.script().commands().empty());
    CHECK(r.pends());
    manual_clock::advance(100ms);
    CHECK(r.asked(1) == words{whole(first)});
    CHECK(r.confirmed());
    CHECK(r.asked_by_now().size() == 1);
}

TEST_CASE("a posted release is asked for though its connection throws when the answer is looked for") {
    posted r;
    r.script().then(done);
    REQUIRE(r.post());
    r.redis.post_throws = true;
    CHECK(r.asked_by_and_by(1) == words{whole(first)});
    CHECK(r.confirmed());
}

// A server that had lost its scripts answered NOSCRIPT, which was taken for the end of it: the key
// stayed for a whole lease.
TEST_CASE("a posted release whose answer will not come, or makes no sense, is asked for at the next look") {
    for (const auto& answer :
         {lost, reply::not_sent(errc::unreachable, "x"), reply::string("1"), reply::error("BUSY x"),
          reply::error("READONLY x"), reply::error("NOSCRIPT No matching script")}) {
        posted r;
        r.script().then(done);
        REQUIRE(r.post());
        r.redis.receipts[0]->settle(answer);
        CHECK(r.it->latest_expiry() == manual_clock::now() + lease);
        manual_clock::advance(50ms);
        CHECK(r.asked(1) == words{whole(first)});
        CHECK(r.confirmed());
        CHECK(r.asked_by_now().size() == 1);
    }
}

TEST_CASE("a posted release that is refused for its size is asked for by the minimal one, and by turns") {
    posted r;
    const reply refusal = reply::error("OOM command not allowed when used memory > 'maxmemory'.");
    r.script().then(lost);
    r.script().then(refusal);
    r.script().then(done);
    REQUIRE(r.post());
    r.redis.receipts[0]->settle(refusal);
    CHECK(r.asked_by_and_by(3) == words{minimal(first), minimal(first), whole(first)});
    CHECK(r.confirmed());
}

// It was asked for by the command that needs least after any refusal, which frees the lock where it
// should be handed on.
TEST_CASE(
    "a posted release that a server refuses for a while is asked for as a whole, and waiters keep their "
    "turn") {
    for (const char* const refusal :
         {"BUSY Redis is busy running a script.", "LOADING Redis is loading the dataset in memory",
          "READONLY You can't write against a read only replica.", "MISCONF Errors writing to the AOF file",
          "NOREPLICAS Not enough good replicas to write.", "CLUSTERDOWN The cluster is down",
          "MASTERDOWN Link with MASTER is down", "NOSCRIPT No matching script."}) {
        INFO(refusal);
        posted r;
        const std::size_t times =
            std::string(refusal).starts_with("NOSCRIPT") ? 4 : 2;  // with the body at once
        for (std::size_t i = 0; i < times; ++i) r.script().then(reply::error(refusal));
        r.script().then(reply::integer(2));
        REQUIRE(r.post());
        r.redis.receipts[0]->settle(reply::error(refusal));
        for (const auto& asked : r.asked_by_and_by(times + 1)) CHECK(asked == whole(first));
        CHECK(r.confirmed());
    }
}

TEST_CASE("a release that is confirmed is not asked for") {
    posted r;
    REQUIRE(r.post());
    r.it->confirm();
    CHECK_FALSE(r.pends());
    manual_clock::advance(1s);
    CHECK(r.asked_by_now().empty());
}

TEST_CASE("a release is pending until it is answered, though the one before it was") {
    posted r;
    REQUIRE(r.post(first));
    r.redis.receipts.back()->settle(done);
    CHECK_FALSE(r.pends());
    REQUIRE(r.post(second));
    CHECK(r.it->pending() == second);
    r.redis.receipts.back()->settle(done);
    CHECK_FALSE(r.pends());
}

TEST_CASE("an answer to one release is not taken for that of the next") {
    posted r;
    REQUIRE(r.post(first));
    REQUIRE(r.post(second));
    CHECK(r.it->pending() == second);
    r.redis.receipts[0]->settle(reply::integer(0));
    CHECK(r.it->pending() == second);
    r.redis.receipts[1]->settle(done);
    CHECK_FALSE(r.pends());
}

TEST_CASE("an answer that comes late for one that was confirmed is not taken for that of the next") {
    posted r;
    REQUIRE(r.post(first));
    r.it->confirm();
    REQUIRE(r.post(second));
    r.redis.receipts[0]->settle(done);
    CHECK(r.it->pending() == second);
    r.redis.receipts[1]->settle(lost);
    r.script().then(done);
    manual_clock::advance(50ms);
    CHECK(r.asked(1) == words{whole(second)});
    CHECK(r.confirmed());
}

TEST_CASE(
    "an answer that comes when the release was asked for again confirms nothing more, nor the next one") {
    posted r;
    r.script().then(done);
    REQUIRE(r.post(first));
    manual_clock::advance(answer_time);
    CHECK(r.asked(1) == words{whole(first)});
    REQUIRE(r.confirmed());
    r.redis.receipts[0]->settle(reply::integer(0));
    REQUIRE(r.post(second));
    CHECK(r.it->pending() == second);
    r.redis.receipts[1]->settle(done);
    CHECK_FALSE(r.pends());
}

TEST_CASE("a release whose answer is lost is asked for, though the background has done the one before it") {
    posted r;
    r.script().then(done);
    REQUIRE(r.post(first));
    manual_clock::advance(answer_time);
    CHECK(r.asked(1) == words{whole(first)});
    REQUIRE(r.confirmed());
    REQUIRE(r.post(second));
    r.redis.receipts[1]->settle(lost);
    r.script().then(done);
    CHECK(r.asked_by_and_by(2).back() == whole(second));
    CHECK(r.confirmed());
}

// ---- while the server is asked ---------------------------------------------------------------------------

namespace {

/// The server is asked in the background, and has not answered yet.
struct asking : posted {
    explicit asking(const reply& answer) {
        redis.inner.then(
            [this] {
                begun = true;
                eventually([this] { return goes_on.load(); });
            },
            answer);
        REQUIRE(post(first));
        manual_clock::advance(answer_time);
        REQUIRE(eventually([this] { return begun.load(); }));
    }
    ~asking() { goes_on = true; }
    asking(const asking&) = delete;
    asking& operator=(const asking&) = delete;
    std::atomic<bool> begun{false};
    std::atomic<bool> goes_on{false};
};

}  // namespace

TEST_CASE("a release that is confirmed while the server is asked is not asked for again") {
    for (const auto& answer : {lost, reply::error("OOM x"), done}) {
        asking r(answer);
        r.it->confirm();
        CHECK_FALSE(r.pends());
        r.goes_on = true;
        manual_clock::advance(1s);
        CHECK(r.asked_by_now() == words{whole(first)});
        CHECK_FALSE(r.pends());
        REQUIRE(r.post(second));  // and is as it was before
        r.redis.receipts[1]->settle(lost);
        r.script().then(done);
        CHECK(r.asked_by_and_by(3).back() == whole(second));
        CHECK(r.confirmed());
    }
}

TEST_CASE("an answer in the background to one release is not taken for the next one's") {
    for (const auto& answer : {lost, reply::error("OOM x"), done}) {
        asking r(answer);
        r.it->confirm();
        REQUIRE(r.post(second));
        r.script().then(done);
        r.goes_on = true;
        CHECK(r.asked_by_now() == words{whole(first)});
        CHECK(r.it->pending() == second);
        manual_clock::advance(answer_time);
        CHECK(r.asked(3).back() == whole(second));
        CHECK(r.confirmed());
    }
}

TEST_CASE(
    "an answer in the background to one release is not taken for the next one's, which is to be repeated") {
    asking r(done);
    r.script().then(done);
    {
        const auto owner = std::make_unique<token>(second);
        r.it->confirm();
        REQUIRE(r.post(*owner));
    }
    r.redis.receipts[1]->settle(lost);
    CHECK(r.it->pending() == second);
    r.goes_on = true;
    CHECK(r.asked_by_and_by(2) == words{whole(first), whole(second)});
    CHECK(r.confirmed());
}

// ---- lifetimes, memory -----------------------------------------------------------------------------------

TEST_CASE("a release that is pending when its object goes is asked for, until it is done") {
    posted r;
    r.script().then(lost);
    r.script().then(done);
    REQUIRE(r.post());
    const std::weak_ptr<posted::tested> alive = r.it;
    r.it.reset();
    CHECK(r.script().commands().empty());
    manual_clock::advance(answer_time);
    CHECK(r.asked(1).size() == 1);
    CHECK(r.asked_by_and_by(2) == words{whole(first), whole(first)});
    CHECK(eventually([&] { return alive.expired(); }));
}

TEST_CASE("a release that is pending when its object goes, and answered then, is not asked for") {
    posted r;
    REQUIRE(r.post());
    const std::weak_ptr<posted::tested> alive = r.it;
    r.it.reset();
    r.redis.receipts[0]->settle(done);
    manual_clock::advance(50ms);
    CHECK(eventually([&] { return alive.expired(); }));
    CHECK(eventually([&] { return r.redis.receipts[0].use_count() == 1; }));
    CHECK(r.script().commands().empty());
}

// An answer that was due in a moment was not waited for: "NOSCRIPT" left the lock to its lease.
TEST_CASE("a posted release that is pending when the background ends is sent once more, with its script") {
    const bool refused = GENERATE(false, true);
    posted r;
    REQUIRE(r.post());
    r.redis.receipts[0]->settle(done);
    REQUIRE(r.post());
    CHECK_FALSE(r.redis.how[1].with_body);
    if (refused) r.redis.receipts[1]->settle(reply::error("NOSCRIPT x"));
    r.script().then(done);
    r.io.reset();
    REQUIRE(r.asked(1) == words{whole(first)});
    CHECK(r.script().commands()[0].argv[0] == "EVAL");
}

namespace {

struct pipelining : posting {
    void pipeline(std::span<const command> commands, std::span<reply> replies) {
        for (std::size_t i = 0; i < commands.size(); ++i) replies[i] = execute(commands[i]);
    }
};

/// One to a Cluster.
struct sharded : pipelining {
    static constexpr auto channels = distlock::channel_kind::sharded;
    std::shared_ptr<distlock::subscription> subscribe(std::string_view) { return nullptr; }
};
static_assert(distlock::sharded_connection<sharded>);

/// Returns: how two releases that are pending when the background ends are sent.
template <class Conn>
words last_sendings() {
    background<Conn> r;
    const auto other = r.another();
    REQUIRE(r.post());
    REQUIRE(r.post_by(other, second));
    r.script().then(done);
    r.script().then(done);
    r.io.reset();
    REQUIRE(r.asked(2).size() == 2);
    return {r.script().commands()[0].argv[0], r.script().commands()[1].argv[0]};
}

}  // namespace

// Each brought its script: a server that stood still was told of a few hundred, and the rest kept
// their keys for a lease. In a Cluster each may be for another server.
TEST_CASE(
    "the first of the posted releases that are pending when the background ends brings the script, in a "
    "Cluster each") {
    CHECK(last_sendings<pipelining>() == words{"EVAL", "EVALSHA"});
    CHECK(last_sendings<sharded>() == words{"EVAL", "EVAL"});
}

TEST_CASE("in a Cluster the first release of each lock brings the script, whatever others have sent") {
    background<sharded> r;
    REQUIRE(r.post());
    r.redis.receipts[0]->settle(done);
    REQUIRE(r.post());
    REQUIRE(r.post_by(r.another(), second));
    CHECK(r.redis.how[0].with_body);
    CHECK_FALSE(r.redis.how[1].with_body);
    CHECK(r.redis.how[2].with_body);
}

TEST_CASE("a release that is answered when the background ends is not sent once more") {
    posted r;
    REQUIRE(r.post());
    r.redis.receipts[0]->settle(done);
    r.io.reset();
    CHECK(r.script().commands().empty());
}

TEST_CASE("a release that was refused when its object has gone is asked for all the same") {
    for (const char* refusal : {"NOSCRIPT x", "OOM x", "NOPERM x", "BUSY x"}) {
        posted r;
        r.script().then(done);
        REQUIRE(r.post());
        r.it.reset();
        r.redis.receipts[0]->settle(reply::error(refusal));
        manual_clock::advance(50ms);
        CHECK(r.asked(1).size() == 1);
    }
}

TEST_CASE("without memory a release is not posted, or is pending: nothing in between") {
    NOT_TESTED_UNLESS(allocations_can_fail(), operator_new_is_not_ours);
    int failures = 0;
    bool failed = true;
    for (long n = 1; failed && n < 100; ++n) {
        INFO("allocation " << n);
        posted r;
        r.redis.posted.reserve(2);
        r.redis.how.reserve(2);
        r.redis.receipts.reserve(2);
        fail_allocation(n);
        const bool posted = r.post();
        failed = allocation_failed();
        fail_allocation(0);
        failures += failed;
        CHECK(posted == r.pends());
        CHECK(posted == !r.redis.posted.empty());
        if (!posted) REQUIRE(r.post());
        r.redis.receipts.back()->settle(done);
        CHECK_FALSE(r.pends());
    }
    CHECK(failures > 1);
}

TEST_CASE("without memory for a thread a release is not repeated, and is not pending") {
    NOT_TESTED_UNLESS(allocations_can_fail(), operator_new_is_not_ours);
    posted r;
    fail_allocation(1);
    r.repeat();
    fail_allocation(0);
    CHECK_FALSE(r.pends());
    CHECK(r.it->latest_expiry() == time_point{});
    r.script().then(done);
    r.repeat();
    CHECK(r.asked(1) == words{whole(first)});
    CHECK(r.confirmed());
}

TEST_CASE("nothing is posted and nothing is pending where the background has as many as it may") {
    posted r;
    CHECK_FALSE(r.post(first, 0));
    CHECK_FALSE(r.pends());
    CHECK(r.redis.posted.empty());
    posted::tested::repeat(r.it, first, posted::until(manual_clock::now() + lease), manual_clock::now(), 0);
    CHECK_FALSE(r.pends());
    CHECK(r.post(first, 1));
    CHECK(r.post(second, 0));  // which has its place already
}

TEST_CASE("a posted release allocates nothing once there was one") {
    struct quiet {
        reply execute(const command&) { return lost; }
        bool post(const command&, const std::shared_ptr<receipt>& wanted = nullptr) {
            wanted->settle(done);
            return true;
        }
        void collect() {}
        scripted_connection inner;
    };
    static_assert(distlock::confirming_connection<quiet>);
    background<quiet> r;
    REQUIRE(r.post());
    CHECK_FALSE(r.pends());
    const auto before = allocations();
    for (int i = 0; i < 10; ++i) {
        REQUIRE(r.post(i % 2 == 0 ? second : first));
        REQUIRE_FALSE(r.pends());
        r.it->confirm();
    }
    CHECK(allocations() == before);
}

// ---- connections that cannot -----------------------------------------------------------------------------

TEST_CASE("a connection that posts and says nothing of it is asked at the first look") {
    struct silent : executing {
        bool post(const command&) { return true; }
    };
    background<silent> r;
    r.script().then(done);
    REQUIRE(r.post());
    CHECK(r.it->pending() == first);
    CHECK(r.script().commands().empty());
    manual_clock::advance(50ms);
    CHECK(r.asked(1) == words{whole(first)});
    CHECK(r.confirmed());
}

TEST_CASE("a connection that cannot post posts nothing") {
    background<executing> r;
    CHECK_FALSE(r.post());
    CHECK_FALSE(r.pends());
}

// ---- repeated --------------------------------------------------------------------------------------------

TEST_CASE("a repeated release is done in the background, and outlives its object") {
    posted r;
    r.script().then(reply::error("NOSCRIPT x"));
    r.script().then(done);
    r.repeat();
    CHECK(r.redis.posted.empty());
    const std::weak_ptr<posted::tested> alive = r.it;
    r.it.reset();
    CHECK(eventually([&] { return alive.expired(); }));
    CHECK(r.asked(2) == words{whole(first), whole(first)});
}

TEST_CASE("a repeated release begins when it is told to") {
    posted r;
    r.script().then(done);
    posted::tested::repeat(r.it, first, posted::until(manual_clock::now() + lease), manual_clock::now() + 1s);
    manual_clock::advance(1s - 1ms);
    CHECK(r.asked_by_now().empty());
    CHECK(r.pends());
    r.script().then(done);
    manual_clock::advance(1ms);
    CHECK(r.asked(2).back() == whole(first));
    CHECK(r.confirmed());
}

TEST_CASE("a repeated release is asked for again and again, and is pending until it is confirmed") {
    posted r;
    for (int i = 0; i < 3; ++i) r.script().then(reply::error("LOADING x"));
    r.repeat();
    CHECK(r.asked_by_and_by(3) == words(3, whole(first)));
    CHECK(r.it->pending() == first);
    r.script().then(reply::integer(-1));
    CHECK(r.confirmed());
    CHECK(r.script().left() == 0);
}

// What got lost may have been that the server lacks the script; then it would be asked by
// its digest for ever.
TEST_CASE("a repeated release whose answer was lost is asked again with its script") {
    posted r;
    r.script().then(lost);
    r.script().then(done);
    r.repeat();
    r.asked_by_and_by(2);
    CHECK(r.confirmed());
    CHECK(r.script().commands().at(0).argv.at(0) == "EVALSHA");
    CHECK(r.script().commands().at(1).argv.at(0) == "EVAL");
}

TEST_CASE("a repeated release of a token in doubt is pending until its time is over") {
    posted r;
    r.script().then(reply::integer(0));
    r.script().then(done);
    r.repeat(first, certainty::in_doubt, 1min);
    REQUIRE(r.asked(1).size() == 1);
    CHECK(r.asked_by_and_by(2).back() == whole(first));
    CHECK(r.pends());
    const std::weak_ptr<posted::tested> alive = r.it;
    manual_clock::advance(1min);
    CHECK_FALSE(r.pends());
    r.it.reset();
    CHECK(eventually([&] { return alive.expired(); }));
}

// It was planned, and given up in the moment it was due: a request that came after the last one but that kept
// the lock for a whole lease.
TEST_CASE("a release of a token in doubt is sent once more when no request of it can arrive any more") {
    const bool answered_late = GENERATE(false, true);
    posted r;
    r.script().then(reply::integer(0));
    r.script().then([&] { manual_clock::advance(answered_late ? 1ms : 0ms); }, reply::integer(0));
    r.script().then(reply::integer(0));
    r.repeat(first, certainty::in_doubt, 1min);
    REQUIRE(r.asked(1).size() == 1);
    manual_clock::advance(1min - 1ms);
    if (!answered_late) {
        REQUIRE(r.asked(2).size() == 2);
        manual_clock::advance(1ms);
    }
    CHECK(r.asked(3).size() == 3);
    const std::weak_ptr<posted::tested> alive = r.it;
    r.it.reset();
    CHECK(eventually([&] { return alive.expired(); }));
}

TEST_CASE("a repeated release ends with its lease, whatever the server does") {
    posted r;
    r.repeat(first, certainty::granted, 1s);  // the script has run out: nobody answers
    REQUIRE(r.asked(1).size() == 1);
    manual_clock::advance(1s);
    CHECK_FALSE(r.pends());
    const std::weak_ptr<posted::tested> alive = r.it;
    r.it.reset();
    CHECK(eventually([&] { return alive.expired(); }));
}

// ---- in doubt, in a crowd ---------------------------------------------------------------------------------

// A thousand stop requests within a lease, and those that came later left locks that nobody had: the
// first thousand were looked for all that time, though each had been answered ten times.
TEST_CASE(
    "a release in doubt that was answered for a second gives its place to one that found no room, and only "
    "then") {
    const reply nothing = reply::integer(0);
    const auto asked_in_ten_seconds = [&](std::size_t others, bool wanted) {
        background<executing> r;
        fill_with_doubt(*r.io, others);
        for (int i = 0; i < 1000; ++i) r.script().then(nothing);
        r.repeat(first, certainty::in_doubt);
        if (wanted) r.io->request_room();
        for (int i = 0; i < 100; ++i) {
            static_cast<void>(r.asked_by_now());
            manual_clock::advance(100ms);
        }
        words all = r.asked_by_now();
        std::erase_if(all, [](const std::string& one) { return one != whole(first); });
        return std::pair(all.size(), r.pends());
    };
    const auto [alone, goes_on] = asked_in_ten_seconds(0, false);
    CHECK(alone > 7);
    CHECK(goes_on);
    // A full room is no reason while nobody wants to come in.
    CHECK(asked_in_ten_seconds(background_io::most_in_doubt - 1, false) == std::pair(alone, true));
    const auto [for_a_second, ends] = asked_in_ten_seconds(0, true);
    CHECK(for_a_second >= 5);
    CHECK(for_a_second < alone);
    CHECK_FALSE(ends);
}

TEST_CASE("so many releases in doubt give their places as are wanted") {
    background<posting> r;
    CHECK_FALSE(r.io->take_room_request());
    r.io->request_room();
    std::size_t given = 0;
    while (r.io->take_room_request()) ++given;
    CHECK(given == background_io::most_in_doubt / 4);
}

TEST_CASE("a release in doubt that was not answered, or in its minimal form only, keeps its place") {
    const reply refused = reply::error("TRYAGAIN x");
    for (const auto& answers : {std::vector{lost, lost, lost, lost, lost, lost, lost, lost},
                                std::vector{refused, refused, reply::integer(0)}}) {
        background<executing> r;
        r.io->request_room();
        for (const reply& answer : answers) r.script().then(answer);
        r.repeat(first, certainty::in_doubt);
        manual_clock::advance(2s);
        const auto all = r.asked_by_and_by(answers.size());
        CHECK(all.size() >= answers.size());
        CHECK(r.pends());
    }
}

TEST_CASE(
    "a release that is known to be needed is repeated until it is done, however many others there are") {
    background<executing> r;
    fill_with_doubt(*r.io);
    for (int i = 0; i < 5; ++i) r.script().then(reply::error("LOADING x"));
    r.script().then(done);
    r.repeat(first);
    CHECK(r.asked_by_and_by(6) == words(6, whole(first)));
}

}  // namespace background_release_tests
