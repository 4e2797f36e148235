// hiredis_connection, and a mutex over it, in front of servers that hang, drip, lie and go away.
#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <memory>
#include <netinet/in.h>
#include <optional>
#include <poll.h>
#include <signal.h>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/collected.hpp"
#include "support/deaf_listener.hpp"
#include "support/error_of.hpp"
#include "support/fake_server.hpp"
#include "support/hiredis_test.hpp"
#include "support/owner_process.hpp"
#include "support/proxy.hpp"
#include "support/sanitizers.hpp"
#include "support/sleepers.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace bad_server_tests {

using namespace hiredis_test;

namespace {

const std::string quick = "?connect_timeout=300ms&command_timeout=300ms";

reply ask(const std::string& uri) {
    hiredis_connection redis(uri);
    return redis.execute({"GET", "a"});
}

bool printable(const std::string& text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

// Who connects to this port of this machine is given the same port for itself.
std::atomic<std::uint16_t> port_of_both{0};

// Who connects by a unix socket is told so on this one, and hung up on, before it can send anything.
constexpr std::string_view no_room = "-ERR max number of clients reached\r\n";
std::atomic<int> full_listener{-1};

// A full server behind a unix socket: there is one at a time.
class full_server {
  public:
    full_server() : listener_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        if (::mkdtemp(folder_.data()) == nullptr) throw std::runtime_error("no folder");
        std::memcpy(address.sun_path, path().data(), path().size());
        if (::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
            ::listen(listener_.get(), 8) != 0)
            throw std::runtime_error("no listener");
        full_listener = listener_.get();
    }
    full_server(const full_server&) = delete;
    full_server& operator=(const full_server&) = delete;
    ~full_server() {
        full_listener = -1;
        ::unlink(path().c_str());
        ::rmdir(folder_.c_str());
    }
    std::string uri(const std::string& login) const { return "unix://" + login + path() + patient; }
    /// Effects: from now on the test talks to the clients.
    void let_in() const noexcept { full_listener = -1; }
    /// Effects: reads what the next client sends. Returns: the socket to it.
    distlock::testing::impl::unique_fd hear_next() const {
        distlock::testing::impl::unique_fd client{::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
        char chunk[4096];
        static_cast<void>(::recv(client.get(), chunk, sizeof chunk, 0));
        return client;
    }

  private:
    std::string path() const { return folder_ + "/socket"; }
    std::string folder_ = "/tmp/distlock-XXXXXX";
    distlock::testing::impl::unique_fd listener_;
};

// Interrupts whatever the process does, a thousand times a second.
class signal_storm {
  public:
    signal_storm() {
        struct sigaction count {};
        count.sa_handler = [](int) { ++signals(); };  // and no SA_RESTART
        ::sigaction(SIGALRM, &count, &old_);
        signals() = 0;
        set(1000);
    }
    signal_storm(const signal_storm&) = delete;
    signal_storm& operator=(const signal_storm&) = delete;
    ~signal_storm() {
        set(0);
        ::sigaction(SIGALRM, &old_, nullptr);
    }
    static std::atomic<int>& signals() {
        static std::atomic<int> count{0};
        return count;
    }

  private:
    static void set(suseconds_t microseconds) {
        const itimerval every{{0, microseconds}, {0, microseconds}};
        ::setitimer(ITIMER_REAL, &every, nullptr);
    }
    struct sigaction old_ {};
};

std::size_t peak_kilobytes() {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
        std::size_t value = 0;
        if (word == "VmPeak:" && status >> value) return value;
    }
    return 0;
}

// After a conversation with no harm in it: its threads' stacks and arenas are there to be used again.
std::size_t usual_peak_kilobytes() {
    const fake_server server(scripts::once("+OK\r\n"));
    CHECK(ask(server.uri("", patient)).answered());
    return peak_kilobytes();
}

}  // namespace

// In the place of the system's, for the whole program.
extern "C" int connect(int fd, const sockaddr* to, socklen_t size) {
    using function = int (*)(int, const sockaddr*, socklen_t);
    static const auto real = reinterpret_cast<function>(::dlsym(RTLD_NEXT, "connect"));
    const bool by_port = port_of_both != 0 && to->sa_family == AF_INET;
    if (by_port && ntohs(reinterpret_cast<const sockaddr_in*>(to)->sin_port) == port_of_both)
        static_cast<void>(::bind(fd, to, size));
    const int result = real(fd, to, size);
    if (full_listener >= 0 && to->sa_family == AF_UNIX && result == 0) {
        const distlock::testing::impl::unique_fd peer{
            ::accept4(full_listener, nullptr, nullptr, SOCK_CLOEXEC)};
        static_cast<void>(::send(peer.get(), no_room.data(), no_room.size(), MSG_NOSIGNAL));
    }
    return result;
}

TEST_CASE("a client that reaches itself where nobody listens has reached no server") {
    port_of_both = distlock::testing::impl::unused_port();
    const reply r = ask("redis://127.0.0.1:" + std::to_string(port_of_both) + patient);
    port_of_both = 0;
    CHECK(r.is(reply_kind::not_sent));
    CHECK(r.cause() == errc::unreachable);
    CHECK_THAT(r.text(), contains_text("refused"));
}

TEST_CASE("a server that refuses connections is unreachable at once") {
    std::string uri;
    {
        const fake_server gone(scripts::hang);
        uri = gone.uri("", patient);
    }
    reply r;
    const auto took = time_of([&] { r = ask(uri); });
    CHECK(r.is(reply_kind::not_sent));
    CHECK(r.cause() == errc::unreachable);
    CHECK(took <= timing_tolerance);
}

