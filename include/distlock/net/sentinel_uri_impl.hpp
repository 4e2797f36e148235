// How the URI of Sentinels is read, which is compiled once where a program asks for that.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/detail/separate.hpp>
#include <distlock/net/sentinel_uri.hpp>
#include <distlock/net/uri.hpp>
#include <distlock/net/uri_syntax.hpp>

namespace distlock {

namespace detail {

inline constexpr std::string_view sentinel_scheme = "+sentinel";
inline constexpr std::size_t most_sentinels = 32;

/// Effects: what concerns the Sentinels themselves goes to `user` and `password`, decoded.
/// Returns: the other options.
inline std::string take_sentinel_options(std::string_view text, std::string& user, std::string& password) {
    std::string others;
    bool more = !text.empty();
    while (more) {
        const std::string_view item = text.substr(0, text.find('&'));
        more = item.size() < text.size();
        text.remove_prefix(std::min(item.size() + 1, text.size()));
        if (!item.starts_with("sentinel_")) {
            others.append(others.empty() ? "?" : "&").append(item);
            continue;
        }
        const std::size_t equals = std::min(item.find('='), item.size());
        const std::string_view name = item.substr(0, equals);
        if (name != "sentinel_user" && name != "sentinel_password")
            refuse_uri(
                "an option is unknown; for the Sentinels there are sentinel_user and sentinel_password");
        std::string& value = name == "sentinel_user" ? user : password;
        if (!value.empty())
            refuse_uri({"the option ", &value == &user ? "sentinel_user" : "sentinel_password",
                        " is given twice; keep one"});
        value = percent_decoded(item.substr(std::min(equals + 1, item.size())),
                                &value == &user ? "sentinel_user" : "sentinel_password");
        if (value.empty())
            refuse_uri(
                "sentinel_user or sentinel_password is empty (a variable that was not set?); leave it out");
    }
    if (!user.empty() && password.empty())
        refuse_uri("there is a sentinel_user and no sentinel_password; write both, or the password alone");
    return others;
}

/// Returns: `host`, with the usual port of a Sentinel unless it has one.
inline std::string with_sentinel_port(std::string_view host) {
    const std::size_t from = host.starts_with('[') ? std::min(host.find(']'), host.size()) : 0;
    const bool has_port = host.find(':', from) != std::string_view::npos;
    return std::string(host).append(has_port ? "" : ":26379");
}

}  // namespace detail

[[gnu::cold]] DISTLOCK_INLINE void check_uri(const sentinel_uri& where) {
    using detail::refuse_uri;
    if (where.sentinels.empty()) refuse_uri("there is no Sentinel; write redis+sentinel://s1,s2,s3/mymaster");
    if (where.sentinels.size() > detail::most_sentinels)
        refuse_uri("there are more than 32 Sentinels; a few will do");
    uri master = where.master;
    master.host = "127.0.0.1";
    master.port = 6379;
    check_uri(master);
    const uri& first = where.sentinels.front();
    for (const uri& one : where.sentinels) {
        check_uri(one);
        if (one.scheme == uri_scheme::unix_socket || master.scheme == uri_scheme::unix_socket)
            refuse_uri(
                "Sentinels are not reached by a unix socket; write redis+sentinel://s1,s2,s3/mymaster");
        if (one.scheme != master.scheme) refuse_uri("use TLS for Sentinels and masters, or for neither");
        if (one.database != 0) refuse_uri("Sentinels have no databases; give the master's as ?db=2");
        if (!detail::alike_but_for_place(one, first))
            refuse_uri("the Sentinels differ in more than host and port");
        if (std::find(&first, &one, one) != &one) refuse_uri("a Sentinel is named twice; keep one");
    }
    if (where.master_name.empty() || where.master_name.size() > 253 ||
        !detail::is_host_name(where.master_name)) {
        refuse_uri(
            "the name of the master is missing or none that Sentinels take (letters, digits, '.', '-' and "
            "'_'); write "
            "redis+sentinel://s1,s2,s3/mymaster, and a database as ?db=2");
    }
}

[[gnu::cold]] DISTLOCK_INLINE sentinel_uri parse_sentinel_uri(std::string_view text) {
    using detail::refuse_uri;
    detail::uri_parts parts = detail::split_uri(text);
    if (!detail::take_suffix(parts.scheme, detail::sentinel_scheme)) {
        refuse_uri(
            "the scheme is not of Sentinels; write redis+sentinel://s1,s2,s3/mymaster, or rediss+sentinel:// "
            "for TLS");
    }
    sentinel_uri out;
    std::string user;
    std::string password;
    const std::string options = detail::take_sentinel_options(parts.options, user, password);
    const std::string scheme = std::string(parts.scheme) + "://";
    const auto read = [&](const std::string& rest) { return parse_uri(scheme + rest + options); };
    const auto add = [&](std::string_view host) {
        uri one = read(detail::with_sentinel_port(host));
        one.user = user;
        one.password = password;
        one.database = 0;
        out.sentinels.push_back(std::move(one));
    };
    detail::for_each_host(parts.place,
                          "a Sentinel has no host (a variable that was not set?); write "
                          "redis+sentinel://s1,s2,s3/mymaster",
                          add);
    const std::string login = parts.credentials ? std::string(*parts.credentials).append("@") : std::string();
    out.master = read(login + "127.0.0.1");
    out.master_name = detail::percent_decoded(parts.path.substr(std::min<std::size_t>(1, parts.path.size())),
                                              "name of the master");
    check_uri(out);
    return out;
}

[[gnu::cold]] DISTLOCK_INLINE std::string redacted(const sentinel_uri& where) {
    std::string shown = detail::shown_hosts(where.master, detail::sentinel_scheme, where.sentinels);
    shown += "/" + where.master_name;
    if (where.master.database != 0) shown += "?db=" + std::to_string(where.master.database);
    return shown;
}

}  // namespace distlock
