// Where the nodes of a Cluster are: redis+cluster://user:password@n1:7000,n2:7000?option=value
//
//   struct cluster_uri { std::vector<uri> nodes; };
//   cluster_uri parse_cluster_uri(std::string_view text);  // throws error(errc::invalid_uri), as parse_uri()
//   void check_uri(const cluster_uri& where);              // of one that was filled in by hand
//   std::string redacted(const cluster_uri& where);         // for messages
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <distlock/detail/separate.hpp>
#include <distlock/net/uri.hpp>

namespace distlock {

struct cluster_uri {
    std::vector<uri> nodes;  ///< one or more, in the order of the text; they differ in host and port only
};

/// Throws: error(errc::invalid_uri) when `where` cannot be used.
DISTLOCK_INLINE void check_uri(const cluster_uri& where);

/// Reads `redis+cluster://[[user]:password@]host[:port][,host[:port]...][?options]`, and the same with
/// rediss+cluster for TLS, valkey+cluster and valkeys+cluster. Options: those of parse_uri() but db.
///
/// Throws: error(errc::invalid_uri); `what()` names the part that is wrong and holds nothing of `text`.
[[nodiscard("what was read is lost")]] DISTLOCK_INLINE cluster_uri parse_cluster_uri(std::string_view text);

/// Preconditions: check_uri(where) does not throw. Returns: `where` without password and options.
DISTLOCK_INLINE std::string redacted(const cluster_uri& where);

}  // namespace distlock

#ifndef DISTLOCK_SEPARATE_COMPILATION
#include <distlock/net/cluster_uri_impl.hpp>
#endif
