// Which node of a Cluster has which slot, as far as is known.
//
//   class slot_map {
//     static std::optional<slot_map> read(const reply& answer, const node_address& asked);
//     std::span<const node_address> nodes() const noexcept;
//     std::optional<std::size_t> owner(slot) const noexcept;   // its place in nodes()
//     std::optional<std::size_t> place(const node_address&) const noexcept;   // in nodes()
//     void assign(slot, const node_address&);
//   };
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <distlock/net/hash_slot.hpp>
#include <distlock/net/node_address.hpp>
#include <distlock/net/redirection.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock {

/// A value. Masters only: a replica redirects what a lock needs.
class slot_map {
  public:
    /// What nobody knows yet.
    slot_map() : owners_(slot_count, unknown) {}

    /// Returns: what the answer to CLUSTER SLOTS of the node `asked` says. A range that makes no sense, or
    /// whose master has no known address, is left out: a node redirects what is sent there. Of two ranges
    /// that overlap the later one counts. None when nothing is left: the answer is an error, or of a node
    /// that knows no other yet.
    static std::optional<slot_map> read(const reply& answer, const node_address& asked) {
        slot_map made;
        for (const reply& range : answer.elements()) {
            const auto& parts = range.elements();
            if (parts.size() < 3 || !is_slot(parts[0]) || !is_slot(parts[1]) ||
                parts[0].number() > parts[1].number())
                continue;
            const auto master = read_master(parts[2].elements(), asked);
            if (!master) continue;
            const auto place = made.place_of(*master);
            std::fill(made.owners_.begin() + parts[0].number(), made.owners_.begin() + parts[1].number() + 1,
                      place);
        }
        if (made.nodes_.empty()) return std::nullopt;
        return made;
    }

    std::span<const node_address> nodes() const noexcept { return nodes_; }

    /// Preconditions: slot < slot_count.
    /// Returns: the place in nodes() of the one that has the slot; none: unknown.
    std::optional<std::size_t> owner(std::uint16_t slot) const noexcept {
        const auto place = owners_[slot];
        return place == unknown ? std::nullopt : std::optional<std::size_t>(place);
    }

    /// Returns: where that one is in nodes(); none: it is not.
    std::optional<std::size_t> place(const node_address& of) const noexcept {
        const auto at = place_by_address(of);
        if (at == by_address_.end() || nodes_[*at] != of) return std::nullopt;
        return *at;
    }

    /// Preconditions: slot < slot_count.
    /// Effects: that node has the slot. A node that is new comes last; where there are as many as slots,
    /// nobody knows who has it.
    void assign(std::uint16_t slot, const node_address& to) { owners_[slot] = place_of(to); }

  private:
    static constexpr std::uint16_t unknown = std::numeric_limits<std::uint16_t>::max();

    static bool is_slot(const reply& r) noexcept {
        return r.is(reply_kind::integer) && r.number() >= 0 && r.number() < slot_count;
    }

    // [host, port, id, ["ip", "10.0.0.1", ...]]: the host is null, or empty, for the host that was asked.
    // Servers that are to be called by names and have none say "?", and their address behind it.
    static std::optional<node_address> read_master(const std::vector<reply>& parts,
                                                   const node_address& asked) {
        if (parts.size() < 2 || !parts[1].is(reply_kind::integer) || parts[1].number() <= 0)
            return std::nullopt;
        if (!parts[0].is(reply_kind::string) && !parts[0].is(reply_kind::nil)) return std::nullopt;
        std::string_view host = parts[0].text();
        if (host == "?" && parts.size() > 3) host = ip_in(parts[3]);
        return detail::read_node_address(host, static_cast<std::uint64_t>(parts[1].number()), asked);
    }
    static std::string_view ip_in(const reply& metadata) noexcept {
        const auto ip = detail::value_of(metadata, "ip");
        return ip && !ip->empty() ? *ip : "?";
    }

    std::vector<std::uint16_t>::const_iterator place_by_address(const node_address& node) const noexcept {
        return std::lower_bound(
            by_address_.begin(), by_address_.end(), node,
            [this](std::uint16_t place, const node_address& of) { return nodes_[place] < of; });
    }
    std::uint16_t place_of(const node_address& node) {
        const auto at = place_by_address(node);
        if (at != by_address_.end() && nodes_[*at] == node) return *at;
        if (nodes_.size() == slot_count) return unknown;
        const auto place = static_cast<std::uint16_t>(nodes_.size());
        nodes_.push_back(node);
        try {
            by_address_.insert(at, place);
        } catch (...) {
            nodes_.pop_back();
            throw;
        }
        return place;
    }

    std::vector<node_address> nodes_;
    std::vector<std::uint16_t> by_address_;  // all places in nodes_: each range of an answer names its node
    std::vector<std::uint16_t> owners_;
};

}  // namespace distlock
