// Sentinels that are dead, silent, behind or lying, and masters that are none, each made to be so.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <poll.h>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>
#include <distlock/wire/acknowledgement.hpp>

#include "sanitizers.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/closed_port.hpp"
#include "support/fake_sentinel.hpp"
#include "support/fake_server.hpp"
#include "support/fresh_name.hpp"
#include "support/in_child.hpp"
#include "support/lease_observers.hpp"
#include "support/no_threads.hpp"
#include "support/processor_time.hpp"
#include "support/sleepers.hpp"
#include "support/waiting.hpp"
#include "timing_tolerance.hpp"

namespace sentinel_faults_tests {

namespace {

using namespace std::chrono_literals;
using distlock::command;
using distlock::errc;
using distlock::reply;
using distlock::reply_kind;
using distlock::sentinel_connection;
using distlock::testing::redis_server;
using distlock::testing::redis_server_options;
using lock = distlock::mutex<sentinel_connection>;

redis_server& a_server() {
    static redis_server one(redis_server_options{.tcp = true});
    return one;
}
redis_server& another_server() {
    static redis_server one(redis_server_options{.tcp = true});
    return one;
}

reply ping(sentinel_connection& c) { return c.execute({distlock::argument("PING")}); }

/// Returns: a port that nobody listens on.
std::uint16_t dead_port() {
    static const closed_port one;
    return one.number();
}

/// A server that says that to ROLE, and OK to everything else.
fake_server::script says_to_role(std::string said) {
    return [said = std::move(said)](fake_server::peer& p) {
        while (const auto cmd = p.next_command()) {
            if (!p.send(cmd->at(0) == "ROLE" ? said : "+OK\r\n")) return;
        }
    };
}
/// A server that says it is that.
fake_server::script in_role(const std::string& role) {
    return says_to_role("*1\r\n$" + std::to_string(role.size()) + "\r\n" + role + "\r\n");
}

/// What a Sentinel answers that is asked for the master's address.
std::string address(std::uint16_t master) {
    const auto port = std::to_string(master);
    return "*2\r\n$9\r\n127.0.0.1\r\n$" + std::to_string(port.size()) + "\r\n" + port + "\r\n";
}
/// Of the four questions of one the first is answered, which suffices for a name.
std::string address_alone(std::uint16_t master) { return address(master) + "-ERR x\r\n-ERR x\r\n-ERR x\r\n"; }

/// A Sentinel that names the master at that port; while `silent`, it says nothing to anybody.
fake_server::script falls_silent(std::uint16_t master, const std::atomic<bool>& silent) {
    return [master, &silent](fake_server::peer& p) {
        while (p.next_command()) {
            if (silent) return static_cast<void>(p.wait_for_end());
            if (!p.send(address_alone(master))) return;
            for (int i = 0; i < 3; ++i) static_cast<void>(p.next_command());
        }
    };
}

using words = std::vector<std::string>;
bool any(const words&) { return true; }

/// A service that refuses ROLE, and once it is demoted what it `refuses` then. Seven replicas have what it
/// has.
fake_server::script without_role(const std::atomic<bool>& demoted, bool (*refuses)(const words&) = any) {
    return [&demoted, refuses](fake_server::peer& p) {
        while (const auto cmd = p.next_command()) {
            const char* said = cmd->at(0) == "WAIT" ? ":7\r\n" : "+OK\r\n";
            if (demoted && refuses(*cmd)) said = "-READONLY You can't write against a read only replica.\r\n";
            if (cmd->at(0) == "ROLE")
                said = "-NOPERM this user has no permissions to run the 'role' command\r\n";
            if (!p.send(said)) return;
        }
    };
}

/// A master that takes its time to say so, and confirms who subscribes to news, but for the first so many; in
/// the same segment it sends `more`.
fake_server::script publishes(int refused = 0, const std::string& more = "") {
    return [refused, more](fake_server::peer& p) {
        while (const auto cmd = p.next_command()) {
            const std::string& word = cmd->at(0);
            if (word == "SUBSCRIBE" && p.number() < refused) return;
            if (word == "ROLE" && !p.nap(20ms)) return;
            std::string said = "+OK\r\n";
            if (word == "ROLE") said = "*1\r\n$6\r\nmaster\r\n";
            if (word == "SUBSCRIBE") said = "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n" + more;
            if (word == "SSUBSCRIBE") said = "*3\r\n$10\r\nssubscribe\r\n$4\r\nnews\r\n:1\r\n";
            if (word == "PING") said = "*2\r\n$4\r\npong\r\n$0\r\n\r\n";
            if (!p.send(said)) return;
        }
    };
}

/// Returns: a thread that reads messages of that subscription, none of which is for it, until it is
/// destroyed.
std::jthread keep_reading(const std::shared_ptr<distlock::subscription>& news) {
    return std::jthread([news](const std::stop_token& stop) {
        distlock::listener none(news, "no message");
        while (!stop.stop_requested()) none.wait(distlock::clock::now() + 20s, stop);
    });
}

/// The Sentinels are asked ten times a second at most.
void let_them_be_asked_again() {
    const auto from = distlock::clock::now();
    REQUIRE(eventually([&] { return distlock::clock::now() - from > 300ms; }));
}

/// A connection to a master that is demoted from now on, while the Sentinel names another one.
struct of_another_master {
    of_another_master(std::uint16_t old, std::atomic<bool>& demoted, const std::string& options = "")
        : one(old, 1), c(sentinel_uri_of({one.port()}, "", options)) {
        REQUIRE(ping(c).answered());
        let_them_be_asked_again();
        one.name(a_server().port(), 2);
        demoted = true;
    }
    fake_sentinel one;
    sentinel_connection c;
};

/// A Sentinel of few words, and those after a while.
fake_server::script slowly(const std::atomic<std::uint16_t>& master, std::chrono::milliseconds pause) {
    return [&master, pause](fake_server::peer& p) {
        while (p.next_command()) {
            for (int i = 0; i < 3; ++i) static_cast<void>(p.next_command());
            if (!p.nap(pause) || !p.send(address_alone(master))) return;
        }
    };
}

}  // namespace

TEST_CASE(
    "the right master is found while one Sentinel is dead, one is silent and one lies, and the stranger gets "
    "nothing") {
    const std::string login = GENERATE(as<std::string>{}, "", "&sentinel_password=secret");  // AUTH hangs
    const fake_server stranger(in_role("master"));
    const fake_server silent(scripts::hang);
    const fake_sentinel honest(a_server().port(), 6);
    const fake_sentinel liar(stranger.port(), 5);
    sentinel_connection c(sentinel_uri_of({dead_port(), silent.port(), liar.port(), honest.port()}, "",
                                          "?connect_timeout=20s&command_timeout=100ms" + login));
    CHECK(time_of([&] { CHECK(ping(c).is_status("PONG")); }) < 5s);
    CHECK(stranger.accepted() == 0);
}

TEST_CASE("a stranger of an older epoch is not followed, though no other Sentinel answers any more") {
    const fake_server stranger(in_role("master"));
    redis_server master(redis_server_options{.tcp = true});
    auto honest = std::make_unique<fake_sentinel>(master.port(), 6);
    fake_sentinel liar(master.port(), 6);
    sentinel_connection c(sentinel_uri_of({honest->port(), liar.port()}));
    REQUIRE(ping(c).is_status("PONG"));
    liar.name(stranger.port(), 5);
    honest.reset();
    master.kill();
    const auto asked = liar.server().accepted();
    CHECK(eventually([&] { return !ping(c).answered() && liar.server().accepted() >= asked + 3; }));
    CHECK(stranger.accepted() == 0);
    master.start();
    CHECK(eventually([&] { return ping(c).is_status("PONG"); }));
}

TEST_CASE("a majority of Sentinels is followed at once, without waiting for one that is silent") {
    const std::string login = GENERATE(as<std::string>{}, "", "&sentinel_password=secret");  // AUTH hangs
    const fake_server silent(scripts::hang);
    const fake_sentinel one(a_server().port(), 6);
    const fake_sentinel two(a_server().port(), 6);
    sentinel_connection c(sentinel_uri_of({silent.port(), one.port(), two.port()}, "",
                                          "?command_timeout=10s&connect_timeout=10s" + login));
    CHECK(time_of([&] { CHECK(ping(c).is_status("PONG")); }) < 5s);
}

TEST_CASE("a Sentinel that is slow to check a password has the time to connect") {
    const fake_server slow([](fake_server::peer& p) {
        while (const auto cmd = p.next_command()) {
            const bool login = cmd->at(0) == "AUTH";
            if (login && !p.nap(300ms)) return;
            const bool names = cmd->size() > 1 && cmd->at(1) == "GET-MASTER-ADDR-BY-NAME";
            if (!p.send(login ? "+OK\r\n" : names ? address(a_server().port()) : "-ERR x\r\n")) return;
        }
    });
    sentinel_connection c(sentinel_uri_of(
        {slow.port()}, "", "?connect_timeout=20s&command_timeout=200ms&sentinel_password=secret"));
    CHECK(eventually([&] { return ping(c).is_status("PONG"); }));
}

TEST_CASE("a caller that waits for more Sentinels when one has answered leaves the processor to others") {
    const fake_server silent(scripts::hang);
    const fake_sentinel one(a_server().port(), 6);
    sentinel_connection c(
        sentinel_uri_of({silent.port(), one.port()}, "", "?command_timeout=20s&connect_timeout=20s"));
    std::stop_source stop;
    std::jthread caller([&, token = stop.get_token()] {
        command alive{distlock::argument("PING")};
        static_cast<void>(c.execute(alive.until(token)));
    });
    REQUIRE(eventually([&] { return one.server().commands("SENTINEL") == 4; }));
    CHECK(busy_percent() < idle_percent);
    CHECK(one.server().commands("SUBSCRIBE") == 0);  // still
    stop.request_stop();
}

TEST_CASE("the socket to a Sentinel that named another master ends when that is outvoted") {
    const std::atomic<std::uint16_t> master = a_server().port();
    const fake_server one(slowly(master, 300ms));
    const fake_server two(slowly(master, 300ms));
    const std::atomic<bool> silent{false};
    std::atomic<bool> ended{false};
    const fake_server liar([&](fake_server::peer& p) {
        falls_silent(dead_port(), silent)(p);
        ended = true;
    });
    sentinel_connection c(sentinel_uri_of({liar.port(), one.port(), two.port()}, "",
                                          "?command_timeout=20s&connect_timeout=20s"));
    CHECK(ping(c).is_status("PONG"));
    CHECK(eventually([&] { return ended.load(); }));
}

TEST_CASE("when all Sentinels are silent the error says so by the deadline") {
    const fake_server one(scripts::hang);
    const fake_server two(scripts::hang);
    sentinel_connection c(sentinel_uri_of({one.port(), two.port()}, "worker:secret@"));
    lock m{c, fresh_name()};
    std::error_code failed;
    const auto took = time_of([&] { CHECK_FALSE(m.try_lock_for(300ms, failed)); });
    CHECK(failed == errc::unreachable);
    CHECK(took < 300ms + 200ms + timing_tolerance);
    try {
        static_cast<void>(m.try_lock_for(300ms));
        FAIL_CHECK("it was granted");
    } catch (const distlock::error& e) {
        CHECK_THAT(e.what(), contains_text("no Sentinel answers"));
        CHECK_THAT(e.what(), contains_text("no reply in time"));
        CHECK(std::string(e.what()).find("secret") == std::string::npos);
    }
}

TEST_CASE("a connection whose name no Sentinel knows says so, and to check the name") {
    const fake_sentinel one(0, 0);
    sentinel_connection c(sentinel_uri_of({one.port(), dead_port()}));
    const auto said = ping(c);
    CHECK(said.is(reply_kind::not_sent));
    CHECK(said.cause() == errc::unreachable);
    CHECK_THAT(said.text(), contains_text("knows a master named m"));
    CHECK_THAT(said.text(), contains_text("check the name in the URI"));
}

TEST_CASE("a Sentinel that is a plain server, or wants a password, says what is wrong") {
    sentinel_connection c(sentinel_uri_of({a_server().port()}));
    CHECK(ping(c).cause() == errc::unsupported_command);
    const fake_server locked(scripts::always("-NOAUTH Authentication required.\r\n"));
    sentinel_connection d(sentinel_uri_of({locked.port()}));
    CHECK(ping(d).cause() == errc::authentication_failed);
    CHECK_THAT(ping(d).text(), contains_text("127.0.0.1:" + std::to_string(locked.port()) + ": NOAUTH"));
    const fake_server strict(scripts::always("-WRONGPASS invalid username-password pair\r\n"));
    sentinel_connection e(sentinel_uri_of({strict.port()}, "", "?sentinel_password=secret"));
    CHECK(ping(e).cause() == errc::authentication_failed);
    CHECK(ping(e).text().find("secret") == std::string::npos);
}

TEST_CASE("Sentinels and masters get their own passwords") {
    const fake_server master(in_role("master"));
    const fake_sentinel one(master.port(), 1);
    sentinel_connection c(sentinel_uri_of({one.port()}, "worker:of-the-master@",
                                          "?sentinel_user=watch&sentinel_password=of-the-sentinel"));
    CHECK(c.execute({"GET", "x"}).is_status("OK"));
    CHECK(one.server().received().find("of-the-sentinel") != std::string::npos);
    CHECK(one.server().received().find("of-the-master") == std::string::npos);
    CHECK(master.received().find("of-the-master") != std::string::npos);
    CHECK(master.received().find("of-the-sentinel") == std::string::npos);
    CHECK(std::string(c.identity()).find("of-the") == std::string::npos);
}

// The URI names the Sentinels: of a master without memory nobody was told where it is.
TEST_CASE("an error of the master names it") {
    const fake_server full([](fake_server::peer& p) {
        while (const auto cmd = p.next_command()) {
            if (!p.send(cmd->at(0) == "ROLE" ? "*1\r\n$6\r\nmaster\r\n" : "-OOM no memory\r\n")) return;
        }
    });
    const fake_sentinel one(full.port(), 1);
    sentinel_connection c(sentinel_uri_of({one.port()}));
    std::vector<reply> replies(1);
    c.pipeline(std::vector{command{"GET", "x"}}, replies);
    for (const reply& said : {c.execute({"GET", "x"}), replies[0]}) {
        CHECK(said.said() == "OOM no memory");
        CHECK(said.text() == "OOM no memory (at 127.0.0.1:" + std::to_string(full.port()) + ")");
    }
}

TEST_CASE("a server that says it is no master gets no command") {
    const fake_server replica(in_role("slave"));
    const fake_sentinel one(replica.port(), 1);
    sentinel_connection c(sentinel_uri_of({one.port()}));
    const auto said = c.execute({"GET", "x"});
    CHECK(said.is(reply_kind::not_sent));
    CHECK(said.cause() == errc::read_only);
    CHECK(replica.commands("ROLE") > 0);
    CHECK(replica.commands("GET") == 0);
}

TEST_CASE("a server that has no time for ROLE, or no room, is no master yet, and says why") {
    const std::string refusal = GENERATE(as<std::string>{}, "-ERR max number of clients reached\r\n",
                                         "-BUSY a script is running\r\n", "-LOADING the dataset\r\n");
    const fake_server server(says_to_role(refusal));
    const fake_sentinel one(server.port(), 1);
    sentinel_connection c(sentinel_uri_of({one.port()}));
    const auto said = c.execute({"GET", "x"});
    CHECK(said.is(reply_kind::not_sent));
    CHECK(said.cause() == errc::unavailable);
    CHECK(server.commands("GET") == 0);
}

// Its refusal by a new socket was final: in a planned fail-over all waits of a fleet failed at once.
TEST_CASE("a wait outlasts a master that says that it is none, for as long as the Sentinels name it") {
    std::atomic<bool> replaced{false};
    const fake_server server([&](fake_server::peer& p) {
        while (const auto cmd = p.next_command()) {
            const std::string role = replaced ? "*1\r\n$6\r\nmaster\r\n" : "*1\r\n$5\r\nslave\r\n";
            if (!p.send(cmd->at(0) == "ROLE" ? role : "+OK\r\n")) return;
        }
    });
    const fake_sentinel one(server.port(), 1);
    sentinel_connection c(sentinel_uri_of({one.port()}));
    SECTION("until it is one") {
        lock m{c, fresh_name(), {.patience = 1h}};
        std::jthread waits([&] {
            m.lock();
            CHECK(replaced);
        });
        CHECK(eventually([&] { return server.commands("ROLE") >= 2; }));
        replaced = true;
    }
    SECTION("for the patience") {
        lock m{c, fresh_name(), {.patience = 300ms}};
        const auto began = distlock::clock::now();
        std::error_code ec;
        CHECK_FALSE(m.lock(ec));
        CHECK(ec == errc::read_only);
        CHECK(distlock::clock::now() - began >= 300ms);
    }
}

TEST_CASE("a service that refuses ROLE is a master until it says READONLY, and then another one is asked") {
    std::atomic<bool> demoted{false};
    const fake_server service(without_role(demoted));
    fake_sentinel one(service.port(), 1);
    sentinel_connection c(sentinel_uri_of({one.port()}));
    const auto set = [&](const std::string& value) { return c.execute({"SET", "sentinel", value}); };
    CHECK(set("a").is_status("OK"));
    one.name(a_server().port(), 2);
    CHECK(set("b").is_status("OK"));
    demoted = true;
    CHECK(eventually([&] { return set("c").is_status("OK"); }));
    CHECK(a_server().command({"GET", "sentinel"}) == "c");
    CHECK(service.commands("SET") >= 3);
}

TEST_CASE(
    "a pipeline that a server refuses since it is no master any more goes to the next in the same call") {
    std::atomic<bool> demoted{false};
    const fake_server service(without_role(demoted));
    fake_sentinel one(service.port(), 1);
    sentinel_connection c(sentinel_uri_of({one.port()}));
    const auto set = [&](const std::string& value) {
        const command renewal{"SET", "sentinel", value};
        reply answer;
        c.pipeline({&renewal, 1}, {&answer, 1});
        return answer;
    };
    CHECK(set("a").is_status("OK"));
    const auto asked = distlock::clock::now();
    one.name(a_server().port(), 2);
    demoted = true;
    // The Sentinels are asked ten times a second at most.
    REQUIRE(eventually([&] { return distlock::clock::now() - asked > 300ms; }));
    CHECK(set("by pipeline").is_status("OK"));
    CHECK(a_server().command({"GET", "sentinel"}) == "by pipeline");
}

TEST_CASE(
    "a command that a server refuses, alone or in a pipeline, is not sent to it again when the Sentinels "
    "still name it") {
    const bool alone = GENERATE(false, true);
    std::atomic<bool> demoted{false};
    const fake_server service(without_role(demoted));
    const fake_sentinel one(service.port(), 1);
    sentinel_connection c(sentinel_uri_of({one.port()}));
    REQUIRE(ping(c).answered());
    let_them_be_asked_again();
    demoted = true;
    const auto asked = one.server().commands("SENTINEL");
    const command renewal{"SET", "sentinel", "refused"};
    reply answer;
    if (alone) {
        answer = c.execute(renewal);
    } else {
        c.pipeline({&renewal, 1}, {&answer, 1});
    }
    CHECK(answer.is(reply_kind::error));
    CHECK(one.server().commands("SENTINEL") > asked);
    CHECK(service.commands("SET") == 1);
}

TEST_CASE("a post that finds no master is a reason to ask the Sentinels") {
    redis_server old(redis_server_options{.tcp = true});
    fake_sentinel one(old.port(), 1);
    sentinel_connection c(sentinel_uri_of({one.port()}));
    REQUIRE(ping(c).is_status("PONG"));
    let_them_be_asked_again();
    one.name(a_server().port(), 2);
    old.kill();
    CHECK_FALSE(c.post({"SET", "sentinel", "posted"}));
    c.follow();
    CHECK(c.post({"SET", "sentinel", "posted"}));
    CHECK(eventually([&] { return a_server().command({"GET", "sentinel"}) == "posted"; }));
}

TEST_CASE("the wait for the replicas of a write goes with it to the next master") {
    std::atomic<bool> demoted{false};
    const fake_server service(without_role(demoted));
    of_another_master here(service.port(), demoted);
    const distlock::replica_wait wait(1, 10ms);
    const command write{"SET", "sentinel", "in pairs"};
    const command all[] = {write, wait.behind(write)};
    reply answers[2];
    here.c.pipeline(all, answers);
    CHECK(answers[0].is_status("OK"));
    CHECK(answers[1].is_integer(0));
}

TEST_CASE("the wait for the replicas of a write that its master took is answered by that master alone") {
    std::atomic<bool> demoted{false};
    const fake_server old(without_role(demoted, [](const words& cmd) { return cmd.back() == "refused"; }));
    of_another_master here(old.port(), demoted);
    const distlock::replica_wait wait(1, 10ms);
    const command taken{"SET", "sentinel", "taken"};
    const command all[] = {{"SET", "sentinel", "refused"}, taken, wait.behind(taken)};
    reply answers[3];
    here.c.pipeline(all, answers);
    CHECK(answers[0].is_status("OK"));
    CHECK(a_server().command({"GET", "sentinel"}) == "refused");
    CHECK(answers[2].is_integer(7));
}

TEST_CASE(
    "a wait for replicas that is refused behind a write that was taken is not sent to the next master") {
    std::atomic<bool> demoted{false};
    const fake_server old(without_role(demoted, [](const words& cmd) { return cmd[0] == "WAIT"; }));
    of_another_master here(old.port(), demoted);
    const distlock::replica_wait wait(1, 10ms);
    const command taken{"SET", "sentinel", "taken"};
    const command all[] = {taken, wait.behind(taken)};
    reply answers[2];
    here.c.pipeline(all, answers);
    CHECK(answers[0].is_status("OK"));
    CHECK(answers[1].is(reply_kind::error));  // the next one would say that of its own writes
}

// It was judged by them, too, and the Sentinels were asked once more.
TEST_CASE("an older master's answer to a pipeline does not make the new one suspect") {
    std::atomic<bool> demoted{false};
    const fake_server old([&](fake_server::peer& p) {
        while (const auto cmd = p.next_command()) {
            if (demoted && !p.nap(50ms)) return;
            const bool is_role = cmd->at(0) == "ROLE";
            if (!p.send(is_role   ? "-NOPERM this user has no permissions to run the 'role' command\r\n"
                        : demoted ? "-READONLY You can't write against a read only replica.\r\n"
                                  : "+OK\r\n"))
                return;
        }
    });
    of_another_master here(old.port(), demoted, "?command_timeout=2s");
    command all[] = {{"SET", "sentinel", "too late"}, {"SET", "sentinel", "in time"}};
    all[0].until(distlock::clock::now() + 20ms);
    reply answers[2];
    here.c.pipeline(all, answers);
    CHECK(answers[0].is(reply_kind::error));
    CHECK(answers[1].is_status("OK"));
    const auto asked = here.one.server().commands("SENTINEL");
    let_them_be_asked_again();
    CHECK(ping(here.c).is_status("PONG"));
    CHECK(here.one.server().commands("SENTINEL") == asked);
}

TEST_CASE("Sentinels are found through others, and those of the URI are kept") {
    redis_server master(redis_server_options{.tcp = true});
    fake_sentinel found(master.port(), 1);
    auto named = std::make_unique<fake_sentinel>(master.port(), 1, std::vector{found.port()});
    sentinel_connection c(sentinel_uri_of({named->port()}));
    REQUIRE(ping(c).is_status("PONG"));
    CHECK(found.server().accepted() == 0);
    named.reset();
    found.name(a_server().port(), 2);
    master.kill();
    CHECK(eventually([&] { return ping(c).is_status("PONG"); }));
    CHECK(found.server().commands("SENTINEL") > 0);
}

TEST_CASE("many threads that lose their master ask the Sentinels together, and seldom") {
    const fake_sentinel one(dead_port(), 1);
    sentinel_connection c(sentinel_uri_of({one.port()}));
    const auto begin = std::chrono::steady_clock::now();
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 32; ++i) {
            threads.emplace_back([&] {
                while (std::chrono::steady_clock::now() < begin + 500ms) static_cast<void>(ping(c));
            });
        }
    }
    const auto took = std::chrono::steady_clock::now() - begin;
    CHECK(one.server().accepted() >= 2);
    CHECK(one.server().accepted() <= took / 100ms + 1);
}

