// How long a lease is believed and when it is renewed: every decision, without a clock, a server or a thread.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <set>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/lease.hpp>
#include <distlock/base/observer.hpp>
#include <distlock/engine/renewal.hpp>
#include <distlock/wire/outcome.hpp>

#include "support/catch.hpp"

namespace renewal_tests {

namespace {

using distlock::clock;
using distlock::loss_reason;
using distlock::renew_outcome;
using distlock::validity_end;
using distlock::engine::lease_terms;
using distlock::engine::renewal;
using news = renewal::news;
using std::chrono::milliseconds;
using namespace std::chrono_literals;

constexpr clock::time_point start{1h};
constexpr clock::time_point never = clock::time_point::max();

constexpr renew_outcome kept{renew_outcome::kind::kept};
constexpr renew_outcome gone{renew_outcome::kind::gone};
constexpr renew_outcome taken{renew_outcome::kind::taken};
constexpr renew_outcome failed{renew_outcome::kind::later};

renewal granted(const lease_terms& terms = {.lease = 30s}, std::uint64_t seed = 1) {
    return {terms, terms.lease, start, start, seed};
}

}  // namespace

// ---- what was granted for less than the lease
// --------------------------------------------------------------

TEST_CASE(
    "an offer is valid for its own TTL, renewed at a third of that, and for the whole lease from then on") {
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        renewal r({.lease = 30s}, 2s, start, start + 1ms, seed);
        CHECK(r.until() == validity_end(start, 2s));
        CHECK(r.ttl() == 2s);
        CHECK(r.latest_expiry() == start + 1ms + 2s);
        CHECK(r.due() <= start + 2s / 3.0);
        CHECK(r.due() >= start + 600ms);
        const auto sent = r.due();
        r.on_outcome(kept, sent, sent + 1ms);
        CHECK(r.until() == validity_end(sent, 30s));
        CHECK(r.ttl() == 30s);
        CHECK(r.latest_expiry() == sent + 1ms + 30s);
        CHECK(r.due() >= sent + 9s);
    }
}

TEST_CASE("a renewal of an offer that was not answered may have set the whole lease") {
    renewal r({.lease = 30s}, 2s, start, start, 1);
    r.on_outcome(failed, start + 700ms, start + 800ms);
    CHECK(r.until() == validity_end(start, 2s));
    CHECK(r.latest_expiry() == start + 800ms + 30s);
}

// ---- validity --------------------------------------------------------------------------------------------

TEST_CASE("validity counts from before the grant was sent, less the drift margin") {
    const renewal r({.lease = 10s}, 10s, start, start + 3s, 1);
    CHECK(r.until() == start + 10s - 100ms - 2ms);
    CHECK(r.until() == validity_end(start, 10s));
    CHECK_FALSE(r.lost(r.until() - 1ns));
    CHECK(r.lost(r.until()) == loss_reason::expired);
}

TEST_CASE("a renewal prolongs validity from before it was sent, not from its answer") {
    renewal r = granted({.lease = 10s});
    CHECK(r.on_outcome(kept, start + 3s, start + 7s) == news::none);
    CHECK(r.until() == validity_end(start + 3s, 10s));
}

TEST_CASE("an answer that is late in coming does not shorten validity") {
    renewal r = granted({.lease = 10s});
    r.on_outcome(kept, start + 5s, start + 5s);
    const auto until = r.until();
    r.on_outcome(kept, start + 4s, start + 6s);
    CHECK(r.until() == until);
}

TEST_CASE("a failure changes nothing about validity") {
    renewal r = granted();
    const auto until = r.until();
    for (auto now = start + 10s; now < until; now += 1s) r.on_outcome(failed, now, now);
    CHECK(r.until() == until);
    CHECK_FALSE(r.lost(until - 1ns));
    CHECK(r.lost(until) == loss_reason::expired);
}

TEST_CASE("a renewal that succeeds after validity is over is too late and revives nothing") {
    renewal r = granted({.lease = 10s});
    const auto until = r.until();
    CHECK(r.on_outcome(kept, until - 1ms, until) == news::too_late);
    CHECK(r.until() == until);
    CHECK(r.lost(until) == loss_reason::expired);
    CHECK(r.due() == never);
    CHECK_FALSE(r.ready(until + 1s));
}

TEST_CASE("a renewal that succeeds in the last instant of validity counts") {
    renewal r = granted({.lease = 10s});
    const auto until = r.until();
    CHECK(r.on_outcome(kept, until - 2ns, until - 1ns) == news::none);
    CHECK(r.until() == validity_end(until - 2ns, 10s));
    CHECK(r.due() != never);
}

