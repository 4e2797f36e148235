// A proxy in front of a real server that calls the test between the steps of a conversation.
//
//   class stepping_proxy {
//     explicit stepping_proxy(std::string socket_path);    // of the server
//     std::string uri(options, login) const;  std::uint16_t port() const;
//     void at(step, action);  // the next time this step comes, the action runs first, once; many may wait
//     std::set<step> forget();  // the steps that came, and the actions that did not
//   };
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <utility>
#include <vector>

#include <distlock/testing/request_framing.hpp>

#include "support/fake_server.hpp"
#include "support/handoff_names.hpp"
#include "support/upstream.hpp"

/// A step is what a command is called, and "request" or "reply": "join request" is a command to be queued
/// that comes from the client and did not reach the server yet, "join reply" its reply that comes from the
/// server. What a subscriber is told is the step "message".
class stepping_proxy {
  public:
    using step = std::string;
    using action = std::function<void()>;

    explicit stepping_proxy(std::string socket_path)
        : socket_path_(std::move(socket_path)), front_([this](fake_server::peer& p) { relay(p); }) {}

    std::string uri(const std::string& options = "", const std::string& login = "") const {
        return front_.uri(login, options);
    }

    std::uint16_t port() const { return front_.port(); }

    void at(const step& when, action what) {
        const std::lock_guard guard(lock_);
        actions_.emplace_back(when, std::move(what));
    }
    /// Effects: no action waits any more, or is running: what they refer to may end.
    /// Returns: the steps that came since the last time.
    std::set<step> forget() {
        std::unique_lock guard(lock_);
        actions_.clear();
        none_runs_.wait(guard, [&] { return running_ == 0; });
        return std::exchange(steps_, {});
    }

  private:
    // What one connection has asked and not been answered yet.
    struct questions {
        void add(const std::string& name) {
            const std::lock_guard guard(lock);
            names.push_back(name);
        }
        std::string next() {
            const std::lock_guard guard(lock);
            if (names.empty()) return "no";
            std::string name = std::move(names.front());
            names.pop_front();
            return name;
        }
        std::mutex lock;
        std::deque<std::string> names;
    };

    void relay(fake_server::peer& p) {
        const upstream real(socket_path_);
        if (real.connected()) converse(p, real.fd());
    }

    void converse(fake_server::peer& p, int real) {
        questions asked;
        std::thread answers([&] {
            pass_answers(p, real, asked);
            ::shutdown(p.fd(), SHUT_RDWR);
        });
        while (const auto command = p.next_command()) {
            const auto name = handoff_name_of(*command);
            come(name + " request");
            asked.add(name);
            const std::string request = wire(*command);
            if (::send(real, request.data(), request.size(), MSG_NOSIGNAL) <= 0) break;
        }
        ::shutdown(real, SHUT_RDWR);
        answers.join();
    }

    void pass_answers(fake_server::peer& p, int real, questions& asked) {
        std::string came;
        for (;;) {
            char chunk[4096];
            const auto got = ::recv(real, chunk, sizeof chunk, 0);
            if (got <= 0) return;
            came.append(chunk, static_cast<std::size_t>(got));
            while (!came.empty()) {
                using namespace distlock::testing;
                const auto size = impl::frame_end().in(came);
                if (size == impl::not_whole) break;
                if (size == impl::not_ours) return;
                const std::string one = came.substr(0, size);
                came.erase(0, size);
                std::vector<std::string> words;
                come(impl::is_message(one, words) ? "message" : asked.next() + " reply");
                if (!p.send(one)) return;
            }
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
            running_ += due.size();
        }
        if (due.empty()) return;
        for (const action& run : due) run();
        const std::lock_guard guard(lock_);
        running_ -= due.size();
        none_runs_.notify_all();
    }

    const std::string socket_path_;
    mutable std::mutex lock_;
    std::vector<std::pair<step, action>> actions_;
    std::set<step> steps_;
    std::size_t running_ = 0;  // actions
    std::condition_variable none_runs_;
    fake_server front_;  // last: its threads use the others
};
