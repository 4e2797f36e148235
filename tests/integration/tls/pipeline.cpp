// Many commands in one go inside a TLS session: real servers, and sessions that end in the middle.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis_tls.hpp>

#include "integration/tls/certificates.hpp"
#include "integration/tls/servers.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace pipeline_tests {

using namespace std::chrono_literals;
using distlock::command;
using distlock::errc;
using distlock::hiredis_connection;
using distlock::reply;
using distlock::reply_kind;
using servers::tls_is_wanted;
using servers::trusting_ca;

namespace {

const std::string patient = "?connect_timeout=20s&command_timeout=20s";

inline constexpr distlock::script add{"return redis.call('INCRBY', KEYS[1], ARGV[1])"};

const certificates::set& all() { return certificates::set::get(); }

std::vector<std::string> numbers(std::size_t count, const std::string& before = "") {
    std::vector<std::string> words;
    for (std::size_t i = 0; i < count; ++i) words.push_back(before + std::to_string(i));
    return words;
}

std::vector<reply> ask(hiredis_connection& redis, const std::vector<std::string>& words) {
    std::vector<command> commands;
    for (const std::string& word : words) commands.push_back(command{"ECHO", word});
    std::vector<reply> replies(commands.size(), reply::integer(-1));
    redis.pipeline(commands, replies);
    return replies;
}

std::size_t right(const std::vector<reply>& replies, const std::vector<std::string>& words) {
    std::size_t i = 0;
    while (i < replies.size() && (replies[i].is_string(words[i]) || replies[i].is_status(words[i]))) ++i;
    return i;
}

bool unanswered_from(const std::vector<reply>& replies, std::size_t from, errc cause) {
    return std::all_of(replies.begin() + static_cast<std::ptrdiff_t>(from), replies.end(),
                       [&](const reply& r) { return r.is(reply_kind::no_answer) && r.cause() == cause; });
}

// Follows a client through the handshake and its AUTH until the word `last` has come.
// Returns: whether it has.
bool await(auto& peer, servers::in_memory& good, const std::string& last) {
    for (const std::string& awaited : {std::string("AUTH"), last}) {
        while (peer.open() && good.received.find(awaited) == std::string::npos)
            peer.send(good.step(peer.receive()));
        if (awaited == "AUTH") peer.send(good.say("+OK\r\n"));
        if (awaited == last) break;
    }
    return peer.open();
}

std::string uri_of(const servers::scripted& server, const std::string& options) {
    return "rediss://:word@127.0.0.1:" + server.port() + options;
}

}  // namespace

