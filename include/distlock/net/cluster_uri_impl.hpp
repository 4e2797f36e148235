// How the URI of a Cluster is read, which is compiled once where a program asks for that.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/detail/separate.hpp>
#include <distlock/net/cluster_uri.hpp>
#include <distlock/net/uri.hpp>
#include <distlock/net/uri_syntax.hpp>

namespace distlock {

namespace detail {

inline constexpr std::string_view cluster_scheme = "+cluster";
inline constexpr std::size_t most_cluster_nodes = 1024;

}  // namespace detail

[[gnu::cold]] DISTLOCK_INLINE void check_uri(const cluster_uri& where) {
    using detail::refuse_uri;
    if (where.nodes.empty()) refuse_uri("the cluster has no node; write redis+cluster://n1:7000,n2:7000");
    if (where.nodes.size() > detail::most_cluster_nodes)
        refuse_uri("there are more than 1024 nodes; a few will do");
    for (const uri& one : where.nodes) {
        check_uri(one);
        if (one.scheme == uri_scheme::unix_socket)
            refuse_uri("a cluster is not reached by a unix socket; write redis+cluster://n1:7000,n2:7000");
        if (one.database != 0) refuse_uri("a cluster has no databases; leave the database out");
        if (!detail::alike_but_for_place(one, where.nodes.front()))
            refuse_uri("the nodes differ in more than host and port");
    }
}

[[gnu::cold]] DISTLOCK_INLINE cluster_uri parse_cluster_uri(std::string_view text) {
    using detail::refuse_uri;
    detail::uri_parts parts = detail::split_uri(text);
    if (!detail::take_suffix(parts.scheme, detail::cluster_scheme)) {
        refuse_uri(
            "the scheme is not of a cluster; write redis+cluster://n1:7000,n2:7000, or rediss+cluster:// for "
            "TLS");
    }
    const std::string begin = std::string(parts.scheme) + "://" +
                              (parts.credentials ? std::string(*parts.credentials) + "@" : std::string());
    const std::string end = std::string(parts.path) + "?" + std::string(parts.options);
    cluster_uri out;
    const auto add = [&](std::string_view host) {
        uri one = parse_uri(begin + std::string(host) + end);
        if (std::find(out.nodes.begin(), out.nodes.end(), one) != out.nodes.end())
            refuse_uri("a node of the cluster is named twice; keep one");
        out.nodes.push_back(std::move(one));
    };
    detail::for_each_host(parts.place,
                          "a node of the cluster has no host (a variable that was not set?); write "
                          "redis+cluster://n1:7000,n2:7000",
                          add);
    check_uri(out);
    return out;
}

[[gnu::cold]] DISTLOCK_INLINE std::string redacted(const cluster_uri& where) {
    return detail::shown_hosts(where.nodes.front(), detail::cluster_scheme, where.nodes);
}

}  // namespace distlock
