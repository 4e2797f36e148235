// The slots of a Cluster that another node took over since the last map: their master is a replica now.
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
class taken_over_slots {
  public:
    /// Effects: `fresh` is the last map. Returns: the slots whose masters by the map before it are not in it.
    std::vector<std::uint16_t> update(const slot_map& fresh) {
        std::vector<char> gone;
        for (const node_address& one : last_.nodes()) gone.push_back(!fresh.place(one));
        std::vector<std::uint16_t> which;
        slot_map copy = fresh;  // assigned whole or not at all
        for (std::uint16_t slot = 0; slot < slot_count; ++slot) {
            const auto owner = last_.owner(slot);
            if (!owner) continue;
            if (!fresh.owner(slot)) {
                copy.assign(slot, last_.nodes()[*owner]);  // the next map may say who took its place
            } else if (gone[*owner]) {
                which.push_back(slot);
            }
        }
        last_ = std::move(copy);
        return which;
    }

  private:
    slot_map last_;
};

}  // namespace distlock::detail
