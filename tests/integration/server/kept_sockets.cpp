// Which sockets a hiredis_connection keeps: none that leads to a demoted master, none that may have fallen
// silent with another, and one for pipelines that no command can take.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <poll.h>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/hiredis/handshake.hpp>
#include <distlock/hiredis/node_pool.hpp>
#include <distlock/net/uri.hpp>
#include <distlock/wire/acknowledgement.hpp>
#include <distlock/wire/server_error.hpp>

#include "support/catch.hpp"
#include "support/collected.hpp"
#include "support/fake_server.hpp"
#include "support/hiredis_test.hpp"
#include "support/in_child.hpp"
#include "support/moody_server.hpp"
#include "support/server_counts.hpp"
#include "support/sleepers.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace kept_sockets_tests {

using namespace hiredis_test;
using distlock::receipt;

namespace {

// Effects: the connection has so many idle sockets.
void fill(hiredis_connection& redis, moody_server& server, int count) {
    server.hold();
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) threads.emplace_back([&] { static_cast<void>(redis.execute({"HOLD"})); });
    const bool all = eventually([&] { return server.holding() == count; });
    server.let_go();
    for (std::thread& t : threads) t.join();
    server.hold();
    REQUIRE(all);
    REQUIRE(server.accepted() == count);
}

std::array<reply, 2> pipeline(hiredis_connection& redis, const command& first, const command& second) {
    const std::array<command, 2> both{first, second};
    std::array<reply, 2> replies;
    redis.pipeline(both, replies);
    return replies;
}

// The same with little time.
command soon(command cmd) { return cmd.until(clock::now() + 300ms); }
// Others are asked meanwhile.
command later(command cmd) { return cmd.until(clock::now() + 2s); }

std::int64_t id_of_a_command(hiredis_connection& redis) { return redis.execute({"CLIENT", "ID"}).number(); }
std::int64_t id_of_a_pipeline(hiredis_connection& redis) {
    return pipeline(redis, {"PING"}, {"CLIENT", "ID"})[1].number();
}

bool blocked(const std::string& info, int how_many) {
    return info.find("blocked_clients:" + std::to_string(how_many) + "\r") != std::string::npos;
}

const std::string demoted = "-READONLY You can't write against a read only replica.\r\n";

}  // namespace

// After a fail-over behind a stable name a connection never left the demoted master: a socket
// that answered was kept.
TEST_CASE("no socket that led to a server is used again when that says it is no master") {
    const std::string said = GENERATE(
        as<std::string>{}, demoted,
        "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is no\r\n",
        "-UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)\r\n",
        "-ERR Error running script (call to f_6b1b): @user_script:1: @user_script: 1: -READONLY You "
        "can't\r\n");
    const bool in_a_pipeline = GENERATE(false, true);
    INFO(said);
    moody_server server;
    hiredis_connection redis(server.uri());
    fill(redis, server, 3);
    server.change(said);
    if (in_a_pipeline) {
        CHECK(pipeline(redis, {"GET", "a"}, {"GET", "b"})[0].is(reply_kind::error));
    } else {
        CHECK(redis.execute({"GET", "a"}).is(reply_kind::error));
    }
    CHECK(redis.execute({"GET", "a"}).is_status("OK"));
    CHECK(server.accepted() == 4);
    CHECK(eventually([&] { return server.closed() == 3; }));
    CHECK(server.reset() == 0);
}

TEST_CASE("the caller does not notice that its idle socket was reset") {
    const bool in_a_pipeline = GENERATE(false, true);
    std::atomic<bool> gone{false};
    fake_server server([&](fake_server::peer& p) {
        while (const auto asked = p.next_command()) {
            if (!p.send("+OK\r\n")) return;
            if (p.number() > 0 || asked->at(0) != "LAST") continue;
            p.reset();
            gone = true;
            return;
        }
    });
    hiredis_connection redis(server.uri());
    if (in_a_pipeline) CHECK(pipeline(redis, {"PING"}, {"LAST"})[1].is_status("OK"));
    if (!in_a_pipeline) CHECK(redis.execute({"LAST"}).is_status("OK"));
    REQUIRE(eventually([&] { return gone.load(); }));
    if (in_a_pipeline) CHECK(pipeline(redis, {"PING"}, {"PING"})[1].is_status("OK"));
    if (!in_a_pipeline) CHECK(redis.execute({"PING"}).is_status("OK"));
    CHECK(server.accepted() == 2);
}

// Each of the two had the whole time: a pipeline took connect_timeout() twice.
TEST_CASE("a call that opens a second socket in vain takes no longer for both than for one") {
    std::atomic<bool> second{false};
    std::atomic<bool> gone{false};
    fake_server server([&](fake_server::peer& p) {
        if (p.number() > 0) {
            second = true;
            p.wait_for_end();  // answers nothing
            return;
        }
        for (int i = 0; i < 2 && p.next_command(); ++i) p.send("+OK\r\n");  // SELECT, PING
        gone = eventually([&] { return second.load(); });
        p.close();
    });
    hiredis_connection redis(server.uri("", "/3?connect_timeout=400ms"));
    REQUIRE(redis.execute({"PING"}).is_status("OK"));
    reply answer;
    CHECK(time_of([&] { answer = pipeline(redis, {"PING"}, {"PING"})[0]; }) <= 400ms + timing_tolerance);
    CHECK_FALSE(answer.answered());
    CHECK(gone);
    CHECK(server.accepted() >= 2);
}

