// A server that does what a test tells it to: every accepted connection runs a script on a thread of its own.
//
//   class fake_server {
//     explicit fake_server(script);          // on a free loopback port; script: void(peer&)
//     std::string uri() const, uri(user info, options) const;
//     std::uint16_t port() const;
//     int accepted() const;
//     std::string received() const;          // every byte of every connection, in the order it was read
//     int commands(word) const;              // how many whole commands began with this word
//   };
//   class fake_server::peer {
//     std::optional<words> next_command();
//         // a whole command; none when the client is gone or the server ends
//     bool send(bytes);  bool drip(bytes, pause);
//     void close();  void reset();           // FIN, RST
//     ending wait_for_end(), ended();        // how the client ended the connection
//     int number() const;                    // 0 for the first connection
//   };
#pragma once

#include <arpa/inet.h>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <functional>
#include <mutex>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <poll.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

class fake_server {
  public:
    using words = std::vector<std::string>;
    enum class ending { closed, reset, server_ended };

    class peer;
    using script = std::function<void(peer&)>;

    explicit fake_server(script what_to_do) : script_(std::move(what_to_do)) {
        listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        auto* const any = reinterpret_cast<sockaddr*>(&address);
        stop_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (::bind(listener_, any, size) != 0 || ::getsockname(listener_, any, &size) != 0 ||
            ::listen(listener_, 128) != 0 || stop_ < 0) {
            throw std::runtime_error("no fake server");
        }
        port_ = ntohs(address.sin_port);
        acceptor_ = std::thread([this] { accept_all(); });
    }
    fake_server(const fake_server&) = delete;
    fake_server& operator=(const fake_server&) = delete;
    ~fake_server() {
        const std::uint64_t one = 1;
        [[maybe_unused]] const auto written = ::write(stop_, &one, sizeof one);
        acceptor_.join();
        for (std::thread& t : peers_) t.join();
        ::close(listener_);
        ::close(stop_);
    }

    std::uint16_t port() const noexcept { return port_; }
    /// `login` is "", "user:password@" or ":password@"; `rest` starts with '/' or '?'.
    std::string uri(const std::string& login = "", const std::string& rest = "") const {
        return "redis://" + login + "127.0.0.1:" + std::to_string(port_) + rest;
    }

    int accepted() const noexcept { return accepted_; }
    std::string received() const {
        const std::lock_guard guard(record_lock_);
        return received_;
    }
    int commands(std::string_view word) const {
        const std::lock_guard guard(record_lock_);
        int count = 0;
        for (const words& command : commands_) count += command.at(0) == word ? 1 : 0;
        return count;
    }

  private:
    void accept_all() {
        while (wait(listener_, POLLIN)) {
            const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
            if (fd < 0) continue;
            const int number = accepted_++;
            peers_.emplace_back([this, fd, number] { serve(fd, number); });
        }
    }
    void serve(int fd, int number);

    // Returns: false when this server ends.
    bool wait(int fd, short events, int timeout_ms = -1) const {
        pollfd both[] = {{fd, events, 0}, {stop_, POLLIN, 0}};
        while (::poll(both, 2, timeout_ms) < 0 && errno == EINTR) continue;
        return both[1].revents == 0;
    }

    script script_;
    int listener_ = -1;
    int stop_ = -1;
    std::uint16_t port_ = 0;
    std::atomic<int> accepted_{0};
    mutable std::mutex record_lock_;
    std::string received_;
    std::vector<words> commands_;
    std::vector<std::thread> peers_;
    std::thread acceptor_;
};

