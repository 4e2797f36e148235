// What is sent next to release a lock, given what the server said; when; and what unlock() says of it.
#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/engine/release.hpp>
#include <distlock/wire/outcome.hpp>

#include "support/catch.hpp"

namespace release_tests {

namespace {

using distlock::release_outcome;
using distlock::release_verdict;
using distlock::engine::certainty;
using distlock::engine::release;
using form = release::form;
using time_point = distlock::clock::time_point;
using namespace std::chrono_literals;

constexpr time_point start{1h};
constexpr time_point expiry = start + 10s;
constexpr auto never = time_point::max();

constexpr release_verdict released{release_outcome::released};
constexpr release_verdict expired{release_outcome::expired};
constexpr release_verdict taken{release_outcome::taken};
constexpr release_verdict lost{release_outcome::unreachable, true, true};
constexpr release_verdict not_sent{release_outcome::unreachable, true, false};
constexpr release_verdict busy{release_outcome::refused, true};
constexpr release_verdict forbidden{release_outcome::refused, false};
constexpr release_verdict too_much{release_outcome::refused, true, false, true};
constexpr release_verdict elsewhere{release_outcome::wrong_process};

release granted() { return {certainty::granted, expiry}; }

release after(std::initializer_list<release_verdict> said) {
    release r = granted();
    for (const auto& one : said) r.on_verdict(one, start);
    return r;
}
release_outcome outcome(std::initializer_list<release_verdict> said, bool in_time = true) {
    return after(said).outcome(in_time);
}

}  // namespace

TEST_CASE("a release begins with the whole one, and is not confirmed") {
    CHECK(granted().next() == form::whole);
    CHECK_FALSE(granted().confirmed());
    CHECK(granted().latest_expiry() == expiry);
    CHECK(granted().outcome(true) == release_outcome::unreachable);
}

TEST_CASE("the server's word that the key is not ours confirms a release") {
    for (const auto& word : {released, expired, taken}) {
        release r = granted();
        CHECK(r.on_verdict(word, start) == never);
        CHECK(r.confirmed());
    }
}

TEST_CASE("a release in a child after fork is over: there is nothing to repeat") {
    release r = granted();
    CHECK(r.on_verdict(elsewhere, start) == never);
    CHECK(r.confirmed());
    CHECK(r.outcome(true) == release_outcome::wrong_process);
}

TEST_CASE("a release that was not confirmed is repeated, in pauses that double up to 100 ms") {
    for (const auto& trouble : {lost, not_sent, busy, forbidden}) {
        release r = granted();
        auto now = start;
        for (const auto pause : {50ms, 100ms, 100ms, 100ms}) {
            const auto next = r.on_verdict(trouble, now);
            CHECK(next == now + pause);
            CHECK_FALSE(r.confirmed());
            CHECK(r.next() == form::whole);
            now = next;
        }
    }
}

TEST_CASE("a release is repeated no later than the key expires, whatever the server does") {
    for (const auto& trouble : {lost, busy, too_much}) {
        release r = granted();
        r.on_verdict(trouble, start);
        CHECK(r.on_verdict(trouble, expiry - 1ms) <= expiry);
        CHECK(r.on_verdict(trouble, expiry) == never);
        CHECK(r.on_verdict(trouble, expiry) == never);
        CHECK_FALSE(r.confirmed());
    }
}

TEST_CASE(
    "a server that lacks what the whole release needs is asked for the minimal one, at once and by turns") {
    release r = granted();
    for (int i = 0; i < 3; ++i) {
        CHECK(r.next() == form::whole);
        CHECK(r.on_verdict(too_much, start) == start);
        CHECK(r.next() == form::minimal);
        CHECK(r.on_verdict(too_much, start) > start);
    }
}

// A waiter would be overtaken: it was not served, and found the lock by looking.
TEST_CASE("a busy server is asked for the whole release, also after a minimal one") {
    CHECK(after({busy}).next() == form::whole);
    CHECK(after({too_much, busy}).next() == form::whole);
    CHECK(after({busy, busy}).next() == form::whole);
}

TEST_CASE(
    "a slot that is on its way to another node is waited for once, then the lock is freed by its key alone") {
    const release_verdict moving{release_outcome::refused, true, false, true, true};
    release r = granted();
    CHECK(r.on_verdict(moving, start) == start + 50ms);
    CHECK(r.next() == form::whole);
    CHECK(r.on_verdict(moving, start) == start);
    CHECK(r.next() == form::minimal);
    CHECK(r.on_verdict(released, start) == never);
}

TEST_CASE("a minimal release that was not answered is repeated as it is") {
    CHECK(after({too_much, lost}).next() == form::minimal);
    CHECK(after({too_much, not_sent}).next() == form::minimal);
}

TEST_CASE("a minimal release that finds nothing of ours is followed by the whole one: a ticket may be left") {
    for (const auto& word : {expired, taken}) {
        release r = after({too_much});
        CHECK(r.on_verdict(word, start) == start + 50ms);
        CHECK_FALSE(r.confirmed());
        CHECK(r.next() == form::whole);
        CHECK(r.on_verdict(word, start) == never);
        CHECK(r.confirmed());
    }
}

TEST_CASE("a minimal release that freed the lock confirms it: its owner has no ticket") {
    release r = after({too_much});
    CHECK(r.on_verdict(released, start) == never);
    CHECK(r.confirmed());
}

// It was over with the first word that nothing was there; what had been given up arrived after that,
// and stayed for a lease.
TEST_CASE("a token in doubt is looked for until its key has expired, whatever the server says now") {
    release r(certainty::in_doubt, expiry);
    auto now = start;
    for (const auto& word : {expired, taken, released, expired, expired, expired, released}) {
        const auto next = r.on_verdict(word, now);
        CHECK(next >= now + 50ms);
        CHECK(next <= now + std::max<distlock::clock::duration>(50ms, 2 * (now - start)));
        CHECK_FALSE(r.confirmed());
        now = next;
    }
    CHECK(r.on_verdict(expired, expiry - 1ms) == expiry);
    CHECK(r.on_verdict(expired, expiry) == never);
}

TEST_CASE("a token in doubt whose server is in trouble is asked for as often as any other") {
    release r(certainty::in_doubt, expiry);
    auto now = start;
    for (int i = 0; i < 5; ++i) now = r.on_verdict(expired, now);
    CHECK(r.on_verdict(lost, now) == now + 100ms);
}

// ---- outcomes --------------------------------------------------------------------------------------------

TEST_CASE("a release is released in time, and expired after the validity though the key was still there") {
    CHECK(outcome({released}) == release_outcome::released);
    CHECK(outcome({released}, false) == release_outcome::expired);
}

TEST_CASE("a release that finds nothing, or somebody else's lock, says so") {
    for (const bool in_time : {true, false}) {
        CHECK(outcome({expired}, in_time) == release_outcome::expired);
        CHECK(outcome({taken}, in_time) == release_outcome::taken);
    }
}

TEST_CASE(
    "after a lost answer a key that is gone counts as released while the lease is valid: nobody else came "
    "before") {
    CHECK(outcome({lost, expired}) == release_outcome::released);
    CHECK(outcome({lost, taken}) == release_outcome::released);
    CHECK(outcome({lost, expired}, false) == release_outcome::expired);
    CHECK(outcome({lost, taken}, false) == release_outcome::taken);
    CHECK(outcome({lost, not_sent, expired}) == release_outcome::released);
}

TEST_CASE(
    "after a release that certainly was not applied a key that is gone counts as expired: the lock was "
    "lost") {
    CHECK(outcome({not_sent, expired}) == release_outcome::expired);
    CHECK(outcome({busy, expired}) == release_outcome::expired);
    CHECK(outcome({not_sent, taken}) == release_outcome::taken);
}

TEST_CASE("a release that was not confirmed says what the server said last") {
    CHECK(outcome({lost, lost}) == release_outcome::unreachable);
    CHECK(outcome({lost, forbidden}) == release_outcome::refused);
    CHECK(outcome({busy, lost}, false) == release_outcome::unreachable);
}

}  // namespace release_tests
