// The messages that a lock object may get: over which connections, in which dialects, and for which token.
#include <cstddef>
#include <memory>
#include <string>

#include <distlock/engine/background_io.hpp>
#include <distlock/engine/background_release.hpp>
#include <distlock/engine/release.hpp>
#include <distlock/interop.hpp>
#include <distlock/net/any_connection.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/wire/any_dialect.hpp>
#include <distlock/wire/handoff.hpp>

#include "support/attempt.hpp"
#include "support/catch.hpp"
#include "support/handoff_names.hpp"
#include "support/publishing_connection.hpp"
#include "support/tokens_in_doubt.hpp"
#include "support/waiting.hpp"

namespace inbox_tests {

namespace {

using namespace attempt_test;
using distlock::any_connection_of;
using distlock::any_dialect_of;
using distlock::listener;
using distlock::engine::manner_of_waiting;

const distlock::handoff handing_over("orders", {.lease = 30s}, "distlock:here");
const distlock::redisson telling("orders", {.lease = 30s});
const distlock::plain silent("orders", {.lease = 30s});

const token first = token::generate();
const token second = token::generate();

std::string message_for(const token& owner) { return std::string(owner.view()) + " 7 2000 0 orders"; }

/// Returns: whether there is a message.
bool has_one(inbox& messages) {
    auto got = listener::woken::by_confirmation;
    while (got == listener::woken::by_confirmation) got = messages.get()->wait(distlock::clock::now(), {});
    return got == listener::woken::by_message;
}

}  // namespace

TEST_CASE("a waiter queues where locks are handed over, is woken where releases are told, and else polls") {
    publishing_connection redis;
    const any_connection_of<publishing_connection> hears(redis);
    CHECK(manner_of_waiting(hears, any_dialect_of<distlock::handoff>(handing_over)) ==
          waiting_manner::queues);
    CHECK(manner_of_waiting(hears, any_dialect_of<distlock::redisson>(telling)) == waiting_manner::woken);
    CHECK(manner_of_waiting(hears, any_dialect_of<distlock::plain>(silent)) == waiting_manner::polls);
    scripted_connection cannot;
    const any_connection_of<scripted_connection> deaf(cannot);
    CHECK(manner_of_waiting(deaf, any_dialect_of<distlock::handoff>(handing_over)) == waiting_manner::polls);
    CHECK(manner_of_waiting(deaf, any_dialect_of<distlock::redisson>(telling)) == waiting_manner::polls);
}

TEST_CASE("a waiter that polls expects no message, and subscribes to nothing") {
    publishing_connection redis;
    auto messages = inbox_of<manual_clock>(redis, silent);
    CHECK(messages.expect(first) == nullptr);
    CHECK(redis.channels.empty());
    CHECK_FALSE(messages.in_force());
}

TEST_CASE("a hand-over to the token that is expected is kept, one to any other is answered with a release") {
    publishing_connection redis;
    auto messages = inbox_of<manual_clock>(redis, handing_over);
    CHECK(messages.get() == nullptr);
    auto* const expected = messages.expect(first);
    REQUIRE(expected != nullptr);
    CHECK(messages.expect(first) == expected);
    CHECK(messages.in_force());
    redis.source->deliver(message_for(first));
    CHECK(has_one(messages));
    CHECK(redis.inner.commands().empty());

    REQUIRE(messages.expect(second) != nullptr);
    redis.inner.then(reply::integer(1));
    redis.source->deliver(message_for(first));
    REQUIRE(eventually([&] { return redis.inner.commands().size() == 1; }));
    const auto sent = redis.inner.commands()[0].argv;
    CHECK(handoff_name_of(sent) == "leave");
    CHECK(sent.at(7) == first.view());
    CHECK_FALSE(has_one(messages));
    CHECK(redis.channels.size() == 1);
}

TEST_CASE("a process to which anybody publishes hand-overs goes on with what it knows to be its own") {
    using distlock::engine::background_io;
    using distlock::engine::background_release;
    manual_clock::reset();
    publishing_connection silent_server;
    const auto io = distlock::engine::background_io_of<manual_clock>(silent_server);
    const auto dialect = std::make_shared<const any_dialect_of<distlock::handoff>>(handing_over);
    inbox messages(io, dialect);
    REQUIRE(messages.expect(first) != nullptr);
    for (std::size_t i = 0; i < background_io::most_adopted; ++i)
        silent_server.source->deliver(message_for(token::generate()));
    const auto ours = std::make_shared<background_release>(*io, dialect);
    const auto now = manual_clock::now();
    background_release::repeat(ours, second, {distlock::engine::certainty::granted, now + 30s}, now);
    CHECK(ours->pending() == second);
}

// They had the same places: what was handed to a waiter that had been stopped stayed there for its whole
// offer.
TEST_CASE("a lock that is handed to nobody is released also while very many tokens are in doubt") {
    manual_clock::reset();
    publishing_connection redis;
    auto messages = inbox_of<manual_clock>(redis, handing_over);
    REQUIRE(messages.expect(first) != nullptr);
    const auto io = distlock::engine::background_io_of<manual_clock>(redis);
    fill_with_doubt(*io);
    redis.inner.then(reply::integer(1));
    redis.source->deliver(message_for(second));
    CHECK(eventually([&] { return redis.inner.commands().size() == 1; }));
}

TEST_CASE("a message is for every token where releases are told") {
    publishing_connection redis;
    auto messages = inbox_of<manual_clock>(redis, telling);
    auto* const expected = messages.expect(first);
    REQUIRE(expected != nullptr);
    CHECK(messages.expect(second) == expected);
    redis.source->deliver("0");
    CHECK(has_one(messages));
    messages.forget();
    CHECK(messages.get() == nullptr);
}

TEST_CASE("a waiter that cannot subscribe hears nothing, and tries it again for its next token") {
    publishing_connection redis;
    redis.refuses = true;
    auto messages = inbox_of<manual_clock>(redis, handing_over);
    CHECK(messages.expect(first) == nullptr);
    CHECK_FALSE(messages.in_force());
    redis.refuses = false;
    CHECK(messages.expect(second) != nullptr);
    CHECK(messages.in_force());
    CHECK(redis.channels.size() == 2);
}

}  // namespace inbox_tests
