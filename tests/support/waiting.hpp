// Waiting for a condition, never for a time; and measuring how long a call took.
#pragma once

#include <chrono>
#include <poll.h>

/// Returns: whether `condition` came true; it is asked again and again for `patience`, which only
/// a failure takes.
template <class Condition>
bool eventually(Condition condition, std::chrono::milliseconds patience = std::chrono::seconds{10}) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (!condition()) {
        if (std::chrono::steady_clock::now() >= deadline) return false;
        ::poll(nullptr, 0, 1);
    }
    return true;
}

/// Returns: how long `call` took, in whole milliseconds, rounded down.
template <class Call>
std::chrono::milliseconds time_of(Call call) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
}
