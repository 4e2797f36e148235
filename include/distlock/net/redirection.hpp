// MOVED and ASK, parsed: the node that a Cluster's node redirects to.
//
//   struct redirection { kind, slot, to };
//   std::optional<redirection> read_redirection(std::string_view text, const node_address& from);
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <distlock/net/hash_slot.hpp>
#include <distlock/net/node_address.hpp>
#include <distlock/net/uri_syntax.hpp>
#include <distlock/wire/server_error.hpp>

namespace distlock {

/// The command was not executed; another node will.
struct redirection {
    enum class kind {
        moved,  ///< for good: the slot belongs to that node
        ask,    ///< once, behind ASKING: the slot is on its way there
    };
    kind what;
    std::uint16_t slot;
    std::optional<node_address> to;  ///< none: the node that answered does not know the address
};

namespace detail {

/// Returns: what a node calls a host: an empty one is the host of `from`, which said it. "?" is a host it
/// does not know: none.
inline std::optional<node_address> read_node_address(std::string_view host, std::uint64_t port,
                                                     const node_address& from) {
    constexpr std::size_t longest_host = 300;
    if (port == 0 || port > 65535 || host == "?" || host.size() > longest_host) return std::nullopt;
    for (const char c : host) {
        if (c <= ' ' || c > '~') return std::nullopt;
    }
    return node_address{std::string(host.empty() ? std::string_view(from.host) : host),
                        static_cast<std::uint16_t>(port)};
}

}  // namespace detail

/// Returns: what the error reply `text` of the node `from` says, "MOVED 3999 10.0.0.1:6381" or "ASK ...";
/// none for any other text, also for one that begins like these and makes no sense.
inline std::optional<redirection> read_redirection(std::string_view text, const node_address& from) {
    const auto inner = detail::unwrap_script_error(text);
    const auto word = detail::first_word(inner);
    if (word != "MOVED" && word != "ASK") return std::nullopt;
    if (inner.size() == word.size()) return std::nullopt;
    const auto rest = inner.substr(word.size() + 1);
    const auto digits = detail::first_word(rest);
    const auto slot = detail::parse_number(digits, 0, slot_count - 1);
    if (!slot || rest.size() == digits.size()) return std::nullopt;
    // Of an IPv6 address only the last colon ends it. Text behind the address, if any, is for other clients.
    const auto place = detail::first_word(rest.substr(digits.size() + 1));
    const auto colon = place.rfind(':');
    if (colon == std::string_view::npos) return std::nullopt;
    const auto port = detail::parse_number(place.substr(colon + 1), 0, 65535);
    if (!port) return std::nullopt;
    return redirection{word == "ASK" ? redirection::kind::ask : redirection::kind::moved,
                       static_cast<std::uint16_t>(*slot),
                       detail::read_node_address(place.substr(0, colon), *port, from)};
}

}  // namespace distlock
