// Threads that wait for messages: what wakes each, and that one of them at a time reads for all.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <poll.h>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <distlock/net/subscription.hpp>
#include <distlock/testing/manual_clock.hpp>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/counting_clock.hpp"
#include "support/passing_time.hpp"
#include "support/waiting.hpp"
#include "support/waiting_listener.hpp"

namespace subscription_tests {

using namespace std::chrono_literals;
using distlock::listener;
using distlock::message_hub;
using distlock::subscription;
using distlock::testing::manual_clock;
using clk = distlock::clock;
using woken = listener::woken;

namespace {

constexpr auto long_time = 20s;

// What comes is what a test says: each piece is one return of read().
class scripted_reader final : public distlock::message_reader {
  public:
    void read(clk::time_point until) noexcept override {
        if (inside_.fetch_add(1) != 0) overlapped = true;
        ++reads;
        std::unique_lock guard(lock_);
        while (pieces_.empty() && !interrupted_ && clk::now() < until) wake_.wait_for(guard, 1ms);
        interrupted_ = false;
        if (!pieces_.empty()) {
            const auto piece = std::move(pieces_.front());
            pieces_.pop_front();
            guard.unlock();
            piece();
        }
        --inside_;
    }
    void interrupt() noexcept override {
        ++interrupts;
        const std::lock_guard guard(lock_);
        interrupted_ = true;
        wake_.notify_all();
    }
    void reconnect() noexcept override { ++reconnects; }

    void comes(std::function<void()> piece) {
        const std::lock_guard guard(lock_);
        pieces_.push_back(std::move(piece));
        wake_.notify_all();
    }
    bool has_reader() const { return inside_ > 0; }

    std::atomic<int> reads{0};
    std::atomic<int> interrupts{0};
    std::atomic<int> reconnects{0};
    std::atomic<bool> overlapped{false};

