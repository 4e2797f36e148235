// A fake server in front of a real one: it passes everything on, except the replies it is told to lose.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <string>
#include <sys/socket.h>

#include "support/fake_server.hpp"
#include "support/upstream.hpp"

class losing_proxy {
  public:
    enum class loss { silence, disconnect };

    /// `socket_path` is the real server's.
    explicit losing_proxy(std::string socket_path)
        : socket_path_(std::move(socket_path)), front_([this](fake_server::peer& p) { relay(p); }) {}

    std::string uri(const std::string& options = "") const { return front_.uri("", options); }
    const fake_server& front() const { return front_; }

    /// Effects: the next `count` replies are lost, each after the real server has sent it.
    void lose(int count, loss how) {
        how_ = how;
        to_lose_ = count;
    }
    int lost() const { return lost_; }

  private:
    void relay(fake_server::peer& p) {
        const upstream real(socket_path_);
        if (real.connected()) converse(p, real.fd());
    }

    // One command, one reply: what the tests send does not overlap, and no reply of theirs is larger than the
    // buffer or comes in pieces.
    void converse(fake_server::peer& p, int real) {
        while (const auto command = p.next_command()) {
            const std::string request = wire(*command);
            char reply[4096];
            ssize_t got = -1;
            if (::send(real, request.data(), request.size(), MSG_NOSIGNAL) > 0) {
                do {
                    got = ::recv(real, reply, sizeof reply, 0);
                } while (got < 0 && errno == EINTR);
            }
            if (got <= 0) return;
            if (to_lose_.load() > 0) {
                --to_lose_;
                ++lost_;
                if (how_ == loss::disconnect) return;
            } else if (!p.send({reply, static_cast<std::size_t>(got)})) {
                return;
            }
        }
    }

    std::string socket_path_;
    std::atomic<int> to_lose_{0};
    std::atomic<int> lost_{0};
    std::atomic<loss> how_{loss::silence};
    fake_server front_;  // last: its threads use the others
};
