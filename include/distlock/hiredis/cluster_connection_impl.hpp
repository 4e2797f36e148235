// cluster_connection over its nodes, compiled once where a program asks for that.
#pragma once

#include <memory>
#include <utility>

#include <distlock/hiredis/cluster_connection.hpp>
#include <distlock/hiredis/cluster_pool.hpp>
#include <distlock/hiredis/connection_pool.hpp>
#include <distlock/hiredis/secure.hpp>
#include <distlock/net/cluster_uri.hpp>
#include <distlock/net/connection.hpp>

namespace distlock {

static_assert(check_connection<cluster_connection>());
static_assert(pipelining_connection<cluster_connection> && acknowledging_connection<cluster_connection> &&
              service_hosting_connection<cluster_connection> && confirming_connection<cluster_connection> &&
              sharded_connection<cluster_connection> && following_connection<cluster_connection>);

namespace detail {

template <class Lazy>
std::unique_ptr<connection_pool> make_cluster_pool(const cluster_uri& where,
                                                   std::shared_ptr<const secure_layer> secure) {
    return std::make_unique<cluster_pool<Lazy>>(where, std::move(secure));
}
#ifdef DISTLOCK_SEPARATE_COMPILATION
template std::unique_ptr<connection_pool> make_cluster_pool<void>(const cluster_uri&,
                                                                  std::shared_ptr<const secure_layer>);
#endif

}  // namespace detail

}  // namespace distlock
