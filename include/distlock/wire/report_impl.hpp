// A report as text; compiled once where a program asks for that.
#pragma once

#include <string>

#include <distlock/detail/concat.hpp>
#include <distlock/detail/printable.hpp>
#include <distlock/detail/separate.hpp>
#include <distlock/wire/report.hpp>

namespace distlock {

DISTLOCK_INLINE std::string to_string(const lock_report& of) {
    using detail::append;
    using detail::printable;
    std::string line;
    if (of.holder) {
        const lock_holder& by = *of.holder;
        append(line, {"held by ", printable(by.token, 64)});
        if (!by.host.empty()) append(line, {" of process ", by.pid, " on ", printable(by.host)});
        if (!by.label.empty()) append(line, {" (", printable(by.label), ")"});
        if (by.holds > 1) append(line, {", ", by.holds, " times"});
    } else if (of.limit) {
        append(line, {of.shares.value_or(0), " of ", *of.limit, " permits out"});
    } else if (of.shares.value_or(0) > 0) {
        append(line, {"shared by ", *of.shares});
    } else {
        line = "free";
    }
    const bool had = of.holder || of.shares.value_or(0) > 0;
    if (had && of.remaining) append(line, {", for ", of.remaining->count(), " ms more"});
    if (had && !of.remaining) line += ", without an end";
    if (of.fence) append(line, {"; last fencing token ", *of.fence});
    if (of.waiters.value_or(0) > 0) append(line, {"; ", *of.waiters, *of.waiters == 1 ? " waits" : " wait"});
    return line;
}

}  // namespace distlock
