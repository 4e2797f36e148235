// The private server of testing.hpp: it starts, stands still, comes back, and never outlives its owner.
#include <arpa/inet.h>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <netinet/in.h>
#include <optional>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <distlock/testing/redis_server.hpp>

#include "support/catch.hpp"
#include "support/said_by.hpp"
#include "support/timing_tolerance.hpp"

namespace redis_server_tests {

using namespace std::chrono_literals;
using distlock::errc;
using distlock::testing::redis_server;
using distlock::testing::redis_server_options;

namespace {

// Gone, or dead and only not yet buried: in a container without an init nobody buries orphans.
bool gone(pid_t pid) {
    std::ifstream stat{"/proc/" + std::to_string(pid) + "/stat"};
    std::string line;
    if (!std::getline(stat, line)) return true;
    const char state = line[line.rfind(')') + 2];
    return state == 'Z' || state == 'X';
}

template <class Condition>
bool eventually(Condition condition) {
    for (const auto deadline = std::chrono::steady_clock::now() + 10s; !condition();) {
        if (std::chrono::steady_clock::now() >= deadline) return false;
        ::poll(nullptr, 0, 1);
    }
    return true;
}

// Returns what the error of a failing call says; empty if it does not fail with `expected`.
template <class Call>
std::string failure(errc expected, Call call) {
    try {
        call();
    } catch (const distlock::error& failed) {
        return failed.code() == expected ? failed.what() : "";
    }
    return "";
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

// Sets an environment variable until the end of the scope.
class environment {
  public:
    environment(const char* name, const std::string& value) : name_(name) {
        if (const char* const old = std::getenv(name)) old_ = old;
        ::setenv(name, value.c_str(), 1);
    }
    environment(const environment&) = delete;
    environment& operator=(const environment&) = delete;
    ~environment() { old_ ? ::setenv(name_, old_->c_str(), 1) : ::unsetenv(name_); }

  private:
    const char* name_;
    std::optional<std::string> old_;
};

// An empty folder with the given name, removed at the end of the scope.
class scratch_folder {
  public:
    explicit scratch_folder(const std::string& name)
        : path_(std::filesystem::temp_directory_path() / (name + std::to_string(::getpid()))) {
        std::filesystem::create_directory(path_);
    }
    scratch_folder(const scratch_folder&) = delete;
    scratch_folder& operator=(const scratch_folder&) = delete;
    ~scratch_folder() { std::filesystem::remove_all(path_); }
    std::string path() const { return path_.string(); }

  private:
    std::filesystem::path path_;
};

redis_server_options on_tcp() {
    redis_server_options options;
    options.tcp = true;
    return options;
}

// Connects to a port of 127.0.0.1 as any client would.
bool reachable(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const distlock::testing::impl::unique_fd client{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    return ::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

}  // namespace

TEST_CASE("a private server answers on its unix socket") {
    const redis_server server;
    CHECK(server.running());
    CHECK(server.port() == 0);
    CHECK(server.uri() == "unix://" + server.socket_path());
    CHECK(server.command({"PING"}) == "PONG");
}

TEST_CASE("a private server answers on a loopback port when asked to") {
    const redis_server server{on_tcp()};
    CHECK(server.uri() == "redis://127.0.0.1:" + std::to_string(server.port()));
    CHECK(reachable(server.port()));
    CHECK(server.command({"CONFIG", "GET", "bind"}) == "bind\n127.0.0.1");
}

TEST_CASE("replies are rendered as text") {
    const redis_server server;
    CHECK(server.command({"SET", "k", "with \r\n bytes"}) == "OK");
    CHECK(server.command({"GET", "k"}) == "with \r\n bytes");
    CHECK(server.command({"GET", "nothing"}) == "(nil)");
    CHECK(server.command({"DEL", "k"}) == "1");
    CHECK(server.command({"NONSENSE"}).starts_with("-ERR unknown command"));
    CHECK(server.command({"RPUSH", "list", "a", "", "c"}) == "3");
    CHECK(server.command({"LRANGE", "list", "0", "-1"}) == "a\n\nc");
    CHECK(server.command({"LRANGE", "none", "0", "-1"}).empty());
    const std::string large(3'000'000, 'x');
    CHECK(server.command({"SET", "large", large}) == "OK");
    CHECK(server.command({"GET", "large"}) == large);
}

TEST_CASE("the folder is private and goes with the server") {
    std::string folder;
    pid_t pid = -1;
    {
        const redis_server server;
        folder = server.folder();
        pid = server.pid();
        struct stat status {};
        REQUIRE(::stat(folder.c_str(), &status) == 0);
        CHECK((status.st_mode & 0777) == 0700);
        REQUIRE(::stat(server.socket_path().c_str(), &status) == 0);
        CHECK((status.st_mode & 0777) == 0700);
    }
    CHECK(gone(pid));
    CHECK_FALSE(std::filesystem::exists(folder));
}

TEST_CASE("restart keeps the address and forgets the data") {
    for (const bool tcp : {false, true}) {
        redis_server_options options;
        options.tcp = tcp;
        redis_server server{options};
        const std::string uri = server.uri();
        const pid_t pid = server.pid();
        CHECK(server.command({"SET", "k", "v"}) == "OK");
        server.restart();
        CHECK(gone(pid));
        CHECK(server.pid() != pid);
        CHECK(server.uri() == uri);
        CHECK(server.command({"GET", "k"}) == "(nil)");
        if (tcp) CHECK(reachable(server.port()));
    }
}

TEST_CASE("a stopped server refuses connections until it is started again") {
    redis_server server;
    server.stop();
    CHECK_FALSE(server.running());
    CHECK(server.pid() == -1);
    CHECK_FALSE(failure(errc::unreachable, [&] { server.command({"PING"}); }).empty());
    server.stop();  // once more is no error
    server.start();
    CHECK(server.running());
    const pid_t pid = server.pid();
    server.start();  // nothing to do
    CHECK(server.pid() == pid);
    server.pause();
    server.start();
    CHECK(server.pid() == pid);
    CHECK(server.command({"PING"}) == "PONG");
}

TEST_CASE("a killed server is gone when kill returns") {
    redis_server server;
    const pid_t pid = server.pid();
    server.kill();
    CHECK_FALSE(server.running());
    CHECK(::kill(pid, 0) == -1);  // reaped, not a zombie
    server.start();
    CHECK(server.command({"PING"}) == "PONG");
}

TEST_CASE("a server that died by itself is noticed and can be started again") {
    redis_server server;
    REQUIRE(::kill(server.pid(), SIGKILL) == 0);
    CHECK(eventually([&] { return !server.running(); }));
    CHECK(server.pid() == -1);
    server.start();
    CHECK(server.command({"PING"}) == "PONG");
}

TEST_CASE("a persistent server keeps every answered write when it is killed") {
    redis_server_options options;
    options.persistent = true;
    redis_server server{options};
    CHECK(server.command({"SET", "k", "v"}) == "OK");
    server.kill();
    server.start();
    CHECK(server.command({"GET", "k"}) == "v");
}

TEST_CASE("a paused server does not answer and comes back with its data") {
    redis_server server;
    CHECK(server.command({"SET", "k", "v"}) == "OK");
    server.pause();
    server.pause();  // once more is no error, and does not hang
    CHECK(server.running());
    CHECK_FALSE(failure(errc::no_reply, [&] { server.command({"PING"}, 100ms); }).empty());
    server.resume();
    CHECK(server.command({"GET", "k"}) == "v");
}

TEST_CASE("pause returns only when the server stands still") {
    redis_server server;
    for (int round = 0; round < 20; ++round) {
        server.pause();
        std::ifstream stat{"/proc/" + std::to_string(server.pid()) + "/stat"};
        std::string line;
        REQUIRE(std::getline(stat, line));
        CHECK(line[line.rfind(')') + 2] == 'T');
        server.resume();
    }
}

TEST_CASE("a paused server can be stopped, killed and destroyed") {
    redis_server server;
    server.pause();
    const auto start = std::chrono::steady_clock::now();
    server.stop();
    CHECK(std::chrono::steady_clock::now() - start < 4s);  // in good order, not by force after five
    server.start();
    server.pause();
    server.kill();
    server.start();
    CHECK(server.command({"PING"}) == "PONG");
    server.pause();
}

TEST_CASE("servers started at the same time do not collide") {
    std::vector<std::thread> starters;
    std::vector<std::optional<redis_server>> servers(4);
    for (auto& server : servers) starters.emplace_back([&server] { server.emplace(on_tcp()); });
    for (auto& starter : starters) starter.join();
    for (std::size_t i = 0; i < servers.size(); ++i) {
        CHECK(servers[i]->command({"SET", "me", std::to_string(i)}) == "OK");
    }
    for (std::size_t i = 0; i < servers.size(); ++i) {
        CHECK(servers[i]->command({"GET", "me"}) == std::to_string(i));
        for (std::size_t j = 0; j < i; ++j) {
            CHECK(servers[i]->port() != servers[j]->port());
            CHECK(servers[i]->folder() != servers[j]->folder());
        }
    }
}

TEST_CASE("a port that a stranger took in the meantime is reported, and waited for until the time is up") {
    redis_server_options options = on_tcp();
    options.startup = 3s;
    redis_server server{options};
    const std::string uri = server.uri();
    server.stop();
    {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(server.port());
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        const distlock::testing::impl::unique_fd stranger{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
        const int yes = 1;
        ::setsockopt(stranger.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        REQUIRE(::bind(stranger.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
        REQUIRE(::listen(stranger.get(), 1) == 0);
        CHECK(contains(failure(errc::no_server, [&] { server.start(); }), "Address already in use"));
        CHECK_FALSE(server.running());
    }
    server.start();
    CHECK(server.uri() == uri);
    CHECK(reachable(server.port()));
}

TEST_CASE("a missing program is an error that says what to install") {
    redis_server_options options;
    options.program = "no-such-server";
    const std::string said = failure(errc::no_server, [&] { redis_server{options}; });
    CHECK(contains(said, "no-such-server"));
    CHECK(contains(said, "apt-get install redis-server"));
}

TEST_CASE("no server on the PATH is an error that says what to install") {
    const environment no_choice{"DISTLOCK_TEST_SERVER", ""};
    const environment nowhere{"PATH", "/nonexistent"};
    CHECK(contains(failure(errc::no_server, [] { redis_server{}; }), "apt-get install redis-server"));
}

TEST_CASE("a variable that is added to a server's environment takes the place of its namesake only") {
    const environment shorter{"DISTLOCK_TEST_A", "1"};
    const environment same{"DISTLOCK_TEST_AB", "2"};
    const scratch_folder here("distlock-environment-");
    const std::string said = here.path() + "/said";
    const distlock::testing::impl::child_process shows("/bin/sh", {"-c", "env; echo that was all"}, said,
                                                       {"DISTLOCK_TEST_AB=3"});
    std::string all;
    REQUIRE(eventually([&] {
        std::ifstream file(said);
        all.assign(std::istreambuf_iterator<char>(file), {});
        return contains(all, "that was all\n");
    }));
    CHECK(contains(all, "DISTLOCK_TEST_A=1\n"));
    CHECK(contains(all, "DISTLOCK_TEST_AB=3\n"));
    CHECK_FALSE(contains(all, "DISTLOCK_TEST_AB=2"));
}

TEST_CASE("the environment names the server to test with") {
    const environment choice{"DISTLOCK_TEST_SERVER", "/nonexistent/valkey-server"};
    CHECK(contains(failure(errc::no_server, [] { redis_server{}; }), "/nonexistent/valkey-server"));
}

TEST_CASE("a server that cannot start says why, with the end of its log, and leaves no folder behind") {
    const scratch_folder folder{"starts"};
    const environment temporary{"TMPDIR", folder.path()};
    redis_server_options options;
    options.arguments = {"--no-such-setting", "1"};
    CHECK(contains(failure(errc::no_server, [&] { redis_server{options}; }), "no-such-setting"));
    CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("the end of a long log is told of a server that cannot start") {
    const scratch_folder folder{"long_log"};
    const std::string program = std::string(folder.path()) + "/server";
    std::ofstream(program) << "#!/bin/sh\necho its first line\nseq 1000 1999\necho its last line\nexit 1\n";
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    redis_server_options options;
    options.program = program;
    const auto told = failure(errc::no_server, [&] { redis_server{options}; });
    CHECK(contains(told, "its last line"));
    CHECK_FALSE(contains(told, "its first line"));
}

TEST_CASE("a program that runs and never answers is given up when its time to start is up") {
    redis_server_options options;
    options.program = "tail";  // of its settings
    options.arguments = {"-f"};
    options.startup = 200ms;
    const auto begun = std::chrono::steady_clock::now();
    CHECK(contains(failure(errc::no_server, [&] { redis_server{options}; }), "tail did not answer"));
    CHECK(std::chrono::steady_clock::now() - begun >= options.startup);
}

// It left the group that ends with us.
TEST_CASE("a server that is told to become a daemon ends with its object all the same") {
    redis_server_options options;
    options.arguments = {"--daemonize", "yes"};
    redis_server server(options);
    CHECK(server.running());
    CHECK(server.command({"PING"}) == "PONG");
}

TEST_CASE("arguments reach the server, and command() gives the password they set") {
    redis_server_options options;
    options.arguments = {"--requirepass", "secret", "--maxmemory", "100mb"};
    redis_server server{options};
    CHECK(server.command({"CONFIG", "GET", "maxmemory"}) == "maxmemory\n104857600");
    server.restart();
    CHECK(server.command({"PING"}) == "PONG");
}

// A password in one word with its option was not given, and port() did not know a port that was asked for.
TEST_CASE("arguments may be words with their options, and the last of two is the server's") {
    const std::uint16_t port = distlock::testing::impl::unused_port();
    redis_server_options options = on_tcp();
    options.arguments = {"--requirepass", "first", "--REQUIREPASS secret", "--Port " + std::to_string(port)};
    redis_server server{options};
    CHECK(server.command({"PING"}) == "PONG");
    CHECK(server.port() == port);
    CHECK(server.uri() == "redis://127.0.0.1:" + std::to_string(port));
    CHECK(reachable(port));
    options.tcp = false;
    options.arguments = {"--requirepass \"a b\""};
    CHECK(redis_server{options}.command({"PING"}) == "PONG");
    options.arguments = {"--port", "0", "--requirepass", ""};
    const redis_server open{options};
    CHECK(open.command({"PING"}) == "PONG");
    CHECK(open.port() == 0);
}

// The whole reply was read anew for each piece that came: a million elements took two minutes, against
// seconds that were given.
TEST_CASE("a long reply is read once, and its end is waited for until the time is up") {
    const redis_server server;
    REQUIRE(
        server.command({"EVAL",
                        "local t = {} for i = 1, 300000 do t[i] = i end "
                        "for i = 1, 300000, 3000 do redis.call('rpush', KEYS[1], unpack(t, i, i + 2999)) end "
                        "return redis.call('llen', KEYS[1])",
                        "1", "list"}) == "300000");
    const auto begun = std::chrono::steady_clock::now();
    const std::string all = server.command({"LRANGE", "list", "0", "-1"});
    CHECK(std::chrono::steady_clock::now() - begun < 3s + timing_tolerance);
    CHECK(all.ends_with("299999\n300000"));
    CHECK(contains(failure(errc::no_reply,
                           [&] {
                               server.command({"LRANGE", "list", "0", "-1"}, 1ms);
                           }),
                   "private server"));
    CHECK(server.command({"PING"}, std::chrono::milliseconds::max()) == "PONG");
}

TEST_CASE("a time to start without end is no time that is over") {
    redis_server_options options;
    options.startup = std::chrono::milliseconds::max();
    const redis_server server{options};
    CHECK(server.running());
}

TEST_CASE("a command without a word is refused at once: no server would answer") {
    const redis_server server;
    CHECK(contains(failure(errc::invalid_option, [&] { server.command({}); }), "without a word"));
}

TEST_CASE("a temporary folder whose name is too long for a unix socket is an error that says so") {
    const scratch_folder folder{std::string(90, 'd')};
    const environment temporary{"TMPDIR", folder.path()};
    CHECK(contains(failure(errc::no_server, [] { redis_server{}; }), "set TMPDIR to a shorter folder"));
}

// The server changes its folder, and did not find itself.
TEST_CASE("a temporary folder may be named from where the program is") {
    const scratch_folder folder{"relative"};
    const auto here = std::filesystem::current_path();
    std::filesystem::current_path(std::filesystem::path(folder.path()).parent_path());
    const environment temporary{"TMPDIR", std::filesystem::path(folder.path()).filename().string()};
    const redis_server server;
    std::filesystem::current_path(here);
    CHECK(server.command({"PING"}) == "PONG");
    CHECK(server.socket_path().starts_with(folder.path() + "/"));
}

TEST_CASE("a temporary folder with an odd name is written properly into settings and URI") {
    const scratch_folder folder{"a \"b\" \\ 100%"};
    const environment temporary{"TMPDIR", folder.path()};
    const redis_server server;
    CHECK(server.command({"PING"}) == "PONG");
    CHECK(contains(server.uri(), "/a%20%22b%22%20%5C%20100%25"));
}

TEST_CASE("Ctrl-C in the owner's terminal does not reach the server") {
    const redis_server server;
    CHECK(::getpgid(server.pid()) != ::getpgrp());
}

TEST_CASE("the server starts with an empty signal mask and default signals") {
    sigset_t usr1;
    sigset_t old;
    ::sigemptyset(&usr1);
    ::sigaddset(&usr1, SIGUSR1);
    ::sigaddset(&usr1, SIGTERM);
    REQUIRE(::pthread_sigmask(SIG_BLOCK, &usr1, &old) == 0);
    redis_server server;
    REQUIRE(::pthread_sigmask(SIG_SETMASK, &old, nullptr) == 0);
    std::ifstream status{"/proc/" + std::to_string(server.pid()) + "/status"};
    std::string line;
    while (std::getline(status, line) && !line.starts_with("SigBlk:")) continue;
    CHECK(line == "SigBlk:\t0000000000000000");
    const auto start = std::chrono::steady_clock::now();
    server.stop();
    CHECK(std::chrono::steady_clock::now() - start < 4s);  // a blocked SIGTERM would take five
}

TEST_CASE("the server keeps none of its owner's descriptors open") {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);  // inherited by every program that is not careful
    const redis_server server;
    ::close(ends[1]);
    pollfd closed{ends[0], POLLIN, 0};
    CHECK(::poll(&closed, 1, 0) == 1);
    CHECK((closed.revents & POLLHUP) != 0);
    ::close(ends[0]);
}

TEST_CASE("a program that ignores SIGCHLD can have a server, too") {
    struct sigaction ignore {};
    struct sigaction old {};
    ignore.sa_handler = SIG_IGN;
    REQUIRE(::sigaction(SIGCHLD, &ignore, &old) == 0);
    {
        redis_server server;
        CHECK(server.running());
        server.pause();
        server.resume();
        const pid_t pid = server.pid();
        server.restart();
        CHECK(gone(pid));
        CHECK(server.command({"PING"}) == "PONG");
    }
    REQUIRE(::sigaction(SIGCHLD, &old, nullptr) == 0);
}

TEST_CASE("a server does not survive an owner that is killed") {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    const pid_t owner = ::fork();
    REQUIRE(owner >= 0);
    if (owner == 0) {
        // From a thread that ends at once: the server belongs to the process, not to whoever started it.
        std::optional<redis_server> server;
        std::thread([&] { server.emplace(); }).join();
        char report[256] = {};
        const pid_t pid = server->pid();
        std::memcpy(report, &pid, sizeof pid);
        server->folder().copy(report + sizeof pid, sizeof report - sizeof pid - 1);
        if (::write(ends[1], report, sizeof report) != sizeof report) ::_exit(1);
        for (;;) ::pause();
    }
    ::close(ends[1]);
    char report[256] = {};
    REQUIRE(::read(ends[0], report, sizeof report) == sizeof report);
    ::close(ends[0]);
    pid_t pid = -1;
    std::memcpy(&pid, report, sizeof pid);
    const pid_t group = ::getpgid(pid);
    CHECK_FALSE(gone(pid));
    REQUIRE(::kill(owner, SIGKILL) == 0);
    REQUIRE(::waitpid(owner, nullptr, 0) == owner);
    CHECK(eventually([&] { return gone(pid) && gone(group); }));
    std::filesystem::remove_all(report + sizeof pid);
}

TEST_CASE("a forked child neither stops its parent's server nor removes its folder") {
    std::optional<redis_server> server{std::in_place};
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        bool refused = false;
        try {
            server->stop();
        } catch (const distlock::error& failed) {
            refused = failed.code() == errc::wrong_process;
        }
        server.reset();
        ::_exit(refused ? 0 : 1);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(std::filesystem::exists(server->folder()));
    CHECK(server->running());
    CHECK(server->command({"PING"}) == "PONG");
}

#ifdef DISTLOCK_FIRST_EXAMPLE

// It said "lost, or no server answers" after each release: a posted one is not `released` yet.
TEST_CASE("the README's first program ships all parts, and finds nothing wrong") {
    const distlock::testing::redis_server server;
    const auto text = said_by(std::string(DISTLOCK_FIRST_EXAMPLE) + " " + server.uri());
    CHECK(text == "charged\nshipped part 0\nshipped part 1\nshipped part 2\n");
}

#endif

}  // namespace redis_server_tests
