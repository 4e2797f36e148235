// The fault proxy passes on, cuts, delays, holds, slices and rewrites just what it was told.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "support/byte_client.hpp"
#include "support/catch.hpp"
#include "support/fake_server.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace fault_proxy_tests {

using namespace std::chrono_literals;
using distlock::testing::fault_proxy;
using distlock::testing::redis_server;
using ending = fault_proxy::ending;
using part = fault_proxy::part;
using words = fault_proxy::words;

TEST_CASE("the proxy passes every byte on when it has no rule") {
    const redis_server real;
    fault_proxy proxy(real.socket_path());
    std::string binary(300'000, '\0');
    for (std::size_t i = 0; i < binary.size(); ++i) binary[i] = static_cast<char>(i * 7 % 256);

    const std::string stream = wire({"SET", "a", binary}) + wire({"GET", "a"}) + wire({"GET", "none"}) +
                               wire({"NOSUCH", "\r\n*1\r\n"}) + wire({"SET", "", ""}) + wire({"GET", ""}) +
                               wire({"EVAL", "return {1, {2, 'three', {}}, {err='E x'}}", "0"}) +
                               wire({"INCR", "n"});
    const std::string answer = "+OK\r\n$" + std::to_string(binary.size()) + "\r\n" + binary + "\r\n$-1\r\n";
    const std::string rest = "+OK\r\n$0\r\n\r\n*3\r\n:1\r\n*3\r\n:2\r\n$5\r\nthree\r\n*0\r\n-E x\r\n:1\r\n";

    byte_client client(proxy.port());
    std::thread sender([&] { client.send(stream); });  // more than the sockets hold at once
    const std::string first = client.receive(answer.size());
    const std::string refusal = client.receive(1);
    std::string refused;
    while (!refused.ends_with("\r\n")) {
        const std::string byte = client.receive(1);
        if (byte.empty()) break;
        refused += byte;
    }
    const std::string last = client.receive(rest.size());
    sender.join();
    CHECK((first == answer));
    CHECK(refusal == "-");
    CHECK_THAT(refused, contains_text("unknown command"));
    CHECK(last == rest);
    CHECK(proxy.connections() == 1);
    CHECK(proxy.requests().size() == 8);
    CHECK(proxy.requests(word("GET")).size() == 3);
    CHECK(proxy.cuts().empty());

    // What the client sends is the same on the other side, whole commands or not; and so are the ends.
    client.send("*2\r\n$3\r\nGE");
    client.send_no_more();
    CHECK(client.what_follows(ending::close) == "FIN");
    byte_client inline_client(proxy.port());
    inline_client.send("PING\r\nINCR n\r\n");
    CHECK(inline_client.receive(11) == "+PONG\r\n:2\r\n");
}

TEST_CASE(
    "bytes reach the server through the proxy as they were sent, also the last ones of a client that goes") {
    const fake_server server([](fake_server::peer& p) { p.wait_for_end(); });
    fault_proxy proxy(server.port());
    const std::string sent = wire({"SET", "a", std::string("\0\r\n$", 4)}) + "*2\r\n$1\r\n";
    {
        byte_client client(proxy.port());
        client.send(sent);
        client.send_no_more();
        CHECK(client.what_follows(ending::close) == "FIN");
    }
    CHECK(server.received() == sent);
}

TEST_CASE("the proxy is not made for what can be no server's address") {
    CHECK_THROWS_WITH(fault_proxy(std::uint16_t{0}), contains_text("fault proxy"));
    CHECK_THROWS_WITH(fault_proxy(std::string()), contains_text("fault proxy"));
    CHECK_THROWS_WITH(fault_proxy("/tmp/" + std::string(103, 'x')), contains_text("107 bytes"));
    CHECK_NOTHROW(fault_proxy("/tmp/" + std::string(102, 'x')));
}

TEST_CASE("a rule for no request cuts none, and ends the rule before it") {
    const redis_server real;
    fault_proxy proxy(real.socket_path());
    proxy.cut({.command = word("SET")});
    proxy.cut({.command = word("INCR"), .times = 0});
    byte_client client(proxy.port());
    client.send(wire({"INCR", "n"}) + wire({"SET", "a", "1"}));
    CHECK(client.receive(9) == ":1\r\n+OK\r\n");
    CHECK(proxy.cuts().empty());
}

TEST_CASE("the proxy cuts a request after exactly so many bytes, as it was told") {
    const fake_server server(scripts::always("+OK\r\n"));
    fault_proxy proxy(server.port());
    const std::string before = wire({"PING"});
    const std::string request = wire({"SET", "a", "*1\r\n"});
    std::string expected;
    int cuts = 0;
    for (const ending how : all_endings) {
        for (std::size_t k = 0; k <= request.size(); ++k) {
            INFO(text(how) << " after " << k << " bytes");
            proxy.cut({.of = part::request, .command = word("SET"), .after = k, .how = how});
            byte_client client(proxy.port());
            client.send(before + request + before);  // the reply to the first still comes
            REQUIRE(client.receive(5) == "+OK\r\n");
            REQUIRE(client.what_follows(how) == text(how));
            expected += before + request.substr(0, k);
            REQUIRE(eventually([&] { return server.received().size() >= expected.size(); }));

            byte_client next(proxy.port());
            next.send(request);
            REQUIRE(next.receive(5) == "+OK\r\n");
            expected += request;
            REQUIRE(server.received() == expected);

            const auto made = proxy.cuts();
            REQUIRE(static_cast<int>(made.size()) == ++cuts);
            REQUIRE(made.back().command == words{"SET", "a", "*1\r\n"});
            REQUIRE(made.back().size == request.size());
            REQUIRE(made.back().passed == k);
        }
    }
}

TEST_CASE("the proxy cuts a reply after exactly so many bytes, as it was told") {
    const redis_server real;
    fault_proxy proxy(real.socket_path());
    const std::string request = wire({"EVAL", "return {'abc', 7, {}}", "0"});
    const std::string reply = "*3\r\n$3\r\nabc\r\n:7\r\n*0\r\n";
    for (const ending how : all_endings) {
        for (std::size_t k = 0; k <= reply.size(); ++k) {
            INFO(text(how) << " after " << k << " bytes");
            proxy.cut({.of = part::reply, .command = word("EVAL"), .after = k, .how = how});
            byte_client client(proxy.port());
            client.send(wire({"PING"}) + request + wire({"INCR", "n"}));
            REQUIRE(client.receive(7 + k) == "+PONG\r\n" + reply.substr(0, k));
            REQUIRE(client.what_follows(how) == text(how));
            REQUIRE(proxy.cuts().back().size == reply.size());
            REQUIRE(proxy.cuts().back().passed == k);

            byte_client next(proxy.port());
            next.send(request);
            REQUIRE(next.receive(reply.size()) == reply);
        }
    }
}

TEST_CASE(
    "the proxy cuts from the one it was told on, as often as it was told, and no more once left alone") {
    const redis_server real;
    fault_proxy proxy(real.socket_path());
    const auto goes_well = [&](const words& command) {
        byte_client client(proxy.port());
        client.send(wire(command));
        return client.receive(1).size() == 1;
    };
    const part of = GENERATE(part::request, part::reply);
    proxy.cut({.of = of, .command = word("GET"), .first = 2, .times = 2});
    CHECK(goes_well({"GET", "a"}));
    CHECK(goes_well({"SET", "a", "b"}));
    CHECK_FALSE(goes_well({"GET", "a"}));
    CHECK(goes_well({"SET", "a", "b"}));
    CHECK_FALSE(goes_well({"GET", "a"}));
    CHECK(goes_well({"GET", "a"}));
    proxy.cut({.of = of});
    proxy.storm(1, 1);
    proxy.leave_alone();
    CHECK(goes_well({"GET", "a"}));
    CHECK(proxy.cuts().size() == 2);
    CHECK(proxy.connections() == 7);
}

TEST_CASE("bytes that a cut delayed reach the server also where their client went before the cut was over") {
    const fake_server server(scripts::always("+OK\r\n"));
    fault_proxy proxy(server.port());
    proxy.hold(part::reply);  // until then the cut is not over
    proxy.cut({.command = word("SET"), .how = ending::delay});
    {
        byte_client gone(proxy.port());
        gone.send(wire({"PING"}) + wire({"SET", "a", "b"}));
        REQUIRE(eventually([&] { return proxy.cuts().size() == 1; }));
    }
    byte_client after(proxy.port());  // what it sends passes when the proxy knows that the other has gone
    after.send(wire({"ECHO", "x"}));
    REQUIRE(eventually([&] { return server.received().ends_with(wire({"ECHO", "x"})); }));
    proxy.let_go();
    CHECK(after.receive(5) == "+OK\r\n");
    proxy.deliver();
    CHECK(eventually([&] { return server.received().ends_with(wire({"SET", "a", "b"})); }));
}

TEST_CASE("a client that ends a silent connection is let go, and the proxy ends at once whatever goes on") {
    std::atomic<int> ended{0};
    const fake_server server([&](fake_server::peer& p) {
        p.wait_for_end();
        ++ended;
    });
    auto proxy = std::make_unique<fault_proxy>(server.port());
    proxy->cut({.after = 3, .how = ending::silence, .times = 2});
    {
        byte_client gone(proxy->port());
        gone.send(wire({"PING"}));
        CHECK(eventually([&] { return server.received().size() == 3; }));
    }
    CHECK(eventually([&] { return ended == 1; }));
    byte_client silent(proxy->port());
    silent.send(wire({"PING"}));
    byte_client passing(proxy->port());
    passing.send(wire({"PING"}));
    CHECK(eventually([&] { return server.received().size() == 6 + wire({"PING"}).size(); }));
    CHECK(time_of([&] { proxy.reset(); }) <= timing_tolerance);
    CHECK(silent.what_follows(ending::close) != "silence");
    CHECK(passing.what_follows(ending::close) != "silence");
    CHECK(eventually([&] { return ended == 3; }));
}

TEST_CASE("a delay comes before every byte of its direction, which stay in order") {
    const redis_server real;
    fault_proxy proxy(real.socket_path());
    const part of = GENERATE(part::request, part::reply);
    byte_client client(proxy.port());
    proxy.delay(of, 60ms);
    std::string got;
    const auto took = time_of([&] {
        client.send(wire({"INCR", "n"}) + wire({"INCR", "n"}) + wire({"INCR", "n"}));
        got = client.receive(12);
    });
    CHECK(got == ":1\r\n:2\r\n:3\r\n");
    CHECK(took >= 60ms);
    CHECK(took < 3 * 60ms + timing_tolerance);  // not one after the other
    proxy.leave_alone();
    client.send(wire({"INCR", "n"}));
    CHECK(client.receive(4) == ":4\r\n");
}

// The time overflowed, and the bytes passed at once.
TEST_CASE("a delay without end, and a pause without end, hold the bytes until they are left alone") {
    const redis_server real;
    fault_proxy proxy(real.socket_path());
    byte_client delayed(proxy.port());
    proxy.delay(part::reply, distlock::clock::duration::max());
    delayed.send(wire({"INCR", "n"}));
    REQUIRE(eventually([&] { return real.command({"GET", "n"}) == "1"; }));
    CHECK_FALSE(delayed.readable(50));
    proxy.leave_alone();

    byte_client sliced(proxy.port());
    proxy.slice(part::reply, 2, distlock::clock::duration::max());
    sliced.send(wire({"INCR", "n"}));
    CHECK(sliced.receive(2) == ":2");
    CHECK_FALSE(sliced.readable(50));
}

// It went on for as long as it had been told.
TEST_CASE(
    "bytes that a delay or a pause holds pass at once when the proxy is to leave all alone, or to slice "
    "nothing") {
    const redis_server real;
    fault_proxy proxy(real.socket_path());
    byte_client client(proxy.port());
    proxy.delay(part::reply, 1h);
    client.send(wire({"INCR", "n"}));
    REQUIRE(eventually([&] { return real.command({"GET", "n"}) == "1"; }));
    proxy.leave_alone();
    CHECK(client.receive(4) == ":1\r\n");
    for (const bool all : {true, false}) {
        proxy.slice(part::reply, 1, 1h);
        client.send(wire({"PING"}));
        REQUIRE(client.receive(1) == "+");
        all ? proxy.leave_alone() : proxy.slice(part::reply, 0);
        CHECK(client.receive(6) == "PONG\r\n");
    }
}

// What came behind leave_alone() was taken for what it lets pass.
TEST_CASE("bytes that are delayed, or sliced, behind an end of all delays are passed on so much later, too") {
    const redis_server real;
    fault_proxy proxy(real.socket_path());
    byte_client client(proxy.port());
    for (int i = 0; i < 100; ++i) {  // now and then both come while the proxy waits
        proxy.leave_alone();
        proxy.delay(part::request, 5ms);
        const auto took = time_of([&] {
            client.send(wire({"PING"}));
            CHECK(client.receive(7) == "+PONG\r\n");
        });
        CHECK(took >= 5ms);
    }
    proxy.leave_alone();
    proxy.slice(part::reply, 1, 1h);
    client.send(wire({"PING"}));
    CHECK(client.receive(1) == "+");
    CHECK_FALSE(client.readable(20));
}

// The proxy waited for the server with all its clients, and its destructor waited for that.
TEST_CASE("a server that takes no more connections keeps no other client of the proxy waiting, nor its end") {
    const bool tcp = GENERATE(false, true);
    redis_server real({.tcp = tcp, .arguments = {"--tcp-backlog", "1"}});
    std::optional<fault_proxy> proxy;
    tcp ? proxy.emplace(real.port()) : proxy.emplace(real.socket_path());
    byte_client old(proxy->port());
    old.send(wire({"PING"}));
    REQUIRE(old.receive(7) == "+PONG\r\n");
    real.pause();
    std::vector<std::unique_ptr<byte_client>> more;
    for (int i = 0; i < 12; ++i) more.push_back(std::make_unique<byte_client>(proxy->port()));
    for (const auto& one : more) one->send(wire({"PING"}));
    REQUIRE(eventually([&] { return proxy->connections() == 13; }));
    old.send(wire({"INCR", "n"}));
    CHECK(eventually([&] { return proxy->requests(word("INCR")).size() == 1; }));
    if (GENERATE(true, false)) {
        real.resume();
        for (const auto& one : more) CHECK(one->receive(7) == "+PONG\r\n");
    } else {
        const auto took = time_of([&] { proxy.reset(); });
        CHECK(took < 1s + timing_tolerance);
        real.resume();
    }
}

// They ended with the first reply of a kind that RESP2 has not.
TEST_CASE("rules hold on a connection of RESP3, and a push that nobody asked for is no reply") {
    const redis_server real;
    fault_proxy proxy(real.socket_path());
    byte_client client(proxy.port());
    client.send(wire({"HELLO", "3"}));
    REQUIRE(client.receive(2) == "%7");
    std::string hello;
    while (!hello.ends_with("*0\r\n")) hello += client.receive(1);
    client.send(wire({"CLIENT", "TRACKING", "ON"}) + wire({"GET", "a"}));
    REQUIRE(client.receive(8) == "+OK\r\n_\r\n");
    real.command({"SET", "a", "1"});
    const std::string push = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n";
    client.send(wire({"SUBSCRIBE", "news"}));
    const std::string subscribed = ">3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n";
    CHECK(client.receive(push.size() + subscribed.size()) == push + subscribed);
    real.command({"PUBLISH", "news", "x"});
    const std::string message = ">3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$1\r\nx\r\n";
    CHECK(client.receive(message.size()) == message);
    proxy.cut({.of = part::reply, .command = word("GET"), .after = 1, .how = ending::close});
    client.send(wire({"SET", "b", "1"}) + wire({"GET", "b"}));
    CHECK(client.receive(6) == "+OK\r\n$");
    CHECK(client.what_follows(ending::close) == "FIN");
    CHECK(proxy.cuts().size() == 1);
}

// Its second half was taken for bytes that the proxy does not know, and no rule held any more.
TEST_CASE("a push that comes in two pieces, the first while nothing is asked, leaves the rules in force") {
    std::atomic<bool> rest{false};
    const fake_server server([&](fake_server::peer& p) {
        if (!p.next_command() || !p.send("+OK\r\n>2\r\n$10\r\ninval")) return;
        if (!eventually([&] { return rest.load(); }) || !p.send("idate\r\n*1\r\n$1\r\na\r\n")) return;
        while (p.next_command() && p.send("+OK\r\n")) continue;
    });
    fault_proxy proxy(server.port());
    byte_client client(proxy.port());
    client.send(wire({"PING"}));
    REQUIRE(client.receive(5) == "+OK\r\n");
    proxy.cut({.of = part::reply, .command = word("GET"), .after = 1, .how = ending::close});
    client.send(wire({"GET", "a"}));
    REQUIRE(eventually([&] { return proxy.requests().size() == 2; }));
    rest = true;
    const std::string push = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n";
    CHECK(client.receive(push.size() + 1) == push + "+");
    CHECK(client.what_follows(ending::close) == "FIN");
}

// Five seconds for 300,000 elements: each piece that came was read from the beginning.
TEST_CASE("a long reply is read once: one of ten times as many elements takes about ten times as long") {
    const redis_server real;
    fault_proxy proxy(real.socket_path());
    byte_client client(proxy.port());
    const auto took = [&](int elements) {
        const std::string count = std::to_string(elements);
        client.send(
            wire({"EVAL", "local t = {} for i = 1, tonumber(ARGV[1]) do t[i] = 1 end return t", "0", count}));
        const std::size_t size = 3 + count.size() + static_cast<std::size_t>(elements) * 4;
        std::size_t got = 0;
        const auto span = time_of([&] { got = client.receive(size).size(); });
        CHECK(got == size);
        return span;
    };
    took(1000);
    const auto some = took(50'000);
    CHECK(took(500'000) < 30 * some + timing_tolerance);
}

TEST_CASE(
    "the rest of a request that was cut by a delay comes to the server when it is delivered, and nothing "
    "else") {
    const redis_server real;
    fault_proxy proxy(real.socket_path());
    proxy.cut({.command = word("INCR"), .after = 9, .how = ending::delay});
    byte_client client(proxy.port());
    client.send(wire({"INCR", "n"}) + wire({"INCR", "m"}));
    REQUIRE(eventually([&] { return proxy.cuts().size() == 1; }));
    CHECK(real.command({"GET", "n"}) == "(nil)");
    proxy.deliver();
    CHECK(eventually([&] { return real.command({"GET", "n"}) == "1"; }));
    CHECK(client.what_follows(ending::silence) == "silence");
    client.send_no_more();
    CHECK(eventually([&] {
        return real.command({"INFO", "clients"}).find("connected_clients:1") != std::string::npos;
    }));
    CHECK(real.command({"GET", "m"}) == "(nil)");
}

TEST_CASE("bytes that come when a delay has ended do not overtake those that it still holds") {
    const redis_server real;
    fault_proxy proxy(real.socket_path());
    byte_client client(proxy.port());
    proxy.delay(part::reply, 300ms);
    client.send(wire({"INCR", "n"}));
    REQUIRE(eventually([&] { return real.command({"GET", "n"}) == "1"; }));
    proxy.delay(part::reply, 0ms);
    client.send(wire({"INCR", "n"}));
    CHECK(client.receive(8) == ":1\r\n:2\r\n");
}

TEST_CASE("the proxy passes held bytes on only when they are let go, and accepts connections meanwhile") {
    const redis_server real;
    fault_proxy proxy(real.socket_path());
    const part of = GENERATE(part::request, part::reply);
    proxy.hold(of);
    byte_client first(proxy.port());
    byte_client second(proxy.port());
    first.send(wire({"SET", "a", "1"}));
    second.send(wire({"SET", "b", "2"}));
    CHECK(eventually([&] { return proxy.requests().size() == 2; }));
    if (of == part::reply) CHECK(eventually([&] { return real.command({"DBSIZE"}) == "2"; }));
    CHECK(first.what_follows(ending::silence) == "silence");
    CHECK(second.what_follows(ending::silence) == "silence");
    CHECK(real.command({"DBSIZE"}) == (of == part::reply ? "2" : "0"));
    proxy.let_go();
    CHECK(first.receive(5) == "+OK\r\n");
    CHECK(second.receive(5) == "+OK\r\n");
}

TEST_CASE("slices are as small as was told, and the whole is the same") {
    const fake_server server(scripts::always("+OK\r\n"));
    fault_proxy proxy(server.port());
    proxy.slice(part::request, 1, 2ms);
    proxy.slice(part::reply, 1, 2ms);
    byte_client client(proxy.port());
    const std::string request = wire({"SET", "a", "b"});
    const auto took = time_of([&] {
        client.send(request);
        CHECK(client.receive(5) == "+OK\r\n");
    });
    CHECK(server.received() == request);
    CHECK(took >= 2ms * (request.size() + 5 - 2));
    proxy.slice(part::request, 0);
    proxy.slice(part::reply, 0);
    client.send(request);
    CHECK(client.receive(5) == "+OK\r\n");
}

TEST_CASE(
    "a reply is rewritten as often as was told, for the commands that were named, and no more once left "
    "alone") {
    const redis_server real;
    fault_proxy proxy(real.socket_path());
    byte_client client(proxy.port());
    proxy.rewrite(word("GET"), "-READONLY replica\r\n", 2);
    client.send(wire({"GET", "a"}) + wire({"INCR", "n"}) + wire({"GET", "a"}) + wire({"GET", "a"}));
    const std::string expected = "-READONLY replica\r\n:1\r\n-READONLY replica\r\n$-1\r\n";
    CHECK(client.receive(expected.size()) == expected);
    proxy.rewrite(word("GET"), "-READONLY replica\r\n");
    proxy.leave_alone();
    client.send(wire({"GET", "a"}));
    CHECK(client.receive(5) == "$-1\r\n");
}

TEST_CASE("a storm cuts the same for the same seed, and something else for another") {
    const fake_server server(scripts::always("+OK\r\n"));
    const auto cuts = [&](std::uint64_t seed) {
        fault_proxy proxy(server.port());
        proxy.storm(seed, 5);
        std::string seen;
        for (int i = 0; i < 30; ++i) {
            byte_client client(proxy.port());
            const auto before = proxy.cuts().size();
            const auto was_cut = [&] { return proxy.cuts().size() != before; };
            while (!was_cut()) {
                client.send(wire({"PING"}));
                CHECK(eventually([&] { return was_cut() || client.readable(1); }));
                if (!was_cut()) client.receive(5);
            }
        }
        for (const auto& c : proxy.cuts())
            seen += (c.of == part::reply ? " <" : " >") + std::to_string(c.passed);
        return seen;
    };
    const auto first = cuts(1);
    CHECK(first == cuts(1));
    CHECK(first != cuts(2));
}

TEST_CASE(
    "the proxy cuts a message after exactly so many bytes, and replies between messages stay what they are") {
    const redis_server real;
    fault_proxy proxy(real.socket_path());
    const std::string message = wire({"message", "news", "text"});
    const std::string confirmed = "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n";
    const auto publish = [&] { REQUIRE(real.command({"PUBLISH", "news", "text"}) == "1"); };
    for (const ending how : all_endings) {
        for (std::size_t k = 0; k <= message.size(); ++k) {
            INFO(text(how) << " after " << k << " bytes");
            byte_client client(proxy.port());
            client.send(wire({"SUBSCRIBE", "news"}));
            REQUIRE(client.receive(confirmed.size()) == confirmed);
            proxy.cut({.of = part::message, .command = word("message"), .after = k, .how = how, .first = 2});
            publish();
            client.send(wire({"PING", "well?"}));
            const std::string both = message + "*2\r\n$4\r\npong\r\n$5\r\nwell?\r\n";
            REQUIRE(client.receive(both.size()) == both);
            publish();
            REQUIRE(client.receive(k) == message.substr(0, k));
            REQUIRE(client.what_follows(how) == text(how));
            const auto made = proxy.cuts();
            REQUIRE(made.back().of == part::message);
            REQUIRE(made.back().command == words{"message", "news", "text"});
            REQUIRE(made.back().passed == k);
            if (how == ending::silence) publish();  // the server believes that it is heard
            client.send_no_more();
            REQUIRE(eventually([&] { return real.command({"PUBSUB", "NUMSUB", "news"}) == "news\n0"; }));
        }
    }
}

TEST_CASE("a message is lost, and the conversation goes on") {
    const redis_server real;
    fault_proxy proxy(real.socket_path());
    byte_client client(proxy.port());
    client.send(wire({GENERATE(as<std::string>{}, "SUBSCRIBE", "subscribe"), "a", "b"}));
    const std::string confirmed =
        "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n";
    REQUIRE(client.receive(confirmed.size()) == confirmed);
    proxy.rewrite(word("message"), "", 2);
    for (const char* one : {"1", "2", "3", "4"}) real.command({"PUBLISH", "b", one});
    const std::string rest = wire({"message", "b", "3"}) + wire({"message", "b", "4"});
    CHECK(client.receive(rest.size()) == rest);
    CHECK(proxy.cuts().empty());
}

// The rest of it was taken for no reply, and from then on the connection passed whatever came.
TEST_CASE("a message that comes in two pieces is cut as one, and counted") {
    const auto news = wire({"message", "a", "news"});
    std::atomic<bool> first_half{false};
    const fake_server halves([&](fake_server::peer& p) {
        while (p.next_command()) {
            if (!p.send(wire({"subscribe", "a", "1"}) + news.substr(0, 20))) return;
            first_half.wait(false);
            if (!p.send(news.substr(20) + news)) return;
        }
    });
    fault_proxy proxy(halves.port());
    byte_client client(proxy.port());
    client.send(wire({"SUBSCRIBE", "a"}));
    const auto confirmed = wire({"subscribe", "a", "1"});
    REQUIRE(client.receive(confirmed.size()) == confirmed);
    proxy.cut({.of = part::message, .after = 3, .how = ending::close, .first = 2});
    first_half = true;
    first_half.notify_all();
    CHECK(client.receive(news.size() + 3) == news + news.substr(0, 3));
    REQUIRE(proxy.cuts().size() == 1);
    CHECK(proxy.cuts().front().command == words{"message", "a", "news"});
}

TEST_CASE("a message of a channel of a Cluster's slot is lost, or cut, as any other") {
    const auto confirmed = wire({"ssubscribe", "a", "1"});
    const auto news = [](const char* text) { return wire({"smessage", "a", text}); };
    const fake_server node([&](fake_server::peer& p) {
        if (p.next_command() && p.send(confirmed + news("1") + news("2") + news("3"))) p.wait_for_end();
    });
    fault_proxy proxy(node.port());
    proxy.rewrite(word("smessage"), "", 1);
    proxy.cut({.of = part::message, .after = 3, .how = ending::close, .first = 3});
    byte_client client(proxy.port());
    client.send(wire({"SSUBSCRIBE", "a"}));
    const auto passes = confirmed + news("2") + news("3").substr(0, 3);
    CHECK(client.receive(passes.size()) == passes);
    CHECK(client.what_follows(ending::close) == "FIN");
    REQUIRE(proxy.cuts().size() == 1);
    CHECK(proxy.cuts().front().of == part::message);
    CHECK(proxy.cuts().front().command == words{"smessage", "a", "3"});
}

TEST_CASE("an end is held, too: the server does not hear of a client that is gone until it is let go") {
    const redis_server real;
    fault_proxy proxy(real.socket_path());
    const auto heard = [&] { return real.command({"PUBSUB", "NUMSUB", "news"}) == "news\n1"; };
    {
        byte_client client(proxy.port());
        client.send(wire({"SUBSCRIBE", "news"}));
        // It has read all there is, or its end would be a reset.
        const std::string confirmed = "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n";
        REQUIRE(client.receive(confirmed.size()) == confirmed);
        REQUIRE(heard());
        proxy.hold(part::request);
        proxy.hold(part::reply);
    }
    byte_client(proxy.port()).send(wire({"PING"}));
    CHECK(
        eventually([&] { return proxy.requests(word("PING")).size() == 1; }));  // it has seen that end since
    CHECK(heard());
    proxy.let_go();
    CHECK(eventually([&] { return !heard(); }));
}

TEST_CASE("an end is held, too: the client does not hear of a server that is gone until it is let go") {
    const redis_server real;
    fault_proxy proxy(real.socket_path());
    byte_client client(proxy.port());
    client.send(wire({"PING"}));
    REQUIRE(client.receive(7) == "+PONG\r\n");
    proxy.hold(part::reply);
    real.command({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
    byte_client(proxy.port()).send(wire({"PING"}));
    CHECK(
        eventually([&] { return proxy.requests(word("PING")).size() == 2; }));  // it has seen that end since
    CHECK(client.what_follows(ending::silence) == "silence");
    proxy.let_go();
    CHECK(client.what_follows(ending::close) == "FIN");
}

TEST_CASE("locks work behind one-byte segments, as they do without") {
    const redis_server real;
    fault_proxy proxy(real.socket_path());
    proxy.slice(part::request, 1);
    proxy.slice(part::reply, 1);
    distlock::hiredis_connection redis{proxy.uri()};
    distlock::mutex m{redis, "sliced", {.lease = 5s, .fencing = true, .release = distlock::confirmed}};
    for (int i = 0; i < 5; ++i) {
        m.lock();
        CHECK(m.unlock() == distlock::release_outcome::released);
    }
    CHECK(real.command({"EXISTS", "sliced"}) == "0");
}

}  // namespace fault_proxy_tests
