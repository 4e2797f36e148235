// A proxy in front of a real server that calls the test between the steps of a conversation.
//
//   class stepping_proxy {
//     explicit stepping_proxy(std::string socket_path);    // of the server
//     std::string uri(options, login) const;
//     void at(step, action);        // the next time this step comes, the action runs first, once; many may wait
//     std::set<step> forget();                             // the steps that came, and the actions that did not
//   };
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <functional>
#include <mutex>
#include <poll.h>
#include <set>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "support/fake_server.hpp"
#include "support/handoff_names.hpp"

/// A step is what a command is called, and "request" or "reply": "join request" is a command to get in line that comes from
/// the client and did not reach the server yet, "join reply" its reply that comes from the server.
class stepping_proxy {
  public:
    using step = std::string;
    using action = std::function<void()>;

    explicit stepping_proxy(std::string socket_path)
        : socket_path_(std::move(socket_path)), front_([this](fake_server::peer& p) { relay(p); }) {}

    std::string uri(const std::string& options = "", const std::string& login = "") const {
        return front_.uri(login, options);
    }

    void at(const step& when, action what) {
        const std::lock_guard guard(lock_);
        actions_.emplace_back(when, std::move(what));
    }
    /// Effects: no action waits any more.
    /// Returns: the steps that came since the last time.
    std::set<step> forget() {
        const std::lock_guard guard(lock_);
        actions_.clear();
        return std::exchange(steps_, {});
    }

  private:
    void relay(fake_server::peer& p) {
        const int upstream = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path, socket_path_.data(), socket_path_.size());
        if (::connect(upstream, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
            converse(p, upstream);
        ::close(upstream);
    }

    // One command, one reply, small enough for one packet of a unix socket.
    void converse(fake_server::peer& p, int upstream) {
        while (const auto command = p.next_command()) {
            const auto name = handoff_name_of(*command);
            come(name + " request");
            std::string request = "*" + std::to_string(command->size()) + "\r\n";
            for (const std::string& word : *command)
                request += "$" + std::to_string(word.size()) + "\r\n" + word + "\r\n";
            char reply[4096];
            if (::send(upstream, request.data(), request.size(), MSG_NOSIGNAL) <= 0) return;
            pollfd both[] = {{upstream, POLLIN, 0}, {p.fd(), POLLRDHUP, 0}};
            while (::poll(both, 2, -1) < 0 && errno == EINTR) continue;
            if (both[0].revents == 0) return;  // the client has gone
            const auto got = ::recv(upstream, reply, sizeof reply, 0);
            if (got <= 0) return;
            come(name + " reply");
            if (!p.send({reply, static_cast<std::size_t>(got)})) return;
        }
    }

    void come(const step& now) {
        std::vector<action> due;
        {
            const std::lock_guard guard(lock_);
            steps_.insert(now);
            for (auto one = actions_.begin(); one != actions_.end();) {
                if (one->first == now) {
                    due.push_back(std::move(one->second));
                    one = actions_.erase(one);
                } else {
                    ++one;
                }
            }
        }
        for (const action& run : due) run();
    }

    const std::string socket_path_;
    mutable std::mutex lock_;
    std::vector<std::pair<step, action>> actions_;
    std::set<step> steps_;
    fake_server front_;  // last: its threads use the others
};