TEST_CASE("a unix socket nobody listens on is unreachable at once") {
    const reply r = ask("unix:///nonexistent/redis.sock" + patient);
    CHECK(r.is(reply_kind::not_sent));
    CHECK(r.cause() == errc::unreachable);
    CHECK_THAT(r.text(), contains_text("/nonexistent/redis.sock"));
}

TEST_CASE("connecting ends at the connect time-out, or at the command's deadline") {
    const deaf_listener server;
    hiredis_connection redis(server.uri(quick));
    reply r;
    auto took = time_of([&] { r = redis.execute({"GET", "a"}); });
    CHECK(r.is(reply_kind::not_sent));
    CHECK(r.cause() == errc::unreachable);
    CHECK(took >= 299ms);
    CHECK(took <= 300ms + timing_tolerance);

    hiredis_connection slow(server.uri(patient));
    took = time_of([&] { r = slow.execute(command{"GET", "a"}.until(clock::now() + 100ms)); });
    CHECK(r.is(reply_kind::not_sent));
    CHECK(took <= 100ms + timing_tolerance);
}

TEST_CASE("a server that accepts and says nothing is given up at the command time-out") {
    const fake_server server(scripts::hang);
    hiredis_connection redis(server.uri("", "?command_timeout=300ms"));
    reply r;
    const auto took = time_of([&] { r = redis.execute({"GET", "a"}); });
    CHECK(r.is(reply_kind::no_answer));
    CHECK(r.cause() == errc::no_reply);
    CHECK(took >= 299ms);
    CHECK(took <= 300ms + timing_tolerance);
}

TEST_CASE("a server that accepts and says nothing is given up at the command's deadline") {
    const fake_server server(scripts::hang);
    hiredis_connection redis(server.uri("", patient));
    reply r;
    const auto took = time_of([&] { r = redis.execute(command{"GET", "a"}.until(clock::now() + 100ms)); });
    CHECK(r.is(reply_kind::no_answer));
    CHECK(r.cause() == errc::no_reply);
    CHECK(took >= 99ms);
    CHECK(took <= 100ms + timing_tolerance);
}

// A read whose deadline is the usual one ends by the socket's own time-out.
TEST_CASE("a command's deadline holds also where it is little shorter than the command time-out") {
    const fake_server server(scripts::hang);
    hiredis_connection redis(server.uri("", "?command_timeout=600ms"));
    reply r;
    const auto took = time_of([&] { r = redis.execute(command{"GET", "a"}.until(clock::now() + 400ms)); });
    CHECK(r.is(reply_kind::no_answer));
    CHECK(took <= 400ms + timing_tolerance);
    CHECK(took >= 399ms);
}

TEST_CASE("a command whose deadline has passed does not wait") {
    const fake_server server(scripts::hang);
    hiredis_connection redis(server.uri("", patient));
    for (const auto deadline : {clock::now() - 1h, clock::time_point{}, clock::time_point::min()}) {
        INFO("deadline " << deadline.time_since_epoch().count());
        reply r;
        CHECK(time_of([&] { r = redis.execute(command{"GET", "a"}.until(deadline)); }) <= timing_tolerance);
        CHECK_FALSE(r.answered());
    }
}

TEST_CASE("a handshake that hangs is not sent, and ends at the connect time-out") {
    const std::string login = GENERATE(as<std::string>{}, "", ":secret@");  // SELECT hangs, AUTH hangs
    const fake_server server(scripts::hang);
    reply r;
    const auto took = time_of([&] { r = ask(server.uri(login, "/3" + quick)); });
    CHECK(r.is(reply_kind::not_sent));
    CHECK(took >= 299ms);
    CHECK(took <= 300ms + timing_tolerance);
    CHECK(server.commands("GET") == 0);
}

TEST_CASE("a reply that drips in byte by byte does not move the one deadline") {
    const std::string start = GENERATE(as<std::string>{}, "$60000\r\n", "*1000\r\n", "+", "-ERR ", "");
    const fake_server server([&](fake_server::peer& p) {
        if (!p.next_command() || !p.send(start)) return;
        while (p.drip(start.starts_with('*') ? ":1\r\n" : "1", 20ms)) continue;
    });
    reply r;
    const auto took = time_of([&] { r = ask(server.uri("", "?command_timeout=300ms")); });
    CHECK(r.is(reply_kind::no_answer));
    CHECK(took <= 300ms + timing_tolerance);
    if (!start.empty()) CHECK(r.cause() == errc::no_reply);
}

TEST_CASE("a handshake that drips in byte by byte does not move the one deadline") {
    const fake_server server([](fake_server::peer& p) {
        if (p.next_command() && p.send("+")) {
            while (p.drip("O", 20ms)) continue;
        }
    });
    reply r;
    const auto took = time_of([&] { r = ask(server.uri(":secret@", quick)); });
    CHECK(r.is(reply_kind::not_sent));
    CHECK(took <= 300ms + timing_tolerance);
}

TEST_CASE("a reply that drips in before the deadline is read whole") {
    const fake_server server([](fake_server::peer& p) {
        if (p.next_command()) p.drip("*2\r\n$5\r\nhello\r\n:42\r\n", 1ms);
        p.wait_for_end();
    });
    const reply r = ask(server.uri("", patient));
    REQUIRE(r.elements().size() == 2);
    CHECK(r.elements()[0].is_string("hello"));
    CHECK(r.elements()[1].is_integer(42));
}