  private:
    std::atomic<int> inside_{0};
    std::mutex lock_;
    std::condition_variable wake_;
    std::deque<std::function<void()>> pieces_;
    bool interrupted_ = false;
};

struct channel {
    scripted_reader reader;
    std::shared_ptr<message_hub> hub = std::make_shared<message_hub>(&reader);
    std::shared_ptr<subscription> news = std::make_shared<subscription>("news", hub);
    void comes(std::string text) {
        reader.comes([this, text = std::move(text)] { news->deliver(text); });
    }
};

woken wait(listener& l, const std::stop_token& stop = {}) { return l.wait(clk::now() + long_time, stop); }
woken glance(listener& l) { return l.wait(clk::now(), {}); }

using waiter = waiting_listener<false>;

}  // namespace

TEST_CASE("a waiter is woken by a message that begins with its key, and by no other") {
    channel c;
    listener mine(c.news, "token1");
    c.comes("token2 7");
    c.comes("");
    c.comes("token");
    c.comes("token1 8");
    REQUIRE(wait(mine) == woken::by_message);
    CHECK(mine.message() == "token1 8");
    CHECK(c.reader.reads == 4);
    CHECK(glance(mine) == woken::by_time);
}

TEST_CASE("an empty key is the beginning of every message") {
    channel c;
    listener mine(c.news, "");
    c.comes("");
    REQUIRE(wait(mine) == woken::by_message);
    CHECK(mine.message().empty());
}

TEST_CASE("a message that comes before the wait is kept, and of several the last") {
    channel c;
    listener mine(c.news, "token");
    c.news->deliver("token 1");
    c.news->deliver("token 2");
    REQUIRE(wait(mine) == woken::by_message);
    CHECK(mine.message() == "token 2");
    CHECK(c.reader.reads == 0);
    CHECK(glance(mine) == woken::by_time);
    CHECK(mine.message() == "token 2");
}

TEST_CASE(
    "a message that is too long to be kept wakes, and is handed over whole to who takes what is unclaimed") {
    channel c;
    std::string unclaimed;
    c.news->on_unclaimed([&](std::string_view text) { unclaimed = text; });
    const std::string longest = "token " + std::string(listener::longest_message - 6, 'x');
    const std::string text = longest + 'x';
    {
        listener mine(c.news, "token");
        c.news->deliver(longest);
        REQUIRE(wait(mine) == woken::by_message);
        CHECK(mine.message() == longest);
        c.news->deliver(text);
        REQUIRE(wait(mine) == woken::by_message);
        CHECK(mine.message().empty());
        CHECK(unclaimed.empty());
    }
    c.news->deliver(text);
    CHECK(unclaimed == text);
}

TEST_CASE("a message that no listener is there for goes to the first handler; if it throws, nobody minds") {
    channel c;
    std::vector<std::string> first;
    int second = 0;
    c.news->on_unclaimed([&](std::string_view text) {
        first.emplace_back(text);
        throw std::runtime_error("x");
    });
    c.news->on_unclaimed([&](std::string_view) { ++second; });
    const auto other = std::make_shared<subscription>("other", c.hub);
    listener elsewhere(other, "");
    listener mine(c.news, "mine");
    c.news->deliver("mine");
    c.news->deliver("yours");
    CHECK(first == std::vector<std::string>{"yours"});
    CHECK(second == 0);
    CHECK(glance(mine) == woken::by_message);
    CHECK(glance(elsewhere) == woken::by_time);
}

TEST_CASE("a handler may ask for a stop, for another subscription, and listen itself") {
    channel c;
    std::stop_source stop;
    c.news->on_unclaimed([&](std::string_view) {
        listener another(std::make_shared<subscription>("other", c.hub), "");
        stop.request_stop();
    });
    listener mine(c.news, "mine");
    c.comes("yours");
    CHECK(wait(mine, stop.get_token()) == woken::by_stop);
}

TEST_CASE("a confirmation wakes every listener of its subscription, once, and no other") {
    channel c;
    const auto other = std::make_shared<subscription>("other", c.hub);
    listener one(c.news, "a");
    listener two(c.news, "b");
    listener apart(other, "");
    CHECK(c.news->confirmations() == 0);
    c.reader.comes([&] { c.news->confirm(); });
    CHECK(wait(one) == woken::by_confirmation);
    CHECK(glance(two) == woken::by_confirmation);
    CHECK(glance(one) == woken::by_time);
    CHECK(glance(apart) == woken::by_time);
    CHECK(c.news->confirmations() == 1);
    CHECK(other->confirmations() == 0);
    listener later(c.news, "");
    CHECK(glance(later) == woken::by_time);
}

// One socket that broke made a process hear nothing for good.
TEST_CASE("a subscription that is not answered twice in a row is refused, unless it was confirmed before") {
    const channel c;
    c.news->unanswered();
    CHECK_FALSE(c.news->refused());
    c.news->unanswered();
    CHECK(c.news->refused());
    listener mine(c.news, "");
    c.news->unanswered();
    CHECK(glance(mine) == woken::by_time);
    c.news->confirm();
    CHECK_FALSE(c.news->refused());
    c.news->unanswered();
    c.news->unanswered();
    CHECK_FALSE(c.news->refused());
}

TEST_CASE("the thread that reads may be kept as long as its patience where it opens a socket") {
    channel c;
    listener mine(c.news, "");
    const auto until = clk::now() + 10ms;
    clk::time_point kept{};
    c.reader.comes([&] { kept = c.hub->reading_until(); });
    CHECK(mine.wait(until, {}, {}, clk::duration::max(), until + 1h) == woken::by_time);
    CHECK(kept == until + 1h);
    c.reader.comes([&] { kept = c.hub->reading_until(); });
    CHECK(mine.wait(until + 10ms, {}, {}, clk::duration::max(), until) == woken::by_time);
    CHECK(kept == until + 10ms);
}

TEST_CASE("a message is returned before a confirmation, and both before a stop request") {
    channel c;
    listener mine(c.news, "");
    std::stop_source stop;
    stop.request_stop();
    c.news->confirm();
    c.news->deliver("x");
    CHECK(wait(mine, stop.get_token()) == woken::by_message);
    CHECK(wait(mine, stop.get_token()) == woken::by_confirmation);
    CHECK(wait(mine, stop.get_token()) == woken::by_stop);
    CHECK(c.reader.reads == 0);
}

TEST_CASE("a wait ends when its clock says so, though the system's goes on") {
    manual_clock::reset();
    channel c;
    listener mine(c.news, "");
    const auto until = manual_clock::now() + 1h;
    woken got{};
    std::atomic<bool> done{false};
    std::thread thread([&] {
        got = mine.wait(until, {}, distlock::time_source::of<manual_clock>());
        done = true;
    });
    const bool reads = eventually([&] { return c.reader.reads > 3; });
    manual_clock::advance(1h - 1ns);
    const int before = c.reader.reads;
    const bool reads_on = eventually([&] { return c.reader.reads > before + 3; });
    const bool early = done;
    manual_clock::advance(1ns);
    thread.join();
    CHECK(reads);
    CHECK(reads_on);
    CHECK_FALSE(early);
    CHECK(got == woken::by_time);
}

TEST_CASE("a wait ends when the subscription was not in force for so long as is said, and not before") {
    manual_clock::reset();
    const auto ends_after = [](channel& c, auto&& then) {
        const auto begun = manual_clock::now();
        std::atomic<bool> done{false};
        woken got{};
        std::thread thread([&] {
            listener mine(c.news, "");
            got = mine.wait(begun + 1h, {}, distlock::time_source::of<manual_clock>(), 40ms);
            done = true;
        });
        then(done);
        thread.join();
        CHECK(got == woken::by_time);
        return manual_clock::now() - begun;
    };
    const auto tick_until = [](const std::atomic<bool>& done) {
        const passing_time goes_on;
        CHECK(eventually([&] { return done.load(); }));
    };
    channel never;
    CHECK(ends_after(never, tick_until) >= 40ms);

    channel lapses;
    lapses.news->confirm();
    const auto took = ends_after(lapses, [&](const std::atomic<bool>& done) {
        CHECK(eventually([&] { return lapses.reader.has_reader(); }));
        manual_clock::advance(100ms);
        const int before = lapses.reader.reads;
        CHECK(eventually([&] { return lapses.reader.reads > before + 3; }));
        CHECK_FALSE(done);
        lapses.reader.comes([&] { lapses.news->lapse(); });
        tick_until(done);
    });
    CHECK(took >= 140ms);
    CHECK(took < 1min);

    channel again;
    again.news->confirm();
    const auto longer = ends_after(again, [&](const std::atomic<bool>& done) {
        CHECK(eventually([&] { return again.reader.has_reader(); }));
        again.reader.comes([&] { again.news->lapse(); });
        CHECK(eventually([&] { return !again.news->in_force(); }));
        const auto looks_again = [&] {
            const int before = again.reader.reads;
            return eventually([&] { return again.reader.reads > before + 1; });
        };
        CHECK(looks_again());  // it knows by now
        manual_clock::advance(39ms);
        again.reader.comes([&] { again.news->lapse(); });  // still not in force: the time does not begin anew
        CHECK(looks_again());
        CHECK_FALSE(done);
        manual_clock::advance(1ms);
    });
    CHECK(longer == 40ms);
}

// It slept until its own time: whoever reads for it was told.
TEST_CASE("a subscription that lapses shortens the waits of those, too, that do not read") {
    channel c;
    waiter reads(std::make_shared<subscription>("other", c.hub), "");
    REQUIRE(eventually([&] { return c.reader.has_reader(); }));
    const auto took = time_of([&] {
        for (int i = 0; i < 10; ++i) {
            c.reader.comes([&] { c.news->confirm(); });
            REQUIRE(eventually([&] { return c.news->in_force(); }));
            woken got{};
            std::jthread follows([&] {
                listener mine(c.news, "b");
                got = mine.wait(clk::now() + long_time, {}, {}, 1ms);
            });
            ::poll(nullptr, 0, 5);  // as a rule it sleeps by now
            c.reader.comes([&] { c.news->lapse(); });
            follows.join();
            CHECK(got == woken::by_time);
        }
    });
    CHECK(took < 5s);
}

TEST_CASE("a stop request interrupts the waiter that reads, and wakes one that does not") {
    channel c;
    waiter leader(c.news, "a");
    REQUIRE(eventually([&] { return c.reader.has_reader(); }));
    waiter follower(c.news, "b");
    follower.stop.request_stop();
    REQUIRE(follower.returned());
    CHECK(follower.got == woken::by_stop);
    CHECK(c.reader.interrupts == 0);
    CHECK_FALSE(leader.done);
    leader.stop.request_stop();
    REQUIRE(leader.returned());
    CHECK(leader.got == woken::by_stop);
    CHECK(c.reader.interrupts == 1);
}

TEST_CASE("the waiter that reads wakes the others, and when it leaves another reads on") {
    channel c;
    waiter first(c.news, "first");
    REQUIRE(eventually([&] { return c.reader.has_reader(); }));
    waiter second(c.news, "second");
    waiter third(c.news, "third");
    c.comes("second 1");
    REQUIRE(second.returned());
    CHECK(second.message == "second 1");
    CHECK_FALSE(first.done);
    c.comes("first 2");
    REQUIRE(first.returned());
    c.comes("third 3");
    REQUIRE(third.returned());
    CHECK(third.message == "third 3");
    CHECK_FALSE(c.reader.overlapped);
}

// Every second they look by themselves: a wake-up that is missing shows in the time that many take.
TEST_CASE("a waiter that leaves by a stop request has another read on, at once") {
    channel c;
    const auto took = time_of([&] {
        for (int i = 0; i < 10; ++i) {
            waiter first(c.news, "first");
            REQUIRE(eventually([&] { return c.reader.has_reader(); }));
            waiter second(c.news, "second");
            ::poll(nullptr, 0, 5);  // as a rule it sleeps by now
            first.stop.request_stop();
            REQUIRE(first.returned());
            REQUIRE(eventually([&] { return c.reader.has_reader(); }));
            c.comes("second");
            REQUIRE(second.returned());
            CHECK(second.got == woken::by_message);
        }
    });
    CHECK(took < 5s);
}

TEST_CASE("a waiter that leaves since its time is up has another read on, at once") {
    channel c;
    const auto took = time_of([&] {
        for (int i = 0; i < 10; ++i) {
            listener first(c.news, "first");
            std::jthread reads([&] { CHECK(first.wait(clk::now() + 20ms, {}) == woken::by_time); });
            REQUIRE(eventually([&] { return c.reader.has_reader(); }));
            waiter second(c.news, "second");
            reads.join();
            REQUIRE(eventually([&] { return c.reader.has_reader(); }));
        }
    });
    CHECK(took < 5s);
}

TEST_CASE("a waiter whose time is up is not the one that is to read on") {
    channel c;
    const auto took = time_of([&] {
        for (int i = 0; i < 10; ++i) {
            waiter first(c.news, "first");
            REQUIRE(eventually([&] { return c.reader.has_reader(); }));
            waiter second(c.news, "second");
            listener third(c.news, "third");
            // As a rule the second sleeps by then.
            REQUIRE(third.wait(clk::now() + 5ms, {}) == woken::by_time);
            first.stop.request_stop();
            REQUIRE(first.returned());
            REQUIRE(eventually([&] { return c.reader.has_reader(); }));
        }
    });
    CHECK(took < 5s);
}

TEST_CASE(
    "waiters that leave one after the other, told to stop or by a message, do not wait for a slice of time") {
    channel c;
    constexpr int count = 20;
    std::vector<std::unique_ptr<waiter>> all;
    for (int i = 0; i < count; ++i) {
        all.push_back(std::make_unique<waiter>(c.news, std::to_string(i) + " "));
        REQUIRE(eventually([&] { return c.reader.has_reader(); }));
    }
    const auto took = time_of([&] {
        for (int i = 0; i < count; ++i) {
            if (i % 2 == 0) {
                c.comes(all[static_cast<std::size_t>(i)]->key);
            } else {
                all[static_cast<std::size_t>(i)]->stop.request_stop();
            }
            CHECK(all[static_cast<std::size_t>(i)]->returned());
        }
    });
    CHECK(took < 5s);
}

TEST_CASE("a waiter that was woken once sleeps again") {
    const auto news = std::make_shared<subscription>("news");
    listener mine(news, "");
    std::atomic<bool> confirmed{false};
    std::stop_source stop;
    std::thread thread([&] {
        mine.wait(clk::now() + long_time, {}, distlock::time_source::of<counting_clock>());
        confirmed = true;
        mine.wait(clk::now() + long_time, stop.get_token(), distlock::time_source::of<counting_clock>());
    });
    ::poll(nullptr, 0, 5);  // as a rule it sleeps by now
    news->confirm();
    const bool woke = eventually([&] { return confirmed.load(); });
    int asked = 0;
    const auto slept = time_of([&] {
        const int before = counting_clock::asked;
        ::poll(nullptr, 0, 50);
        asked = counting_clock::asked - before;
    });
    stop.request_stop();
    thread.join();
    CHECK(woke);
    CHECK(asked < 10 * (slept.count() + 1));  // its slices are of a millisecond, since it is not our clock
}

TEST_CASE("a waiter for which the connection's own thread reads is woken by that thread") {
    const auto news = std::make_shared<subscription>("news");
    waiter one(news, "one");
    waiter two(news, "two");
    news->deliver("two 2");
    REQUIRE(two.returned());
    CHECK(two.message == "two 2");
    news->confirm();
    REQUIRE(one.returned());
    CHECK(one.got == woken::by_confirmation);
    news->reconnect();  // nobody to tell
}

// It slept to the end of its slice of time.
TEST_CASE("a confirmation wakes a waiter for which the connection's own thread reads at once") {
    const auto news = std::make_shared<subscription>("news");
    const auto took = time_of([&] {
        for (int i = 0; i < 10; ++i) {
            waiter one(news, "one");
            ::poll(nullptr, 0, 5);  // as a rule it sleeps by now
            news->confirm();
            REQUIRE(one.returned());
            CHECK(one.got == woken::by_confirmation);
        }
    });
    CHECK(took < 5s);
}

TEST_CASE("a hub knows whether anybody listens, and its subscriptions ask for a new socket") {
    channel c;
    CHECK_FALSE(c.hub->awaited());
    {
        listener one(c.news, "");
        listener two(c.news, "");
        CHECK(c.hub->awaited());
    }
    CHECK_FALSE(c.hub->awaited());
    c.news->reconnect();
    CHECK(c.reader.reconnects == 1);
}

TEST_CASE("a wait and a message call operator new for nothing, with a stop token too") {
    struct reader final : distlock::message_reader {
        void read(clk::time_point) noexcept override { to->deliver("token 1 2000 0 orders"); }
        void interrupt() noexcept override {}
        void reconnect() noexcept override {}
        subscription* to = nullptr;
    } at_once;
    const auto news = std::make_shared<subscription>("news", std::make_shared<message_hub>(&at_once));
    at_once.to = news.get();
    const std::stop_source stop;
    const auto before = allocations();
    woken got{};
    for (int i = 0; i < 3; ++i) {
        listener mine(news, "token");
        got = wait(mine, stop.get_token());
    }
    const auto after = allocations();
    CHECK(got == woken::by_message);
    CHECK(after == before);
}

// The reader stands for a socket on which messages come, at any time, to threads that come and go.
TEST_CASE("none of many waiters that come and go misses a message or a stop request") {
    constexpr int threads = 8;
    constexpr int rounds = 300;
    channel c;
    std::atomic<int> good{0};
    std::vector<std::thread> all;
    for (int t = 0; t < threads; ++t) {
        all.emplace_back([&, t] {
            for (int i = 0; i < rounds; ++i) {
                const std::string key = std::to_string(t) + ":" + std::to_string(i) + " ";
                listener mine(c.news, key);
                std::stop_source stop;
                std::thread stops;
                const bool by_message = (i + t) % 3 != 0;
                if (by_message) {
                    c.comes(key + "text");
                } else if (i % 2 == 0) {
                    stops = std::thread([&] { stop.request_stop(); });
                } else {
                    c.reader.comes([stop]() mutable { stop.request_stop(); });
                }
                const auto got = wait(mine, stop.get_token());
                if (stops.joinable()) stops.join();
                if (got == (by_message ? woken::by_message : woken::by_stop)) ++good;
            }
        });
    }
    for (std::thread& t : all) t.join();
    CHECK(good == threads * rounds);
    CHECK_FALSE(c.reader.overlapped);
    CHECK_FALSE(c.hub->awaited());
}

}  // namespace subscription_tests
