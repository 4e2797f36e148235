// Which slots of a Cluster have another master than by the last map, since theirs is none any more.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <distlock/net/hash_slot.hpp>
#include <distlock/net/node_address.hpp>
#include <distlock/net/slot_map.hpp>

namespace distlock::detail {

/// Not thread-safe. Redirections since the last map do not count. A slot that moves to another master takes
/// its locks with it.
class learned_map {
  public:
    /// Effects: `fresh` is the last map. Returns: the slots whose masters by the one before are in it no
    /// more.
    std::vector<std::uint16_t> changes_to(const slot_map& fresh) {
        std::vector<char> gone;
        for (const node_address& one : learned_.nodes()) gone.push_back(!fresh.place(one));
        std::vector<std::uint16_t> which;
        slot_map copy = fresh;  // assigned whole or not at all
        for (std::uint16_t slot = 0; slot < slot_count; ++slot) {
            const auto owner = learned_.owner(slot);
            if (!owner) continue;
            if (!fresh.owner(slot)) {
                copy.assign(slot, learned_.nodes()[*owner]);  // the next map may say who took its place
            } else if (gone[*owner]) {
                which.push_back(slot);
            }
        }
        learned_ = std::move(copy);
        return which;
    }

  private:
    slot_map learned_;
};

}  // namespace distlock::detail