TEST_CASE(
    "a thread that waits for another one's question to the Sentinels gives up at its deadline, or when it is "
    "stopped") {
    const fake_server silent(scripts::hang);
    sentinel_connection c(sentinel_uri_of({silent.port()}, "", "?command_timeout=1500ms"));
    std::jthread asker([&] { static_cast<void>(ping(c)); });
    REQUIRE(eventually([&] { return silent.accepted() == 1; }));
    command late{distlock::argument("PING")};
    late.until(distlock::clock::now() + 50ms);
    CHECK(time_of([&] { CHECK(c.execute(late).is(reply_kind::not_sent)); }) < 50ms + timing_tolerance);
    std::stop_source source;
    const auto token = source.get_token();
    command stopped{distlock::argument("PING")};
    stopped.until(token);
    std::jthread stopper([&] { source.request_stop(); });
    CHECK(time_of([&] { CHECK(c.execute(stopped).cause() == errc::cancelled); }) < timing_tolerance);
}

TEST_CASE("a caller who stops is not kept by silent Sentinels, nor a waiter by them or by a silent master") {
    const bool waits = GENERATE(false, true);
    const bool knows_a_master = GENERATE(false, true);
    const fake_server silent(scripts::hang);
    const fake_sentinel one(silent.port(), 1);
    sentinel_connection c(sentinel_uri_of({knows_a_master ? one.port() : silent.port()}, "",
                                          "?connect_timeout=10s&command_timeout=10s"));
    const auto news = c.subscribe("news");
    std::stop_source stop;
    bool stopped = false;
    distlock::clock::time_point ended;
    std::jthread caller([&, token = stop.get_token()] {
        if (waits) {
            distlock::listener mine(news, "");
            const auto until = distlock::clock::now() + 20s;
            stopped = mine.wait(until, token) == distlock::listener::woken::by_stop;
        } else {
            command ask{distlock::argument("PING")};
            stopped = c.execute(ask.until(token)).cause() == errc::cancelled;
        }
        ended = distlock::clock::now();
    });
    REQUIRE(eventually([&] { return !silent.received().empty(); }));
    const auto asked = distlock::clock::now();
    stop.request_stop();
    caller.join();
    CHECK(ended - asked < 3s);
    CHECK(stopped);
}

