// A piece of a test run in a child after fork().
#pragma once

#include <cerrno>
#include <sys/wait.h>
#include <unistd.h>

// The thread sanitizer allows a child of a process with threads none of its own.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool threads_in_a_child = false;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool threads_in_a_child = false;
#else
inline constexpr bool threads_in_a_child = true;
#endif
#else
inline constexpr bool threads_in_a_child = true;
#endif

/// Effects: runs `piece` in a child, which leaves without running anything else.
/// Returns: whether it returned true; false when it died or took longer than twenty seconds.
template <class Piece>
bool in_child(Piece piece) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::alarm(20);
        ::_exit(piece() ? 0 : 1);
    }
    int status = -1;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
