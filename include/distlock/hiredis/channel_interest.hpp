// A channel that somebody listens to over a connection, and how far the server has been told of it.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/net/subscription.hpp>

namespace distlock::detail {

struct channel_interest {
    enum class stage { unsent, sent, refused, in_force };  // on the present socket

    std::weak_ptr<subscription> whose;  // expired: given up, and the server is to be told
    std::string channel;
    stage at = stage::unsent;
    clock::time_point next_time{};  // before that it is not asked for
};

/// Returns: what hears messages on `channel`, and whether that is a new one among `all`, the last. A channel
/// that was given up a moment ago may be in force at once.
/// Throws: std::bad_alloc.
template <class Interest>
[[gnu::cold]] std::pair<std::shared_ptr<subscription>, bool> take_interest(
    std::vector<Interest>& all, std::string_view channel, const std::shared_ptr<message_hub>& hub) {
    using stage = channel_interest::stage;
    const auto place = std::find_if(all.begin(), all.end(),
                                    [&](const channel_interest& one) { return one.channel == channel; });
    if (place != all.end()) {
        if (auto known = place->whose.lock()) return {std::move(known), false};
    }
    auto made = std::make_shared<subscription>(std::string(channel), hub);
    if (place == all.end()) {
        Interest one;
        one.whose = made;
        one.channel = made->channel();
        all.push_back(std::move(one));
        return {std::move(made), true};
    }
    place->whose = made;
    if (place->at == stage::in_force) made->confirm();
    if (place->at == stage::refused) made->refuse();
    return {std::move(made), false};
}

}  // namespace distlock::detail