TEST_CASE("a caller who stops is not kept by Sentinels that are asked for the next master") {
    std::atomic<bool> demoted{false};
    const fake_server service(without_role(demoted));
    of_another_master next(service.port(), demoted, "?connect_timeout=20s&command_timeout=20s");
    next.one.slow_down(20s);
    const auto asked = [&] { return next.one.server().commands("SENTINEL"); };
    const int before = asked();
    std::stop_source stop;
    sleeper caller([&, token = stop.get_token()] {
        command ask{distlock::argument("PING")};
        static_cast<void>(next.c.execute(ask.until(token)));
    });
    REQUIRE(eventually([&] { return asked() > before; }));
    CHECK(service.commands("PING") == 2);  // the last one was refused
    stop.request_stop();
    CHECK(eventually([&] { return caller.done(); }));
}

TEST_CASE("a thread that waits for another one's question to the Sentinels goes on when that is answered") {
    const std::atomic<std::uint16_t> master = a_server().port();
    const fake_server one(slowly(master, 100ms));
    sentinel_connection c(sentinel_uri_of({one.port()}, "", "?command_timeout=2s"));
    std::jthread asker([&] { static_cast<void>(ping(c)); });
    REQUIRE(eventually([&] { return one.accepted() == 1; }));
    CHECK(time_of([&] { CHECK(ping(c).is_status("PONG")); }) < 100ms + timing_tolerance);
    CHECK(one.accepted() == 1);
}

