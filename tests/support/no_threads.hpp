// A process that gets no more threads.
#pragma once

#include <cstddef>
#include <pthread.h>

/// Effects: no thread starts any more in this process, which should be a child of the test's.
/// Returns: whether that is so.
inline bool let_no_thread_start() {
    pthread_attr_t endless;
    pthread_attr_init(&endless);
    // No address space has room for such a stack: refused to root, too.
    pthread_attr_setstacksize(&endless, std::size_t{1} << 48U);
    return pthread_setattr_default_np(&endless) == 0;
}
