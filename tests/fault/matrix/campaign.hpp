// A row of the table of faults: a crew that locks all the time, a server, a proxy where one is wanted, and one fault made
// again and again.
//
//   class campaign;
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/testing.hpp>

#include "fault/lateness.hpp"
#include "fault/matrix/crew.hpp"
#include "fault/row.hpp"
#include "support/catch.hpp"
#include "support/lab_figures.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

class campaign {
  public:
    using clk = distlock::clock;

    static constexpr std::chrono::milliseconds time_out{100};  // of a command

    struct options {
        crew_options people{};
        distlock::testing::redis_server_options server{};
        bool behind_proxy = false;
        bool serves_on = false;   ///< the fault keeps nobody from being served: waits in it count, too
        bool by_address = false;  ///< the crew finds the server by an address that can be moved to another
        std::vector<std::vector<std::string_view>> users{};  ///< as ACL SETUSER has them
        std::string login{};  ///< "user:password@", where the crew is to have one
    };

    /// `bound`: of how long it may take after the end of the fault until every lock was granted again.
    campaign(const std::string& id, clk::duration bound, options how)
        : people(how.people), server(how.server), serves_on_(how.serves_on), line_(id, bound) {
        for (const auto& user : how.users) {
            std::vector<std::string_view> words{"ACL", "SETUSER"};
            words.insert(words.end(), user.begin(), user.end());
            server.command(words);
        }
        if (how.behind_proxy) proxy.emplace(server.socket_path());
        if (how.by_address) move_to(server);
        std::string uri = proxy ? proxy->uri() : how.by_address ? "unix://" + address() : server.uri();
        if (!how.login.empty()) uri.insert(uri.find("//") + 2, how.login);
        people.begin(uri + "?connect_timeout=100ms&command_timeout=" + std::to_string(time_out.count()) +
                     "ms");
        all_is_well();
    }

    /// Effects: `fault(n)` twice, or as often as the environment says, each time while all is well; afterwards the
    /// fault is over.
    template <class Fault>
    void repeat(Fault fault, int few = 2) {
        const int count = injections(few);
        for (int n = 0; n < count; ++n) {
            INFO("injection " << n);
            all_is_well();
            machine_.reset();
            fault(n);
            ends_.push_back({clk::now(), {}});
            people.expect_grants();
            line_.injected();
            clk::duration took{};
            clk::duration answered{};
            const bool granted = people.granted_since(
                ends_.back().at, took, [&] { answered = std::max(answered, time_of_answer()); });
            // Who was not answered in time may have got what he does not know of, and nobody has it for a lease.
            if (answered >= time_out) answered += people.options().lease;
            ends_.back().machine = std::max<clk::duration>(machine_.worst(), answered);
            latest_machine_ = std::max(latest_machine_, ends_.back().machine);
            if (!granted) UNSCOPED_INFO(state());
            CHECK(granted);
            if (!granted) break;
        }
    }

    /// Effects: notes that the server lost what it had, or time, since `from`: two may believe to own a lock until their leases end.
    void lost_since(clk::time_point from) { people.book().fault(from, clk::now() + people.options().lease); }

    /// Effects: who connects from now on reaches `other`.
    void move_to(const distlock::testing::redis_server& other) const {
        const std::string next = address() + ".next";
        std::filesystem::create_symlink(other.socket_path(), next);
        std::filesystem::rename(next, address());
    }

    /// Effects: waits until every lock was granted once more.
    void all_is_well() {
        people.expect_grants();
        clk::duration took{};
        REQUIRE(people.granted_since(clk::now(), took, [] {}));
    }

    /// Effects: ends the crew, and checks what it did: no overlaps, no crashes, no call that returned late, nobody who waited for
    /// long while nobody had the lock, and no key left.
    void end() {
        all_is_well();
        const bool ended = people.end();
        if (!ended) UNSCOPED_INFO(people.ends());
        CHECK(ended);
        const auto told = distlock::testing::check_history(people.book().events());
        line_.overlapped(told.violations.size());
        INFO(told.text().substr(0, 2000));
        CHECK(told.violations.empty());
        judge_waits();
        CHECK(static_cast<int>(told.grants) > line_.injections());
        CHECK(in_ms(people.latest()) <= in_ms(allowance));
        std::string left;
        CHECK(eventually([&] { return (left = keys_left()).empty(); }));
        UNSCOPED_INFO(left);
    }

