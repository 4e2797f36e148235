// The scripts of shared locks on a real server: what they answer, and what they leave
// behind, whatever they find.
#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/base/key.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/token.hpp>
#include <distlock/testing.hpp>
#include <distlock/wire/enter_mode.hpp>
#include <distlock/wire/family_inspector.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/shared_handoff.hpp>
#include <distlock/wire/shared_inspector.hpp>

#include "support/catch.hpp"
#include "support/first_waiter.hpp"
#include "support/fresh_name.hpp"
#include "support/heard_channel.hpp"
#include "support/script_asker.hpp"
#include "support/waiting.hpp"

namespace shared_scripts_tests {

using namespace script_test;
using namespace std::chrono_literals;
using distlock::exclusive_handoff;
using distlock::lock_options;
using distlock::shared_handoff;

namespace {

constexpr auto mark = "distlock:readers";
const std::string deaf = "nobody:listens";

// The keys of one lock, as a stranger sees them.
struct lock_keys : seen_keys {
    explicit lock_keys(place& where, std::string name = fresh_name())
        : seen_keys(where, name),
          lock(std::move(name)),
          fence(distlock::key(lock).sibling("fence")),
          who(distlock::key(lock).sibling("owner")),
          readers(distlock::key(lock).sibling("readers")) {}
    std::string holder() const { return ask({"GET", lock}); }
    // A reader that is alone may have no set beside the key.
    bool lone() const { return holder().starts_with(std::string(mark) + " "); }
    bool read() const { return holder() == mark || lone(); }
    int reading() const { return lone() ? 1 : std::stoi(ask({"ZCARD", readers})); }
    bool free() const { return ask({"EXISTS", lock, queue, who, readers}) == "0"; }

    const std::string lock, fence, who, readers;
};

// One that reads or writes, or wants to.
template <class Dialect>
struct asker : script_asker<Dialect> {
    using script_asker<Dialect>::me;
    explicit asker(const lock_keys& of, const lock_options& options = {.lease = 30s},
                   const std::string& channel = "")
        : script_asker<Dialect>(of.at.link, of.lock, options, channel), keys(of) {}
    bool has() const {
        return keys.holder() == me.view() || alone() ||
               (keys.holder() == mark && keys.ask({"ZSCORE", keys.readers, me.view()}) != "(nil)");
    }

    bool alone() const { return keys.holder() == std::string(mark) + " " + std::string(me.view()); }