TEST_CASE("a reply cut off at any byte is no answer, and the next command gets its own") {
    const std::string whole = GENERATE(as<std::string>{}, "+OK\r\n", ":12\r\n", "$-1\r\n", "-ERR no\r\n",
                                       "$5\r\nhello\r\n", "*2\r\n:1\r\n$3\r\nabc\r\n");
    const bool reset = GENERATE(false, true);
    std::atomic<std::size_t> cut{0};
    const fake_server server([&](fake_server::peer& p) {
        while (const auto cmd = p.next_command()) {
            if (cmd->at(0) == "ECHO") {
                p.send("+" + cmd->at(1) + "\r\n");
                continue;
            }
            p.send(whole.substr(0, cut));
            return reset ? p.reset() : p.close();
        }
    });
    hiredis_connection redis(server.uri("", patient));
    for (std::size_t k = 0; k < whole.size(); ++k) {
        INFO("cut at byte " << k << " of " << whole);
        cut = k;
        const reply r = redis.execute({"GET", "a"});
        CHECK(r.is(reply_kind::no_answer));
        CHECK(r.cause() == errc::no_reply);
        const std::string mine = std::to_string(k);
        CHECK(redis.execute({"ECHO", mine}).is_status(mine));
    }
    CHECK(server.commands("GET") == static_cast<int>(whole.size()));  // none was repeated
}

TEST_CASE("a handshake cut off at any byte sends no command") {
    const std::string whole = "+OK\r\n";
    std::atomic<std::size_t> cut{0};
    const fake_server server([&](fake_server::peer& p) {
        if (p.next_command()) p.send(whole.substr(0, cut));
    });
    for (std::size_t k = 0; k < whole.size(); ++k) {
        cut = k;
        const reply r = ask(server.uri(":secret@", patient));
        CHECK(r.is(reply_kind::not_sent));
    }
    CHECK(server.commands("GET") == 0);
}

TEST_CASE(
    "a server that hangs up with its answer to the handshake is sent no command, and that step is named") {
    const fake_server server([](fake_server::peer& p) {
        // Both in one packet: the client must not come between.
        if (p.next_command()) ::send(p.fd(), "+OK\r\n", 5, MSG_MORE | MSG_NOSIGNAL);
    });
    const auto [login, database, step] = GENERATE(
        table<std::string, std::string, std::string>({{":secret@", "", "AUTH"}, {"", "/3", "SELECT"}}));
    const reply r = ask(server.uri(login, database + patient));
    CHECK(r.is(reply_kind::not_sent));
    CHECK(r.cause() == errc::unreachable);
    CHECK_THAT(r.text(), contains_text(step + ": the server closed the connection"));
    CHECK(server.commands("GET") == 0);
}

TEST_CASE("garbage is a protocol error, and the socket is dropped") {
    const std::string garbage = GENERATE(
        as<std::string>{}, "HTTP/1.1 400 Bad Request\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n", "!!!\r\n",
        ":abc\r\n", ":1x\r\n", "$abc\r\n", "$-7\r\n", "*-7\r\n", "*x\r\n", "%1\r\n+a\r\n+b\r\n",
        ">1\r\n+a\r\n", "~1\r\n+a\r\n", ",1\r\n", "#t\r\n", "*1\r\n!\r\n", "$99999999999999999999999\r\n",
        ":99999999999999999999999\r\n", std::string(8, '\0'), std::string("\x16\x03\x01\x02\x00\x01\r\n", 8));
    const fake_server server(scripts::once(garbage));
    hiredis_connection redis(server.uri("", patient));
    for (int i = 0; i < 2; ++i) {
        INFO(garbage);
        reply r;
        CHECK(time_of([&] { r = redis.execute({"GET", "a"}); }) <= timing_tolerance);
        CHECK(r.is(reply_kind::no_answer));
        CHECK(r.cause() == errc::protocol_error);
        CHECK(printable(r.text()));
    }
    CHECK(server.accepted() == 2);
}

TEST_CASE("a server that announces two gigabytes and sends them is stopped early") {
    const fake_server server([](fake_server::peer& p) {
        if (!p.next_command() || !p.send("$2147483647\r\n")) return;
        const std::string much(65536, 'x');
        while (p.send(much)) continue;
    });
    const auto before = usual_peak_kilobytes();
    reply r;
    CHECK(time_of([&] { r = ask(server.uri("", patient)); }) <= timing_tolerance);
    CHECK(r.is(reply_kind::no_answer));
    CHECK(r.cause() == errc::reply_too_large);
    if (!instrumented) CHECK(peak_kilobytes() - before < 100 * 1024);
}

TEST_CASE("a huge array announcement takes no memory and no time") {
    const std::string announcement =
        GENERATE(as<std::string>{}, "*2147483647\r\n", "*1025\r\n", "*4294967297\r\n",
                 "*1000\r\n*1000\r\n*1000\r\n*1000\r\n*100000000\r\n");
    const fake_server server(scripts::once(announcement));
    const auto before = usual_peak_kilobytes();
    reply r;
    CHECK(time_of([&] { r = ask(server.uri("", patient)); }) <= timing_tolerance);
    CHECK(r.is(reply_kind::no_answer));
    CHECK((r.cause() == errc::reply_too_large || r.cause() == errc::protocol_error));
    if (!instrumented) CHECK(peak_kilobytes() - before < 100 * 1024);
}

TEST_CASE("deep nesting is refused") {
    const int depth = GENERATE(5, 6, 7, 8, 9, 10, 1000);
    std::string nested;
    for (int i = 0; i < depth; ++i) nested += "*1\r\n";
    const fake_server server(scripts::once(nested + ":1\r\n"));
    reply r;
    CHECK(time_of([&] { r = ask(server.uri("", patient)); }) <= timing_tolerance);
    CHECK(r.is(reply_kind::no_answer));
    CHECK((r.cause() == errc::reply_too_large || r.cause() == errc::protocol_error));
}