TEST_CASE("a caller without time for the Sentinels' answers does not keep others from having them") {
    const std::atomic<std::uint16_t> master = a_server().port();
    const fake_server one(slowly(master, 100ms));
    sentinel_connection c(sentinel_uri_of({one.port()}, "", "?command_timeout=2s"));
    bool sent = true;
    std::jthread hasty([&] {
        command late{distlock::argument("PING")};
        late.until(distlock::clock::now() + 50ms);
        sent = !c.execute(late).is(reply_kind::not_sent);
    });
    REQUIRE(eventually([&] { return one.accepted() == 1; }));
    const auto said = ping(c);
    hasty.join();
    CHECK_FALSE(sent);
    CHECK_THAT(said.text(), contains_text("PONG"));
}

TEST_CASE("a caller without time for the Sentinels' answers does not keep others on a dead master") {
    redis_server old(redis_server_options{.tcp = true});
    std::atomic<std::uint16_t> master = old.port();
    const fake_server one(slowly(master, 100ms));
    sentinel_connection c(sentinel_uri_of({one.port()}, "", "?command_timeout=2s"));
    REQUIRE(ping(c).is_status("PONG"));
    master = a_server().port();
    old.kill();
    const auto asked = one.accepted();
    REQUIRE(eventually([&] {
        command late{distlock::argument("PING")};
        late.until(distlock::clock::now() + 20ms);
        CHECK_FALSE(c.execute(late).answered());
        return one.accepted() > asked;
    }));
    const auto took = time_of([&] { CHECK(eventually([&] { return ping(c).is_status("PONG"); })); });
    CHECK(took < 500ms + timing_tolerance);
}

TEST_CASE("without threads the Sentinels are asked one after the other") {
    const fake_sentinel one(a_server().port(), 1);
    const fake_sentinel two(a_server().port(), 1);
    CHECK(in_child([&]() noexcept {
        if (!let_no_thread_start()) return false;
        sentinel_connection c(sentinel_uri_of({one.port(), two.port()}));
        return ping(c).is_status("PONG");
    }));
}

