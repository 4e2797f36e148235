// How much later than promised a call may return before a test calls it late, the lease that is still
// renewed in time then; and whether a sanitizer makes everything slow.
#pragma once

#include <algorithm>
#include <chrono>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DISTLOCK_TEST_INSTRUMENTED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define DISTLOCK_TEST_INSTRUMENTED 1
#endif
#endif

#ifdef DISTLOCK_TEST_INSTRUMENTED
inline constexpr bool instrumented = true;
#else
inline constexpr bool instrumented = false;
#endif

inline constexpr std::chrono::milliseconds timing_tolerance{instrumented ? 1500 : 150};

/// The shortest lease that tests expect to be renewed: two thirds of it are left when a renewal is due.
inline constexpr std::chrono::milliseconds brief_lease =
    std::max<std::chrono::milliseconds>(std::chrono::milliseconds{1500}, 2 * timing_tolerance);
