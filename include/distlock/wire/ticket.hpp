// A ticket of the waiter queue: what a waiter needs of the lock, in a text that the scripts read.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <distlock/base/token.hpp>
#include <distlock/detail/concat.hpp>
#include <distlock/wire/channel_kind.hpp>
#include <distlock/wire/sibling_keys.hpp>

namespace distlock {

namespace detail {

/// Effects: takes the first word off `text`, and the space behind it.
inline std::string_view take_word(std::string_view& text) noexcept {
    const auto word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    return word;
}

/// "<token> <lease in ms> <life of its fence in ms, 0: none> <p or s><length of the channel> <channel><owner
/// info>"; p: PUBLISH, s: SPUBLISH; P and S of a reader. Of one that waits for permits q and Q, and how many
/// in the place of the fence's life. A view into the text.
struct ticket {
    token owner = {};
    std::chrono::milliseconds lease{};
    std::chrono::milliseconds fence_life{};
    channel_kind kind = channel_kind::ordinary;
    std::string_view channel = {};  ///< empty: the waiter hears nothing
    std::string_view owner_info = {};
    bool reads = false;        ///< it wants a shared_mutex together with other readers
    std::int64_t permits = 0;  ///< it wants of a semaphore; 0: it wants a lock

    /// Returns: the text behind the token.
    std::string needs() const {
        const bool sharded = kind == channel_kind::sharded;
        const char* const way = permits > 0 ? (sharded ? " Q" : " q")
                                : reads     ? (sharded ? " S" : " P")
                                            : (sharded ? " s" : " p");
        const std::int64_t number = permits > 0 ? permits : fence_life.count();
        return concat({" ", lease.count(), " ", number, way, channel.size(), " ", channel, owner_info});
    }

    /// Returns: the ticket; none for a text that is none.
    static std::optional<ticket> read(std::string_view text) {
        const auto next = [&text] { return take_word(text); };
        ticket made;
        made.owner = token::from(next());
        made.lease = std::chrono::milliseconds(read_number(next()));
        const auto number = static_cast<std::int64_t>(read_number(next()));
        const auto way = next();
        const bool known =
            way.size() > 1 && std::string_view("psPSqQ").find(way[0]) != std::string_view::npos;
        if (made.owner.empty() || made.lease.count() <= 0 || !known) return std::nullopt;
        if (way[0] == 'q' || way[0] == 'Q') {
            if (number == 0) return std::nullopt;
            made.permits = number;
        } else {
            made.fence_life = std::chrono::milliseconds(number);
        }
        const auto size = read_number(way.substr(1));
        if (size > text.size()) return std::nullopt;
        if (way[0] == 's' || way[0] == 'S' || way[0] == 'Q') made.kind = channel_kind::sharded;
        made.reads = way[0] == 'P' || way[0] == 'S';
        made.channel = text.substr(0, size);
        made.owner_info = text.substr(size);
        return made;
    }
};

}  // namespace detail

}  // namespace distlock
