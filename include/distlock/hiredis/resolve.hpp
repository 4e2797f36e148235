// Host names to addresses, within a deadline: getaddrinfo has none of its own.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <system_error>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/time_source.hpp>
#include <distlock/detail/concat.hpp>
#include <distlock/detail/signal_masked_thread.hpp>
#include <distlock/detail/thread_safety.hpp>

namespace distlock::detail {

struct socket_address {
    sockaddr_storage storage{};
    socklen_t size = 0;
};

struct resolution {
    std::vector<socket_address> addresses;
    std::string failure;  ///< of an empty list: why
};

[[gnu::cold]] inline resolution resolve_now(const std::string& host, std::uint16_t port, int flags) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    resolution result;
    if (const int rc = ::getaddrinfo(host.c_str(), concat({port}).c_str(), &hints, &found); rc != 0) {
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

    /// Returns: the addresses; none, with the reason, when there are none, `deadline` passes, or `stop_fd`
    /// can be read (none: -1). A name is looked up on a thread of its own, which a stuck name server keeps,
    /// not the caller; calls that come meanwhile wait for the same answer. Addresses that nobody waited for
    /// any more when they came serve one later call.
    [[gnu::cold]] resolution resolve(clock::time_point deadline, int stop_fd) {
        if (auto numeric = resolve_now(host_, port_, AI_NUMERICHOST); !numeric.addresses.empty())
            return numeric;
        try {
            const auto current = current_look_up();
            annotated_lock guard(current->lock);
            // It is called with the mutex.
            const auto over = [&]() DISTLOCK_UNCHECKED { return current->done; };
            for (;;) {
                // A condition variable and a descriptor cannot be waited for in one call.
                const auto now = clock::now();
                const auto until =
                    stop_fd < 0 ? deadline : std::min(deadline, now + std::chrono::milliseconds{2});
                if (wait_until(current->wake, guard.native(), until, over)) {
                    current->used = true;
                    return current->result;
                }
                if (now >= deadline) return {{}, "looking the name up took too long"};
                pollfd stopped{stop_fd, POLLIN, 0};
                if (stop_fd >= 0 && ::poll(&stopped, 1, 0) > 0) return {{}, "stopped"};
            }
        } catch (const std::system_error&) {
            return {{}, "no thread to look the name up"};
        }
    }

  private:
    // Addresses that nobody used are good for so long: a caller once a minute finds them, and after a
    // fail-over the name has led elsewhere for no longer.
    static constexpr std::chrono::seconds longest_kept{60};

    struct look_up {
        annotated_mutex lock;
        std::condition_variable wake;
        bool done DISTLOCK_GUARDED_BY(lock) = false;
        bool used DISTLOCK_GUARDED_BY(lock) = false;  // somebody has the result
        clock::time_point ended DISTLOCK_GUARDED_BY(lock){};
        resolution result DISTLOCK_GUARDED_BY(lock);
    };

    [[gnu::cold]] std::shared_ptr<look_up> current_look_up() {
        const annotated_lock guard(lock_);
        if (current_) {
            const annotated_lock inner(current_->lock);
            if (!current_->done) return current_;
            const bool left = !current_->used && !current_->result.addresses.empty();
            if (left && clock::now() < current_->ended + longest_kept) return current_;
        }
        auto fresh = std::make_shared<look_up>();
        signal_masked_thread([fresh, host = host_, port = port_]() noexcept {
            resolution found;
            try {
                // Name servers that say nothing of IPv6 are not asked for it where it is not spoken. The
                // flag hides 127.0.0.1 where that is the only address of IPv4, and localhost is no name
                // server's.
                found = resolve_now(host, port, host == "localhost" ? 0 : AI_ADDRCONFIG);
            } catch (...) {
                found.failure = "no memory";
            }
            const annotated_lock inner(fresh->lock);
            fresh->result = std::move(found);
            fresh->ended = clock::now();
            fresh->done = true;
            fresh->wake.notify_all();
        }).detach();
        current_ = fresh;
        return fresh;
    }

    const std::string host_;
    const std::uint16_t port_;
    annotated_mutex lock_;
    std::shared_ptr<look_up> current_ DISTLOCK_GUARDED_BY(lock_);  // the last one begun
};

}  // namespace distlock::detail