TEST_CASE("a call that runs out of memory does not keep the next one from the master") {
    NOT_TESTED_UNLESS(allocations_can_fail(), operator_new_is_not_ours);
    const fake_sentinel one(a_server().port(), 1);
    bool failed = true;
    for (long nth = 1; failed; ++nth) {
        INFO("the allocation that failed: " << nth);
        sentinel_connection c(sentinel_uri_of({one.port()}));
        fail_allocation(nth);
        try {
            static_cast<void>(ping(c));
        } catch (const std::bad_alloc&) {}
        failed = allocation_failed();
        fail_allocation(0);
        REQUIRE(eventually([&] {
            command next{distlock::argument("PING")};
            next.until(distlock::clock::now() + 5s);
            return c.execute(next).is_status("PONG");
        }));
    }
}

TEST_CASE("a call tells that another server is the master also when it runs out of memory") {
    NOT_TESTED_UNLESS(allocations_can_fail(), operator_new_is_not_ours);
    struct listener final : distlock::master_listener {
        void master_changed() noexcept override { ++told; }
        std::atomic<int> told{0};
    };
    bool failed = true;
    for (long nth = 1; failed; ++nth) {
        INFO("the allocation that failed: " << nth);
        fake_sentinel one(a_server().port(), 1);
        sentinel_connection c(sentinel_uri_of({one.port()}));
        const auto heard = std::make_shared<listener>();
        c.on_master_change(heard);
        REQUIRE(ping(c).is_status("PONG"));
        one.name(another_server().port(), 2);
        REQUIRE(eventually([&] { return one.server().commands("SUBSCRIBE") == 1; }));
        one.announce();
        fail_allocation(nth);
        try {
            static_cast<void>(eventually([&] {
                c.follow();
                return heard->told == 1 || allocation_failed();
            }));
        } catch (const std::bad_alloc&) {}
        failed = allocation_failed();
        fail_allocation(0);
        REQUIRE(eventually([&] {
            static_cast<void>(ping(c));
            c.follow();
            return heard->told == 1;
        }));
    }
}

TEST_CASE(
    "another master ends all sockets to the old one at once, those in use, those that are idle, and those "
    "that are just opened") {
    std::atomic<int> ended{0};
    std::atomic<bool> frozen{false};
    const fake_server old([&](fake_server::peer& p) {
        while (const auto cmd = p.next_command()) {
            if (cmd->at(0) == "GET" || frozen) break;
            if (!p.send(cmd->at(0) == "ROLE" ? "*1\r\n$6\r\nmaster\r\n" : "+OK\r\n")) break;
        }
        p.wait_for_end();
        ++ended;
    });
    fake_sentinel one(old.port(), 1);
    sentinel_connection c(sentinel_uri_of({one.port()}, "", "?command_timeout=20s&connect_timeout=20s"));
    const std::vector<command> both{{"SET", "x"}, {"SET", "y"}};
    std::vector<reply> replies(2);
    c.pipeline(both, replies);  // its socket is idle from now on
    CHECK(replies[1].is_status("OK"));
    reply unanswered = reply::nil();
    std::jthread hangs([&] { unanswered = c.execute({"GET", "x"}); });
    REQUIRE(eventually([&] { return old.commands("GET") == 1; }));
    frozen = true;
    reply of_the_next = reply::nil();
    std::jthread connects([&] { of_the_next = ping(c); });
    REQUIRE(eventually([&] { return old.commands("ROLE") == 3; }));
    one.name(a_server().port(), 2);
    one.announce();
    const auto all_ended = [&] {
        c.follow();
        return ended == old.accepted();
    };
    CHECK(time_of([&] { CHECK(eventually(all_ended)); }) < 2s);
    hangs.join();
    connects.join();
    CHECK(unanswered.is(reply_kind::no_answer));
    CHECK(of_the_next.is_status("PONG"));
    CHECK(old.accepted() == 3);
    CHECK(ping(c).is_status("PONG"));
}

TEST_CASE(
    "locks that are held are renewed by another master while the old one hangs, and lost where it lacks "
    "them") {
    redis_server frozen(redis_server_options{.tcp = true});
    fake_sentinel one(frozen.port(), 1);
    sentinel_connection c(sentinel_uri_of({one.port()}, "", "?command_timeout=20s&connect_timeout=20s"));
    const auto seen = std::make_shared<counting_observer>();
    lock held{c, fresh_name(), {}, seen};
    lock missing{c, fresh_name(), {}, seen};
    held.lock();
    missing.lock();
    const auto lost = missing.lost();
    // What was replicated.
    another_server().command({"SET", held.name(), frozen.command({"GET", held.name()}), "PX", "30000"});
    frozen.pause();
    one.name(another_server().port(), 2);
    one.announce();
    CHECK(time_of([&] { CHECK(eventually([&] { return lost.stop_requested(); })); }) <
          300ms + timing_tolerance);
    CHECK(eventually([&] { return seen->masters == 2 && seen->losses == 1; }));
    CHECK(held.owns_lock());
    CHECK(held.unlock() == distlock::release_outcome::posted);
    CHECK(eventually([&] { return another_server().command({"EXISTS", held.name()}) == "0"; }));
}

TEST_CASE("an owner that only holds a lock is told when a Sentinel says that the master changed") {
    fake_sentinel one(a_server().port(), 1);
    sentinel_connection c(sentinel_uri_of({one.port()}));
    const auto seen = std::make_shared<counting_observer>();
    lock held{c, fresh_name(), {}, seen};
    held.lock();
    another_server().command({"SET", held.name(), a_server().command({"GET", held.name()}), "PX", "30000"});
    REQUIRE(eventually([&] { return one.server().commands("SUBSCRIBE") == 1; }));
    one.name(another_server().port(), 2);
    one.announce();
    CHECK(time_of([&] { CHECK(eventually([&] { return seen->masters == 1; })); }) < 300ms + timing_tolerance);
    const auto before = held.valid_until();
    CHECK(eventually(
        [&] { return held.valid_until() > before || held.valid_until() > distlock::clock::now() + 29s; }));
    CHECK(held.owns_lock());
}

TEST_CASE("an owner that only holds a lock, and not until it would be renewed, is told all the same") {
    fake_sentinel one(a_server().port(), 1);
    sentinel_connection c(sentinel_uri_of({one.port()}));
    const auto seen = std::make_shared<counting_observer>();
    lock held{c, fresh_name(), {.max_hold = 5s}, seen};
    held.lock();
    REQUIRE(eventually([&] { return one.server().commands("SUBSCRIBE") == 1; }));
    one.name(another_server().port(), 2);
    one.announce();
    CHECK(time_of([&] { CHECK(eventually([&] { return seen->losses == 1; })); }) < 300ms + timing_tolerance);
    CHECK(seen->masters == 1);
}

TEST_CASE("an owner that only holds a lock is told when the old master ends its sockets") {
    redis_server master(redis_server_options{.tcp = true});
    fake_sentinel one(master.port(), 1);
    sentinel_connection c(sentinel_uri_of({one.port()}));
    const auto seen = std::make_shared<counting_observer>();
    lock held{c, fresh_name(), {}, seen};
    held.lock();
    one.name(a_server().port(), 2);
    CHECK(master.command({"CLIENT", "KILL", "TYPE", "normal"}) != "0");
    CHECK(time_of([&] { CHECK(eventually([&] { return seen->losses == 1; })); }) < 300ms + timing_tolerance);
    CHECK(seen->masters == 1);
}

