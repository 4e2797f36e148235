// The last waiter of a long queue, which does not know when those before it are served.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <distlock/counting_semaphore.hpp>
#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/shared_mutex.hpp>
#include <distlock/testing.hpp>
#include <distlock/wire/enter_mode.hpp>
#include <distlock/wire/handoff.hpp>
#include <distlock/wire/permits.hpp>
#include <distlock/wire/shared_handoff.hpp>

#include "support/catch.hpp"
#include "support/first_waiter.hpp"
#include "support/fresh_name.hpp"
#include "support/heard_channel.hpp"
#include "support/lock_on_server.hpp"
#include "support/redis_link.hpp"
#include "support/waiting.hpp"

namespace long_queue_tests {

using namespace std::chrono_literals;
using distlock::enter_mode;
using distlock::exclusive_handoff;
using distlock::handoff;
using distlock::hiredis_connection;
using distlock::lock_options;
using distlock::permits;
using distlock::shared_handoff;
using distlock::token;
using distlock::testing::redis_server;

namespace {

redis_server& shared() {
    static redis_server server;
    return server;
}

constexpr std::size_t long_from = 32;
constexpr std::size_t asks_every = 11;
constexpr std::size_t very_long_from = 256;
constexpr std::size_t asks_seldom = 99;
constexpr std::size_t in_queue = 8 * asks_every + long_from;

/// An owner, and a queue behind it whose tickets have the numbers from 1 on. Nobody hears of them.
template <class Dialect>
class queue_of {
  public:
    queue_of(const std::string& name, std::size_t size, std::chrono::milliseconds lease)
        : seen(shared(), name), wants_(name, lock_options{.lease = lease}) {
        const Dialect owner(name, lock_options{.lease = 30s});
        REQUIRE(owner.read_enter(link_.ask(owner.enter(owners_.front(), enter_mode::try_once))).what ==
                distlock::acquire_outcome::kind::granted);
        for (std::size_t number = 1; number <= size; ++number) {
            owners_.push_back(token::generate());
            shared().command({"ZADD", seen.queue_key, std::to_string(number), ticket_of(owners_.back())});
        }
    }

    /// Effects: the owner releases, and the next one is it.
    void serve_next() { link_.ask(wants_.release(owners_.at(released_++))); }
    /// Effects: as serve_next(), until the last of these tickets is served.
    void drain() {
        while (released_ + 1 < owners_.size()) serve_next();
    }

    const lock_on_server seen;

  private:
    std::string ticket_of(const token& owner) const {
        const auto asked = wants_.enter(owner, enter_mode::join);
        const auto words = asked.argv();
        const std::size_t keys = std::stoul(std::string(words[2]));
        return std::string(owner.view()) + std::string(words[3 + keys + 1]);
    }

