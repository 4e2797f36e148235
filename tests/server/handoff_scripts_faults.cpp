// The scripts of the hand-off on a server that refuses something: it is refused clearly, and before anything is written.
#include <string>
#include <string_view>

#include <distlock/base/error.hpp>
#include <distlock/testing.hpp>
#include <distlock/wire/reply.hpp>

#include "catch.hpp"
#include "support/handoff_lock.hpp"
#include "support/handoff_steps.hpp"

using namespace handoff_test;

// Out of memory.

TEST_CASE("out of memory, no lock is taken and nobody gets in line") {
    private_place here;
    for (const lock_options* options : every_kind) {
        for (const char* last : {"", "17", "9007199254740993"}) {
            auto it = here.fresh(*options);
            if (*last != '\0') it.set(it.fence, last, "3900000");
            it.count(1);
            here.memory("1");
            for (const place where : everywhere) {
                CHECK(changes_nothing(here.server,
                                      [&] { CHECK(refused(enter(it, where), errc::out_of_memory)); }));
            }
            here.memory("0");
            held_by_other(it, 1);
            here.memory("1");
            const auto join = [&] { CHECK(refused(enter(it, place::join), errc::out_of_memory)); };
            CHECK(changes_nothing(here.server, join));
            here.memory("0");
        }
    }
}

