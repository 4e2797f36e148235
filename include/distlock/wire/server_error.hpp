// Error replies told apart by their first word: texts differ between servers and versions, the words do not.
#pragma once

#include <array>
#include <string_view>

#include <distlock/base/error.hpp>

namespace distlock {

/// What an error reply means for the command that got it.
struct server_error {
    errc cause = errc::server_error;
    bool transient = false;  ///< the same command may succeed a little later
    /// The server checks it before a command, or the first write of a script, runs: that was not applied. A
    /// script ends where it comes to a command that the user may not run, and what it wrote stays. An error
    /// that nobody knows may come from something between us and the server, which did apply it.
    bool certain = false;
};

namespace detail {

constexpr std::string_view first_word(std::string_view text) noexcept {
    return text.substr(0, text.find(' '));
}

// Before 7.0 an error inside a script came wrapped: "ERR Error running script (call to f_<sha>):
// @user_script:1: OOM ..."; what a script caught and answers, without the first words. 7.0 sends
// the inner error itself.
[[gnu::cold]] constexpr std::string_view unwrap_script_error(std::string_view text) noexcept {
    constexpr std::string_view wrapper = "ERR Error running script";
    constexpr std::string_view mark = "@user_script:";
    if (!text.starts_with(wrapper) && !text.starts_with(mark)) return text;
    const auto at = text.rfind(mark);
    if (at == std::string_view::npos) return text;
    const auto colon = text.find(": ", at + mark.size());
    if (colon == std::string_view::npos) return text;
    text.remove_prefix(colon + 2);
    if (text.starts_with('-')) text.remove_prefix(1);
    return text;
}

// Whether a command of a script was refused, not the script: what is echoed, a lock's name, may say anything.
[[gnu::cold]] constexpr bool refused_in_script(std::string_view text) noexcept {
    constexpr std::string_view marks[] = {"@user_script", "called from", "ACL failure in script",
                                          "user executing the script"};
    if (text.starts_with("ERR unknown command")) return false;
    for (const auto mark : marks) {
        if (text.find(mark) != std::string_view::npos) return true;
    }
    return false;
}

// A replica has no replicas to wait for.
constexpr bool refuses_to_wait(std::string_view text) noexcept {
    return text.starts_with("ERR WAIT cannot be used with replica");
}

// What TRYAGAIN is to a command, to a script that has written before: a key that is missing may be on the
// node that the slot moves to. `inner`: of unwrap_script_error().
[[gnu::cold]] constexpr bool says_keys_move(std::string_view inner) noexcept {
    if (inner.starts_with("ERR ")) inner.remove_prefix(4);
    return inner.starts_with("Script attempted to access a non local key") ||
           inner.starts_with("Lua script attempted to access a non local key");  // 6.2
}

}  // namespace detail

/// Returns: whether the error reply `text` says that the server has its fill of clients: it says so in place
/// of the first answer on a connection, executes nothing there, and closes it.
constexpr bool says_too_many_clients(std::string_view text) noexcept {
    return text.starts_with("ERR max number of clients");
}

/// The answer of a node of no Cluster to CLUSTER and ASKING.
inline constexpr std::string_view no_cluster_support = "ERR This instance has cluster support disabled";

/// Returns: whether `text`, an answer to CLUSTER or ASKING, or why a server is not used, says that the server
/// is a node of no Cluster.
constexpr bool says_no_cluster(std::string_view text) noexcept {
    return text.find(no_cluster_support) != std::string_view::npos;
}

/// Returns: what the error reply `text` says.
[[gnu::cold]] constexpr server_error classify_error(std::string_view text) noexcept {
    struct row {
        std::string_view word;
        errc cause;
        bool transient;
    };
    constexpr std::array<row, 20> table{{
        {"LOADING", errc::unavailable, true},
        {"BUSY", errc::unavailable, true},
        {"MASTERDOWN", errc::unavailable, true},
        {"UNBLOCKED", errc::unavailable, true},
        {"CLUSTERDOWN", errc::unavailable, true},
        {"TRYAGAIN", errc::unavailable, true},
        {"READONLY", errc::read_only, true},
        {"MOVED", errc::wrong_node, false},
        {"ASK", errc::wrong_node, false},
        {"CROSSSLOT", errc::wrong_node, false},
        {"OOM", errc::out_of_memory, false},
        {"MISCONF", errc::writes_refused, false},
        {"NOREPLICAS", errc::writes_refused, false},
        {"NOAUTH", errc::authentication_failed, false},
        {"WRONGPASS", errc::authentication_failed, false},
        {"NOPERM", errc::permission_denied, false},
        {"WRONGTYPE", errc::wrong_type, false},
        {"DENIED", errc::server_error, false},  // in protected mode
        {"NOSCRIPT", errc::unavailable, true},
        {"LIMITMISMATCH", errc::limit_mismatch, false},  // of our own script
    }};
    const auto inner = detail::unwrap_script_error(text);
    const auto word = detail::first_word(inner);
    const bool in_script = detail::refused_in_script(text);
    for (const row& r : table) {
        if (word == r.word) return {r.cause, r.transient, r.cause != errc::permission_denied || !in_script};
    }
    // The server refuses a long command before it has read it.
    if (inner.starts_with("ERR Protocol error: unauthenticated"))
        return {errc::authentication_failed, false, true};
    // A permission missing inside a script is a plain ERR.
    if (inner.find("can't run this command") != std::string_view::npos ||
        inner.find("ACL failure in script") != std::string_view::npos ||
        inner.find("can't access at least one of the keys") != std::string_view::npos) {
        return {errc::permission_denied, false, !in_script};
    }
    if (inner.starts_with("ERR unknown command") ||
        inner.find("nknown command called from") != std::string_view::npos ||
        inner.find("nknown Redis command called from") != std::string_view::npos)
        return {errc::unsupported_command, false, !in_script};
    if (detail::says_keys_move(inner)) return {errc::unavailable, true, false};
    if (detail::refuses_to_wait(inner)) return {errc::read_only, true, true};
    if (says_too_many_clients(inner)) return {errc::unavailable, true, true};
    return {};
}

/// Returns: whether the error reply `text` says that the server is a replica, or became one: where a name led
/// to a master, it may lead to another server by now.
constexpr bool says_role_changed(std::string_view text) noexcept {
    const auto word = detail::first_word(detail::unwrap_script_error(text));
    return word == "READONLY" || word == "MASTERDOWN" || word == "UNBLOCKED" || detail::refuses_to_wait(text);
}

/// Returns: whether a server that refuses a script of several keys and writes may still do what one key and a
/// delete need; else it refuses everybody everything for a while.
[[gnu::cold]] constexpr bool refused_for_its_size(std::string_view text) noexcept {
    switch (classify_error(text).cause) {
        case errc::out_of_memory:
        case errc::permission_denied:
        case errc::wrong_type:
        case errc::unsupported_command:
        case errc::server_error:
            return true;
        case errc::wrong_node:
            // A node that has not got the slot refuses one key, too.
            return detail::first_word(detail::unwrap_script_error(text)) == "CROSSSLOT";
        default: {
            const auto inner = detail::unwrap_script_error(text);
            return detail::first_word(inner) == "TRYAGAIN" || detail::says_keys_move(inner);
        }
    }
}

}  // namespace distlock
