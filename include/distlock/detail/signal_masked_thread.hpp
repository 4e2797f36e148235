// A thread of the library: no signal of the program is handled on it but a crash.
#pragma once

#include <csignal>
#include <pthread.h>
#include <thread>
#include <utility>

namespace distlock::detail {

/// Effects: starts a thread that runs `f`, with every signal blocked but those of a crash: a program that waits for
/// its signals, or whose handlers expect its own threads, does not see this one. A program that is started from it
/// inherits that, unless it says otherwise.
/// Throws: std::system_error.
template <class F>
std::thread signal_masked_thread(F f) {
    struct blocked_signals {
        blocked_signals() {
            sigset_t all;
            sigfillset(&all);
            // A crash is for the program's handler, on whatever thread it happens.
            for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS})
                sigdelset(&all, fault);
            pthread_sigmask(SIG_SETMASK, &all, &before);
        }
        ~blocked_signals() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
        blocked_signals(const blocked_signals&) = delete;
        blocked_signals& operator=(const blocked_signals&) = delete;
        sigset_t before{};
    };
    const blocked_signals here;
    return std::thread(std::move(f));
}

}  // namespace distlock::detail
