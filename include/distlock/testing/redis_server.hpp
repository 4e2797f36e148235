// A private redis-server or valkey-server for tests: started by an object, gone with it.
//
//   struct redis_server_options;
//   class redis_server {
//       explicit redis_server(redis_server_options = {});
//       std::string uri() const;                                  // what a client connects to
//       pid_t pid() const;  std::uint16_t port() const;           // port 0: unix socket only
//       const std::string& socket_path() const;  const std::string& folder() const;
//       void start(); void stop(); void kill(); void restart();
//       void pause(); void resume();
//       bool running() const;
//       std::string command({"GET", "orders"}) const;             // looks inside, without a client library
//   };
#pragma once

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <netinet/in.h>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/types.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/detail/system_io.hpp>
#include <distlock/detail/thread_safety.hpp>
#include <distlock/net/uri.hpp>
#include <distlock/net/uri_syntax.hpp>
#include <distlock/testing/child_process.hpp>
#include <distlock/testing/raw_client.hpp>
#include <distlock/testing/server_settings.hpp>

namespace distlock::testing {

struct redis_server_options {
    /// What to run. Empty: the environment variable DISTLOCK_TEST_SERVER, else redis-server, else
    /// valkey-server, on PATH.
    std::string program{};
    /// Listen on a free port of 127.0.0.1 as well, and say so in uri().
    bool tcp = false;
    /// Appended to the command line: {"--requirepass", "secret"}. They win over the settings made here. A
    /// "--port", which is not 0, is the port of uri() and port(). The socket stays where it is: no
    /// "--unixsocket".
    std::vector<std::string> arguments{};
    /// How long start() waits for the first answer.
    std::chrono::milliseconds startup = std::chrono::seconds{10};
    /// Every write is on disk before it is answered (fsync always): kill() and start() lose nothing.
    bool persistent = false;
    /// Added to the server's environment, as "NAME=value"; they win over what it inherits.
    std::vector<std::string> environment{};
};

/// A server of one's own, in a temporary folder of its own (mode 0700), which nobody else can reach by
/// accident. Two of them never collide, in one process or in many. The server ends with this object, and with
/// this process however that ends, SIGKILL included, or with its last child that fork() made and that called
/// no exec; the folder stays then. In a child after fork() the object is only a copy: its destructor leaves
/// the server alone. All members may be called from several threads.
class redis_server {
  public:
    /// Effects: makes the folder and calls start().
    /// Throws: error(errc::no_server) with what to install, or with the end of the server's log.
    explicit redis_server(redis_server_options options = {});
    redis_server(const redis_server&) = delete;
    redis_server& operator=(const redis_server&) = delete;
    /// Effects: kill(), and removes the folder.
    ~redis_server();

    /// Returns: "unix:///folder/redis.sock", or "redis://127.0.0.1:port" with `tcp`. Never changes. Without a
    /// password, whatever the arguments say.
    std::string uri() const;
    std::uint16_t port() const noexcept { return port_; }
    const std::string& socket_path() const noexcept { return socket_path_; }
    const std::string& folder() const noexcept { return folder_; }

    /// Returns: the server's process number, -1 while it is stopped.
    pid_t pid() const;
    /// Returns: whether there is a server process; a paused one counts.
    bool running() const;

    /// Effects: starts the server if it is not running, resumes it if it is paused, and returns when it
    /// answers: same folder, socket and port.
    /// Throws: error; errc::no_server when none can be started.
    void start();
    /// Effects: ends the server, paused or not, in good order (SIGTERM), after five seconds by force. Returns
    /// when it is gone.
    void stop();
    /// Effects: ends the server as a crash would (SIGKILL); returns when it is gone.
    void kill();
    /// Effects: stop() and start().
    void restart();
    /// Effects: freezes the server (SIGSTOP); returns when it stands. It keeps its connections, answers
    /// nobody.
    void pause();
    /// Effects: continues a paused server; none on any other.
    void resume();

    /// Effects: sends one command on a connection of its own, authenticated if the arguments set a password.
    /// Returns: the reply as text: "-ERR ..." for an error, "(nil)", an array as one element a line.
    /// Throws: error(errc::unreachable), or error(errc::no_reply) after `patience`;
    /// error(errc::invalid_option) for no word, which no server answers.
    std::string command(std::span<const std::string_view> words,
                        std::chrono::milliseconds patience = std::chrono::seconds{30}) const;
    std::string command(std::initializer_list<std::string_view> words,
                        std::chrono::milliseconds patience = std::chrono::seconds{30}) const {
        return command(std::span<const std::string_view>(words.begin(), words.size()), patience);
    }

