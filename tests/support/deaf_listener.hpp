// A port on which nobody takes a connection, and nobody refuses one.
#pragma once

#include <arpa/inet.h>
#include <cstdint>
#include <netinet/in.h>
#include <poll.h>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

/// Takes connections up to a small number and then no more: the kernel drops what else knocks.
class deaf_listener {
  public:
    deaf_listener() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        address_.sin_family = AF_INET;
        address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address_;
        auto* const any = reinterpret_cast<sockaddr*>(&address_);
        if (::bind(fd_, any, size) != 0 || ::getsockname(fd_, any, &size) != 0 || ::listen(fd_, 0) != 0)
            throw std::runtime_error("no listener");
        for (bool connected = true; connected && knocking_.size() < 64;) {
            const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
            knocking_.push_back(fd);
            static_cast<void>(::connect(fd, any, size));
            pollfd p{fd, POLLOUT, 0};
            connected = ::poll(&p, 1, 300) == 1;
        }
    }
    deaf_listener(const deaf_listener&) = delete;
    deaf_listener& operator=(const deaf_listener&) = delete;
    ~deaf_listener() {
        for (const int fd : knocking_) ::close(fd);
        ::close(fd_);
    }
    std::uint16_t port() const { return ntohs(address_.sin_port); }
    std::string uri(const std::string& options) const {
        return "redis://127.0.0.1:" + std::to_string(port()) + options;
    }

  private:
    int fd_;
    sockaddr_in address_{};
    std::vector<int> knocking_;
};
