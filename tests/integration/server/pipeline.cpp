// Many commands in one go over hiredis_connection: real servers, and such that hang, cut
// and lie in the middle.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/fake_server.hpp"
#include "support/hiredis_test.hpp"
#include "support/in_child.hpp"
#include "support/server_counts.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace pipeline_tests {

using namespace hiredis_test;

namespace {

// Longer where all takes longer: servers here answer first, and are silent then.
constexpr auto quickly = std::max(300ms, timing_tolerance);
const std::string quick = "?command_timeout=" + std::to_string(quickly.count()) + "ms";

inline constexpr distlock::script add{"return redis.call('INCRBY', KEYS[1], ARGV[1])"};

redis_server_options over(bool tcp) {
    redis_server_options options;
    options.tcp = tcp;
    return options;
}

std::vector<std::string> numbers(std::size_t count, const std::string& before = "") {
    std::vector<std::string> all;
    for (std::size_t i = 0; i < count; ++i) all.push_back(before + std::to_string(i));
    return all;
}

// Commands that are views of `words`: ECHO each.
std::vector<command> echoes(const std::vector<std::string>& words) {
    std::vector<command> all;
    for (const std::string& word : words) all.push_back(command{"ECHO", word});
    return all;
}

std::vector<reply> ask(hiredis_connection& redis, const std::vector<command>& commands) {
    std::vector<reply> replies(commands.size(), reply::integer(-1));
    redis.pipeline(commands, replies);
    return replies;
}

bool all_of(const std::vector<reply>& replies, std::size_t from, std::size_t to, reply_kind kind,
            errc cause) {
    return std::all_of(replies.begin() + static_cast<std::ptrdiff_t>(from),
                       replies.begin() + static_cast<std::ptrdiff_t>(to),
                       [&](const reply& r) { return r.is(kind) && r.cause() == cause; });
}
bool all_of(const std::vector<reply>& replies, reply_kind kind, errc cause) {
    return all_of(replies, 0, replies.size(), kind, cause);
}

// Returns: how many replies from the first one on are the words that were asked for.
std::size_t right(const std::vector<reply>& replies, const std::vector<std::string>& words) {
    std::size_t i = 0;
    while (i < replies.size() && (replies[i].is_status(words[i]) || replies[i].is_string(words[i]))) ++i;
    return i;
}

// What an honest server answers to ECHO.
std::string echo(const fake_server::words& asked) { return "+" + asked.back() + "\r\n"; }

// Answers every command honestly.
void answer_all(fake_server::peer& p) {
    while (const auto asked = p.next_command()) {
        if (!p.send(echo(*asked))) return;
    }
}

// Returns: what an honest server answers to the next `count` commands, all of which have
// come; empty when not.
std::string answers_to(fake_server::peer& p, std::size_t count) {
    std::string answers;
    for (std::size_t i = 0; i < count; ++i) {
        const auto asked = p.next_command();
        if (!asked) return "";
        answers += echo(*asked);
    }
    return answers;
}

// Returns: the first `count` replies of these.
std::string first_of(const std::string& answers, std::size_t count) {
    std::size_t end = 0;
    for (std::size_t i = 0; i < count; ++i) end = answers.find("\r\n", end) + 2;
    return answers.substr(0, end);
}

}  // namespace

TEST_CASE("a pipeline is answered in order, each command with its own reply or error") {
    const redis_server server(over(GENERATE(false, true)));
    hiredis_connection redis(server.uri() + patient);
    const auto replies = ask(redis, {{"SET", "a", "1"},
                                     {"GET", "a"},
                                     {"LPUSH", "a", "x"},
                                     {"INCR", "a"},
                                     {"NO-SUCH-COMMAND", "x"},
                                     {"GET", "nothing"},
                                     {"RPUSH", "l", "x", "y"},
                                     {"LRANGE", "l", "0", "-1"},
                                     command({distlock::argument("PING")})});
    REQUIRE(replies.size() == 9);
    CHECK(replies[0].is_status("OK"));
    CHECK(replies[1].is_string("1"));
    CHECK_THAT(replies[2].text(), contains_text("WRONGTYPE"));
    CHECK(replies[3].is_integer(2));
    CHECK(replies[4].is(reply_kind::error));
    CHECK(replies[5].is(reply_kind::nil));
    CHECK(replies[6].is_integer(2));
    REQUIRE(replies[7].elements().size() == 2);
    CHECK(replies[7].elements()[1].is_string("y"));
    CHECK(replies[8].is_status("PONG"));
}

