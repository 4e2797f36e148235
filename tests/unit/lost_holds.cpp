// What a thread is told of a lock object whose lease it lost, while another thread has it:
// every way to hold a lock.
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <latch>
#include <mutex>
#include <new>
#include <optional>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <vector>

#include <distlock/mutex.hpp>
#include <distlock/recursive_mutex.hpp>
#include <distlock/scoped_lock.hpp>
#include <distlock/testing/manual_clock.hpp>
#include <distlock/testing/scripted_connection.hpp>
#include <distlock/wire/plain.hpp>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/lease_observers.hpp"
#include "support/sleepers.hpp"
#include "support/waiting.hpp"

namespace lost_holds_tests {

using namespace std::chrono_literals;
using distlock::errc;
using distlock::release_outcome;
using distlock::reply;
using distlock::testing::manual_clock;
using distlock::testing::scripted_connection;

namespace {

using fenced_mutex = distlock::mutex<scripted_connection, distlock::plain, manual_clock>;
using recursive = distlock::recursive_mutex<scripted_connection, distlock::plain, manual_clock>;

constexpr distlock::lock_options fenced{.lease = 10s, .renew = false, .fencing = true};

reply granted(std::uint64_t fence) {
    return reply::array({reply::integer(1), reply::string(std::to_string(fence))});
}
const reply released = reply::integer(1);

// The ways to hold a lock.
struct bare_lock {
    using lockable = fenced_mutex;
    explicit bare_lock(fenced_mutex& m) : m_(m) { m_.lock(); }
    ~bare_lock() { m_.unlock(); }
    fenced_mutex& m_;
};
struct standard_guard : std::unique_lock<fenced_mutex> {
    using lockable = fenced_mutex;
    using std::unique_lock<fenced_mutex>::unique_lock;
};
struct own_guard : distlock::scoped_lock<fenced_mutex> {
    using lockable = fenced_mutex;
    explicit own_guard(fenced_mutex& m) : scoped_lock(m) {}
};
struct recursive_lock {
    using lockable = recursive;
    explicit recursive_lock(recursive& m) : m_(m) {
        m_.lock();
        m_.lock();
    }
    ~recursive_lock() {
        m_.unlock();
        m_.unlock();
    }
    recursive& m_;
};
struct guard_of_recursive : distlock::scoped_lock<recursive> {
    using lockable = recursive;
    explicit guard_of_recursive(recursive& m) : scoped_lock(m) {}
};
using ways = std::tuple<bare_lock, standard_guard, own_guard, recursive_lock, guard_of_recursive>;

// What an observer is told that unlocks: holds belong to a thread of a recursive mutex, and it is another
// one.
template <class Lockable>
constexpr auto end_by_an_observer =
    std::same_as<Lockable, recursive> ? release_outcome::not_held : release_outcome::expired;

// Another thread that takes the lock and keeps it until this ends.
template <class Lockable>
class other_owner {
  public:
    explicit other_owner(Lockable& m) : m_(m) { taken_.wait(); }
    ~other_owner() { release(); }
    /// Returns: what unlock() said.
    release_outcome release() {
        if (thread_.joinable()) {
            enough_.count_down();
            thread_.join();
        }
        return said_;
    }
    bool owned() const { return owned_; }