TEST_CASE(
    "a reply with as many bytes, elements or levels as it may have is taken, and one with one more is not") {
    const auto text = [](std::size_t size) {
        return "$" + std::to_string(size) + "\r\n" + std::string(size, 'x') + "\r\n";
    };
    const auto array = [](int size) {
        std::string all = "*" + std::to_string(size) + "\r\n";
        for (int i = 0; i < size; ++i) all += ":1\r\n";
        return all;
    };
    const auto nested = [](int depth) {
        std::string all;
        for (int i = 0; i < depth; ++i) all += "*1\r\n";
        return all + ":1\r\n";
    };
    const std::size_t most = 64 * 1024 - std::string_view("$65526\r\n\r\n").size();
    const std::pair<std::string, std::string> rows[] = {
        {text(most), text(most + 1)}, {array(1024), array(1025)}, {nested(4), nested(5)}};
    for (const auto& [taken, refused] : rows) {
        INFO(taken.size() << " bytes");
        const fake_server good(scripts::once(taken));
        CHECK(ask(good.uri("", patient)).answered());
        const fake_server bad(scripts::once(refused));
        CHECK(ask(bad.uri("", patient)).cause() == errc::reply_too_large);
    }
}

TEST_CASE("an error text full of control characters becomes short and printable") {
    const std::size_t size = GENERATE(3000U, 60000U, 70000U);
    std::string text = "-ERR ";
    while (text.size() < size) text += "\x1b[2J\x07\x01\xff evil ";
    const fake_server server(scripts::always(text + "\r\n"));
    hiredis_connection redis(server.uri("", patient));
    const reply r = redis.execute({"GET", "a"});
    CHECK(printable(r.text()));
    CHECK(r.text().size() <= 256);

    distlock::mutex m(redis, "orders", {.lease = 60s, .patience = 0ms});
    const std::string what = error_of([&] { return m.try_lock(); }).what();
    CHECK(printable(what));
    CHECK(what.size() <= 512);
    CHECK_THAT(what, contains_text("orders"));
}

TEST_CASE("a second reply that comes with the first is never taken as the answer to the next command") {
    std::atomic<int> asked{0};
    const fake_server server([&](fake_server::peer& p) {
        while (p.next_command()) {
            const std::string answer = "+" + std::to_string(asked++) + "\r\n";
            if (!p.send(answer + "+stale\r\n")) return;
        }
    });
    hiredis_connection redis(server.uri("", patient));
    for (int i = 0; i < 20; ++i) CHECK(redis.execute({"GET", "a"}).is_status(std::to_string(i)));
}

TEST_CASE("a reply that comes while nobody asked is never taken as the answer to the next command") {
    std::atomic<int> stale{0};
    const fake_server server([&](fake_server::peer& p) {
        if (!p.next_command() || !p.send("+right\r\n")) return;
        // The client has the first when it counts up: what follows comes apart from it.
        if (!eventually([&] { return stale.load() > 2 * p.number(); })) return;
        p.send("+stale\r\n");
        ++stale;
        p.wait_for_end();
    });
    hiredis_connection redis(server.uri("", patient));
    for (int i = 0; i < 10; ++i) {
        CHECK(redis.execute({"GET", "a"}).is_status("right"));
        ++stale;
        REQUIRE(eventually([&] { return stale == 2 * i + 2; }));
    }
    CHECK(server.accepted() == 10);
}

TEST_CASE("a second reply to the handshake is never taken as the answer to a command") {
    const std::string stale =
        GENERATE(as<std::string>{}, "+OK\r\n", "-ERR unknown command 'AUTH', with args: 'secret'\r\n");
    const fake_server server([&](fake_server::peer& p) {
        bool answered = false;
        std::string held_back;
        while (const auto cmd = p.next_command()) {
            // What comes behind a double answer is answered late: a client that took the second answer for
            // this one's has gone on by then.
            if (answered && held_back.empty()) {
                held_back = "+OK\r\n";
                continue;
            }
            if (!p.send(held_back + (cmd->at(0) == "SET" ? "$-1\r\n" : "+OK\r\n" + stale))) return;
            answered = true;
        }
    });
    const auto [login, database] =
        GENERATE(table<std::string, std::string>({{":secret@", ""}, {"", "/3"}, {":secret@", "/3"}}));
    hiredis_connection redis(server.uri(login, database + patient));
    const reply r = redis.execute({"SET", "a", "1", "NX"});
    CHECK_FALSE(r.is_status("OK"));
    CHECK_FALSE(r.is(reply_kind::error));
    if (!login.empty()) CHECK_THAT(r.text(), !contains_text("secret"));
}

// Redis says so in place of the first answer: whoever believes that the password is wrong does not try again.
TEST_CASE("a server that has its fill of clients is unavailable, whatever was to be answered first") {
    const std::string login = GENERATE(as<std::string>{}, ":secret@", "anna:secret@", "");
    const fake_server server(scripts::once("-ERR max number of clients reached\r\n"));
    hiredis_connection redis(server.uri(login, "/3" + patient));
    const reply r = redis.execute({"SET", "a", "1"});
    CHECK(r.is(reply_kind::not_sent));
    CHECK(r.cause() == errc::unavailable);
    CHECK_THAT(r.text(), contains_text("max number of clients"));
    distlock::mutex m{redis, "orders", {.patience = 0ms}};
    std::error_code ec;
    CHECK_FALSE(m.try_lock(ec));
    CHECK(ec == errc::unavailable);
}

// It was unreachable: the first command could not be sent, and nobody read what had come before that.
TEST_CASE(
    "a server that has its fill of clients is unavailable, also when it hangs up before anything was sent") {
    const std::string login = GENERATE(as<std::string>{}, ":secret@", "");
    const full_server server;
    const reply r = ask(server.uri(login));
    CHECK(r.is(reply_kind::not_sent));
    CHECK(r.cause() == errc::unavailable);
    CHECK_THAT(r.text(), contains_text("max number of clients"));
}

