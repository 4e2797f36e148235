// cluster_connection over its nodes, compiled once where a program asks for that.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/detail/separate.hpp>
#include <distlock/hiredis/cluster_connection.hpp>
#include <distlock/hiredis/cluster_pool.hpp>
#include <distlock/hiredis/secure.hpp>
#include <distlock/net/cluster_uri.hpp>
#include <distlock/net/master_listener.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/net/uri.hpp>
#include <distlock/wire/acknowledgement.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock {

DISTLOCK_INLINE cluster_connection::cluster_connection(const cluster_uri& where,
                                                       std::shared_ptr<const secure_layer> secure)
    : pool_(std::make_unique<detail::cluster_pool>(where, std::move(secure))) {}
DISTLOCK_INLINE cluster_connection::~cluster_connection() = default;

DISTLOCK_INLINE reply cluster_connection::execute(const command& cmd) { return pool_->execute(cmd); }
DISTLOCK_INLINE acknowledged_reply cluster_connection::execute_acknowledged(const command& write,
                                                                            const command& wait) {
    return pool_->execute_acknowledged(write, wait);
}
DISTLOCK_INLINE void cluster_connection::pipeline(std::span<const command> commands,
                                                  std::span<reply> replies) {
    pool_->pipeline(commands, replies);
}
DISTLOCK_INLINE bool cluster_connection::post(const command& cmd, std::shared_ptr<receipt> wanted) {
    return pool_->post(cmd, std::move(wanted));
}
DISTLOCK_INLINE void cluster_connection::collect() { pool_->collect(); }
DISTLOCK_INLINE std::shared_ptr<subscription> cluster_connection::subscribe(std::string_view channel) {
    return pool_->subscribe(channel);
}
DISTLOCK_INLINE void cluster_connection::on_master_change(std::weak_ptr<master_listener> who) {
    pool_->on_master_change(std::move(who));
}
DISTLOCK_INLINE void cluster_connection::follow() { pool_->follow(); }
DISTLOCK_INLINE std::string_view cluster_connection::identity() const noexcept { return pool_->identity(); }
DISTLOCK_INLINE std::chrono::milliseconds cluster_connection::command_timeout() const noexcept {
    return pool_->command_timeout();
}

}  // namespace distlock
