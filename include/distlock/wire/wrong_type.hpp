// The messages about a key that is not of the type that its lock needs.
//
//   std::string explain_wrong_type(std::string_view is, std::string_view wants, std::string_view said);
//   std::string explain_uninspected(std::string_view is, std::string_view wants, bool server_says);
#pragma once

#include <string>
#include <string_view>

#include <distlock/base/key.hpp>
#include <distlock/detail/concat.hpp>
#include <distlock/detail/printable.hpp>

namespace distlock::detail {

/// `is`: what the server answered to TYPE; `wants`: what the lock needs; `said`: why the server refused.
/// Throws: std::bad_alloc.
[[gnu::cold]] inline std::string explain_wrong_type(std::string_view is, std::string_view wants,
                                                    std::string_view said) {
    if (is == wants || is == "none") {
        return concat({"the key has the right type, so what it holds is no lock's, or a sibling key, ",
                       shown_siblings, ", is of another type (", said, ")"});
    }
    const std::string_view whose = is == "hash"
                                       ? ": Redisson's locks are hashes, and mutex<Conn, redisson> takes them"
                                   : is == "zset"   ? ": it may be a counting_semaphore's"
                                   : is == "string" ? ": it may be a mutex's or a shared_mutex's"
                                                    : "";
    return concat({"the key holds a ", is, " where this lock needs a ", wants, whose});
}

/// `is`: as above; `wants`: what the inspector reads, empty for one that reads mutexes, which are strings,
/// and semaphores, which are sorted sets; `server_says`: it was not our script that refused: that says why.
/// Returns: what stands in brackets behind the error; empty for a key that is gone.
/// Throws: std::bad_alloc.
[[gnu::cold]] inline std::string explain_uninspected(std::string_view is, std::string_view wants,
                                                     bool server_says) {
    if (is == "none") return {};
    const std::string holds = " (the key holds a " + printable(is, 40);
    if (!server_says) return holds + ")";
    const bool ours = is == "string" || is == "zset";
    if (ours && (wants.empty() || is == wants))
        return concat(
            {holds, "; if that is the lock's, a sibling key, ", shown_siblings, ", is of another type)"});
    if (is == wants) return holds + "; if that is the lock's, another key of it is of another type)";
    if (is == "hash")
        return holds + "; Redisson's locks are hashes: inspect<redisson>, force_release<redisson>)";
    return wants.empty() ? holds + ")" : concat({holds, " where this kind of lock needs a ", wants, ")"});
}

}  // namespace distlock::detail