TEST_CASE("a pipeline is answered in order over TLS, a small one and one of twenty megabytes") {
    NOT_TESTED_UNLESS(tls_is_wanted(), "DISTLOCK_TEST_WITHOUT_TLS=1");
    servers::real server(all().address);
    hiredis_connection redis(server.uri() + patient, trusting_ca());
    std::vector<reply> id(1);
    redis.pipeline(std::vector<command>{command{"CLIENT", "ID"}}, id);
    REQUIRE(id[0].is(reply_kind::integer));
    for (const auto& words : {numbers(3), numbers(1024, std::string(200, '.'))})
        CHECK(right(ask(redis, words), words) == words.size());

    // Short replies: some servers break a TLS session off when its replies fill the buffers ("bad length").
    const std::string value(1000, '.');
    const std::vector<command> commands(20'000, command{"APPEND", "a", value});
    std::vector<reply> replies(commands.size());
    redis.pipeline(commands, replies);
    std::size_t count = 0;
    while (count < replies.size() && replies[count].is_integer(static_cast<int>(1000 * (count + 1)))) ++count;
    CHECK(count == replies.size());
    std::vector<reply> same(1);
    redis.pipeline(std::vector<command>{command{"CLIENT", "ID"}}, same);
    CHECK(same[0].is_integer(id[0].number()));
}

TEST_CASE("over TLS scripts that the server has lost are applied once, and posted commands before them") {
    NOT_TESTED_UNLESS(tls_is_wanted(), "DISTLOCK_TEST_WITHOUT_TLS=1");
    servers::real server(all().address);
    hiredis_connection redis(server.uri() + patient, trusting_ca());
    REQUIRE(redis.post({"SET", "sum", "1000"}));
    const std::vector<command> commands(1024, command(add, {"sum"}, {"1"}));
    std::vector<reply> replies(commands.size());
    distlock::execute_all(redis, commands, replies);
    std::size_t count = 0;
    while (count < replies.size() && replies[count].is_integer(1001 + static_cast<int>(count))) ++count;
    CHECK(count == replies.size());
}

// What had been decrypted was dropped, and the socket stayed: each later reply was taken for the answer
// to the command before.
TEST_CASE("a socket whose replies there was no memory for is not used again") {
    NOT_TESTED_UNLESS(tls_is_wanted(), "DISTLOCK_TEST_WITHOUT_TLS=1");
    NOT_TESTED_UNLESS(allocations_can_fail(), operator_new_is_not_ours);
    servers::real server(all().address);
    hiredis_connection redis(server.uri() + patient, trusting_ca());
    const reply id = redis.execute({"CLIENT", "ID"});
    const auto first = std::make_shared<distlock::receipt>();
    const auto second = std::make_shared<distlock::receipt>();
    CHECK(redis.post({"ECHO", "a text that needs memory of its own, the first"}, first));
    const bool failed = eventually([&] {
        fail_allocation(1);
        try {
            redis.collect();
        } catch (const std::bad_alloc&) {}
        const bool hit = allocation_failed();
        fail_allocation(0);
        return hit;
    });
    REQUIRE(failed);
    CHECK(redis.post({"ECHO", "a text that needs memory of its own, the second"}, second));
    const reply now = redis.execute({"CLIENT", "ID"});
    REQUIRE(now.is(reply_kind::integer));
    CHECK(now.number() != id.number());
    const auto known = first->answer();
    REQUIRE(known);
    CHECK(known->is(reply_kind::no_answer));
    const auto other = second->answer();
    REQUIRE(other);
    CHECK(other->is_string("a text that needs memory of its own, the second"));
}

TEST_CASE("a session that ends in a pipeline leaves the replies before its end, and none is waited for") {
    const std::size_t count = GENERATE(0U, 1U, 7U);
    enum class end { notice, notice_apart, garbage, hang_up };
    const end how = GENERATE(end::notice, end::notice_apart, end::garbage, end::hang_up);
    const auto words = numbers(20, "word");
    const servers::scripted server([&](auto& peer) {
        servers::in_memory good(all().address);
        if (!await(peer, good, words.back())) return;
        std::string answers;
        for (std::size_t i = 0; i < count; ++i) answers += good.say("+" + words[i] + "\r\n");
        if (how == end::notice_apart) peer.send(std::exchange(answers, {}));
        if (how == end::garbage) answers += std::string("\x17\x03\x03\x00\x14", 5) + std::string(20, 'x');
        if (how == end::notice || how == end::notice_apart) {
            ::SSL_shutdown(good.ssl());
            answers += good.sent();
        }
        peer.send(answers);
        while (how != end::hang_up && peer.open()) peer.receive();  // the socket stays open
    });
    hiredis_connection redis(uri_of(server, patient), trusting_ca());
    std::vector<reply> replies;
    CHECK(time_of([&] { replies = ask(redis, words); }) <= 5 * timing_tolerance);  // the handshake included
    CHECK(right(replies, words) == count);
    CHECK(unanswered_from(replies, count, how == end::garbage ? errc::tls_failed : errc::no_reply));
}

TEST_CASE("a session that ends with a pipeline's last reply is not used again") {
    const auto words = numbers(20, "word");
    const servers::scripted server([&](auto& peer) {
        servers::in_memory good(all().address);
        if (!await(peer, good, words.back())) return;
        std::string answers;
        for (const std::string& word : words) answers += good.say("+" + word + "\r\n");
        ::SSL_shutdown(good.ssl());
        peer.send(answers + good.sent());
        while (peer.open()) peer.receive();
    });
    hiredis_connection redis(uri_of(server, patient), trusting_ca());
    for (int i = 0; i < 3; ++i) CHECK(right(ask(redis, words), words) == 20);
}

TEST_CASE("over TLS nothing of a pipeline that went out in part is called not sent") {
    std::atomic<bool> given_up{false};
    const servers::scripted server([&](auto& peer) {
        servers::in_memory good(all().address);
        if (await(peer, good, "AUTH")) eventually([&] { return given_up.load(); });  // reads no more
    });
    hiredis_connection redis(uri_of(server, "?connect_timeout=20s&command_timeout=300ms"), trusting_ca());
    const std::vector<std::string> words(2000,
                                         std::string(16'384, 'x'));  // more than the kernel's buffers take
    std::vector<reply> replies;
    CHECK(time_of([&] { replies = ask(redis, words); }) <=
          300ms + 5 * timing_tolerance);  // the handshake included
    given_up = true;
    CHECK(unanswered_from(replies, 0, errc::no_reply));
    CHECK_THAT(replies[0].text(), contains_text("sending took too long"));
}

}  // namespace pipeline_tests
