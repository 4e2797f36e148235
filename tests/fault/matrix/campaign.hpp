// A row of the table of faults: a crew that locks all the time, and one fault made again and again.
//
//   class campaign_over;   // whatever servers it locks on
//   class campaign;        // one server, and a proxy where one is wanted
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
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

class campaign_over {
  public:
    using clk = distlock::clock;
    using server_type = distlock::testing::redis_server;

    static constexpr std::chrono::milliseconds time_out{100};  // of a command

    struct fault_end {
        clk::time_point at;
        /// What was released since then may not be free where the locks are now.
        clk::time_point unsure_since = at;
        clk::duration machine{};  ///< how late that was itself, afterwards
        clk::duration unknown{};  ///< until all of the crew knew of another master, where they follow one
    };

    /// `bound`: of how long it may take after the end of the fault until every lock was granted again.
    /// `serves_on`: the fault keeps nobody from being served: waits in it count, too.
    campaign_over(const std::string& id, clk::duration bound, const crew_options& who, bool serves_on = false)
        : people(who), serves_on_(serves_on), line_(id, bound) {}
    campaign_over(const campaign_over&) = delete;
    campaign_over& operator=(const campaign_over&) = delete;

    /// Effects: `fault(n)` twice, or as often as the environment says, each time while all is well; the fault
    /// is over then, or when it says.
    template <class Fault>
    void repeat(Fault fault, int few = 2) {
        const int count = injections(few);
        for (int n = 0; n < count; ++n) {
            INFO("injection " << n);
            all_is_well();
            machine_.reset();
            if constexpr (std::is_void_v<decltype(fault(n))>) {
                fault(n);
                ends_.push_back({.at = clk::now()});
            } else {
                ends_.push_back(fault(n));
            }
            people.expect_grants();
            line_.injected();
            clk::duration took{};
            clk::duration answered{};
            const bool granted = people.granted_since(
                ends_.back().at, took, [&] { answered = std::max(answered, time_of_answer()); });
            // Who was not answered in time may have got what he does not know of, and
            // nobody has it for a lease.
            if (answered >= time_out) answered += people.options().lease;
            ends_.back().machine = std::max<clk::duration>(machine_.worst(), answered);
            latest_machine_ = std::max(latest_machine_, ends_.back().machine);
            ends_.back().unknown = std::max(people.known() - ends_.back().at, clk::duration::zero());
            if (!granted) UNSCOPED_INFO(state());
            CHECK(granted);
            if (!granted) break;
        }
    }

    /// Effects: notes that the server lost what it had, or time, since `from`: two may believe to own a lock
    /// until their leases end.
    void lost_since(clk::time_point from) { people.book().fault(from, clk::now() + people.options().lease); }

    /// Effects: waits until every lock was granted once more.
    void all_is_well() {
        people.expect_grants();
        clk::duration took{};
        REQUIRE(people.granted_since(clk::now(), took, [] {}));
    }