TEST_CASE("out of memory, who is in line or in none learns that a lock is taken") {
    private_place here;
    auto it = here.fresh(all);
    held_by_other(it, 1);
    here.memory("1");
    for (const place where : {place::none, place::stay, place::adopt})
        CHECK(it.enter(where).what == got::busy);
    CHECK(just_set(it.watch().number(), 20'000));
    CHECK(it.waiters() == 1);
    CHECK(just_set(it.ttl(it.W), lease));
}

TEST_CASE("out of memory, a lock of ours is freed when nobody waits") {
    private_place here;
    for (const lock_options* options : every_kind) {
        auto it = here.fresh(*options);
        held_by_us(it, 0);
        here.memory("1");
        CHECK(it.release().is_integer(1));
        CHECK_FALSE(it.exists(it.K));
        CHECK_FALSE(it.exists(it.who));
        here.memory("0");
    }
}

TEST_CASE(
    "out of memory, a lock of ours is not handed on, but can be freed, and is handed on when there is "
    "memory") {
    private_place here;
    for (const lock_options* options : every_kind) {
        for (const char* last : {"", "17", "9007199254740993"}) {
            for (const int waiters : {1, 2}) {
                auto it = here.fresh(*options);
                if (*last != '\0') it.set(it.fence, last, "3900000");
                held_by_us(it, waiters);
                here.memory("1");
                CHECK(
                    changes_nothing(here.server, [&] { CHECK(refused(it.release(), errc::out_of_memory)); }));
                CHECK(it.is_ours());
                CHECK(it.free().is_integer(1));
                CHECK_FALSE(it.exists(it.K));
                CHECK(it.waiters() == waiters);
                const auto looks = [&] {
                    CHECK(refused(it.watch(), errc::out_of_memory));
                    CHECK(refused(it.revive(), errc::out_of_memory));
                };
                here.server.command({"PEXPIRE", it.W, "60000"});
                CHECK(changes_nothing(here.server, looks));
                here.memory("0");
                CHECK(it.watch().is_integer(lease));
                CHECK(it.is_offered());
            }
        }
    }
}

TEST_CASE("out of memory, who leaves alone frees the lock that was offered") {
    private_place here;
    auto it = here.fresh(all);
    it.enter(place::none);
    it.count(1);
    CHECK(it.release().is_integer(2));
    here.memory("1");
    CHECK(it.leave().is_integer(1));
    CHECK_FALSE(it.exists(it.K));
    CHECK_FALSE(it.exists(it.B));
}

TEST_CASE("out of memory, who is counted and leaves is refused, and counted on") {
    private_place here;
    auto it = here.fresh(all);
    held_by_other(it, 2);
    here.memory("1");
    const auto leave = [&] {
        CHECK(refused(it.leave(), errc::out_of_memory));
        CHECK(refused(enter(it, place::quit), errc::out_of_memory));
    };
    CHECK(changes_nothing(here.server, leave));
}

TEST_CASE("out of memory, a lock of ours is ours when we ask again") {
    private_place here;
    for (const lock_options* options : every_kind) {
        auto it = here.fresh(*options);
        it.enter(place::none);
        here.memory("1");
        for (const place where : {place::none, place::join, place::stay, place::quit}) {
            CHECK(it.enter(where).what == got::granted);
        }
        here.memory("0");
    }
}

// Replicas.

TEST_CASE("a replica never says of a lock that it is somebody else's, or gone") {
    private_place here;
    for (const lock_options* options : every_kind) {
        for (const int waiters : {0, 1}) {
            here.server.command({"REPLICAOF", "NO", "ONE"});
            auto free = here.fresh(*options);
            auto ours = here.fresh(*options);
            auto theirs = here.fresh(*options);
            auto offered = here.fresh(*options);
            free.count(waiters);
            held_by_us(ours, waiters);
            held_by_other(theirs, waiters);
            held_by_other(offered, waiters);
            offered.offer(token::from(offered.get(offered.K)), 0);
            here.server.command({"REPLICAOF", "127.0.0.1", "1"});
            for (handoff_lock* it : {&free, &ours, &theirs, &offered}) {
                INFO((it == &free     ? "free"
                      : it == &ours   ? "ours"
                      : it == &theirs ? "theirs"
                                      : "offered")
                     << ", " << waiters << " waiting, fencing " << options->fencing);
                const auto before = contents(*it);
                for (const place where : everywhere) {
                    INFO(static_cast<int>(where));
                    CHECK(refused(enter(*it, where), errc::read_only));
                }
                CHECK(refused(it->release(), errc::read_only));
                if (it == &free) CHECK(refused(it->revive(), errc::read_only));
                if (waiters > 0) {
                    CHECK(refused(it->watch(), errc::read_only));
                    CHECK(refused(it->leave(), errc::read_only));
                }
                CHECK(contents(*it) == before);
            }
            CHECK(refused(waiters == 0 ? offered.leave() : theirs.leave(), errc::read_only));
        }
    }
}

TEST_CASE("a replica does not say busy to who is in line, however long the count of those who wait lasts") {
    private_place here;
    auto it = here.fresh(bare);
    held_by_other(it, 1);
    here.server.command({"PEXPIRE", it.W, "60000"});
    here.server.command({"REPLICAOF", "127.0.0.1", "1"});
    CHECK(refused(enter(it, place::stay), errc::read_only));
}

// Keys of other types.

namespace {

// Every step, whatever is found, with a hash at one of the keys: it may answer, or be refused before anything is written.
void refuses_or_answers(std::string handoff_lock::*spoilt) {
    private_place here;
    for (const lock_options* options : {&bare, &all}) {
        for (const layer& lay : layers) {
            for (const int waiters : {0, 1, 2}) {
                for (const step& step : every_step) {
                    auto it = here.fresh(*options);
                    lay(it, waiters);
                    make_hash(it, it.*spoilt);
                    const auto before = contents(it);
                    const auto answer = step.run(it);
                    INFO(step.name << ", " << waiters << " waiting: " << answer.text());
                    if (!answer.is(reply_kind::error)) continue;
                    CHECK(refused(answer, errc::wrong_type));
                    CHECK(contents(it) == before);
                }
            }
        }
    }
}

}  // namespace

TEST_CASE("another type at the lock's key is an error to every step but to leave, and stays") {
    private_place here;
    for (const lock_options* options : every_kind) {
        for (const int waiters : {0, 1}) {
            auto it = here.fresh(*options);
            make_hash(it, it.K);
            it.count(waiters, "60000");
            for (const step& step : every_step) {
                INFO(step.name);
                if (step.name == std::string_view("leave")) continue;
                CHECK(changes_nothing(here.server, [&] { CHECK(refused(step.run(it), errc::wrong_type)); }));
            }
            CHECK(it.leave().is_integer(0));
            CHECK(here.server.command({"HGETALL", it.K}) == "a\nb");
        }
    }
}

TEST_CASE("another type at the fence is an error before anything is written") {
    refuses_or_answers(&handoff_lock::fence);
}

TEST_CASE("another type at the offers is an error before anything is written") {
    refuses_or_answers(&handoff_lock::B);
}

TEST_CASE("another type at the waiters is an error before anything is written") {
    refuses_or_answers(&handoff_lock::W);
}

TEST_CASE("a lock is freed whatever is at the offers and the waiters") {
    private_place here;
    for (const lock_options* options : every_kind) {
        auto it = here.fresh(*options);
        held_by_us(it, 0);
        make_hash(it, it.B);
        make_hash(it, it.W);
        CHECK(it.release().is_integer(1));
        CHECK_FALSE(it.exists(it.K));
    }
}

TEST_CASE("a fence that cannot grow is an error before anything is written, and the lock can be freed") {
    private_place here;
    for (const char* last : {"9223372036854775807", "9223372036854000000", "99999999999999999999999"}) {
        INFO(last);
        auto it = here.fresh(all);
        held_by_us(it, 1);
        it.set(it.fence, last, "3900000");
        CHECK(changes_nothing(here.server, [&] { CHECK(it.release().is(reply_kind::error)); }));
        CHECK(it.free().is_integer(1));
        for (const place where : everywhere) {
            INFO(static_cast<int>(where));
            CHECK(changes_nothing(here.server, [&] { CHECK(enter(it, where).is(reply_kind::error)); }));
        }
    }
}