TEST_CASE("an error that is no change of roles leaves the sockets as they are") {
    moody_server server;
    hiredis_connection redis(server.uri());
    fill(redis, server, 2);
    server.change("-BUSY Redis is busy running a script. READONLY UNBLOCKED\r\n");
    CHECK(redis.execute({"GET", "a"}).is(reply_kind::error));
    CHECK(redis.execute({"GET", "a"}).is(reply_kind::error));
    CHECK(server.accepted() == 2);
}

// It became the one for pipelines: where connections had run out, the next renewal found it
// closed, and no other.
TEST_CASE("a socket on which the server said that it has its fill of clients is not used again") {
    const bool in_a_pipeline = GENERATE(false, true);
    moody_server server;
    hiredis_connection redis(server.uri());
    if (in_a_pipeline) CHECK(pipeline(redis, {"GET", "a"}, {"GET", "b"})[1].is_status("OK"));
    if (!in_a_pipeline) fill(redis, server, 1);
    server.change("-ERR max number of clients reached\r\n");
    const reply turned_away =
        in_a_pipeline ? pipeline(redis, {"GET", "a"}, {"GET", "b"})[0] : redis.execute({"GET", "a"});
    CHECK(turned_away.is(reply_kind::error));
    CHECK(pipeline(redis, {"GET", "a"}, {"GET", "b"})[1].is_status("OK"));
    CHECK(redis.execute({"GET", "a"}).is_status("OK"));
    CHECK(server.accepted() == 3);
}

TEST_CASE("a socket on which the answer to a posted command said so is not used again, either") {
    moody_server server;
    hiredis_connection redis(server.uri());
    fill(redis, server, 1);
    server.change("-ERR max number of clients reached\r\n");
    const int before = server.answered();
    const auto posted = clock::now();
    REQUIRE(redis.post({"DEL", "a"}));
    REQUIRE(eventually([&] { return server.answered() > before && clock::now() - posted > 20ms; }));
    CHECK(redis.execute({"GET", "a"}).is_status("OK"));
    CHECK(server.accepted() == 2);
}

TEST_CASE("a change of roles that is read in the answer to a posted command counts, too") {
    const bool collected = GENERATE(false, true);
    moody_server server;
    hiredis_connection redis(server.uri());
    fill(redis, server, 2);
    server.change(demoted);
    const int before = server.answered();
    const auto posted = clock::now();
    const auto told = std::make_shared<receipt>();
    REQUIRE(redis.post({"SET", "a", "1"}, told));
    // The next command looks whether there is an answer to what was posted longer than a millisecond ago.
    REQUIRE(eventually([&] { return server.answered() > before && clock::now() - posted > 20ms; }));
    if (collected) redis.collect();
    CHECK(redis.execute({"GET", "a"}).is_status("OK"));
    CHECK(server.accepted() == 3);
    const auto answer = told->answer();
    REQUIRE(answer);
    CHECK_THAT(answer->text(), contains_text("READONLY"));
}

TEST_CASE("a command that a change of roles ends leaves no socket to that server") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const auto before = id_of_a_command(redis);
    reply ended;
    std::thread waiter([&] { ended = redis.execute({"BLPOP", "list", "0"}); });
    const bool waits = eventually([&] { return blocked(server.command({"INFO", "clients"}), 1); });
    const auto last = id_of_a_pipeline(redis);
    server.command({"REPLICAOF", "127.0.0.1", "1"});
    waiter.join();
    REQUIRE(waits);
    CHECK_THAT(ended.text(), contains_text("UNBLOCKED"));
    CHECK(id_of_a_command(redis) > std::max(before, last));
    CHECK(eventually([&] { return sockets_at(server) == 1; }));
}

TEST_CASE("a socket that was in use when the roles changed is not kept, either") {
    moody_server server;
    hiredis_connection redis(server.uri());
    fill(redis, server, 2);
    std::thread other([&] { static_cast<void>(redis.execute({"HOLD"})); });
    const bool holds = eventually([&] { return server.holding() == 1; });
    server.change(demoted);
    CHECK(redis.execute({"GET", "a"}).is(reply_kind::error));
    server.change("+OK\r\n");
    server.let_go();
    other.join();
    REQUIRE(holds);
    CHECK(redis.execute({"GET", "a"}).is_status("OK"));
    CHECK(server.accepted() == 3);
    CHECK(eventually([&] { return server.closed() == 2; }));
}

TEST_CASE("late replies of a demoted server do not part a connection from the new master") {
    moody_server server;
    hiredis_connection redis(server.uri());
    fill(redis, server, 2);
    std::thread other([&] { static_cast<void>(redis.execute({"HOLD"})); });
    const bool holds = eventually([&] { return server.holding() == 1; });
    server.change(demoted);
    CHECK(redis.execute({"GET", "a"}).is(reply_kind::error));
    CHECK(redis.execute({"GET", "a"}).is_status("OK"));
    server.let_go();
    other.join();
    REQUIRE(holds);
    CHECK(redis.execute({"GET", "a"}).is_status("OK"));
    CHECK(server.accepted() == 3);
}

