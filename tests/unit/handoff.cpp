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
#include <distlock/wire/dialect.hpp>
#include <distlock/wire/enter_mode.hpp>
#include <distlock/wire/handoff.hpp>
#include <distlock/wire/handoff_scripts.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/plain.hpp>
#include <distlock/wire/reply.hpp>

#include "support/argv_of.hpp"
#include "support/catch.hpp"

namespace handoff_tests {

namespace {

using distlock::acquire_outcome;
using distlock::channel_kind;
using distlock::command;
using distlock::enter_mode;
using distlock::errc;
using distlock::handoff;
using distlock::lock_options;
using distlock::plain;
using distlock::release_outcome;
using distlock::reply;
using distlock::token;
using namespace std::chrono_literals;
namespace detail = distlock::detail;
using kind = acquire_outcome::kind;
using words = std::vector<std::string_view>;

static_assert(distlock::check_dialect<handoff>());
static_assert(distlock::queueing_dialect<handoff>);

const lock_options bare_options{.lease = 30s};
const lock_options fenced_options{.lease = 30s, .fencing = true};
const lock_options labelled_options{.lease = 30s, .owner_info = "night job"};
const lock_options all_options{.lease = 30s, .fencing = true, .owner_info = "night job"};

const handoff bare("orders:42", bare_options);
const handoff fenced("orders:42", fenced_options, "its channel");
const handoff labelled("orders:42", labelled_options, "its channel", channel_kind::sharded);
const handoff both("orders:42", all_options);

const std::string queue_key = "{orders:42}:distlock:queue";
const std::string fence_key = "{orders:42}:distlock:fence";
const std::string owner_key = "{orders:42}:distlock:owner";
const std::string fence_life = "3900000";  // an hour and ten leases
const std::string night_job = distlock::describe_owner("night job");

// What a ticket of each says behind the token.
const std::string bare_needs = " 30000 0 p0 ";
const std::string fenced_needs = " 30000 3900000 p11 its channel";
const std::string labelled_needs = " 30000 0 s11 its channel" + night_job;
const std::string both_needs = " 30000 3900000 p0 " + night_job;

const token owner = token::from("0123456789abcdef0123456789abcdef");
const std::string digits(owner.view());

// What a script is called with, besides the words that come first.
words called(const distlock::script& s, const words& more) {
    words all{"EVALSHA", s.sha1(), "4", "orders:42", queue_key, fence_key, owner_key};
    all.insert(all.end(), more.begin(), more.end());
    return all;
}

}  // namespace

// Commands.

TEST_CASE("to acquire is to acquire in the plain dialect, whatever is kept beside the lock") {
    const command cmd = bare.acquire(owner);
    CHECK(argv_of(cmd) == words{"SET", "orders:42", digits, "NX", "PX", "30000"});
    CHECK(cmd.routing_key() == "orders:42");
    CHECK_FALSE(bare.acquire_is_script());
    for (const auto& [one, options] :
         {std::pair(&fenced, &fenced_options), std::pair(&labelled, &labelled_options),
          std::pair(&both, &all_options)}) {
        CHECK(one->acquire_is_script());
        const distlock::plain same("orders:42", *options);
        CHECK(argv_of(one->acquire(owner)) == argv_of(same.acquire(owner)));
    }
}

TEST_CASE("to enter is one script with the mode as a word; a look is to try once") {
    struct row {
        enter_mode mode;
        const char* word;
    };
    struct asker {
        const handoff& dialect;
        const std::string& needs;
    };
    for (const asker& one : {asker{bare, bare_needs}, asker{fenced, fenced_needs},
                             asker{labelled, labelled_needs}, asker{both, both_needs}}) {
        for (const row& row : {row{enter_mode::try_once, "try"}, row{enter_mode::join, "join"},
                               row{enter_mode::last, "last"}}) {
            INFO(row.word);
            CHECK(argv_of(one.dialect.enter(owner, row.mode)) ==
                  called(detail::handoff_enter, {digits, one.needs, row.word, "90000"}));
        }
        CHECK(argv_of(one.dialect.look(owner)) == argv_of(one.dialect.enter(owner, enter_mode::try_once)));
        CHECK(one.dialect.look(owner).routing_key() == "orders:42");
        CHECK(one.dialect.look(owner).is_script());
        CHECK(argv_of(one.dialect.release(owner)) == called(detail::handoff_leave, {digits, one.needs}));
        CHECK(one.dialect.release(owner).routing_key() == "orders:42");
    }
}

TEST_CASE("a release says the largest fence that was used under its token, where fences are made") {
    token used = owner;
    used.fence(1763718245123456);
    const words more{"1763718245123456", fence_life};
    const auto& leave = detail::handoff_leave;
    CHECK(argv_of(fenced.release(used)) == called(leave, {digits, fenced_needs, more[0], more[1]}));
    CHECK(argv_of(both.release(used)) == called(leave, {digits, both_needs, more[0], more[1]}));
    for (const handoff* one : {&bare, &labelled})
        CHECK(argv_of(one->release(used)) == argv_of(one->release(owner)));
    CHECK(argv_of(fenced.release_minimal(used)) == words{"EVALSHA", detail::plain_release.sha1(), "2",
                                                         "orders:42", fence_key, digits, "1763718245123456",
                                                         fence_life});
}

TEST_CASE("the queue lasts as long as three re-checks or a lease, whichever is longer") {
    CHECK(handoff::queue_life({.lease = 30s}) == 90s);
    CHECK(handoff::queue_life({.lease = 91s}) == 91s);
    CHECK(handoff::queue_life({.lease = 30s, .recheck = 1s}) == 90s);
    CHECK(handoff::queue_life({.lease = 30s, .recheck = 1h}) == 3h);
}

TEST_CASE("to renew and to free are the plain dialect's commands") {
    for (const lock_options& options : {bare_options, fenced_options, labelled_options, all_options}) {
        const handoff one("orders:42", options);
        const plain other("orders:42", options);
        CHECK(argv_of(one.renew(owner)) == argv_of(other.renew(owner)));
        CHECK(argv_of(one.release_minimal(owner)) == argv_of(other.release(owner)));
        CHECK(argv_of(other.release_minimal(owner)) == argv_of(other.release(owner)));
    }
}

TEST_CASE("all keys of a lock that is handed over share its slot, hash tag or not") {
    for (const char* name : {"plain", "{tag}", "a{tag}b", "a{b", "{", "a{{b}c}d", "{a}{b}"}) {
        INFO(name);
        const handoff lock(name, all_options);
        CHECK(lock.hands_over());
        CHECK(lock.name() == name);
        const command cmd = lock.enter(owner, enter_mode::join);
        const auto argv = cmd.argv();
        CHECK(argv[3] == name);
        const words kinds{"queue", "fence", "owner"};
        const std::string stem = distlock::key(name).sibling("x");
        for (std::size_t i = 0; i < kinds.size(); ++i) {
            CHECK(argv[4 + i] == stem.substr(0, stem.size() - 1) + std::string(kinds[i]));
            CHECK(distlock::hash_tag(argv[4 + i]) == distlock::hash_tag(name));
        }
    }
}

TEST_CASE("a name that can have no key beside it is locked as in the plain dialect") {
    for (const char* name : {"a}b", "}", "}{", "a}{b", "{}", "a{}b"}) {
        INFO(name);
        const handoff one(name, bare_options);
        const plain other(name, bare_options);
        CHECK_FALSE(one.hands_over());
        CHECK_FALSE(one.acquire_is_script());
        CHECK(argv_of(one.acquire(owner)) == argv_of(other.acquire(owner)));
        CHECK(argv_of(one.look(owner)) == argv_of(other.look(owner)));
        CHECK(argv_of(one.renew(owner)) == argv_of(other.renew(owner)));
        CHECK(argv_of(one.release(owner)) == argv_of(other.release(owner)));
        CHECK(argv_of(one.release_minimal(owner)) == argv_of(other.release(owner)));
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
    for (const std::string& name : {std::string(), std::string(4097, 'x'), queue_key}) {
        CHECK_THROWS_AS(handoff(name, bare_options), distlock::error);
    }
}

// Scripts.

TEST_CASE("each script of the hand-off states its contract first, and its digest is that of its text") {
    for (const distlock::script* s : {&detail::handoff_enter, &detail::handoff_leave}) {
        CHECK(s->text().starts_with("-- KEYS: lock, queue, fence, owner. ARGV: token,"));
        CHECK(s->text().find(" Returns ") != std::string_view::npos);
        const auto digest = detail::sha1_hex(s->text());
        CHECK(std::string_view(digest.data(), digest.size()) == s->sha1());
    }
}

}  // namespace handoff_tests
