// What a proxy in front of a real server needs of it: a socket, and commands as they go over the wire.
#pragma once

#include <cstring>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <vector>

/// A socket to a server on this machine.
class upstream {
  public:
    explicit upstream(const std::string& socket_path)
        : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path, socket_path.data(), socket_path.size());
        connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    }
    upstream(const upstream&) = delete;
    upstream& operator=(const upstream&) = delete;
    ~upstream() { ::close(fd_); }

    bool connected() const noexcept { return connected_; }
    int fd() const noexcept { return fd_; }

  private:
    int fd_;
    bool connected_ = false;
};

/// Returns: a command as a client sends it.
inline std::string wire(const std::vector<std::string>& command) {
    std::string out = "*" + std::to_string(command.size()) + "\r\n";
    for (const std::string& word : command) out += "$" + std::to_string(word.size()) + "\r\n" + word + "\r\n";
    return out;
}
