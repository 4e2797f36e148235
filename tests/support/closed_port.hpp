// A port that refuses connections as long as this lives: nobody else is given it.
#pragma once

#include <arpa/inet.h>
#include <cstdint>
#include <netinet/in.h>
#include <stdexcept>
#include <sys/socket.h>
#include <unistd.h>

class closed_port {
  public:
    closed_port() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        auto* const any = reinterpret_cast<sockaddr*>(&address);
        // Without listen().
        if (::bind(fd_, any, size) != 0 || ::getsockname(fd_, any, &size) != 0)
            throw std::runtime_error("no port");
        number_ = ntohs(address.sin_port);
    }
    closed_port(const closed_port&) = delete;
    closed_port& operator=(const closed_port&) = delete;
    ~closed_port() { ::close(fd_); }

    std::uint16_t number() const noexcept { return number_; }

  private:
    int fd_;
    std::uint16_t number_ = 0;
};
