// The scripts of the hand-off for a user who may not do everything.
#include <string>
#include <system_error>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/mutex.hpp>
#include <distlock/testing.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/reply.hpp>

#include "support/catch.hpp"
#include "support/handoff_lock.hpp"
#include "support/handoff_steps.hpp"
#include "support/sleepers.hpp"
#include "support/waiting.hpp"

namespace handoff_permissions_tests {

using namespace handoff_test;

TEST_CASE("a user who may use the lock's key only is refused by every script, and nothing changes") {
    private_place here("worker");
    here.server.command({"ACL", "SETUSER", "worker", "resetkeys", "~lock:*"});
    for (const lock_options* options : every_kind) {
        for (const layer& lay : layers) {
            for (const int waiters : {0, 1}) {
                for (const step& step : every_step) {
                    INFO(step.name);
                    auto it = here.fresh(*options);
                    lay(it, waiters);
                    CHECK(changes_nothing(here.server,
                                          [&] { CHECK(refused(step.run(it), errc::permission_denied)); }));
                }
                auto it = here.fresh(bare);
                held_by_us(it, waiters);
                CHECK(it.release_minimal().is_integer(1));
                CHECK(it.queued() == waiters);
            }
        }
    }
}

TEST_CASE("a waiter whose channel may not be counted or published on is handed the lock all the same") {
    for (const char* refuse : {"resetchannels", "-publish", "-pubsub"}) {
        INFO(refuse);
        private_place here("worker");
        redis_link process(here.server.socket_path());
        process.subscribe("its:channel");
        here.server.command({"ACL", "SETUSER", "worker", refuse});
        for (const bool by_force : {false, true}) {
            auto it = here.fresh(all, "its:channel");
            handoff_lock next(here.server, here.redis, it.lock, all, "its:channel");
            CHECK(it.enter(enter_mode::join).what == got::granted);
            CHECK(next.enter(enter_mode::join).what == got::busy);
            CHECK((by_force ? it.force().is_integer(1) : it.release().is_integer(2)));
            CHECK(next.is_ours());
            CHECK(next.enter(enter_mode::join).what == got::granted);
            CHECK(next.release().is_integer(1));
        }
    }
}

namespace {

const std::vector<std::string> needed{"eval",   "evalsha", "get",  "set",    "del",  "pexpire", "pttl",
                                      "incrby", "time",    "zadd", "zrange", "zrem", "zscore",  "zrank"};

void allow_only(const redis_server& server, const std::vector<std::string>& commands) {
    server.command({"ACL", "SETUSER", "worker", "reset", "on", ">secret", "~*", "&*"});
    for (const auto& one : commands) server.command({"ACL", "SETUSER", "worker", "+" + one});
    server.command({"SCRIPT", "FLUSH"});  // so that EVAL is needed as well as EVALSHA
}

// Every step, whatever is found, by a user who may not use `missing`.
template <class Use>
void take_every_step(private_place& here, const std::string& missing, Use use) {
    std::vector<std::string> allowed = needed;
    std::erase(allowed, missing);
    for (const char* last : {"17", "9007199254740993"}) {
        for (const layer& lay : layers) {
            for (const int waiters : {0, 1, 2}) {
                for (const step& step : every_step) {
                    here.server.command({"ACL", "SETUSER", "worker", "+@all"});
                    auto it = here.fresh(all);
                    lay(it, waiters);
                    it.set(it.fence, last, "3900000");
                    allow_only(here.server, allowed);
                    here.redis.ask({"AUTH", "worker", "secret"});
                    const auto before = it.get(it.lock);
                    const auto answer = step.run(it);
                    INFO("without " << missing << ": " << step.name << ", " << before << ", " << waiters
                                    << " waiting: " << answer.text());
                    use(answer, before == it.get(it.lock));
                }
            }
        }
    }
}

}  // namespace

TEST_CASE("fourteen commands are all that the scripts of the hand-off need") {
    private_place here("worker");
    take_every_step(here, "none", [](const reply& r, bool) { CHECK_FALSE(r.is(reply_kind::error)); });
    for (const std::string& missing : needed) {
        int harmed = 0;
        take_every_step(here, missing, [&](const reply& r, bool) {
            if (!r.is(reply_kind::error)) return;
            ++harmed;
            CHECK(refused(r, errc::permission_denied));
        });
        INFO(missing);
        CHECK(harmed > 0);
    }
}

TEST_CASE("a read, or a first write, that is not permitted is an error before the lock is touched") {
    private_place here("worker");
    for (const char* missing : {"eval", "evalsha", "get", "set", "zrange", "zscore"}) {
        take_every_step(here, missing, [](const reply& r, bool unchanged) {
            if (r.is(reply_kind::error)) CHECK(unchanged);
        });
    }
}

TEST_CASE(
    "the waiter of a hand-over is not granted the fence of the owner before, whatever is not permitted in "
    "it") {
    private_place here("worker");
    int released_to = 0;
    int found_by = 0;
    for (const bool by_release : {true, false}) {
        for (const std::string& missing : needed) {
            INFO("without " << missing << (by_release ? ", by a release" : ", by a look"));
            std::vector<std::string> allowed = needed;
            std::erase(allowed, missing);
            here.server.command({"ACL", "SETUSER", "worker", "+@all"});
            auto it = here.fresh(fenced);
            handoff_lock next(here.server, here.redis, it.lock, fenced);
            const auto first = it.enter(enter_mode::join);
            REQUIRE(first.what == got::granted);
            REQUIRE(next.enter(enter_mode::join).what == got::busy);
            allow_only(here.server, allowed);
            here.redis.ask({"AUTH", "worker", "secret"});
            if (by_release) {
                it.release();
            } else {
                here.server.command({"DEL", it.lock});
                handoff_lock(here.server, here.redis, it.lock, fenced).enter(enter_mode::try_once);
            }
            const bool handed = next.is_ours();
            here.server.command({"ACL", "SETUSER", "worker", "+@all"});
            (by_release ? released_to : found_by) += handed;
            if (handed) CHECK(next.enter(enter_mode::join).fence > first.fence);
        }
    }
    CHECK(released_to > 1);
    CHECK(found_by > 1);
}

// It was told that somebody else had taken the lock.
TEST_CASE("an owner whose release hands the lock over, and is refused then, has not lost it") {
    private_place here;
    distlock::hiredis_connection owner(here.server.uri());
    distlock::hiredis_connection other(here.server.uri());
    distlock::mutex m{owner, "orders", {.release = distlock::confirmed}};
    distlock::mutex next{other, "orders"};
    REQUIRE(m.try_lock());
    sleeper waiter([&] {
        std::error_code refused;
        static_cast<void>(next.try_lock_for(10s, refused));
    });
    REQUIRE(eventually([&] { return here.server.command({"ZCARD", "{orders}:distlock:queue"}) == "1"; }));
    here.server.command({"ACL", "SETUSER", "default", "-del"});
    CHECK(m.owns_lock());
    CHECK(m.unlock() == distlock::release_outcome::released);
    here.server.command({"ACL", "SETUSER", "default", "+del"});
}

TEST_CASE("a lock is taken away by force without what only the hand-over needs, and is free then") {
    private_place here("worker");
    for (const std::string& missing : needed) {
        std::vector<std::string> allowed = needed;
        std::erase(allowed, missing);
        auto it = here.fresh(bare);
        held_by_other(it, 2);
        allow_only(here.server, allowed);
        INFO("without " << missing);
        const auto answer = it.force();
        if (missing == "eval" || missing == "get" || missing == "set" || missing == "del" ||
            missing == "pttl") {
            CHECK(refused(answer, errc::permission_denied));
            CHECK(it.ttl(it.lock) > 2000);
            continue;
        }
        CHECK(answer.is_integer(1));
        // Without TIME no fence is made: tickets that want one are dropped.
        const bool freed = missing == "time" || missing == "zrange" || missing == "zrem";
        CHECK(it.exists(it.lock) == !freed);
        CHECK(it.queued() == (missing == "time" ? 0 : freed ? 2 : 1));
    }
}

TEST_CASE("to inspect needs no more for the queue: without it no waiters are reported") {
    private_place here("worker");
    const std::vector<std::string> least{"eval", "get", "pttl"};
    const std::vector<std::string> for_the_queue{"zrange", "zcard", "time"};
    auto it = here.fresh(all);
    held_by_us(it, 2);
    const distlock::plain_inspector about(it.lock);
    for (const auto& missing : for_the_queue) {
        auto allowed = least;
        for (const auto& one : for_the_queue) {
            if (one != missing) allowed.push_back(one);
        }
        allow_only(here.server, allowed);
        const auto report = about.read_inspect(it.ask(about.inspect()));
        REQUIRE(report);
        CHECK(report->holder->token == it.owner.view());
        CHECK_FALSE(report->waiters);
        CHECK(report->queue.empty());
        allowed.push_back(missing);
        allow_only(here.server, allowed);
        CHECK(about.read_inspect(it.ask(about.inspect()))->waiters == 2U);
    }
}

}  // namespace handoff_permissions_tests
