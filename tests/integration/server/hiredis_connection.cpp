// hiredis_connection over real servers: what it carries, how it keeps its sockets, and
// where it stops waiting.
#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <atomic>
#include <chrono>
#include <fcntl.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <set>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "support/catch.hpp"
#include "support/closed_port.hpp"
#include "support/descriptors.hpp"
#include "support/error_of.hpp"
#include "support/fake_server.hpp"
#include "support/hiredis_test.hpp"
#include "support/in_child.hpp"
#include "support/sanitizers.hpp"
#include "support/server_counts.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace hiredis_connection_tests {

using namespace hiredis_test;

namespace {

const std::string canary = "hunter2-canary";

redis_server_options over_tcp(std::vector<std::string> arguments = {}) {
    redis_server_options options;
    options.tcp = true;
    options.arguments = std::move(arguments);
    return options;
}

std::string unix_uri(const redis_server& server, const std::string& login) {
    return "unix://" + login + server.socket_path() + patient;
}

bool blocked(const redis_server& server, int how_many) {
    return counted(server, "clients", "blocked_clients:") == how_many;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a connection carries commands over TCP and over a unix socket") {
    const bool tcp = GENERATE(false, true);
    redis_server_options options;
    options.tcp = tcp;
    const redis_server server(options);
    hiredis_connection redis(server.uri() + patient);

    CHECK(redis.execute({"SET", "a", "1"}).is_status("OK"));
    CHECK(redis.execute({"GET", "a"}).is_string("1"));
    CHECK(redis.execute({"INCR", "a"}).is_integer(2));
    CHECK(redis.execute({"GET", "nothing"}).is(reply_kind::nil));
    CHECK(redis.execute({"LPUSH", "a", "x"}).is(reply_kind::error));
    CHECK(redis.execute({"RPUSH", "l", "x", "y"}).is_integer(2));
    const reply list = redis.execute({"LRANGE", "l", "0", "-1"});
    REQUIRE(list.elements().size() == 2);
    CHECK(list.elements()[0].is_string("x"));
    CHECK(list.elements()[1].is_string("y"));
    CHECK(server.command({"GET", "a"}) == "2");
}

TEST_CASE("a host name is looked up") {
    const redis_server server(over_tcp());
    hiredis_connection redis("redis://localhost:" + std::to_string(server.port()) + patient);
    const reply answer = redis.execute({"PING"});
    addrinfo* found = nullptr;
    const bool known = ::getaddrinfo("localhost", nullptr, nullptr, &found) == 0;
    if (known) ::freeaddrinfo(found);
    // A machine without /etc/hosts, as a bare chroot is, does not know the name: then it is
    // the reason that counts.
    CHECK(answer.is_status("PONG") == known);
    CHECK((known || answer.is(reply_kind::not_sent)));
}

TEST_CASE("an IPv6 address is connected to") {
    const int probe = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in6 loopback{};
    loopback.sin6_family = AF_INET6;
    loopback.sin6_addr = in6addr_loopback;
    const bool available =
        probe >= 0 && ::bind(probe, reinterpret_cast<const sockaddr*>(&loopback), sizeof loopback) == 0;
    if (probe >= 0) ::close(probe);
    NOT_TESTED_UNLESS(available, "this machine has no IPv6 loopback");
    const redis_server server(over_tcp({"--bind", "127.0.0.1", "::1"}));
    hiredis_connection redis("redis://[::1]:" + std::to_string(server.port()) + patient);
    CHECK(redis.execute({"PING"}).is_status("PONG"));
    CHECK(has(redis.execute({"CLIENT", "INFO"}).text(), "addr=[::1]:"));
}

TEST_CASE("any bytes travel in an argument, and come back") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    std::string all;
    for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
    for (const std::string& text : {all, std::string(), std::string("a\r\n$4\r\nPING\r\n"),
                                    std::string("\0", 1), std::string(50000, 'x')}) {
        CHECK(redis.execute({"ECHO", text}).is_string(text));
        CHECK(redis.execute({"SET", text, "here"}).is_status("OK"));
        CHECK(redis.execute({"GET", text}).is_string("here"));
    }
}

