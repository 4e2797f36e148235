// How the answers about a lock are read, compiled once where a program asks for that.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/base/error.hpp>
#include <distlock/detail/separate.hpp>
#include <distlock/wire/plain_inspector.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/report.hpp>
#include <distlock/wire/sibling_keys.hpp>
#include <distlock/wire/ticket.hpp>

namespace distlock {

namespace detail {

inline std::string_view take_line(std::string_view& text) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    return line;
}

// "<host>\n<process id>\n<label>", as far as it goes.
template <class Described>
void read_description(Described& who, std::string_view text) {
    who.host = take_line(text);
    who.pid = static_cast<std::int64_t>(read_number(take_line(text)));
    who.label = text;
}

// The key beside the lock may be about an earlier owner, when somebody else's client deleted the key.
inline lock_holder holder_of(const std::string& token, std::string_view described) {
    lock_holder holder;
    holder.token = token;
    const auto end = std::min(described.find('\n'), described.size());
    if (described.substr(0, end) == token)
        read_description(holder, described.substr(std::min(end + 1, described.size())));
    return holder;
}

// Of what is no ticket nothing is said: the scripts drop it.
inline bool read_queue(const reply& now, const reply& size, const reply& first, lock_report& report) {
    const auto& parts = first.elements();
    if (!now.is(reply_kind::integer) || now.number() < 0 || !size.is(reply_kind::integer) ||
        size.number() < -1 || !first.is(reply_kind::array) || parts.size() % 2 != 0)
        return false;
    if (size.number() >= 0) report.waiters = static_cast<std::uint64_t>(size.number());
    for (std::size_t i = 0; i < parts.size(); i += 2) {
        if (!parts[i].is(reply_kind::string) || !parts[i + 1].is(reply_kind::string)) return false;
        const auto waits = ticket::read(parts[i].text());
        if (!waits) continue;
        const auto joined = read_number(parts[i + 1].text());
        const auto time = static_cast<std::uint64_t>(now.number());
        lock_waiter& waiter = report.queue.emplace_back();
        waiter.waits = std::chrono::microseconds(time > joined ? time - joined : 0);
        waiter.lease = waits->lease;
        waiter.channel = waits->channel;
        waiter.reads = waits->reads;
        waiter.permits = static_cast<std::uint64_t>(waits->permits);
        read_description(waiter, waits->owner_info);
    }
    return true;
}

}  // namespace detail

[[gnu::cold]] DISTLOCK_INLINE plain_inspector::plain_inspector(std::string name) : key_(std::move(name)) {
    try {
        fence_ = key_.sibling("fence");
        owner_ = key_.sibling("owner");
        mark_ = key_.sibling("forced");
        queue_ = key_.sibling("queue");
    } catch (const error&) {
        // A lock that can have no keys beside it is a lock all the same.
    }
}

[[gnu::cold]] DISTLOCK_INLINE std::optional<lock_report> plain_inspector::read_inspect(const reply& r) const {
    const auto& parts = r.elements();
    const bool with_readers = parts.size() == 8 && parts[7].is(reply_kind::integer);
    const bool with_queue = parts.size() == 7 || with_readers;
    if ((parts.size() != 4 && !with_queue) || !parts[0].is(reply_kind::string) ||
        !parts[1].is(reply_kind::integer) || !parts[2].is(reply_kind::string) ||
        !parts[3].is(reply_kind::string) || parts[1].number() < -2)
        return std::nullopt;
    lock_report report;
    if (with_queue && !detail::read_queue(parts[4], parts[5], parts[6], report)) return std::nullopt;
    if (const auto fence = detail::read_number(parts[2].text()); fence != 0) report.fence = fence;
    if (parts[1].number() == -2) return report;
    if (parts[1].number() >= 0) report.remaining = std::chrono::milliseconds(parts[1].number());
    if (with_readers) {
        report.shares = static_cast<std::uint64_t>(std::max<std::int64_t>(parts[7].number(), 0));
    } else {
        report.holder = detail::holder_of(parts[0].text(), parts[3].text());
    }
    return report;
}

}  // namespace distlock
