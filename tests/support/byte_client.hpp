// Bytes to and from a loopback port, by a client that knows nothing of commands; and what a
// conversation's end is called.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <netinet/in.h>
#include <poll.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include <distlock/testing.hpp>

#include "support/upstream.hpp"

/// In which ways a conversation ends.
inline constexpr std::array all_endings{distlock::testing::fault_proxy::ending::reset,
                                        distlock::testing::fault_proxy::ending::close,
                                        distlock::testing::fault_proxy::ending::silence};

inline std::string text(distlock::testing::fault_proxy::ending how) {
    using ending = distlock::testing::fault_proxy::ending;
    if (how == ending::silence || how == ending::delay) return how == ending::delay ? "delay" : "silence";
    return how == ending::reset ? "RST" : "FIN";
}

inline std::string text(distlock::testing::fault_proxy::part of) {
    using part = distlock::testing::fault_proxy::part;
    if (of == part::message) return "message";
    return of == part::request ? "request" : "reply";
}

inline distlock::testing::fault_proxy::which word(std::string first) {
    return [first = std::move(first)](const distlock::testing::fault_proxy::words& w) {
        return w.at(0) == first;
    };
}

class byte_client {
  public:
    explicit byte_client(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        address.sin_port = htons(port);
        if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
            throw std::runtime_error("no connection");
    }
    byte_client(const byte_client&) = delete;
    byte_client& operator=(const byte_client&) = delete;
    ~byte_client() { ::close(fd_); }

    void send(std::string_view bytes) {
        while (!bytes.empty()) {
            const auto n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (n < 0) return;
            bytes.remove_prefix(static_cast<std::size_t>(n));
        }
    }
    void send_no_more() { ::shutdown(fd_, SHUT_WR); }

    /// Returns: `size` bytes; fewer when the connection ends, or for ten seconds no more come.
    std::string receive(std::size_t size) {
        std::string out;
        char chunk[16384];
        while (out.size() < size) {
            if (!readable(10'000)) break;
            const auto n = ::recv(fd_, chunk, std::min(sizeof chunk, size - out.size()), 0);
            if (n <= 0) break;
            out.append(chunk, static_cast<std::size_t>(n));
        }
        return out;
    }

    /// Returns: what follows on the connection: its end, how it ends, or nothing.
    std::string what_follows(distlock::testing::fault_proxy::ending expected) {
        using ending = distlock::testing::fault_proxy::ending;
        if (!readable(expected == ending::silence ? 3 : 10'000)) return text(ending::silence);
        char byte = 0;
        const auto n = ::recv(fd_, &byte, 1, 0);
        if (n == 0) return text(ending::close);
        return n < 0 && errno == ECONNRESET ? text(ending::reset) : "a byte";
    }

    /// Returns: whether something comes, or the end, within so many milliseconds.
    bool readable(int timeout_ms) const {
        pollfd p{fd_, POLLIN, 0};
        return ::poll(&p, 1, timeout_ms) > 0;
    }

  private:
    int fd_;
};
