// The scripts of the hand-off on a real server: what they answer, and what they leave behind, whatever they find.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <distlock/testing.hpp>
#include <distlock/wire/reply.hpp>

#include "catch.hpp"
#include "support/handoff_lock.hpp"

using namespace handoff_test;
using distlock::hiredis_connection;

namespace {

redis_server& shared() {
    static redis_server server;
    return server;
}

hiredis_connection& connection() {
    static hiredis_connection redis(shared().uri() + patient);
    return redis;
}

handoff_lock fresh(const lock_options& options) { return {shared(), connection(), fresh_name(), options}; }

// What may be found at the lock.
enum class state {
    unlocked,
    ours,
    theirs,
    offered,   // and nobody has taken it yet
    late,      // offered more than a second ago
    timeless,  // offered for a count that may be nobody's
    vanished,  // offered, and deleted by somebody who knows of no offers
    retaken,   // then taken by another
};

struct found {
    state what;
    const char* name;
    bool busy;
};
constexpr found states[] = {{state::unlocked, "free", false},     {state::ours, "ours", false},
                            {state::theirs, "theirs", true},      {state::offered, "offered", false},
                            {state::late, "late", false},         {state::timeless, "timeless", false},
                            {state::vanished, "vanished", false}, {state::retaken, "retaken", true}};

void lay(handoff_lock& it, state what) {
    const token other = token::generate();
    shared().command({"DEL", it.K, it.B, it.W, it.who});
    const bool held = what != state::unlocked && what != state::vanished;
    if (held) it.set(it.K, what == state::ours ? it.owner.view() : other.view(), "20000");
    if (what == state::offered) it.offer(other, 0);
    if (what == state::late) it.offer(other, 1'100'000);
    if (what == state::timeless) {
        shared().command({"RPUSH", it.B, std::string(other.view()) + ":30000:0:"});
    }
    if (what == state::vanished || what == state::retaken) it.offer(token::generate(), 0);
}

struct stand {
    place where;
    const char* name;
};
constexpr stand places[] = {{place::none, "try"},
                            {place::join, "join"},
                            {place::stay, "stay"},
                            {place::quit, "quit"},
                            {place::adopt, "adopt"}};

// How many are counted after an attempt that found `before`.
int counted_after(state what, place where, int before) {
    const bool in_line = where == place::stay || where == place::quit;
    const int one_less = before > 0 ? before - 1 : 0;
    switch (what) {
        case state::theirs:
        case state::retaken:
            if (where == place::join) return before + 1;
            return where == place::quit ? one_less : before;
        case state::unlocked:
        case state::vanished:
            return in_line ? one_less : before;
        case state::offered:
            return in_line ? before : before + 1;
        case state::late:
            return in_line ? before : 0;
        default:
            return before;
    }
}

}  // namespace

// Entering.