class fake_server::peer {
  public:
    peer(fake_server& owner, int fd, int number) : owner_(owner), fd_(fd), number_(number) {
        const int on = 1;
        ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    peer(const peer&) = delete;
    peer& operator=(const peer&) = delete;
    ~peer() { close(); }

    int number() const noexcept { return number_; }

    /// Effects: the test answers what a client of a Cluster asks on each new socket, too.
    void answers_greeting() noexcept { greeted_ = true; }

    /// Returns: the next command that the test is about. That this is a node of a Cluster, which clients ask
    /// as soon as they may, is said here.
    std::optional<words> next_command() {
        for (;;) {
            if (auto whole = take_command()) {
                const auto greeted = answer_greeting(*whole);
                if (!greeted.empty()) {
                    if (!send(greeted)) return std::nullopt;
                    continue;
                }
                const std::lock_guard guard(owner_.record_lock_);
                owner_.commands_.push_back(*whole);
                return whole;
            }
            if (!receive()) return std::nullopt;
        }
    }

    /// Returns: false when the client is gone or the server ends.
    bool send(std::string_view bytes) {
        while (fd_ >= 0 && !bytes.empty()) {
            const auto n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (n > 0) {
                bytes.remove_prefix(static_cast<std::size_t>(n));
            } else if (errno != EAGAIN || !owner_.wait(fd_, POLLOUT)) {
                return false;
            }
        }
        return fd_ >= 0;
    }

    /// Effects: sends one byte at a time.
    bool drip(std::string_view bytes, std::chrono::milliseconds pause) {
        for (const char byte : bytes) {
            if (!send({&byte, 1}) || !nap(pause)) return false;
        }
        return true;
    }

    /// Returns: false when the server ends.
    bool nap(std::chrono::milliseconds pause) { return owner_.wait(-1, 0, static_cast<int>(pause.count())); }

    /// Effects: reads and records until the client ends the connection; a client that never does is left
    /// after half a minute, so that a call without an end fails its test and does not hang it.
    ending wait_for_end() {
        give_up_ = std::chrono::steady_clock::now() + std::chrono::seconds{30};
        while (receive()) continue;
        return ending_;
    }

    void close() noexcept {
        if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    }
    void reset() noexcept {
        const linger at_once{1, 0};
        ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        close();
    }
    int fd() const noexcept { return fd_; }
    /// Returns: how the client ended the connection, after next_command() gave none.
    ending ended() const noexcept { return ending_; }

  private:
    bool receive() {
        while (fd_ >= 0) {
            using namespace std::chrono;
            if (!owner_.wait(fd_, POLLIN, give_up_ ? 100 : -1)) break;
            if (give_up_ && steady_clock::now() >= *give_up_) break;
            char chunk[16384];
            const auto n = ::recv(fd_, chunk, sizeof chunk, 0);
            if (n > 0) {
                pending_.append(chunk, static_cast<std::size_t>(n));
                const std::lock_guard guard(owner_.record_lock_);
                owner_.received_.append(chunk, static_cast<std::size_t>(n));
                return true;
            }
            if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
            ending_ = n == 0 ? ending::closed : ending::reset;
            return false;
        }
        return false;
    }

    std::string_view answer_greeting(const words& said) {
        if (said[0] == "EVALSHA" && said[1] == std::string(40, '0'))
            return "-NOSCRIPT No matching script.\r\n";
        const bool first = !std::exchange(greeted_, said[0] != "AUTH");
        return first && said[0] == "ASKING" ? "+OK\r\n" : "";
    }

    // An array of bulk strings is all a client ever sends.
    std::optional<words> take_command() {
        std::string_view rest = pending_;
        const auto number_after = [&rest](char mark) -> long {
            const auto end = rest.find("\r\n");
            if (end == std::string_view::npos || rest[0] != mark) return -1;
            const long value = std::strtol(rest.data() + 1, nullptr, 10);
            rest.remove_prefix(end + 2);
            return value;
        };
        const long count = number_after('*');
        words out;
        for (long i = 0; i < count; ++i) {
            const long size = number_after('$');
            if (size < 0 || rest.size() < static_cast<std::size_t>(size) + 2) return std::nullopt;
            out.emplace_back(rest.substr(0, static_cast<std::size_t>(size)));
            rest.remove_prefix(static_cast<std::size_t>(size) + 2);
        }
        if (out.empty()) return std::nullopt;
        pending_.erase(0, pending_.size() - rest.size());
        return out;
    }

    fake_server& owner_;
    int fd_;
    int number_;
    std::string pending_;
    bool greeted_ = false;
    ending ending_ = ending::server_ended;
    std::optional<std::chrono::steady_clock::time_point> give_up_;
};

inline void fake_server::serve(int fd, int number) {
    peer one(*this, fd, number);
    script_(one);
}

namespace scripts {

/// Answers every command with the same bytes.
inline fake_server::script always(std::string answer) {
    return [answer = std::move(answer)](fake_server::peer& p) {
        while (p.next_command() && p.send(answer)) continue;
    };
}

/// Accepts, listens, and says nothing.
inline void hang(fake_server::peer& p) { p.wait_for_end(); }

/// Says that it is a node of a Cluster, where it is asked for that, and then nothing.
inline void hang_after_greeting(fake_server::peer& p) {
    p.next_command();
    p.wait_for_end();
}

/// Answers the first command with these bytes and then says nothing.
inline fake_server::script once(std::string answer) {
    return [answer = std::move(answer)](fake_server::peer& p) {
        if (p.next_command()) p.send(answer);
        p.wait_for_end();
    };
}

}  // namespace scripts
