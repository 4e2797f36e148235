// Pauses of different processes that do not end together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <distlock/base/clock.hpp>
#include <distlock/base/token.hpp>

namespace distlock::engine {

/// `part`: of a token's digits, 0 to 3: pauses that begin with different parts do not end together either.
inline std::uint64_t seed_of(const token& t, std::size_t part = 0) noexcept {
    std::uint64_t seed = 0;
    std::memcpy(&seed, t.view().data() + part * sizeof seed, sizeof seed);
    return seed;
}

/// xorshift64 (Marsaglia, "Xorshift RNGs", 2003): pauses need spreading, not secrecy.
class jitter {
  public:
    explicit jitter(std::uint64_t seed) noexcept : state_(seed | 1U) {}

    /// Preconditions: `most` is not negative.
    /// Returns: a duration from zero to `most`, any of them equally likely.
    clock::duration up_to(clock::duration most) noexcept {
        state_ ^= state_ << 13U;
        state_ ^= state_ >> 7U;
        state_ ^= state_ << 17U;
        return clock::duration(
            static_cast<clock::rep>(state_ % (static_cast<std::uint64_t>(most.count()) + 1)));
    }

  private:
    std::uint64_t state_;
};

}  // namespace distlock::engine
