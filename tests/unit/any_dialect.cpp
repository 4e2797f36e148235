// A dialect whose type the engine does not know says what it says itself.
#include <array>
#include <chrono>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <distlock/interop.hpp>
#include <distlock/wire/any_dialect.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/handoff.hpp>
#include <distlock/wire/permits.hpp>
#include <distlock/wire/plain.hpp>
#include <distlock/wire/plain_inspector.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/shared_handoff.hpp>

#include "support/catch.hpp"

namespace any_dialect_tests {

using namespace std::chrono_literals;
using distlock::any_dialect_of;
using distlock::enter_mode;
using distlock::lock_options;
using distlock::reply;
using distlock::token;

namespace {

// Makes the text anew each time.
struct telling : distlock::plain {
    using plain::plain;
    std::string channel() const { return "released:" + std::string(100, 'x') + name(); }
};

struct told_by_the_server : distlock::plain {
    using plain::plain;
    static constexpr bool allows_local_fences() { return false; }
};

// Cannot read any mark.
struct short_of_memory : distlock::plain {
    using plain::plain;
    struct inspector : distlock::plain_inspector {
        using plain_inspector::plain_inspector;
        [[noreturn]] static bool was_forced(const reply&, const token&) { throw std::bad_alloc(); }
    };
};

/// The arguments of a command, with a word for those that are `ttl`, of which there must be one.
std::vector<std::string> with_ttl(const distlock::command& of, std::string_view ttl) {
    std::vector<std::string> all;
    int found = 0;
    for (const std::string_view one : of.argv()) {
        found += one == ttl ? 1 : 0;
        all.emplace_back(one == ttl ? "ttl" : one);
    }
    CHECK(found > 0);
    return all;
}

bool same(const distlock::command& a, const distlock::command& b) {
    return std::vector(a.argv().begin(), a.argv().end()) == std::vector(b.argv().begin(), b.argv().end());
}

}  // namespace

TEST_CASE("the channel of a telling dialect outlives the text that it was made of") {
    const any_dialect_of<telling> about("orders", lock_options{});
    const auto channel = about.channel();
    REQUIRE(channel);
    CHECK(*channel == "released:" + std::string(100, 'x') + "orders");
    CHECK_FALSE(any_dialect_of<distlock::plain>("orders", lock_options{}).channel());
}

TEST_CASE("a dialect that leaves a question open has the default answer") {
    const any_dialect_of<distlock::plain> about("orders", lock_options{});
    CHECK(about.allows_local_fences());
    CHECK_FALSE(about.is_shared());
    CHECK_FALSE(about.hands_over());
    CHECK_FALSE(about.read_message("anything"));
    CHECK(about.noun() == "lock");
    const token owner = token::generate();
    std::array<char, 64> room{};
    CHECK_FALSE(about.acquire_unqueued(owner, room));
    CHECK(same(about.exchange(owner, token::generate()), about.look(owner)));
    CHECK_FALSE(any_dialect_of<told_by_the_server>("orders", lock_options{}).allows_local_fences());
}

TEST_CASE("a dialect of any type sends the commands of the one that it is made of") {
    const lock_options options{.lease = 5s};
    const distlock::handoff itself("orders", options, "news");
    const any_dialect_of<distlock::handoff> about("orders", options, "news");
    const token owner = token::generate();
    CHECK(about.name() == "orders");
    CHECK(about.lease() == 5s);
    CHECK(about.stored_as() == "string");
    CHECK(about.hands_over());
    CHECK(same(about.acquire(owner), itself.acquire(owner)));
    CHECK(same(about.look(owner), itself.look(owner)));
    CHECK(same(about.enter(owner, enter_mode::last), itself.enter(owner, enter_mode::last)));
    CHECK(same(about.renew(owner), itself.renew(owner)));
    CHECK(same(about.release(owner), itself.release(owner)));
    CHECK(same(about.release_minimal(owner), itself.release_minimal(owner)));
}

TEST_CASE("a dialect that is shared says so, takes a free lock past the queue, and exchanges its token") {
    const lock_options options{.lease = 5s};
    const distlock::shared_handoff itself("orders", options, "news");
    const any_dialect_of<distlock::shared_handoff> about("orders", options, "news");
    const token owner = token::generate();
    const token from = token::generate();
    CHECK(about.is_shared());
    CHECK(same(about.exchange(owner, from), itself.exchange(owner, from)));
    std::array<char, 64> room{}, another_room{};
    const auto unqueued = about.acquire_unqueued(owner, room);
    const auto its_own = itself.acquire_unqueued(owner, another_room);
    REQUIRE(unqueued);
    REQUIRE(its_own);
    CHECK(same(*unqueued, *its_own));
    const any_dialect_of<distlock::shared_handoff> fenced("orders", lock_options{.fencing = true});
    CHECK_FALSE(fenced.acquire_unqueued(owner, room));
}

TEST_CASE("a dialect of permits says that they are a semaphore's, and are granted beside others") {
    const any_dialect_of<distlock::permits> about("pool", lock_options{});
    CHECK(about.noun() == "semaphore");
    CHECK(about.is_shared());
}

TEST_CASE("a message is about the lock that it names, in the same dialect") {
    const any_dialect_of<distlock::handoff> about("orders", lock_options{}, "news");
    const token owner = token::generate();
    const std::string text = std::string(owner.view()) + " 7 2000 0 parcels";
    const auto given = about.read_message(text);
    REQUIRE(given);
    CHECK(given->owner == owner);
    CHECK(given->ticket == 7);
    CHECK(about.about(text)->name() == "parcels");
    CHECK_FALSE(about.read_own_message(text));
    const auto ours = about.read_own_message(std::string(owner.view()) + " 7 2000 0 orders");
    REQUIRE(ours);
    CHECK(ours->owner == owner);
    // A lock that is named like the beginning of ours was ours then.
    CHECK_FALSE(about.read_own_message(std::string(owner.view()) + " 7 2000 0 order"));
    CHECK_FALSE(about.read_own_message(std::string(owner.view()) + " 7 2000 0 orders:1"));
}

// Made anew with another lease, a dialect lost what else it was made of: the life of the fence, how many
// permits, what stands before the name.
TEMPLATE_TEST_CASE("a renewal for another time differs in nothing else", "", distlock::plain,
                   distlock::handoff, distlock::exclusive_handoff, distlock::shared_handoff, distlock::getset,
                   distlock::redisson, distlock::redigo, distlock::python_redis_lock) {
    const any_dialect_of<TestType> about("orders", lock_options{.lease = 7s, .fencing = true});
    const token owner = token::generate();
    CHECK(with_ttl(about.renew(owner), "7000") == with_ttl(about.renew_for(owner, "12"), "12"));
}

TEST_CASE("permits are renewed for another time as many as they are") {
    const any_dialect_of<distlock::permits> about("pool", lock_options{.lease = 7s}, "",
                                                  distlock::channel_kind::ordinary, 8, 3);
    const token owner = token::generate();
    CHECK(with_ttl(about.renew(owner), "7000") == with_ttl(about.renew_for(owner, "12"), "12"));
}

TEST_CASE("a dialect that renews for its lease only does so for another time, too") {
    struct for_its_lease : distlock::plain {
        using plain::plain;
        distlock::command renew(const token& owner) const { return plain::renew(owner); }
    };
    const any_dialect_of<for_its_lease> about("orders", lock_options{.lease = 7s});
    const token owner = token::generate();
    CHECK(with_ttl(about.renew(owner), "7000") == with_ttl(about.renew_for(owner, "12"), "7000"));
    CHECK(about.renewed_for(std::chrono::milliseconds{12}) == 7s);
    const any_dialect_of<distlock::plain> usual("orders", lock_options{.lease = 7s});
    CHECK(usual.renewed_for(std::chrono::milliseconds{12}) == std::chrono::milliseconds{12});
}

// The program ended: the answer is read where nothing may be thrown.
TEST_CASE("an owner that cannot read who took its lock away is told without it") {
    const any_dialect_of<short_of_memory> about("orders", lock_options{});
    CHECK_FALSE(about.forced("orders")->was_forced(reply::string("mark"), token::generate()));
}

}  // namespace any_dialect_tests