TEST_CASE("a server that takes a connection and says nothing to its greeting is ridden out") {
    const fake_server server([](fake_server::peer& p) {
        while (const auto cmd = p.next_command()) {
            if (p.number() > 0 && !p.send("+OK\r\n")) return;
        }
    });
    hiredis_connection redis(server.uri(":secret@", quick));
    distlock::mutex m{redis, "orders", {.patience = 20s}};
    CHECK(m.try_lock_for(10s));
    CHECK(server.accepted() > 1);
}

// Only the answers to AUTH and SELECT were dropped.
TEST_CASE("a password that a server repeats in any later error is not shown, and the error is still known") {
    const fake_server server([](fake_server::peer& p) {
        while (const auto cmd = p.next_command()) {
            const bool log_in = cmd->at(0) == "AUTH";
            if (!p.send(log_in ? "+OK\r\n" : "-NOPERM secret who sent 'secretsecret' may not\r\n")) return;
        }
    });
    hiredis_connection redis(server.uri(":secret@", patient));
    const reply r = redis.execute({"SET", "a", "1", "NX"});
    CHECK(r.text() == "NOPERM *** who sent '******' may not");
    distlock::mutex m{redis, "orders"};
    try {
        m.lock();
    } catch (const distlock::error& e) {
        CHECK(e.code() == errc::permission_denied);
        CHECK_THAT(e.what(), !contains_text("secret"));
    }
}

TEST_CASE("a password of four bytes is not shown, and a shorter one, which nobody can keep secret, is") {
    const fake_server server([](fake_server::peer& p) {
        while (const auto cmd = p.next_command()) {
            const bool log_in = cmd->at(0) == "AUTH";
            if (!p.send(log_in ? "+OK\r\n" : "-NOPERM who sent '1234' may not\r\n")) return;
        }
    });
    hiredis_connection four(server.uri(":1234@", patient));
    CHECK(four.execute({"GET", "a"}).text() == "NOPERM who sent '***' may not");
    hiredis_connection three(server.uri(":123@", patient));
    CHECK(three.execute({"GET", "a"}).text() == "NOPERM who sent '1234' may not");
}

TEST_CASE("a second reply to a posted command is never taken as the answer to the next command") {
    const bool in_two_pieces = GENERATE(false, true);
    std::atomic<int> answered{0};
    const fake_server server([&](fake_server::peer& p) {
        while (const auto cmd = p.next_command()) {
            const bool posted = cmd->at(0) == "DEL";
            const std::string rest = in_two_pieces && p.number() == 0 ? "K\r\n" : "$-1\r\n";
            if (!p.send(!posted ? rest : in_two_pieces ? "+OK\r\n+O" : "+OK\r\n+OK\r\n")) return;
            ++answered;
        }
    });
    hiredis_connection redis(server.uri("", patient));
    const auto posted = clock::now();
    REQUIRE(redis.post({"DEL", "a"}));
    // The next command looks whether there is an answer to what was posted longer than a millisecond ago.
    REQUIRE(eventually([&] { return answered == 1 && clock::now() - posted > 20ms; }));
    CHECK(redis.execute({"SET", "a", "1", "NX"}).is(reply_kind::nil));
}

TEST_CASE("behind a post that was answered twice no answer is believed, nor the socket") {
    const fake_server server([](fake_server::peer& p) {
        std::string answers = p.number() == 0 ? "+stale\r\n" : "";
        while (const auto asked = p.next_command()) {
            answers += "+" + asked->back() + "\r\n";
            if (asked->at(0) == "POSTED") continue;
            if (!p.send(std::exchange(answers, ""))) return;
        }
    });
    hiredis_connection redis(server.uri("", patient));
    REQUIRE(redis.post({"POSTED", "posted"}));
    const auto said = redis.execute({"ECHO", "first"});
    CHECK(said.is(reply_kind::no_answer));
    CHECK(said.cause() == errc::protocol_error);
    CHECK(redis.execute({"ECHO", "next"}).is_status("next"));
    CHECK(server.accepted() == 2);
}

TEST_CASE("a late reply of a command that was given up answers nothing") {
    std::atomic<bool> given_up{false};
    const fake_server server([&](fake_server::peer& p) {
        if (p.number() > 0) return scripts::always("+mine\r\n")(p);
        if (!p.next_command() || !eventually([&] { return given_up.load(); })) return;
        p.send("+late\r\n");
        p.wait_for_end();
    });
    hiredis_connection redis(server.uri("", patient));
    CHECK_FALSE(redis.execute(command{"GET", "a"}.until(clock::now() + 50ms)).answered());
    given_up = true;
    CHECK(redis.execute({"GET", "b"}).is_status("mine"));
}

TEST_CASE("a storm of signals prolongs no deadline and breaks no command") {
    const redis_server real;
    const fake_server hanging(scripts::hang);
    const deaf_listener deaf;
    hiredis_connection working(real.uri() + patient);
    hiredis_connection silent(hanging.uri("", quick));
    hiredis_connection unconnected(deaf.uri(quick));

    const signal_storm storm;
    int right = 0;
    for (int i = 0; i < 300; ++i) {
        const std::string text = std::to_string(i);
        if (working.execute({"ECHO", text}).is_string(text)) ++right;
    }
    CHECK(right == 300);
    reply r;
    auto took = time_of([&] { r = silent.execute({"GET", "a"}); });
    CHECK(took >= 299ms);
    CHECK(took <= 300ms + timing_tolerance);
    CHECK_THAT(r.text(), contains_text("no reply in time"));
    took = time_of([&] { r = unconnected.execute({"GET", "a"}); });
    CHECK(took >= 299ms);
    CHECK(took <= 300ms + timing_tolerance);
    const auto news = working.subscribe("news");
    const auto until = clock::now() + 300ms;
    took = time_of([&] {
        distlock::listener listens(news, "");
        while (listens.wait(until, {}) != distlock::listener::woken::by_time) continue;
    });
    CHECK(took >= 299ms);
    CHECK(took <= 300ms + timing_tolerance);
    CHECK(signal_storm::signals() > 100);
}

