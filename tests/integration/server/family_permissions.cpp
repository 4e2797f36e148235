// Shared locks and semaphores for the users that the guide makes for them: all they need, and nothing
// that they do not need.
#include <chrono>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <stop_token>
#include <string>
#include <thread>

#include <distlock/base/key.hpp>
#include <distlock/base/token.hpp>
#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>
#include <distlock/wire/channel_kind.hpp>
#include <distlock/wire/enter_mode.hpp>
#include <distlock/wire/permits.hpp>
#include <distlock/wire/redisson.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/shared_handoff.hpp>

#include "support/catch.hpp"
#include "support/permitted_user.hpp"
#include "support/waiting.hpp"

namespace family_permissions_tests {

using namespace std::chrono_literals;
using distlock::hiredis_connection;
using distlock::testing::redis_server;

namespace {

// Returns: what the row of that kind of lock adds to the line of the guide, each as ACL SETUSER has it.
words added_for(const std::string& kind) {
    std::ifstream text = open_guide(".github/SECURITY.md");
    std::string line;
    while (std::getline(text, line) &&
           !line.starts_with("| `" + kind + "` | those of the line above and `")) {}
    REQUIRE_FALSE(line.empty());
    const auto from = line.find("and `") + 5;
    std::istringstream parts(line.substr(from, line.find('`', from) - from));
    words all;
    for (std::string one; parts >> one;) all.push_back("+" + one);
    return all;
}

struct place {
    explicit place(const words& added) {
        words user = user_in(".github/SECURITY.md");
        user.insert(user.end(), added.begin(), added.end());
        make(server, user);
    }
    std::string uri() const {
        std::string made = server.uri();
        return made.insert(made.find("//") + 2, "worker:secret@");
    }
    redis_server server;
};

// A user who may not call one command that the guide's user for that kind needs, and one who may do all.
struct two_users : place {
    two_users(const std::string& kind, const std::string& forbidden) : place(added_for(kind)) {
        server.command({"ACL", "SETUSER", "worker", forbidden});
    }
    hiredis_connection bad{uri()};
    hiredis_connection good{server.uri()};
};

template <class Lock>
void share(const std::string& uri) {
    hiredis_connection first(uri);
    hiredis_connection second(uri);
    Lock a(first, "orders:1",
           {.lease = 600ms, .fencing = true, .owner_info = "job", .release = distlock::confirmed});
    Lock b(second, "orders:1", {.lease = 600ms, .fencing = true, .release = distlock::confirmed});
    a.lock();
    std::jthread waits([&] {
        b.lock_shared();
        b.unlock_shared();
    });
    REQUIRE(eventually([&] {
        const auto seen = distlock::inspect<distlock::shared_handoff>(first, "orders:1");
        return seen.waiters == 1U;
    }));
    a.downgrade();
    waits.join();
    const auto until = a.shared_until();
    CHECK(eventually([&] { return a.shared_until() > until; }));
    CHECK(distlock::inspect<distlock::shared_handoff>(first, "orders:1").shares == 1U);
    CHECK(a.try_upgrade());
    CHECK(a.unlock() == distlock::release_outcome::released);
    b.lock_shared();
    CHECK(distlock::force_release<distlock::shared_handoff>(first, "orders:1"));
}

void take_permits(const std::string& uri) {
    hiredis_connection first(uri);
    hiredis_connection second(uri);
    distlock::counting_semaphore a{first, "orders:2", 2, {.lease = 600ms, .release = distlock::confirmed}};
    distlock::counting_semaphore b{second, "orders:2", 2, {.lease = 600ms, .release = distlock::confirmed}};
    auto one = a.acquire(2);
    std::jthread waits([&] { const distlock::permit mine = b.acquire(); });
    REQUIRE(
        eventually([&] { return distlock::inspect<distlock::permits>(first, "orders:2").waiters == 1U; }));
    CHECK(distlock::inspect(first, "orders:2").shares == 2U);
    const auto until = one.valid_until();
    CHECK(eventually([&] { return one.valid_until() > until; }));
    CHECK(one.release() == distlock::release_outcome::released);
    waits.join();
    CHECK(a.resize(3) == 0);
    one = a.acquire();
    CHECK(distlock::force_release(first, "orders:2"));
    one = a.acquire();
    CHECK(distlock::force_release<distlock::permits>(first, "orders:2"));
}

}  // namespace

TEST_CASE("a shared lock works for the user that the guide makes for it") {
    const place here(added_for("shared_mutex"));
    share<distlock::shared_mutex<hiredis_connection>>(here.uri());
}

TEST_CASE("an operator with the permissions of an owner asks nothing that stands in the ACL log") {
    const place here({});
    hiredis_connection redis(here.uri());
    distlock::mutex m{redis, "orders:1", {.release = distlock::confirmed}};
    here.server.command({"ACL", "LOG", "RESET"});
    CHECK_FALSE(distlock::inspect(redis, "orders:1").holder);
    CHECK_FALSE(distlock::force_release(redis, "orders:1"));
    m.lock();
    CHECK(distlock::inspect(redis, "orders:1").holder);
    CHECK(distlock::force_release(redis, "orders:1"));
    CHECK(here.server.command({"ACL", "LOG"}).empty());
}

// It was told that it may not, and the permits, and the lock of the readers, were free all the same.
TEST_CASE("an operator that may leave no mark takes nothing") {
    const redis_server server;
    REQUIRE(server.command(
                {"ACL", "SETUSER", "anna", "reset", "on", ">secret", "~*", "&*", "+@all", "-set"}) == "OK");
    hiredis_connection owner(server.uri());
    hiredis_connection anna("unix://anna:secret@" + server.socket_path());
    distlock::mutex m{owner, "orders:1"};
    distlock::shared_mutex reads{owner, "orders:2"};
    distlock::shared_mutex beside{owner, "orders:2"};
    distlock::counting_semaphore pool{owner, "orders:3", 2};
    m.lock();
    reads.lock_shared();
    std::jthread([&] { beside.lock_shared(); }).join();
    const distlock::permit one = pool.acquire();
    for (const char* name : {"orders:1", "orders:2", "orders:3"}) {
        INFO(name);
        const auto kept = distlock::inspect(owner, name);
        std::error_code ec;
        CHECK_FALSE(distlock::force_release(anna, name, ec));
        CHECK(ec == distlock::errc::permission_denied);
        CHECK(distlock::inspect(owner, name).shares == kept.shares);
        CHECK(server.command({"EXISTS", name}) == "1");
    }
}

TEST_CASE("a semaphore works for the user that the guide makes for it") {
    const place here(added_for("counting_semaphore"));
    take_permits(here.uri());
}

TEST_CASE("a user that may not do all that a shared lock or a semaphore needs is told so") {
    for (const std::string kind : {"shared_mutex", "counting_semaphore"}) {
        const place here({});
        hiredis_connection redis(here.uri());
        std::error_code ec;
        if (kind == "shared_mutex") {
            distlock::shared_mutex m{redis, "orders:1"};
            CHECK_FALSE(m.try_lock_shared(ec));
        } else {
            distlock::counting_semaphore pool{redis, "orders:2", 1};
            CHECK_FALSE(pool.try_acquire(ec));
        }
        CHECK(ec == distlock::errc::permission_denied);
        CHECK(here.server.command({"KEYS", "*"}).empty());
    }
}

// The set had a token more than was counted: others got permits that were out, or none ever.
TEST_CASE("a user that may not write all of a semaphore takes nothing from those that may") {
    two_users of("counting_semaphore", "-hset");
    std::error_code ec;
    distlock::counting_semaphore pool{of.bad, "orders:2", 2, {.lease = 300ms, .renew = false}};
    CHECK_FALSE(pool.try_acquire(ec));
    CHECK(ec == distlock::errc::permission_denied);
    CHECK(of.server.command({"KEYS", "*"}).empty());

    distlock::counting_semaphore same{of.good, "orders:2", 2, {.release = distlock::confirmed}};
    const auto one = same.acquire();
    CHECK_FALSE(pool.try_acquire(ec));
    CHECK(ec == distlock::errc::permission_denied);
    const auto tried = distlock::clock::now();
    REQUIRE(eventually([&] { return distlock::clock::now() - tried > 350ms; }));
    const auto two = same.try_acquire();
    CHECK(two);
    CHECK_FALSE(same.try_acquire());
}

// The set stayed without an end. Once its count was gone nobody could have permits, nor could an operator
// free them.
TEST_CASE("a user that may not set the end of a key leaves a semaphore as it was") {
    two_users of("counting_semaphore", "-pexpire");
    distlock::counting_semaphore refused{of.bad, "orders:2", 2};
    distlock::counting_semaphore same{of.good, "orders:2", 2, {.release = distlock::confirmed}};
    std::error_code ec;
    CHECK_FALSE(refused.try_acquire(ec));
    CHECK(ec == distlock::errc::permission_denied);
    CHECK(of.server.command({"KEYS", "*"}).empty());

    same.acquire().release();
    REQUIRE_FALSE(of.server.command({"KEYS", "*"}).empty());
    CHECK_FALSE(refused.try_acquire(ec));
    CHECK(ec == distlock::errc::permission_denied);
    CHECK(of.server.command({"EXISTS", "orders:2"}) == "0");
    const auto one = same.acquire();
    CHECK_FALSE(refused.try_acquire(ec));
    CHECK(ec == distlock::errc::permission_denied);
    CHECK(of.server.command({"ZCARD", "orders:2"}) == "1");
    CHECK_THROWS_AS(refused.resize(3), distlock::error);
    CHECK(same.try_acquire());
    CHECK(of.server.command({"HMGET", "{orders:2}:distlock:limit", "limit", "used"}) == "2\n1");
}

TEST_CASE("the guide's user may count permits anew when some have ended by their time, and inspect them") {
    const place of(added_for("counting_semaphore"));
    hiredis_connection redis(of.uri());
    distlock::counting_semaphore brief{redis, "orders:2", 3, {.lease = 300ms, .renew = false}};
    distlock::counting_semaphore pool{redis, "orders:2", 3};
    const auto kept = pool.acquire();
    const auto ends = brief.acquire(2);
    REQUIRE(distlock::inspect<distlock::permits>(redis, "orders:2").shares == 3U);
    CHECK(eventually([&] { return distlock::inspect<distlock::permits>(redis, "orders:2").shares == 1U; }));
    CHECK(pool.try_acquire(2));
    CHECK_FALSE(ends);
}

// Its lock ended with the lease of the one that was refused, and a writer came in beside it.
TEST_CASE("a user that may not write all of a shared lock ends no other reader's lock") {
    two_users of("shared_mutex", "-zadd");
    distlock::shared_mutex reads{of.good, "orders:1"};
    distlock::shared_mutex refused{of.bad, "orders:1", {.lease = 300ms, .fencing = true}};
    reads.lock_shared();
    std::error_code ec;
    CHECK_FALSE(refused.try_lock_shared(ec));
    CHECK(ec == distlock::errc::permission_denied);
    CHECK(std::stol(of.server.command({"PTTL", "orders:1"})) > 20'000);
    distlock::shared_mutex writes{of.good, "orders:1"};
    CHECK_FALSE(writes.try_lock());
    CHECK(reads.unlock_shared() == distlock::release_outcome::posted);
}

// Its token was in the set already: it kept writers out for a whole lease.
TEST_CASE("a reader whose user may not set the end of a key keeps nobody out") {
    two_users of("shared_mutex", "-pexpire");
    for (const bool fencing : {false, true}) {
        for (const int others : {0, 1, 2}) {
            INFO("fencing " << fencing << ", beside " << others);
            of.server.command({"FLUSHALL"});
            const distlock::lock_options confirmed{.release = distlock::confirmed};
            distlock::shared_mutex one{of.good, "orders:1", confirmed};
            distlock::shared_mutex two{of.good, "orders:1", confirmed};
            if (others > 0) one.lock_shared();
            if (others > 1) two.lock_shared();
            distlock::shared_mutex refused{of.bad, "orders:1", {.fencing = fencing}};
            std::error_code ec;
            if (refused.try_lock_shared(ec)) {
                refused.unlock_shared();
            } else {
                CHECK(ec == distlock::errc::permission_denied);
            }
            if (others > 0) CHECK(one.unlock_shared() == distlock::release_outcome::released);
            if (others > 1) CHECK(two.unlock_shared() == distlock::release_outcome::released);
            CHECK(eventually([&] { return of.server.command({"EXISTS", "orders:1"}) == "0"; }));
        }
    }
}

// What the script leaves there a lock object takes away at once.
TEST_CASE("the script lets no reader in whose user may not set the end of a key") {
    two_users of("shared_mutex", "-pexpire");
    const bool fencing = GENERATE(true, false);
    const distlock::shared_handoff dialect("orders:1", {.fencing = fencing});
    for (const int others : {1, 2, 0}) {
        if (others == 0 && !fencing) continue;  // SET gives the key its end: one may read
        INFO("fencing " << fencing << ", beside " << others);
        of.server.command({"FLUSHALL"});
        distlock::shared_mutex one{of.good, "orders:1"};
        distlock::shared_mutex two{of.good, "orders:1"};
        if (others > 0) one.lock_shared();
        if (others > 1) two.lock_shared();
        const auto refused = distlock::token::generate();
        const auto asked = dialect.enter(refused, distlock::enter_mode::try_once);
        CHECK(of.bad.execute(asked.with_body()).is(distlock::reply_kind::error));
        const auto readers = distlock::key("orders:1").sibling("readers");
        CHECK(of.server.command({"ZSCORE", readers, refused.view()}) == "(nil)");
        CHECK(of.server.command({"EXISTS", "orders:1"}) == (others > 0 ? "1" : "0"));
    }
}

TEST_CASE("the script gives no permit to a user that may not count it, or set its end") {
    const std::string forbidden = GENERATE("-hset", "-pexpire");
    two_users of("counting_semaphore", forbidden);
    distlock::counting_semaphore same{of.good, "orders:2", 4};
    for (const bool beside : {false, true}) {
        same.resize(4);  // it is known, whoever has any
        const auto one = beside ? same.try_acquire() : std::nullopt;
        REQUIRE(one.has_value() == beside);
        for (const std::int64_t n : {1, 2}) {
            INFO(forbidden << " " << n << (beside ? " beside one" : ""));
            const distlock::permits dialect("orders:2", {}, {}, distlock::channel_kind::ordinary, 4, n);
            const auto refused = distlock::token::generate();
            const auto asked = dialect.enter(refused, distlock::enter_mode::try_once);
            CHECK(of.bad.execute(asked.with_body()).is(distlock::reply_kind::error));
            CHECK(of.server.command({"ZCARD", "orders:2"}) == (beside ? "1" : "0"));
        }
    }
}

TEST_CASE("the script leaves no lock of Redisson whose end its user may not set") {
    const redis_server server;
    make(server, {"ACL", "SETUSER", "worker", "reset", "on", ">secret", "~*", "&*", "+@all", "-pexpire"});
    hiredis_connection redis("unix://worker:secret@" + server.socket_path());
    const distlock::redisson dialect("orders:1", {});
    const auto me = distlock::token::generate();
    const distlock::command asked = dialect.acquire(me);
    CHECK(redis.execute(asked.with_body()).is(distlock::reply_kind::error));
    CHECK(server.command({"EXISTS", "orders:1"}) == "0");
}

// The token was removed and not counted: each permit that a user gave back so was gone while anybody had one.
// Then the repeated release counted it twice, and more were given than there are.
TEST_CASE("permits that a user may not wholly give back are there for the next to ask, and no more") {
    const words missing = GENERATE(values<words>({{"-hdel"},
                                                  {"-hset"},
                                                  {"-hmget"},
                                                  {"-time"},
                                                  {"-zrange"},
                                                  {"-pttl"},
                                                  {"-pexpire"},
                                                  {"-hset", "-hdel"},
                                                  {"-pexpire", "-hdel"},
                                                  {"-@hash"}}));
    const auto release = GENERATE(distlock::posted, distlock::confirmed);
    const std::int64_t n = GENERATE(1, 2);
    const bool at_once = GENERATE(true, false);
    if (missing == words{"-hdel"} && n == 1) return;  // needs it not
    INFO(missing.front() << " and " << missing.size() - 1 << " more, " << n
                         << (release == distlock::posted ? " posted" : " confirmed")
                         << (at_once ? ", asked for at once" : ", asked for later"));
    two_users of("counting_semaphore", "+ping");
    distlock::counting_semaphore pool{of.bad, "orders:2", 5, {.release = release}};
    distlock::counting_semaphore same{of.good, "orders:2", 5};
    const auto kept = same.acquire();
    auto given_back = pool.acquire(n);
    of.server.command({"ACL", "LOG", "RESET"});
    words forbidden{"ACL", "SETUSER", "worker"};
    forbidden.insert(forbidden.end(), missing.begin(), missing.end());
    make(of.server, forbidden);
    given_back.release();
    REQUIRE(eventually([&] { return !of.server.command({"ACL", "LOG"}).empty(); }));
    CHECK(distlock::inspect<distlock::permits>(of.good, "orders:2").shares == 1U);
    of.server.command({"ACL", "SETUSER", "worker", "+@all"});
    if (!at_once) REQUIRE(eventually([&] { return pool.residual() == 0s; }));
    std::optional<distlock::permit> rest;
    CHECK(eventually([&] { return (rest = same.try_acquire(4)).has_value(); }));
    CHECK_FALSE(same.try_acquire());
}

// Those whose time was over were removed and not counted.
TEST_CASE("permits that end by their time come back though a user that may not count them looks first") {
    two_users of("counting_semaphore", "-hset");
    distlock::counting_semaphore brief{of.good, "orders:2", 5, {.lease = 300ms, .renew = false}};
    distlock::counting_semaphore same{of.good, "orders:2", 5};
    distlock::counting_semaphore pool{of.bad, "orders:2", 5};
    const auto kept = same.acquire();
    const auto ends = brief.acquire(2);
    CHECK(eventually([&] {
        std::error_code ec;
        CHECK_FALSE(pool.try_acquire(ec));
        CHECK(ec == distlock::errc::permission_denied);
        return of.server.command({"ZCARD", "orders:2"}) == "1";
    }));
    CHECK(same.try_acquire(4));
}

// Each such request counted one out that was not: in the end nobody had any.
TEST_CASE("a request of a user that may not add to a set counts nothing out") {
    two_users of("counting_semaphore", "-zadd");
    distlock::counting_semaphore same{of.good, "orders:2", 3};
    distlock::counting_semaphore refused{of.bad, "orders:2", 3};
    const auto one = same.acquire();
    for (const int n : {1, 2}) {
        std::error_code ec;
        CHECK_FALSE(refused.try_acquire(n, ec));
        CHECK(ec == distlock::errc::permission_denied);
        CHECK(of.server.command({"HGET", "{orders:2}:distlock:limit", "used"}) == "1");
        CHECK(of.server.command({"HLEN", "{orders:2}:distlock:limit"}) == "2");
    }
    CHECK(same.try_acquire(2));
}

// The set stayed without an end: once its count was gone it was nobody's, and none had a permit again.
TEST_CASE("a user that may not remove from a set leaves no permits that do not end") {
    two_users of("counting_semaphore", "-zrem");
    distlock::counting_semaphore refused{of.bad, "orders:2", 2};
    std::error_code ec;
    SECTION("those of a waiter that it was to pass on to") {
        const auto waiter = "0123456789abcdef0123456789abcdef 30000 1 q0 ";
        REQUIRE(of.server.command({"ZADD", "{orders:2}:distlock:queue", "1", waiter}) == "1");
        CHECK_FALSE(refused.try_acquire(ec));
        CHECK(of.server.command({"ZCARD", "orders:2"}) == "1");
        CHECK(std::stol(of.server.command({"PTTL", "orders:2"})) > 0);
    }
    SECTION("its own, when it has waited") {
        distlock::counting_semaphore same{of.good, "orders:2", 2, {.lease = 300ms, .renew = false}};
        const auto both = same.acquire(2);
        CHECK_FALSE(refused.try_acquire_for(10s, ec));
        CHECK(of.server.command({"EXISTS", "orders:2"}) == "0");
    }
    CHECK(ec == distlock::errc::permission_denied);
}

}  // namespace family_permissions_tests