TEST_CASE("a password authenticates the default user") {
    const redis_server server(with({"--requirepass", canary}));
    hiredis_connection redis(unix_uri(server, ":" + canary + "@"));
    CHECK(redis.execute({"PING"}).is_status("PONG"));
}

TEST_CASE("a user and a password authenticate an ACL user") {
    const redis_server server;
    REQUIRE(server.command({"ACL", "SETUSER", "anna", "on", ">" + canary, "allcommands", "allkeys"}) == "OK");
    hiredis_connection redis(unix_uri(server, "anna:" + canary + "@"));
    CHECK(redis.execute({"ACL", "WHOAMI"}).is_string("anna"));
}

TEST_CASE("a wrong password or none is an error that names the server and no password") {
    const redis_server server(with({"--requirepass", "right"}));
    hiredis_connection wrong(unix_uri(server, ":" + canary + "@"));
    hiredis_connection unknown_user(unix_uri(server, "nobody:" + canary + "@"));
    for (hiredis_connection* redis : {&wrong, &unknown_user}) {
        const reply r = redis->execute({"SET", "a", "1"});
        CHECK(r.is(reply_kind::not_sent));
        CHECK(r.cause() == errc::authentication_failed);
        CHECK_THAT(r.text(), contains_text("redis.sock"));
        CHECK_THAT(r.text(), !contains_text(canary));
    }
    hiredis_connection none(unix_uri(server, ""));
    CHECK_THAT(none.execute({"SET", "a", "1"}).text(), contains_text("NOAUTH"));
    hiredis_connection usual("unix://" + server.socket_path());
    const auto names_it = [&](auto call) { CHECK_THAT(error_of(call).what(), contains_text("redis.sock")); };
    names_it([&] { distlock::mutex(usual, "a").lock(); });
    names_it([&] { distlock::inspect(usual, "a"); });
    names_it([&] { distlock::force_release(usual, "a"); });
    names_it([&] { static_cast<void>(distlock::leader_election(usual, "a").leader()); });
    names_it([&] { distlock::counting_semaphore(usual, "a", 2).resize(3); });
    CHECK(server.command({"EXISTS", "a"}) == "0");
}

TEST_CASE("an error of a server that was not reached names it once") {
    const closed_port nobody;
    const auto where = "redis://127.0.0.1:" + std::to_string(nobody.number());
    hiredis_connection redis(where);
    distlock::mutex m{redis, "orders", {.patience = 0ms}};
    const std::string what = error_of([&] { m.lock(); }).what();
    INFO(what);
    CHECK(what.find(where) != std::string::npos);
    CHECK(what.find(where) == what.rfind(where));
}

TEST_CASE("a server that has no password is told from one that refuses it") {
    const std::string password = GENERATE(as<std::string>{}, canary, "configured");  // a word of the answer
    const redis_server server(with({}));
    hiredis_connection redis(unix_uri(server, ":" + password + "@"));
    const reply r = redis.execute({"PING"});
    CHECK(r.cause() == errc::authentication_failed);
    CHECK_THAT(r.text(), contains_text("has no password") && !contains_text(password));
}

// "Check user and password", and nothing was wrong with them; nor with the number of the database.
TEST_CASE("a server in protected mode is told from one that refuses the password, or the database") {
    const auto [login, database] =
        GENERATE_COPY(table<std::string, std::string>({{":" + canary + "@", ""}, {"", "&db=2"}}));
    const fake_server server(scripts::once("-DENIED Redis is running in protected mode because ...\r\n"));
    hiredis_connection redis(server.uri(login, patient + database));
    const reply r = redis.execute({"PING"});
    CHECK(r.is(reply_kind::not_sent));
    CHECK(r.cause() == errc::server_error);
    CHECK_THAT(r.text(), contains_text("protected mode") && contains_text("127.0.0.1"));
    CHECK_THAT(r.text(), !contains_text(canary));
}

