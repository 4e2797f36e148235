// The hand-off dialect: intent to command; what the replies mean is in handoff_replies.cpp.
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/base/key.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/owner.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/sha1.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/handoff.hpp>
#include <distlock/wire/handoff_scripts.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/plain.hpp>
#include <distlock/wire/reply.hpp>

#include "catch.hpp"

namespace {

using distlock::acquire_outcome;
using distlock::command;
using distlock::errc;
using distlock::handoff;
using distlock::lock_options;
using distlock::place;
using distlock::plain;
using distlock::release_outcome;
using distlock::reply;
using distlock::token;
using namespace std::chrono_literals;
namespace detail = distlock::detail;
using kind = acquire_outcome::kind;
using words = std::vector<std::string_view>;

const lock_options bare_options{.lease = 30s};
const lock_options fenced_options{.lease = 30s, .fencing = true};
const lock_options labelled_options{.lease = 30s, .owner_info = "night job"};
const lock_options all_options{.lease = 30s, .fencing = true, .owner_info = "night job"};

const handoff bare("orders:42", bare_options);
const handoff fenced("orders:42", fenced_options);
const handoff labelled("orders:42", labelled_options);
const handoff both("orders:42", all_options);

const std::string offers_key = "{orders:42}:distlock:offers";
const std::string waiters_key = "{orders:42}:distlock:waiters";
const std::string fence_key = "{orders:42}:distlock:fence";
const std::string owner_key = "{orders:42}:distlock:owner";
const std::string fence_life = "3900000";  // an hour and ten leases
const std::string night_job = distlock::describe_owner("night job");

const token owner = token::from("0123456789abcdef0123456789abcdef");
const std::string digits(owner.view());

words argv_of(const command& cmd) { return {cmd.argv().begin(), cmd.argv().end()}; }

// What a script is called with, besides the four words that come first.
words called(const distlock::script& s, std::string_view keys, const words& more) {
    words all{"EVALSHA", s.sha1(), keys, "orders:42"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
}

}  // namespace

// Commands.

TEST_CASE("to acquire is SET NX PX, and a look where something is kept beside the lock") {
    const command cmd = bare.acquire(owner);
    CHECK(argv_of(cmd) == words{"SET", "orders:42", digits, "NX", "PX", "30000"});
    CHECK(cmd.routing_key() == "orders:42");
    CHECK_FALSE(bare.looks_at_once());
    for (const handoff* one : {&fenced, &labelled, &both}) {
        CHECK(one->looks_at_once());
        CHECK(argv_of(one->acquire(owner)) == argv_of(one->look(owner)));
    }
}

TEST_CASE("to enter is one script with the place as a word; a look is to enter in no line") {
    struct row {
        place where;
        const char* word;
    };
    for (const row& row : {row{place::none, "try"}, row{place::join, "join"}, row{place::stay, "stay"},
                           row{place::quit, "quit"}, row{place::adopt, "adopt"}}) {
        INFO(row.word);
        const auto& script = detail::handoff_enter;
        CHECK(argv_of(bare.enter(owner, row.where)) ==
              called(script, "3", {offers_key, waiters_key, digits, "30000", row.word}));
        CHECK(
            argv_of(fenced.enter(owner, row.where)) ==
            called(script, "4", {offers_key, waiters_key, fence_key, digits, "30000", row.word, fence_life}));
        CHECK(argv_of(labelled.enter(owner, row.where)) ==
              called(script, "5",
                     {offers_key, waiters_key, fence_key, owner_key, digits, "30000", row.word, "0",
                      night_job}));
        CHECK(argv_of(both.enter(owner, row.where)) ==
              called(script, "5",
                     {offers_key, waiters_key, fence_key, owner_key, digits, "30000", row.word, fence_life,
                      night_job}));
    }
    for (const handoff* one : {&bare, &fenced, &labelled, &both}) {
        CHECK(argv_of(one->look(owner)) == argv_of(one->enter(owner, place::none)));
        CHECK(one->look(owner).routing_key() == "orders:42");
        CHECK(one->look(owner).is_script());
    }
}

TEST_CASE("to release, to watch and to revive are one script, which is told the latter two") {
    const auto check = [](const words& what, command (handoff::*ask)(const token&) const) {
        const auto& script = detail::handoff_pass;
        const auto expected = [&](std::string_view keys, words of, const words& life) {
            of.insert(of.end(), {digits, "30000"});
            if (!life.empty() || !what.empty()) of.push_back(life.empty() ? "0" : life.front());
            of.insert(of.end(), what.begin(), what.end());
            return called(script, keys, of);
        };
        CHECK(argv_of((bare.*ask)(owner)) == expected("3", {offers_key, waiters_key}, {}));
        CHECK(argv_of((fenced.*ask)(owner)) ==
              expected("4", {offers_key, waiters_key, fence_key}, {fence_life}));
        const words all{offers_key, waiters_key, fence_key, owner_key};
        CHECK(argv_of((labelled.*ask)(owner)) == expected("5", all, {"0"}));
        CHECK(argv_of((both.*ask)(owner)) == expected("5", all, {fence_life}));
        CHECK((both.*ask)(owner).routing_key() == "orders:42");
    };
    check({}, &handoff::release);
    check({"look"}, &handoff::watch);
    check({"revive"}, &handoff::revive);
}

TEST_CASE("to wait is BLPOP of the offers, routed as the lock") {
    const command cmd = both.wait("0.125");
    CHECK(argv_of(cmd) == words{"BLPOP", offers_key, "0.125"});
    CHECK(cmd.routing_key() == "orders:42");
    CHECK_FALSE(cmd.is_script());
}

TEST_CASE("to leave names the lock, the offers and the waiters, and nothing else") {
    for (const handoff* one : {&bare, &both}) {
        CHECK(argv_of(one->leave()) == called(detail::handoff_leave, "3", {offers_key, waiters_key}));
        CHECK(one->leave().routing_key() == "orders:42");
    }
}

TEST_CASE("to renew and to free are the plain dialect's commands") {
    for (const lock_options& options : {bare_options, fenced_options, labelled_options, all_options}) {
        const handoff one("orders:42", options);
        const plain other("orders:42", options);
        CHECK(argv_of(one.renew(owner)) == argv_of(other.renew(owner)));
        CHECK(argv_of(one.free(owner)) == argv_of(other.release(owner)));
        CHECK(argv_of(other.free(owner)) == argv_of(other.release(owner)));
    }
}

TEST_CASE("all keys of a lock that is handed over share its slot, hash tag or not") {
    for (const char* name : {"plain", "{tag}", "a{tag}b", "a{b", "{", "a{{b}c}d", "{a}{b}"}) {
        INFO(name);
        const handoff lock(name, all_options);
        CHECK(lock.hands_over());
        CHECK(lock.name() == name);
        const command cmd = lock.enter(owner, place::join);
        const auto argv = cmd.argv();
        CHECK(argv[3] == name);
        const words kinds{"offers", "waiters", "fence", "owner"};
        const std::string stem = distlock::key(name).sibling("x");
        for (std::size_t i = 0; i < kinds.size(); ++i) {
            CHECK(argv[4 + i] == stem.substr(0, stem.size() - 1) + std::string(kinds[i]));
            CHECK(distlock::hash_tag(argv[4 + i]) == distlock::hash_tag(name));
        }
    }
    CHECK(argv_of(handoff("a{tag}b", bare_options).wait("0"))[1] == "a{tag}b:distlock.:offers");
}

TEST_CASE("a name that can have no key beside it is locked as in the plain dialect") {
    for (const char* name : {"a}b", "}", "}{", "a}{b", "{}", "a{}b"}) {
        INFO(name);
        const handoff one(name, bare_options);
        const plain other(name, bare_options);
        CHECK_FALSE(one.hands_over());
        CHECK_FALSE(one.looks_at_once());
        CHECK(argv_of(one.acquire(owner)) == argv_of(other.acquire(owner)));
        CHECK(argv_of(one.look(owner)) == argv_of(other.look(owner)));
        CHECK(argv_of(one.renew(owner)) == argv_of(other.renew(owner)));
        CHECK(argv_of(one.release(owner)) == argv_of(other.release(owner)));
        CHECK(argv_of(one.free(owner)) == argv_of(other.release(owner)));
        CHECK(one.read_look(reply::status("OK")).what == kind::granted);
        CHECK(one.read_look(reply::integer(17)).ttl == 17ms);
        CHECK(one.read_look(reply::array({reply::integer(1), reply::string("")})).what == kind::unknown);
        CHECK(one.read_release(reply::integer(2)).what == release_outcome::unreachable);
        CHECK_FALSE(one.read_release(reply::error("NOPERM x")).again);
        for (const lock_options& options : {fenced_options, labelled_options}) {
            CHECK_THROWS_AS(handoff(name, options), distlock::error);
        }
    }
}

TEST_CASE("a name that cannot be used is refused by the hand-off as by the plain dialect") {
    for (const std::string& name : {std::string(), std::string(4097, 'x'), waiters_key, offers_key}) {
        CHECK_THROWS_AS(handoff(name, bare_options), distlock::error);
    }
}

// Scripts.

TEST_CASE("each script of the hand-off states its contract first, and its digest is that of its text") {
    for (const distlock::script* s :
         {&detail::handoff_enter, &detail::handoff_pass, &detail::handoff_leave}) {
        CHECK(s->text().starts_with("-- KEYS: lock, offers, waiters"));
        CHECK(s->text().find("-- Returns ") != std::string_view::npos);
        const auto digest = detail::sha1_hex(s->text());
        CHECK(std::string_view(digest.data(), digest.size()) == s->sha1());
    }
}
