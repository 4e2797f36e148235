// hiredis_connection over its sockets, compiled once where a program asks for that.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include <distlock/detail/separate.hpp>
#include <distlock/hiredis/connection.hpp>
#include <distlock/hiredis/node_pool.hpp>
#include <distlock/hiredis/secure.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/net/uri.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock {

static_assert(check_connection<hiredis_connection>());
static_assert(pipelining_connection<hiredis_connection> && acknowledging_connection<hiredis_connection> &&
              service_hosting_connection<hiredis_connection> && confirming_connection<hiredis_connection> &&
              subscribing_connection<hiredis_connection>);

[[gnu::cold]] DISTLOCK_INLINE hiredis_connection::hiredis_connection(std::string_view where)
    : hiredis_connection(parse_uri(where)) {}
[[gnu::cold]] DISTLOCK_INLINE hiredis_connection::hiredis_connection(uri where)
    : hiredis_connection(std::move(where), nullptr) {}
[[gnu::cold]] DISTLOCK_INLINE hiredis_connection::hiredis_connection(
    std::string_view where, std::shared_ptr<const secure_layer> secure)
    : hiredis_connection(parse_uri(where), std::move(secure)) {}
[[gnu::cold]] DISTLOCK_INLINE hiredis_connection::hiredis_connection(
    uri where, std::shared_ptr<const secure_layer> secure)
    : pool_(std::make_unique<detail::node_pool>(std::move(where), std::move(secure))) {}
DISTLOCK_INLINE hiredis_connection::~hiredis_connection() = default;

DISTLOCK_INLINE reply hiredis_connection::execute(const command& cmd) { return pool_->execute(cmd); }
DISTLOCK_INLINE acknowledged_reply hiredis_connection::execute_acknowledged(const command& write,
                                                                            const command& wait) {
    return pool_->execute_acknowledged(write, wait);
}
DISTLOCK_INLINE void hiredis_connection::pipeline(std::span<const command> commands,
                                                  std::span<reply> replies) {
    pool_->pipeline(commands, replies);
}
DISTLOCK_INLINE bool hiredis_connection::post(const command& cmd, std::shared_ptr<receipt> wanted) {
    return pool_->post(cmd, std::move(wanted));
}
DISTLOCK_INLINE void hiredis_connection::collect() { pool_->collect(); }
DISTLOCK_INLINE std::shared_ptr<subscription> hiredis_connection::subscribe(std::string_view channel) {
    return pool_->subscribe(channel);
}
DISTLOCK_INLINE std::string_view hiredis_connection::identity() const noexcept { return pool_->identity(); }
DISTLOCK_INLINE std::chrono::milliseconds hiredis_connection::command_timeout() const noexcept {
    return pool_->command_timeout();
}
DISTLOCK_INLINE std::chrono::milliseconds hiredis_connection::connect_timeout() const noexcept {
    return pool_->connect_timeout();
}

}  // namespace distlock
