// Whether threads that wait leave the processor to others.
#pragma once

#include <chrono>
#include <ctime>
#include <poll.h>

#include "support/sanitizers.hpp"

// Who waits computes less than this. A sanitizer does so by itself, too.
inline constexpr int idle_percent = instrumented ? 50 : 20;

/// Effects: waits half a second. Returns: for how much of it all threads of this process together computed.
inline int busy_percent() {
    using seconds = std::chrono::duration<double>;
    const auto begin = std::chrono::steady_clock::now();
    const auto computed = std::clock();
    ::poll(nullptr, 0, 500);
    const double busy = static_cast<double>(std::clock() - computed) / static_cast<double>(CLOCKS_PER_SEC);
    return static_cast<int>(100 * busy / seconds(std::chrono::steady_clock::now() - begin).count());
}
