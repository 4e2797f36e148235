// Host names to addresses, within a deadline: getaddrinfo has none of its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <netdb.h>
#include <string>
#include <sys/socket.h>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/detail/pause.hpp>

namespace distlock::detail {

struct socket_address {
    sockaddr_storage storage{};
    socklen_t size = 0;
};

struct resolution {
    std::vector<socket_address> addresses;
    std::string failure;  ///< of an empty list: why
};

inline resolution resolve_now(const std::string& host, std::uint16_t port, int flags) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    resolution result;
    if (const int rc = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); rc != 0) {
        result.failure = ::gai_strerror(rc);
        return result;
    }
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, &::freeaddrinfo);
    for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
        socket_address address;
        std::memcpy(&address.storage, a->ai_addr, a->ai_addrlen);
        address.size = a->ai_addrlen;
        result.addresses.push_back(address);
    }
    return result;
}

/// Looks one host up. Thread-safe.
class resolver {
  public:
    resolver(std::string host, std::uint16_t port) : host_(std::move(host)), port_(port) {}

    /// Returns: the addresses; none, with the reason, when there are none or `deadline` passes. A name is
    /// looked up on a thread of its own, which a stuck name server keeps, not the caller; calls that come
    /// meanwhile wait for the same answer.
    resolution resolve(clock::time_point deadline) {
        if (auto numeric = resolve_now(host_, port_, AI_NUMERICHOST); !numeric.addresses.empty())
            return numeric;
        try {
            const auto current = current_look_up();
            std::unique_lock guard(current->lock);
            if (!wait_until<clock>(current->wake, guard, {}, deadline, [&] { return current->done; })) {
                return {{}, "looking the name up took too long"};
            }
            return current->result;
        } catch (const std::system_error&) {
            return {{}, "no thread to look the name up"};
        }
    }

  private:
    struct look_up {
        std::mutex lock;
        std::condition_variable_any wake;
        bool done = false;
        resolution result;
    };

    std::shared_ptr<look_up> current_look_up() {
        const std::lock_guard guard(lock_);
        if (current_) {
            const std::lock_guard inner(current_->lock);
            if (!current_->done) return current_;
        }
        auto fresh = std::make_shared<look_up>();
        std::thread([fresh, host = host_, port = port_]() noexcept {
            resolution found;
            try {
                found = resolve_now(host, port, AI_ADDRCONFIG);
            } catch (...) {
                found.failure = "no memory";
            }
            const std::lock_guard inner(fresh->lock);
            fresh->result = std::move(found);
            fresh->done = true;
            fresh->wake.notify_all();
        }).detach();
        current_ = fresh;
        return fresh;
    }

    const std::string host_;
    const std::uint16_t port_;
    std::mutex lock_;
    std::shared_ptr<look_up> current_;  // the last one begun
};

}  // namespace distlock::detail
