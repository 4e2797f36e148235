// Whom a Cluster's map is asked from last.
#include <vector>

#include <distlock/hiredis/map_query_order.hpp>
#include <distlock/net/node_address.hpp>

#include "support/catch.hpp"

namespace map_query_order_tests {

using distlock::node_address;
using nodes = std::vector<node_address>;

TEST_CASE("nodes that were asked in vain stand last, those that did not answer behind those that did") {
    const node_address a{"a", 1}, b{"b", 1}, c{"c", 1}, d{"d", 1};
    distlock::detail::map_query_order of;
    const auto order = [&](nodes all) {
        of.put_last(all);
        return all;
    };
    CHECK(order({a, b, c, d}) == nodes{a, b, c, d});
    of.add(a, false);
    CHECK(order({a, b, c, d}) == nodes{b, c, d, a});
    of.add(b, true);
    CHECK(order({a, b, c, d}) == nodes{c, d, b, a});
    of.add(c, true);
    CHECK(order({a, b, c, d}) == nodes{d, b, c, a});
    of.add(b, true);
    CHECK(order({a, b, c, d}) == nodes{d, c, b, a});
    of.add(a, true);
    CHECK(order({a, b, c, d}) == nodes{d, c, b, a});
    of.add(c, false);
    CHECK(order({a, b, c, d}) == nodes{d, b, a, c});
    CHECK(order({c, b}) == nodes{b, c});
    of.clear();
    CHECK(order({a, b, c, d}) == nodes{a, b, c, d});
}

}  // namespace map_query_order_tests
