// In which order the nodes of a Cluster are asked for the map: last those that had none, or no new one.
//
//   class map_query_order {
//     void add(const node_address&, bool answered);
//     void clear() noexcept;
//     void put_last(std::vector<node_address>& candidates) const;
//   };
#pragma once

#include <algorithm>
#include <vector>

#include <distlock/net/node_address.hpp>

namespace distlock::detail {

/// Not thread-safe.
class map_query_order {
  public:
    /// Effects: puts `one` last among the nodes that answered, or among those that did not, which are asked
    /// after all others since they cost time.
    void add(const node_address& one, bool answered) {
        std::erase(answered_, one);
        std::erase(unanswered_, one);
        (answered ? answered_ : unanswered_).push_back(one);
    }
    void clear() noexcept {
        answered_.clear();
        unanswered_.clear();
    }
    /// Effects: moves the nodes that were added to the end of `candidates`, in that order.
    void put_last(std::vector<node_address>& candidates) const {
        for (const auto* const kind : {&answered_, &unanswered_}) {
            for (const node_address& one : *kind) {
                const auto place = std::find(candidates.begin(), candidates.end(), one);
                if (place != candidates.end()) std::rotate(place, place + 1, candidates.end());
            }
        }
    }

  private:
    std::vector<node_address> answered_;
    std::vector<node_address> unanswered_;
};

}  // namespace distlock::detail