TEST_CASE("validity never goes back but by a loss, whatever is answered, and a loss is for ever") {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        std::mt19937_64 random(seed);
        renewal r = granted({.lease = 100ms}, seed);
        auto now = start;
        auto until = r.until();
        bool was_lost = false;
        for (int step = 0; step < 100; ++step) {
            const auto sent = now;
            now += milliseconds(random() % 40);
            constexpr renew_outcome answers[]{kept, kept, kept, kept, failed, failed, gone, taken};
            const auto said = r.on_outcome(answers[random() % 8], sent, now);
            if (was_lost) {
                REQUIRE(r.until() == until);
                REQUIRE(r.lost(now));
                REQUIRE(r.due() == never);
            } else if (said != news::lost) {
                REQUIRE(r.until() >= until);
            }
            REQUIRE(r.until() <= validity_end(now, 100ms));
            until = r.until();
            was_lost = was_lost || said == news::lost || said == news::too_late;
            if (was_lost) REQUIRE(r.lost(now));
        }
    }
}

// ---- when to renew ---------------------------------------------------------------------------------------

TEST_CASE("a renewal is due a third of the lease after the grant was sent, or up to a tenth earlier") {
    std::set<clock::time_point> different;
    for (const milliseconds lease : {10ms, 150ms, 30'000ms, 86'400'000ms}) {
        const auto third = clock::duration(lease) / 3;
        auto earliest = never;
        auto latest = start;
        for (std::uint64_t seed = 0; seed < 2000; ++seed) {
            const renewal r({.lease = lease}, lease, start, start + 1ms, seed * 0x9e3779b97f4a7c15U);
            REQUIRE(r.due() <= start + third);
            REQUIRE(r.due() >= start + third - third / 10);
            earliest = std::min(earliest, r.due());
            latest = std::max(latest, r.due());
            different.insert(r.due());
        }
        // Spread over the whole of it, or processes that start together renew together.
        CHECK(earliest < start + third - third / 11);
        CHECK(latest > start + third - third / 100);
    }
    CHECK(different.size() > 7900);
}

TEST_CASE("the next renewal is due a third after the last that succeeded was sent") {
    renewal r = granted({.lease = 30s});
    auto sent = start;
    for (int round = 0; round < 1000; ++round) {
        sent = r.due();
        REQUIRE(r.on_outcome(kept, sent, sent + 50ms) == news::none);
        REQUIRE(r.due() <= sent + 10s);
        REQUIRE(r.due() >= sent + 9s);
        REQUIRE(r.until() == validity_end(sent, 30s));
    }
}

TEST_CASE("another master is asked at once, and again until it has answered") {
    renewal r = granted();
    REQUIRE(r.due() > start + 1s);
    CHECK(r.on_master_change(start + 1s));
    CHECK(r.due() == start + 1s);
    CHECK(r.ready(start + 1s));
    CHECK_FALSE(r.on_master_change(start + 1s));
    // What the old one had answered before it was replaced.
    CHECK(r.on_outcome(kept, start + 500ms, start + 1100ms) == news::none);
    CHECK(r.until() == validity_end(start + 500ms, 30s));
    CHECK(r.ready(start + 1100ms));
    CHECK(r.on_outcome(failed, start + 1100ms, start + 1200ms) == news::at_risk);
    CHECK(r.due() <= start + 1210ms);
    CHECK(r.on_outcome(kept, start + 1210ms, start + 1211ms) == news::none);
    CHECK(r.due() > start + 10s);
}

TEST_CASE("a lease that the present master granted is not renewed for it") {
    renewal r = granted();
    const auto due = r.due();
    CHECK_FALSE(r.on_master_change(start));
    CHECK_FALSE(r.on_master_change(clock::time_point::min()));
    CHECK(r.due() == due);
}

TEST_CASE("another master is asked without the long pauses that an old one caused") {
    renewal r = granted();
    auto now = start;
    for (int i = 0; i < 12; ++i) r.on_outcome(failed, now, now), now += 1s;
    REQUIRE(r.due() - (now - 1s) > 500ms);
    CHECK(r.on_master_change(now));
    CHECK(r.due() == now);
    r.on_outcome(failed, now, now);
    CHECK(r.due() <= now + 10ms);
}

TEST_CASE("a lease that is to reach the end of the longest hold is renewed by another master all the same") {
    renewal r = granted({.lease = 30s, .max_hold = 20s});
    REQUIRE(r.due() == never);
    CHECK(r.on_master_change(start + 1s));
    CHECK(r.due() == start + 1s);
    r.on_outcome(kept, start + 1s, start + 1s);
    CHECK(r.due() == never);
    renewal not_renewed = granted({.lease = 30s, .renew = false});
    not_renewed.on_master_change(start + 1s);
    CHECK(not_renewed.due() == never);
}

TEST_CASE("a lease that is not to be renewed never is due, and is over in time") {
    renewal r = granted({.lease = 30s, .renew = false});
    CHECK(r.due() == never);
    CHECK_FALSE(r.ready(start + 10s));
    CHECK(r.lost(r.until()) == loss_reason::expired);
}

TEST_CASE("a renewal may go a little early, so that several go together, but never after validity") {
    const renewal r = granted({.lease = 48s});
    CHECK(r.ready(r.due()));
    CHECK(r.ready(r.due() - 1s));
    CHECK_FALSE(r.ready(r.due() - 1001ms));
    CHECK(r.ready(r.until() - 1ns));
    CHECK_FALSE(r.ready(r.until()));
    CHECK_FALSE(r.ready(start));
}

// ---- failures --------------------------------------------------------------------------------------------

TEST_CASE(
    "a renewal that failed is tried again after pauses that grow, jittered, up to a twelfth of the lease") {
    std::set<clock::duration> first_pauses;
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        renewal r = granted({.lease = 30s}, seed * 0x9e3779b97f4a7c15U);
        auto now = r.due();
        clock::duration most = 10ms;
        for (int failure = 0; now < r.until(); ++failure) {
            r.on_outcome(failed, now, now);
            const auto pause = r.due() - now;
            REQUIRE(pause >= most / 2);
            REQUIRE(pause <= most);
            if (failure == 0) first_pauses.insert(pause);
            REQUIRE(r.ready(r.due()) == (r.due() < r.until()));
            most = std::min<clock::duration>(most * 2, 1250ms);
            now = r.due();
        }
        REQUIRE_FALSE(r.ready(now));
    }
    CHECK(first_pauses.size() > 150);
}

