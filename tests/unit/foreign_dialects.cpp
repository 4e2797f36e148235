// The dialects of other clients: intent to command, byte for byte, and reply to outcome.
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/sha1.hpp>
#include <distlock/interop.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/dialect.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/reply.hpp>

#include "support/argv_of.hpp"
#include "support/catch.hpp"

namespace foreign_dialects_tests {

namespace {

static_assert(distlock::check_dialect<distlock::getset>());
static_assert(distlock::check_dialect<distlock::go_zero>());
static_assert(distlock::check_dialect<distlock::python_redis_lock>());
static_assert(distlock::check_dialect<distlock::redigo>());
static_assert(distlock::check_dialect<distlock::redisson>());

using distlock::command;
using distlock::errc;
using distlock::release_outcome;
using distlock::reply;
using distlock::token;
using namespace std::chrono_literals;
using got = distlock::acquire_outcome::kind;
using renewed = distlock::renew_outcome::kind;
using words = std::vector<std::string_view>;

const token owner = token::from("0123456789abcdef0123456789abcdef");
constexpr distlock::lock_options plain_options{.lease = 30s};
constexpr distlock::lock_options fenced{.lease = 30s, .fencing = true};

std::string_view sha1(const distlock::script& s) { return s.sha1(); }

}  // namespace

TEST_CASE("the digests of the scripts for other clients are those of their texts") {
    using namespace distlock::detail;
    for (const distlock::script* s : {&python_redis_lock_release, &getset_enter, &getset_renew,
                                      &getset_release, &redisson_enter, &redisson_renew, &redisson_release}) {
        const auto digest = sha1_hex(s->text());
        INFO(s->text().substr(0, 60));
        CHECK(s->sha1() == std::string_view(digest.data(), digest.size()));
    }
}

// Or a try of a lock that somebody has would ask the same again.
TEMPLATE_TEST_CASE("a dialect says whether its acquisition is a look", "", distlock::plain, distlock::getset,
                   distlock::go_zero, distlock::python_redis_lock, distlock::redigo, distlock::redisson) {
    for (const auto& options : {plain_options, fenced}) {
        const TestType dialect("orders", options);
        CHECK(dialect.acquire_is_script() ==
              (argv_of(dialect.acquire(owner)) == argv_of(dialect.look(owner))));
    }
}

// Redisson's own fenced locks count on with the same counter.
TEST_CASE("a process gives its threads no fences of its own where they are another client's") {
    CHECK_FALSE(distlock::redisson("orders", fenced).allows_local_fences());
    CHECK(distlock::redisson("orders", plain_options).allows_local_fences());
    CHECK_FALSE(distlock::getset("orders", fenced).allows_local_fences());
    CHECK_FALSE(distlock::python_redis_lock("orders", fenced).allows_local_fences());
}

TEST_CASE("a prefix goes before the name, byte for byte") {
    const distlock::redigo redigo("a{b}->", plain_options);
    CHECK(redigo.name() == "lock->a{b}->");
    CHECK(argv_of(redigo.acquire(owner)) == words{"SET", "lock->a{b}->", owner.view(), "NX", "PX", "30000"});
    CHECK(redigo.acquire(owner).routing_key() == "lock->a{b}->");
    CHECK(distlock::redis_semaphore("a", plain_options).name() == "mutex:a");
    CHECK(distlock::pottery("a", plain_options).name() == "redlock:a");
    CHECK(distlock::prefixed<"">("a", plain_options).name() == "a");
    CHECK(distlock::redigo::inspector("a").name() == "lock->a");
    CHECK(distlock::redigo::inspector::of_key("lock->a").name() == "lock->a");
}

TEST_CASE("a prefix alone is no name") {
    CHECK_THROWS_AS(distlock::redigo("", plain_options), distlock::error);
    CHECK_THROWS_AS(distlock::python_redis_lock("", plain_options), distlock::error);
    CHECK_THROWS_AS(distlock::redigo::inspector(""), distlock::error);
    CHECK_THROWS_AS(distlock::redigo(std::string(4091, 'x'), plain_options), distlock::error);
}

TEST_CASE("go-zero counts in whole seconds and half a second more") {
    const auto ttl = [](std::chrono::milliseconds lease) {
        const distlock::go_zero dialect("a", {.lease = lease});
        CHECK(dialect.lease() == lease);
        CHECK(argv_of(dialect.renew(owner)).back() == argv_of(dialect.acquire(owner)).back());
        return std::string(argv_of(dialect.acquire(owner)).back());
    };
    CHECK(ttl(30s) == "30500");
    CHECK(ttl(1ms) == "1500");
    CHECK(ttl(1s) == "1500");
    CHECK(ttl(1001ms) == "2500");
}

TEST_CASE("a release wakes python-redis-lock's waiters, and one that needs no memory is at hand") {
    const distlock::python_redis_lock dialect("a", plain_options);
    using namespace distlock::detail;
    CHECK(argv_of(dialect.release(owner)) ==
          words{"EVALSHA", sha1(python_redis_lock_release), "2", "lock:a", "lock-signal:a", owner.view()});
    CHECK(argv_of(dialect.release_minimal(owner)) ==
          words{"EVALSHA", sha1(plain_release), "1", "lock:a", owner.view()});
    CHECK(dialect.read_release(reply::integer(1)).what == release_outcome::released);
    const auto refused = dialect.read_release(reply::error("OOM command not allowed"));
    CHECK(refused.what == release_outcome::refused);
    CHECK(refused.again);
}

TEST_CASE("a stamp is made by the server, and belongs to a token beside it") {
    const distlock::getset dialect("a", fenced);
    using namespace distlock::detail;
    const words keys{"a", "{a}:distlock:mine", "{a}:distlock:fence", "{a}:distlock:owner"};
    CHECK(argv_of(dialect.acquire(owner)) == words{"EVALSHA", sha1(getset_enter), "4", keys[0], keys[1],
                                                   keys[2], keys[3], owner.view(), "30000", "3900000", ""});
    CHECK(argv_of(dialect.look(owner)) == argv_of(dialect.acquire(owner)));
    CHECK(argv_of(dialect.renew(owner)) == words{"EVALSHA", sha1(getset_renew), "4", keys[0], keys[1],
                                                 keys[2], keys[3], owner.view(), "30000", "3900000"});
    CHECK(argv_of(dialect.release(owner)) ==
          words{"EVALSHA", sha1(getset_release), "3", keys[0], keys[1], keys[3], owner.view()});
    CHECK_THROWS_AS(distlock::getset("a}", plain_options), distlock::error);
}

TEST_CASE("a Redisson lock is a field of a hash, and its release a message") {
    const distlock::redisson dialect("a", plain_options);
    using namespace distlock::detail;
    const std::string_view channel = "redisson_lock__channel:{a}";
    CHECK(argv_of(dialect.acquire(owner)) ==
          words{"EVALSHA", sha1(redisson_enter), "1", "a", owner.view(), "30000", channel});
    CHECK(argv_of(dialect.renew(owner)) ==
          words{"EVALSHA", sha1(redisson_renew), "1", "a", owner.view(), "30000"});
    CHECK(argv_of(dialect.release(owner)) ==
          words{"EVALSHA", sha1(redisson_release), "1", "a", owner.view(), channel});
    const distlock::redisson with_fences("a{b", fenced);
    CHECK(argv_of(with_fences.look(owner)) == words{"EVALSHA", sha1(redisson_enter), "2", "a{b",
                                                    "redisson_lock_token:a{b", owner.view(), "30000",
                                                    "redisson_lock__channel:a{b"});
    CHECK(dialect.allows_local_fences());
    CHECK_FALSE(with_fences.allows_local_fences());
    const auto granted = [](const char* fence, int listen) {
        return reply::array({reply::integer(1), reply::string(fence), reply::integer(listen)});
    };
    CHECK(with_fences.read_acquire(granted("7", 0)).fence == 7);
    CHECK(with_fences.read_acquire(granted("", 0)).what == got::unknown);
    CHECK(dialect.read_acquire(granted("", 0)).what == got::granted);
    CHECK_FALSE(dialect.read_acquire(granted("", 0)).awaited);
    CHECK(dialect.read_acquire(granted("", 2)).awaited);
    CHECK(dialect.read_acquire(reply::array({reply::integer(1), reply::string("")})).what == got::unknown);
}

TEMPLATE_TEST_CASE("a reply that is not exactly an answer of the scripts is none", "", distlock::getset,
                   distlock::redisson) {
    const TestType dialect("a", plain_options);
    const auto busy = dialect.read_look(reply::array({reply::integer(0), reply::integer(1500)}));
    CHECK(busy.what == got::busy);
    CHECK(busy.ttl == 1500ms);
    for (const reply& r : {reply::status("OK"), reply::integer(1), reply::nil(), reply::array({}),
                           reply::array({reply::integer(2), reply::string("")}),
                           reply::array({reply::integer(0), reply::string("")}),
                           reply::array({reply::integer(0), reply::integer(-3)})}) {
        CHECK(dialect.read_acquire(r).what == got::unknown);
    }
    CHECK(dialect.read_acquire(reply::error("WRONGTYPE x")).what == got::refused);
    CHECK(dialect.read_acquire(reply::error("WRONGTYPE x")).cause == errc::wrong_type);
    CHECK(dialect.read_renew(reply::integer(1)).what == renewed::kept);
    CHECK(dialect.read_renew(reply::integer(0)).what == renewed::gone);
    CHECK(dialect.read_renew(reply::integer(-1)).what == renewed::taken);
    CHECK(dialect.read_renew(reply::error("WRONGTYPE x")).what == renewed::taken);
    CHECK(dialect.read_renew(reply::error("LOADING x")).what == renewed::later);
    CHECK(dialect.read_release(reply::integer(0)).what == release_outcome::expired);
    CHECK(dialect.read_release(reply::integer(-1)).what == release_outcome::taken);
    CHECK(dialect.read_release(reply::nil()).what == release_outcome::unreachable);
}

TEST_CASE("inspect() says of a Redisson lock what the server said, or nothing") {
    const distlock::redisson_inspector about("a");
    const auto answer = [](reply holder, reply holds, reply ttl, reply fence) {
        return reply::array({std::move(holder), std::move(holds), std::move(ttl), std::move(fence)});
    };
    const auto text = [](const char* s) { return reply::string(s); };
    const auto held = about.read_inspect(answer(text("f:1"), text("3"), reply::integer(1500), text("9")));
    REQUIRE(held);
    REQUIRE(held->holder);
    CHECK(held->holder->token == "f:1");
    CHECK(held->holder->holds == 3);
    CHECK(held->remaining == 1500ms);
    CHECK(held->fence == 9U);
    const auto free = about.read_inspect(answer(text(""), text(""), reply::integer(-2), text("")));
    REQUIRE(free);
    CHECK_FALSE(free->holder);
    CHECK_FALSE(free->fence);
    const auto endless = about.read_inspect(answer(text("f:1"), text("1"), reply::integer(-1), text("")));
    REQUIRE(endless);
    CHECK_FALSE(endless->remaining);
    CHECK_FALSE(about.read_inspect(reply::nil()));
    CHECK_FALSE(about.read_inspect(answer(text(""), text(""), text(""), text(""))));
}

TEST_CASE("inspect() asks for Redisson's counter of fences only where a Cluster has it beside the lock") {
    const distlock::redisson_inspector beside("a");
    const auto both = argv_of(beside.inspect());
    CHECK(words(both.begin() + 2, both.end()) == words{"2", "a", "redisson_lock_token:{a}"});
    const distlock::redisson_inspector elsewhere("a}b");
    const auto one = argv_of(elsewhere.inspect());
    CHECK(words(one.begin() + 2, one.end()) == words{"1", "a}b"});
}

}  // namespace foreign_dialects_tests