TEST_CASE("a password the server does not want is an error") {
    const redis_server server;
    hiredis_connection redis(unix_uri(server, ":" + canary + "@"));
    const reply r = redis.execute({"PING"});
    CHECK(r.is(reply_kind::not_sent));
    CHECK(r.cause() == errc::authentication_failed);
}

TEST_CASE("the database of the URI is selected on every socket") {
    const redis_server server;
    hiredis_connection zero(server.uri());
    hiredis_connection two(server.uri() + patient + "&db=2");
    CHECK(two.execute({"SET", "where", "two"}).is_status("OK"));
    CHECK(zero.execute({"EXISTS", "where"}).is_integer(0));
    server.command({"CLIENT", "KILL", "TYPE", "normal"});
    CHECK(two.execute({"GET", "where"}).is_string("two"));
}

TEST_CASE("a database the server does not have is an error, and nothing is sent to another") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient + "&db=99");
    const reply r = redis.execute({"SET", "a", "1"});
    CHECK(r.is(reply_kind::not_sent));
    CHECK(r.cause() == errc::invalid_uri);
    CHECK_THAT(r.text(), contains_text("SELECT was refused: no such database"));
    CHECK(server.command({"EXISTS", "a"}) == "0");
}

// It said that the server had answered with an error, and to look that up; and hid the answer.
TEST_CASE("a database of a Cluster's node is an error that says what to use") {
    const redis_server server(with({"--cluster-enabled", "yes", "--cluster-port",
                                    std::to_string(distlock::testing::impl::unused_port())}));
    hiredis_connection redis(server.uri() + patient + "&db=2");
    const reply r = redis.execute({"SET", "a", "1"});
    CHECK(r.is(reply_kind::not_sent));
    CHECK(r.cause() == errc::invalid_uri);
    CHECK_THAT(r.text(), contains_text("node of a Cluster") && contains_text("redis+cluster://"));
}

TEST_CASE("a user who may not SELECT is not told that the database's number is wrong") {
    const redis_server server;
    server.command({"ACL", "SETUSER", "worker", "on", ">secret", "~*", "&*", "+@all", "-select"});
    hiredis_connection redis("unix://worker:secret@" + server.socket_path() + patient + "&db=1");
    const reply r = redis.execute({"SET", "a", "1"});
    CHECK(r.is(reply_kind::not_sent));
    CHECK(r.cause() == errc::permission_denied);
    CHECK_THAT(r.text(), contains_text("SELECT was refused") && !contains_text("number"));
}

TEST_CASE("commands one after the other travel on one socket") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const auto before = counted(server, "stats", "total_connections_received:");
    const auto id = redis.execute({"CLIENT", "ID"}).number();
    for (int i = 0; i < 100; ++i) REQUIRE(redis.execute({"CLIENT", "ID"}).is_integer(id));
    // Whoever asks is counted, too.
    CHECK(counted(server, "stats", "total_connections_received:") == before + 2);
    CHECK(sockets_at(server) == 1);
}

TEST_CASE("the socket used last is used first") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    const auto id = [&] { return redis.execute({"CLIENT", "ID"}).number(); };
    const auto first = id();
    reply popped;
    std::thread waiter([&] { popped = redis.execute({"BLPOP", "list", "0"}); });
    const bool waits = eventually([&] { return blocked(server, 1); });
    const auto second = id();
    server.command({"RPUSH", "list", "x"});
    waiter.join();
    REQUIRE(waits);
    CHECK(popped.is(reply_kind::array));
    CHECK(second != first);
    CHECK(id() == first);
    CHECK(id() == first);
    CHECK(sockets_at(server) == 2);
}

