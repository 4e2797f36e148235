// The message about a key that is not of the type that its lock needs.
//
//   std::string explain_wrong_type(std::string_view is, std::string_view wants, std::string_view said);
#pragma once

#include <string>
#include <string_view>

#include <distlock/base/key.hpp>
#include <distlock/detail/concat.hpp>

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

}  // namespace distlock::detail
