// The scripts of semaphores on a real server: what they answer, and what they leave
// behind, whatever they find.
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
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/permit_inspector.hpp>
#include <distlock/wire/permits.hpp>
#include <distlock/wire/reply.hpp>

#include "support/catch.hpp"
#include "support/first_waiter.hpp"
#include "support/fresh_name.hpp"
#include "support/heard_channel.hpp"
#include "support/script_asker.hpp"
#include "support/waiting.hpp"

namespace permit_scripts_tests {

using namespace script_test;
using namespace std::chrono_literals;
using distlock::lock_options;
using distlock::permits;

namespace {

const lock_options usual{.lease = 30s};

// The keys of one semaphore, as a stranger sees them.
struct pool_keys : seen_keys {
    explicit pool_keys(place& where = common(), std::string name = fresh_name())
        : seen_keys(where, name), pool(std::move(name)), beside(distlock::key(pool).sibling("limit")) {}
    int owners() const { return std::stoi(ask({"ZCARD", pool})); }
    std::string of(std::string_view field) const { return ask({"HGET", beside, field}); }
    /// Returns: whether nobody has or wants a permit, and what was counted ends.
    bool free() const {
        return ask({"EXISTS", pool, queue}) == "0" && (of("used") == "0" || of("used") == "(nil)") &&
               ttl(beside) != -1 && (ask({"EXISTS", beside}) == "0" || fields() == 2);
    }
    /// Returns: how many fields are beside the set, but for the one about a waiter in the way.
    int fields() const {
        return std::stoi(ask({"HLEN", beside})) - std::stoi(ask({"HEXISTS", beside, "first"}));
    }

    const std::string pool, beside;
};

struct asker : script_asker<permits> {
    explicit asker(const pool_keys& of, std::int64_t limit = 4, std::int64_t n = 1,
                   const lock_options& options = usual, const std::string& channel = "")
        : script_asker(of.at.link, of.pool, options, channel, distlock::channel_kind::ordinary, limit, n),
          keys(of) {}
    bool has() const { return keys.ask({"ZSCORE", keys.pool, me.view()}) != "(nil)"; }
    // Effects: it is past its end, though its place stands.
    void lapse() const { keys.ask({"ZADD", keys.pool, "1000", me.view()}); }

