// Counts that may be nobody's: a waiter that dies while it is counted must not be handed the lock for ever.
#include <string>

#include <distlock/testing.hpp>
#include <distlock/wire/reply.hpp>

#include "catch.hpp"
#include "support/handoff_lock.hpp"
#include "support/handoff_steps.hpp"

using namespace handoff_test;

TEST_CASE("an offer says when it was made, or 0 when it is for a count that may be nobody's") {
    private_place here;
    const auto time_in = [](const std::string& offer) {
        const auto from = offer.find(':', 33) + 1;
        return std::stoll(offer.substr(from, offer.find(':', from) - from));
    };
    for (const lock_options* options : every_kind) {
        auto it = here.fresh(*options);
        const auto offered = [&](auto hand_on, bool held) {
            here.server.command({"DEL", it.K, it.B});
            if (held) it.set(it.K, it.owner.view(), "20000");
            const auto before = time_of(here.server);
            hand_on();
            const auto made = time_in(it.first_offer());
            CHECK(it.is_offered());
            CHECK((made == 0 || (made >= before && made <= time_of(here.server))));
            return made != 0;
        };
        for (const char* waiters : {"1", "2"}) {
            it.set(it.W, waiters, "10000");
            CHECK(offered([&] { it.release(); }, true));
            it.set(it.W, waiters, "2000");
            CHECK(offered([&] { it.release(); }, true));
            it.set(it.W, waiters, "1000");
            CHECK_FALSE(offered([&] { it.release(); }, true));
            it.set(it.W, waiters);
            CHECK_FALSE(offered([&] { it.release(); }, true));
            it.set(it.W, waiters, "1000");  // who looks is there
            CHECK(offered([&] { it.watch(); }, false));
            it.set(it.W, waiters, "1000");
            CHECK(offered([&] { it.revive(); }, false));
        }
        it.count(0);
        CHECK_FALSE(offered([&] { it.revive(); }, false));
    }
}

// Who is on its way to its wait may be overtaken many times: its count must not be dropped for that.
TEST_CASE("a lock whose only waiter has died is free again two uses after a second, and not before") {
    private_place here;
    for (const lock_options* options : every_kind) {
        auto it = here.fresh(*options);
        handoff_lock dead(here.server, here.redis, it.K, bare);
        it.enter(place::none);
        CHECK(dead.enter(place::join).what == got::busy);
        CHECK(it.release().is_integer(2));
        const auto use = [&](int answer) {
            it.owner = token::generate();
            CHECK(it.enter(place::join).what == got::granted);
            CHECK(it.release().is_integer(answer));
        };
        for (int i = 0; i < 20; ++i) use(2);
        here.server.command({"PEXPIRE", it.W, "1000"});
        use(2);
        use(1);
        CHECK(it.waiters() == 0);
        CHECK((it.ttl(it.W) == -2 || it.ttl(it.W) > 0));
        for (const auto& key : {it.K, it.B}) CHECK_FALSE(it.exists(key));
    }
}
