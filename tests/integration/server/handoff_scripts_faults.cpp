// The scripts of the hand-off on a server that refuses something: it is refused clearly, and before
// anything is written.
#include <string>
#include <string_view>

#include <distlock/base/error.hpp>
#include <distlock/testing.hpp>
#include <distlock/wire/reply.hpp>

#include "support/catch.hpp"
#include "support/handoff_lock.hpp"
#include "support/handoff_steps.hpp"

namespace handoff_scripts_faults_tests {

using namespace handoff_test;

// Out of memory.

TEST_CASE("out of memory, no lock is taken nor handed over by a waiter, and nobody joins the queue") {
    private_place here;
    for (const lock_options* options : every_kind) {
        for (const char* last : {"", "17", "9007199254740993"}) {
            for (const int waiters : {0, 1}) {
                auto it = here.fresh(*options);
                if (*last != '\0') it.set(it.fence, last, "3900000");
                queue_others(it, waiters);
                here.memory("1");
                for (const enter_mode mode : everywhere) {
                    CHECK(changes_nothing(here.server,
                                          [&] { CHECK(refused(enter(it, mode), errc::out_of_memory)); }));
                }
                here.memory("0");
                held_by_other(it, waiters);
                here.memory("1");
                const auto join = [&] { CHECK(refused(enter(it, enter_mode::join), errc::out_of_memory)); };
                CHECK(changes_nothing(here.server, join));
                here.memory("0");
            }
        }
    }
}

TEST_CASE("out of memory, a waiter that is queued, or does not want to be, learns that a lock is taken") {
    private_place here;
    auto it = here.fresh(all);
    held_by_other(it, 1);
    CHECK(it.enter(enter_mode::join).queued.appended);
    here.memory("1");
    for (const enter_mode mode : everywhere) CHECK(it.enter(mode).what == got::busy);
    CHECK_FALSE(it.is_queued());
    CHECK(it.queued() == 1);
}

TEST_CASE("out of memory, a lock of ours is handed over or freed all the same") {
    private_place here;
    for (const lock_options* options : every_kind) {
        for (const char* last : {"", "17", "9007199254740993"}) {
            for (const int waiters : {0, 1, 2}) {
                auto it = here.fresh(*options);
                if (*last != '\0') it.set(it.fence, last, "3900000");
                held_by_us(it, waiters);
                here.memory("1");
                CHECK(it.release().is_integer(waiters > 0 ? 2 : 1));
                CHECK(it.exists(it.lock) == (waiters > 0));
                CHECK_FALSE(it.is_ours());
                CHECK(it.exists(it.who) == (waiters > 0));
                CHECK(it.queued() == (waiters > 0 ? waiters - 1 : 0));
                here.memory("0");
            }
        }
    }
}

TEST_CASE("out of memory, a lock is taken away by force, and is then the first waiter's or free") {
    private_place here;
    for (const lock_options* options : every_kind) {
        for (const int waiters : {0, 1, 2}) {
            auto it = here.fresh(*options);
            held_by_us(it, waiters);
            here.memory("1");
            CHECK(it.force().is_integer(1));
            CHECK(it.get(it.mark) == it.owner.view());
            CHECK_FALSE(it.is_ours());
            CHECK(it.exists(it.lock) == (waiters > 0));
            here.memory("0");
        }
    }
}

TEST_CASE("out of memory, a lock of ours is ours when we ask again") {
    private_place here;
    for (const lock_options* options : every_kind) {
        auto it = here.fresh(*options);
        it.enter(enter_mode::join);
        here.memory("1");
        for (const enter_mode mode : everywhere) CHECK(it.enter(mode).what == got::granted);
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
            auto queued = here.fresh(*options);
            queue_others(free, waiters);
            held_by_us(ours, waiters);
            held_by_other(theirs, waiters);
            held_by_other(queued, waiters);
            queued.enter(enter_mode::join);
            here.server.command({"PEXPIRE", queued.queue, "1000000"});
            here.server.command({"REPLICAOF", "127.0.0.1", "1"});
            for (handoff_lock* it : {&free, &ours, &theirs, &queued}) {
                INFO((it == &free     ? "free"
                      : it == &ours   ? "ours"
                      : it == &theirs ? "theirs"
                                      : "queued")
                     << ", " << waiters << " waiting, fencing " << options->fencing);
                const auto before = contents(*it);
                for (const enter_mode mode : everywhere) {
                    INFO(static_cast<int>(mode));
                    CHECK(refused(enter(*it, mode), errc::read_only));
                }
                CHECK(refused(it->release(), errc::read_only));
                CHECK(refused(it->force(), errc::read_only));
                CHECK(contents(*it) == before);
            }
        }
    }
}

