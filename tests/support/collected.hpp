// The answer to what was posted.
#pragma once

#include <optional>

#include <distlock/net/receipt.hpp>
#include <distlock/wire/reply.hpp>

#include "support/waiting.hpp"

/// Effects: has the connection read what it was answered, until it has the answer to this post.
/// Returns: that; none where it does not come.
template <class Connection>
std::optional<distlock::reply> collected(Connection& c, distlock::receipt& posted) {
    std::optional<distlock::reply> answer;
    eventually([&] {
        c.collect();
        answer = posted.answer();
        return answer.has_value();
    });
    return answer;
}
