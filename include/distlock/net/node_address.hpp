// Where one server of several is reached, as another one names it.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace distlock {

struct node_address {
    std::string host;
    std::uint16_t port = 0;

    friend bool operator==(const node_address&, const node_address&) = default;
    friend auto operator<=>(const node_address&, const node_address&) = default;
};

}  // namespace distlock
