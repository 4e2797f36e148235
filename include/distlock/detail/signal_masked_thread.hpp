// A thread of the library: no signal of the program is handled on it but a crash.
#pragma once

#include <thread>
#include <utility>

#include <distlock/detail/system.hpp>

namespace distlock::detail {

/// Effects: starts a thread that runs `f`, with every signal blocked but those of a crash: a program that
/// waits for its signals, or whose handlers expect its own threads, does not see this one. A program that is
/// started from it inherits that, unless it says otherwise.
/// Throws: std::system_error.
template <class F>
std::thread signal_masked_thread(F f) {
    const blocked_signals here;
    return std::thread(std::move(f));
}

}  // namespace distlock::detail