TEST_CASE("writing to peers that are gone raises no SIGPIPE") {
    struct sigaction old {};
    struct sigaction standard {};
    standard.sa_handler = SIG_DFL;
    ::sigaction(SIGPIPE, &standard, &old);
    const bool reset = GENERATE(false, true);
    const fake_server server([&](fake_server::peer& p) {
        if (p.number() % 2 == 0) p.next_command();
        if (reset) p.reset();
    });
    const std::string large(100000, 'x');
    int answered = 0;
    for (int i = 0; i < 200; ++i) {
        hiredis_connection redis(server.uri("", patient));
        redis.post({"SET", "a", large});
        redis.post({"SET", "a", "small"});
        if (redis.execute({"SET", "a", large}).answered()) ++answered;
    }
    CHECK(answered == 0);
    ::sigaction(SIGPIPE, &old, nullptr);
}

TEST_CASE("a server that closes what it accepts gets each command once, and no false answer") {
    const fake_server server([](fake_server::peer& p) { p.close(); });
    std::optional<hiredis_connection> redis;
    for (int i = 1; i <= 50; ++i) {
        if (i % 10 == 1) redis.emplace(server.uri("", patient));  // behind ten there is a pause
        const reply r = redis->execute({"GET", "a"});
        CHECK_FALSE(r.answered());
        CHECK(eventually([&] { return server.accepted() == i; }));
    }
}

// A port for TLS ends a plain conversation so.
TEST_CASE(
    "the message says that the port may be for TLS when the server ends the connection before it has "
    "answered") {
    const bool reset = GENERATE(false, true);
    const fake_server server([&](fake_server::peer& p) {
        while (const auto cmd = p.next_command()) {
            if (cmd->at(0) != "PING") return reset ? p.reset() : p.close();
            p.send("+PONG\r\n");
        }
    });
    hiredis_connection redis(server.uri("", patient));
    CHECK_THAT(redis.execute({"GET", "a"}).text(),
               contains_text("if the port is for TLS, the scheme is rediss"));
    REQUIRE(redis.execute({"PING"}).answered());
    const reply later = redis.execute({"GET", "a"});
    CHECK_FALSE(later.answered());
    CHECK_THAT(later.text(), !contains_text("TLS"));
}

TEST_CASE("the message about a unix socket does not say that its port may be for TLS: it has none") {
    redis_server server;
    hiredis_connection redis(server.uri() + patient);
    reply ended;
    server.pause();
    sleeper waits([&] { ended = redis.execute({"GET", "a"}); });
    REQUIRE(waits.sleeps());
    server.kill();
    waits.join();
    CHECK_FALSE(ended.answered());
    CHECK_THAT(ended.text(), !contains_text("TLS"));
}

TEST_CASE("a socket that is given up is reset, so that nothing unsent is applied later") {
    std::atomic<int> ended{-1};
    const fake_server server([&](fake_server::peer& p) { ended = static_cast<int>(p.wait_for_end()); });
    hiredis_connection redis(server.uri("", "?command_timeout=50ms"));
    CHECK_FALSE(redis.execute({"GET", "a"}).answered());
    REQUIRE(eventually([&] { return ended >= 0; }));
    CHECK(static_cast<fake_server::ending>(ended.load()) == fake_server::ending::reset);
}

TEST_CASE("a socket that is given up is reset though a forked child has a copy of it") {
    std::atomic<int> ended{-1};
    const fake_server server([&](fake_server::peer& p) {
        if (p.next_command()) p.send("+OK\r\n");
        ended = static_cast<int>(p.wait_for_end());
    });
    hiredis_connection redis(server.uri("", "?command_timeout=50ms"));
    CHECK(redis.execute({"GET", "a"}).answered());
    const owner_process child([] {
        for (;;) ::pause();
        return true;
    });
    CHECK_FALSE(redis.execute({"GET", "a"}).answered());
    REQUIRE(eventually([&] { return ended >= 0; }));
    CHECK(static_cast<fake_server::ending>(ended.load()) == fake_server::ending::reset);
}

TEST_CASE("a command that sat unsent in a socket that is given up never reaches the server") {
    std::atomic<bool> given_up{false};
    std::atomic<int> ended{-1};
    const fake_server server([&](fake_server::peer& p) {
        const bool go_on = eventually([&] { return given_up.load(); });
        if (go_on) ended = static_cast<int>(p.wait_for_end());
    });
    hiredis_connection redis(server.uri("", "?command_timeout=200ms"));
    const std::string much(32 * 1024 * 1024, 'x');  // more than the kernel's buffers take
    reply r;
    CHECK(time_of([&] { r = redis.execute({"SET", "a", much}); }) <= 200ms + timing_tolerance);
    CHECK(r.is(reply_kind::no_answer));
    given_up = true;
    REQUIRE(eventually([&] { return ended >= 0; }));
    CHECK(static_cast<fake_server::ending>(ended.load()) == fake_server::ending::reset);
    CHECK(server.received().size() < much.size());
    CHECK(server.commands("SET") == 0);
}

namespace {

// A slow link to a real server: what a client sends on its first connection is under way until that ends.
// What is under way is lost when the client resets the connection, and arrives when it closes it.
class slow_link {
  public:
    explicit slow_link(const redis_server& server)
        : server_(server), front_([this](fake_server::peer& p) { carry(p); }) {}

    std::string uri(const std::string& time = "100ms") const {
        return front_.uri("", "?command_timeout=" + time);
    }
    /// Effects: the first `count` commands pass without delay, and are answered.
    void let_pass(int count) { pass_ = count; }
    bool ended() const { return ended_; }

