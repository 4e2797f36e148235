// Where a lock is, for an order in which every process takes its locks.
//
//   struct lock_place { name, server; bool before(other); bool may_be(other); std::string shown(); };
//   lock_place place_of(name, over);
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include <distlock/detail/concat.hpp>
#include <distlock/detail/printable.hpp>
#include <distlock/detail/small_letter.hpp>
#include <distlock/net/any_connection.hpp>

namespace distlock::engine {

struct lock_place {
    std::string_view name;
    std::string server;  ///< empty: the connection does not say

    /// Returns: whether it is taken first.
    bool before(const lock_place& other) const noexcept {
        return name != other.name ? name < other.name : server < other.server;
    }
    /// Returns: whether both are, or may be, one lock: where a connection does not say which server it leads
    /// to, there is no order either that is the same in every process. In their order it is enough to ask
    /// neighbours.
    bool may_be(const lock_place& other) const noexcept {
        return name == other.name && (server.empty() || other.server.empty() || server == other.server);
    }

    /// Returns: the lock, for the message that it was named twice.
    [[gnu::cold]] std::string shown() const {
        const char* const why = server.empty() ? ", over connections that have no identity()" : "";
        return distlock::detail::concat({distlock::detail::shown_lock(name), why});
    }
};

// One of our URIs leads to the same locks by whatever user, and in whatever case its host is written.
[[gnu::cold]] inline std::string server_of(std::string identity) {
    const auto scheme = identity.find("://");
    const bool ours = identity.starts_with("redis") || identity.starts_with("unix:");
    if (!ours || scheme == std::string::npos) return identity;
    const auto begin = scheme + 3;
    auto end = std::min(identity.find('/', begin), identity.size());
    if (const auto user_end = identity.rfind('@', end); user_end != std::string::npos && user_end >= begin) {
        identity.erase(begin, user_end + 1 - begin);
        end -= user_end + 1 - begin;
    }
    for (auto i = begin; i < end; ++i) identity[i] = distlock::detail::small_letter(identity[i]);
    return identity;
}

/// Preconditions: `name` outlives what is returned.
/// Throws: what the connection throws when it is asked for its server; std::bad_alloc.
inline lock_place place_of(const std::string& name, const any_connection& over) {
    return {name, server_of(over.identity())};
}

}  // namespace distlock::engine