TEST_CASE("whatever the place and whatever is found, to enter takes or waits, and counts right") {
    for (const lock_options* options : every_kind) {
        auto it = fresh(*options);
        for (const found& found : states) {
            for (const stand& stand : places) {
                for (const int before : {0, 1, 2}) {
                    INFO(found.name << ", " << stand.name << ", " << before << " waiting, fencing "
                                    << options->fencing);
                    lay(it, found.what);
                    it.count(before);
                    const auto outcome = it.enter(stand.where);
                    CHECK(outcome.what == (found.busy ? got::busy : got::granted));
                    CHECK(it.is_ours() == !found.busy);
                    CHECK(it.offers() == 0);
                    CHECK(it.waiters() == counted_after(found.what, stand.where, before));
                    CHECK(it.exists(it.W) == (it.waiters() > 0));
                    CHECK(it.exists(it.who) == (!found.busy && !options->owner_info.empty()));
                    CHECK((outcome.fence != 0) == (!found.busy && options->fencing));
                    CHECK(it.all_ends());
                    if (found.busy) {
                        REQUIRE(outcome.ttl);
                        CHECK(just_set(outcome.ttl->count(), 20'000));
                    } else {
                        CHECK(just_set(it.ttl(it.K), lease));
                    }
                }
            }
        }
    }
}

TEST_CASE("the count of those who wait lasts a lease from whoever asked last, and is never cut short") {
    auto it = fresh(bare);
    struct row {
        state found;
        place where;
        bool lengthens;
    };
    for (const row& row : {row{state::theirs, place::none, false}, row{state::theirs, place::join, true},
                           row{state::theirs, place::stay, true}, row{state::theirs, place::quit, false},
                           row{state::offered, place::join, false}, row{state::offered, place::none, false},
                           row{state::timeless, place::join, false}, row{state::offered, place::stay, false},
                           row{state::unlocked, place::quit, false}}) {
        INFO(static_cast<int>(row.found) << " " << static_cast<int>(row.where));
        lay(it, row.found);
        it.count(2, "10000");
        it.enter(row.where);
        CHECK(just_set(it.ttl(it.W), row.lengthens ? lease : 10'000));
        lay(it, row.found);
        it.count(2, "60000");
        it.enter(row.where);
        CHECK(just_set(it.ttl(it.W), 60'000));
        if (!row.lengthens) continue;
        lay(it, row.found);
        it.set(it.W, "2");
        it.enter(row.where);
        CHECK(just_set(it.ttl(it.W), lease));
    }
}

TEST_CASE("a lock of somebody else without a TTL is busy for ever, and stays as it is") {
    auto it = fresh(all);
    it.set(it.K, "for ever");
    for (const stand& stand : places) CHECK(it.enter(stand.where).ttl == -1ms);
    CHECK(it.watch().is_integer(-1));
    CHECK(it.release().is_integer(-1));
    CHECK(it.get(it.K) == "for ever");
    CHECK(it.ttl(it.K) == -1);
}

TEST_CASE("to try a lock that is taken writes nothing") {
    auto it = fresh(all);
    lay(it, state::theirs);
    it.count(1);
    CHECK(changes_nothing(shared(), [&] {
        it.enter(place::none);
        it.enter(place::adopt);
    }));
}

TEST_CASE("asked again with the same token, a lock has the same fence and a whole lease, in any place") {
    for (const lock_options* options : every_kind) {
        auto it = fresh(*options);
        const auto first = it.enter(place::join);
        for (const stand& stand : places) {
            INFO(stand.name);
            shared().command({"PEXPIRE", it.K, "15000"});
            const auto again = it.enter(stand.where);
            CHECK(again.what == got::granted);
            CHECK(just_set(it.ttl(it.K), lease));
            CHECK(it.exists(it.fence) == options->fencing);
            // Who adopts a lock has it from one who may have made no fence.
            if (stand.where != place::adopt) CHECK(again.fence == first.fence);
            if (options->fencing && stand.where == place::adopt) CHECK(again.fence > first.fence);
            if (!options->owner_info.empty()) CHECK(it.get(it.who) == it.owner_text());
        }
    }
}

// Releasing, and looking.

TEST_CASE("a release hands on when somebody is counted, and frees when nobody is") {
    for (const lock_options* options : every_kind) {
        for (const char* waiters : {"", "-1", "0", "1", "2", "3"}) {
            for (const bool stale : {false, true}) {
                INFO("waiting: " << waiters << ", stale offer " << stale);
                auto it = fresh(*options);
                const auto fence = it.enter(place::none).fence;
                if (*waiters != '\0') it.set(it.W, waiters, "10000");
                if (stale) it.offer(token::generate(), 0);
                const int before = it.waiters();
                const auto answer = it.release();
                CHECK_FALSE(it.exists(it.who));
                CHECK(it.all_ends());
                if (before <= 0) {
                    CHECK(answer.is_integer(1));
                    CHECK_FALSE(it.exists(it.K));
                    CHECK(it.waiters() == before);
                    continue;
                }
                CHECK(answer.is_integer(2));
                CHECK(it.is_offered());
                CHECK(it.waiters() == before - 1);
                CHECK(it.exists(it.W) == (before > 1));
                const auto popped = it.pop();
                CHECK(popped.what == got::granted);
                CHECK(it.is_ours());
                CHECK((!options->fencing || popped.fence > fence));
                CHECK((popped.fence != 0) == options->fencing);
                CHECK(it.exists(it.who) == !options->owner_info.empty());
                if (!options->owner_info.empty()) CHECK(it.get(it.who) == it.owner_text());
                CHECK(it.offers() == 0);
                CHECK(it.all_ends());
            }
        }
    }
}

TEST_CASE("a release of what is not ours, or gone, writes nothing") {
    for (const lock_options* options : every_kind) {
        for (const found& found : states) {
            if (found.what == state::ours) continue;
            for (const int waiters : {0, 1, 2}) {
                INFO(found.name << ", " << waiters << " waiting");
                auto it = fresh(*options);
                lay(it, found.what);
                it.count(waiters);
                reply answer;
                CHECK(changes_nothing(shared(), [&] { answer = it.release(); }));
                const bool gone = found.what == state::unlocked || found.what == state::vanished;
                CHECK(answer.is_integer(gone ? 0 : -1));
            }
        }
    }
}

TEST_CASE("who looks hands a free lock on when somebody is counted, who revives also when nobody is") {
    for (const lock_options* options : every_kind) {
        for (const state what : {state::unlocked, state::vanished}) {
            auto it = fresh(*options);
            lay(it, what);
            reply answer;
            CHECK(changes_nothing(shared(), [&] { answer = it.watch(); }));
            CHECK(answer.is_integer(-2));
            CHECK(it.revive().is_integer(lease));
            CHECK(it.is_offered());
            CHECK_FALSE(it.exists(it.W));
            for (const int waiters : {1, 2}) {
                for (const bool revived : {false, true}) {
                    lay(it, what);
                    it.count(waiters);
                    CHECK((revived ? it.revive() : it.watch()).is_integer(lease));
                    CHECK(it.is_offered());
                    CHECK(it.waiters() == waiters - 1);
                    CHECK(it.all_ends());
                    // The next who looks leaves it to whom it was offered.
                    const auto text = it.first_offer();
                    CHECK(just_set(it.watch().number(), lease));
                    CHECK(it.first_offer() == text);
                }
            }
        }
    }
}

TEST_CASE("who looks at a lock that is held learns its TTL, and keeps those who wait counted for a lease") {
    auto it = fresh(all);
    for (const state what : {state::theirs, state::offered, state::retaken}) {
        lay(it, what);
        for (const bool revived : {false, true}) {
            const auto look = [&] { return revived ? it.revive() : it.watch(); };
            reply answer;
            it.count(0);
            CHECK(changes_nothing(shared(), [&] { answer = look(); }));
            CHECK(just_set(answer.number(), 20'000));
            it.count(2, "10000");
            CHECK(just_set(look().number(), 20'000));
            CHECK(just_set(it.ttl(it.W), lease));
            it.count(2, "60000");
            look();
            CHECK(just_set(it.ttl(it.W), 60'000));
            CHECK(it.waiters() == 2);
        }
    }
}

// Counts that may be nobody's.

TEST_CASE("a count that is given back alone lasts two seconds, or a lease from whoever joins or looks then") {
    auto it = fresh(bare);
    handoff_lock other(shared(), connection(), it.K, bare);
    for (const place taker : {place::none, place::join, place::adopt}) {
        const auto give_back = [&] {
            lay(it, state::offered);
            it.enter(taker);
            return it.waiters() == 1 && it.ttl(it.W) > 0 && it.ttl(it.W) <= 2000;
        };
        CHECK(give_back());
        it.enter(taker);
        CHECK(it.ttl(it.W) <= 2000);
        for (const place where : {place::join, place::stay}) {
            CHECK(give_back());
            CHECK(other.enter(where).what == got::busy);
            CHECK(just_set(it.ttl(it.W), lease));
        }
        CHECK(give_back());
        other.watch();
        CHECK(just_set(it.ttl(it.W), lease));
    }
}

// Leaving.

TEST_CASE("who leaves is counted no more, and alone takes an open offer along") {
    for (const found& found : states) {
        for (const int waiters : {0, 1, 2}) {
            INFO(found.name << ", " << waiters << " waiting");
            auto it = fresh(all);
            lay(it, found.what);
            it.count(waiters);
            const bool open =
                found.what == state::offered || found.what == state::late || found.what == state::timeless;
            const bool frees = open && waiters == 0;
            const bool held = it.exists(it.K);
            const int offers = it.offers();
            CHECK(it.leave().is_integer(frees ? 1 : 0));
            CHECK(it.exists(it.K) == (held && !frees));
            CHECK(it.offers() == (frees ? 0 : offers));
            CHECK(it.waiters() == (waiters > 0 ? waiters - 1 : 0));
            CHECK(it.exists(it.W) == (waiters > 1));
        }
    }
}
