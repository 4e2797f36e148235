// Which of a Cluster's 16384 slots a key is in, and so which node has it.
//
//   constexpr std::uint16_t hash_slot(std::string_view key);
//   std::optional<std::uint16_t> hash_slot(const command&);   // none: any node will do
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <distlock/base/key.hpp>
#include <distlock/wire/command.hpp>

namespace distlock {

inline constexpr std::uint16_t slot_count = 16384;

namespace detail {

// CRC-16/XMODEM: polynomial 0x1021, no reflection, nothing before and nothing after.
constexpr std::array<std::uint16_t, 256> crc16_table = [] {
    std::array<std::uint16_t, 256> table{};
    for (unsigned byte = 0; byte < table.size(); ++byte) {
        unsigned crc = byte << 8U;
        for (int bit = 0; bit < 8; ++bit) crc = (crc & 0x8000U) != 0 ? crc << 1U ^ 0x1021U : crc << 1U;
        table[byte] = static_cast<std::uint16_t>(crc);
    }
    return table;
}();

constexpr std::uint16_t crc16(std::string_view text) noexcept {
    unsigned crc = 0;
    for (const char c : text)
        crc = (crc << 8U ^ crc16_table[(crc >> 8U ^ static_cast<unsigned char>(c)) & 0xffU]) & 0xffffU;
    return static_cast<std::uint16_t>(crc);
}

}  // namespace detail

/// Returns: the slot of `key` (Redis Cluster specification, "Key distribution model"): of its hash
/// tag, where it has one.
constexpr std::uint16_t hash_slot(std::string_view key) noexcept {
    return detail::crc16(hash_tag(key)) % slot_count;
}

/// Returns: the slot of the key that `cmd` is routed by; of its first argument, or of a script's first key,
/// where it does not say one. That may be no key: any node executes PING or CLUSTER, and says for the others
/// where they belong. None for a command without arguments, or a script without keys.
constexpr std::optional<std::uint16_t> hash_slot(const command& cmd) noexcept {
    if (!cmd.routing_key().empty()) return hash_slot(cmd.routing_key());
    const auto argv = cmd.argv();
    const bool evaluates = argv.size() > 2 && (argv[0] == "EVAL" || argv[0] == "EVALSHA");
    const std::size_t key = evaluates ? 3 : 1;
    if (argv.size() <= key || (evaluates && argv[2] == "0")) return std::nullopt;
    return hash_slot(argv[key]);
}

}  // namespace distlock