TEST_CASE(
    "Sentinels that name the master by another epoch end none of its sockets; by a newer one, what is held "
    "is "
    "renewed") {
    struct listener final : distlock::master_listener {
        void master_changed() noexcept override { ++told; }
        std::atomic<int> told{0};
    };
    const fake_server master(in_role("master"));
    fake_sentinel one(master.port(), 6);
    sentinel_connection c(sentinel_uri_of({one.port()}));
    const auto heard = std::make_shared<listener>();
    c.on_master_change(heard);
    REQUIRE(c.execute({"GET", "x"}).is_status("OK"));
    REQUIRE(eventually([&] { return one.server().commands("SUBSCRIBE") == 1; }));
    for (const int epoch : {5, 6, 0, 6, 7, 7, 4}) {
        INFO("epoch " << epoch);
        one.name(master.port(), epoch);
        const auto asked = one.server().commands("SENTINEL");
        one.announce();
        REQUIRE(eventually([&] {
            c.follow();
            return one.server().commands("SENTINEL") >= asked + 4;
        }));
        CHECK(c.execute({"GET", "x"}).is_status("OK"));
        CHECK(heard->told == (epoch == 7 || epoch == 4 ? 1 : 0));
    }
    CHECK(master.accepted() == 1);
    CHECK(one.server().commands("SUBSCRIBE") == 1);
}

TEST_CASE("a waiter hears of another master though the Sentinels were asked just before") {
    fake_sentinel one(a_server().port(), 1);
    sentinel_connection c(sentinel_uri_of({one.port()}));
    const auto name = fresh_name();
    for (const auto* const where : {&a_server(), &another_server()})
        REQUIRE(where->command({"SET", name, "somebody", "PX", "60000"}) == "OK");
    lock wanted{c, name, {.recheck = 1h}};
    const auto queued = [&](const redis_server& at) {
        return eventually([&] { return at.command({"ZCARD", "{" + name + "}:distlock:queue"}) == "1"; });
    };
    std::error_code ec;
    std::jthread waiter(
        [&](const std::stop_token& stop) { static_cast<void>(wanted.try_lock_for(1min, stop, ec)); });
    REQUIRE(queued(a_server()));
    REQUIRE(eventually([&] { return one.server().commands("SUBSCRIBE") == 1; }));
    for (int epoch = 2; epoch < 6; ++epoch) {
        INFO("epoch " << epoch);
        auto& next = epoch % 2 == 0 ? another_server() : a_server();
        const auto asked = one.server().commands("SENTINEL");
        one.announce();  // of nothing new
        REQUIRE(eventually([&] { return one.server().commands("SENTINEL") >= asked + 4; }));
        one.name(next.port(), epoch);
        one.announce();
        CHECK(queued(next));
        next.command({"DEL", "{" + name + "}:distlock:queue"});
    }
    waiter.request_stop();
    waiter.join();
    CHECK(ec == errc::cancelled);
    for (const auto* const where : {&a_server(), &another_server()}) where->command({"DEL", name});
}

TEST_CASE("the Sentinels are left in peace as long as their master answers, whatever becomes of others") {
    fake_sentinel one(a_server().port(), 1);
    sentinel_connection c(sentinel_uri_of({one.port()}, "", "?connect_timeout=20s&command_timeout=20s"));
    REQUIRE(ping(c).is_status("PONG"));
    REQUIRE(eventually([&] { return one.server().commands("SUBSCRIBE") == 1; }));
    const auto asked = one.server().commands("SENTINEL");
    one.announce("m2");
    // Time enough to ask them five times.
    for (const auto until = distlock::clock::now() + 500ms; distlock::clock::now() < until;) {
        CHECK(ping(c).is_status("PONG"));
        c.follow();
        ::poll(nullptr, 0, 10);
    }
    CHECK(one.server().commands("SENTINEL") == asked);
    one.announce("m");
    CHECK(eventually([&] {
        c.follow();
        return one.server().commands("SENTINEL") > asked;
    }));
}

TEST_CASE("the Sentinels are asked when the master ends the one socket there is, that for renewals") {
    std::atomic<bool> ends{false};
    const fake_server master([&](fake_server::peer& p) {
        while (const auto cmd = p.next_command()) {
            if (!p.send(cmd->at(0) == "ROLE" ? "*1\r\n$6\r\nmaster\r\n" : "+OK\r\n")) return;
            if (cmd->at(0) == "ROLE") continue;
            while (!ends) {
                if (!p.nap(1ms)) return;
            }
            return p.close();
        }
    });
    const fake_sentinel one(master.port(), 1);
    sentinel_connection c(sentinel_uri_of({one.port()}));
    const command renewal{distlock::argument("PING")};
    reply answer;
    c.pipeline({&renewal, 1}, {&answer, 1});
    REQUIRE(answer.is_status("OK"));
    const auto asked = one.server().commands("SENTINEL");
    c.follow();
    CHECK(one.server().commands("SENTINEL") == asked);
    ends = true;
    CHECK(eventually([&] {
        c.follow();
        return one.server().commands("SENTINEL") > asked;
    }));
    CHECK(master.accepted() == 1);
}

TEST_CASE("the Sentinels are asked again when the last one that was heard has hung up") {
    const fake_server one([](fake_server::peer& p) {
        while (const auto cmd = p.next_command()) {
            if (cmd->at(0) == "SUBSCRIBE") return;
            const bool names = cmd->size() > 1 && cmd->at(1) == "GET-MASTER-ADDR-BY-NAME";
            if (!p.send(names ? address(a_server().port()) : "-ERR x\r\n")) return;
        }
    });
    sentinel_connection c(sentinel_uri_of({one.port()}));
    REQUIRE(ping(c).is_status("PONG"));
    CHECK(eventually([&] {
        c.follow();
        return one.commands("SUBSCRIBE") >= 2;
    }));
}

// One that was restarted weeks ago was not listened to again: the one that was left might know nothing.
TEST_CASE("an owner that only holds a lock hears of the next master from a Sentinel that had hung up") {
    fake_sentinel one(a_server().port(), 1);
    fake_sentinel two(a_server().port(), 1);
    sentinel_connection c(sentinel_uri_of({one.port(), two.port()}, "", "?command_timeout=2s"));
    const auto seen = std::make_shared<counting_observer>();
    lock held{c, fresh_name(), {}, seen};
    held.lock();
    const auto listened = [](const fake_sentinel& to) { return to.server().commands("SUBSCRIBE"); };
    REQUIRE(eventually([&] { return listened(one) == 1 && listened(two) == 1; }));
    two.hang_up();
    REQUIRE(eventually([&] { return listened(two) == 2; }));
    CHECK(listened(one) == 1);
    one.name(another_server().port(), 2);
    two.name(another_server().port(), 2);
    two.announce();
    CHECK(time_of([&] { CHECK(eventually([&] { return seen->masters == 1; })); }) < 300ms + timing_tolerance);
}

// A waiter sends nothing for as long as `.recheck`, so nobody asked.
TEST_CASE("a process that only waits listens again to a Sentinel when the last one has hung up") {
    fake_sentinel one(a_server().port(), 1);
    sentinel_connection c(sentinel_uri_of({one.port()}));
    const auto listened = [&] { return one.server().commands("SUBSCRIBE"); };
    const auto news = c.subscribe("news");
    const auto reading = keep_reading(news);
    REQUIRE(eventually([&] { return news->in_force() && listened() == 1; }));
    one.hang_up();
    CHECK(eventually([&] { return listened() == 2; }));
}

// Its list of Sentinels, of which it forgets none, was longer than any reply may be: the socket broke off,
// and the next one was that of half a minute later.
TEST_CASE("a Sentinel that remembers hundreds of others is listened to on the socket that it was asked on") {
    const fake_sentinel one(a_server().port(), 1, std::vector<std::uint16_t>(1500, dead_port()));
    sentinel_connection c(sentinel_uri_of({one.port()}, "", "?command_timeout=20s"));
    const auto news = c.subscribe("news");
    const auto reading = keep_reading(news);
    REQUIRE(eventually([&] { return one.server().commands("SUBSCRIBE") == 1; }));
    let_them_be_asked_again();
    CHECK(one.server().accepted() == 1);
}