TEST_CASE("a thousand commands go out together, before anything is answered") {
    const fake_server server([](fake_server::peer& p) {
        const std::string answers = answers_to(p, 1024);
        if (p.send(answers)) answer_all(p);
    });
    hiredis_connection redis(server.uri("", patient));
    const auto words = numbers(1024);
    CHECK(right(ask(redis, echoes(words)), words) == 1024);
    CHECK(ask(redis, {{"ECHO", "next"}})[0].is_status("next"));
    CHECK(server.accepted() == 1);
    CHECK(server.commands("ECHO") == 1025);
}

TEST_CASE("a thousand commands of two hundred bytes, and twenty thousand of a thousand, pass on one socket") {
    const redis_server server(over(GENERATE(false, true)));
    hiredis_connection redis(server.uri() + patient);
    for (const auto& [count, size] : {std::pair(1024U, 200U), std::pair(20'000U, 1000U)}) {
        const auto words = numbers(count, std::string(size, '.'));
        CHECK(right(ask(redis, echoes(words)), words) == count);
    }
    CHECK(ask(redis, {{"ECHO", "next"}})[0].is_string("next"));
    CHECK(sockets_at(server) == 1);
}

TEST_CASE("any bytes travel in the arguments of a pipeline") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    std::string all;
    for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
    const std::vector<std::string> words{all, "", "a\r\n$4\r\nPING\r\n", std::string("\0", 1),
                                         std::string(50'000, 'x')};
    CHECK(right(ask(redis, echoes(words)), words) == words.size());
}

TEST_CASE("no command at all makes no connection") {
    const fake_server server(scripts::hang);
    hiredis_connection redis(server.uri(":secret@", "?connect_timeout=10s"));
    CHECK(time_of([&] { CHECK(ask(redis, {}).empty()); }) <= timing_tolerance);
    CHECK(server.received().empty());
}

TEST_CASE("threads that share a connection read the answers to their own pipelines") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    std::atomic<std::size_t> count{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < 50; ++i) {
                const auto words = numbers(64, std::to_string(t) + ":" + std::to_string(i) + ":");
                count += right(ask(redis, echoes(words)), words);
                if (redis.execute({"ECHO", words[0]}).is_string(words[0])) ++count;
            }
        });
    }
    for (std::thread& t : threads) t.join();
    CHECK(count == 4 * 50 * 65);
    CHECK(sockets_at(server) <= 4 + 1);
}

TEST_CASE("a thousand scripts that the server has lost are each applied once, in two pipelines") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const auto keys = numbers(1024, "key");
    std::vector<command> commands;
    for (const std::string& key : keys)
        commands.emplace_back(add, std::initializer_list<distlock::argument>{key},
                              std::initializer_list<distlock::argument>{"1"});
    std::vector<reply> replies(commands.size());
    for (int round = 1; round <= 3; ++round) {
        INFO("round " << round);
        if (round < 3) server.command({"SCRIPT", "FLUSH"});
        const auto bodies = calls_at(server, "eval");
        distlock::execute_all(redis, commands, replies);
        CHECK(
            std::all_of(replies.begin(), replies.end(), [&](const reply& r) { return r.is_integer(round); }));
        CHECK(calls_at(server, "eval") - bodies == (round < 3 ? 1024 : 0));
    }
    CHECK(calls_at(server, "evalsha") == 3 * 1024);
    CHECK(sockets_at(server) == 1);
}

TEST_CASE("a script that goes in the middle of a pipeline is asked again for those behind it only") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const command one(add, {"sum"}, {"1"});
    REQUIRE(distlock::execute(redis, one).is_integer(1));
    const std::vector<command> commands{one, {"SCRIPT", "FLUSH"}, one, {"GET", "sum"}, {"EVALSHA", "x", "0"},
                                        one};
    std::vector<reply> replies(commands.size());
    distlock::execute_all(redis, commands, replies);
    CHECK(replies[0].is_integer(2));
    CHECK(replies[1].is_status("OK"));
    CHECK(replies[2].is_integer(3));
    CHECK(replies[3].is_string("2"));  // what is asked again comes after all others
    CHECK_THAT(replies[4].text(), contains_text("NOSCRIPT"));
    CHECK(replies[5].is_integer(4));
    CHECK(server.command({"GET", "sum"}) == "4");
}

