// How a URI is read, which is compiled once where a program asks for that.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <distlock/detail/concat.hpp>
#include <distlock/detail/separate.hpp>
#include <distlock/net/uri.hpp>
#include <distlock/net/uri_syntax.hpp>

namespace distlock {

namespace detail {

[[gnu::cold]] inline uri_scheme parse_uri_scheme(std::string_view name) {
    for (const std::string_view known : {"redis", "valkey"}) {
        if (equals_ignoring_case(name, known)) return uri_scheme::tcp;
    }
    for (const std::string_view known : {"rediss", "valkeys"}) {
        if (equals_ignoring_case(name, known)) return uri_scheme::tls;
    }
    if (equals_ignoring_case(name, "unix")) return uri_scheme::unix_socket;
    for (const std::string_view known : {"+sentinel", "+cluster"}) {
        if (name.size() > known.size() &&
            equals_ignoring_case(name.substr(name.size() - known.size()), known))
            refuse_uri({"a URI with ", known, ":// is for a distlock::", known.substr(1), "_connection"});
    }
    refuse_uri(
        "the scheme is unknown; take redis://, rediss:// (TLS), valkey://, valkeys:// (TLS) or unix://");
}

/// `text` is what stands before the '@'.
[[gnu::cold]] inline void parse_uri_credentials(uri& out, std::string_view text) {
    const std::size_t colon = text.find(':');
    if (colon == std::string_view::npos) {
        refuse_uri(
            "there is no ':' before the '@', and clients disagree whether a single word is a user or a "
            "password; write redis://user:password@host, or redis://:password@host for the default user");
    }
    if (colon + 1 == text.size()) {
        refuse_uri(
            "the password is empty (a variable that was not set?); to connect without one leave out "
            "everything up to the '@' (a user made with nopass accepts any word)");
    }
    out.user = percent_decoded(text.substr(0, colon), "user");
    out.password = percent_decoded(text.substr(colon + 1), "password");
}

/// `text` stood in brackets.
[[gnu::cold]] inline std::string parse_uri_ipv6(std::string_view text) {
    const std::size_t percent = text.find('%');
    std::string out(text.substr(0, percent));
    if (!is_ipv6_address(out)) {
        refuse_uri("what stands in brackets is no IPv6 address; write one like redis://[::1]:6379");
    }
    if (percent == std::string_view::npos) return out;
    const std::string_view zone = text.substr(percent);
    if (!zone.starts_with("%25") || zone.size() == 3 || zone.size() > 64 || !is_host_name(zone.substr(3))) {
        refuse_uri(
            "the zone of the IPv6 address cannot be used; write one like redis://[fe80::1%25eth0]:6379");
    }
    return out.append("%").append(zone.substr(3));
}

[[gnu::cold]] inline std::string parse_uri_host_name(std::string_view text) {
    if (text.empty()) {
        refuse_uri(
            "the host is empty (a variable that was not set?); write redis://host:6379, or redis:// "
            "alone for 127.0.0.1:6379");
    }
    std::string out = percent_decoded(text, "host");
    if (out.size() > 253 || !is_host_name(out)) {
        refuse_uri(
            "the host is no name or address: up to 253 letters, digits, '.', '-' and '_'; a non-ASCII "
            "name goes in its xn-- form, an IPv6 address in brackets");
    }
    return out;
}

/// `text` is what stands between the '@', if there is one, and the path.
[[gnu::cold]] inline void parse_uri_host_and_port(uri& out, std::string_view text) {
    std::string_view rest;
    if (text.find(',') != std::string_view::npos) {
        refuse_uri(
            "there is a ',': one server has one host; several are for redis+cluster:// and "
            "redis+sentinel://");
    }
    if (text.starts_with('[')) {
        const std::size_t close = text.find(']');
        if (close == std::string_view::npos) {
            refuse_uri("a '[' is never closed; write an IPv6 address like redis://[::1]:6379");
        }
        out.host = parse_uri_ipv6(text.substr(1, close - 1));
        rest = text.substr(close + 1);
        if (!rest.empty() && rest.front() != ':') {
            refuse_uri("only ':' and a port may follow the ']' of an IPv6 address, as in redis://[::1]:6379");
        }
    } else {
        const std::size_t colon = text.find(':');
        if (colon != std::string_view::npos && text.find(':', colon + 1) != std::string_view::npos) {
            refuse_uri(
                "there are several ':' where host and port should be; an IPv6 address goes in brackets, "
                "as in redis://[::1]:6379, and credentials end with '@'");
        }
        out.host = parse_uri_host_name(text.substr(0, colon));
        if (colon != std::string_view::npos) rest = text.substr(colon);
    }
    if (rest.empty()) return;
    const auto port = parse_number(rest.substr(1), 1, 65535);
    if (!port) {
        refuse_uri(
            "the port is no number from 1 to 65535; write redis://host:6379 (is this a password? it goes "
            "before an '@': redis://user:password@host:6379)");
    }
    out.port = static_cast<std::uint16_t>(*port);
}

[[gnu::cold]] inline void parse_uri_socket_path(uri& out, std::string_view text) {
    out.path = percent_decoded(text, "path");
    if (out.path.size() < 2 || out.path.back() == '/') {
        refuse_uri("the path names no socket; write unix:///run/redis/redis.sock");
    }
    if (out.path.find('\0') != std::string::npos) {
        refuse_uri("the path of the socket holds a %00; no file name can");
    }
    if (out.path.size() > longest_socket_path) {
        refuse_uri({"the path of the socket is longer than the ", longest_socket_path,
                    " bytes the operating system takes; use a shorter one, or a symbolic link"});
    }
}

[[gnu::cold]] inline int parse_uri_database(std::string_view text) {
    const auto number = parse_number(text, 0, std::numeric_limits<std::int32_t>::max());
    if (!number) {
        refuse_uri("the database is no number from 0 to 2147483647; write redis://host:6379/2 or ?db=2");
    }
    return static_cast<int>(*number);
}

[[gnu::cold]] inline std::chrono::milliseconds parse_uri_duration(std::string_view text,
                                                                  std::string_view option) {
    const std::size_t unit_at = std::min(text.find_first_not_of("0123456789"), text.size());
    const std::string_view unit = text.substr(unit_at);
    const std::uint64_t scale = unit == "ms" ? 1 : unit == "s" ? 1000 : 0;
    // The upper limit also keeps the product far from overflowing.
    const auto count = parse_number(text.substr(0, unit_at), 1, 3'600'000);
    if (scale == 0 || !count || *count * scale > 3'600'000) {
        refuse_uri(
            {option, " is no time from 1 ms to 1 h: a whole number with its unit, ms or s; say 250ms or 2s"});
    }
    return std::chrono::milliseconds(*count * scale);
}

/// `text` is what follows the '?'; `database` is what the path said, if it did.
[[gnu::cold]] inline void parse_uri_options(uri& out, std::string_view text, std::optional<int> database) {
    constexpr std::string_view names[] = {"connect_timeout", "command_timeout", "max_idle", "db"};
    bool seen[std::size(names)] = {};
    for (bool more = !text.empty(); more;) {
        const std::size_t end = text.find('&');
        const std::string_view item = text.substr(0, end);
        more = end != std::string_view::npos;
        if (more) text.remove_prefix(end + 1);
        const std::size_t equals = std::min(item.find('='), item.size());
        const std::string_view value = item.substr(std::min(equals + 1, item.size()));
        const auto* const name = std::find(std::begin(names), std::end(names), item.substr(0, equals));
        if (name == std::end(names)) {
            refuse_uri(
                "an option is unknown; there are connect_timeout, command_timeout, max_idle and db (not of a "
                "Cluster), and of Sentinels sentinel_user and sentinel_password");
        }
        bool& again = seen[name - std::begin(names)];
        if (again) refuse_uri({"the option ", *name, " is given twice; keep one"});
        again = true;

        if (*name == "connect_timeout") {
            out.connect_timeout = parse_uri_duration(value, *name);
        } else if (*name == "command_timeout") {
            out.command_timeout = parse_uri_duration(value, *name);
        } else if (*name == "max_idle") {
            const auto number = parse_number(value, 1, 1024);
            if (!number) refuse_uri("max_idle is no number from 1 to 1024; write max_idle=16");
            out.max_idle = static_cast<std::size_t>(*number);
        } else {
            out.database = parse_uri_database(value);
            if (database && *database != out.database) {
                refuse_uri("the path and the option db name different databases; keep one");
            }
        }
    }
}

}  // namespace detail

[[gnu::cold]] DISTLOCK_INLINE uri parse_uri(std::string_view text) {
    const detail::uri_parts parts = detail::split_uri(text);
    uri out;
    out.scheme = detail::parse_uri_scheme(parts.scheme);
    if (parts.credentials) detail::parse_uri_credentials(out, *parts.credentials);

    std::optional<int> database;
    if (out.scheme == uri_scheme::unix_socket) {
        if (!parts.place.empty()) {
            detail::refuse_uri(
                "a unix socket has no host, and its path starts with '/'; write "
                "unix:///run/redis/redis.sock, or unix://user:password@/run/redis/redis.sock");
        }
        detail::parse_uri_socket_path(out, parts.path);
    } else {
        if (parts.credentials || !parts.place.empty()) detail::parse_uri_host_and_port(out, parts.place);
        if (parts.path.size() > 1) database = out.database = detail::parse_uri_database(parts.path.substr(1));
    }
    detail::parse_uri_options(out, parts.options, database);
    return out;
}

[[gnu::cold]] DISTLOCK_INLINE void check_uri(const uri& where) {
    const auto refuse_unless = [](bool usable, const char* what) {
        if (!usable) detail::refuse_uri(what);
    };
    const auto usable = [](std::chrono::milliseconds timeout) {
        return timeout >= std::chrono::milliseconds{1} && timeout <= std::chrono::hours{1};
    };
    const bool local = where.scheme == uri_scheme::unix_socket;
    refuse_unless(!local || (where.path.starts_with('/') && where.path.find('\0') == std::string::npos &&
                             where.path.size() <= detail::longest_socket_path),
                  "the path of the socket is not absolute, too long, or holds a zero byte");
    refuse_unless(local || (!where.host.empty() && where.host.size() <= 300 &&
                            where.host.find('\0') == std::string::npos),
                  "the host is empty, too long, or holds a zero byte");
    refuse_unless(local || where.port != 0, "the port is 0; give 1 to 65535");
    refuse_unless(where.user.empty() || !where.password.empty(),
                  "there is a user and no password; give both, or neither");
    refuse_unless(where.database >= 0, "the database is negative");
    refuse_unless(usable(where.connect_timeout) && usable(where.command_timeout),
                  "a time-out is not from 1 ms to 1 h");
    refuse_unless(where.max_idle >= 1 && where.max_idle <= 1024, "max_idle is not from 1 to 1024");
}

[[gnu::cold]] DISTLOCK_INLINE std::string redacted(const uri& where) {
    const bool local = where.scheme == uri_scheme::unix_socket;
    const bool bracketed = !local && where.host.find(':') != std::string::npos;
    std::string shown = detail::concat({detail::scheme_name(where.scheme), "://",
                                        detail::percent_encoded(where.user), where.user.empty() ? "" : "@"});
    if (local) {
        detail::append(shown, {detail::percent_encoded(where.path, "/")});
        if (where.database != 0) detail::append(shown, {"?db=", where.database});
        return shown;
    }
    detail::append(shown, {bracketed ? "[" : "", detail::percent_encoded(where.host, bracketed ? ":" : ""),
                           bracketed ? "]:" : ":", where.port, "/", where.database});
    return shown;
}

[[gnu::cold]] DISTLOCK_INLINE std::string detail::shown_place(uri one) {
    one.user.clear();
    const std::string whole = redacted(one);  // redis://host:port/0
    const std::size_t begin = whole.find("://") + 3;
    return whole.substr(begin, whole.rfind('/') - begin);
}

[[gnu::cold]] DISTLOCK_INLINE std::string detail::shown_hosts(const uri& whose, std::string_view suffix,
                                                              std::span<const uri> hosts) {
    std::string shown = concat({scheme_name(whose.scheme), suffix, "://", percent_encoded(whose.user),
                                whose.user.empty() ? "" : "@"});
    for (const uri& one : hosts) append(shown, {&one == &hosts.front() ? "" : ",", shown_place(one)});
    return shown;
}

}  // namespace distlock