// The two that were heard decided, each time, before it had answered.
TEST_CASE("a Sentinel that had hung up is listened to again though it answers later than the others") {
    fake_sentinel one(a_server().port(), 1);
    fake_sentinel two(a_server().port(), 1);
    fake_sentinel three(a_server().port(), 1);
    sentinel_connection c(sentinel_uri_of({one.port(), two.port(), three.port()}, "", "?command_timeout=2s"));
    const auto listened = [](const fake_sentinel& to) { return to.server().commands("SUBSCRIBE"); };
    three.slow_down(100ms);
    REQUIRE(ping(c).is_status("PONG"));
    REQUIRE(eventually([&] { return listened(one) == 1 && listened(two) == 1; }));
    three.slow_down(0ms);
    two.slow_down(5ms);
    two.hang_up();
    CHECK(eventually([&] {
        c.follow();
        return listened(two) == 2;
    }));
}

TEST_CASE("Sentinels are asked for one that is gone, but not all the time") {
    fake_sentinel one(a_server().port(), 1);
    auto two = std::make_unique<fake_sentinel>(a_server().port(), 1);
    sentinel_connection c(sentinel_uri_of({one.port(), two->port()}, "", "?command_timeout=2s"));
    REQUIRE(ping(c).is_status("PONG"));
    REQUIRE(eventually([&] { return two->server().commands("SUBSCRIBE") == 1; }));
    two.reset();
    const auto asked = one.server().commands("SENTINEL");
    const auto began = distlock::clock::now();
    const auto questions = [&] { return (one.server().commands("SENTINEL") - asked) / 4; };
    CHECK(eventually([&] {
        c.follow();
        return questions() >= 2;
    }));
    CHECK(distlock::clock::now() - began >
          900ms);  // the first is for the one that may be back, the second a second later
    CHECK(questions() == 2);
}

// Every call waited for the thread that listened to it.
TEST_CASE("a Sentinel that talks without end keeps no call from its master") {
    const fake_server endless([](fake_server::peer& p) {
        while (const auto cmd = p.next_command()) {
            if (cmd->at(0) != "SUBSCRIBE") {
                const bool names = cmd->size() > 1 && cmd->at(1) == "GET-MASTER-ADDR-BY-NAME";
                if (!p.send(names ? address(a_server().port()) : "-ERR x\r\n")) return;
                continue;
            }
            std::string much;
            for (int i = 0; i < 1000; ++i)
                much += "*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$1\r\nx\r\n";
            while (p.send(much)) continue;
        }
    });
    sentinel_connection c(sentinel_uri_of({endless.port()}));
    REQUIRE(ping(c).is_status("PONG"));
    for (int i = 0; i < 5; ++i) {
        let_them_be_asked_again();
        CHECK(time_of([&] { CHECK(ping(c).is_status("PONG")); }) < 2s);
    }
}

// It subscribed at the old one once more, since it had asked a moment ago, and stayed there; or again and
// again, since what it asked of itself interrupted it.
TEST_CASE("a waiter for messages waits at the new master when a Sentinel says that it changed") {
    const fake_server old(publishes());
    const fake_server next(publishes());
    fake_sentinel one(old.port(), 1);
    sentinel_connection c(sentinel_uri_of({one.port()}));
    const auto news = c.subscribe("news");
    const auto reading = keep_reading(news);
    CHECK(eventually([&] { return old.commands("SUBSCRIBE") == 1 && news->in_force(); }));
    // They are asked ten times a second at most.
    const auto asked = distlock::clock::now();
    const bool may_be_asked = GENERATE(false, true);
    if (may_be_asked) CHECK(eventually([&] { return distlock::clock::now() - asked > 300ms; }));
    one.name(next.port(), 2);
    one.announce();
    CHECK(eventually([&] { return next.commands("SUBSCRIBE") > 0 && news->in_force(); }));
    const auto subscribed = distlock::clock::now();
    REQUIRE(eventually([&] { return distlock::clock::now() - subscribed > 100ms; }));
    CHECK(next.commands("SUBSCRIBE") == 1);
    CHECK(old.commands("SUBSCRIBE") == 1);
}

TEST_CASE("a waiter for messages that cannot connect asks for another master, though no Sentinel says so") {
    auto old = std::make_unique<fake_server>(publishes());
    const fake_server next(publishes());
    fake_sentinel one(old->port(), 1);
    sentinel_connection c(sentinel_uri_of({one.port()}));
    const auto news = c.subscribe("news");
    const auto reading = keep_reading(news);
    REQUIRE(eventually([&] { return news->in_force(); }));
    one.name(next.port(), 2);
    old.reset();
    CHECK(eventually([&] { return next.commands("SUBSCRIBE") == 1 && news->in_force(); }));
}

// A hand-over by the old master would be believed, when the new one had granted the lock to another.
TEST_CASE("a message that was received from the old master is not delivered once there is another") {
    const auto message = [](const std::string& text) {
        return "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$3\r\n" + text + "\r\n";
    };
    const fake_server old(publishes(0, message("one") + message("two")));
    const fake_server next(publishes());
    fake_sentinel one(old.port(), 1);
    sentinel_connection c(sentinel_uri_of({one.port()}));
    const auto news = c.subscribe("news");
    std::atomic<int> heard{0};
    std::atomic<bool> replaced{false};
    news->on_unclaimed([&](std::string_view text) {
        ++heard;
        if (text != "one") return;
        one.name(next.port(), 2);
        one.announce();
        replaced = eventually([&] {
            c.follow();
            static_cast<void>(c.execute({"GET", "a"}));
            return next.commands("GET") > 0;
        });
    });
    const auto reading = keep_reading(news);
    CHECK(eventually([&] { return next.commands("SUBSCRIBE") > 0 && news->in_force(); }));
    CHECK(replaced);
    CHECK(heard == 1);
}

namespace {

// Two servers that are the master by turns, and a waiter for messages.
struct masters_by_turns {
    masters_by_turns() {
        REQUIRE(eventually([&] { return news->in_force(); }));
    }
    /// Effects: the other one is the master, and the Sentinel says so.
    void change() {
        next = next == &second ? &first : &second;
        before = next->commands("SUBSCRIBE");
        one.name(next->port(), ++epoch);
        one.announce();
    }
    /// Returns: whether the waiter hears the master.
    bool is_heard() const { return next->commands("SUBSCRIBE") > before && news->in_force(); }

    const fake_server first{publishes()};
    const fake_server second{publishes()};
    const fake_server* next = &first;
    int before = 0;
    int epoch = 1;
    fake_sentinel one{first.port(), epoch};
    sentinel_connection c{sentinel_uri_of({one.port()})};
    const std::shared_ptr<distlock::subscription> news = c.subscribe("news");
    const std::jthread reading = keep_reading(news);
};

}  // namespace

TEST_CASE("a waiter for messages connects to each new master once") {
    masters_by_turns two;
    constexpr int changes = 8;
    for (int i = 0; i < changes; ++i) {
        two.change();
        REQUIRE(eventually([&] {
            two.c.follow();
            return two.is_heard();
        }));
    }
    // One or the other is broken off where the old one's socket ends before the waiter is told why.
    CHECK(two.first.accepted() + two.second.accepted() < 2 * changes);
}

// Once a second, and a waiter stayed in the old master's queue as long.
TEST_CASE("a waiter for messages looks ten times a second whether a Sentinel told of another master") {
    masters_by_turns two;
    const auto took = time_of([&] {
        for (int i = 0; i < 4; ++i) {
            // They are asked ten times a second at most.
            const auto from = distlock::clock::now();
            REQUIRE(eventually([&] { return distlock::clock::now() - from > 150ms; }));
            two.change();
            REQUIRE(eventually([&] { return two.is_heard(); }));
        }
    });
    CHECK(took < 2500ms);
}

