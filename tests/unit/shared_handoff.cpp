// The two sides of a shared lock: intent to command, and what the replies mean.
#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/owner.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/sha1.hpp>
#include <distlock/wire/any_dialect.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/dialect.hpp>
#include <distlock/wire/enter_mode.hpp>
#include <distlock/wire/handoff.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/plain.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/shared_handoff.hpp>
#include <distlock/wire/shared_inspector.hpp>
#include <distlock/wire/shared_scripts.hpp>

#include "support/argv_of.hpp"
#include "support/catch.hpp"
#include "support/handoff_answers.hpp"

namespace shared_handoff_tests {

namespace {

using distlock::channel_kind;
using distlock::command;
using distlock::enter_mode;
using distlock::errc;
using distlock::exclusive_handoff;
using distlock::lock_options;
using distlock::release_outcome;
using distlock::reply;
using distlock::shared_handoff;
using distlock::token;
using namespace std::chrono_literals;
namespace detail = distlock::detail;
using kind = distlock::acquire_outcome::kind;
using words = std::vector<std::string>;

static_assert(distlock::check_dialect<exclusive_handoff>() && distlock::check_dialect<shared_handoff>());
static_assert(distlock::queueing_dialect<exclusive_handoff> && distlock::queueing_dialect<shared_handoff>);

const lock_options bare{.lease = 30s};
const lock_options fenced{.lease = 30s, .fencing = true};

const std::string queue_key = "{orders:42}:distlock:queue";
const std::string fence_key = "{orders:42}:distlock:fence";
const std::string owner_key = "{orders:42}:distlock:owner";
const std::string readers_key = "{orders:42}:distlock:readers";

const token owner = token::from("0123456789abcdef0123456789abcdef");
const std::string digits(owner.view());

words called(const distlock::script& s, const words& more) {
    words all{"EVALSHA",  std::string(s.sha1()), "5", "orders:42", queue_key, fence_key, owner_key,
              readers_key};
    all.insert(all.end(), more.begin(), more.end());
    return all;
}

}  // namespace

TEST_CASE("a writer takes a free lock as every client does, a reader by a script") {
    const exclusive_handoff writer("orders:42", bare);
    CHECK_FALSE(writer.acquire_is_script());
    CHECK(argv_of<std::string>(writer.acquire(owner)) ==
          words{"SET", "orders:42", digits, "NX", "PX", "30000"});
    const shared_handoff reader("orders:42", bare);
    CHECK(reader.acquire_is_script());
    CHECK(argv_of<std::string>(reader.acquire(owner)) == argv_of<std::string>(reader.look(owner)));
    std::array<char, 64> room{};
    const auto alone = reader.acquire_unqueued(owner, room);
    REQUIRE(alone);
    CHECK(argv_of<std::string>(*alone) ==
          words{"SET", "orders:42", "distlock:readers " + digits, "NX", "PX", "30000"});
    CHECK_FALSE(shared_handoff("orders:42", fenced).acquire_unqueued(owner, room));
    const exclusive_handoff with_fence("orders:42", fenced);
    CHECK(with_fence.acquire_is_script());
    CHECK(argv_of<std::string>(with_fence.acquire(owner)) == argv_of<std::string>(with_fence.look(owner)));
}

TEST_CASE("a reader's ticket has an upper-case letter, a writer's is that of a mutex") {
    for (const auto kind : {channel_kind::ordinary, channel_kind::sharded}) {
        const bool sharded = kind == channel_kind::sharded;
        const exclusive_handoff writer("orders:42", bare, "here", kind);
        const shared_handoff reader("orders:42", bare, "here", kind);
        CHECK(argv_of<std::string>(writer.enter(owner, enter_mode::join)) ==
              called(detail::shared_enter,
                     {digits, std::string(" 30000 0 ") + (sharded ? 's' : 'p') + "4 here", "join", "90000"}));
        CHECK(
            argv_of<std::string>(reader.enter(owner, enter_mode::last)) ==
            called(detail::shared_enter, {digits, std::string(" 30000 0 ") + (sharded ? 'S' : 'P') + "4 here",
                                          "last", "90000", "30000"}));
        for (const bool reads : {false, true}) {
            const auto needs = argv_of<std::string>(reads ? reader.look(owner) : writer.look(owner)).at(9);
            const std::string text = digits + needs;
            const auto ticket = detail::ticket::read(text);
            REQUIRE(ticket);
            CHECK(ticket->reads == reads);
            CHECK(ticket->kind == kind);
            CHECK(ticket->channel == "here");
            CHECK(ticket->needs() == needs);
        }
    }
}

// Readers were told the one that the process was granted, where it died before it could tell of
// those it made itself.
TEST_CASE("every fence of a writer is the server's: readers are told it whatever becomes of the writer") {
    const exclusive_handoff writer("orders:42", fenced);
    CHECK_FALSE(distlock::any_dialect_of<exclusive_handoff>("orders:42", fenced).allows_local_fences());
    CHECK(argv_of<std::string>(writer.release(owner)) ==
          called(detail::shared_leave, {digits, " 30000 3900000 p0 "}));
}

TEST_CASE("a reader renews and releases its own place among the readers") {
    const shared_handoff reader("orders:42", bare);
    CHECK(argv_of<std::string>(reader.renew(owner)) == words{"EVALSHA",
                                                             std::string(detail::shared_renew.sha1()), "2",
                                                             "orders:42", readers_key, digits, "30000"});
    CHECK(argv_of<std::string>(reader.release_minimal(owner)) ==
          words{"EVALSHA", std::string(detail::shared_leave_minimal.sha1()), "2", "orders:42", readers_key,
                digits});
    CHECK(reader.renew(owner).routing_key() == "orders:42");
}

TEST_CASE(
    "the release of a writer that needs least is that of every client, and needs the lock's key alone") {
    const exclusive_handoff writer("orders:42", bare);
    CHECK(argv_of<std::string>(writer.release_minimal(owner)) ==
          words{"EVALSHA", std::string(detail::plain_release.sha1()), "1", "orders:42", digits});
}

TEST_CASE("a token takes over what another one has") {
    const token other = token::from("ffffffffffffffffffffffffffffffff");
    const shared_handoff reader("orders:42", fenced);
    CHECK(argv_of<std::string>(reader.exchange(owner, other)) ==
          called(detail::shared_exchange, {digits, " 30000 3900000 P0 ", std::string(other.view())}));
}

TEST_CASE("a server's answer to a reader or a writer means what it means to a mutex") {
    const exclusive_handoff writer("orders:42", fenced);
    const shared_handoff reader("orders:42", fenced);
    const distlock::handoff mutex("orders:42", fenced);
    namespace answers = handoff_answers;
    for (const reply& r : {answers::granted("7"), answers::granted("7", 99'000), answers::granted(""),
                           answers::taken(), answers::queued(), reply::error("ERR"), reply::integer(1),
                           reply::no_answer(errc::no_reply, "gone")}) {
        const auto meant = mutex.read_enter(r);
        for (const auto& told :
             {writer.read_enter(r), reader.read_enter(r), reader.read_look(r), reader.read_acquire(r)}) {
            CHECK(told.what == meant.what);
            CHECK(told.fence == meant.fence);
            CHECK(told.granted_for == meant.granted_for);
            CHECK(told.ttl == meant.ttl);
            CHECK(told.queued.ticket == meant.queued.ticket);
        }
    }
    for (const reply& r : {reply::integer(1), reply::integer(0), reply::integer(-1), reply::error("OOM"),
                           reply::error("ERR"), reply::no_answer(errc::no_reply, "gone")}) {
        const auto meant = mutex.read_release(r);
        CHECK(reader.read_release(r).what == meant.what);
        CHECK(reader.read_release(r).minimal == meant.minimal);
        CHECK(writer.read_release(r).again == meant.again);
        CHECK(reader.read_renew(r).what == mutex.read_renew(r).what);
    }
}

TEST_CASE("a message for a reader is none for a writer, nor for a mutex, and the other way round") {
    const std::string reads = digits + " 17 2000r 5 orders:42";
    const std::string writes = digits + " 17 2000w 5 orders:42";
    const std::string neither = digits + " 17 2000 5 orders:42";
    REQUIRE(shared_handoff::read_message(reads));
    CHECK(shared_handoff::read_message(reads)->owner == owner);
    CHECK(shared_handoff::read_message(reads)->ttl == 2000ms);
    CHECK(shared_handoff::read_message(reads)->fence == 5);
    CHECK(shared_handoff::name_in(reads) == "orders:42");
    REQUIRE(exclusive_handoff::read_message(writes));
    CHECK(exclusive_handoff::name_in(writes) == "orders:42");
    CHECK_FALSE(shared_handoff::read_message(writes));
    CHECK_FALSE(shared_handoff::read_message(neither));
    CHECK_FALSE(exclusive_handoff::read_message(reads));
    CHECK_FALSE(exclusive_handoff::read_message(neither));
    CHECK_FALSE(distlock::handoff::read_message(reads));
    CHECK_FALSE(distlock::handoff::read_message(writes));
    for (const char* text : {"", "r", " 17 2000r 5 x"}) CHECK_FALSE(shared_handoff::read_message(text));
    const auto asked = exclusive_handoff::read_message(digits + " 17 0w 0 orders:42");
    REQUIRE(asked);
    CHECK(asked->asks());
    CHECK_FALSE(shared_handoff::read_message(digits + " 17 0w 0 orders:42"));
}

TEST_CASE("a name that can have no keys beside it is refused by both sides") {
    for (const std::string& name : {std::string(), std::string("a}b"), readers_key}) {
        CHECK_THROWS_AS(shared_handoff(name, bare), distlock::error);
        CHECK_THROWS_AS(exclusive_handoff(name, bare), distlock::error);
        CHECK_THROWS_AS(distlock::shared_inspector(name), distlock::error);
    }
}

TEST_CASE("an owner that lost the lock by force knows it, a reader by the mark of all") {
    const distlock::shared_inspector about("orders:42");
    CHECK(about.was_forced(reply::string(digits), owner));
    CHECK(about.was_forced(reply::string("distlock:readers"), owner));
    CHECK(about.was_forced(reply::string("distlock:readers " + digits), owner));
    CHECK_FALSE(about.was_forced(reply::string("distlock:readers ffffffffffffffffffffffffffffffff"), owner));
    CHECK_FALSE(about.was_forced(reply::string("ffffffffffffffffffffffffffffffff"), owner));
    CHECK_FALSE(about.was_forced(reply::nil(), owner));
}

TEST_CASE("a report says how many read, and who of the queue wants to") {
    const distlock::shared_inspector about("orders:42");
    const auto report = about.read_inspect(
        reply::array({reply::string("distlock:readers"), reply::integer(900), reply::string("7"),
                      reply::string(""), reply::integer(5'000'000), reply::integer(2),
                      reply::array({reply::string(digits + " 30000 0 p0 "), reply::string("4000000"),
                                    reply::string(digits + " 30000 0 P0 "), reply::string("4500000")}),
                      reply::integer(3)}));
    REQUIRE(report);
    CHECK_FALSE(report->holder);
    CHECK(report->shares == 3U);
    CHECK(report->remaining == 900ms);
    CHECK(report->fence == 7U);
    REQUIRE(report->queue.size() == 2);
    CHECK_FALSE(report->queue[0].reads);
    CHECK(report->queue[1].reads);
}

// The mark of readers whose lock was taken lives for up to a lease: a writer that lost its own by then
// heard that an operator took it.
TEST_CASE("a lock that an operator took from readers was no writer's") {
    const exclusive_handoff::inspector writer("orders:42");
    const shared_handoff::inspector reader("orders:42");
    CHECK(reader.was_forced(reply::string("distlock:readers"), owner));
    CHECK(reader.was_forced(reply::string("distlock:readers " + digits), owner));
    CHECK_FALSE(writer.was_forced(reply::string("distlock:readers"), owner));
    CHECK_FALSE(writer.was_forced(reply::string("distlock:readers " + digits), owner));
    CHECK(writer.was_forced(reply::string(digits), owner));
}

// It said that they expire in -1 ms.
TEST_CASE("a report says of readers without a TTL that they never expire") {
    const auto report =
        distlock::shared_inspector("orders:42")
            .read_inspect(reply::array({reply::string("distlock:readers"), reply::integer(-1),
                                        reply::string(""), reply::string(""), reply::integer(5'000'000),
                                        reply::integer(0), reply::array({}), reply::integer(1)}));
    REQUIRE(report);
    CHECK(report->shares == 1U);
    CHECK_FALSE(report->remaining);
}

TEST_CASE("each script of the shared lock states its contract first, and its digest is that of its text") {
    for (const distlock::script* s : {&detail::shared_enter, &detail::shared_leave, &detail::shared_exchange,
                                      &detail::shared_renew, &detail::shared_leave_minimal}) {
        CHECK(s->text().starts_with("-- KEYS: lock, "));
        CHECK((s->text().find("-- Returns ") != std::string_view::npos ||
               s->text().find(" answers as handoff has them") != std::string_view::npos ||
               s->text().find("-- Answers as enter") != std::string_view::npos));
        const auto digest = detail::sha1_hex(s->text());
        CHECK(std::string_view(digest.data(), digest.size()) == s->sha1());
    }
    CHECK(detail::shared_inspect().starts_with("-- KEYS: lock"));
    CHECK(detail::shared_force_release().starts_with("-- KEYS: lock"));
}

}  // namespace shared_handoff_tests