TEST_CASE("no more than max_idle sockets stay open, and the one for pipelines") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient + "&max_idle=2");
    std::array<reply, 1> replies;
    redis.pipeline(std::array<command, 1>{command({"PING"})}, replies);
    std::vector<std::thread> waiters;
    for (int i = 0; i < 5; ++i)
        waiters.emplace_back([&] { static_cast<void>(redis.execute({"BLPOP", "list", "0"})); });
    const bool all_wait = eventually([&] { return blocked(server, 5); });
    const auto sockets = sockets_at(server);
    server.command({"RPUSH", "list", "1", "2", "3", "4", "5"});
    for (std::thread& t : waiters) t.join();
    REQUIRE(all_wait);
    CHECK(sockets == 5 + 1);
    CHECK(eventually([&] { return sockets_at(server) == 2 + 1; }));
}

TEST_CASE("eight threads on one connection read their own answers") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    std::atomic<int> right{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
        threads.emplace_back([&, t] {
            const std::string key = "key" + std::to_string(t);
            for (int i = 0; i < 250; ++i) {
                const std::string value = std::to_string(t) + ":" + std::to_string(i);
                if (redis.execute({"SET", key, value}).is_status("OK")) ++right;
                if (redis.execute({"GET", key}).is_string(value)) ++right;
            }
        });
    }
    for (std::thread& t : threads) t.join();
    CHECK(right == 8 * 500);
    CHECK(sockets_at(server) <= 8);
}

TEST_CASE("no descriptor of a connection is inherited by a program that is started") {
    const redis_server server(over_tcp());
    const auto before = open_descriptors();
    hiredis_connection redis(server.uri() + patient);
    REQUIRE(redis.execute({"PING"}).answered());
    const auto news = redis.subscribe("news");
    distlock::listener listens(news, "");
    REQUIRE(listens.wait(clock::now() + 20s, {}) == distlock::listener::woken::by_confirmation);
    const auto opened = opened_since(before);
    std::set<int> inherited;
    for (const int fd : opened) {
        if ((::fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0) inherited.insert(fd);
    }
#ifdef DISTLOCK_ON_LINUX
    constexpr std::size_t waking = 1;
#else
    constexpr std::size_t waking = 2;  // the ends of a pipe
#endif
    CHECK(opened.size() == 2 + waking);  // two sockets, and what wakes the thread that reads messages
    CHECK(inherited.empty());
}

TEST_CASE("a TCP socket sends at once and notices a dead peer") {
    const redis_server server(over_tcp());
    const auto before = open_descriptors();
    hiredis_connection redis(server.uri() + patient);
    REQUIRE(redis.execute({"PING"}).is_status("PONG"));
    const auto opened = opened_since(before);
    REQUIRE(opened.size() == 1);
    const int fd = *opened.begin();
    CHECK(socket_option(fd, IPPROTO_TCP, TCP_NODELAY) == 1);
    CHECK(socket_option(fd, SOL_SOCKET, SO_KEEPALIVE) == 1);
    CHECK(socket_option(fd, IPPROTO_TCP, TCP_KEEPIDLE) <= 60);
    CHECK(socket_option(fd, IPPROTO_TCP, TCP_KEEPINTVL) * socket_option(fd, IPPROTO_TCP, TCP_KEEPCNT) <= 30);
}

TEST_CASE("a connection that goes closes what it opened") {
    const redis_server server;
    const auto before = open_descriptors();
    {
        hiredis_connection redis(server.uri() + patient);
        REQUIRE(redis.execute({"PING"}).answered());
        CHECK(opened_since(before).size() == 1);
    }
    CHECK(opened_since(before).empty());
    CHECK(eventually([&] { return sockets_at(server) == 0; }));
}

TEST_CASE("a server that was restarted is found again") {
    redis_server server(over_tcp());
    hiredis_connection redis(server.uri() + patient);
    for (int i = 0; i < 3; ++i) {
        REQUIRE(redis.execute({"PING"}).is_status("PONG"));
        if (i % 2 == 0) {
            server.kill();
        } else {
            server.stop();
        }
        const reply down = redis.execute({"PING"});
        CHECK(down.is(reply_kind::not_sent));
        CHECK(down.cause() == errc::unreachable);
        server.start();
        CHECK(redis.execute({"PING"}).is_status("PONG"));
    }
}

TEST_CASE("the caller does not notice that idle sockets were closed by the server") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    for (int i = 0; i < 20; ++i) {
        const auto id = redis.execute({"CLIENT", "ID"}).number();
        REQUIRE(id > 0);
        server.command({"CLIENT", "KILL", "TYPE", "normal"});
        const reply next = redis.execute({"CLIENT", "ID"});
        REQUIRE(next.is(reply_kind::integer));
        CHECK(next.number() != id);
    }
}

