// A call on another thread. std::jthread is compiled anew for each lambda, which takes 20 ms: this is
// compiled once.
#pragma once

#include <thread>

#include <distlock/detail/function_ref.hpp>

/// Effects: calls `what` on a thread of its own, to the end.
inline void run_elsewhere(distlock::detail::function_ref<void()> what) {
    std::jthread([what] { what(); }).join();
}