    const lock_keys& keys;
};
using reader = asker<shared_handoff>;
using writer = asker<exclusive_handoff>;

// Effects: it is past its end, though its place stands.
void lapse(const reader& one) {
    if (one.alone()) one.keys.ask({"SET", one.keys.lock, mark, "PX", "60000"});
    one.keys.ask({"ZADD", one.keys.readers, "1000", one.me.view()});
    one.keys.ask({"PEXPIRE", one.keys.readers, "60000"});
}

// Effects: checks that it is told, whatever it asks, how long others have the lock.
void is_kept_out(writer& one) {
    for (const enter_mode mode : modes) {
        const auto outcome = one.enter(mode);
        CHECK(outcome.what == got::busy);
        REQUIRE(outcome.ttl);
        CHECK(outcome.ttl->count() > 0);
    }
}

}  // namespace

TEST_CASE(
    "readers have a lock together, each with an end of its own, and the key lasts as long as the last of "
    "them") {
    for (const bool fencing : {false, true}) {
        const lock_keys it(common());
        reader first(it, {.lease = 20s, .fencing = fencing});
        reader second(it, {.lease = 50s, .fencing = fencing});
        CHECK(first.granted());
        CHECK(it.read());
        CHECK(it.ttl(it.lock) <= 20'000);
        CHECK(it.lone() == !fencing);
        CHECK(second.granted());
        CHECK(it.holder() == mark);
        CHECK(it.reading() == 2);
        CHECK(it.ttl(it.lock) > 40'000);
        CHECK(second.leave() == 1);
        CHECK(it.ttl(it.lock) <= 20'000);
        CHECK(it.ttl(it.readers) <= 20'000);
        CHECK(it.ttl(it.readers) > 10'000);
        CHECK(first.leave() == 1);
        CHECK(it.free());
        CHECK(first.leave() == 0);
        CHECK((it.ttl(it.fence) > 0) == fencing);
    }
}

TEST_CASE("readers are listed for as long as the last of them reads, in whatever order they came") {
    const lock_keys it(common());
    reader first(it, {.lease = 20s});
    reader second(it, {.lease = 20s});
    reader third(it, {.lease = 50s});
    for (reader* one : {&first, &second, &third}) REQUIRE(one->granted());
    CHECK(it.reading() == 3);
    CHECK(it.ttl(it.lock) > 40'000);
    CHECK(it.ttl(it.readers) > 40'000);
}

TEST_CASE("a reader is told whether others read, too, and only then") {
    const lock_keys it(common());
    reader first(it), second(it), third(it), fenced(it, {.lease = 30s, .fencing = true});
    CHECK_FALSE(first.enter(enter_mode::try_once).others_read);
    for (reader* const one : {&second, &third, &fenced}) {
        for (const enter_mode mode : modes) {
            token fresh = token::generate();
            std::swap(one->me, fresh);
            const auto outcome = one->enter(mode);
            CHECK(outcome.what == got::granted);
            CHECK(outcome.others_read);
            CHECK(one->leave() == 1);
        }
    }
    CHECK(first.leave() == 1);
    CHECK_FALSE(fenced.enter(enter_mode::try_once).others_read);
    fenced.leave();
    writer sole(it);
    CHECK_FALSE(sole.enter(enter_mode::join).others_read);
}

// It is what enter writes for a reader that is alone: the scripts tell no difference.
TEST_CASE("a reader that took the lock by a plain command is as one that was let in alone") {
    const lock_keys it(common());
    reader one(it), other(it);
    std::array<char, 64> room{};
    const auto take = [&] {
        return one.dialect.read_acquire(one.ask(*one.dialect.acquire_unqueued(one.me, room)));
    };
    CHECK(take().what == got::granted);
    CHECK(one.alone());
    CHECK(it.ttl(it.lock) > 20'000);
    CHECK(one.ask(*one.dialect.acquire_unqueued(one.me, room)).is(distlock::reply_kind::nil));
    CHECK(one.granted());  // asked again after an answer that was lost
    CHECK(one.renew() == 1);
    CHECK(other.enter(enter_mode::try_once).others_read);
    CHECK(it.reading() == 2);
    CHECK(one.leave() == 1);
    CHECK(other.leave() == 1);
    CHECK(it.free());
    writer sole(it);
    REQUIRE(sole.granted());
    CHECK(one.ask(*one.dialect.acquire_unqueued(one.me, room)).is(distlock::reply_kind::nil));
    CHECK(sole.leave() == 1);
}

// It ended the other's lock before its time, and heard nothing of its loss.
TEST_CASE("a reader whose lock was deleted does not renew that of a reader who is alone since") {
    const lock_keys it(common());
    reader first(it), lost(it, {.lease = 1s}), next(it);
    std::array<char, 64> room{};
    REQUIRE(first.granted());
    REQUIRE(lost.granted());
    it.ask({"DEL", it.lock});
    REQUIRE(next.ask(*next.dialect.acquire_unqueued(next.me, room)).is_status("OK"));
    CHECK(lost.renew() == 0);
    CHECK(it.ttl(it.lock) > 20'000);
    CHECK(next.alone());
    CHECK(next.leave() == 1);
}

TEST_CASE("a reader that is alone has one key, and gives it back, renews it and shares it as any other") {
    const lock_keys it(common());
    reader one(it, {.lease = 20s});
    reader other(it, {.lease = 40s});
    SECTION("it goes, and comes again") {
        for (int i = 0; i < 2; ++i) {
            REQUIRE(one.granted());
            CHECK(one.alone());
            CHECK(it.ask({"EXISTS", it.readers}) == "0");
            CHECK(other.leave() == -1);
            CHECK(other.renew() == 0);
            CHECK(other.ask(other.dialect.release_minimal(other.me)).number() == -1);
            CHECK(one.alone());
            CHECK((i == 0 ? one.leave() : one.ask(one.dialect.release_minimal(one.me)).number()) == 1);
            CHECK(it.free());
            CHECK(one.leave() == 0);
        }
    }
    SECTION("its renewal moves its end, and never nearer") {
        REQUIRE(one.granted());
        it.ask({"PEXPIRE", it.lock, "5000"});
        CHECK(one.renew() == 1);
        CHECK(it.ttl(it.lock) > 15'000);
        it.ask({"PEXPIRE", it.lock, "60000"});
        CHECK(one.renew() == 1);
        CHECK(it.ttl(it.lock) > 40'000);
    }
    SECTION("the next one makes the set of both, with its end") {
        REQUIRE(one.granted());
        it.ask({"ZADD", it.readers, "99999999999999", token::generate().view()});  // left of another time
        it.ask({"PEXPIRE", it.lock, "50000"});
        CHECK(other.granted());
        CHECK(it.reading() == 2);
        CHECK(it.ttl(it.lock) > 45'000);
        CHECK(one.leave() == 1);
        CHECK(it.ttl(it.lock) <= 40'000);
        CHECK(other.leave() == 1);
        CHECK(it.free());
    }
    SECTION("asked again, it is granted again") {
        REQUIRE(one.granted());
        CHECK(one.enter(enter_mode::join).granted_for > 15s);
        CHECK(it.reading() == 1);
        CHECK(one.leave() == 1);
        CHECK(it.free());
    }
    SECTION("a writer that waits is told its end, and has the lock after it; a reader behind it waits") {
        REQUIRE(one.granted());
        writer next(it);
        const auto told = next.enter(enter_mode::join);
        CHECK(told.queued.ticket != 0);
        CHECK(*told.ttl > 15s);
        CHECK(*told.ttl <= 20s);
        CHECK(other.waits());
        CHECK(one.leave() == 1);
        CHECK(next.has());
        CHECK(it.queued() == 1);
    }
    SECTION("a writer that leaves the queue lets in the readers it kept waiting, beside it") {
        REQUIRE(one.granted());
        writer next(it);
        REQUIRE(next.waits());
        REQUIRE(other.waits());
        CHECK(next.leave() == -1);
        CHECK(it.reading() == 2);
        CHECK(one.has());
        CHECK(other.has());
    }
    SECTION("it becomes the writer, and a reader again") {
        REQUIRE(one.granted());
        writer w(it);
        const auto to_write = w.ask(w.dialect.exchange(w.me, other.me));
        CHECK(to_write.elements()[0].number() == 0);
        CHECK(w.ask(w.dialect.exchange(w.me, one.me)).elements()[0].number() == 1);
        CHECK(it.holder() == w.me.view());
        CHECK(one.ask(one.dialect.exchange(one.me, w.me)).elements()[0].number() == 1);
        CHECK(one.has());
        CHECK(one.leave() == 1);
        CHECK(it.free());
    }
    SECTION("who stands in the queue before it comes is not overtaken") {
        writer next(it);
        REQUIRE(one.granted());
        REQUIRE(next.waits());
        it.ask({"DEL", it.lock});
        CHECK_FALSE(other.granted());
        CHECK(next.has());
    }
}

// Whoever came beside it took its end for now, and let a writer in.
TEST_CASE("a reader that is alone and whose key has lost its TTL keeps out all others, and heals it") {
    const lock_keys it(common());
    reader one(it, {.lease = 20s});
    reader other(it);
    writer next(it);
    REQUIRE(one.granted());
    REQUIRE(it.ask({"PERSIST", it.lock}) == "1");
    for (const auto mode : modes) {
        CHECK_FALSE(other.granted(mode));
        CHECK(other.last.elements()[1].number() == -1);
        CHECK_FALSE(next.granted(mode));
        CHECK(next.last.elements()[1].number() == -1);
    }
    const auto upgrade = next.ask(next.dialect.exchange(next.me, other.me));
    CHECK(upgrade.elements()[0].number() == 0);
    CHECK(one.alone());
    SECTION("by its renewal") { CHECK(one.renew() == 1); }
    SECTION("asked again") { CHECK(one.granted()); }
    SECTION("as a writer, which it becomes") {
        CHECK(next.ask(next.dialect.exchange(next.me, one.me)).elements()[0].number() == 1);
    }
    CHECK(it.ttl(it.lock) > 10'000);
}

TEST_CASE("readers whose key has lost its TTL read on when one with a short lease has come") {
    const lock_keys it(common());
    reader one(it);
    reader other(it);
    reader third(it, {.lease = 1s});
    REQUIRE(one.granted());
    REQUIRE(other.granted());
    REQUIRE(it.ask({"PERSIST", it.lock}) == "1");
    CHECK(third.granted());
    CHECK(it.reading() == 3);
    CHECK(it.ttl(it.lock) > 20'000);
    CHECK(it.ttl(it.readers) > 20'000);
}

TEST_CASE("a waiter that is let in at once has an offer's time, in every mode that waits") {
    for (const auto mode : modes) {
        for (const bool beside : {false, true}) {
            const lock_keys it(common());
            reader other(it, {.lease = 1s});
            if (beside) REQUIRE(other.granted());
            reader mine(it, {.lease = 30s});
            const auto outcome = mine.enter(mode);
            CHECK(outcome.what == got::granted);
            CHECK(outcome.granted_for == (mode == enter_mode::try_once ? 30'000ms : 2'000ms));
            CHECK(it.ttl(it.lock) <= outcome.granted_for->count());
            CHECK(it.ttl(it.lock) > outcome.granted_for->count() - 900);
        }
    }
}

TEST_CASE("a writer is alone: it keeps readers and writers out, readers keep writers out") {
    const lock_keys it(common());
    writer alone(it);
    reader late(it);
    writer other(it);
    REQUIRE(alone.granted());
    CHECK(it.holder() == alone.me.view());
    for (const auto mode : modes) {
        CHECK_FALSE(late.granted(mode));
        CHECK_FALSE(other.granted(mode));
    }
    CHECK(alone.leave() == 1);
    CHECK(it.free());
    REQUIRE(late.granted());
    for (const auto mode : modes) CHECK_FALSE(other.granted(mode));
    CHECK(late.leave() == 1);
    CHECK(it.free());
}

TEST_CASE("every client that takes a lock by SET NX excludes readers and writers, and they exclude it") {
    const lock_keys it(common());
    reader one(it);
    writer other(it);
    REQUIRE(it.ask({"SET", it.lock, "a stranger", "NX", "PX", "20000"}) == "OK");
    CHECK_FALSE(one.granted());
    CHECK_FALSE(other.granted());
    CHECK(one.leave() == -1);
    CHECK(one.renew() == -1);
    CHECK(it.holder() == "a stranger");
    it.ask({"DEL", it.lock});
    REQUIRE(one.granted());
    CHECK(it.ask({"SET", it.lock, "a stranger", "NX", "PX", "20000"}) == "(nil)");
    CHECK(one.leave() == 1);
}

TEST_CASE(
    "a reader that comes after a waiting writer waits behind it, and the readers behind it enter together") {
    const lock_keys it(common());
    reader inside(it);
    writer next(it);
    reader behind[3]{reader(it), reader(it), reader(it)};
    writer last(it);
    reader beyond(it);
    REQUIRE(inside.granted());
    CHECK(next.waits());
    for (auto& one : behind) {
        CHECK_FALSE(one.granted());
        CHECK(one.waits());
    }
    CHECK(last.waits());
    CHECK(beyond.waits());
    CHECK(beyond.enter(enter_mode::join).queued.position == 5);
    CHECK(inside.leave() == 1);
    CHECK(next.has());
    CHECK(it.queued() == 5);
    CHECK(it.ttl(it.lock) <= 2'000);
    CHECK(next.leave() == 1);
    CHECK(it.reading() == 3);
    for (auto& one : behind) CHECK(one.has());
    CHECK(it.queued() == 2);
    CHECK(behind[0].leave() == 1);
    CHECK(behind[1].leave() == 1);
    CHECK_FALSE(last.has());
    CHECK(behind[2].leave() == 1);
    CHECK(last.has());
    CHECK(last.leave() == 1);
    CHECK(beyond.has());
    CHECK(beyond.leave() == 1);
    CHECK(it.free());
}

TEST_CASE("beside readers nobody overtakes a writer that waits, whatever is left of them") {
    const lock_keys it(common());
    reader inside[2]{reader(it), reader(it)};
    for (auto& one : inside) REQUIRE(one.granted());
    writer next(it);
    REQUIRE(next.waits());
    reader late(it);
    SECTION("all of them") {
        for (const auto mode : modes) CHECK_FALSE(late.granted(mode));
        CHECK(inside[0].leave() == 1);
        CHECK_FALSE(next.has());
        CHECK(inside[1].leave() == 1);
        CHECK(next.has());
    }
    SECTION("the mark alone") {
        it.ask({"DEL", it.readers});
        CHECK_FALSE(late.granted());
        CHECK(next.has());
    }
}

TEST_CASE("a reader that asks again is granted again, and its end is never nearer than before") {
    for (const auto mode : modes) {
        const lock_keys it(common());
        reader one(it, {.lease = 30s, .fencing = true});
        reader other(it);
        const auto first = one.enter(enter_mode::try_once);
        REQUIRE(other.granted());
        const auto again = one.enter(mode);
        CHECK(again.what == got::granted);
        CHECK(again.fence == first.fence);
        CHECK(*again.granted_for > 20s);
        CHECK(it.reading() == 2);
        CHECK(it.queued() == 0);
    }
}

TEST_CASE("the first in the queue is granted the lock in the answer, and readers behind it with it") {
    const lock_keys it(common());
    writer inside(it);
    REQUIRE(inside.granted());
    reader one(it);
    reader two(it);
    REQUIRE(one.waits());
    REQUIRE(two.waits());
    it.ask({"DEL", it.lock});
    CHECK(one.granted(enter_mode::join));
    CHECK(two.has());
    CHECK(it.queued() == 0);
    CHECK(it.reading() == 2);
}

TEST_CASE("a reader past its end reads no more, however long others do") {
    const lock_keys it(common());
    reader dead(it);
    reader living(it);
    REQUIRE(dead.granted());
    REQUIRE(living.granted());
    lapse(dead);
    CHECK(dead.renew() == 0);
    CHECK(living.renew() == 1);
    writer next(it);
    REQUIRE(next.waits());
    CHECK(it.reading() == 1);
    lapse(dead);
    CHECK(living.leave() == 1);
    CHECK(next.has());
    CHECK(dead.leave() == -1);
    CHECK(next.has());
}

TEST_CASE("a waiter for readers is told when the first of them may be past its end") {
    const lock_keys it(common());
    reader dead(it, {.lease = 3s});
    reader living(it, {.lease = 40s});
    REQUIRE(dead.granted());
    REQUIRE(living.granted());
    writer next(it);
    CHECK(next.enter(enter_mode::join).ttl <= 3s);
    REQUIRE(dead.leave() == 1);
    CHECK(next.enter(enter_mode::join).ttl > 30s);
}

TEST_CASE("the last reader past its end takes the lock with it") {
    const lock_keys it(common());
    reader dead(it);
    REQUIRE(dead.granted());
    lapse(dead);
    writer next(it);
    CHECK(next.granted());
    CHECK(it.holder() == next.me.view());
    CHECK(it.reading() == 0);
}

TEST_CASE("a reader's renewal moves its own end, and never nearer") {
    const lock_keys it(common());
    reader one(it, {.lease = 3s});
    reader other(it, {.lease = 40s});
    REQUIRE(one.granted());
    CHECK(one.renew() == 1);
    REQUIRE(other.granted());
    const auto before = it.ttl(it.lock);
    CHECK(one.renew() == 1);
    CHECK(it.ttl(it.lock) <= before);
    CHECK(it.ttl(it.lock) > 30'000);
    // A set of readers that ends with the first lease lets a writer in beside them.
    for (const auto& key : {it.lock, it.readers}) it.ask({"PEXPIRE", key, "1000"});
    CHECK(other.renew() == 1);
    for (const auto& key : {it.lock, it.readers}) CHECK(it.ttl(key) > 30'000);
    it.ask({"ZADD", it.readers, "99999999999999", one.me.view()});
    CHECK(one.renew() == 1);
    CHECK(it.ask({"ZSCORE", it.readers, one.me.view()}) == "99999999999999");
    CHECK(other.leave() == 1);
    CHECK(other.renew() == 0);
}

TEST_CASE("a writer that gives up lets in the readers it kept waiting, by whatever way it leaves") {
    for (const bool posted : {false, true}) {
        const lock_keys it(common());
        reader inside(it);
        writer next(it);
        reader behind(it);
        REQUIRE(inside.granted());
        REQUIRE(next.waits());
        REQUIRE(behind.waits());
        if (posted) {
            next.leave();
        } else {
            CHECK(next.enter(enter_mode::last).what == got::busy);
        }
        CHECK(behind.has());
        CHECK(inside.has());
        CHECK(it.queued() == 0);
        CHECK(inside.leave() == 1);
        CHECK(behind.leave() == 1);
        CHECK(it.free());
    }
}

TEST_CASE("a waiter that nobody can tell is passed over, and so is what is no ticket") {
    const lock_keys it(common());
    reader inside(it);
    REQUIRE(inside.granted());
    writer deaf_one(it, {.lease = 30s}, deaf);
    REQUIRE(deaf_one.waits());
    it.ask({"ZADD", it.queue, "1", "no ticket"});
    reader deaf_reader(it, {.lease = 30s}, deaf);
    it.ask({"ZADD", it.queue, "2", std::string(deaf_reader.me.view()) + " 30000 0 P14 " + deaf});
    reader behind(it);
    CHECK(behind.granted(enter_mode::join));
    CHECK(it.queued() == 0);
    CHECK(it.reading() == 2);
}

// It kept out all readers for as long as one read.
TEST_CASE(
    "a writer in the way is asked whether it is there, and dropped when it does not look for two seconds") {
    const lock_keys it(common());
    heard_channel ears(common().server.socket_path());
    const auto asked = [&](const writer& whom, std::chrono::milliseconds patience = 10s) {
        return asks<exclusive_handoff>(ears.message(patience), whom.me, it.lock);
    };
    const auto later = [&] {
        CHECK(it.ttl(it.who) > 80'000);  // those far back look seldom
        it.ask({"SET", it.who, two_seconds_older(it.ask({"GET", it.who})), "PX", "90000"});
    };
    const bool both = GENERATE(false, true);  // the set of readers, or one key for a reader that is alone
    reader inside(it);
    reader beside(it);
    REQUIRE(inside.granted());
    if (both) REQUIRE(beside.granted());
    writer first(it, {.lease = 30s}, ears.name());
    REQUIRE(first.waits());
    reader small(it);
    writer next(it);
    reader last(it);
    const auto told = [](auto& who) { return who.enter(enter_mode::join).ttl.value_or(-1ms); };
    CHECK(told(small) == 2000ms);
    CHECK(asked(first));
    CHECK(told(next) <= 2000ms);
    CHECK(told(last) <= 2000ms);
    later();
    REQUIRE(first.waits());  // it is there
    CHECK(told(small) > 1000ms);
    CHECK_FALSE(asked(first, 0ms));
    later();
    CHECK(told(small) == 2000ms);
    CHECK(asked(first));
    CHECK(told(small) <= 2000ms);
    CHECK_FALSE(small.has());
    later();
    CHECK(small.granted(enter_mode::join));
    CHECK(told(last) <= 2000ms);  // the next writer stands before it
    CHECK_FALSE(last.has());
    CHECK(it.queued() == 2);
    for (reader* one : {&inside, &beside, &small}) static_cast<void>(one->leave());
    CHECK(next.has());
    CHECK(next.leave() == 1);
    CHECK(last.leave() == 1);
    CHECK(it.free());
}

// It was dropped again and again.
TEST_CASE("a writer that was dropped and lives is asked anew when it has joined again") {
    const lock_keys it(common());
    heard_channel ears(common().server.socket_path());
    reader inside(it);
    reader beside(it);
    REQUIRE(inside.granted());
    REQUIRE(beside.granted());
    writer first(it, {.lease = 30s}, ears.name());
    REQUIRE(first.waits());
    const auto before = std::to_string(first.dialect.read_enter(first.last).queued.ticket);
    it.ask({"SET", it.who, std::string(first.me.view()) + " " + before + " 1000 a", "PX", "90000"});
    reader small(it);
    CHECK(small.granted(enter_mode::join));
    REQUIRE(first.waits());
    reader next(it);
    REQUIRE(next.waits());
    CHECK(ears.message());
    CHECK(it.queued() == 2);
    CHECK(first.enter(enter_mode::join).ttl <= 1000ms);  // from now on it looks
    for (reader* one : {&inside, &beside, &small}) CHECK(one->leave() == 1);
    CHECK(first.has());
    CHECK(first.leave() == 1);
    CHECK(next.leave() == 1);
    CHECK(it.free());
}

TEST_CASE("a hand-over is told on the channel, to each as what it is") {
    const lock_keys it(common());
    heard_channel ears(common().server.socket_path());
    writer inside(it, {.lease = 30s, .fencing = true});
    REQUIRE(inside.granted());
    const auto written = inside.dialect.read_enter(inside.last).fence;
    reader one(it, {.lease = 30s, .fencing = true}, ears.name());
    reader two(it, {.lease = 30s, .fencing = true}, ears.name());
    writer three(it, {.lease = 1s}, ears.name());
    REQUIRE(one.waits());
    REQUIRE(two.waits());
    REQUIRE(three.waits());
    CHECK(inside.leave() == 1);
    for (const reader* who : {&one, &two}) {
        const auto text = ears.message();
        REQUIRE(text);
        const auto given = shared_handoff::read_message(*text);
        REQUIRE(given);
        CHECK(given->owner == who->me);
        CHECK(given->ttl == 2s);
        CHECK(given->fence == written);  // what they read is the last writer's
        CHECK(shared_handoff::name_in(*text) == it.lock);
    }
    CHECK(one.leave() == 1);
    CHECK_FALSE(ears.message(0ms));
    CHECK(two.leave() == 1);
    const auto text = ears.message();
    REQUIRE(text);
    const auto given = exclusive_handoff::read_message(*text);
    REQUIRE(given);
    CHECK(given->owner == three.me);
    CHECK(given->ttl == 1s);
    CHECK(given->fence == 0);
}

TEST_CASE("a writer that waited is described as one that did not") {
    const lock_keys it(common());
    writer inside(it);
    writer next(it, {.lease = 30s, .owner_info = "night job"});
    REQUIRE(inside.granted());
    REQUIRE(next.waits());
    CHECK(inside.leave() == 1);
    CHECK(it.ask({"GET", it.who}).starts_with(next.me.view()));
}

TEST_CASE("fences grow with every writer, and readers have that of the last one") {
    const lock_keys it(common());
    std::uint64_t last = 0;
    for (int i = 0; i < 3; ++i) {
        writer w(it, {.lease = 30s, .fencing = true});
        const auto mine = w.enter(enter_mode::try_once).fence;
        CHECK(mine > last);
        last = mine;
        CHECK(w.leave() == 1);
        reader r(it, {.lease = 30s, .fencing = true});
        CHECK(r.enter(enter_mode::try_once).fence == mine);
        CHECK(r.leave() == 1);
    }
}

// It ended an hour after the last writer, and who came then had a larger one than those that read on.
// Renewals failed, and who wanted to write was answered with what is no number of milliseconds.
TEST_CASE(
    "a reader that another client wrote, and that never ends, ends no other's read, and keeps writers out") {
    const lock_keys it(common());
    reader one(it);
    reader two(it);
    REQUIRE(one.granted());
    REQUIRE(two.granted());
    for (const std::string_view end : {"+inf", "1e300", "9007199254740993"}) {
        INFO(end);
        it.ask({"ZADD", it.readers, end, std::string(32, 'e')});
        for (int i = 0; i < 3; ++i) CHECK(one.renew() == 1);
        reader more(it);
        CHECK(more.granted());
        CHECK(more.renew() == 1);
        CHECK(more.leave() == 1);
        reader gone(it);
        CHECK(gone.granted());
        lapse(gone);
        writer late(it);
        is_kept_out(late);
        CHECK(it.reading() == 3);
        CHECK(more.granted());
        CHECK(late.waits());
        CHECK(more.leave() == 1);  // which looks after those that wait
        CHECK(late.leave() == -1);
        CHECK(one.renew() == 1);
    }
    CHECK(one.leave() == 1);
    lapse(two);
    for (const std::string_view end : {"1e300", "+inf"}) {  // alone
        it.ask({"ZADD", it.readers, end, std::string(32, 'e')});
        writer late(it);
        is_kept_out(late);
        CHECK(late.leave() == -1);
        CHECK(it.reading() == 1);
    }
}

TEST_CASE("a fence lasts as long as anybody reads under it") {
    const lock_keys it(common());
    const lock_options fenced{.lease = 30s, .fencing = true};
    constexpr std::int64_t hour = 3'600'000;
    const auto shorten = [&](const char* to) { REQUIRE(it.ask({"PEXPIRE", it.fence, to}) == "1"); };
    reader one(it, fenced), two(it, fenced), asks_again(it, fenced);
    REQUIRE(one.granted());
    shorten("1000");
    REQUIRE(one.renew() == 1);
    CHECK(it.ttl(it.fence) > hour);
    shorten("1000");
    REQUIRE(two.granted());
    CHECK(it.ttl(it.fence) > hour);
    shorten("1000");
    REQUIRE(two.renew() == 1);
    CHECK(it.ttl(it.fence) > hour);
    shorten("1000");
    REQUIRE(one.granted());
    CHECK(it.ttl(it.fence) > hour);
    shorten("86400000");  // that of a longer lease
    REQUIRE(one.renew() == 1);
    REQUIRE(asks_again.granted());
    CHECK(it.ttl(it.fence) > 20 * hour);
}

TEST_CASE("a set of readers that is left of another time lets nobody in") {
    const lock_keys it(common());
    reader ghost(it);
    it.ask({"ZADD", it.readers, "99999999999999", ghost.me.view()});
    SECTION("a writer takes the lock by SET NX") {
        const token stranger = token::generate();
        REQUIRE(it.ask({"SET", it.lock, stranger.view(), "NX", "PX", "20000"}) == "OK");
        CHECK(ghost.renew() == -1);
        CHECK_FALSE(ghost.granted());
    }
    SECTION("a reader comes") {
        reader one(it);
        CHECK(one.granted());
        CHECK(it.reading() == 1);
        CHECK(ghost.renew() == 0);
    }
    SECTION("a reader is let in by a release") {
        writer w(it);
        reader one(it);
        REQUIRE(w.granted(enter_mode::join));
        it.ask({"ZADD", it.readers, "99999999999999", ghost.me.view()});
        REQUIRE(one.waits());
        CHECK(w.leave() == 1);
        CHECK(it.reading() == 1);
        CHECK(one.has());
    }
    SECTION("nobody has the lock") { CHECK(ghost.renew() == 0); }
}

TEST_CASE("readers whose key is deleted or evicted have it no more, and nothing is left of them") {
    const lock_keys it(common());
    reader one(it);
    reader two(it);
    REQUIRE(one.granted());
    REQUIRE(two.granted());
    it.ask({"DEL", it.lock});
    CHECK(one.renew() == 0);
    writer next(it);
    CHECK(next.granted());
    CHECK(two.renew() == -1);
    CHECK(two.leave() == -1);
    CHECK(next.has());
    CHECK(next.leave() == 1);
    CHECK(it.free());
}

TEST_CASE("a writer becomes a reader in one step, and readers at the front enter with it") {
    const lock_keys it(common());
    writer inside(it, {.lease = 30s, .fencing = true, .owner_info = "night job"});
    REQUIRE(inside.granted());
    reader waits(it);
    writer last(it);
    REQUIRE(waits.waits());
    REQUIRE(last.waits());
    reader then(it, {.lease = 30s, .fencing = true});
    for (int i = 0; i < 2; ++i) {  // the answer may be lost
        const auto outcome = then.dialect.read_look(then.ask(then.dialect.exchange(then.me, inside.me)));
        CHECK(outcome.what == got::granted);
        CHECK(outcome.fence == inside.dialect.read_enter(inside.last).fence);
        CHECK(it.read());
        CHECK(it.reading() == 2);
        CHECK(it.queued() == 1);
        CHECK(it.ask({"EXISTS", it.who}) == "0");
        CHECK(it.ttl(it.lock) > 20'000);
    }
    CHECK(inside.leave() == -1);
    CHECK(it.reading() == 2);
    CHECK(then.leave() == 1);
    CHECK(waits.leave() == 1);
    CHECK(last.has());
}

TEST_CASE("the only reader becomes the writer in one step, before writers that wait") {
    const lock_keys it(common());
    reader one(it);
    reader two(it);
    REQUIRE(one.granted());
    REQUIRE(two.granted());
    writer waits(it);
    REQUIRE(waits.waits());
    writer then(it, {.lease = 30s, .fencing = true, .owner_info = "night job"});
    const auto asks = [&] {
        return then.dialect.read_look(then.ask(then.dialect.exchange(then.me, one.me)));
    };
    CHECK(asks().what == got::busy);
    CHECK(it.reading() == 2);
    CHECK(two.leave() == 1);
    const auto first = asks();
    CHECK(first.what == got::granted);
    CHECK(first.fence > 0);
    CHECK(it.holder() == then.me.view());
    CHECK(it.ttl(it.lock) > 20'000);
    CHECK(it.ask({"EXISTS", it.readers}) == "0");
    CHECK(it.ask({"EXISTS", it.who}) == "1");
    CHECK(asks().fence == first.fence);
    CHECK(one.leave() == -1);
    CHECK(then.has());
    CHECK(then.leave() == 1);
    CHECK(waits.has());
}

TEST_CASE("a token without the lock exchanges nothing, and the lock is not touched") {
    for (const bool reads : {false, true}) {
        const lock_keys it(common());
        const token stranger = token::generate();
        reader r(it);
        writer w(it);
        const auto asks = [&] {
            return reads ? r.dialect.read_look(r.ask(r.dialect.exchange(r.me, stranger))).what
                         : w.dialect.read_look(w.ask(w.dialect.exchange(w.me, stranger))).what;
        };
        CHECK(asks() == got::busy);
        CHECK(it.free());
        writer other(it);
        REQUIRE(other.granted());
        CHECK(asks() == got::busy);
        CHECK(other.has());
        CHECK(other.leave() == 1);
        reader beside(it);
        REQUIRE(beside.granted());
        CHECK(asks() == got::busy);
        CHECK(it.reading() == 1);
    }
}

TEST_CASE("a key of another type is an error, and stays as it is") {
    const auto is_a_list = [](const lock_keys& it, const std::string& key) {
        it.ask({"DEL", key});
        it.ask({"RPUSH", key, "a"});
        it.ask({"PEXPIRE", key, "60000"});
    };
    for (const bool reads : {false, true}) {
        const lock_keys it(common());
        reader r(it);
        writer w(it, {.lease = 30s, .fencing = true});
        const auto enter = [&] { return reads ? r.ask(r.dialect.look(r.me)) : w.ask(w.dialect.look(w.me)); };
        is_a_list(it, it.lock);
        CHECK(refused(enter(), errc::wrong_type));
        CHECK(refused(r.ask(r.dialect.renew(r.me)), errc::wrong_type));
        CHECK(refused(r.ask(r.dialect.release(r.me)), errc::wrong_type));
        CHECK(refused(r.ask(r.dialect.exchange(r.me, w.me)), errc::wrong_type));
        CHECK(it.ask({"TYPE", it.lock}) == "list");
        it.ask({"DEL", it.lock});
        is_a_list(it, it.queue);
        CHECK(refused(enter(), errc::wrong_type));
        CHECK(it.ask({"EXISTS", it.lock, it.readers}) == "0");
        it.ask({"DEL", it.queue});
        if (!reads) continue;
        REQUIRE(r.granted());
        reader beside(it);
        REQUIRE(beside.granted());
        is_a_list(it, it.readers);
        CHECK(refused(enter(), errc::wrong_type));
        CHECK(it.read());
    }
}

TEST_CASE("a fence that cannot be made refuses a writer, and leaves no lock behind") {
    const lock_keys it(common());
    it.ask({"RPUSH", it.fence, "a"});
    writer w(it, {.lease = 30s, .fencing = true});
    CHECK(refused(w.ask(w.dialect.look(w.me)), errc::wrong_type));
    CHECK(it.free());
    reader r(it, {.lease = 30s, .fencing = true});
    CHECK(refused(r.ask(r.dialect.look(r.me)), errc::wrong_type));
    CHECK(it.free());
    reader beside(it);
    REQUIRE(beside.granted());
    CHECK(refused(r.ask(r.dialect.look(r.me)), errc::wrong_type));
    CHECK(it.reading() == 1);
    it.ask({"DEL", it.fence});
}

// A reader was told it as it stood, said that the server makes no sense, and asked again for two seconds.
TEST_CASE("a number that is too large for a fence refuses readers as it does writers") {
    const lock_keys it(common());
    it.ask({"SET", it.fence, std::string(30, '9')});
    writer w(it, {.lease = 30s, .fencing = true});
    CHECK(refused(w.ask(w.dialect.look(w.me)), errc::server_error));
    reader r(it, {.lease = 30s, .fencing = true});
    CHECK(refused(r.ask(r.dialect.look(r.me)), errc::server_error));
    CHECK(it.free());
    it.ask({"DEL", it.fence});
}

TEST_CASE("a waiter that can have no fence is passed over") {
    const lock_keys it(common());
    writer inside(it);
    REQUIRE(inside.granted());
    reader one(it, {.lease = 30s, .fencing = true});
    writer two(it, {.lease = 30s, .fencing = true});
    reader three(it);
    REQUIRE(one.waits());
    REQUIRE(two.waits());
    REQUIRE(three.waits());
    it.ask({"DEL", it.fence});
    it.ask({"RPUSH", it.fence, "a"});
    CHECK(inside.leave() == 1);
    CHECK(three.has());
    CHECK(it.reading() == 1);
    CHECK(it.queued() == 0);
    CHECK(three.leave() == 1);
    CHECK(it.free());
    it.ask({"DEL", it.fence});
}

TEST_CASE("a server out of memory lets nobody in, and changes nothing; a release is done") {
    place at;
    const lock_keys it(at);
    reader r(it);
    writer w(it, {.lease = 30s, .fencing = true});
    reader inside(it);
    const lock_keys other(at);
    reader elsewhere(other);
    REQUIRE(elsewhere.granted());
    const lock_keys shared(at);
    reader beside[2]{reader(shared), reader(shared)};
    for (auto& one : beside) REQUIRE(one.granted());
    const lock_keys awaited(at);
    reader before(awaited);
    writer next(awaited);
    REQUIRE(before.granted());
    REQUIRE(next.waits());
    at.server.command({"CONFIG", "SET", "maxmemory", "1"});
    for (const auto mode : modes) {
        CHECK(refused(r.ask(r.dialect.enter(r.me, mode)), errc::out_of_memory));
        CHECK(refused(w.ask(w.dialect.enter(w.me, mode)), errc::out_of_memory));
    }
    CHECK(it.free());
    CHECK(elsewhere.renew() == 1);
    CHECK(elsewhere.leave() == 1);
    CHECK(other.free());
    for (auto& one : beside) CHECK(one.renew() == 1);
    for (auto& one : beside) CHECK(one.leave() == 1);
    CHECK(shared.free());
    CHECK(before.leave() == 1);
    CHECK(next.has());
}

TEST_CASE("a replica says that it is one, whatever it is asked") {
    const redis_server master({.tcp = true, .arguments = {"--repl-diskless-sync-delay", "0"}});
    redis_server replica;
    place of_master(master);
    place of_replica(replica);
    for (const int had : {0, 1, 2, 3}) {
        const std::string name = fresh_name();
        const lock_keys there(of_master, name);
        const lock_keys it(of_replica, name);
        reader r(there);
        writer w(there);
        reader beside(there);
        if (had == 1 || had == 3) REQUIRE(r.granted());
        if (had == 3) REQUIRE(beside.granted());
        if (had == 2) REQUIRE(w.granted());
        replica.command({"REPLICAOF", "127.0.0.1", std::to_string(master.port())});
        REQUIRE(eventually([&] { return it.holder() == there.holder(); }));
        REQUIRE(eventually([&] {
            return replica.command({"INFO", "replication"}).find("master_link_status:up") !=
                   std::string::npos;
        }));
        const auto says = [&](const distlock::command& cmd) {
            return refused(of_replica.link.ask(cmd), errc::read_only);
        };
        reader one(it);
        writer other(it);
        for (const auto mode : modes) {
            CHECK(says(one.dialect.enter(one.me, mode)));
            CHECK(says(other.dialect.enter(other.me, mode)));
        }
        CHECK(says(one.dialect.renew(one.me)));
        CHECK(says(one.dialect.release(one.me)));
        CHECK(says(other.dialect.release(other.me)));
        CHECK(says(one.dialect.release_minimal(one.me)));
        CHECK(says(one.dialect.exchange(one.me, w.me)));
    }
}

TEST_CASE("the release that needs least removes one reader, and frees the lock after the last") {
    const lock_keys it(common());
    reader one(it);
    reader two(it);
    REQUIRE(one.granted());
    REQUIRE(two.granted());
    const auto minimal = [](reader& r) { return r.ask(r.dialect.release_minimal(r.me)).number(); };
    CHECK(minimal(one) == 1);
    CHECK(minimal(one) == 0);
    CHECK(it.reading() == 1);
    CHECK(two.has());
    CHECK_FALSE(writer(it).granted());
    CHECK(minimal(two) == 1);
    CHECK(it.free());
    writer w(it);
    REQUIRE(w.granted());
    CHECK(minimal(two) == -1);
    CHECK(w.has());
}

TEST_CASE("readers that are past their end do not read, whoever asks") {
    const lock_keys it(common());
    reader one(it);
    reader two(it);
    REQUIRE(one.granted());
    REQUIRE(two.granted());
    lapse(one);
    const distlock::shared_inspector about(it.lock);
    const auto seen = about.read_inspect(common().link.ask(about.inspect()));
    REQUIRE(seen);
    CHECK(seen->shares == 1U);
    CHECK(it.reading() == 2);
}

TEST_CASE("a reader that is alone is shown as one that reads, and as no writer") {
    const lock_keys it(common());
    reader one(it);
    REQUIRE(one.granted());
    REQUIRE(one.alone());
    const distlock::shared_inspector about(it.lock);
    const auto seen = about.read_inspect(common().link.ask(about.inspect()));
    REQUIRE(seen);
    CHECK(seen->shares == 1U);
    CHECK_FALSE(seen->holder);
}

TEST_CASE("an operator takes the lock from a stranger without a TTL, and a reader that waits has it") {
    const lock_keys it(common());
    it.ask({"SET", it.lock, "a stranger"});
    reader next(it);
    REQUIRE(next.waits());
    const distlock::shared_inspector about(it.lock);
    CHECK(about.read_force_release(common().link.ask(about.force_release())) == true);
    CHECK(next.has());
    CHECK(it.queued() == 0);
}

TEST_CASE(
    "an operator who says no kind takes a writer's lock, and the first reader that hears of it has it") {
    const lock_keys it(common());
    writer inside(it);
    writer deaf_one(it, {.lease = 30s}, deaf);
    reader next(it);
    REQUIRE(inside.granted());
    REQUIRE(deaf_one.waits());
    REQUIRE(next.waits());
    const distlock::family_inspector about(it.lock);
    CHECK(about.read_force_release(common().link.ask(about.force_release())) == true);
    CHECK(next.has());
    CHECK(it.queued() == 0);
}

TEST_CASE("from whom a lock with a short lease was taken is known for a second") {
    const lock_keys it(common());
    reader one(it);
    REQUIRE(one.granted());
    it.ask({"PEXPIRE", it.lock, "500"});
    const distlock::shared_inspector about(it.lock);
    CHECK(about.read_force_release(common().link.ask(about.force_release())) == true);
    CHECK(it.ttl(distlock::key(it.lock).sibling("forced")) > 500);
}

TEST_CASE("an operator takes the lock from all readers at once, and it is handed on") {
    const lock_keys it(common());
    reader one(it);
    reader two(it);
    REQUIRE(one.granted());
    REQUIRE(two.granted());
    writer next(it);
    REQUIRE(next.waits());
    const distlock::shared_inspector about(it.lock);
    const auto seen = about.read_inspect(common().link.ask(about.inspect()));
    REQUIRE(seen);
    CHECK(seen->shares == 2U);
    CHECK(seen->waiters == 1U);
    CHECK(about.read_force_release(common().link.ask(about.force_release())) == true);
    CHECK(it.ttl(distlock::key(it.lock).sibling("forced")) > 20'000);
    CHECK(next.has());
    CHECK(one.renew() == -1);
    CHECK(about.was_forced(common().link.ask(about.forced()), one.me));
    CHECK(about.read_force_release(common().link.ask(about.force_release())) == true);
    CHECK(it.free());
    CHECK(about.read_force_release(common().link.ask(about.force_release())) == false);
    CHECK(about.was_forced(common().link.ask(about.forced()), next.me));
}

TEST_CASE("a late or repeated request changes nothing for others") {
    const lock_keys it(common());
    reader one(it);
    writer two(it);
    REQUIRE(one.granted());
    REQUIRE(two.waits());
    REQUIRE(two.waits());
    CHECK(it.queued() == 1);
    CHECK(one.leave() == 1);
    CHECK(one.leave() == -1);
    CHECK(two.has());
    CHECK(one.renew() == -1);
    CHECK(two.granted(enter_mode::join));
    CHECK(two.leave() == 1);
    CHECK(two.leave() == 0);
    CHECK(two.renew() == 0);
    CHECK(it.free());
}

}  // namespace shared_scripts_tests
