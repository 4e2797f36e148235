// Readers of one shared_mutex object whose time is up, with a scripted connection.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <stop_token>
#include <system_error>
#include <thread>

#include <distlock/base/error.hpp>
#include <distlock/shared_mutex.hpp>
#include <distlock/testing/manual_clock.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/shared_scripts.hpp>

#include "support/catch.hpp"
#include "support/handoff_answers.hpp"
#include "support/script_calls.hpp"
#include "support/sleepers.hpp"
#include "support/waiting.hpp"

namespace shared_object_enter_tests {

using namespace std::chrono_literals;
using distlock::command;
using distlock::errc;
using distlock::reply;
using distlock::testing::manual_clock;
using handoff_answers::granted;
using handoff_answers::taken;

namespace {

// The first request is of a reader that waits, the second of one whose time is up: neither is answered before
// a test says so. Later ones are answered at once.
struct slow_to_answer {
    reply execute(const command& cmd) {
        if (!calls(cmd, distlock::detail::shared_enter)) return reply::integer(1);
        const int number = ++sent;
        if (number == 2 && cmd.stop() != nullptr) asks = *cmd.stop();
        ++asked;
        if (number == 1 && !passes(first, cmd)) return reply::not_sent(errc::cancelled, "stopped");
        if (number == 2 && !passes(last, cmd)) return reply::not_sent(errc::cancelled, "stopped");
        return number == 1 ? taken() : answer;
    }
    // Returns: whether it is open, and not the caller stopped.
    static bool passes(const std::atomic<bool>& open, const command& cmd) {
        const auto* const stop = cmd.stop();
        while (!open) {
            if (stop != nullptr && stop->stop_requested()) return false;
            std::this_thread::yield();
        }
        return true;
    }
    const reply answer = taken();
    std::stop_token asks{};  // of the second request
    std::atomic<int> sent{0};
    std::atomic<int> asked{0};  // the same, when `asks` is known
    std::atomic<bool> first{false};
    std::atomic<bool> last{false};
};

struct reader {
    std::stop_source stop;
    bool had = false;
    std::error_code ec = errc::deadlock;
    std::unique_ptr<sleeper> thread;
};

// One reader that waits for a writer elsewhere; behind it twelve more, whose time is up. One of these asks.
struct readers_out_of_time {
    explicit readers_out_of_time(const reply& answer, bool one_has_more_time = false) : server{answer} {
        manual_clock::reset();
        waits.thread = std::make_unique<sleeper>(
            [this] { waits.had = m.lock_shared(waits.stop.get_token(), waits.ec); });
        REQUIRE(eventually([&] { return server.asked == 1; }));
        for (auto& one : all) {
            one.thread = std::make_unique<sleeper>([this, &one] { try_for(1s, one); });
            REQUIRE(one.thread->sleeps());
        }
        if (one_has_more_time) {
            patient.thread = std::make_unique<sleeper>([this] { try_for(2s, patient); });
            REQUIRE(patient.thread->sleeps());
        }
        manual_clock::advance(1s);
        REQUIRE(eventually([&] { return server.asked == 2; }));
        asked_beside_another = eventually([&] { return server.asked > 2; }, 200ms);
    }
    void open() {
        waits.stop.request_stop();
        patient.stop.request_stop();
        server.first = true;
        server.last = true;
    }
    void try_for(std::chrono::milliseconds time, reader& by) {
        by.had = m.try_lock_shared_for(time, by.stop.get_token(), by.ec);
        if (by.had) m.unlock_shared();
    }
    void join() {
        for (auto& one : all) one.thread->join();
    }
    int had() const {
        return static_cast<int>(std::count_if(all.begin(), all.end(), [](auto& one) { return one.had; }));
    }
    int ended_by(std::error_code why) const {
        return static_cast<int>(
            std::count_if(all.begin(), all.end(), [&](auto& one) { return one.ec == why; }));
    }

    slow_to_answer server;
    distlock::shared_mutex<slow_to_answer, manual_clock> m{
        server, "orders", {.renew = false, .patience = 0ms}};
    reader waits;
    reader patient;
    std::array<reader, 12> all;
    bool asked_beside_another = false;
    const std::shared_ptr<void> at_the_end{nullptr, [this](void*) { open(); }};  // last
};

}  // namespace

// A thousand of them opened a socket each, and a server that was well did not answer all of them in time.
TEST_CASE("readers whose time is up share one answer of the server, whatever it says") {
    struct answered {
        reply by;
        int had;
        std::error_code ec;
    };
    const auto [by, had, ec] = GENERATE(values<answered>({
        {taken(), 0, {}},
        {taken(-1), 0, errc::holder_without_ttl},
        {granted("", 30'000), 12, {}},
        {reply::error("NOPERM x"), 0, errc::permission_denied},
        {reply::no_answer(errc::no_reply, "no reply in time"), 0, errc::no_reply},
    }));
    readers_out_of_time readers(by);
    CHECK_FALSE(readers.asked_beside_another);
    readers.server.last = true;
    readers.join();
    CHECK(readers.had() == had);
    CHECK(readers.ended_by(ec) == 12);
    CHECK(readers.server.asked <= 4);  // a thread that was late asks for itself
}

TEST_CASE("when the reader that asks for all whose time is up is stopped, one of the others asks") {
    readers_out_of_time readers(taken());
    const auto asks = std::find_if(readers.all.begin(), readers.all.end(),
                                   [&](auto& one) { return one.stop.get_token() == readers.server.asks; });
    REQUIRE(asks != readers.all.end());
    asks->stop.request_stop();
    readers.join();
    CHECK(readers.server.asked > 2);
    CHECK(readers.ended_by(errc::cancelled) == 1);
    CHECK(readers.ended_by({}) == 11);
}

TEST_CASE("a reader whose time is up after others of its batch have looked ends in time, too") {
    readers_out_of_time readers(taken(), true);
    readers.server.last = true;
    readers.join();
    CHECK_FALSE(readers.patient.thread->done());
    manual_clock::advance(1s);
    CHECK(eventually([&] { return readers.patient.thread->done(); }));
    CHECK(readers.server.asked == 3);
}

// What the server said before it came may be over.
TEST_CASE("a reader whose time is up does not share an answer that was asked for before it came") {
    readers_out_of_time readers(taken());
    manual_clock::advance(1ms);
    reader late;
    sleeper comes_late([&] { readers.try_for(1ms, late); });
    REQUIRE(comes_late.sleeps());
    manual_clock::advance(1ms);
    CHECK(eventually([&] { return readers.server.asked == 3; }));
    readers.open();
    comes_late.join();
    CHECK_FALSE(late.had);
    CHECK_FALSE(late.ec);
}

}  // namespace shared_object_enter_tests