    const pool_keys& keys;
};

}  // namespace

// DEL is never refused for want of memory, and a script that has written may go on: fresh semaphores were
// granted on a server that was full.
TEST_CASE("a server without memory gives no permit of a semaphore that nobody has used") {
    place full;
    const pool_keys it(full);
    asker one(it);
    full.server.command({"CONFIG", "SET", "maxmemory", "1"});
    CHECK_FALSE(one.granted());
    CHECK(refused(one.last, errc::out_of_memory));
    CHECK(it.ask({"EXISTS", it.pool, it.queue, it.beside}) == "0");
    full.server.command({"CONFIG", "SET", "maxmemory", "0"});
    CHECK(one.granted());
    full.server.command({"CONFIG", "SET", "maxmemory", "1"});
    CHECK(one.renew() == 1);
    CHECK(one.leave() == 1);
}

TEST_CASE("a count or a weight that cannot be is none: what is out is counted, each token as one") {
    const pool_keys it;
    asker one(it, 2);
    REQUIRE(one.granted());
    for (const std::string_view nonsense :
         {"-5", "nan", "inf", "-inf", "1e300", "1.5", "0x", "4294967296", ""}) {
        INFO(nonsense);
        it.ask({"HSET", it.beside, "used", nonsense});
        asker two(it, 2);
        CHECK(two.granted());
        CHECK(it.of("used") == "2");
        CHECK_FALSE(asker(it, 2).granted());
        it.ask({"HSET", it.beside, two.me.view(), nonsense});
        CHECK(two.leave() == 1);
        CHECK(it.of("used") == "1");
        it.ask({"HSET", it.beside, one.me.view(), nonsense});
        it.ask({"HDEL", it.beside, "used"});
        CHECK(two.granted());
        CHECK_FALSE(asker(it, 2).granted());
        CHECK(two.leave() == 1);
        CHECK(it.of("used") == "1");
    }
}

TEST_CASE("so many permits are given, whatever they weigh, and no more") {
    const pool_keys it;
    asker one(it);
    asker two(it, 4, 2);
    asker another(it);
    asker too_many(it, 4, 2);
    CHECK(one.granted());
    CHECK(two.granted());
    CHECK_FALSE(too_many.granted());
    CHECK(another.granted());
    CHECK(it.of("used") == "4");
    CHECK_FALSE(asker(it).granted());
    CHECK(it.owners() == 3);
    CHECK(two.leave() == 1);
    CHECK(it.of("used") == "2");
    CHECK(two.leave() == 0);
    CHECK(it.of("used") == "2");
    CHECK(too_many.granted());
    CHECK(too_many.leave() == 1);
    CHECK(one.leave() == 1);
    CHECK(another.leave() == 1);
    CHECK(it.free());
}

TEST_CASE("a token that was granted is granted again, once, and its end is never nearer than before") {
    for (const auto mode : modes) {
        const pool_keys it;
        asker one(it, 4, 3);
        REQUIRE(one.granted());
        const auto again = one.enter(mode);
        CHECK(again.what == got::granted);
        CHECK(*again.granted_for > 20s);
        CHECK(it.of("used") == "3");
        CHECK(it.queued() == 0);
    }
}

TEST_CASE("a waiter that is given permits at once has them for an offer's time, others for the lease") {
    for (const auto mode : modes) {
        const pool_keys it;
        asker one(it);
        CHECK(one.enter(mode).granted_for == (mode == enter_mode::try_once ? 30'000ms : 2'000ms));
        CHECK(it.ttl(it.pool) <= (mode == enter_mode::try_once ? 30'000 : 2'000));
        CHECK(it.ttl(it.beside) > 80'000);
        CHECK(it.ttl(it.beside) <= 90'000);
    }
}

TEST_CASE("a request for three is not overtaken by requests for one") {
    const pool_keys it;
    asker first(it);
    asker second(it);
    asker third(it);
    REQUIRE(first.granted());
    REQUIRE(second.granted());
    REQUIRE(third.granted());
    asker big(it, 4, 3);
    asker small(it);
    REQUIRE(big.waits());
    CHECK_FALSE(small.granted());
    CHECK(small.waits());
    CHECK(small.enter(enter_mode::join).queued.position == 1);
    CHECK(first.leave() == 1);
    CHECK_FALSE(big.has());
    CHECK_FALSE(small.has());
    CHECK(second.leave() == 1);
    CHECK(big.has());
    CHECK_FALSE(small.has());
    CHECK(it.of("used") == "4");
    CHECK(third.leave() == 1);
    CHECK(small.has());
    CHECK(big.leave() == 1);
    CHECK(small.leave() == 1);
    CHECK(it.free());
}

TEST_CASE("all at the front for whom there are enough are served by one release") {
    const pool_keys it;
    asker all_of_it(it, 4, 4);
    REQUIRE(all_of_it.granted());
    asker a(it);
    asker b(it, 4, 2);
    asker c(it, 4, 2);
    asker d(it);
    for (asker* one : {&a, &b, &c, &d}) REQUIRE(one->waits());
    CHECK(all_of_it.leave() == 1);
    CHECK(a.has());
    CHECK(b.has());
    CHECK_FALSE(c.has());
    CHECK_FALSE(d.has());
    CHECK(it.ttl(it.pool) <= 2'000);
}

TEST_CASE("a big request that gives up lets in the small ones it kept waiting") {
    for (const bool posted : {false, true}) {
        const pool_keys it;
        asker holds(it, 4, 2);
        REQUIRE(holds.granted());
        asker big(it, 4, 3);
        asker small(it);
        REQUIRE(big.waits());
        REQUIRE(small.waits());
        if (posted) {
            CHECK(big.leave() == 0);
        } else {
            CHECK(big.enter(enter_mode::last).what == got::busy);
        }
        CHECK(small.has());
        CHECK(it.queued() == 0);
    }
}

TEST_CASE("permits past their end come back, each at its own, whatever they weigh") {
    const pool_keys it;
    asker dead(it, 4, 3);
    asker living(it);
    REQUIRE(dead.granted());
    REQUIRE(living.granted());
    dead.lapse();
    CHECK(dead.renew() == 0);
    CHECK(living.renew() == 1);
    asker next(it, 4, 3);
    CHECK(next.granted());
    CHECK(it.of("used") == "4");
    CHECK(dead.leave() == 0);
    CHECK(it.of("used") == "4");
    CHECK(next.leave() == 1);
    CHECK(living.leave() == 1);
    CHECK(it.free());
}

TEST_CASE("a waiter is told when the first permits may be past their end") {
    const pool_keys it;
    asker brief(it, 2, 1, {.lease = 3s});
    asker lasting(it, 2, 1, {.lease = 40s});
    REQUIRE(brief.granted());
    REQUIRE(lasting.granted());
    CHECK(it.ttl(it.pool) > 30'000);
    asker next(it, 2);
    CHECK(next.enter(enter_mode::join).ttl <= 3s);
    CHECK(brief.renew() == 1);
    CHECK(it.ttl(it.pool) > 30'000);
}

TEST_CASE("a request with another limit is told both, and changes nothing") {
    const pool_keys it;
    asker one(it, 4);
    REQUIRE(one.granted());
    asker other(it, 5);
    for (const auto mode : modes) {
        const auto said = other.ask(other.dialect.enter(other.me, mode));
        CHECK(refused(said, errc::limit_mismatch));
        CHECK(std::string(said.text()).find("4 permits, not 5") != std::string::npos);
    }
    CHECK(it.owners() == 1);
    CHECK(it.queued() == 0);
    CHECK(one.leave() == 1);
    CHECK(refused(other.ask(other.dialect.look(other.me)), errc::limit_mismatch));
    it.ask({"DEL", it.beside});
    CHECK(other.granted());
}

// A fleet that began anew with another limit, and tried until it was the only one, tried for ever.
TEST_CASE("a limit ends though others ask with another one again and again") {
    for (const bool died : {false, true}) {
        const pool_keys it;
        asker one(it, 4);
        REQUIRE(one.granted());
        if (died) {
            one.lapse();
        } else {
            REQUIRE(one.leave() == 1);
        }
        it.ask({"PEXPIRE", it.beside, "60000"});
        asker other(it, 5);
        CHECK(refused(other.ask(other.dialect.look(other.me)), errc::limit_mismatch));
        CHECK(it.owners() == 0);
        CHECK(it.ttl(it.beside) <= 60'000);
        CHECK(it.ttl(it.beside) > 0);
        CHECK(it.of("limit") == "4");
        CHECK(it.of("used") == "0");
    }
}

TEST_CASE("a renewal shortens nothing of what others have, nor of what is known of the semaphore") {
    const pool_keys it;
    asker for_long(it, 4, 1, {.lease = 60s});
    asker one(it, 4, 1, {.lease = 3s});
    REQUIRE(for_long.granted());
    REQUIRE(one.granted());
    CHECK(one.renew() == 1);
    for (const auto& key : {it.pool, it.beside}) CHECK(it.ttl(key) > 50'000);
}

TEST_CASE("an owner that renews keeps what is known of the semaphore for as long") {
    const pool_keys it;
    asker one(it, 4, 3);
    REQUIRE(one.granted());
    it.ask({"PEXPIRE", it.beside, "5000"});
    CHECK(one.renew() == 1);
    CHECK(it.ttl(it.beside) > 20'000);
}

// Whoever had three counted as one from then on, and six of four were out.
TEST_CASE(
    "an owner of several permits has them counted again, or is told, after what was counted was evicted") {
    const pool_keys it;
    asker three(it, 8, 3);
    asker two(it, 8, 2);
    asker one(it, 8);
    for (asker* a : {&three, &two, &one}) REQUIRE(a->granted());
    it.ask({"DEL", it.beside});

    // Nobody has counted meanwhile.
    CHECK(three.renew() == 1);
    CHECK(it.of(three.me.view()) == "3");
    CHECK(it.ttl(it.beside) > 20'000);
    // Somebody has, and there is room.
    asker another(it, 8);
    REQUIRE(another.granted());
    CHECK(it.of("used") == "6");
    CHECK(two.renew() == 1);
    CHECK(it.of("used") == "7");
    CHECK(it.of(two.me.view()) == "2");
    CHECK(one.renew() == 1);
    CHECK(another.renew() == 1);
    CHECK(it.of("used") == "7");

    // Others have them.
    it.ask({"DEL", it.beside});
    asker five(it, 8, 4);
    REQUIRE(five.granted());
    CHECK(it.of("used") == "8");
    CHECK(three.renew() == -1);
    CHECK_FALSE(three.has());
    CHECK(it.of("used") == "7");
    CHECK(two.renew() == 1);
    CHECK(it.of("used") == "8");
    CHECK(three.leave() == 0);
    for (asker* a : {&two, &one, &another, &five}) CHECK(a->leave() == 1);
    CHECK(it.free());
}

TEST_CASE("an owner for a short time cuts off nothing of what is known of one for a long time") {
    const pool_keys it;
    asker lasting(it, 4, 3, {.lease = 10min});
    asker brief(it);
    REQUIRE(lasting.granted());
    REQUIRE(brief.granted());
    CHECK(it.ttl(it.beside) > 500'000);
}

TEST_CASE("a waiter that finds the permits of the dead is given its own, and so is who waits behind it") {
    const pool_keys it;
    asker dead[2]{asker(it, 2), asker(it, 2)};
    for (auto& one : dead) REQUIRE(one.granted());
    asker first(it, 2);
    asker second(it, 2);
    REQUIRE(first.waits());
    REQUIRE(second.waits());
    for (const auto& one : dead) one.lapse();
    CHECK(first.granted(enter_mode::join));
    CHECK(second.has());
    CHECK(it.queued() == 0);
}

TEST_CASE("a semaphore that shrinks counts whose time is over, and gives no more than there are now") {
    const pool_keys it;
    asker dead(it, 2);
    asker living(it, 2);
    asker waits(it, 2);
    REQUIRE(dead.granted());
    REQUIRE(living.granted());
    REQUIRE(waits.waits());
    dead.lapse();
    CHECK(waits.dialect.read_resize(waits.ask(waits.dialect.resize("1"))) == 1);
    CHECK_FALSE(waits.has());
    CHECK(it.of("limit") == "1");
    CHECK(living.leave() == 1);
    CHECK(waits.has());
}

TEST_CASE(
    "a semaphore that grows serves those that wait, one that shrinks gives nothing until enough came back") {
    const pool_keys it;
    asker a(it, 2);
    asker b(it, 2);
    asker c(it, 2);
    REQUIRE(a.granted());
    REQUIRE(b.granted());
    REQUIRE(c.waits());
    CHECK(c.dialect.read_resize(c.ask(c.dialect.resize("3"))) == 3);
    CHECK(c.has());
    CHECK(it.of("limit") == "3");
    CHECK(c.dialect.read_resize(c.ask(c.dialect.resize("1"))) == 3);
    asker d(it, 1);
    CHECK_FALSE(d.granted());
    REQUIRE(d.waits());
    CHECK(a.leave() == 1);
    CHECK(b.leave() == 1);
    CHECK_FALSE(d.has());
    CHECK(c.leave() == 1);
    CHECK(d.has());
    asker too_big(it, 8, 8);
    it.ask({"ZADD", it.queue, "1", std::string(too_big.me.view()) + " 30000 8 q0 "});
    asker e(it, 1);
    REQUIRE(e.waits());
    CHECK(d.leave() == 1);
    CHECK(e.has());  // what can never be served is dropped
}

// It was found by re-checking.
TEST_CASE("the permit of an owner for whose others there is no room any more goes to the first waiter") {
    const pool_keys it;
    asker three(it, 4, 3);
    REQUIRE(three.granted());
    it.ask({"DEL", it.beside});
    asker others(it, 4, 3);
    REQUIRE(others.granted());
    asker waiter(it);
    REQUIRE(waiter.waits());
    SECTION("at once") {
        CHECK(three.renew() == -1);
        CHECK(waiter.has());
        CHECK(it.queued() == 0);
    }
    SECTION("and where the queue is none, the owner is told all the same") {
        it.ask({"SET", it.queue, "x", "PX", "30000"});
        CHECK(three.renew() == -1);
    }
    CHECK_FALSE(three.has());
    CHECK(others.renew() == 1);
}

// The dead were counted, so the living were told that others had their permits.
TEST_CASE("permits that are counted again have the room of owners that are past their end") {
    const pool_keys it;
    asker dead(it);
    asker three(it, 4, 3);
    for (asker* a : {&dead, &three}) REQUIRE(a->granted());
    it.ask({"DEL", it.beside});
    asker another(it);
    REQUIRE(another.granted());
    CHECK(it.of("used") == "3");
    dead.lapse();
    CHECK(three.renew() == 1);
    CHECK_FALSE(dead.has());
    CHECK(it.of("used") == "4");
    CHECK_FALSE(asker(it).granted());
}

TEST_CASE("a renewal that counts its permits again counts out those that have ended in the same step") {
    const pool_keys it;
    asker ended(it);
    asker two(it, 4, 2);
    REQUIRE(ended.granted());
    REQUIRE(two.granted());
    ended.lapse();
    it.ask({"HDEL", it.beside, two.me.view()});
    it.ask({"HSET", it.beside, "used", "2"});  // one each
    CHECK(two.renew() == 1);
    CHECK(it.of("used") == "2");
}

// A renewal of several permits raised WRONGTYPE, which was a loss.
TEST_CASE("an owner of several permits keeps them where the key of what is counted is of another type") {
    const pool_keys it;
    asker three(it, 4, 3);
    REQUIRE(three.granted());
    it.ask({"SET", it.beside, "x", "PX", "5000"});
    it.ask({"PEXPIRE", it.pool, "5000"});
    CHECK(three.renew() == 1);
    CHECK(it.ttl(it.pool) > 20'000);
    CHECK(it.ask({"GET", it.beside}) == "x");
}

TEST_CASE("an owner of several permits that asks again has them counted again") {
    const pool_keys it;
    asker three(it, 4, 3);
    asker one(it);
    for (asker* a : {&three, &one}) REQUIRE(a->granted());
    it.ask({"DEL", it.beside});
    CHECK(three.granted());
    CHECK(it.of("used") == "4");
    CHECK(it.of(three.me.view()) == "3");
    it.ask({"DEL", it.beside});
    asker two(it, 4, 2);
    REQUIRE(two.granted());
    CHECK_FALSE(three.granted());
    CHECK_FALSE(three.has());
    CHECK(it.of("used") == "3");
}

TEST_CASE("a report counts all permits of an owner that alone has renewed since the count was lost") {
    const pool_keys it;
    const distlock::permit_inspector about(it.pool);
    asker three(it, 8, 3);
    asker one(it, 8);
    for (asker* a : {&three, &one}) REQUIRE(a->granted());
    it.ask({"DEL", it.beside});
    CHECK(three.renew() == 1);
    const auto seen = about.read_inspect(it.at.link.ask(about.inspect()));
    REQUIRE(seen);
    CHECK(seen->shares == 4U);
}

TEST_CASE("a waiter for permits that nobody can tell is passed over, and so is what is no ticket") {
    const pool_keys it;
    asker holds(it, 1);
    REQUIRE(holds.granted());
    asker deaf(it, 1, 1, usual, "nobody:listens");
    REQUIRE(deaf.waits());
    it.ask({"ZADD", it.queue, "1", "no ticket"});
    it.ask({"ZADD", it.queue, "2", std::string(token::generate().view()) + " 30000 0 p0 "});
    asker next(it, 1);
    REQUIRE(next.waits());
    CHECK(holds.leave() == 1);
    CHECK(next.has());
    CHECK(it.queued() == 0);
}

// It kept out all others for as long as anybody had a permit.
TEST_CASE(
    "a waiter in the way is asked whether it is there, and dropped when it does not look for two seconds") {
    const pool_keys it;
    heard_channel ears(common().server.socket_path());
    const auto asked = [&](const asker& whom, std::chrono::milliseconds patience = 10s) {
        return asks<permits>(ears.message(patience), whom.me, it.pool);
    };
    const auto later = [&] { it.ask({"HSET", it.beside, "first", two_seconds_older(it.of("first"))}); };
    asker holds(it);
    REQUIRE(holds.granted());
    asker big(it, 4, 4, usual, ears.name());
    REQUIRE(big.waits());
    asker small(it);
    asker next(it);
    const auto told = [&](asker& who) { return who.enter(enter_mode::join).ttl.value_or(-1ms); };
    CHECK(told(small) == 2000ms);
    CHECK(asked(big));
    CHECK(told(next) <= 2000ms);
    later();
    REQUIRE(big.waits());  // it is there
    CHECK(told(small) <= 2000ms);
    CHECK(told(small) > 1000ms);
    CHECK_FALSE(asked(big, 0ms));
    later();
    CHECK(told(small) == 2000ms);
    CHECK(asked(big));
    CHECK(told(small) <= 2000ms);
    CHECK_FALSE(small.has());
    later();
    CHECK(small.granted(enter_mode::join));
    CHECK(next.has());  // with it
    CHECK(it.queued() == 0);
    // It lives, and joins anew: it was dropped again and again.
    CHECK(small.leave() == 1);
    REQUIRE(big.waits());
    REQUIRE(small.waits());
    CHECK(asked(big));
    CHECK(it.queued() == 2);
    CHECK(told(big) <= 1000ms);  // from now on it looks
    CHECK(next.leave() == 1);
    CHECK(holds.leave() == 1);
    CHECK(big.has());
    CHECK(big.leave() == 1);
    CHECK(small.leave() == 1);
    CHECK(it.free());
}

TEST_CASE("a waiter in the way whose look cannot be noted is not taken for gone") {
    place own;
    const pool_keys it(own);
    asker holds(it);
    REQUIRE(holds.granted());
    asker big(it, 4, 4);
    REQUIRE(big.waits());
    asker small(it);
    REQUIRE(small.waits());
    REQUIRE(it.of("first").ends_with(" a"));
    it.ask({"CONFIG", "SET", "maxmemory", "1"});
    static_cast<void>(big.enter(enter_mode::join));
    CHECK(it.of("first") == "(nil)");
    it.ask({"CONFIG", "SET", "maxmemory", "0"});
    REQUIRE(small.waits());
    CHECK(it.queued() == 2);
}

TEST_CASE("a waiter in the way that nobody can ask is dropped when it does not look for two seconds") {
    const pool_keys it;
    asker holds(it);
    REQUIRE(holds.granted());
    asker big(it, 4, 4);
    REQUIRE(big.waits());
    asker small(it);
    REQUIRE(small.waits());
    const auto number = " " + std::to_string(big.dialect.read_enter(big.last).queued.ticket) + " ";
    const auto mine = std::string(big.me.view()) + number;
    it.ask({"HSET", it.beside, "first", mine + "1000 a"});
    REQUIRE(big.waits());
    REQUIRE(small.waits());
    // Of another waiter or ticket it says nothing, nor where the clock was set back.
    for (const std::string& other :
         {std::string(holds.me.view()) + number + "1000 a", std::string(big.me.view()) + " 17 1000 a",
          mine + "99999999999999 a", std::string("?")}) {
        it.ask({"HSET", it.beside, "first", other});
        REQUIRE(small.waits());
        CHECK(it.queued() == 2);
    }
    it.ask({"HSET", it.beside, "first", mine + "1000 a"});
    CHECK(small.granted(enter_mode::join));
    CHECK(it.queued() == 0);
}

TEST_CASE("permits that are handed over are told on the channel") {
    const pool_keys it;
    heard_channel ears(common().server.socket_path());
    asker holds(it, 1);
    REQUIRE(holds.granted());
    asker next(it, 1, 1, {.lease = 1s}, ears.name());
    REQUIRE(next.waits());
    CHECK(holds.leave() == 1);
    const auto text = ears.message();
    REQUIRE(text);
    const auto given = permits::read_message(*text);
    REQUIRE(given);
    CHECK(given->owner == next.me);
    CHECK(given->ttl == 1s);
    CHECK(permits::name_in(*text) == it.pool);
}

TEST_CASE("a count that is lost is counted anew") {
    const pool_keys it;
    asker a(it);
    asker b(it);
    REQUIRE(a.granted());
    REQUIRE(b.granted());
    SECTION("the permits are gone") {
        it.ask({"DEL", it.pool});
        const distlock::permit_inspector about(it.pool);
        const auto seen = about.read_inspect(common().link.ask(about.inspect()));
        REQUIRE(seen);
        CHECK(seen->shares == 0U);
        CHECK(a.renew() == 0);
        CHECK(asker(it, 4, 4).granted());
        CHECK(it.of("used") == "4");
        CHECK(b.leave() == 0);
        CHECK(it.of("used") == "4");
    }
    SECTION("the count is gone") {
        it.ask({"DEL", it.beside});
        CHECK_FALSE(asker(it, 4, 3).granted());
        CHECK(asker(it, 4, 2).granted());
        CHECK(it.of("used") == "4");
        CHECK(a.leave() == 1);
        CHECK(it.of("used") == "3");
    }
    SECTION("the count is gone, and somebody leaves first") {
        it.ask({"DEL", it.beside});
        CHECK(a.leave() == 1);
        CHECK(b.renew() == 1);
        CHECK_FALSE(asker(it, 4, 4).granted());
        CHECK(asker(it, 4, 3).granted());
    }
}

// Each member of another client was taken off the count, though it was not counted: seven permits of two were
// out.
// The release was refused, and repeated, as often as it was sent.
TEST_CASE("a permit is given back to a set that was made to stay, also behind another client's member") {
    const pool_keys it;
    asker one(it, 2);
    REQUIRE(one.granted());
    it.ask({"ZADD", it.pool, "1", "another's"});
    it.ask({"PERSIST", it.pool});
    CHECK(one.leave() == 1);
    CHECK_FALSE(one.has());
}

TEST_CASE("an entry that another client puts into the set of a semaphore lets in nobody beyond the limit") {
    const pool_keys it;
    asker one(it, 2), two(it, 2), third(it, 2);
    CHECK(one.granted());
    CHECK(two.granted());
    for (const char kind : {'-', 'z', 'a'}) {  // 'a' may be a token
        // As a client that keeps beginnings has them: past their end.
        for (const char* one_of : {"1", "2", "3"})
            it.ask({"ZADD", it.pool, one_of, std::string(31, kind) + one_of});
        const auto known = distlock::permit_inspector(it.pool);
        CHECK(known.read_inspect(common().link.ask(known.inspect()))->shares == 2);
        for (const enter_mode mode : modes) CHECK(third.enter(mode).what == got::busy);
        CHECK(it.owners() == 2);
        CHECK(it.of("used") == "2");
    }
    SECTION("one that has not ended counts as a permit as long as it is there") {
        it.ask({"ZADD", it.pool, "+inf", "another's"});
        it.ask({"ZADD", it.pool, "1", "its first"});
        CHECK(one.leave() == 1);
        CHECK_FALSE(third.granted());
        it.ask({"ZREM", it.pool, "another's"});
        it.ask({"ZADD", it.pool, "1", "its last"});
        CHECK(third.granted());
        CHECK_FALSE(one.granted());
    }
    SECTION("one that never ends makes no answer that cannot be read, and ends no renewal") {
        it.ask({"ZADD", it.pool, "+inf", "another's"});
        for (int i = 0; i < 3; ++i) CHECK(two.renew() == 1);
        CHECK(one.leave() == 1);
        it.ask({"ZADD", it.pool, "1", "its first"});
        CHECK(third.enter(enter_mode::try_once).what == got::busy);
        two.lapse();
        CHECK(third.granted());
        CHECK(third.leave() == 1);
        CHECK(it.of("used") == "1");
    }
    SECTION("one that outlives the last permit counts as one, and the semaphore goes on") {
        it.ask({"ZADD", it.pool, "99999999999999", "another's"});
        CHECK(one.leave() == 1);
        CHECK(two.leave() == 1);
        CHECK(it.of("used") == "1");
        CHECK(third.granted());
        CHECK_FALSE(one.granted());
        CHECK(third.leave() == 1);
        it.ask({"ZREM", it.pool, "another's"});
        CHECK(third.granted());
        CHECK(one.granted());
    }
    SECTION("one whose name is a field of ours weighs one") {
        it.ask({"ZADD", it.pool, "+inf", "limit"});
        it.ask({"ZADD", it.pool, "1", "first"});
        const auto about = distlock::permit_inspector(it.pool);
        CHECK(about.read_inspect(common().link.ask(about.inspect()))->shares == 3);
        CHECK_FALSE(third.granted());
        CHECK(it.of("used") == "3");
    }
    SECTION("an operator takes all away") {
        it.ask({"ZADD", it.pool, "1", "another's"});
        const auto about = distlock::permit_inspector(it.pool);
        CHECK(about.read_force_release(common().link.ask(about.force_release())) == true);
        CHECK(it.owners() == 0);
        CHECK(third.granted());
    }
}

TEST_CASE("all of more than a thousand owners of permits are counted anew") {
    const pool_keys it;
    asker five(it, 3000, 5), late(it, 3000), next(it, 3000);
    REQUIRE(five.granted());
    REQUIRE(late.granted());
    const auto add =
        "for i = 1, 1500 do redis.call('zadd', KEYS[1], '99999999999999', string.format('%032x', i)) end";
    it.ask({"EVAL", add, "1", it.pool});
    late.lapse();
    REQUIRE(next.granted());
    CHECK(it.of("used") == "1506");
}

TEST_CASE("a permit that somebody took out with ZREM is free when the next one ends") {
    const pool_keys it;
    asker one(it), two(it, 4, 2), stays(it), third(it, 4, 2);
    REQUIRE(one.granted());
    REQUIRE(two.granted());
    REQUIRE(stays.granted());
    it.ask({"ZREM", it.pool, two.me.view()});
    CHECK_FALSE(third.granted());
    one.lapse();
    CHECK(third.granted());
    CHECK(it.of("used") == "3");
}

TEST_CASE("a key of another kind is an error, and stays as it is") {
    for (const char* what : {"lock", "queue", "count"}) {
        const pool_keys it;
        asker one(it);
        const std::string key = what == std::string("lock")    ? it.pool
                                : what == std::string("queue") ? it.queue
                                                               : it.beside;
        it.ask({"SET", key, "a token", "PX", "60000"});
        CHECK(refused(one.ask(one.dialect.look(one.me)), errc::wrong_type));
        CHECK(it.ask({"GET", key}) == "a token");
        if (key == it.pool) CHECK(refused(one.ask(one.dialect.renew(one.me)), errc::wrong_type));
        if (key != it.pool) CHECK(it.owners() == 0);
    }
}

// All permits were gone, and the operator was told that the key stays as it is.
TEST_CASE("a queue of another type hinders no operator") {
    const pool_keys it;
    asker one(it);
    REQUIRE(one.granted());
    it.ask({"SET", it.queue, "a token", "PX", "60000"});
    CHECK(one.dialect.read_resize(one.ask(one.dialect.resize("5"))) == 1);
    CHECK(it.of("limit") == "5");
    const distlock::permit_inspector about(it.pool);
    CHECK(about.read_force_release(common().link.ask(about.force_release())) == true);
    CHECK(it.owners() == 0);
    CHECK(it.ask({"GET", it.queue}) == "a token");
    CHECK(it.ttl(it.beside) > 0);
}

TEST_CASE("a queue of another type hinders nobody from giving back") {
    const pool_keys it;
    asker one(it);
    REQUIRE(one.granted());
    it.ask({"SET", it.queue, "x"});
    CHECK(one.leave() == 1);
    CHECK(it.owners() == 0);
    CHECK(it.of("used") == "0");
    it.ask({"DEL", it.queue});
}

TEST_CASE("a server out of memory gives nothing, and renews and takes back what is out") {
    place at;
    const pool_keys it(at);
    asker one(it);
    asker two(it);
    const bool by_force = GENERATE(false, true);
    INFO("by force: " << by_force);
    REQUIRE(one.granted());
    at.server.command({"CONFIG", "SET", "maxmemory", "1"});
    for (const auto mode : modes)
        CHECK(refused(two.ask(two.dialect.enter(two.me, mode)), errc::out_of_memory));
    CHECK(it.owners() == 1);
    CHECK(it.of("used") == "1");
    CHECK(one.renew() == 1);
    if (by_force) {
        const distlock::permit_inspector about(it.pool);
        CHECK(about.read_force_release(at.link.ask(about.force_release())) == true);
        CHECK(about.was_forced(at.link.ask(about.forced()), one.me));
        CHECK(it.owners() == 0);
    } else {
        CHECK(one.leave() == 1);
    }
    CHECK(it.free());
}

TEST_CASE("a replica says that it is one, whatever it is asked about permits") {
    const redis_server master({.tcp = true, .arguments = {"--repl-diskless-sync-delay", "0"}});
    place at;
    for (const bool out : {false, true}) {
        const std::string name = fresh_name();
        if (out) {
            master.command({"ZADD", name, "99999999999999", token::generate().view()});
            master.command({"HSET", distlock::key(name).sibling("limit"), "limit", "1", "used", "1"});
        }
        at.server.command({"REPLICAOF", "127.0.0.1", std::to_string(master.port())});
        const pool_keys it(at, name);
        REQUIRE(eventually([&] {
            return at.server.command({"INFO", "replication"}).find("master_link_status:up") !=
                       std::string::npos &&
                   it.owners() == (out ? 1 : 0);
        }));
        asker one(it, 1);
        const auto says = [&](const distlock::command& cmd) {
            return refused(at.link.ask(cmd), errc::read_only);
        };
        for (const auto mode : modes) CHECK(says(one.dialect.enter(one.me, mode)));
        CHECK(says(one.dialect.renew(one.me)));
        CHECK(says(one.dialect.release(one.me)));
        CHECK(says(one.dialect.resize("2")));
        at.server.command({"REPLICAOF", "NO", "ONE"});
    }
}

// It was told that processes disagree, gave up its place, and came again behind all others.
TEST_CASE("a waiter keeps its place while the limit changes, unless it wants more than there are now") {
    const pool_keys it;
    asker one(it, 3, 3);
    REQUIRE(one.granted());
    asker first(it, 3, 2);
    asker greedy(it, 3, 3);
    REQUIRE(first.waits());
    REQUIRE(greedy.waits());
    CHECK(one.dialect.read_resize(one.ask(one.dialect.resize("2"))) == 3);
    asker later(it, 2);
    REQUIRE(later.waits());
    for (const auto mode : {enter_mode::try_once, enter_mode::join}) {
        const auto still = first.enter(mode);
        CHECK(still.what == got::busy);
        CHECK(still.queued.ticket != 0);
        CHECK(greedy.enter(mode).cause == errc::limit_mismatch);
    }
    CHECK(asker(it, 3).enter(enter_mode::join).cause == errc::limit_mismatch);
    CHECK(one.leave() == 1);
    CHECK(first.has());
    CHECK_FALSE(later.has());
    // The answer may have been lost.
    CHECK(first.granted());
    CHECK(first.leave() == 1);
    CHECK(later.has());
}

// A process with another limit let others in beside those who had waited by the old one.
TEST_CASE("a limit lasts as long as somebody waits by it") {
    const pool_keys it;
    asker owner(it, 1);
    REQUIRE(owner.granted());
    asker waiter(it, 1);
    REQUIRE(waiter.waits());
    it.ask({"PEXPIRE", it.beside, "1000"});  // the owner has renewed its permit since
    CHECK(waiter.waits());
    const auto left = it.ttl(it.beside);  // first: time goes on between the two questions
    CHECK(left > 80'000);
    CHECK(left >= it.ttl(it.queue));
    it.ask({"PEXPIRE", it.beside, "500000"});
    CHECK(waiter.waits());
    CHECK(it.ttl(it.beside) > 400'000);
}

TEST_CASE("permits that are past their end are not out, whoever asks") {
    const pool_keys it;
    asker one(it, 4, 2), two(it, 4);
    REQUIRE(one.granted());
    REQUIRE(two.granted());
    one.lapse();
    const distlock::permit_inspector about(it.pool);
    const auto seen = about.read_inspect(common().link.ask(about.inspect()));
    REQUIRE(seen);
    CHECK(seen->shares == 1U);
    CHECK(seen->limit == 4U);
    CHECK(it.owners() == 2);
}

TEST_CASE("from whom a semaphore with a short lease was taken is known for a second") {
    const pool_keys it;
    asker one(it);
    REQUIRE(one.granted());
    it.ask({"PEXPIRE", it.pool, "500"});
    const distlock::permit_inspector about(it.pool);
    CHECK(about.read_force_release(common().link.ask(about.force_release())) == true);
    CHECK(it.ttl(distlock::key(it.pool).sibling("forced")) > 500);
}

TEST_CASE("an operator takes all permits at once, and those that wait have them") {
    const pool_keys it;
    asker one(it, 2);
    asker two(it, 2);
    REQUIRE(one.granted());
    REQUIRE(two.granted());
    asker next(it, 2);
    REQUIRE(next.waits());
    const distlock::permit_inspector about(it.pool);
    const auto seen = about.read_inspect(common().link.ask(about.inspect()));
    REQUIRE(seen);
    CHECK(seen->shares == 2U);
    CHECK(seen->waiters == 1U);
    CHECK(about.read_force_release(common().link.ask(about.force_release())) == true);
    CHECK(it.ttl(distlock::key(it.pool).sibling("forced")) > 20'000);
    CHECK(one.renew() == 0);
    CHECK(about.was_forced(common().link.ask(about.forced()), one.me));
    CHECK(about.was_forced(common().link.ask(about.forced()), two.me));
    CHECK_FALSE(about.was_forced(common().link.ask(about.forced()), next.me));
    CHECK(next.has());
    CHECK(it.of("used") == "1");
    CHECK(next.leave() == 1);
    CHECK(about.read_force_release(common().link.ask(about.force_release())) == false);
}

}  // namespace permit_scripts_tests
