// An attempt on the caller's thread that may wait in the queue: what goes to the server, by which tokens,
// and what messages do.
#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <memory>
#include <new>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <distlock/net/subscription.hpp>
#include <distlock/wire/handoff.hpp>

#include "support/allocations.hpp"
#include "support/attempt.hpp"
#include "support/catch.hpp"
#include "support/handoff_answers.hpp"
#include "support/handoff_names.hpp"
#include "support/passing_time.hpp"
#include "support/publishing_connection.hpp"
#include "support/waiting.hpp"

namespace blocking_in_queue_tests {

namespace {

using namespace attempt_test;
using distlock::subscription;
using handoff_answers::queued;
using kind = grant::kind;

const distlock::handoff dialect("orders", {.lease = 30s}, "distlock:here");

const reply granted = handoff_answers::granted();
const reply busy = handoff_answers::taken();
const reply lost = reply::no_answer(errc::no_reply, "the answer was lost");

const std::string stranger(32, 'a');

/// A clock that a test moves makes waits look at it every millisecond.
struct publishing : publishing_connection {
    reply execute(const command& cmd) {
        // What becomes of a message for nobody is sent by another thread, at any time.
        if (cmd.argv().size() > 7 && cmd.argv()[7] == stranger) return reply::integer(0);
        return inner.execute(cmd);
    }
    /// Effects: the lock was handed over to the token of the nth command.
    void hand_over(std::size_t n, int ticket = 7, int ttl = 2000) const {
        source->deliver(token_of(n) + ' ' + std::to_string(ticket) + ' ' + std::to_string(ttl) + " 0 orders");
    }
    std::string token_of(std::size_t n) const {
        const auto argv = inner.commands().at(n).argv;
        return argv[0] == "SET" ? argv.at(2) : argv.at(7);
    }
};

struct attempt {
    attempt() { manual_clock::reset(); }
    grant take(bool contended = true, distlock::clock::duration timeout = 10s,
               std::chrono::milliseconds recheck = 1s) {
        return attempt_test::take<manual_clock>(
            redis, dialect,
            {.lease = 30s,
             .recheck = recheck,
             .patience = 2s,
             .deadline = manual_clock::now() + timeout,
             .waits = waiting_manner::queues},
            stop.get_token(), contended, status, messages,
            [this](const distlock::engine::action::leaving& what) noexcept {
                short_of_memory = short_of_memory || allocation_failed();
                fail_allocation(-1);
                left.add(what);
            });
    }
    /// Returns: after what time an attempt that is granted the lock at once joined.
    distlock::clock::duration wait_to_join(distlock::clock::duration timeout) {
        distlock::clock::time_point joined;
        redis.inner.then([&] { joined = manual_clock::now(); }, granted);
        const auto begun = manual_clock::now();
        REQUIRE(take(true, timeout).what == kind::granted);
        messages.forget();
        return joined - begun;
    }
    words sent() const {
        words all;
        for (const auto& one : redis.inner.commands()) all.push_back(handoff_name_of(one.argv));
        return all;
    }

