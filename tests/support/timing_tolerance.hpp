// How much later than promised a call may return before a test calls it late, and the lease that is still
// renewed in time then.
#pragma once

#include <algorithm>
#include <chrono>

#include "support/sanitizers.hpp"

inline constexpr std::chrono::milliseconds timing_tolerance{instrumented ? 1500 : 150};

/// The shortest lease that tests expect to be renewed: two thirds of it are left when a renewal is due.
inline constexpr std::chrono::milliseconds brief_lease =
    std::max<std::chrono::milliseconds>(std::chrono::milliseconds{1500}, 2 * timing_tolerance);
