// Threads of the library: no signal of the program is handled there.
#include <atomic>
#include <csignal>
#include <cstddef>
#include <memory>
#include <pthread.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#include <distlock/detail/signal_masked_thread.hpp>

#include "in_child.hpp"
#include "support/catch.hpp"
#include "support/no_threads.hpp"

namespace signal_masked_thread_tests {

namespace {

using distlock::detail::signal_masked_thread;

bool blocked(int signal) {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    return sigismember(&mask, signal) == 1;
}

}  // namespace

TEST_CASE("a signal-masked thread runs what it was given, which may be movable only") {
    int got = 0;
    signal_masked_thread([&, seven = std::make_unique<int>(7)] { got = *seven; }).join();
    CHECK(got == 7);
}

TEST_CASE("a signal-masked thread has the program's signals blocked, from its first instruction on") {
    bool all = false;
    signal_masked_thread([&] {
        all = blocked(SIGINT) && blocked(SIGTERM) && blocked(SIGHUP) && blocked(SIGUSR1) &&
              blocked(SIGALRM) && blocked(SIGCHLD) && blocked(SIGPIPE) && blocked(SIGRTMIN);
    }).join();
    CHECK(all);
}

TEST_CASE("a crash on a signal-masked thread is for the program's handler") {
    bool any = true;
    signal_masked_thread([&] {
        any = blocked(SIGSEGV) || blocked(SIGBUS) || blocked(SIGFPE) || blocked(SIGILL) || blocked(SIGTRAP) ||
              blocked(SIGABRT) || blocked(SIGSYS);
    }).join();
    CHECK_FALSE(any);
}

TEST_CASE("starting a signal-masked thread leaves the signals of the caller as they were") {
    sigset_t usr2;
    sigemptyset(&usr2);
    sigaddset(&usr2, SIGUSR2);
    sigset_t before;
    pthread_sigmask(SIG_BLOCK, &usr2, &before);
    signal_masked_thread([] {}).join();
    const bool still = blocked(SIGUSR2);
    const bool another = blocked(SIGUSR1);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    CHECK(still);
    CHECK_FALSE(another);
}

TEST_CASE("a signal of the program is handled by a thread of the program") {
    CHECK(in_child([] {
        static std::atomic<pthread_t> handled_on{};
        static std::atomic<bool> handled{false};
        std::signal(SIGUSR1, [](int) {
            handled_on = pthread_self();
            handled = true;
        });
        std::atomic<bool> end{false};
        std::thread masked = signal_masked_thread([&] {
            while (!end) std::this_thread::yield();
        });
        // While the one thread that may handle it does not, none does.
        sigset_t usr1;
        sigset_t before;
        sigemptyset(&usr1);
        sigaddset(&usr1, SIGUSR1);
        pthread_sigmask(SIG_BLOCK, &usr1, &before);
        ::kill(::getpid(), SIGUSR1);
        for (int i = 0; i < 1000; ++i) std::this_thread::yield();
        const bool pending = !handled;
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        while (!handled) std::this_thread::yield();
        end = true;
        masked.join();
        return pending && pthread_equal(handled_on, pthread_self()) != 0;
    }));
}

TEST_CASE("when there is no thread to be had, that is said, and signals are as they were") {
    CHECK(in_child([] {
        if (!let_no_thread_start()) return false;
        bool refused = false;
        try {
            signal_masked_thread([] {}).join();
        } catch (const std::system_error&) {
            refused = true;
        }
        return refused && !blocked(SIGUSR1) && !blocked(SIGINT);
    }));
}

}  // namespace signal_masked_thread_tests