TEST_CASE("a posted command is applied before a pipeline, and its replies are skipped") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    for (int i = 0; i < 100; ++i) REQUIRE(redis.post({"INCR", "a"}));
    REQUIRE(redis.post({"NO-SUCH-COMMAND"}));
    const auto replies = ask(redis, {{"GET", "a"}, {"ECHO", "mine"}});
    CHECK(replies[0].is_string("100"));
    CHECK(replies[1].is_string("mine"));
    CHECK(sockets_at(server) == 1);
}

TEST_CASE("the cap on a reply is not held against what comes with it") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const std::string large(65'000, 'x');
    REQUIRE(redis.execute({"SET", "large", large}).is_status("OK"));
    std::vector<command> commands;
    for (int i = 0; i < 40; ++i) {
        commands.push_back({"GET", "large"});
        commands.push_back({"ECHO", "small"});
    }
    const auto replies = ask(redis, commands);
    std::size_t count = 0;
    for (std::size_t i = 0; i < replies.size(); ++i) {
        if (replies[i].is_string(i % 2 == 0 ? large : "small")) ++count;
    }
    CHECK(count == replies.size());

    for (int i = 0; i < 40; ++i) REQUIRE(redis.post({"GET", "large"}));
    CHECK(redis.execute({"ECHO", "mine"}).is_string("mine"));
    CHECK(sockets_at(server) == 2);
}

