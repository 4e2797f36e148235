// The dialect of semaphores: intent to command, and what the replies mean.
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/sha1.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/dialect.hpp>
#include <distlock/wire/enter_mode.hpp>
#include <distlock/wire/handoff.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/permit_inspector.hpp>
#include <distlock/wire/permit_scripts.hpp>
#include <distlock/wire/permits.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/server_error.hpp>
#include <distlock/wire/shared_handoff.hpp>

#include "support/argv_of.hpp"
#include "support/catch.hpp"
#include "support/handoff_answers.hpp"

namespace permits_tests {

namespace {

using distlock::channel_kind;
using distlock::command;
using distlock::enter_mode;
using distlock::errc;
using distlock::lock_options;
using distlock::permits;
using distlock::release_outcome;
using distlock::reply;
using distlock::token;
using namespace std::chrono_literals;
namespace detail = distlock::detail;
using kind = distlock::acquire_outcome::kind;
using words = std::vector<std::string>;

static_assert(distlock::check_dialect<permits>());
static_assert(distlock::queueing_dialect<permits>);

const lock_options bare{.lease = 30s};
const std::string queue_key = "{pool}:distlock:queue";
const std::string limit_key = "{pool}:distlock:limit";
const token owner = token::from("0123456789abcdef0123456789abcdef");
const std::string digits(owner.view());

words called(const distlock::script& s, const words& more) {
    words all{"EVALSHA", std::string(s.sha1())};
    all.insert(all.end(), more.begin(), more.end());
    return all;
}

}  // namespace

TEST_CASE("a request for permits says how many there are, how many it wants, and where it hears of them") {
    const permits one("pool", bare);
    CHECK(argv_of<std::string>(one.acquire(owner)) ==
          called(detail::permit_enter,
                 {"3", "pool", queue_key, limit_key, digits, " 30000 1 q0 ", "try", "90000", "1"}));
    CHECK(argv_of<std::string>(one.acquire(owner)) == argv_of<std::string>(one.look(owner)));
    const permits three("pool", bare, "here", channel_kind::sharded, 8, 3);
    CHECK(argv_of<std::string>(three.enter(owner, enter_mode::join)) ==
          called(detail::permit_enter,
                 {"3", "pool", queue_key, limit_key, digits, " 30000 3 Q4 here", "join", "90000", "8"}));
    CHECK(argv_of<std::string>(three.enter(owner, enter_mode::last)).at(8) == "last");
    CHECK(three.look(owner).routing_key() == "pool");
    CHECK(argv_of<std::string>(three.renew(owner)) ==
          called(detail::permit_renew, {"3", "pool", queue_key, limit_key, digits, "30000", "3", "90000"}));
    CHECK(argv_of<std::string>(three.release(owner)) ==
          called(detail::permit_leave,
                 {"3", "pool", queue_key, limit_key, digits, " 30000 3 Q4 here", "90000"}));
    CHECK(argv_of<std::string>(three.release_minimal(owner)) == argv_of<std::string>(three.release(owner)));
    CHECK(argv_of<std::string>(three.resize("12")) ==
          called(detail::permit_resize, {"3", "pool", queue_key, limit_key, "12", "90000"}));
}

TEST_CASE("a message for permits is none for the others") {
    const std::string text = digits + " 17 2000n 0 pool";
    REQUIRE(permits::read_message(text));
    CHECK(permits::read_message(text)->owner == owner);
    CHECK(permits::read_message(text)->ttl == 2s);
    CHECK(permits::name_in(text) == "pool");
    CHECK_FALSE(distlock::handoff::read_message(text));
    CHECK_FALSE(distlock::shared_handoff::read_message(text));
    CHECK_FALSE(distlock::exclusive_handoff::read_message(text));
    CHECK_FALSE(permits::read_message(digits + " 17 2000 0 pool"));
    const auto asked = permits::read_message(digits + " 17 0n 0 pool");
    REQUIRE(asked);
    CHECK(asked->asks());
    CHECK_FALSE(asked->watch);
    CHECK(permits::read_message(digits + " 17 polln 0 pool")->watch);
    CHECK_FALSE(permits::read_message(digits + " 17 poll 0 pool"));
    CHECK_FALSE(permits::read_message(text)->asks());
    for (const char* bad :
         {" 17 00n 0 pool", " 17 n 0 pool", " 17 xn 0 pool", " 17 0n 5 pool", " 17 0 0 pool"})
        CHECK_FALSE(permits::read_message(digits + bad));
}

TEST_CASE("answers about permits mean what those about a lock mean, and another limit is refused") {
    const permits one("pool", bare);
    namespace answers = handoff_answers;
    const auto granted = one.read_enter(answers::granted("", 1500));
    CHECK(granted.what == kind::granted);
    CHECK(granted.granted_for == 1500ms);
    CHECK(one.read_enter(answers::granted("", 99'000)).granted_for == 30s);
    const auto busy = one.read_look(answers::queued(7));
    CHECK(busy.what == kind::busy);
    CHECK(busy.queued.ticket == 7);
    const auto mismatch = one.read_acquire(reply::error("LIMITMISMATCH it has 8 permits, not 9"));
    CHECK(mismatch.what == kind::refused);
    CHECK(mismatch.cause == errc::limit_mismatch);
    CHECK(one.read_enter(reply::integer(1)).what == kind::unknown);
    CHECK(one.read_renew(reply::integer(1)).what == distlock::renew_outcome::kind::kept);
    CHECK(one.read_renew(reply::integer(0)).what == distlock::renew_outcome::kind::gone);
    CHECK(one.read_release(reply::integer(1)).what == release_outcome::released);
    CHECK(one.read_release(reply::integer(0)).what == release_outcome::expired);
    CHECK(one.read_resize(reply::integer(5)) == 5);
    CHECK_FALSE(one.read_resize(reply::error("ERR")));
}

TEST_CASE("a name that can have no keys beside it has no permits") {
    for (const std::string& name : {std::string(), std::string("a}b"), limit_key}) {
        CHECK_THROWS_AS(permits(name, bare), distlock::error);
        CHECK_THROWS_AS(distlock::permit_inspector(name), distlock::error);
    }
}

TEST_CASE("a report of a semaphore says how many have permits and how many wait") {
    const distlock::permit_inspector about("pool");
    const auto wants = std::string(owner.view()) + " 30000 2 q3 abc";
    const auto answer = [&](const reply& ttl, const reply& limit) {
        return about.read_inspect(
            reply::array({reply::integer(3), ttl, limit, reply::integer(1'000'500), reply::integer(2),
                          reply::array({reply::string(wants), reply::string("1000000")})}));
    };
    const auto report = answer(reply::integer(900), reply::integer(8));
    REQUIRE(report);
    CHECK(report->shares == 3U);
    CHECK(report->limit == 8U);
    CHECK(report->remaining == 900ms);
    CHECK(report->waiters == 2U);
    REQUIRE(report->queue.size() == 1);
    CHECK(report->queue[0].permits == 2U);
    CHECK(report->queue[0].waits == 500us);
    CHECK(report->queue[0].channel == "abc");
    CHECK_FALSE(about.read_inspect(reply::array({reply::integer(3)})));
    CHECK_FALSE(answer(reply::integer(900), reply::string("8")));
    CHECK_FALSE(answer(reply::integer(900), reply::integer(-1))->limit);
    const std::string two = std::string(token::generate().view()) + ' ' + std::string(owner.view());
    CHECK(about.was_forced(reply::string(two), owner));
    CHECK_FALSE(about.was_forced(reply::string(two), token::generate()));
    CHECK_FALSE(about.was_forced(reply::nil(), owner));
    // Less than a millisecond is left; then they have no TTL.
    const auto remaining = [&](std::int64_t ttl) {
        return answer(reply::integer(ttl), reply::integer(8))->remaining;
    };
    CHECK(remaining(0) == 0ms);
    CHECK_FALSE(remaining(-1));
}

TEST_CASE("each script of the semaphore states its contract first, and its digest is that of its text") {
    for (const distlock::script* s :
         {&detail::permit_enter, &detail::permit_leave, &detail::permit_renew, &detail::permit_resize}) {
        CHECK(s->text().starts_with("-- KEYS: permits, "));
        const auto digest = detail::sha1_hex(s->text());
        CHECK(std::string_view(digest.data(), digest.size()) == s->sha1());
    }
    CHECK(detail::permit_inspect().starts_with("-- KEYS: permits, "));
    CHECK(detail::permit_force_release().starts_with("-- KEYS: permits, "));
}

}  // namespace permits_tests