TEST_CASE("commands that one thread posts and then executes arrive in order") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    int right = 0;
    for (int i = 0; i < 300; ++i) {
        const std::string value = std::to_string(i);
        if (!redis.post({"SET", "a", value})) break;
        if (redis.execute({"GET", "a"}).is_string(value)) ++right;
    }
    CHECK(right == 300);
    CHECK(sockets_at(server) == 1);
}

TEST_CASE("the replies of posted commands are skipped, errors and large ones too") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    REQUIRE(redis.execute({"SET", "a", std::string(30000, 'x')}).is_status("OK"));
    for (int i = 0; i < 20; ++i) {
        REQUIRE(redis.post({"NO-SUCH-COMMAND"}));
        REQUIRE(redis.post({"GET", "a"}));
        REQUIRE(redis.post({"GET", "a"}));
        REQUIRE(redis.post({"GET", "a"}));
    }
    CHECK(redis.execute({"ECHO", "mine"}).is_string("mine"));
    CHECK(redis.execute({"ECHO", "mine again"}).is_string("mine again"));
}

TEST_CASE("a thousand posts in a row are all applied, before the next command") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    for (int i = 0; i < 1000; ++i) REQUIRE(redis.post({"INCR", "count"}));
    CHECK(redis.execute({"GET", "count"}).is_string("1000"));
}

TEST_CASE("a command posted to a server that stands still is applied when it goes on") {
    redis_server server(over_tcp());
    hiredis_connection redis(server.uri());
    REQUIRE(redis.execute({"PING"}).answered());
    server.pause();
    int posted = 0;
    for (int i = 0; i < 300; ++i) {
        const std::string element = std::to_string(i) + std::string(1000, '.');
        if (redis.post({"SADD", "posted", element})) ++posted;
    }
    server.resume();
    CHECK(posted > 0);
    CHECK(eventually([&] { return server.command({"SCARD", "posted"}) == std::to_string(posted); }));
}

TEST_CASE("a post that nobody can receive says so") {
    redis_server server(over_tcp());
    hiredis_connection redis(server.uri() + patient);
    CHECK(redis.post({"PING"}));
    server.kill();
    hiredis_connection fresh(server.uri() + patient);
    CHECK_FALSE(fresh.post({"PING"}));
}

TEST_CASE("a server that was restarted after a post is found again") {
    redis_server server(over_tcp());
    hiredis_connection redis(server.uri() + patient);
    REQUIRE(redis.post({"PING"}));
    server.restart();
    const reply next = redis.execute({"ECHO", "a"});  // unknown, or answered; never the reply of the post
    CHECK((!next.answered() || next.is_string("a")));
    CHECK(redis.execute({"ECHO", "b"}).is_string("b"));
}

TEST_CASE("half a command is never applied") {
    redis_server_options options;
    options.tcp = GENERATE(false, true);
    redis_server server(options);
    hiredis_connection redis(server.uri());
    REQUIRE(redis.execute({"PING"}).answered());
    const std::string much(16 * 1024 * 1024, 'x');  // more than the two kernels' buffers take
    server.pause();
    reply r;
    const auto took = time_of([&] { r = redis.execute({"SET", "a", much}); });
    server.resume();
    CHECK_FALSE(r.answered());
    CHECK(took <= 200ms + timing_tolerance);
    CHECK(eventually([&] { return sockets_at(server) == 0; }));
    CHECK(server.command({"EXISTS", "a"}) == "0");
}

