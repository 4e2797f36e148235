// What one Sentinel says of a master, read from its replies.
//
//   struct sentinel_answer { kind, master, epoch, id, others; };
//   bool same_vote(a, b);
//   command sentinel_question(n, name);                     // n of sentinel_questions, for one pipeline
//   sentinel_answer read_sentinel_answer(replies);          // to those
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/net/node_address.hpp>
#include <distlock/net/uri_syntax.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/server_error.hpp>

namespace distlock {

/// A Sentinel, as another one knows it.
struct known_sentinel {
    node_address at;
    std::string id;  ///< its own name for itself: one Sentinel has several addresses

    friend bool operator==(const known_sentinel&, const known_sentinel&) = default;
};

struct sentinel_answer {
    enum class kind {
        silent,        ///< it did not answer, or is not reached: see `cause`
        refused,       ///< it answered, but not that question: see `cause`
        unknown_name,  ///< it watches no master of that name
        names_master,
    };

    kind what = kind::silent;
    std::size_t place = 0;  ///< of the Sentinel among those that were asked
    errc cause = errc::no_reply;
    std::string detail = {};   ///< of silent and refused: why, fit for a message
    node_address master = {};  ///< of names_master
    std::uint64_t epoch = 0;   ///< of names_master: of the configuration it has seen last; 0: it does not say
    std::string id = {};       ///< of the Sentinel itself; empty: it does not say
    std::vector<known_sentinel> others = {};
};

/// Returns: whether one Sentinel, which is reached in two ways, says both. Two that name different masters
/// are not taken for one: a liar would silence another by its id.
inline bool same_vote(const sentinel_answer& a, const sentinel_answer& b) noexcept {
    constexpr auto names = sentinel_answer::kind::names_master;
    return a.what == names && b.what == names && !a.id.empty() && a.id == b.id && a.master == b.master;
}

/// In this order, in one pipeline. During a fail-over MASTER goes on naming the old address while its epoch
/// is the new one, and GET-MASTER-ADDR-BY-NAME names the new address; only the latter has no epoch.
inline constexpr std::size_t sentinel_questions = 4;

/// Preconditions: n < sentinel_questions. `name` outlives the command.
inline command sentinel_question(std::size_t n, std::string_view name) {
    switch (n) {
        case 0:
            return {"SENTINEL", "GET-MASTER-ADDR-BY-NAME", name};
        case 1:
            return {"SENTINEL", "MASTER", name};
        case 2:
            return {"SENTINEL", "SENTINELS", name};
        default:
            return {"SENTINEL", std::string_view("MYID")};
    }
}

namespace detail {

/// Returns: the address, when it can be one.
inline std::optional<node_address> read_address(std::string_view host, std::string_view port) {
    const auto number = parse_number(port, 1, 65535);
    const bool usable = !host.empty() && host.size() <= 253 && (is_host_name(host) || is_ipv6_address(host));
    if (!number || !usable) return std::nullopt;
    return node_address{std::string(host), static_cast<std::uint16_t>(*number)};
}

/// Returns: as value_of(); empty when there is none.
inline std::string_view field_of(const reply& fields, std::string_view name) noexcept {
    return value_of(fields, name).value_or(std::string_view());
}

}  // namespace detail

/// Its other answers are worth having, and not needed: a user may be allowed less.
inline sentinel_answer read_sentinel_answer(std::span<const reply, sentinel_questions> replies) {
    using kind = sentinel_answer::kind;
    const reply& address = replies[0];
    const reply& master = replies[1];
    if (!address.answered())
        return {.what = kind::silent, .cause = address.cause(), .detail = address.text()};
    if (!master.answered()) return {.what = kind::silent, .cause = master.cause(), .detail = master.text()};
    if (address.is(reply_kind::error))
        return {
            .what = kind::refused, .cause = classify_error(address.said()).cause, .detail = address.text()};

    sentinel_answer out{.what = kind::unknown_name};
    if (replies[3].is(reply_kind::string) && replies[3].text().size() <= 64) out.id = replies[3].text();
    if (address.is(reply_kind::nil)) return out;
    const auto& parts = address.elements();
    auto named = parts.size() == 2 ? detail::read_address(parts[0].text(), parts[1].text()) : std::nullopt;
    if (!named)
        return {.what = kind::refused, .cause = errc::protocol_error, .detail = "its answer makes no sense"};
    out.what = kind::names_master;
    out.master = *std::move(named);
    out.epoch = detail::parse_number(detail::field_of(master, "config-epoch"), 0,
                                     std::numeric_limits<std::uint64_t>::max())
                    .value_or(0);
    for (const reply& one : replies[2].elements()) {
        auto at = detail::read_address(detail::field_of(one, "ip"), detail::field_of(one, "port"));
        const auto id = detail::field_of(one, "runid");
        if (at && id.size() <= 64) out.others.push_back({*std::move(at), std::string(id)});
    }
    return out;
}

}  // namespace distlock