// Sixteen idle sockets were tried one after the other, each for the whole command time-out.
TEST_CASE("when a socket has fallen silent, the idle ones that were not heard from since are not tried") {
    moody_server server;
    hiredis_connection redis(server.uri());
    fill(redis, server, 4);
    server.change("");
    CHECK(redis.execute(soon({"GET", "a"})).is(reply_kind::no_answer));
    CHECK(redis.execute({"GET", "a"}).is_status("OK"));
    CHECK(server.accepted() == 5);
    CHECK(eventually([&] { return server.closed() + server.reset() == 4; }));
}

TEST_CASE("a socket that was heard from since another fell silent is kept") {
    moody_server server;
    hiredis_connection redis(server.uri());
    fill(redis, server, 2);
    std::thread other([&] { static_cast<void>(redis.execute(later({"HOLD"}))); });
    const bool holds = eventually([&] { return server.holding() == 1; });
    CHECK(redis.execute({"GET", "a"}).is_status("OK"));
    other.join();
    server.let_go();
    REQUIRE(holds);
    CHECK(redis.execute({"GET", "a"}).is_status("OK"));
    CHECK(server.accepted() == 2);
}

// A server that ends its sockets ends one after the other: what was sent once more was lost with the next
// one.
TEST_CASE("when the server ends a socket in use, a new one is opened in its place, and the others are kept") {
    moody_server server;
    hiredis_connection redis(server.uri());
    fill(redis, server, 4);
    server.change("hang up");
    CHECK(redis.execute({"GET", "a"}).is(reply_kind::no_answer));
    CHECK(redis.execute({"GET", "a"}).is_status("OK"));
    CHECK(server.accepted() == 5);
    server.change("+OK\r\n");
    std::thread other([&] { static_cast<void>(redis.execute({"HOLD"})); });
    const bool holds = eventually([&] { return server.holding() == 1; });
    CHECK(redis.execute({"GET", "a"}).is_status("OK"));
    CHECK(server.accepted() == 5);
    CHECK(server.closed() + server.reset() == 1);
    server.let_go();
    other.join();
    CHECK(holds);
}

TEST_CASE(
    "a socket that is kept will do where no new one can be had in the place of one that the server ended") {
    moody_server server;
    hiredis_connection redis(server.uri());
    fill(redis, server, 3);
    server.change("hang up");
    CHECK(redis.execute({"GET", "a"}).is(reply_kind::no_answer));
    server.change("+OK\r\n");
    server.be_full();
    CHECK(redis.execute({"GET", "a"}).is_status("OK"));
    CHECK(server.accepted() == 4);
    CHECK(redis.execute({"GET", "a"}).is_status("OK"));
    CHECK(server.accepted() == 4);
}

TEST_CASE("a stop request says nothing of the server: the next command takes a socket that is kept") {
    moody_server server;
    hiredis_connection redis(server.uri());
    fill(redis, server, 2);
    std::stop_source source;
    const auto stop = source.get_token();
    std::thread other([&] { static_cast<void>(redis.execute(command{"HOLD"}.until(stop))); });
    const bool holds = eventually([&] { return server.holding() == 1; });
    source.request_stop();
    other.join();
    CHECK(redis.execute({"GET", "a"}).is_status("OK"));
    CHECK(server.accepted() == 2);
    server.let_go();
    CHECK(holds);
}

TEST_CASE("a command that was only posted says nothing of its server, and is delivered all the same") {
    moody_server server;
    hiredis_connection redis(server.uri());
    fill(redis, server, 2);
    std::thread other([&] { static_cast<void>(redis.execute(later({"HOLD"}))); });
    const bool holds = eventually([&] { return server.holding() == 1; });
    CHECK(redis.post({"DEL", "a"}));
    other.join();
    server.let_go();
    REQUIRE(holds);
    CHECK(redis.execute({"GET", "a"}).is_status("OK"));
    CHECK(server.accepted() == 3);
    CHECK(server.commands("DEL") == 1);
}

TEST_CASE("the socket for pipelines is not tried, either, when another has fallen silent") {
    moody_server server;
    hiredis_connection redis(server.uri());
    CHECK(pipeline(redis, {"GET", "a"}, {"GET", "b"})[1].is_status("OK"));
    CHECK(redis.execute({"GET", "a"}).is_status("OK"));
    REQUIRE(server.accepted() == 2);
    server.change("");
    CHECK(redis.execute(soon({"GET", "a"})).is(reply_kind::no_answer));
    CHECK(pipeline(redis, {"GET", "a"}, {"GET", "b"})[1].is_status("OK"));
}

TEST_CASE("from the first one on pipelines have a socket that no command uses while others can be had") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const auto first = id_of_a_command(redis);
    const auto reserved = id_of_a_pipeline(redis);
    CHECK(reserved != first);
    for (int i = 0; i < 5; ++i) {
        CHECK(id_of_a_command(redis) == first);
        CHECK(id_of_a_pipeline(redis) == reserved);
    }
    CHECK(sockets_at(server) == 2);
}