  private:
    Lockable& m_;
    std::latch taken_{1};
    std::latch enough_{1};
    bool owned_ = false;
    release_outcome said_{};
    std::thread thread_{[this] {
        m_.lock();
        taken_.count_down();
        enough_.wait();
        owned_ = m_.owns_lock();
        said_ = m_.unlock();
    }};
};

}  // namespace

// Under a guard, and with a recursive mutex, it was told that it owned the lock, and the
// other's fencing token.
TEMPLATE_LIST_TEST_CASE(
    "a thread that lost the lock and has not unlocked it is told so, though another has it", "", ways) {
    manual_clock::reset();
    scripted_connection redis{granted(7), granted(9), released};
    typename TestType::lockable m{redis, "orders", fenced};
    std::optional<TestType> hold(std::in_place, m);
    CHECK(m.fencing_token() == 7);
    const auto lost_before = m.lost();
    manual_clock::advance(10s);

    other_owner other(m);
    CHECK_FALSE(m.owns_lock());
    CHECK(m.remaining() == 0ns);
    CHECK(m.valid_until() == manual_clock::time_point{});
    CHECK(m.lost().stop_requested());
    CHECK(m.fencing_token() == 0);
    hold.reset();
    // From then on it is a thread like any other, which asks whether somebody holds a
    // lock through the object.
    CHECK(m.owns_lock());
    CHECK(m.fencing_token() == 9);
    CHECK_FALSE(m.lost().stop_requested());
    CHECK(other.release() == release_outcome::released);
    CHECK(other.owned());
}

TEST_CASE("a thread whose guard lost the lock owns it again when it has locked it again") {
    manual_clock::reset();
    scripted_connection redis{granted(7), granted(9), released};
    fenced_mutex m{redis, "orders", fenced};
    {
        const distlock::scoped_lock stale{m};
        manual_clock::advance(10s);
        m.lock();
        CHECK(m.owns_lock());
        CHECK(m.fencing_token() == 9);
        CHECK_FALSE(stale.owns_lock());
    }
    CHECK(m.owns_lock());
    CHECK(m.unlock() == release_outcome::released);
}

TEST_CASE("the end of a guard whose lease ran out takes nobody's unlock that is still to come") {
    manual_clock::reset();
    scripted_connection redis{granted(1), granted(2), granted(3), released};
    fenced_mutex m{redis, "orders", fenced};
    std::latch lost{1};
    std::latch unlock{1};
    auto outcome = release_outcome::not_held;
    std::thread bare([&] {
        m.lock();
        lost.count_down();
        unlock.wait();
        outcome = m.unlock();
    });
    lost.wait();
    manual_clock::advance(10s);
    {
        const distlock::scoped_lock stale{m};
        manual_clock::advance(10s);
        m.lock();
    }
    unlock.count_down();
    bare.join();
    CHECK(outcome == release_outcome::expired);
    CHECK(m.unlock() == release_outcome::released);
}

// It is a mistake; it freed the lock of the thread that has it now.
TEST_CASE("an unlock() under a guard whose lease ran out frees nobody else's lock") {
    manual_clock::reset();
    scripted_connection redis{granted(7), granted(9), released};
    fenced_mutex m{redis, "orders", fenced};
    const distlock::scoped_lock stale{m};
    manual_clock::advance(10s);
    other_owner other(m);
    CHECK(m.unlock() == release_outcome::expired);
    CHECK(other.release() == release_outcome::released);
    CHECK(other.owned());
}

// A second unlock() by mistake ended what another thread worked under, and its lost() was not stopped.
TEST_CASE("an unlock() by a thread that has nothing does not end what a guard of another is to end") {
    manual_clock::reset();
    scripted_connection redis{granted(1), released};
    fenced_mutex m{redis, "orders", fenced};
    {
        const distlock::scoped_lock guard(m);
        std::jthread([&] { CHECK(m.unlock() == release_outcome::not_held); }).join();
        CHECK(guard.owns_lock());
        CHECK(redis.left() == 1);
    }
    CHECK(redis.left() == 0);
}

// It ended the acquisition that had followed, and that thread went on without the lock.
TEMPLATE_LIST_TEST_CASE("an unlock() by an observer ends no acquisition that followed the lost one", "",
                        ways) {
    manual_clock::reset();
    using lockable = typename TestType::lockable;
    unlocks_at_a_loss<lockable> unlocks;
    scripted_connection redis{granted(7), granted(9), released};
    lockable m{redis, "orders", fenced, unlocks.observer};
    unlocks.lock = &m;
    {
        const TestType stale{m};
        manual_clock::advance(10s);
        other_owner other(m);
        unlocks.may.open();
        CHECK(unlocks.done());
        CHECK(unlocks.end == end_by_an_observer<lockable>);
        CHECK_FALSE(unlocks.owned);
        CHECK_FALSE(m.owns_lock());
        CHECK(other.release() == release_outcome::released);
        CHECK(other.owned());
    }
    CHECK_FALSE(m.owns_lock());
}

TEST_CASE("an unlock() by an observer ends no acquisition of the thread that lost one before") {
    manual_clock::reset();
    unlocks_at_a_loss<fenced_mutex> unlocks;
    scripted_connection redis{granted(7), granted(9), released};
    fenced_mutex m{redis, "orders", fenced, unlocks.observer};
    unlocks.lock = &m;
    const distlock::scoped_lock stale{m};
    manual_clock::advance(10s);
    m.lock();
    unlocks.may.open();
    CHECK(unlocks.done());
    CHECK(unlocks.end == release_outcome::expired);
    CHECK(m.owns_lock());
    CHECK(m.fencing_token() == 9);
    CHECK(m.unlock() == release_outcome::released);
}

// It was told that it owned the lock, and the next owner's fencing token; and had it a std::unique_lock, that
// one's end freed the next owner's lock.
TEMPLATE_LIST_TEST_CASE("a thread whose lost lock an observer has unlocked is told so, though another has it",
                        "", ways) {
    manual_clock::reset();
    using lockable = typename TestType::lockable;
    unlocks_at_a_loss<lockable> unlocks;
    scripted_connection redis{granted(7)};
    if (end_by_an_observer<lockable> == release_outcome::expired) redis.then(reply::integer(0));
    redis.then(granted(9));
    redis.then(released);
    lockable m{redis, "orders", fenced, unlocks.observer};
    unlocks.lock = &m;
    unlocks.may.open();
    std::optional<TestType> hold(std::in_place, m);
    manual_clock::advance(10s);
    CHECK(unlocks.done());
    CHECK(unlocks.end == end_by_an_observer<lockable>);

    other_owner other(m);
    CHECK_FALSE(m.owns_lock());
    CHECK(m.fencing_token() == 0);
    hold.reset();
    CHECK(m.owns_lock());
    CHECK(m.fencing_token() == 9);
    CHECK(other.release() == release_outcome::released);
    CHECK(other.owned());
}

TEST_CASE("an observer that locks what was lost unlocks its own") {
    manual_clock::reset();
    std::atomic<bool> done{false};
    std::atomic<bool> owned{false};
    std::atomic<release_outcome> end{};
    fenced_mutex* lost = nullptr;
    scripted_connection redis{granted(7), granted(9), released};
    const auto again = at_a_loss([&] {
        lost->lock();
        owned = lost->owns_lock();
        end = lost->unlock();
        done = true;
    });
    fenced_mutex m{redis, "orders", fenced, again};
    lost = &m;
    m.lock();
    manual_clock::advance(10s);
    CHECK(eventually([&] { return done.load(); }));
    CHECK(owned);
    CHECK(end == release_outcome::released);
    CHECK(m.unlock() == release_outcome::expired);
}

// Callbacks run on one thread, one after the other: the second took the lock of the first for its own.
TEST_CASE("an unlock() by an observer frees nothing that a stop callback has locked for others") {
    manual_clock::reset();
    unlocks_at_a_loss<fenced_mutex> unlocks;
    scripted_connection redis{granted(7), granted(9), released};
    fenced_mutex m{redis, "orders", fenced, unlocks.observer};
    unlocks.lock = &m;
    unlocks.may.open();
    m.lock();
    const std::stop_callback again(m.lost(), [&] { m.lock(); });
    manual_clock::advance(10s);
    CHECK(unlocks.done());
    CHECK(unlocks.end == release_outcome::expired);
    CHECK(m.unlock() == release_outcome::expired);
    CHECK(m.unlock() == release_outcome::released);
}

TEST_CASE("an observer that loses what it has locked for another thread leaves that one's unlock() to it") {
    manual_clock::reset();
    std::atomic<int> losses{0};
    fenced_mutex* lost = nullptr;
    const auto again = at_a_loss([&] {
        lost->unlock();
        lost->lock();
        ++losses;
    });
    const auto gone = reply::integer(0);
    scripted_connection redis{granted(7), gone, granted(8), gone, granted(9), released};
    fenced_mutex m{redis, "orders", fenced, again};
    lost = &m;
    m.lock();
    for (const int so_far : {1, 2}) {
        manual_clock::advance(10s);
        REQUIRE(eventually([&] { return losses == so_far; }));
    }
    CHECK(m.unlock() == release_outcome::expired);  // the first
    CHECK(m.unlock() == release_outcome::expired);  // the observer's first
    CHECK(m.unlock() == release_outcome::released);
}

TEST_CASE("an observer whose own lock is lost and who unlocks it leaves no unlock() to be waited for") {
    manual_clock::reset();
    std::atomic<int> losses{0};
    std::atomic<bool> done{false};
    std::atomic<release_outcome> end{};
    fenced_mutex* lost = nullptr;
    const auto again = at_a_loss([&] {
        if (losses++ > 0) return;
        lost->lock();
        manual_clock::advance(10s);
        std::jthread([&] { lost->lock(); }).join();
        end = lost->unlock();
        done = true;
    });
    scripted_connection redis{granted(7), granted(8), granted(9), released};
    fenced_mutex m{redis, "orders", fenced, again};
    lost = &m;
    m.lock();
    manual_clock::advance(10s);
    REQUIRE(eventually([&] { return done.load(); }));
    CHECK(end == release_outcome::expired);
    CHECK(m.unlock() == release_outcome::expired);   // this thread's
    CHECK(m.unlock() == release_outcome::released);  // the other's, for it
}

TEST_CASE("the unlock() that a thread owed for a lost lock does not end what its guard has taken since") {
    manual_clock::reset();
    scripted_connection redis{granted(7), granted(9), released};
    fenced_mutex m{redis, "orders", fenced};
    m.lock();
    manual_clock::advance(10s);
    distlock::scoped_lock guard{m};
    CHECK(m.unlock() == release_outcome::expired);
    CHECK(guard.owns_lock());
    CHECK(m.owns_lock());
    CHECK(redis.commands().size() == 2);
}

TEST_CASE("the guards of a recursive mutex have the same fencing token: inner, outer and adopted") {
    manual_clock::reset();
    scripted_connection redis{granted(7), released};
    recursive m{redis, "orders", {.lease = 10s, .fencing = true}};
    const distlock::scoped_lock outer{m};
    const distlock::scoped_lock inner{m};
    m.lock();
    const distlock::scoped_lock adopted{std::adopt_lock, m};
    CHECK(outer.fencing_token() == 7);
    CHECK(inner.fencing_token() == 7);
    CHECK(adopted.fencing_token() == 7);
}

// The server heard of none but its own, and gave the next process one that was used, its
// clock set back a little.
TEST_CASE(
    "the release of a lock that was passed on tells the server of the largest fencing token that was used") {
    manual_clock::reset();
    scripted_connection redis{granted(7), released, granted(100), released};
    fenced_mutex m{redis, "orders", {.lease = 10s, .fencing = true, .local_budget = 1h}};
    m.lock();
    std::uint64_t second = 0;
    sleeper next([&] {
        m.lock();
        second = m.fencing_token();
        m.unlock();
    });
    REQUIRE(next.sleeps());
    manual_clock::advance(1s);
    m.unlock();
    next.join();
    CHECK(second == 8);
    REQUIRE(redis.commands().size() == 2);
    CHECK(redis.commands().at(1).argv.at(6) == "8");
    // What nobody passed on is told without: the server knows it.
    m.lock();
    m.unlock();
    REQUIRE(redis.commands().size() == 4);
    CHECK(redis.commands().at(3).argv.size() == 5);
}

// It was found when the lock was to be taken again, with the object's mutex held, and closed
// the object for good.
TEST_CASE("the memory that a late unlock needs is allocated before the lock is acquired") {
    NOT_TESTED_UNLESS(allocations_can_fail(), operator_new_is_not_ours);
    manual_clock::reset();
    const auto says_yes = [](const distlock::command& cmd) {
        return cmd.argv()[0] == "SET" ? reply::status("OK") : reply::integer(1);
    };
    distlock::mutex<const decltype(says_yes), distlock::plain, manual_clock> m{
        says_yes, "orders", {.lease = 10s, .renew = false}};
    int failures = 0;
    bool failed = true;
    for (long n = 1; failed && n < 30; ++n) {
        INFO("allocation " << n);
        std::error_code ec;
        fail_allocation(n);
        const bool held = m.lock(ec);
        failed = allocation_failed();
        fail_allocation(0);
        failures += failed;
        CHECK(held == !ec);
        if (!held) REQUIRE(m.lock(ec));
        manual_clock::advance(10s);
        fail_allocation(1);  // of the late unlock's entry
        const bool locked_again = m.lock(ec);
        fail_allocation(0);
        if (!locked_again) REQUIRE(m.lock(ec));
        CHECK(m.unlock() == release_outcome::released);
        CHECK(m.unlock() == release_outcome::expired);
        CHECK(m.unlock() == release_outcome::not_held);
    }
    CHECK(failures > 0);
}

}  // namespace lost_holds_tests