TEST_CASE("a reply over the cap ends a pipeline, and what came before it stands") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    REQUIRE(redis.execute({"SET", "small", std::string(65'500, 'x')}).answered());
    REQUIRE(redis.execute({"SET", "large", std::string(65'550, 'x')}).answered());
    const auto replies = ask(redis, {{"GET", "small"}, {"ECHO", "a"}, {"GET", "large"}, {"ECHO", "b"}});
    CHECK(replies[0].text().size() == 65'500);
    CHECK(replies[1].is_string("a"));
    CHECK(all_of(replies, 2, 4, reply_kind::no_answer, errc::reply_too_large));
    CHECK(ask(redis, {{"ECHO", "next"}})[0].is_string("next"));
}

TEST_CASE("a pipeline that cannot be sent is not sent, every command of it") {
    std::string gone;
    {
        const fake_server server(scripts::hang);
        gone = server.uri("anna:secret@", patient);
    }
    hiredis_connection nobody(gone);
    const auto words = numbers(10);
    std::vector<reply> replies;
    CHECK(time_of([&] { replies = ask(nobody, echoes(words)); }) <= timing_tolerance);
    CHECK(all_of(replies, reply_kind::not_sent, errc::unreachable));
    CHECK_THAT(replies[9].text(), contains_text("anna@127.0.0.1"));
    CHECK_THAT(replies[9].text(), !contains_text("secret"));

    const fake_server refuses(scripts::always("-WRONGPASS no\r\n"));
    hiredis_connection stranger(refuses.uri(":secret@", patient));
    CHECK(all_of(ask(stranger, echoes(words)), reply_kind::not_sent, errc::authentication_failed));

    const fake_server hangs(scripts::hang);
    hiredis_connection slow(hangs.uri(":secret@", "?connect_timeout=100ms"));
    CHECK(all_of(ask(slow, echoes(words)), reply_kind::not_sent, errc::no_reply));
    CHECK(hangs.commands("ECHO") + refuses.commands("ECHO") == 0);
}

TEST_CASE("a child after fork() sends no pipeline") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    REQUIRE(redis.execute({"PING"}).answered());
    CHECK(in_child([&] {
        return all_of(ask(redis, {{"SET", "a", "child"}, {"SET", "b", "child"}}), reply_kind::not_sent,
                      errc::wrong_process);
    }));
    CHECK(redis.execute({"EXISTS", "a", "b"}).is_integer(0));
}

TEST_CASE("a pipeline cut off after any number of replies keeps these, and the next command gets its own") {
    enum class cut { close, reset, silence };
    const cut how = GENERATE(cut::close, cut::reset, cut::silence);
    const auto [count, half] = GENERATE(table<std::size_t, std::string>(
        {{0, ""}, {0, "+"}, {1, ""}, {7, "+half"}, {19, "$5\r\nhal"}, {19, ""}}));
    const auto words = numbers(20);
    const fake_server server([&, answered = count, rest = half](fake_server::peer& p) {
        if (p.number() > 0) return answer_all(p);
        p.send(first_of(answers_to(p, 20), answered) + rest);
        if (how == cut::close) return p.close();
        if (how == cut::reset) return p.reset();
        p.wait_for_end();
    });
    hiredis_connection redis(server.uri("", how == cut::silence ? quick : patient));
    std::vector<reply> replies;
    const auto took = time_of([&] { replies = ask(redis, echoes(words)); });
    CHECK(right(replies, words) == count);
    CHECK(all_of(replies, count, 20, reply_kind::no_answer, errc::no_reply));
    CHECK(took <= (how == cut::silence ? quickly + timing_tolerance : timing_tolerance));
    if (how == cut::silence) CHECK(took >= quickly - 1ms);
    CHECK(redis.execute({"ECHO", "next"}).is_status("next"));
    CHECK(server.accepted() == 2);
    CHECK(server.commands("ECHO") == 21);  // none was repeated
}

TEST_CASE("garbage in a pipeline ends it, and what came before stands") {
    const std::string garbage =
        GENERATE(as<std::string>{}, "!!!\r\n", ":1x\r\n", "$-7\r\n", "HTTP/1.1 400\r\n");
    const auto words = numbers(20);
    const fake_server server([&](fake_server::peer& p) {
        if (p.number() > 0) return answer_all(p);
        const std::string answers = answers_to(p, 20);
        p.send(first_of(answers, 5) + garbage + answers);
        p.wait_for_end();
    });
    hiredis_connection redis(server.uri("", patient));
    const auto replies = ask(redis, echoes(words));
    CHECK(right(replies, words) == 5);
    CHECK(all_of(replies, 5, 20, reply_kind::no_answer, errc::protocol_error));
    CHECK(redis.execute({"ECHO", "next"}).is_status("next"));
}

TEST_CASE("more replies than commands: none that may answer another command is believed, nor the socket") {
    const std::size_t twice = GENERATE(0U, 1U, 10U, 19U);  // the command that is answered twice
    const auto words = numbers(20);
    const fake_server server([&](fake_server::peer& p) {
        if (p.number() > 0) return answer_all(p);
        std::string answers;
        for (std::size_t i = 0; i < 20; ++i) {
            const auto asked = p.next_command();
            if (!asked) return;
            answers += echo(*asked) + (i == twice ? echo(*asked) : "");
        }
        p.send(answers);
        p.wait_for_end();
    });
    hiredis_connection redis(server.uri("", patient));
    const auto replies = ask(redis, echoes(words));
    CHECK(replies[0].is_status("0"));  // that one is certain
    CHECK(all_of(replies, 1, 20, reply_kind::no_answer, errc::protocol_error));
    CHECK(redis.execute({"ECHO", "next"}).is_status("next"));
    CHECK(server.accepted() == 2);
}

TEST_CASE("a pipeline of one command keeps its reply when another comes with it, and drops the socket") {
    const fake_server server([](fake_server::peer& p) {
        while (const auto asked = p.next_command()) {
            if (!p.send(echo(*asked) + "+stale\r\n")) return;
        }
    });
    hiredis_connection redis(server.uri("", patient));
    for (const std::string& word : numbers(5)) CHECK(right(ask(redis, {{"ECHO", word}}), {word}) == 1);
    CHECK(server.accepted() == 5);
}

TEST_CASE("a reply that comes after a pipeline is never taken as the answer to the next command") {
    std::atomic<bool> read{false};
    std::atomic<bool> late{false};
    const auto words = numbers(20);
    const fake_server server([&](fake_server::peer& p) {
        if (p.number() > 0) return answer_all(p);
        if (!p.send(answers_to(p, 20)) || !eventually([&] { return read.load(); })) return;
        p.send("+stale\r\n");
        late = true;
        p.wait_for_end();
    });
    hiredis_connection redis(server.uri("", patient));
    CHECK(right(ask(redis, echoes(words)), words) == 20);
    read = true;
    REQUIRE(eventually([&] { return late.load(); }));
    CHECK(redis.execute({"ECHO", "next"}).is_status("next"));
    CHECK(server.accepted() == 2);
}

TEST_CASE("replies owed to posted commands that come with a pipeline's are skipped") {
    const auto words = numbers(20);
    const fake_server server([](fake_server::peer& p) {
        std::string owed;
        for (int i = 0; i < 3 && p.next_command(); ++i) owed += "-ERR posted\r\n";
        if (p.send(owed + answers_to(p, 20))) answer_all(p);
    });
    hiredis_connection redis(server.uri("", patient));
    for (int i = 0; i < 3; ++i) REQUIRE(redis.post({"DEL", "a"}));
    CHECK(right(ask(redis, echoes(words)), words) == 20);
    CHECK(ask(redis, {{"ECHO", "next"}})[0].is_status("next"));
    CHECK(server.accepted() == 1);
}

TEST_CASE("a second reply to a posted command makes none of the pipeline behind it believed") {
    const fake_server server([](fake_server::peer& p) {
        if (p.number() > 0) return answer_all(p);
        if (!p.next_command()) return;
        p.send("+posted\r\n+posted\r\n" + answers_to(p, 20));
        p.wait_for_end();
    });
    hiredis_connection redis(server.uri("", patient));
    REQUIRE(redis.post({"DEL", "a"}));
    const auto words = numbers(20);
    CHECK(all_of(ask(redis, echoes(words)), reply_kind::no_answer, errc::protocol_error));
    CHECK(redis.execute({"ECHO", "next"}).is_status("next"));
}

TEST_CASE("a pipeline to a server that hangs ends at the command time-out, and its socket is reset") {
    std::atomic<int> ended{-1};
    const fake_server server([&](fake_server::peer& p) { ended = static_cast<int>(p.wait_for_end()); });
    hiredis_connection redis(server.uri("", quick));
    const auto words = numbers(20);
    std::vector<reply> replies;
    const auto took = time_of([&] { replies = ask(redis, echoes(words)); });
    CHECK(all_of(replies, reply_kind::no_answer, errc::no_reply));
    CHECK(took >= quickly - 1ms);
    CHECK(took <= quickly + timing_tolerance);
    REQUIRE(eventually([&] { return ended >= 0; }));
    CHECK(static_cast<fake_server::ending>(ended.load()) == fake_server::ending::reset);
}

TEST_CASE("a command posted before a pipeline that fails is still delivered") {
    std::atomic<int> ended{-1};
    const fake_server server([&](fake_server::peer& p) { ended = static_cast<int>(p.wait_for_end()); });
    hiredis_connection redis(server.uri("", "?command_timeout=50ms"));
    REQUIRE(redis.post({"DEL", "a"}));
    CHECK(all_of(ask(redis, {{"GET", "a"}, {"GET", "b"}}), reply_kind::no_answer, errc::no_reply));
    REQUIRE(eventually([&] { return ended >= 0; }));
    CHECK(static_cast<fake_server::ending>(ended.load()) == fake_server::ending::closed);
    CHECK_THAT(server.received(), contains_text("DEL"));
}

TEST_CASE("a pipeline waits until the latest of its commands' deadlines, and no longer") {
    const fake_server server(scripts::hang);
    hiredis_connection redis(server.uri("", patient));
    const auto now = clock::now();
    std::vector<command> commands{{"GET", "a"}, {"GET", "b"}, {"GET", "c"}};
    commands[0].until(now + 50ms);
    commands[1].until(now + quickly);
    commands[2].until(clock::time_point::min());
    std::vector<reply> replies;
    const auto took = time_of([&] { replies = ask(redis, commands); });
    CHECK(all_of(replies, reply_kind::no_answer, errc::no_reply));
    CHECK(took >= quickly - 10ms);
    CHECK(took <= quickly + timing_tolerance);
}

TEST_CASE("a pipeline whose deadlines have passed does not wait") {
    const fake_server server(scripts::hang);
    hiredis_connection redis(server.uri("", patient));
    for (const auto deadline : {clock::now() - 1h, clock::time_point{}, clock::time_point::min()}) {
        std::vector<command> commands{{"GET", "a"}, {"GET", "b"}};
        for (command& cmd : commands) cmd.until(deadline);
        std::vector<reply> replies;
        CHECK(time_of([&] { replies = ask(redis, commands); }) <= timing_tolerance);
        CHECK_FALSE(replies[0].answered());
        CHECK_FALSE(replies[1].answered());
    }
}

TEST_CASE("a server that answers slowly, but never stops, does not hold a pipeline beyond its deadline") {
    SECTION("reply by reply") {
        const auto words = numbers(1024);
        const fake_server server([](fake_server::peer& p) {
            const std::string answers = answers_to(p, 1024);
            for (std::size_t i = 0; i < answers.size(); i += 6) {
                if (!p.send(answers.substr(i, 6)) || !p.nap(5ms)) return;
            }
        });
        hiredis_connection redis(server.uri("", quick));
        std::vector<reply> replies;
        const auto took = time_of([&] { replies = ask(redis, echoes(words)); });
        CHECK(took >= quickly - 1ms);
        CHECK(took <= quickly + timing_tolerance);
        const std::size_t count = right(replies, words);
        CHECK(count > 0);
        CHECK(all_of(replies, count, 1024, reply_kind::no_answer, errc::no_reply));
    }
    SECTION("so fast that there is always something to read") {
        const auto words = numbers(4096);
        const fake_server server([](fake_server::peer& p) {
            if (answers_to(p, 4096).empty()) return;
            const std::string large = "$60000\r\n" + std::string(60'000, 'x') + "\r\n";
            while (p.send(large)) continue;
        });
        hiredis_connection redis(server.uri("", "?command_timeout=50ms"));
        std::vector<reply> replies;
        CHECK(time_of([&] { replies = ask(redis, echoes(words)); }) <= 50ms + timing_tolerance);
        CHECK_FALSE(replies.back().answered());
    }
}

namespace {

// Commands that are more than the kernel's buffers take, by far.
struct heavy {
    static constexpr std::size_t count = 2000;
    std::vector<std::string> keys = numbers(count, "key:");
    std::string value = std::string(16'384, 'x');
    std::vector<command> commands;

    heavy() {
        for (std::string& key : keys) commands.push_back({"SET", key += ';', value});
    }
    /// Returns: how many bytes the first `number` commands are on the wire.
    std::size_t bytes(std::size_t number) const {
        std::size_t sum = 0;
        for (std::size_t i = 0; i < number; ++i) {
            const std::string digits = std::to_string(keys[i].size());
            sum += ("*3\r\n$3\r\nSET\r\n$" + digits + "\r\n" + keys[i] + "\r\n$16384\r\n").size() +
                   value.size() + 2;
        }
        return sum;
    }
};

// A unix socket whose reader reads only when it is told to, and then everything that was handed to the
// system: what TCP drops on a reset, a unix socket delivers.
class late_reader {
  public:
    late_reader() : listener_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        address_.sun_family = AF_UNIX;
        if (::mkdtemp(folder_.data()) == nullptr) throw std::runtime_error("no folder");
        const std::string path = folder_ + "/socket";
        std::memcpy(address_.sun_path, path.data(), path.size());
        if (::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_) != 0 ||
            ::listen(listener_.get(), 8) != 0)
            throw std::runtime_error("no listener");
    }
    late_reader(const late_reader&) = delete;
    late_reader& operator=(const late_reader&) = delete;
    ~late_reader() {
        ::unlink(address_.sun_path);
        ::rmdir(folder_.c_str());
    }

    std::string uri(const std::string& options) const { return "unix://" + folder_ + "/socket" + options; }

    /// Preconditions: a client was there, and has gone.
    std::string read_all() const {
        const unique_fd client{::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
        std::string all;
        std::vector<char> chunk(65'536);
        ssize_t n = 0;
        while ((n = ::recv(client.get(), chunk.data(), chunk.size(), 0)) > 0 || (n < 0 && errno == EINTR))
            all.append(chunk.data(), static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
        return all;
    }

  private:
    using unique_fd = distlock::testing::impl::unique_fd;
    std::string folder_ = "/tmp/distlock-XXXXXX";
    sockaddr_un address_{};
    unique_fd listener_;
};

// Returns: how many commands something was sent of, when all behind them are not_sent; 0 when that is not so.
std::size_t begun(const std::vector<reply>& replies) {
    const auto first = std::find_if(replies.begin(), replies.end(),
                                    [](const reply& r) { return r.is(reply_kind::not_sent); });
    const auto at = static_cast<std::size_t>(first - replies.begin());
    return all_of(replies, at, replies.size(), reply_kind::not_sent, errc::unreachable) ? at : 0;
}

}  // namespace

TEST_CASE("a server that does not take in a pipeline never gets a byte of what is not_sent") {
    std::atomic<bool> given_up{false};
    std::atomic<int> ended{-1};
    const fake_server server([&](fake_server::peer& p) {
        if (eventually([&] { return given_up.load(); })) ended = static_cast<int>(p.wait_for_end());
    });
    hiredis_connection redis(server.uri("", quick));
    const heavy all;
    std::vector<reply> replies;
    CHECK(time_of([&] { replies = ask(redis, all.commands); }) <= quickly + timing_tolerance);
    given_up = true;
    const std::size_t sent = begun(replies);
    REQUIRE(sent > 0);
    REQUIRE(sent < heavy::count);
    CHECK(all_of(replies, 0, sent, reply_kind::no_answer, errc::no_reply));
    REQUIRE(eventually([&] { return ended >= 0; }));
    CHECK(static_cast<fake_server::ending>(ended.load()) == fake_server::ending::reset);
    const std::string received = server.received();
    CHECK(received.size() <= all.bytes(sent));
    CHECK(received.find(all.keys[0]) != std::string::npos);
    CHECK(received.find(all.keys[sent]) == std::string::npos);
}

TEST_CASE("a command is not_sent exactly when no byte of it was handed to the system") {
    const late_reader server;
    hiredis_connection redis(server.uri(quick));
    const heavy all;
    const auto replies = ask(redis, all.commands);
    const std::size_t sent = begun(replies);
    REQUIRE(sent > 0);
    REQUIRE(sent < heavy::count);
    CHECK(all_of(replies, 0, sent, reply_kind::no_answer, errc::no_reply));
    CHECK_THAT(replies[0].text(), contains_text("sending took too long"));
    const std::string received = server.read_all();
    CHECK(received.size() > all.bytes(sent - 1));
    CHECK(received.size() <= all.bytes(sent));
}

TEST_CASE(
    "a pipeline that ends within its first command is no answer, whatever the server says, and drops the "
    "socket") {
    std::atomic<bool> given_up{false};
    std::atomic<int> ended{-1};
    const fake_server server([&](fake_server::peer& p) {
        if (p.number() > 0) return answer_all(p);
        p.send("+early\r\n");
        if (eventually([&] { return given_up.load(); })) ended = static_cast<int>(p.wait_for_end());
    });
    hiredis_connection redis(server.uri("", quick));
    const std::string much(32 * 1024 * 1024, 'x');
    const auto replies = ask(redis, {{"SET", "a", much}, {"SET", "b", much}});
    CHECK(replies[0].is(reply_kind::no_answer));
    CHECK(replies[1].is(reply_kind::not_sent));
    given_up = true;
    REQUIRE(eventually([&] { return ended >= 0; }));
    CHECK(static_cast<fake_server::ending>(ended.load()) == fake_server::ending::reset);
    CHECK(redis.execute({"ECHO", "next"}).is_status("next"));
}

TEST_CASE(
    "a server never applies half a command of a pipeline that was cut off, and nothing that is not_sent") {
    redis_server server(over(GENERATE(false, true)));
    hiredis_connection redis(server.uri() + quick);
    REQUIRE(redis.execute({"PING"}).answered());
    server.pause();
    const heavy all;
    const auto replies = ask(redis, all.commands);
    const std::size_t sent = begun(replies);
    server.resume();
    REQUIRE(sent > 0);
    REQUIRE(sent < heavy::count);
    CHECK(eventually([&] { return sockets_at(server) == 0; }));
    CHECK(std::stoul(server.command({"DBSIZE"})) <= sent);
    CHECK(server.command({"EXISTS", all.keys[sent]}) == "0");
    for (std::size_t i = 0; i < sent; ++i) {
        const std::string size = server.command({"STRLEN", all.keys[i]});
        if (size != "0" && size != "16384") FAIL_CHECK(all.keys[i] << " has " << size << " bytes");
    }
}

TEST_CASE("replies that came before sending failed stand") {
    const bool reset = GENERATE(true, false);
    const std::string large(10'000, '.');
    const fake_server server([&](fake_server::peer& p) {
        if (p.number() > 0) return answer_all(p);
        std::string answers;
        for (int i = 0; i < 5; ++i) {  // what the window of a socket takes that is not read
            const auto asked = p.next_command();
            if (!asked) return;
            answers += "+" + large + asked->at(1) + "\r\n";
        }
        p.send(answers);
        if (reset) return p.reset();
        p.nap(1h);  // reads no more
    });
    hiredis_connection redis(server.uri("", reset ? patient : quick));
    const heavy all;
    std::vector<reply> replies;
    CHECK(time_of([&] { replies = ask(redis, all.commands); }) <=
          (reset ? 5 * timing_tolerance : quickly + timing_tolerance));
    std::size_t count = 0;
    while (replies[count].is_status(large + all.keys[count])) ++count;
    CHECK(count == 5);
    const std::size_t sent = begun(replies);
    REQUIRE(sent > 5);
    REQUIRE(sent < heavy::count);
    CHECK(all_of(replies, 5, sent, reply_kind::no_answer, errc::no_reply));
    CHECK(redis.execute({"ECHO", "next"}).is_status("next"));
}

TEST_CASE("a server that answers what was not sent is not believed") {
    const fake_server server([](fake_server::peer& p) {
        if (!p.next_command()) return;
        std::string answers;
        for (std::size_t i = 0; i < heavy::count; ++i) answers += "+" + std::to_string(i) + "\r\n";
        p.send(answers);
        p.reset();
    });
    hiredis_connection redis(server.uri("", patient));
    const heavy all;
    const auto replies = ask(redis, all.commands);
    const std::size_t sent = begun(replies);
    CHECK(replies[0].is_status("0"));
    REQUIRE(sent > 1);
    REQUIRE(sent < heavy::count);
    CHECK(all_of(replies, 1, sent, reply_kind::no_answer, errc::protocol_error));
}

TEST_CASE("a pipeline to a server that stands still ends at its deadline, and the next one is answered") {
    redis_server server(over(GENERATE(false, true)));
    hiredis_connection redis(server.uri() + quick);
    REQUIRE(redis.execute({"PING"}).answered());
    const auto words = numbers(1024, std::string(200, '.'));
    server.pause();
    std::vector<reply> replies;
    const auto took = time_of([&] { replies = ask(redis, echoes(words)); });
    server.resume();
    CHECK(took >= quickly - 1ms);
    CHECK(took <= quickly + timing_tolerance);
    CHECK(std::none_of(replies.begin(), replies.end(), [](const reply& r) { return r.answered(); }));
    CHECK(eventually([&] { return right(ask(redis, echoes(words)), words) == words.size(); }));
}

TEST_CASE("a connection has one service of each kind, which may use the connection until it ends") {
    struct entry {
        hiredis_connection& redis;
        bool& answered;
        entry(hiredis_connection& r, bool& a) : redis(r), answered(a) {}
        entry(const entry&) = delete;
        entry& operator=(const entry&) = delete;
        ~entry() { answered = redis.execute({"PING"}).is_status("PONG"); }
    };
    const redis_server server;
    bool answered = false;
    {
        hiredis_connection redis(server.uri() + patient);
        REQUIRE(redis.execute({"PING"}).answered());
        const auto make = [&] { return std::make_shared<entry>(redis, answered); };
        const entry* const first = redis.services().get<entry>(make).get();
        CHECK(redis.services().get<entry>(make).get() == first);
        CHECK_FALSE(answered);
    }
    CHECK(answered);
}

}  // namespace pipeline_tests
