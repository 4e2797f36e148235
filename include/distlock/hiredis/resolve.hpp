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

/// Returns: the addresses of `host`, numeric or a name; none, with the reason, when it has none or `deadline`
/// passes. A name is looked up on a thread of its own, which a stuck name server keeps, not the caller.
inline resolution resolve(const std::string& host, std::uint16_t port, clock::time_point deadline) {
    if (auto numeric = resolve_now(host, port, AI_NUMERICHOST); !numeric.addresses.empty()) return numeric;

    struct shared_state {
        std::mutex mutex;
        std::condition_variable_any wake;
        bool done = false;
        resolution result;
    };
    const auto shared = std::make_shared<shared_state>();
    try {
        std::thread([shared, host, port] {
            auto found = resolve_now(host, port, AI_ADDRCONFIG);
            const std::lock_guard guard(shared->mutex);
            shared->result = std::move(found);
            shared->done = true;
            shared->wake.notify_one();
        }).detach();
    } catch (const std::system_error&) {
        return {{}, "no thread to look the name up"};
    }
    std::unique_lock guard(shared->mutex);
    if (!wait_until<clock>(shared->wake, guard, {}, deadline, [&] { return shared->done; })) {
        return {{}, "looking the name up took too long"};
    }
    return std::move(shared->result);
}

}  // namespace distlock::detail
