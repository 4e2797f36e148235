// sentinel_connection over its master, compiled once where a program asks for that.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include <distlock/detail/separate.hpp>
#include <distlock/hiredis/master_pool.hpp>
#include <distlock/hiredis/secure.hpp>
#include <distlock/hiredis/sentinel_connection.hpp>
#include <distlock/net/master_listener.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/net/sentinel_uri.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/wire/acknowledgement.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock {

DISTLOCK_INLINE sentinel_connection::sentinel_connection(std::string_view where,
                                                         std::shared_ptr<const secure_layer> secure)
    : pool_(std::make_unique<detail::master_pool>(parse_sentinel_uri(where), std::move(secure))) {}
DISTLOCK_INLINE sentinel_connection::~sentinel_connection() = default;

DISTLOCK_INLINE reply sentinel_connection::execute(const command& cmd) { return pool_->execute(cmd); }
DISTLOCK_INLINE acknowledged_reply sentinel_connection::execute_acknowledged(const command& write,
                                                                             const command& wait) {
    return pool_->execute_acknowledged(write, wait);
}
DISTLOCK_INLINE void sentinel_connection::pipeline(std::span<const command> commands,
                                                   std::span<reply> replies) {
    pool_->pipeline(commands, replies);
}
DISTLOCK_INLINE bool sentinel_connection::post(const command& cmd, std::shared_ptr<receipt> wanted) {
    return pool_->post(cmd, std::move(wanted));
}
DISTLOCK_INLINE void sentinel_connection::collect() { pool_->collect(); }
DISTLOCK_INLINE std::shared_ptr<subscription> sentinel_connection::subscribe(std::string_view channel) {
    return pool_->subscribe(channel);
}
DISTLOCK_INLINE void sentinel_connection::on_master_change(std::weak_ptr<master_listener> who) {
    pool_->on_master_change(std::move(who));
}
DISTLOCK_INLINE void sentinel_connection::follow() { pool_->follow(); }
DISTLOCK_INLINE std::string_view sentinel_connection::identity() const noexcept { return pool_->identity(); }
DISTLOCK_INLINE std::chrono::milliseconds sentinel_connection::command_timeout() const noexcept {
    return pool_->command_timeout();
}

}  // namespace distlock
