// sentinel_connection over the masters that its Sentinels name, compiled once where a program asks for that.
#pragma once

#include <memory>
#include <utility>

#include <distlock/hiredis/connection_pool.hpp>
#include <distlock/hiredis/master_pool.hpp>
#include <distlock/hiredis/secure.hpp>
#include <distlock/hiredis/sentinel_connection.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/net/sentinel_uri.hpp>

namespace distlock {

static_assert(check_connection<sentinel_connection>());
static_assert(pipelining_connection<sentinel_connection> && acknowledging_connection<sentinel_connection> &&
              service_hosting_connection<sentinel_connection> && confirming_connection<sentinel_connection> &&
              subscribing_connection<sentinel_connection> && following_connection<sentinel_connection>);

namespace detail {

template <class Lazy>
std::unique_ptr<connection_pool> make_master_pool(const sentinel_uri& where,
                                                  std::shared_ptr<const secure_layer> secure) {
    check_uri(where);
    return std::make_unique<master_pool<Lazy>>(where, std::move(secure));
}
#ifdef DISTLOCK_SEPARATE_COMPILATION
template std::unique_ptr<connection_pool> make_master_pool<void>(const sentinel_uri&,
                                                                 std::shared_ptr<const secure_layer>);
#endif

}  // namespace detail

}  // namespace distlock