TEST_CASE("failures are tried again until validity ends, and not after it") {
    renewal r = granted({.lease = 1s});
    auto last = r.due();
    int tries = 0;
    for (auto now = r.due(); now < r.until(); now = r.due()) {
        last = now;
        REQUIRE(r.on_outcome(failed, now, now) != news::lost);
        ++tries;
    }
    CHECK(tries >= 7);
    CHECK(r.until() - last <= 1000ms / 24 + 1ms);  // the last one is late
    CHECK(r.on_outcome(failed, r.until(), r.until()) == news::none);
    CHECK(r.due() == never);
    CHECK(r.lost(r.until()) == loss_reason::expired);
}

TEST_CASE("a lease is at risk once for a series of failures, and again after a success") {
    renewal r = granted();
    CHECK(r.on_outcome(failed, start + 10s, start + 10s) == news::at_risk);
    CHECK(r.on_outcome(failed, start + 11s, start + 11s) == news::none);
    CHECK(r.on_outcome(failed, start + 12s, start + 12s) == news::none);
    CHECK(r.on_outcome(kept, start + 13s, start + 13s) == news::none);
    CHECK(r.on_outcome(failed, start + 23s, start + 23s) == news::at_risk);
    CHECK(r.due() - (start + 23s) <= 10ms);  // the pauses, too, begin anew
    CHECK(r.on_outcome(failed, start + 24s, start + 24s) == news::none);
}

TEST_CASE("the pauses of a short lease are short") {
    renewal r = granted({.lease = 10ms});
    for (auto now = r.due(); now < r.until(); now = r.due()) {
        r.on_outcome(failed, now, now);
        REQUIRE(r.due() > now);
        REQUIRE(r.due() <= now + 1ms);
    }
}

// ---- losses ----------------------------------------------------------------------------------------------

TEST_CASE("an answer that the lock is not ours ends validity at once, with the reason") {
    for (const auto& [outcome, why] : {std::pair{gone, loss_reason::expired}, {taken, loss_reason::taken}}) {
        renewal r = granted();
        CHECK(r.on_outcome(outcome, start + 10s, start + 11s) == news::lost);
        CHECK(r.until() == start + 11s);
        CHECK(r.lost(start + 11s) == why);
        CHECK(r.lost(start + 50s) == why);
        CHECK(r.due() == never);
        CHECK_FALSE(r.ready(start + 12s));
    }
}

TEST_CASE("an answer that the lock is not ours after validity is over does not move its end") {
    renewal r = granted();
    const auto until = r.until();
    CHECK(r.on_outcome(taken, until - 1s, until + 1s) == news::lost);
    CHECK(r.until() == until);
    CHECK(r.lost(until) == loss_reason::expired);  // it was lost by its time
}

// ---- the longest hold ------------------------------------------------------------------------------------