// The only socket became the one for pipelines: after the first renewal unlock() connected anew, for
// a round trip or more.
TEST_CASE("a release that is posted while the first renewal is on its way connects to nothing") {
    std::atomic<bool> held{false};
    fake_server server([&](fake_server::peer& p) {
        while (const auto asked = p.next_command()) {
            if (asked->at(0) == "HOLD") held = true;
            if (asked->at(0) != "HOLD" && !p.send("+OK\r\n")) break;
        }
    });
    hiredis_connection redis(server.uri("", patient));
    CHECK(redis.execute({"SET", "a", "1"}).is_status("OK"));
    std::jthread renews([&] { static_cast<void>(pipeline(redis, soon({"HOLD"}), soon({"HOLD"}))); });
    const bool on_its_way = eventually([&] { return held.load(); });
    const int before = server.accepted();
    CHECK(redis.post({"DEL", "a"}));
    CHECK(eventually([&] { return server.commands("DEL") == 1; }));
    CHECK(server.accepted() == before);
    renews.join();
    CHECK(on_its_way);
}

TEST_CASE(
    "pipelines are answered on the only socket, in order, where the server has no room for a second one") {
    fake_server server([](fake_server::peer& p) {
        if (p.number() > 0) {
            p.send("-ERR max number of clients reached\r\n");
            return;
        }
        for (int nth = 1; p.next_command() && p.send(":" + std::to_string(nth) + "\r\n"); ++nth) continue;
    });
    hiredis_connection redis(server.uri("", patient));
    CHECK(redis.execute({"INCR", "a"}).is_integer(1));
    const auto both = pipeline(redis, {"INCR", "a"}, {"INCR", "a"});
    CHECK(both[0].is_integer(2));
    CHECK(both[1].is_integer(3));
    CHECK(redis.execute({"INCR", "a"}).is_integer(4));
    CHECK(server.accepted() == 3);
}

TEST_CASE("a posted command goes on the socket for pipelines rather than wait for a new one") {
    moody_server server;
    hiredis_connection redis(server.uri());
    CHECK(pipeline(redis, {"GET", "a"}, {"GET", "b"})[1].is_status("OK"));
    const auto told = std::make_shared<receipt>();
    CHECK(redis.post({"DEL", "a"}, told));
    CHECK(redis.post({"DEL", "b"}));
    CHECK(eventually([&] { return server.commands("DEL") == 2; }));
    CHECK(server.accepted() == 1);
    CHECK(pipeline(redis, {"GET", "a"}, {"GET", "b"})[1].is_status("OK"));
    CHECK(told->answer());
    CHECK(server.commands("DEL") == 2);
    CHECK(redis.execute({"GET", "a"}).is_status("OK"));
    CHECK(redis.post({"DEL", "c"}));
    CHECK(eventually([&] { return server.commands("DEL") == 3; }));
    CHECK(server.accepted() == 2);
}

namespace {

// A server that has room for so many connections, or for all, answers with the number of the command on its
// connection, to HOLD when it is told to, and hangs up on QUIT, and on HOLD QUIT when it is told to.
class full_server {
  public:
    explicit full_server(int room)
        : room_(room), front_([this](fake_server::peer& p) {
              if (p.number() >= room_) {
                  p.send("-ERR max number of clients reached\r\n");
                  return;
              }
              int nth = 0;
              while (const auto asked = p.next_command()) {
                  if (asked->at(0) == "QUIT") break;
                  if (asked->at(0) == "HOLD") {
                      ++holding_;
                      eventually([&] { return let_go_.load(); });
                      if (asked->size() > 1) break;
                  }
                  if (!p.send(":" + std::to_string(++nth) + "\r\n")) break;
              }
          }) {}
    std::string uri() const { return front_.uri("", patient); }
    int accepted() const { return front_.accepted(); }
    int holding() const { return holding_; }
    void let_go() { let_go_ = true; }
    void make_room() { room_ = std::numeric_limits<int>::max(); }

  private:
    std::atomic<int> room_;
    std::atomic<int> holding_{0};
    std::atomic<bool> let_go_{false};
    fake_server front_;  // last: its threads use the others
};

// Effects: asks a server for what it HOLDs, until a stop request or a time-out. Returns: the answer.
reply give_up(hiredis_connection& redis, full_server& server, bool stops) {
    std::stop_source stop;
    reply given_up;
    const std::stop_token token = stop.get_token();
    std::thread other([&] {
        command hold{"HOLD"};
        if (stops) given_up = redis.execute(hold.until(token));
        if (!stops) given_up = redis.execute(soon(hold));
    });
    const bool holds = eventually([&] { return server.holding() == 1; });
    stop.request_stop();
    other.join();
    REQUIRE(holds);
    return given_up;
}

}  // namespace