    /// Effects: checks that it happened at all, where there were injections enough: else nothing was injected.
    void expect_some(const char* what, int times) const {
        if (line_.injections() < 20) return;
        INFO(what);
        CHECK(times > 0);
    }

    /// Returns: whether the time is over, or `condition` holds.
    template <class Condition>
    static void wait_for(clk::duration span, Condition condition) {
        const auto until = clk::now() + span;
        CHECK(eventually([&] { return clk::now() >= until || condition(); }));
    }
    static void wait_for(clk::duration span) {
        wait_for(span, [] { return false; });
    }

    crew people;  // first: it is made while there is one thread
    distlock::testing::redis_server server;
    std::optional<distlock::testing::fault_proxy> proxy;
    // Of a call after its deadline: the last question, and the taking back.
    clk::duration allowance = 100ms + 200ms + timing_tolerance;

  private:
    // How long the server takes for nothing: it, too, may have no time, or wait for its disk.
    clk::duration time_of_answer() const {
        const auto asked = clk::now();
        try {
            server.command({"PING"}, 5s);
        } catch (const distlock::error&) {}
        return clk::now() - asked;
    }

    static double in_ms(clk::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

    std::string address() const { return server.folder() + "/address"; }

    struct fault_end {
        clk::time_point at;
        clk::duration machine;  // how late that was itself, afterwards
    };

    // How long each lock was nobody's, after a fault or all the time, although the one who then got it wanted it already.
    void judge_waits() {
        const auto all = distlock::testing::beliefs_in(people.book().events());
        for (int n = 0; n < people.options().names; ++n) {
            std::vector<const distlock::testing::belief*> holds;
            for (const auto& b : all) {
                if (b.granted.lock_name() == crew::name(n)) holds.push_back(&b);
            }
            std::sort(holds.begin(), holds.end(),
                      [](const auto* a, const auto* b) { return a->granted.at < b->granted.at; });
            if (serves_on_) {
                judge_all_waits(holds);
            } else {
                judge_waits_after_faults(holds);
            }
        }
    }
    void judge_waits_after_faults(const std::vector<const distlock::testing::belief*>& holds) {
        std::size_t next = 0;
        auto free_since = clk::time_point{};
        for (const fault_end& end : ends_) {
            while (next < holds.size() && holds[next]->granted.at <= end.at)
                free_since = std::max(free_since, holds[next++]->to);
            if (next == holds.size()) break;
            judge(*holds[next], std::max(free_since, end.at), end.machine);
        }
    }
    void judge_all_waits(const std::vector<const distlock::testing::belief*>& holds) {
        auto free_since = holds.empty() ? clk::time_point{} : holds.front()->granted.at;
        for (const auto* hold : holds) {
            judge(*hold, free_since, latest_machine_);
            free_since = std::max(free_since, hold->to);
        }
    }
    // A machine that has no time for a thread is not held against the library.
    void judge(const distlock::testing::belief& hold, clk::time_point free_since, clk::duration machine) {
        const auto took = hold.granted.at - std::max(free_since, hold.granted.from);
        line_.took(std::max(took, took.zero()));
        CHECK(in_ms(took) <= in_ms(line_.bound() + machine));
    }

    // What the server has, and who is connected.
    std::string state() const {
        std::string all;
        for (int n = 0; n < people.options().names; ++n) {
            const std::string name = crew::name(n);
            const std::string beside = "{" + name + "}:distlock:";
            all += name + ": " + server.command({"GET", name}) + " for " + server.command({"PTTL", name}) +
                   " ms, queue " + server.command({"ZRANGE", beside + "queue", "0", "-1", "WITHSCORES"}) +
                   "\n";
        }
        return all + server.command({"CLIENT", "LIST"});
    }

    // All but the fences, which outlive their locks.
    std::string keys_left() const {
        std::string all = server.command({"KEYS", "*"});
        std::string left;
        for (std::string_view rest = all; !rest.empty();) {
            const auto one = rest.substr(0, rest.find('\n'));
            rest.remove_prefix(std::min(rest.size(), one.size() + 1));
            if (!one.ends_with(":distlock:fence") && one != "(empty)") left += std::string(one) + ' ';
        }
        return left;
    }

    const bool serves_on_;
    clk::duration latest_machine_{};
    lateness_probe machine_;
    std::vector<fault_end> ends_;
    row line_;
};
