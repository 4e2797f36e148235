// The scripts of the hand-off for a user who may not do everything.
#include <string>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/testing.hpp>
#include <distlock/wire/reply.hpp>

#include "catch.hpp"
#include "support/handoff_lock.hpp"
#include "support/handoff_steps.hpp"

using namespace handoff_test;

TEST_CASE("a user who may use the lock's key only is refused by every script, and nothing changes") {
    private_place here("worker:secret@");
    here.server.command({"ACL", "SETUSER", "worker", "reset", "on", ">secret", "~lock:*", "+@all"});
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
                CHECK(it.free().is_integer(1));
                CHECK(it.waiters() == waiters);
            }
        }
    }
}

namespace {

const std::vector<std::string> needed{"eval", "evalsha", "get",  "mget",   "set",  "del",    "pexpire",
                                      "pttl", "incr",    "decr", "incrby", "time", "lindex", "rpush"};

void allow_only(const redis_server& server, const std::vector<std::string>& commands) {
    server.command({"ACL", "SETUSER", "worker", "reset", "on", ">secret", "~*"});
    for (const auto& one : commands) server.command({"ACL", "SETUSER", "worker", "+" + one});
    server.command({"SCRIPT", "FLUSH"});  // so that EVAL is needed as well as EVALSHA
}

// Every step, whatever is found, by a user who may not use `missing`.
template <class Use>
void take_every_step(private_place& here, const std::string& missing, Use use) {
    std::vector<std::string> allowed = needed;
    std::erase(allowed, missing);
    allow_only(here.server, allowed);
    for (const char* last : {"17", "9007199254740993"}) {
        for (const layer& lay : layers) {
            for (const int waiters : {0, 1, 2}) {
                for (const step& step : every_step) {
                    auto it = here.fresh(all);
                    lay(it, waiters);
                    it.set(it.fence, last, "3900000");
                    const auto before = it.get(it.K);
                    const auto answer = step.run(it);
                    INFO("without " << missing << ": " << step.name << ", " << before << ", " << waiters
                                    << " waiting: " << answer.text());
                    use(answer, before == it.get(it.K));
                }
            }
        }
    }
}

}  // namespace

TEST_CASE("fifteen commands are all that the scripts of the hand-off need, and each of them is needed") {
    private_place here("worker:secret@");
    take_every_step(here, "none", [](const reply& r, bool) { CHECK_FALSE(r.is(reply_kind::error)); });
    for (const std::string& missing : needed) {
        int refusals = 0;
        take_every_step(here, missing, [&](const reply& r, bool) {
            if (!r.is(reply_kind::error)) return;
            ++refusals;
            CHECK(refused(r, errc::permission_denied));
        });
        INFO(missing);
        CHECK(refusals > 0);
    }
}

TEST_CASE("a read, or a first write, that is not permitted is an error before the lock is touched") {
    private_place here("worker:secret@");
    for (const char* missing : {"eval", "evalsha", "get", "mget", "set", "time", "lindex", "incrby"}) {
        take_every_step(here, missing, [](const reply& r, bool unchanged) {
            if (r.is(reply_kind::error)) CHECK(unchanged);
        });
    }
}
