// How much later than promised a call may return before a test calls it late.
#pragma once

#include <chrono>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DISTLOCK_TEST_INSTRUMENTED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define DISTLOCK_TEST_INSTRUMENTED 1
#endif
#endif

#ifdef DISTLOCK_TEST_INSTRUMENTED
inline constexpr std::chrono::milliseconds timing_tolerance{1500};
#else
inline constexpr std::chrono::milliseconds timing_tolerance{150};
#endif
