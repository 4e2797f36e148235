// The ranges of options, checked; compiled once where a program asks for that.
#pragma once

#include <chrono>
#include <initializer_list>
#include <string>
#include <string_view>

#include <distlock/base/error.hpp>
#include <distlock/base/options.hpp>
#include <distlock/detail/concat.hpp>
#include <distlock/detail/printable.hpp>
#include <distlock/detail/separate.hpp>

namespace distlock {

DISTLOCK_INLINE void detail::refuse_option(errc code, std::string_view lock,
                                           std::initializer_list<text_piece> why) {
    const std::string what = concat(why);
    if (lock.empty()) throw_error(code, {what});
    throw_error(code, {shown_lock(lock), ": ", what});
}

[[gnu::cold]] DISTLOCK_INLINE void detail::check_options(const lock_options& options,
                                                         std::chrono::milliseconds command_timeout,
                                                         std::string_view lock) {
    const auto refuse = [lock](errc code, std::initializer_list<text_piece> why) {
        refuse_option(code, lock, why);
    };
    const auto lease = options.lease.get();
    if (lease < min_lease || lease > max_lease)
        refuse(errc::invalid_lease, {"a lease of ", lease.count(), " ms"});
    if (lease <= command_timeout) {
        refuse(errc::invalid_lease, {"a lease of ", lease.count(), " ms with a command time-out of ",
                                     command_timeout.count(), " ms"});
    }
    const std::chrono::milliseconds max_hold = options.max_hold;
    if (options.max_hold.given() && max_hold < min_lease) {
        refuse(errc::invalid_option,
               {"max_hold is ", max_hold.count(), " ms, give 10 ms or more, or {} for no limit"});
    }
    const std::chrono::milliseconds least = options.hold_at_least;
    const auto refuse_least = [&](const std::string& how) {
        refuse(errc::invalid_option, {"hold_at_least is ", least.count(), " ms", how});
    };
    if (least < std::chrono::milliseconds{0}) refuse_least(", give zero or more");
    if (options.max_hold.given() && least > max_hold)
        refuse_least(concat({", longer than max_hold; give ", max_hold.count(), " ms or less"}));
    if (!options.renew && least > lease)
        refuse_least(
            concat({", longer than the lease; give ", lease.count(), " ms or less, or renew = true"}));
    const std::chrono::milliseconds recheck = options.recheck;
    if (options.recheck.given() &&
        (recheck < std::chrono::milliseconds{1} || recheck > std::chrono::hours{1})) {
        if (recheck == std::chrono::milliseconds{0})
            refuse(errc::invalid_option, {"recheck is less than 1 ms, give one from 1 ms to 1 h"});
        refuse(errc::invalid_option, {"recheck is ", recheck.count(), " ms, give one from 1 ms to 1 h"});
    }
    if (options.owner_info.size() > owner_label::max_size) {
        refuse(errc::invalid_option,
               {"owner_info has ", options.owner_info.size(), " bytes, give 256 at most"});
    }
    if (options.patience.get() < std::chrono::milliseconds{0}) {
        refuse(errc::invalid_option,
               {"patience is ", options.patience.get().count(), " ms, give zero or more"});
    }
    const std::chrono::milliseconds budget = options.local_budget;
    if (budget < std::chrono::milliseconds{0} || budget > std::chrono::hours{1}) {
        refuse(errc::invalid_option, {"local_budget is ", budget.count(), " ms, give one from 0 ms to 1 h"});
    }
    if (options.replicas < 0 || options.replicas > 1000) {
        refuse(errc::invalid_option, {"replicas is ", options.replicas, ", give 0 to 1000"});
    }
    const std::chrono::milliseconds replica_timeout = options.replica_timeout;
    if (replica_timeout < std::chrono::milliseconds{1}) {
        refuse(errc::invalid_option,
               {"replica_timeout is ", replica_timeout.count(), " ms, give 1 ms or more"});
    }
}

}  // namespace distlock