    /// Effects: ends the crew, and checks what it did: no overlaps, no crashes, no call that returned late,
    /// nobody who waited for long while nobody had the lock, and no key left.
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
        const bool none = eventually([&] { return (left = keys_left()).empty(); });
        INFO(left);
        CHECK(none);
    }

    /// Of what happens to many callers in each injection, as many as CI has are enough.
    static constexpr int often = 5;

    /// Effects: checks that it happened at all, where there were so many injections that it does: else
    /// nothing was injected.
    void expect_some(const char* what, int times, int enough = 20) const {
        if (line_.injections() < enough) return;
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

    /// Returns: how long after a fault all of the crew knew of another master, at most.
    clk::duration unknown_for() const {
        clk::duration longest{};
        for (const fault_end& end : ends_) longest = std::max(longest, end.unknown);
        return longest;
    }

    crew people;  // first: it is made while there is one thread
    // Of a call after its deadline: the last question, and the taking back.
    clk::duration allowance = 100ms + 200ms + timing_tolerance;

  protected:
    ~campaign_over() = default;

  private:
    /// Returns: those that have the locks just now.
    virtual std::vector<const server_type*> masters() const = 0;

    // How long the servers take for nothing: they, too, may have no time, or wait for their disk.
    clk::duration time_of_answer() const {
        clk::duration longest{};
        for (const server_type* const one : masters()) {
            const auto asked = clk::now();
            try {
                one->command({"PING"}, 5s);
            } catch (const distlock::error&) {}
            longest = std::max(longest, clk::now() - asked);
        }
        return longest;
    }

    // How long each lock was nobody's, after a fault or all the time, although the one who then got
    // it wanted it already.
    void judge_waits() {
        const auto all = distlock::testing::beliefs_in(people.book().events());
        for (int n = 0; n < people.options().names; ++n) {
            std::vector<const distlock::testing::belief*> holds;
            for (const auto& b : all) {
                if (b.granted.lock_name() == crew::name(n)) holds.push_back(&b);
            }
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
            for (; next < holds.size() && holds[next]->granted.at <= end.at; ++next) {
                const auto to = holds[next]->to;
                const bool unsure = to >= end.unsure_since && end.unsure_since < end.at;
                free_since = std::max(free_since, unsure ? to + people.options().lease : to);
            }
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
        if (took > line_.bound() + machine) UNSCOPED_INFO(around(hold, took));
        CHECK(in_ms(took) <= in_ms(line_.bound() + machine));
    }

    // The events of that lock from three seconds before the wait until the grant, in
    // milliseconds before that.
    std::string around(const distlock::testing::belief& hold, clk::duration took) {
        std::string all;
        for (const auto& e : people.book().events()) {
            const auto before = hold.granted.at - e.at;
            if ((e.lock_name() != hold.granted.lock_name() && !e.lock_name().empty()) || before < -10ms ||
                before > took + 3s)
                continue;
            all += std::to_string(in_ms(before)) + " (called " +
                   std::to_string(in_ms(hold.granted.at - e.from)) + "): kind " +
                   std::to_string(static_cast<int>(e.what)) + ", hold " + std::to_string(e.hold) +
                   ", fence " + std::to_string(e.fence) + ", process " + std::to_string(e.process) + "\n";
        }
        return all;
    }

    // What the servers have, and who is connected.
    std::string state() const {
        std::string all;
        for (const server_type* const one : masters()) {
            for (int n = 0; n < people.options().names; ++n) {
                const std::string name = crew::name(n);
                const std::string beside = "{" + name + "}:distlock:";
                all += name + ": " + one->command({"GET", name}) + " for " + one->command({"PTTL", name}) +
                       " ms, queue " + one->command({"ZRANGE", beside + "queue", "0", "-1", "WITHSCORES"}) +
                       "\n";
            }
            all += one->command({"CLIENT", "LIST"});
        }
        return all;
    }

    // All but the fences, which outlive their locks.
    std::string keys_left() const {
        std::string left;
        for (const server_type* const server : masters()) {
            const std::string all = server->command({"KEYS", "*"});
            for (std::string_view rest = all; !rest.empty();) {
                const auto one = rest.substr(0, rest.find('\n'));
                rest.remove_prefix(std::min(rest.size(), one.size() + 1));
                if (one.ends_with(":distlock:fence") || one == "(empty)") continue;
                left += std::string(one) + " for " + server->command({"PTTL", one}) + " ms; ";
            }
        }
        return left;
    }

    const bool serves_on_;
    clk::duration latest_machine_{};
    lateness_probe machine_;
    std::vector<fault_end> ends_;
    row line_;
};

class campaign final : public campaign_over {
  public:
    struct options {
        crew_options people{};
        distlock::testing::redis_server_options server{};
        bool behind_proxy = false;
        bool serves_on = false;   ///< as campaign_over()
        bool by_address = false;  ///< the crew finds the server by an address that can be moved to another
        std::vector<std::vector<std::string_view>> users{};  ///< as ACL SETUSER has them
        std::string login{};  ///< "user:password@", where the crew is to have one
    };

    /// As campaign_over().
    campaign(const std::string& id, clk::duration bound, options how)
        : campaign_over(id, bound, how.people, how.serves_on), server(how.server) {
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

    /// Effects: who connects from now on reaches `other`.
    void move_to(const distlock::testing::redis_server& other) const {
        const std::string next = address() + ".next";
        std::filesystem::create_symlink(other.socket_path(), next);
        std::filesystem::rename(next, address());
    }

    server_type server;
    std::optional<distlock::testing::fault_proxy> proxy;

  private:
    std::vector<const server_type*> masters() const override { return {&server}; }
    std::string address() const { return server.folder() + "/address"; }
};