TEST_CASE("the longest hold caps validity from the grant on, and is the reason for the loss") {
    renewal r({.lease = 30s, .max_hold = 45s}, 30s, start, start + 1s, 1);
    CHECK(r.until() == validity_end(start, 30s));
    CHECK(r.on_outcome(kept, start + 10s, start + 10s) == news::none);
    CHECK(r.until() == validity_end(start + 10s, 30s));
    CHECK(r.due() != never);
    CHECK(r.on_outcome(kept, start + 20s, start + 20s) == news::none);
    CHECK(r.until() == start + 46s);
    CHECK(r.due() == never);  // nothing is to be won
    CHECK_FALSE(r.lost(start + 46s - 1ns));
    CHECK(r.lost(start + 46s) == loss_reason::max_hold);
}

TEST_CASE("a hold that is shorter than the lease is not renewed at all") {
    const renewal r({.lease = 30s, .max_hold = 10ms}, 30s, start, start, 1);
    CHECK(r.until() == start + 10ms);
    CHECK(r.due() == never);
    CHECK(r.lost(start + 10ms) == loss_reason::max_hold);
}

TEST_CASE("a lease that ran out before the longest hold was over is expired, one taken away is taken") {
    const renewal r = granted({.lease = 10s, .max_hold = 1h});
    CHECK(r.lost(start + 10s) == loss_reason::expired);
    renewal t = granted({.lease = 10s, .max_hold = 20s});
    t.on_outcome(taken, start + 3s, start + 3s);
    CHECK(t.lost(start + 25s) == loss_reason::taken);
}

TEST_CASE("without a limit a hold is as long as it is renewed") {
    renewal r = granted({.lease = 24h});
    auto now = start;
    for (int day = 0; day < 3000; ++day) {
        now = r.due();
        REQUIRE(r.on_outcome(kept, now, now) == news::none);
    }
    CHECK(now > start + 24h * 900);
    CHECK_FALSE(r.lost(now));
}

// The thread that was passed the lock late had it for what was left of the lease, and no longer.
TEST_CASE("a thread that is passed a lock has the longest hold anew, and it is renewed for that") {
    renewal r({.lease = 30s, .max_hold = 20s}, 30s, start, start, 1);
    CHECK(r.until() == start + 20s);
    CHECK(r.due() == never);
    r.pass(start + 5s);
    CHECK(r.until() == start + 25s);
    CHECK(r.due() == never);  // the lease is long enough
    r.pass(start + 15s);
    CHECK(r.until() == validity_end(start, 30s));
    CHECK(r.ready(start + 15s));
    CHECK(r.on_outcome(kept, start + 15s, start + 15s) == news::none);
    CHECK(r.until() == start + 35s);
    CHECK(r.due() == never);
    CHECK_FALSE(r.lost(start + 35s - 1ns));
    CHECK(r.lost(start + 35s) == loss_reason::max_hold);
}

TEST_CASE("a thread that is passed a lock that was handed over believes it no longer than the offer") {
    renewal r({.lease = 30s, .max_hold = 10s}, 2s, start, start, 1);
    r.pass(start + 1s);
    CHECK(r.until() == validity_end(start, 2s));
    CHECK(r.lease_end() == validity_end(start, 2s));
}

// ---- what the server may still have ----------------------------------------------------------------------

TEST_CASE("the server's key is gone a lease after the last instant at which it may have been renewed") {
    renewal r({.lease = 10s}, 10s, start, start + 1s, 1);
    CHECK(r.latest_expiry() == start + 11s);
    r.on_outcome(kept, start + 3s, start + 4s);
    CHECK(r.latest_expiry() == start + 14s);
    r.on_outcome(failed, start + 7s, start + 8s);  // it may have been applied
    CHECK(r.latest_expiry() == start + 18s);
    CHECK(r.on_outcome(kept, start + 8s, start + 20s) == news::too_late);
    CHECK(r.latest_expiry() == start + 30s);
}

// ---- ends of ranges --------------------------------------------------------------------------------------

TEST_CASE("the shortest lease is renewed in time, the longest too") {
    for (const milliseconds lease : {10ms, 86'400'000ms}) {
        for (std::uint64_t seed = 1; seed <= 100; ++seed) {
            const renewal r = granted({.lease = lease}, seed);
            REQUIRE(r.due() > start);
            REQUIRE(r.due() < r.until());
            REQUIRE(r.until() < start + lease);
        }
    }
}

TEST_CASE("nothing overflows: the longest hold there is, at the end of the clock") {
    const auto late = never - 1s;
    renewal r({.lease = 24h, .max_hold = milliseconds::max()}, 24h, late, late, 1);
    CHECK(r.until() == never);
    CHECK(r.latest_expiry() == never);
    renewal s({.lease = 24h}, 24h, late, late, 0);
    CHECK(s.until() == never);
    CHECK_FALSE(s.lost(never - 1ns));
    renewal t({.lease = 10s, .max_hold = milliseconds::max()}, 10s, start, start, ~std::uint64_t{0});
    CHECK(t.until() == validity_end(start, 10s));
    CHECK(t.due() != never);
}

}  // namespace renewal_tests