TEST_CASE("a child after fork() is refused") {
    const redis_server server;
    hiredis_connection redis(server.uri() + patient);
    REQUIRE(redis.execute({"PING"}).answered());
    const auto refused = [](const reply& r) {
        return r.is(reply_kind::not_sent) && r.cause() == errc::wrong_process;
    };
    CHECK(in_child([&] { return refused(redis.execute({"SET", "a", "child"})); }));
    CHECK(in_child([&] {
        std::array<reply, 1> replies;
        redis.pipeline(std::array<command, 1>{command{"SET", "a", "child"}}, replies);
        return refused(replies[0]);
    }));
    CHECK(in_child([&] { return !redis.post({"SET", "a", "child"}); }));
    CHECK(redis.execute({"GET", "a"}).is(reply_kind::nil));
}

TEST_CASE("a child after fork() reads no answer that is its parent's") {
    std::atomic<bool> answered{false};
    const fake_server server([&](fake_server::peer& p) {
        while (p.next_command() && p.send("+OK\r\n")) answered = true;
    });
    hiredis_connection redis(server.uri("", patient));
    const auto told = std::make_shared<distlock::receipt>();
    REQUIRE(redis.post({"DEL", "a"}, told));
    REQUIRE(eventually([&] { return answered.load(); }));
    REQUIRE(in_child([&] {
        redis.collect();
        return true;
    }));
    redis.collect();
    const auto answer = told->answer();
    REQUIRE(answer);
    CHECK(answer->is_status("OK"));
}

// It told the receipts of what was posted, whose mutex nobody would unlock any more.
TEST_CASE(
    "a child ends its copy of a connection although a thread of its parent was just reading a receipt") {
    NOT_TESTED_UNLESS(!instrumented,
                      "a sanitizer's allocator does not survive a fork in the middle of an allocation");
    const fake_server silent(scripts::hang);
    auto redis = std::make_unique<hiredis_connection>(silent.uri("", patient));
    const auto told = std::make_shared<distlock::receipt>();
    REQUIRE(redis->post({"DEL", "a"}, told));
    std::atomic<bool> end{false};
    std::vector<std::jthread> readers;
    for (int i = 0; i < 2; ++i) {
        readers.emplace_back([&] {
            while (!end) told->expect();
        });
    }
    // As many forks as it takes to fall into the middle of that.
    bool all = true;
    for (int i = 0; i < 50 && all; ++i) {
        all = in_child([&] {
            ::alarm(5);
            redis.reset();
            return true;
        });
    }
    end = true;
    CHECK(all);
}

TEST_CASE("a child that ends through destructors leaves its parent's sockets alone") {
    const redis_server server(over_tcp());
    auto redis = std::make_unique<hiredis_connection>(server.uri() + patient);
    const auto id = redis->execute({"CLIENT", "ID"}).number();
    REQUIRE(redis->post({"INCR", "posted"}));
    REQUIRE(in_child([&] {
        redis.reset();
        return true;
    }));
    int right = 0;
    for (int i = 0; i < 100; ++i) {
        const std::string text = "parent" + std::to_string(i);
        if (redis->execute({"ECHO", text}).is_string(text)) ++right;
    }
    CHECK(right == 100);
    CHECK(redis->execute({"CLIENT", "ID"}).is_integer(id));
    CHECK(redis->execute({"GET", "posted"}).is_string("1"));
}

TEST_CASE("a child that ends through destructors sends nothing") {
    const fake_server server(scripts::always("+PONG\r\n"));
    auto redis = std::make_unique<hiredis_connection>(server.uri("", "/" + patient));
    REQUIRE(redis->execute({"PING"}).is_status("PONG"));
    REQUIRE(in_child([&] {
        redis.reset();
        return true;
    }));
    REQUIRE(redis->execute({"PING"}).is_status("PONG"));
    const std::string ping = "*1\r\n$4\r\nPING\r\n";
    CHECK(server.received() == ping + ping);
    CHECK(server.accepted() == 1);
}

