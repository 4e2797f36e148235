// A proxy process that makes the way to a server longer: what comes in goes out a fixed time later,
// in either direction.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include <distlock/testing.hpp>

#include "processes.hpp"

namespace bench {

namespace proxy {

using distlock::testing::impl::unique_fd;

inline sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
}

inline int checked(int result, const char* what) {
    if (result < 0) throw std::system_error(errno, std::generic_category(), what);
    return result;
}

inline void send_at_once(int fd) {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/// What is on its way from one socket to another.
class direction {
  public:
    direction(int from, int to, nanoseconds delay) : from_(from), to_(to), delay_(delay) {}
    int source() const { return from_; }

    /// Returns: false when the sender is gone.
    bool take_in() {
        std::array<char, 16384> buffer;
        const ssize_t got = ::recv(from_, buffer.data(), buffer.size(), 0);
        if (got > 0)
            on_their_way_.push_back({now() + delay_, {buffer.data(), static_cast<std::size_t>(got)}});
        return got > 0 || (got < 0 && errno == EINTR);
    }
    /// Returns: false when the receiver is gone.
    bool pass_on() {
        for (; !on_their_way_.empty() && on_their_way_.front().due <= now(); on_their_way_.pop_front()) {
            std::string_view rest = on_their_way_.front().bytes;
            while (!rest.empty()) {
                const ssize_t sent = ::send(to_, rest.data(), rest.size(), MSG_NOSIGNAL);
                if (sent < 0) return false;
                rest.remove_prefix(static_cast<std::size_t>(sent));
            }
        }
        return true;
    }
    nanoseconds next() const {
        return on_their_way_.empty() ? nanoseconds::max() : on_their_way_.front().due;
    }

  private:
    struct piece {
        nanoseconds due;
        std::string bytes;
    };
    int from_;
    int to_;
    nanoseconds delay_;
    std::deque<piece> on_their_way_;
};

/// A client and the server it thinks it speaks to.
class link {
  public:
    link(unique_fd client, std::uint16_t port, nanoseconds delay)
        : client_(std::move(client)),
          server_(checked(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket")),
          there_(client_.get(), server_.get(), delay),
          back_(server_.get(), client_.get(), delay) {
        const auto address = loopback(port);
        checked(::connect(server_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
                "the proxy's server");
        send_at_once(client_.get());
        send_at_once(server_.get());
    }
    std::array<direction*, 2> directions() { return {&there_, &back_}; }

  private:
    unique_fd client_;
    unique_fd server_;
    direction there_;
    direction back_;
};

// Waiting for sockets, and for an instant without being late: it wakes up as much too early as it is late
// usually, and turns round until then.
class punctual_poll {
  public:
    void operator()(std::vector<pollfd>& sources, nanoseconds instant) {
        if (instant == nanoseconds::max()) {
            checked(::ppoll(sources.data(), sources.size(), nullptr, nullptr), "ppoll");
            return;
        }
        const auto wake = instant - early_;
        const auto left = wake - now();
        const bool sleeps = left.count() > 0;
        const timespec rest{sleeps ? left / 1s : 0, sleeps ? static_cast<long>((left % 1s).count()) : 0};
        const int ready = checked(::ppoll(sources.data(), sources.size(), &rest, nullptr), "ppoll");
        if (sleeps && ready == 0) early_ = std::min<nanoseconds>((7 * early_ + (now() - wake)) / 8, 100us);
    }

  private:
    nanoseconds early_{};
};

[[noreturn]] inline void serve(int listener, std::uint16_t port, nanoseconds delay) {
    std::vector<std::unique_ptr<link>> links;
    punctual_poll wait;
    for (std::vector<pollfd> sources;;) {
        sources.assign(1, {listener, POLLIN, 0});
        nanoseconds next = nanoseconds::max();
        for (const auto& l : links) {
            for (const direction* d : l->directions()) {
                sources.push_back({d->source(), POLLIN, 0});
                next = std::min(next, d->next());
            }
        }
        wait(sources, next);

        std::size_t at = 1;
        std::erase_if(links, [&](const auto& l) {
            bool alive = true;
            for (direction* d : l->directions()) {
                if (sources[at++].revents != 0) alive = d->take_in() && alive;
                alive = d->pass_on() && alive;
            }
            return !alive;
        });
        if (sources[0].revents != 0) {
            unique_fd client{checked(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC), "accept")};
            links.push_back(std::make_unique<link>(std::move(client), port, delay));
        }
    }
}

}  // namespace proxy

/// Adds `round_trip`, half of it each way.
class delay_proxy {
  public:
    delay_proxy(const distlock::testing::redis_server& server, nanoseconds round_trip)
        : listener_(proxy::checked(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket")) {
        auto address = proxy::loopback(0);
        socklen_t size = sizeof address;
        auto* const any = reinterpret_cast<sockaddr*>(&address);
        proxy::checked(::bind(listener_.get(), any, size), "bind");
        proxy::checked(::listen(listener_.get(), 128), "listen");
        proxy::checked(::getsockname(listener_.get(), any, &size), "getsockname");
        port_ = ntohs(address.sin_port);
        process_.start("the proxy", [&, port = server.port()] {
            ::alarm(0);  // it lives as long as its owner
            proxy::serve(listener_.get(), port, round_trip / 2);
        });
    }
    std::string uri() const { return "redis://127.0.0.1:" + std::to_string(port_); }

  private:
    proxy::unique_fd listener_;
    std::uint16_t port_ = 0;
    child_group process_;
};

}  // namespace bench