  private:
    void carry(fake_server::peer& p) {
        std::vector<fake_server::words> under_way;
        while (const auto command = p.next_command()) {
            if (pass_.fetch_sub(1) > 0) {
                deliver(*command);
                if (!p.send("+OK\r\n")) return;
            } else {
                under_way.push_back(*command);
            }
        }
        if (p.ended() == fake_server::ending::closed) {
            for (const auto& one : under_way) deliver(one);
        }
        if (!under_way.empty()) ended_ = true;
    }
    void deliver(const fake_server::words& command) {
        server_.command(std::vector<std::string_view>(command.begin(), command.end()));
    }

    const redis_server& server_;
    std::atomic<int> pass_{0};
    std::atomic<bool> ended_{false};
    fake_server front_;  // last: its threads use the others
};

}  // namespace

// A SET NX that was given up came later, and locked for a whole lease: its socket carried a
// posted release, too.
TEST_CASE(
    "a command that was given up behind a posted one arrives no more, where a receipt tells of the posted "
    "one") {
    const redis_server server;
    slow_link link(server);
    hiredis_connection redis(link.uri());
    const auto first = std::make_shared<distlock::receipt>();
    const auto second = std::make_shared<distlock::receipt>();
    REQUIRE(redis.post({"SET", "posted", "1"}, first));
    REQUIRE(redis.post({"SET", "posted too", "1"}, second));
    CHECK(redis.execute({"SET", "given up", "1"}).is(reply_kind::no_answer));
    REQUIRE(eventually([&] { return link.ended(); }));
    CHECK(server.command({"DBSIZE"}) == "0");
    for (const auto& one : {first, second}) {
        const auto told = one->answer();
        REQUIRE(told);
        CHECK(told->is(reply_kind::no_answer));
    }
}

TEST_CASE("a command posted without a receipt is delivered, whatever is given up behind it") {
    const redis_server server;
    slow_link link(server);
    hiredis_connection redis(link.uri());
    const bool in_front = GENERATE(false, true);
    if (in_front) REQUIRE(redis.post({"SET", "posted", "1"}));
    REQUIRE(redis.post({"SET", "with a receipt", "1"}, std::make_shared<distlock::receipt>()));
    if (!in_front) REQUIRE(redis.post({"SET", "posted", "1"}));
    CHECK(redis.execute({"SET", "given up", "1"}).is(reply_kind::no_answer));
    REQUIRE(eventually([&] { return link.ended(); }));
    CHECK(server.command({"EXISTS", "posted"}) == "1");
}

TEST_CASE(
    "a command posted without a receipt and answered lets nothing be delivered that is given up later") {
    const redis_server server;
    slow_link link(server);
    link.let_pass(2);
    hiredis_connection redis(link.uri("2s"));
    REQUIRE(redis.post({"SET", "posted", "1"}));
    REQUIRE(redis.execute({"PING"}).answered());
    CHECK(redis.execute({"SET", "given up", "1"}).is(reply_kind::no_answer));
    REQUIRE(eventually([&] { return link.ended(); }));
    CHECK(server.command({"EXISTS", "posted", "given up"}) == "1");
}

TEST_CASE("a healthy socket is closed in good order, posted commands included") {
    std::atomic<int> ended{-1};
    const fake_server server([&](fake_server::peer& p) {
        while (p.next_command()) continue;
        ended = static_cast<int>(p.wait_for_end());
    });
    {
        hiredis_connection redis(server.uri("", patient));
        CHECK(redis.post({"DEL", "a"}));
    }
    REQUIRE(eventually([&] { return ended >= 0; }));
    CHECK(server.commands("DEL") == 1);
    CHECK(static_cast<fake_server::ending>(ended.load()) == fake_server::ending::closed);
}

TEST_CASE("a lock asked of a bad server ends by its deadline, with an error and never with 'busy'") {
    struct bad {
        const char* name;
        fake_server::script behaviour;
        errc cause;
        bool goes_at_once = false;
    };
    const auto cut_off = [](fake_server::peer& p) {
        if (p.next_command()) p.send("+O");
    };
    const auto drips = [](fake_server::peer& p) {
        while (p.next_command() && p.send("+") && p.drip(std::string(1000, 'O'), 20ms)) continue;
    };
    const std::vector<bad> all{
        {"hangs", scripts::hang, errc::no_reply},
        {"closes at once", [](fake_server::peer& p) { p.close(); }, errc::no_reply, true},
        {"resets at once", [](fake_server::peer& p) { p.reset(); }, errc::no_reply, true},
        {"closes in the middle of a reply", cut_off, errc::no_reply},
        {"drips", drips, errc::no_reply},
        {"answers garbage", scripts::always("HTTP/1.1 200 OK\r\n\r\n"), errc::protocol_error},
        {"answers what makes no sense", scripts::always("*0\r\n"), errc::protocol_error},
        {"answers 2 GB", scripts::once("$2147483647\r\n" + std::string(100000, 'x')), errc::reply_too_large},
        {"is loading", scripts::always("-LOADING Redis is loading the dataset in memory\r\n"),
         errc::unavailable},
        {"has no script", scripts::always("-NOSCRIPT No matching script.\r\n"), errc::unavailable},
    };
    for (const bad& one : all) {
        INFO(one.name);
        const fake_server server(one.behaviour);
        hiredis_connection redis(server.uri());
        distlock::mutex m(redis, "orders");
        std::error_code ec;
        bool locked = true;
        const auto took = time_of([&] { locked = m.try_lock_for(300ms, ec); });
        CHECK_FALSE(locked);
        CHECK(took <= 300ms + timing_tolerance);
        // That a peer has gone may be noticed before a byte is sent.
        if (ec != errc::unreachable || !one.goes_at_once) CHECK(ec == one.cause);
        CHECK_FALSE(m.owns_lock());
        CHECK(m.unlock() == release_outcome::not_held);
    }
}