    redis_link link_{shared().socket_path()};
    const Dialect wants_;
    std::vector<token> owners_{token::generate()};
    std::size_t released_ = 0;
};

/// Returns: the numbers of the tickets at whose turn the last waiter was asked to watch.
template <class Ahead, class Last>
std::vector<std::size_t> asked_when(std::size_t ahead) {
    const auto name = fresh_name();
    queue_of<Ahead> queue(name, ahead, 30s);
    heard_channel ears(shared().socket_path());
    const Last last(name, lock_options{.lease = 30s}, ears.name());
    const token me = token::generate();
    redis_link link(shared().socket_path());
    link.ask(last.enter(me, enter_mode::join));
    std::vector<std::size_t> asked;
    for (std::size_t number = 1; number <= ahead; ++number) {
        queue.serve_next();
        shared().command({"PUBLISH", ears.name(), "served"});
        for (auto text = ears.message(); text != "served"; text = ears.message()) {
            REQUIRE(asks_to_watch<Last>(text, me, name));
            asked.push_back(number);
        }
    }
    queue.serve_next();
    const auto text = ears.message();
    REQUIRE(text);
    const auto given = Last::read_message(*text);
    CHECK((given && given->owner == me && !given->asks()));
    return asked;
}

constexpr lock_options patient{.lease = 30s, .recheck = 1h};

// One that waits behind others of its kind, or a reader behind writers. take() waits until it is served, or
// stopped.
template <class Dialect, class Lock>
struct exclusive_waits {
    using ahead = Dialect;
    using last = Dialect;
    static bool take(hiredis_connection& redis, const std::string& name, std::stop_token stop) {
        std::error_code stopped;
        Lock one(redis, name, patient);
        return one.try_lock_for(1h, std::move(stop), stopped);
    }
};
using mutex_waits = exclusive_waits<handoff, distlock::mutex<hiredis_connection>>;
using writer_waits = exclusive_waits<exclusive_handoff, distlock::shared_mutex<hiredis_connection>>;
struct reader_waits {
    using ahead = exclusive_handoff;
    using last = shared_handoff;
    static bool take(hiredis_connection& redis, const std::string& name, std::stop_token stop) {
        std::error_code stopped;
        distlock::shared_mutex one(redis, name, patient);
        return one.try_lock_shared_for(1h, std::move(stop), stopped);
    }
};
struct permit_waits {
    using ahead = permits;
    using last = permits;
    static bool take(hiredis_connection& redis, const std::string& name, std::stop_token stop) {
        std::error_code stopped;
        distlock::counting_semaphore pool(redis, name, 1, patient);
        return pool.try_acquire_for(1h, std::move(stop), stopped).has_value();
    }
};

}  // namespace

TEMPLATE_TEST_CASE("the last of thirty-two waiters is asked to watch, by one hand-over in eleven", "",
                   mutex_waits, writer_waits, reader_waits, permit_waits) {
    using ahead = typename TestType::ahead;
    using last = typename TestType::last;
    CHECK(asked_when<ahead, last>(asks_every + long_from - 1) == std::vector<std::size_t>{asks_every});
    CHECK(asked_when<ahead, last>(asks_every + long_from - 2).empty());
    CHECK(asked_when<ahead, last>(2 * asks_every + long_from) ==
          std::vector<std::size_t>{asks_every, 2 * asks_every});
}

TEST_CASE("the last of very many is asked by one hand-over in ninety-nine, since many are to come") {
    const auto asked = asked_when<handoff, handoff>(asks_seldom + very_long_from);
    REQUIRE(asked.size() > 1);
    CHECK(asked[0] == asks_seldom);
    CHECK(asked[1] == 10 * asks_every);  // fewer than very many are left
}

TEST_CASE("readers that are let in together ask the last waiter once") {
    const auto name = fresh_name();
    queue_of<exclusive_handoff> writer(name, 0, 30s);
    heard_channel ears(shared().socket_path());
    redis_link link(shared().socket_path());
    const lock_options usual{.lease = 30s};
    const shared_handoff reader(name, usual);
    for (std::size_t i = 0; i < 3 * asks_every; ++i)
        link.ask(reader.enter(token::generate(), enter_mode::join));
    const exclusive_handoff behind(name, usual);
    for (std::size_t i = 1; i < long_from; ++i) link.ask(behind.enter(token::generate(), enter_mode::join));
    const exclusive_handoff last(name, usual, ears.name());
    const token me = token::generate();
    link.ask(last.enter(me, enter_mode::join));
    REQUIRE(writer.seen.queued() == static_cast<int>(3 * asks_every + long_from));
    for (std::size_t i = 0; i < 3 * asks_every; ++i) {
        const auto first = std::to_string(i);
        const auto ticket = shared().command({"ZRANGE", writer.seen.queue_key, first, first});
        shared().command({"ZADD", writer.seen.queue_key, std::to_string(i + 1), ticket});
    }
    writer.serve_next();
    CHECK(writer.seen.queued() == static_cast<int>(long_from));
    shared().command({"PUBLISH", ears.name(), "served"});
    CHECK(asks_to_watch<exclusive_handoff>(ears.message(), me, name));
    CHECK(ears.message() == "served");
}

// It planned its next look by the place that it had joined at: behind a hundred waiters it left the lock free
// for nine seconds, behind 240 for seventeen.
TEMPLATE_TEST_CASE(
    "the last of a long queue has the lock when the one before it died, though all others were served at "
    "once",
    "", mutex_waits, writer_waits, reader_waits, permit_waits) {
    const auto name = fresh_name();
    queue_of<typename TestType::ahead> queue(name, in_queue, 500ms);
    hiredis_connection redis(shared().uri());
    std::atomic<bool> served = false;
    std::jthread waits([&](std::stop_token stop) { served = TestType::take(redis, name, std::move(stop)); });
    REQUIRE(queue.seen.gets(static_cast<int>(in_queue) + 1));
    queue.drain();
    CHECK(eventually([&] { return served.load(); }));
}

}  // namespace long_queue_tests