    publishing redis;
    std::stop_source stop;
    distlock::engine::remote_status status;
    inbox messages = inbox_of<manual_clock>(redis, dialect);
    left_tokens left;
    bool short_of_memory = false;  // when something was left
};

}  // namespace

TEST_CASE("a contended lock costs one entering, and is held when the message comes") {
    attempt a;
    a.redis.inner.then([&] { a.redis.hand_over(0); }, queued());
    const auto got = a.take();
    REQUIRE(got.what == kind::granted);
    CHECK(a.sent() == words{"join"});
    CHECK(got.token.view() == a.redis.token_of(0));
    CHECK(got.until == validity_end(manual_clock::now(), 2s));
    CHECK(got.ttl == 2s);
    CHECK(got.contended);
    CHECK(a.left.tokens.empty());
    CHECK(a.messages.get() != nullptr);  // what comes for this token is ours until the release was sent
}

TEST_CASE("validity counts from before the entering, however late the message is") {
    attempt a;
    const auto before = manual_clock::now();
    a.redis.inner.then(
        [&] {
            manual_clock::advance(600ms);
            a.redis.hand_over(0);
        },
        queued());
    const auto got = a.take();
    REQUIRE(got.what == kind::granted);
    CHECK(got.sent == before);
    CHECK(got.until == validity_end(before, 2s));
    CHECK(got.came == before + 600ms);
}

TEST_CASE("a message that may be too old is confirmed by the same token") {
    attempt a;
    a.redis.inner.then(
        [&] {
            manual_clock::advance(1500ms);
            a.redis.hand_over(0);
        },
        queued());
    a.redis.inner.then(granted);
    const auto got = a.take();
    REQUIRE(got.what == kind::granted);
    CHECK(a.sent() == words{"join", "join"});
    CHECK(a.redis.token_of(0) == a.redis.token_of(1));
}

TEST_CASE("a message for another token, or of another text, is nobody's lock") {
    attempt a;
    a.redis.inner.then(
        [&] {
            a.redis.source->deliver(stranger + " 7 2000 0 orders");
            a.redis.source->deliver("what is this?");
            a.redis.source->deliver(a.redis.token_of(0));
        },
        queued());
    a.redis.inner.then(granted);
    const passing_time goes_on;
    CHECK(a.take().what == kind::granted);
    CHECK(a.sent() == words{"join", "join"});
}

TEST_CASE("the process subscribes before it joins, and knows the token before it is sent") {
    attempt a;
    a.redis.inner.then(
        [&] {
            CHECK(a.redis.channels.size() == 1);
            CHECK(a.redis.source->confirmations() == 1);
            a.redis.hand_over(0);  // overtakes the answer
        },
        queued());
    CHECK(a.take().what == kind::granted);
    CHECK(a.sent() == words{"join"});
}

TEST_CASE("without a subscription, or before it is in force, the waiter joins all the same and looks often") {
    for (const bool refuses : {false, true}) {
        attempt a;
        a.redis.refuses = refuses;
        a.redis.in_force = false;
        distlock::clock::time_point first;
        distlock::clock::time_point third;
        a.redis.inner.then([&] { first = manual_clock::now(); }, queued());
        a.redis.inner.then(queued(7, false));
        a.redis.inner.then([&] { third = manual_clock::now(); }, granted);
        const passing_time goes_on;
        CHECK(a.take(true, 1h, 1min).what == kind::granted);
        CHECK(third - first < 20s);  // time goes on while this thread has no processor
        CHECK(a.sent() == words{"join", "join", "join"});
    }
}

TEST_CASE("the first waiter of a lock object waits for its subscription for a while, and the others do not") {
    attempt a;
    a.redis.in_force = false;
    const passing_time goes_on;
    std::vector<distlock::clock::duration> waited;
    for (int i = 0; i < 20; ++i) waited.push_back(a.wait_to_join(1h));
    CHECK(waited[0] >= 200ms);
    CHECK(*std::ranges::min_element(waited) < 10ms);
    CHECK(a.redis.channels.size() == 1);
}

// The second joined at once, unheard, and was passed over; the first had had no time to wait.
TEST_CASE("waiters with little time wait for the subscription, too, until a while was waited in all") {
    attempt a;
    a.redis.in_force = false;
    const passing_time goes_on;
    std::vector<distlock::clock::duration> waited;
    for (int i = 0; i < 80; ++i) waited.push_back(a.wait_to_join(20ms));
    CHECK(waited[0] >= 10ms);
    CHECK(waited[1] >= 10ms);
    CHECK(*std::ranges::min_element(waited.end() - 20, waited.end()) < 10ms);
}

// Where SUBSCRIBE is refused from some day on, a waiter went on looking once a second.
TEST_CASE("a waiter whose subscription has lapsed looks often, until it is in force again") {
    attempt a;
    a.redis.inner.then([&] { a.redis.hand_over(0); }, queued());
    REQUIRE(a.take().what == kind::granted);
    a.messages.forget();
    a.redis.source->lapse();
    distlock::clock::time_point first;
    distlock::clock::time_point second;
    a.redis.inner.then([&] { first = manual_clock::now(); }, queued());
    a.redis.inner.then(
        [&] {
            second = manual_clock::now();
            a.redis.source->confirm();
        },
        queued(7, false));
    a.redis.inner.then([&] { a.redis.hand_over(3); }, queued(7, false));
    const passing_time goes_on;
    CHECK(a.take(true, 1h, 1min).what == kind::granted);
    CHECK(second - first < 20s);
    CHECK(a.sent() == words{"join", "join", "join", "join"});
}

// A server that came back empty had nobody in its queue for the half second until its
// clients subscribed again.
TEST_CASE("a waiter whose subscription lapses while it waits looks soon, and does not wait to be told") {
    attempt a;
    distlock::clock::time_point joined;
    a.redis.inner.then([&] { joined = manual_clock::now(); }, queued());
    a.redis.inner.then(granted);
    std::jthread breaks([&] {
        eventually([&] { return a.redis.inner.commands().size() == 1; });
        manual_clock::advance(100ms);
        a.redis.source->lapse();
        const passing_time goes_on;
        eventually([&] { return a.redis.inner.commands().size() == 2; });
    });
    CHECK(a.take(true, 1h, 1min).what == kind::granted);
    breaks.join();
    CHECK(manual_clock::now() - joined < 20s);
    CHECK(a.sent() == words{"join", "join"});
}

TEST_CASE("a waiter that comes while messages have ceased joins at once: they may not be back for long") {
    attempt a;
    a.redis.inner.then([&] { a.redis.hand_over(0); }, queued());
    REQUIRE(a.take().what == kind::granted);
    a.messages.forget();
    a.redis.source->lapse();
    const auto called = manual_clock::now();
    a.redis.inner.then(granted);
    CHECK(a.take().what == kind::granted);
    CHECK(manual_clock::now() == called);
}

TEST_CASE("a subscription that comes into force while the waiter waits makes it look") {
    attempt a;
    a.redis.inner.then([&] { a.redis.source->confirm(); }, queued());
    a.redis.inner.then(granted);
    CHECK(a.take().what == kind::granted);
    CHECK(a.sent() == words{"join", "join"});
}

TEST_CASE("a stop request ends the wait, and the ticket is left") {
    attempt a;
    a.redis.inner.then([&] { a.stop.request_stop(); }, queued());
    CHECK(a.take().cause == errc::cancelled);
    CHECK(a.sent() == words{"join"});
    CHECK(a.left.tokens == words{a.redis.token_of(0)});
    CHECK(a.left.in_doubt == std::vector<bool>{false});
    CHECK(a.messages.get() == nullptr);

    attempt unanswered;
    unanswered.redis.inner.then([&] { unanswered.stop.request_stop(); }, lost);
    CHECK(unanswered.take().cause == errc::cancelled);
    CHECK(unanswered.left.tokens == words{unanswered.redis.token_of(0)});
    CHECK(unanswered.left.in_doubt == std::vector<bool>{true});
}

// The ticket stayed, and its listener took the message of the hand-over, which nobody answered.
TEST_CASE(
    "an attempt that has no memory for the server's answer leaves its ticket, and hears no more of it") {
    NOT_TESTED_UNLESS(allocations_can_fail(), operator_new_is_not_ours);
    bool failed = true;
    for (long nth = 1; failed; ++nth) {
        INFO("allocation " << nth);
        attempt a;
        a.redis.inner.then(lost);
        a.redis.inner.then(
            [&] {
                a.stop.request_stop();
                fail_allocation(nth);
            },
            reply::error("LOADING Redis is loading the dataset in memory"));
        try {
            const auto got = a.take();
            CHECK(got.cause == errc::cancelled);
        } catch (const std::bad_alloc&) {
            CHECK(a.short_of_memory);
        }
        failed = a.short_of_memory || allocation_failed();
        fail_allocation(0);
        CHECK(a.sent() == words{"join", "join"});
        CHECK(a.left.tokens == words{a.redis.token_of(0)});
        CHECK(a.left.in_doubt == std::vector<bool>{true});
        CHECK(a.messages.get() == nullptr);
    }
}

TEST_CASE("at the deadline the last look takes the ticket back") {
    attempt a;
    a.redis.inner.then([] { manual_clock::advance(10s); }, queued());
    a.redis.inner.then(busy);
    CHECK(a.take().what == kind::gave_up);
    CHECK(a.sent() == words{"join", "last"});
    CHECK(a.left.tokens.empty());
    CHECK(a.messages.get() == nullptr);
}

TEST_CASE("a hand-over that was not believed is given back when the time is up") {
    attempt a;
    a.redis.inner.then(
        [&] {
            manual_clock::advance(1500ms);
            a.redis.hand_over(0);
        },
        queued());
    a.redis.inner.then([] { manual_clock::advance(10s); }, queued(8));
    a.redis.inner.then(busy);
    const passing_time goes_on;
    CHECK(a.take().what == kind::gave_up);
    CHECK(a.sent() == words{"join", "join", "last"});
    CHECK(a.left.tokens == words{a.redis.token_of(0)});
}

TEST_CASE("a ticket that was gone without a message makes the connection subscribe anew") {
    struct reader final : distlock::message_reader {
        void read(distlock::clock::time_point) noexcept override {}
        void interrupt() noexcept override {}
        void reconnect() noexcept override { ++reconnected; }
        int reconnected = 0;
    };
    manual_clock::reset();
    attempt a;
    reader silent;
    a.redis.inner.then(queued(7));
    a.redis.inner.then(queued(8, true));
    a.redis.inner.then(granted);
    const auto hub = std::make_shared<distlock::message_hub>(&silent);
    struct connection {
        reply execute(const command& cmd) { return inner.execute(cmd); }
        std::shared_ptr<subscription> subscribe(std::string_view) { return source; }
        scripted_connection& inner;
        std::shared_ptr<subscription> source;
    } redis{a.redis.inner, std::make_shared<subscription>("distlock:here", hub)};
    redis.source->confirm();
    auto messages = inbox_of<manual_clock>(redis, dialect);
    const passing_time goes_on;
    const auto got = attempt_test::take<manual_clock>(
        redis, dialect, {.lease = 30s, .recheck = 1s, .patience = 2s, .waits = waiting_manner::queues}, {},
        true, a.status, messages);
    CHECK(got.what == kind::granted);
    CHECK(silent.reconnected == 1);
}

// ---- messages for nobody ----------------------------------------------------------------------------------

TEST_CASE("a message for a token that nobody waits for is answered with a release of that lock") {
    attempt a;
    a.redis.inner.then([&] { a.redis.hand_over(0); }, queued());
    REQUIRE(a.take().what == kind::granted);
    const std::string unknown(32, 'b');
    a.redis.inner.then(reply::integer(1));
    a.redis.source->deliver("what is this?");
    a.redis.source->deliver(unknown + " 9 2000 0 another lock");
    REQUIRE(eventually([&] { return a.redis.inner.commands().size() == 2; }));
    CHECK(a.sent() == words{"join", "leave"});
    CHECK(a.redis.token_of(1) == unknown);
    CHECK(a.redis.inner.commands()[1].routing_key == "another lock");
}

TEST_CASE(
    "a second message for a token that owns the lock is dropped, and one after its release is answered") {
    attempt a;
    a.redis.inner.then([&] { a.redis.hand_over(0); }, queued());
    REQUIRE(a.take().what == kind::granted);
    a.redis.hand_over(0);
    a.messages.forget();  // as after a release
    a.redis.inner.then(reply::integer(0));
    a.redis.hand_over(0);
    REQUIRE(eventually([&] { return a.redis.inner.commands().size() == 2; }));
    CHECK(a.sent() == words{"join", "leave"});
}

}  // namespace blocking_in_queue_tests