TEST_CASE("a lock whose reply was lost is found again at once, by the same owner") {
    const auto how = GENERATE(losing_proxy::loss::silence, losing_proxy::loss::disconnect);
    const int replies = GENERATE(1, 2);
    const redis_server real;
    losing_proxy proxy(real.socket_path());
    hiredis_connection redis(proxy.uri("?command_timeout=300ms"));
    distlock::mutex m(redis, "orders", {.lease = 60s, .release = distlock::confirmed});
    proxy.lose(replies, how);
    bool locked = false;
    const auto took = time_of([&] { locked = m.try_lock_for(10s); });
    REQUIRE(locked);
    CHECK(proxy.lost() == replies);
    CHECK(took <= replies * 300ms + 5 * timing_tolerance);  // far less than the lease of an orphan
    CHECK(m.remaining() > 50s);
    CHECK(m.unlock() == release_outcome::released);
    CHECK(real.command({"EXISTS", "orders"}) == "0");
}

TEST_CASE("a try whose reply was lost finds its own lock, too") {
    const redis_server real;
    losing_proxy proxy(real.socket_path());
    hiredis_connection redis(proxy.uri("?command_timeout=300ms"));
    distlock::mutex m(redis, "orders", {.lease = 60s, .release = distlock::confirmed});
    proxy.lose(1, losing_proxy::loss::silence);
    CHECK(m.try_lock());
    CHECK(m.unlock() == release_outcome::released);
}

TEST_CASE("a lock that was taken unseen is freed when its taker gives up") {
    const auto how = GENERATE(losing_proxy::loss::silence, losing_proxy::loss::disconnect);
    const redis_server real;
    losing_proxy proxy(real.socket_path());
    hiredis_connection redis(proxy.uri("?command_timeout=100ms"));
    distlock::mutex m(redis, "orders", {.lease = 60s});
    proxy.lose(1'000'000, how);
    std::error_code ec;
    CHECK_FALSE(m.try_lock_for(300ms, ec));
    CHECK(ec == errc::no_reply);
    CHECK(proxy.lost() > 0);
    CHECK(eventually([&] { return real.command({"EXISTS", "orders"}) == "0"; }));
    proxy.lose(0, how);
    CHECK(m.try_lock_for(10s));
}

TEST_CASE("a lock that was taken unseen is freed when the wait is cancelled") {
    const redis_server real;
    losing_proxy proxy(real.socket_path());
    hiredis_connection redis(proxy.uri("?command_timeout=100ms"));
    distlock::mutex m(redis, "orders", {.lease = 60s, .patience = 60s});
    proxy.lose(1'000'000, losing_proxy::loss::silence);
    std::stop_source stop;
    std::error_code ec;
    std::thread waiter([&] { static_cast<void>(m.try_lock_for(1h, stop.get_token(), ec)); });
    const bool taken = eventually([&] { return real.command({"EXISTS", "orders"}) == "1"; });
    stop.request_stop();
    waiter.join();
    REQUIRE(taken);
    CHECK(ec == errc::cancelled);
    CHECK(eventually([&] { return real.command({"EXISTS", "orders"}) == "0"; }));
}

TEST_CASE("a release whose reply was lost is a release") {
    const auto how = GENERATE(losing_proxy::loss::silence, losing_proxy::loss::disconnect);
    const redis_server real;
    losing_proxy proxy(real.socket_path());
    hiredis_connection redis(proxy.uri("?command_timeout=300ms"));
    distlock::mutex m(redis, "orders", {.lease = 60s, .release = distlock::confirmed});
    // The script is known then, so that the lost reply is that of the release itself.
    m.lock();
    REQUIRE(m.unlock() == release_outcome::released);
    m.lock();
    proxy.lose(1, how);
    CHECK(m.unlock() == release_outcome::released);
    CHECK(proxy.lost() == 1);
    CHECK(real.command({"EXISTS", "orders"}) == "0");
}

TEST_CASE("a posted release whose reply was lost is asked for until the server has said that it is done") {
    const auto how = GENERATE(losing_proxy::loss::silence, losing_proxy::loss::disconnect);
    const int replies = GENERATE(1, 3);
    const redis_server real;
    losing_proxy proxy(real.socket_path());
    hiredis_connection redis(proxy.uri("?command_timeout=100ms"));
    distlock::mutex m(redis, "orders", {.lease = 60s});
    m.lock();
    proxy.lose(replies, how);
    CHECK(time_of([&] { CHECK(m.unlock() == release_outcome::posted); }) <= timing_tolerance);
    CHECK(m.residual() > 50s);
    CHECK(eventually([&] { return m.residual() == 0s; }));
    CHECK(proxy.lost() == replies);
    CHECK(real.command({"EXISTS", "orders"}) == "0");
}

// It was sent again without its receipt: the release was not known to be done for a command time-out.
TEST_CASE("a post that a full server turned away is confirmed by the answer on its next socket") {
    const auto say = [](const auto& client, std::string_view text) {
        REQUIRE(::send(client.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
                static_cast<ssize_t>(text.size()));
    };
    // In most rounds both are posted within a millisecond: the socket is not looked at before it is used.
    for (int round = 0; round < 20; ++round) {
        const full_server server;
        server.let_in();
        hiredis_connection redis(server.uri(""));
        REQUIRE(redis.post({"DEL", "a"}));
        say(server.hear_next(), no_room);
        const auto told = std::make_shared<distlock::receipt>();
        REQUIRE(redis.post({"DEL", "b"}, told));
        const auto client = server.hear_next();
        say(client, "+OK\r\n");
        const auto answer = collected(redis, *told);
        REQUIRE(answer);
        CHECK(answer->is_status("OK"));
    }
}

}  // namespace bad_server_tests