TEST_CASE("no message of a connection holds the password") {
    redis_server server(over_tcp({"--requirepass", "right"}));
    const std::string login = "anna:" + canary + "@";
    const auto text_from = [&](const std::string& uri) {
        hiredis_connection redis(uri);
        return redis.execute({"GET", "a"}).text();
    };
    const std::string at_server = "redis://" + login + "127.0.0.1:" + std::to_string(server.port());
    std::string all = text_from(at_server + patient);
    server.pause();
    all += text_from(at_server);
    server.kill();
    all += text_from(at_server);
    for (const std::string& echo :
         {"-ERR unknown command 'AUTH', with args beginning with: 'anna' '" + canary + "'\r\n",
          "-ERR wrong number of arguments for 'auth' command " + canary + "\r\n",
          "-WRONGPASS " + canary + "\r\n", "-LOADING " + canary + "\r\n", "-NOAUTH " + canary + "\r\n",
          "+" + canary + "\r\n", "$14\r\n" + canary + "\r\n", "*1\r\n+" + canary + "\r\n",
          "-" + canary + " is no password\r\n", "+OK\r\n-ERR " + canary + "\r\n"}) {
        const fake_server old(scripts::once(echo));
        INFO(echo);
        const std::string text = text_from(old.uri(login, "?command_timeout=100ms"));
        CHECK_THAT(text, !contains_text(canary));
        CHECK_THAT(text, contains_text("127.0.0.1:" + std::to_string(old.port())));
        all += text;
    }
    CHECK_THAT(all, !contains_text(canary));
    CHECK_THAT(all, contains_text("anna"));
}

// An error was told apart by what may be shown of it: a full server refused the password, it seemed.
TEST_CASE("an error is told apart whatever the password is, and does not show it") {
    struct refusal {
        std::string password, answer;
        errc cause;
    };
    const refusal said = GENERATE(values<refusal>({
        {"number", "-ERR max number of clients reached\r\n", errc::unavailable},
        {"command", "-ERR unknown command `SET`, with args\r\n", errc::unsupported_command},
        {"executing", "-ERR The user executing the script can't run this command\r\n",
         errc::permission_denied},
        {"running", "-ERR Error running script (call to f_1): @user_script:1: -READONLY a replica\r\n",
         errc::read_only},
        {"attempted", "-ERR Script attempted to access a non local key\r\n", errc::unavailable},
    }));
    INFO(said.answer);
    const fake_server server([&](fake_server::peer& p) {
        while (const auto command = p.next_command()) {
            if (!p.send(command->at(0) == "AUTH" ? "+OK\r\n" : said.answer)) return;
        }
    });
    const bool full = said.password == "number";
    const fake_server full_server(scripts::once(said.answer));
    hiredis_connection redis((full ? full_server : server).uri(":" + said.password + "@", patient));
    distlock::mutex m(redis, "a", {.patience = 1ms});
    CHECK(error_of([&] { m.lock(); }).code() == said.cause);
    const reply answer = redis.execute({"GET", "a"});
    if (full) return;  // in our own words
    CHECK_THAT(answer.text(), !contains_text(said.password));
    CHECK_THAT(answer.said(), contains_text(said.password));
}

TEST_CASE("the message about a host that has no address tells the system's reason") {
    // No label of a name may be so long.
    hiredis_connection redis("redis://" + std::string(64, 'h'));
    const auto said = redis.execute({distlock::argument("PING")});
    CHECK(said.is(distlock::reply_kind::not_sent));
    CHECK(said.cause() == distlock::errc::unreachable);
    CHECK_THAT(said.text(), contains_text(::gai_strerror(EAI_NONAME)));
}

}  // namespace hiredis_connection_tests
