// A piece of a test run in a child after fork().
#pragma once

#include <cerrno>
#include <sys/wait.h>
#include <unistd.h>

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