  private:
    enum class launch { ready, died, silent };

    void make_folder();
    void remove_folder() noexcept;
    void start_locked() DISTLOCK_REQUIRES(guard_);
    launch launch_once(const std::string& program, std::chrono::steady_clock::time_point deadline)
        DISTLOCK_REQUIRES(guard_);
    void write_settings() const;
    std::string log_path() const { return folder_ + "/server.log"; }
    std::string log() const;
    std::string find_program() const;
    void check_owner() const;

    const redis_server_options options_;
    const pid_t owner_ = ::getpid();
    mutable detail::annotated_mutex guard_;
    std::string folder_;
    std::string socket_path_;
    std::uint16_t port_ = 0;
    std::optional<impl::child_process> process_ DISTLOCK_GUARDED_BY(guard_);
};

namespace impl {

/// Returns: a port nobody listens on now. The next moment somebody may: be ready to try another.
inline std::uint16_t unused_port() {
    const unique_fd probe = detail::open_socket(AF_INET, detail::when_busy::wait);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(probe.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
        ::getsockname(probe.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
        throw error(errc::no_server, "no free port on 127.0.0.1: " + std::generic_category().message(errno));
    }
    return ntohs(address.sin_port);
}

}  // namespace impl

inline redis_server::redis_server(redis_server_options options) : options_(std::move(options)) {
    const std::string port = impl::value_of_option(options_.arguments, "--port");
    std::from_chars(port.data(), port.data() + port.size(), port_);  // what is none, the server refuses
    make_folder();
    try {
        start();
    } catch (...) {
        remove_folder();
        throw;
    }
}

inline redis_server::~redis_server() {
    // In a forked child neither the processes nor the folder are ours. The parent ends them.
    if (::getpid() != owner_) {
        if (process_) process_->disown();
        return;
    }
    process_.reset();
    remove_folder();
}

inline std::string redis_server::uri() const {
    return options_.tcp ? "redis://127.0.0.1:" + std::to_string(port_)
                        : "unix://" + detail::percent_encoded(socket_path_, "/");
}

inline pid_t redis_server::pid() const {
    check_owner();
    const detail::annotated_lock lock{guard_};
    return process_ && process_->running() ? process_->pid() : -1;
}

inline bool redis_server::running() const {
    check_owner();
    const detail::annotated_lock lock{guard_};
    return process_ && process_->running();
}

inline void redis_server::start() {
    check_owner();
    {
        const detail::annotated_lock lock{guard_};
        if (!process_ || !process_->running()) return start_locked();
        process_->resume();
    }
    command({"PING"});
}

inline void redis_server::stop() {
    check_owner();
    const detail::annotated_lock lock{guard_};
    if (process_) process_->stop(std::chrono::seconds{5});
    process_.reset();
}

inline void redis_server::kill() {
    check_owner();
    const detail::annotated_lock lock{guard_};
    process_.reset();
}

inline void redis_server::restart() {
    stop();
    start();
}

inline void redis_server::pause() {
    check_owner();
    const detail::annotated_lock lock{guard_};
    if (process_) process_->pause();
}

inline void redis_server::resume() {
    check_owner();
    const detail::annotated_lock lock{guard_};
    if (process_) process_->resume();
}

inline std::string redis_server::command(std::span<const std::string_view> words,
                                         std::chrono::milliseconds patience) const {
    if (words.empty()) throw error(errc::invalid_option, "private server: a command without a word");
    impl::raw_client client{socket_path_, impl::after(patience)};
    if (const std::string password = impl::value_of_option(options_.arguments, "--requirepass");
        !password.empty()) {
        const std::string_view login[] = {"AUTH", password};
        client.ask(login);
    }
    return client.ask(words);
}

inline void redis_server::make_folder() {
    // Absolute: the server changes into the folder, and the program may change its own.
    std::error_code failed;
    auto parent = std::filesystem::temp_directory_path(failed);
    if (!failed) parent = std::filesystem::absolute(parent, failed);
    std::string name = (failed ? "/tmp" : parent.string()) + "/distlock-XXXXXX";
    socket_path_ = name + "/redis.sock";
    if (socket_path_.size() > detail::longest_socket_path) {
        throw error(errc::no_server,
                    "the socket " + socket_path_ + " would have a path of " +
                        std::to_string(socket_path_.size()) + " bytes, but a unix socket takes " +
                        std::to_string(detail::longest_socket_path) + "; set TMPDIR to a shorter folder");
    }
    if (::mkdtemp(name.data()) == nullptr) {
        throw error(errc::no_server, "no folder " + name + ": " + std::generic_category().message(errno));
    }
    folder_ = name;
    socket_path_ = name + "/redis.sock";
}

inline void redis_server::remove_folder() noexcept {
    try {
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    } catch (...) {  // out of memory: a folder stays behind, which is better than ending the program
    }
}

inline void redis_server::start_locked() {
    const std::string program = find_program();
    const auto deadline = impl::after(options_.startup);
    const bool port_is_known = port_ != 0;
    for (std::string said;;) {
        if (options_.tcp && !port_is_known) port_ = impl::unused_port();
        const launch outcome = launch_once(program, deadline);
        if (outcome == launch::ready) return;
        process_.reset();
        if (outcome == launch::died || said.empty()) said = log();
        // Between our look at the port and the server's somebody else may have taken it; and a node of a
        // Cluster needs another one 10,000 above. On a restart the port is promised, so we wait for it.
        const bool taken = outcome == launch::died &&
                           (said.find("Address already in use") != std::string::npos ||
                            (!port_is_known && said.find("port number too high") != std::string::npos));
        if (taken && std::chrono::steady_clock::now() < deadline) {
            if (port_is_known) impl::nap(std::chrono::milliseconds{20});
            continue;
        }
        if (!port_is_known) port_ = 0;
        throw error(errc::no_server, program + (outcome == launch::died ? " ended" : " did not answer") +
                                         " while starting; the end of its log:\n" + said);
    }
}

inline redis_server::launch redis_server::launch_once(const std::string& program,
                                                      std::chrono::steady_clock::time_point deadline) {
    using namespace std::chrono;
    ::unlink(log_path().c_str());
    ::unlink(socket_path_.c_str());
    write_settings();
    std::vector<std::string> arguments{folder_ + "/server.conf"};
    arguments.insert(arguments.end(), options_.arguments.begin(), options_.arguments.end());
    if (impl::may_make_a_daemon(options_.arguments)) arguments.insert(arguments.end(), {"--daemonize", "no"});
    try {
        process_.emplace(program, arguments, log_path(), options_.environment);
    } catch (const std::system_error& failed) {
        throw error(errc::no_server, "cannot run " + program + " (" + failed.code().message() + ")");
    }
    // The unix socket is the last one a server opens, and nobody else can open ours: an answer there means
    // that the port, too, is this server's and not a stranger's.
    for (milliseconds pause{1}; process_->running(); pause = std::min(pause * 2, milliseconds{20})) {
        if (steady_clock::now() >= deadline) return launch::silent;
        try {
            const std::string answer = command({"PING"}, ceil<milliseconds>(deadline - steady_clock::now()));
            if (!answer.starts_with("-LOADING"))
                return launch::ready;  // -NOAUTH and the like are answers, too
        } catch (const error&) {}
        impl::nap(pause);
    }
    return launch::died;
}

inline void redis_server::write_settings() const {
    std::ofstream file{folder_ + "/server.conf"};
    file << "bind 127.0.0.1\n"
         << "port " << port_ << '\n'
         << "protected-mode yes\n"
         << "unixsocket " << impl::quoted(socket_path_) << '\n'
         << "unixsocketperm 700\n"
         << "dir " << impl::quoted(folder_) << '\n'
         << "logfile " << impl::quoted(log_path()) << '\n'
         << "loglevel notice\n"
         << "daemonize no\n"
         << "save \"\"\n"
         << "appendonly " << (options_.persistent ? "yes" : "no") << '\n'
         << "appendfsync always\n";
    if (!file.flush()) throw error(errc::no_server, "cannot write " + folder_ + "/server.conf");
}

inline std::string redis_server::log() const {
    std::ifstream file{log_path()};
    std::string text{std::istreambuf_iterator<char>(file), {}};
    if (text.size() > 2000) text.erase(0, text.size() - 2000);
    return text;
}

inline std::string redis_server::find_program() const {
    if (!options_.program.empty()) return options_.program;
    if (const char* const named = std::getenv("DISTLOCK_TEST_SERVER"); named != nullptr && *named != '\0')
        return named;
    for (const char* const program : {"redis-server", "valkey-server"}) {
        if (impl::on_path(program)) return program;
    }
    throw error(errc::no_server, "neither redis-server nor valkey-server is on PATH");
}

inline void redis_server::check_owner() const {
    if (::getpid() != owner_) throw error(errc::wrong_process, "private server");
}

}  // namespace distlock::testing