TEST_CASE("a new master is tried by a waiter for messages as if the old one had never hung up") {
    const fake_server old(publishes(1000));
    const fake_server next(publishes(4));
    fake_sentinel one(old.port(), 1);
    sentinel_connection c(sentinel_uri_of({one.port()}));
    const auto news = c.subscribe("news");
    const auto reading = keep_reading(news);
    REQUIRE(eventually([&] { return old.accepted() >= 7; }));  // from now on in pauses of half a second
    const auto took = time_of([&] {
        one.name(next.port(), 2);
        one.announce();
        CHECK(eventually([&] {
            c.follow();
            return news->in_force();
        }));
    });
    CHECK(took < 1800ms);  // pauses of 10, 20, 40 and 80 ms
}

TEST_CASE(
    "two of the sockets to a master that many threads needed at once are kept, while they wait for "
    "messages") {
    constexpr int threads = 8;
    const redis_server master(redis_server_options{.tcp = true});
    const fake_sentinel one(master.port(), 1);
    sentinel_connection c(sentinel_uri_of({one.port()}, "", "?connect_timeout=20s&command_timeout=20s"));
    const auto sockets = [&] {
        const std::string list = master.command({"CLIENT", "LIST", "TYPE", "normal"});
        return std::count(list.begin(), list.end(), '\n') - 1;  // but for the one it is asked on
    };
    std::vector<std::jthread> busy;
    for (int i = 0; i < threads; ++i)
        busy.emplace_back([&] { static_cast<void>(c.execute({"BLPOP", "list", "20"})); });
    const bool used = eventually([&] { return sockets() == threads; });
    for (int i = 0; i < threads; ++i) master.command({"RPUSH", "list", "x"});
    busy.clear();
    REQUIRE(used);
    const auto reading = keep_reading(c.subscribe("news"));
    CHECK(eventually([&] { return sockets() == 2; }));
}

TEST_CASE("a waiter for messages gives a master that is slow to say its role the time to connect") {
    const fake_server master([](fake_server::peer& p) {
        while (const auto cmd = p.next_command()) {
            const bool role = cmd->at(0) == "ROLE";
            if (role && !p.nap(300ms)) return;
            if (!p.send(role ? "*1\r\n$6\r\nmaster\r\n" : "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n"))
                return;
        }
    });
    const fake_sentinel one(master.port(), 1);
    sentinel_connection c(sentinel_uri_of({one.port()}, "", "?connect_timeout=5s&command_timeout=200ms"));
    const auto news = c.subscribe("news");
    distlock::listener mine(news, "");
    CHECK(mine.wait(distlock::clock::now() + 10s, {}) == distlock::listener::woken::by_confirmation);
}

TEST_CASE("a master goes on at its own speed though all Sentinels have fallen silent") {
    redis_server master(redis_server_options{.tcp = true});
    std::atomic<bool> silent{false};
    const fake_server relay(falls_silent(master.port(), silent));
    sentinel_connection c(sentinel_uri_of({relay.port()}));
    REQUIRE(ping(c).is_status("PONG"));
    silent = true;
    master.kill();
    CHECK_FALSE(ping(c).answered());
    master.start();
    CHECK(eventually([&] { return ping(c).is_status("PONG"); }));
    const auto asked = relay.accepted();
    CHECK(time_of([&] {
              for (int i = 0; i < 1000; ++i) REQUIRE(ping(c).is_status("PONG"));
          }) < 10s);  // none of them waited for a Sentinel
    CHECK(relay.accepted() <= asked + 2);
}

// All stood still while one asked, for as long as it did, once a second: renewals, too.
TEST_CASE("a caller that has a master waits for no other that asks Sentinels that were silent before") {
    redis_server master(redis_server_options{.tcp = true});
    std::atomic<bool> silent{false};
    const fake_server relay(falls_silent(master.port(), silent));
    sentinel_connection c(sentinel_uri_of({relay.port()}, "", "?connect_timeout=2s&command_timeout=2s"));
    REQUIRE(ping(c).is_status("PONG"));
    int asked = relay.accepted();
    silent = true;
    master.kill();
    CHECK_FALSE(ping(c).answered());
    master.start();
    CHECK(eventually([&] { return ping(c).is_status("PONG") && relay.accepted() > asked; }));
    const std::jthread asks([&](const std::stop_token& stop) {
        while (!stop.stop_requested()) static_cast<void>(ping(c));
    });
    for (int i = 0; i < 2; ++i) {
        asked = relay.accepted();
        REQUIRE(eventually([&] { return relay.accepted() > asked; }));
        CHECK(time_of([&] { CHECK(ping(c).is_status("PONG")); }) < 500ms);
    }
}

// Each asked until its time was over, and the master was sent what nobody waited for.
TEST_CASE("a call with little time is answered by the master though all Sentinels have fallen silent") {
    redis_server master(redis_server_options{.tcp = true});
    std::atomic<bool> silent{false};
    const fake_server relay(falls_silent(master.port(), silent));
    sentinel_connection c(sentinel_uri_of({relay.port()}, "", "?command_timeout=2s"));
    REQUIRE(ping(c).is_status("PONG"));
    const auto ping_soon = [&] {
        command soon{distlock::argument("PING")};
        soon.until(distlock::clock::now() + 2 * timing_tolerance);
        return c.execute(soon);
    };
    silent = true;
    master.kill();
    CHECK_FALSE(ping_soon().answered());
    master.start();
    const auto asked = relay.accepted();
    const auto begun = distlock::clock::now();
    for (int i = 0; i < 20; ++i) {
        CHECK(ping_soon().is_status("PONG"));
        ::poll(nullptr, 0, 50);
    }
    // After 100 ms, 200 ms, 400 ms, and then once a second.
    CHECK(relay.accepted() - asked <= 5 + (distlock::clock::now() - begun) / 1s);
}

TEST_CASE(
    "Sentinels that were asked in vain are left in peace for a second, also where callers may be stopped") {
    const std::atomic<std::uint16_t> master = dead_port();
    std::atomic<bool> silent{false};
    const fake_server relay([&](fake_server::peer& p) {
        if (silent) return static_cast<void>(p.wait_for_end());
        slowly(master, 0ms)(p);
    });
    sentinel_connection c(sentinel_uri_of({relay.port()}, "", "?connect_timeout=50ms&command_timeout=50ms"));
    CHECK(eventually([&] { return !ping(c).answered() && relay.accepted() > 0; }));
    silent = true;
    const auto asked = relay.accepted();
    const std::stop_source stop;
    const auto token = stop.get_token();
    for (const auto until = distlock::clock::now() + 1500ms; distlock::clock::now() < until;) {
        command alive{distlock::argument("PING")};
        alive.until(token);
        CHECK_FALSE(c.execute(alive).answered());
        ::poll(nullptr, 0, 5);
    }
    CHECK(relay.accepted() <= asked + 3);
}

TEST_CASE("a child after fork() can only destroy the connection") {
    const fake_sentinel one(a_server().port(), 1);
    sentinel_connection c(sentinel_uri_of({one.port()}));
    lock held{c, fresh_name()};
    held.lock();
    auto copied = std::make_unique<sentinel_connection>(sentinel_uri_of({one.port()}));
    REQUIRE(ping(*copied).is_status("PONG"));
    CHECK(in_child([&] {
        if (ping(c).cause() != errc::wrong_process || c.post({"PING", "x"})) return false;
        c.collect();
        c.follow();
        if (held.owns_lock()) return false;
        copied.reset();
        if (!threads_in_a_child) return true;
        sentinel_connection own(sentinel_uri_of({one.port()}));
        return ping(own).is_status("PONG");
    }));
    CHECK(held.owns_lock());
}

}  // namespace sentinel_faults_tests
