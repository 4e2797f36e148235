// What clock_shim.cpp reads and shifted_clock.hpp writes: a file that both map.
//
//   struct clock_page;    // a sequence counter, and for each kind of clock its control
#pragma once

#include <atomic>
#include <cstdint>

/// One kind of clock: what it says is the true time, the offset, and what the rate made of the
/// time since the anchor.
struct clock_control {
    std::atomic<std::int64_t> offset;  // ns
    std::atomic<std::int64_t> anchor;  // ns of CLOCK_MONOTONIC, the true one
    std::atomic<std::int64_t> rate;    // parts per million faster than the true one; negative: slower
    std::atomic<std::int64_t> frozen;  // not 0: the clock stands
    std::atomic<std::int64_t> stands;  // ns; where it stands
};

/// All zero: nothing is shifted. The sequence is odd while the writer is at it; who reads anything else than
/// one even number before and after reads again.
struct clock_page {
    std::atomic<std::uint32_t> sequence;
    clock_control wall;    // CLOCK_REALTIME and its coarse twin
    clock_control steady;  // CLOCK_MONOTONIC, its raw and coarse twins, and CLOCK_BOOTTIME
};
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

/// What a control says at one instant.
struct clock_setting {
    std::int64_t offset = 0;
    std::int64_t anchor = 0;
    std::int64_t rate = 0;
    bool frozen = false;
    std::int64_t stands = 0;

    /// Returns: what the clock shows whose true time is `real`; `monotonic` is the true
    /// CLOCK_MONOTONIC. All in ns.
    std::int64_t shown(std::int64_t real, std::int64_t monotonic) const {
        return frozen ? stands : real + offset + gained(monotonic);
    }
    /// Returns: by how much the rate alone has moved the clock.
    std::int64_t gained(std::int64_t monotonic) const {
        const std::int64_t since = monotonic - anchor;
        return since / 1'000'000 * rate + since % 1'000'000 * rate / 1'000'000;
    }
};