// The socket was shut down or given up with it, the full server gave it to another client, and
// what was held was lost.
TEST_CASE("neither a stop request nor a time-out of a command costs pipelines their socket") {
    const bool stops = GENERATE(false, true);
    full_server server(1);
    hiredis_connection redis(server.uri());
    CHECK(pipeline(redis, {"GET", "a"}, {"GET", "b"})[1].is_integer(2));
    const reply given_up = give_up(redis, server, stops);
    CHECK(given_up.is(reply_kind::no_answer));
    CHECK(given_up.cause() == (stops ? errc::cancelled : errc::no_reply));
    const auto told = std::make_shared<receipt>();
    CHECK(redis.post({"DEL", "a"}, told));
    server.let_go();
    const auto both = pipeline(redis, {"GET", "a"}, {"GET", "b"});
    CHECK(both[0].is_integer(5));
    CHECK(both[1].is_integer(6));
    const auto answer = told->answer();
    REQUIRE(answer);
    CHECK(answer->is_integer(4));
    CHECK(redis.execute({"GET", "a"}).is_integer(7));
}

TEST_CASE("a pipeline that waits for its socket opens another as soon as that has ended under a command") {
    full_server server(1);
    hiredis_connection redis(server.uri());
    CHECK(pipeline(redis, {"GET", "a"}, {"GET", "b"})[1].is_integer(2));
    sleeper holds([&] { redis.execute({"HOLD", "QUIT"}); });
    REQUIRE(eventually([&] { return server.holding() == 1; }));
    reply answered;
    sleeper renews([&] { answered = pipeline(redis, {"GET", "a"}, {"GET", "b"})[1]; });
    REQUIRE(renews.sleeps());
    server.make_room();
    server.let_go();
    CHECK(eventually([&] { return renews.done(); }, 500ms + timing_tolerance));  // a wait looks every second
    renews.join();
    CHECK(answered.is_integer(2));
}

TEST_CASE("a pipeline that waited for its socket in vain leaves it to commands that find no other") {
    full_server server(1);
    hiredis_connection redis(server.uri());
    CHECK(pipeline(redis, {"GET", "a"}, {"GET", "b"})[1].is_integer(2));
    reply held;
    std::thread holds([&] { held = redis.execute({"HOLD"}); });
    CHECK(eventually([&] { return server.holding() == 1; }));
    CHECK_FALSE(pipeline(redis, soon({"GET", "a"}), soon({"GET", "b"}))[1].is(reply_kind::integer));
    server.let_go();
    holds.join();
    CHECK(held.is_integer(3));
    CHECK(redis.execute({"GET", "a"}).is_integer(4));
}

TEST_CASE(
    "a forked child that destroys its connection leaves the socket for pipelines, on which a command was "
    "given up") {
    full_server server(1);
    auto redis = std::make_unique<hiredis_connection>(server.uri());
    CHECK(pipeline(*redis, {"GET", "a"}, {"GET", "b"})[1].is_integer(2));
    CHECK_FALSE(give_up(*redis, server, true).answered());
    CHECK(in_child([&] {
        redis.reset();
        return true;
    }));
    server.let_go();
    CHECK(pipeline(*redis, {"GET", "a"}, {"GET", "b"})[1].is_integer(5));
    CHECK(server.accepted() == 2);
}

TEST_CASE(
    "a write with the wait for its replicas is not sent on the socket for pipelines, which it could cost") {
    full_server server(1);
    hiredis_connection redis(server.uri());
    CHECK(pipeline(redis, {"GET", "a"}, {"GET", "b"})[1].is_integer(2));
    const distlock::replica_wait wait(1, 10ms);
    const command write{"SET", "a", "1"};
    const auto both = redis.execute_acknowledged(write, wait.behind(write));
    CHECK_THAT(both.answer.text(), contains_text("max number of clients"));
    CHECK_FALSE(both.replicated.answered());
    CHECK(pipeline(redis, {"GET", "a"}, {"GET", "b"})[1].is_integer(4));
}

TEST_CASE(
    "pipelines look for another socket when a command has timed out on theirs, and not when it was stopped") {
    const bool stops = GENERATE(false, true);
    full_server server(1);
    hiredis_connection redis(server.uri());
    CHECK(pipeline(redis, {"GET", "a"}, {"GET", "b"})[1].is_integer(2));
    CHECK_FALSE(give_up(redis, server, stops).answered());
    REQUIRE(server.accepted() == 2);
    server.make_room();
    server.let_go();
    CHECK(pipeline(redis, {"GET", "a"}, {"GET", "b"})[1].is_integer(stops ? 5 : 2));
    CHECK(server.accepted() == (stops ? 2 : 3));
}

// A caller with ten milliseconds left was enough.
TEST_CASE("a time-out on another socket does not cost pipelines theirs, where they find no other") {
    full_server server(2);
    hiredis_connection redis(server.uri());
    CHECK(pipeline(redis, {"GET", "a"}, {"GET", "b"})[1].is_integer(2));
    CHECK(redis.execute(soon({"HOLD"})).is(reply_kind::no_answer));
    CHECK(server.accepted() == 2);
    CHECK(pipeline(redis, {"GET", "a"}, {"GET", "b"})[1].is_integer(4));
    CHECK(pipeline(redis, {"GET", "a"}, {"GET", "b"})[1].is_integer(6));
    CHECK(server.accepted() == 3);
    server.let_go();
}

