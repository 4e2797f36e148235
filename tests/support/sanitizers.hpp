// Whether a sanitizer watches this program, and what it leaves a test.
#pragma once

#if defined(__has_feature)
#define DISTLOCK_TEST_WATCHED_BY(sanitizer) __has_feature(sanitizer)
#else
#define DISTLOCK_TEST_WATCHED_BY(sanitizer) 0
#endif

/// Whether a child of a process with threads may have some, too, and why it may not.
#if defined(__SANITIZE_THREAD__) || DISTLOCK_TEST_WATCHED_BY(thread_sanitizer)
inline constexpr bool threads_in_a_child = false;
#else
inline constexpr bool threads_in_a_child = true;
#endif
inline constexpr char child_has_no_threads[] = "the thread sanitizer allows a child no threads of its own";

/// Whether a sanitizer makes everything slow.
#if defined(__SANITIZE_ADDRESS__) || DISTLOCK_TEST_WATCHED_BY(address_sanitizer)
inline constexpr bool instrumented = true;
#else
inline constexpr bool instrumented = !threads_in_a_child;
#endif
