// Whether a sanitizer watches this program, and what it leaves a test.
#pragma once

#if defined(__has_feature)
#define DISTLOCK_TEST_WATCHED_BY(sanitizer) __has_feature(sanitizer)
#else
#define DISTLOCK_TEST_WATCHED_BY(sanitizer) 0
#endif

// The thread sanitizer allows a child of a process with threads none of its own.
#if defined(__SANITIZE_THREAD__) || DISTLOCK_TEST_WATCHED_BY(thread_sanitizer)
inline constexpr bool threads_in_a_child = false;
#else
inline constexpr bool threads_in_a_child = true;
#endif

/// Whether a sanitizer makes everything slow.
#if defined(__SANITIZE_ADDRESS__) || DISTLOCK_TEST_WATCHED_BY(address_sanitizer)
inline constexpr bool instrumented = true;
#else
inline constexpr bool instrumented = !threads_in_a_child;
#endif