TEST_CASE("a command that finds the socket for pipelines owing answers leaves it as it is") {
    full_server server(1);
    hiredis_connection redis(server.uri());
    CHECK(pipeline(redis, {"GET", "a"}, {"GET", "b"})[1].is_integer(2));
    const auto told = std::make_shared<receipt>();
    REQUIRE(redis.post({"HOLD"}, told));
    // Until it owes so many that the next one goes elsewhere, where the full server has no room for it.
    REQUIRE(eventually([&] {
        redis.post({"DEL", "a"});
        return server.accepted() > 1;
    }));
    CHECK_FALSE(redis.execute({"GET", "a"}).is(reply_kind::integer));
    server.let_go();
    CHECK(collected(redis, *told));
    const auto both = pipeline(redis, {"GET", "a"}, {"GET", "b"});
    CHECK(both[1].is(reply_kind::integer));
}

// A full server had turned it away, and the next working one was left to commands.
TEST_CASE("a socket on which the server has said nothing yet does not become the one for pipelines") {
    full_server server(2);
    hiredis_connection redis(server.uri());
    CHECK(pipeline(redis, {"GET", "a"}, {"GET", "b"})[1].is_integer(2));
    std::thread other([&] { static_cast<void>(redis.execute({"HOLD"})); });
    const bool holds = eventually([&] { return server.holding() == 1; });
    CHECK(pipeline(redis, {"QUIT"}, {"GET", "a"})[0].is(reply_kind::no_answer));
    CHECK(redis.post({"DEL", "a"}));
    CHECK(eventually([&] { return server.accepted() == 3; }));
    server.let_go();
    other.join();
    REQUIRE(holds);
    CHECK(redis.execute({"GET", "a"}).is_integer(2));
    CHECK(server.accepted() == 4);
    CHECK(pipeline(redis, {"GET", "a"}, {"GET", "b"})[1].is_integer(4));
}

TEST_CASE(
    "the connection notices, once, that the server has ended the socket for pipelines, also where it keeps "
    "no other") {
    const redis_server server;
    distlock::detail::node_pool redis(distlock::parse_uri(server.uri() + patient), nullptr);
    const std::array<command, 1> question{command{"CLIENT", "ID"}};
    std::array<reply, 1> id;
    redis.pipeline(question, id);
    REQUIRE(id[0].number() > 0);
    CHECK_FALSE(redis.close_ended());
    server.command({"CLIENT", "KILL", "ID", std::to_string(id[0].number())});
    CHECK(eventually([&] { return redis.close_ended(); }));
    CHECK_FALSE(redis.close_ended());
}

TEST_CASE("when the socket for pipelines ends, the next one that is free becomes it") {
    const bool by_a_command = GENERATE(false, true);
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const auto reserved = id_of_a_pipeline(redis);
    const auto command_id = id_of_a_command(redis);
    server.command({"CLIENT", "KILL", "ID", std::to_string(reserved)});
    // A socket of which nobody took notice yet is found out by the pipeline itself.
    const auto next = by_a_command ? (redis.collect(), id_of_a_command(redis)) : id_of_a_pipeline(redis);
    CHECK(next > 0);
    CHECK(next != reserved);
    if (by_a_command) CHECK(next == command_id);
    CHECK(id_of_a_pipeline(redis) == next);
    CHECK(id_of_a_command(redis) != next);
    CHECK(id_of_a_pipeline(redis) == next);
}

TEST_CASE(
    "while commands have all the connections that a server allows, renewals, commands and releases pass") {
    const bool before = GENERATE(false, true);  // the first renewal, or the shortage
    const redis_server server(redis_server_options{.arguments = {"--maxclients", "12"}});
    hiredis_connection apart(server.uri() + patient);
    REQUIRE(apart.execute({"PING"}).answered());
    hiredis_connection redis(server.uri() + patient);
    REQUIRE(redis.execute({"PING"}).answered());
    int good = 0;
    const auto renewed = [&] {
        const auto both = pipeline(redis, {"PING"}, {"INCR", "renewals"});
        if (!both[0].is_status("PONG") || !both[1].is_integer(good + 1)) return false;
        ++good;
        return true;
    };
    if (before) CHECK(renewed());
    constexpr int threads = 20;
    std::atomic<bool> over{false};
    std::atomic<int> refused{0};
    std::vector<std::thread> busy;
    for (int i = 0; i < threads; ++i) {
        busy.emplace_back([&] {
            bool counted = false;
            while (!over) {
                const reply r = redis.execute(
                    {"BLPOP", "list", "0.05"});  // short: whose turn it is on the last socket is a lottery
                if (!r.is(reply_kind::not_sent) && !r.is(reply_kind::error)) continue;
                if (!std::exchange(counted, true)) ++refused;
                ::poll(nullptr, 0, 5);  // as one does who tries again
            }
        });
    }
    // One connection is apart, and one may be kept for pipelines.
    const bool full = eventually([&] { return refused >= threads - (12 - 1); });
    if (!before) CHECK(eventually(renewed));
    const int first = good;
    for (int i = 0; i < 50; ++i) renewed();
    const bool passes = eventually([&] { return redis.execute({"SET", "executed", "1"}).is_status("OK"); });
    over = true;
    for (std::thread& t : busy) t.join();
    CHECK(full);
    CHECK(good == first + 50);
    CHECK(passes);
}

