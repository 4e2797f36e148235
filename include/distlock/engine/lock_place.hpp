// Where a lock is, for an order in which every process takes its locks.
//
//   struct lock_place { name, server, connection; bool before(other); };
//   lock_place place_of(name, connection);
#pragma once

#include <string>
#include <string_view>

#include <distlock/net/any_connection.hpp>

namespace distlock::engine {

/// Where connections do not say which server they lead to, equal names are ordered by the connection objects,
/// which is no order between processes; nor are locks of two clocks known to be the same then.
struct lock_place {
    std::string_view name;
    std::string server;
    const any_connection* connection;

    /// Returns: whether it is taken first. Of two places of one lock neither is.
    bool before(const lock_place& other) const noexcept {
        if (name != other.name) return name < other.name;
        if (server != other.server) return server < other.server;
        return server.empty() && std::less<>{}(connection, other.connection);
    }
};

/// Preconditions: `name` outlives what is returned.
/// Throws: what the connection throws when it is asked for its server; std::bad_alloc.
inline lock_place place_of(const std::string& name, const any_connection& over) {
    return {name, over.identity(), &over};
}

}  // namespace distlock::engine
