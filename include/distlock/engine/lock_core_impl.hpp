// The engine behind mutexes and guards, compiled once where a program asks for that.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/base/error.hpp>
#include <distlock/base/observer.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/time_source.hpp>
#include <distlock/detail/separate.hpp>
#include <distlock/engine/background_io.hpp>
#include <distlock/engine/lock_core.hpp>
#include <distlock/engine/lock_object.hpp>
#include <distlock/engine/lock_object_acquire.hpp>
#include <distlock/engine/lock_object_hold.hpp>
#include <distlock/net/any_connection.hpp>
#include <distlock/wire/any_dialect.hpp>
#include <distlock/wire/channel_kind.hpp>
#include <distlock/wire/handoff.hpp>

namespace distlock::engine {

[[gnu::cold]] DISTLOCK_INLINE std::shared_ptr<background_io> make_background_io(
    std::unique_ptr<any_connection> connection, time_source time) {
    return std::make_shared<background_io>(std::move(connection), time);
}

[[gnu::cold]] DISTLOCK_INLINE std::shared_ptr<background_io> registered_background_io(
    const void* connection, const void* kind, std::unique_ptr<any_connection> with, time_source time) {
    return background_io_register::get(
        connection, kind, [&] { return std::make_unique<background_io>(std::move(with), time); });
}

[[gnu::cold]] DISTLOCK_INLINE waiters_channel channel_of(const background_io& io, std::string_view lock) {
    const auto& can = io.connection().can;
    if (!can.subscribe) return {};
    return {io.channel_of(lock), can.shard ? channel_kind::sharded : channel_kind::ordinary};
}

[[gnu::cold]] DISTLOCK_INLINE void check_options(const background_io& io, std::string_view lock,
                                                 const lock_options& options) {
    const auto& connection = io.connection();
    distlock::detail::check_options(
        options, connection.command_timeout().value_or(std::chrono::milliseconds{0}), lock);
    if (options.replicas > 0 && !connection.can.pipeline && !connection.can.acknowledge) {
        distlock::detail::refuse_option(
            errc::invalid_option, lock,
            {"replicas is ", options.replicas,
             ", but this connection cannot pipeline; give it pipeline() or execute_acknowledged()"});
    }
}

[[gnu::cold]] DISTLOCK_INLINE std::unique_ptr<lock_core> make_handoff_core(
    std::shared_ptr<background_io> io, std::string name, const lock_options& options,
    std::shared_ptr<lease_observer> observer) {
    check_options(*io, name, options);
    const auto channel = channel_of(*io, name);
    auto about =
        std::make_shared<const any_dialect_of<handoff>>(std::move(name), options, channel.name, channel.kind);
    return make_lock_core(std::move(io), std::move(about), options, std::move(observer));
}

[[gnu::cold]] DISTLOCK_INLINE std::unique_ptr<lock_core> make_lock_core(
    std::shared_ptr<background_io> io, std::shared_ptr<const any_dialect> dialect,
    const lock_options& options, std::shared_ptr<lease_observer> observer) {
    return std::make_unique<lock_object>(std::move(io), std::move(dialect), options, std::move(observer));
}

}  // namespace distlock::engine