TEST_CASE("commands pass on the socket for pipelines where there is no other") {
    const redis_server server(redis_server_options{.arguments = {"--maxclients", "2"}});
    hiredis_connection apart(server.uri() + patient);
    REQUIRE(apart.execute({"PING"}).answered());
    hiredis_connection redis(server.uri() + patient);
    for (int i = 0; i < 3; ++i) {
        CHECK(pipeline(redis, {"PING"}, {"INCR", "renewals"})[1].is_integer(i + 1));
        CHECK(redis.execute({"PING"}).is_status("PONG"));
    }
}

TEST_CASE("the next command or look keeps two of the idle sockets that nobody needed for a second") {
    const bool looks = GENERATE(false, true);
    moody_server server;
    hiredis_connection redis(server.uri());
    fill(redis, server, 6);
    REQUIRE(redis.post({"DEL", "a"}));
    CHECK(server.closed() == 0);
    CHECK(eventually([&] {
        if (looks) redis.collect();
        if (!looks) CHECK(redis.execute({"GET", "a"}).is_status("OK"));
        return server.closed() == 4;
    }));
    CHECK(redis.execute({"GET", "a"}).is_status("OK"));
    CHECK(server.accepted() == 6);
    CHECK(server.reset() == 0);
}

TEST_CASE("a socket that nobody needed for a second is kept as long as an answer is to come on it") {
    std::atomic<bool> answers{false};
    std::atomic<bool> let_go{false};
    std::atomic<int> holding{0};
    fake_server server([&](fake_server::peer& p) {
        while (const auto asked = p.next_command()) {
            const bool holds = asked->at(0) == "HOLD";
            if (holds) ++holding;
            eventually([&] { return holds ? let_go.load() : answers.load(); });
            if (!p.send("+OK\r\n")) return;
        }
    });
    hiredis_connection redis(server.uri("", patient));
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) threads.emplace_back([&] { static_cast<void>(redis.execute({"HOLD"})); });
    const bool all = eventually([&] { return holding == 3; });
    const auto told = std::make_shared<receipt>();
    const bool posted = redis.post({"DEL", "a"}, told);
    const auto since = clock::now();
    let_go = true;
    for (std::thread& t : threads) t.join();
    CHECK(eventually([&] { return clock::now() - since > 1s; }));
    redis.collect();
    answers = true;
    REQUIRE(all);
    REQUIRE(posted);
    const auto answer = collected(redis, *told);
    REQUIRE(answer);
    CHECK(answer->is_status("OK"));
    CHECK(server.accepted() == 4);
}

// A thousand a second and more, by threads that waited for locks.
TEST_CASE("a server that ends new sockets unanswered is sent one every 100 ms, whoever wants one") {
    const std::string login = GENERATE("", ":secret@");
    fake_server server([](fake_server::peer& p) { p.next_command(); });
    hiredis_connection redis(server.uri(login));
    constexpr int callers = 8;
    const auto begin = clock::now();
    std::vector<std::thread> threads;
    for (int i = 0; i < callers; ++i) {
        threads.emplace_back([&] {
            while (clock::now() < begin + 300ms) static_cast<void>(redis.execute({"PING"}));
        });
    }
    for (std::thread& t : threads) t.join();
    const auto took = clock::now() - begin;
    CHECK(server.accepted() <= callers + 10 + took / 100ms);
    const auto why = login.empty() ? "ends new connections unanswered" : "AUTH: the server closed";
    CHECK(eventually([&] { return redis.execute({"PING"}).text().find(why) != std::string::npos; }));
}

// 64 threads opened up to 1,400 a second.
TEST_CASE("a replica and a server that has its fill of clients are sent a new socket every 100 ms") {
    struct refusal {
        std::string bytes;
        distlock::errc cause;
    };
    const auto why = GENERATE(
        refusal{"-READONLY You can't write against a read only replica.\r\n", distlock::errc::read_only},
        refusal{"-ERR max number of clients reached\r\n", distlock::errc::unavailable});
    std::atomic<bool> serves{false};
    fake_server server([&](fake_server::peer& p) {
        while (p.next_command() && p.send(serves ? "+OK\r\n" : why.bytes)) {
            if (!serves) return;
        }
    });
    hiredis_connection redis(server.uri());
    constexpr int callers = 8;
    const auto begin = clock::now();
    std::vector<std::thread> threads;
    for (int i = 0; i < callers; ++i) {
        threads.emplace_back([&] {
            while (clock::now() < begin + 300ms) static_cast<void>(redis.execute({"SET", "a", "b"}));
        });
    }
    for (std::thread& t : threads) t.join();
    const auto took = clock::now() - begin;
    CHECK(server.accepted() <= callers + 10 + took / 100ms);
    const reply answer = redis.execute({"SET", "a", "b"});
    CHECK((answer.is(distlock::reply_kind::error) ? distlock::classify_error(answer.text()).cause
                                                  : answer.cause()) == why.cause);
    serves = true;
    CHECK(eventually([&] { return redis.execute({"SET", "a", "b"}).is_status("OK"); }));
    CHECK(redis.execute({"SET", "a", "b"}).is_status("OK"));
}

