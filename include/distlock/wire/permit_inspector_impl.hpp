// How the answers about a semaphore are read, compiled once where a program asks for that.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <distlock/detail/separate.hpp>
#include <distlock/wire/permit_inspector.hpp>
#include <distlock/wire/plain_inspector_impl.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/report.hpp>

namespace distlock {

[[gnu::cold]] DISTLOCK_INLINE std::optional<lock_report> permit_inspector::read(const reply& r) {
    const auto& parts = r.elements();
    if (parts.size() != 6) return std::nullopt;
    for (std::size_t i = 0; i < 3; ++i) {
        if (!parts[i].is(reply_kind::integer)) return std::nullopt;
    }
    lock_report report;
    if (!detail::read_queue(parts[3], parts[4], parts[5], report)) return std::nullopt;
    report.shares = static_cast<std::uint64_t>(std::max<std::int64_t>(parts[0].number(), 0));
    if (parts[1].number() >= 0) report.remaining = std::chrono::milliseconds(parts[1].number());
    if (parts[2].number() >= 0) report.limit = static_cast<std::uint64_t>(parts[2].number());
    return report;
}

}  // namespace distlock