// Keys of other types.

TEST_CASE("another type at the lock's key is an error to every step, and stays") {
    private_place here;
    for (const lock_options* options : every_kind) {
        for (const int waiters : {0, 1}) {
            auto it = here.fresh(*options);
            make_hash(it, it.lock);
            queue_others(it, waiters);
            for (const step& step : every_step) {
                INFO(step.name);
                CHECK(changes_nothing(here.server, [&] { CHECK(refused(step.run(it), errc::wrong_type)); }));
            }
            CHECK(here.server.command({"HGETALL", it.lock}) == "a\nb");
        }
    }
}

TEST_CASE("another type at the queue is an error to those who enter, before anything is written") {
    private_place here;
    for (const lock_options* options : every_kind) {
        for (const layer& lay : layers) {
            for (const enter_mode mode : everywhere) {
                auto it = here.fresh(*options);
                lay(it, 0);
                make_hash(it, it.queue);
                const auto ask = [&] { CHECK(refused(enter(it, mode), errc::wrong_type)); };
                CHECK(changes_nothing(here.server, ask));
            }
        }
    }
}

TEST_CASE("another type at the queue does not keep a lock, and stays") {
    private_place here;
    for (const lock_options* options : every_kind) {
        for (const bool by_force : {false, true}) {
            auto it = here.fresh(*options);
            held_by_us(it, 0);
            make_hash(it, it.queue);
            CHECK((by_force ? it.force() : it.release()).is_integer(1));
            CHECK_FALSE(it.exists(it.lock));
            CHECK_FALSE(it.exists(it.who));
            CHECK(here.server.command({"HGETALL", it.queue}) == "a\nb");
        }
    }
}

TEST_CASE("another type at the fence is an error to those who want one, before anything is written") {
    private_place here;
    for (const lock_options* options : every_kind) {
        for (const layer& lay : {layers[0], layers[1]}) {
            for (const enter_mode mode : everywhere) {
                auto it = here.fresh(*options);
                lay(it, 0);
                make_hash(it, it.fence);
                const auto before = contents(it);
                const auto answer = enter(it, mode);
                if (options->fencing) {
                    CHECK(refused(answer, errc::wrong_type));
                    CHECK(contents(it) == before);
                } else {
                    CHECK(it.dialect.read_enter(answer).what == got::granted);
                }
            }
        }
    }
}

TEST_CASE("a fence that cannot grow does not keep a lock: waiters without one are served") {
    private_place here;
    for (const char* last :
         {"a hash", "9223372036854775807", "9223372036854775600", "99999999999999999999999"}) {
        for (const int way : {0, 1, 2}) {
            INFO(last << ", " << way);
            auto it = here.fresh(all);
            held_by_us(it, 2);
            if (*last == 'a') {
                make_hash(it, it.fence);
            } else {
                it.set(it.fence, last, "3900000");
            }
            handoff_lock next(here.server, here.redis, it.lock, labelled);
            it.queue_up(next.ticket());
            if (way == 2) here.server.command({"DEL", it.lock});
            if (way == 2) {
                CHECK(next.enter(enter_mode::join).what == got::granted);
            } else {
                CHECK((way == 0 ? it.release().is_integer(2) : it.force().is_integer(1)));
            }
            CHECK(next.is_ours());
            CHECK(next.get(next.who) == next.owner_text());
            CHECK(it.queued() == 0);
            here.server.command({"DEL", it.lock, it.who});
            CHECK(changes_nothing(here.server,
                                  [&] { CHECK(enter(it, enter_mode::join).is(reply_kind::error)); }));
            queue_others(it, 1);
            CHECK(enter(it, enter_mode::join).is(reply_kind::error));
            CHECK_FALSE(it.exists(it.lock));
            CHECK_FALSE(it.exists(it.who));
        }
    }
}

}  // namespace handoff_scripts_faults_tests