TEST_CASE("a replica that says so when it is asked for its role is sent a new socket every 100 ms") {
    fake_server server([](fake_server::peer& p) {
        if (p.next_command()) p.send("*1\r\n$5\r\nslave\r\n");
    });
    distlock::detail::node_pool pool(distlock::parse_uri(server.uri()), nullptr, {},
                                     distlock::detail::handshake::role::master);
    const auto begin = clock::now();
    while (clock::now() < begin + 300ms) CHECK(pool.execute({"PING"}).cause() == distlock::errc::read_only);
    const auto took = clock::now() - begin;
    CHECK(server.accepted() >= 10);
    CHECK(server.accepted() <= 11 + took / 100ms);
}

// Nobody is told of an answer, so nobody had counted: 300 a second.
TEST_CASE("a caller that only posts sends a full server a new socket every 100 ms, too") {
    const std::string answer = GENERATE("", "-ERR max number of clients reached\r\n");
    const bool collects = GENERATE(true, false);
    std::atomic<int> judged{0};
    fake_server server([&](fake_server::peer& p) {
        p.send(answer);
        p.close();
        ++judged;
    });
    hiredis_connection redis(server.uri());
    // No more than one every millisecond, each when the server has had its say on its sockets: where many
    // posts stand unanswered on a socket, the next one needs another.
    const auto post = [&] {
        redis.post({"DEL", "a"}, nullptr);
        if (collects) redis.collect();
        const auto posted = clock::now();
        REQUIRE(eventually([&] { return judged == server.accepted() && clock::now() - posted > 1ms; }));
    };
    const auto begin = clock::now();
    CHECK(eventually([&] {
        post();
        return server.accepted() >= 10;
    }));
    const auto full = clock::now();
    while (clock::now() < full + 300ms) post();
    const auto took = clock::now() - begin;
    CHECK(server.accepted() >= 10);
    CHECK(server.accepted() <= 11 + took / 100ms);
}

// A dead server was said to be full for as long as somebody asked.
TEST_CASE("a server that had its fill of clients, and then hangs or is gone, is not called full") {
    const bool is_gone = GENERATE(true, false);
    std::atomic<bool> full{true};
    std::optional<fake_server> server([&](fake_server::peer& p) {
        if (full) return static_cast<void>(p.send("-ERR max number of clients reached\r\n"));
        scripts::hang(p);
    });
    hiredis_connection redis(server->uri("", "?command_timeout=20ms"));
    const auto says = [&](const char* why) {
        return redis.execute({"PING"}).text().find(why) != std::string::npos;
    };
    for (int i = 0; i < 20; ++i) CHECK(says("max number of clients"));
    full = false;
    if (is_gone) server.reset();
    const char* const now = is_gone ? "connect: " : "no reply in time";
    CHECK(eventually([&] { return says(now); }));
    for (int i = 0; i < 20; ++i) CHECK(says(now));
}

// The first command on it may take long: a write that waits for replicas does.
TEST_CASE("a server that was full and says that it is master again is sent the sockets that are wanted") {
    std::atomic<bool> full{true};
    std::atomic<bool> answers{false};
    std::atomic<int> asked{0};
    fake_server server([&](fake_server::peer& p) {
        if (full) return static_cast<void>(p.send("-ERR max number of clients reached\r\n"));
        while (const auto said = p.next_command()) {
            const bool greeting = said->at(0) == "ROLE";
            asked += greeting ? 0 : 1;
            eventually([&] { return greeting || answers.load(); });
            if (!p.send(greeting ? "*1\r\n$6\r\nmaster\r\n" : "+OK\r\n")) return;
        }
    });
    distlock::detail::node_pool pool(distlock::parse_uri(server.uri("", patient)), nullptr, {},
                                     distlock::detail::handshake::role::master);
    for (int i = 0; i < 10; ++i) CHECK(pool.execute({"PING"}).is(distlock::reply_kind::not_sent));
    full = false;
    std::atomic<int> served{0};
    std::vector<std::thread> threads;
    const auto ask = [&] { served += pool.execute({"PING"}).is_status("OK") ? 1 : 0; };
    threads.emplace_back([&] {
        while (served == 0 && asked == 0) ask();
    });
    const bool first = eventually([&] { return asked == 1; });
    for (int i = 0; i < 3; ++i) threads.emplace_back(ask);
    const bool others = eventually([&] { return asked == 4; });
    answers = true;
    for (std::thread& t : threads) t.join();
    CHECK(first);
    CHECK(others);
    CHECK(served == 4);
}

TEST_CASE(
    "a server that answers again is asked at once, though it ends a new socket unanswered now and then") {
    std::atomic<int> ended{0};
    fake_server server([&](fake_server::peer& p) {
        const bool answers = p.number() == 10 || p.number() == 12;
        if (p.next_command() && answers) p.send("+OK\r\n");
        p.close();
        ++ended;
    });
    hiredis_connection redis(server.uri());
    const auto ping = [&] { return redis.execute({"PING"}).is_status("OK"); };
    for (int i = 0; i < 10; ++i) CHECK_FALSE(ping());
    REQUIRE(eventually(ping));
    REQUIRE(eventually([&] { return ended == 11; }));
    CHECK_FALSE(ping());
    CHECK(ping());
    CHECK(server.accepted() == 13);
}

}  // namespace kept_sockets_tests
