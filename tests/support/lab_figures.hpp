// How much a proof does: little, so that it takes seconds; all of it for a figure, with
// DISTLOCK_LAB_COUNT=200 in the environment.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <poll.h>
#include <string>

/// Returns: what the environment asks for; 0: nothing.
inline int lab_count() {
    const char* const asked = std::getenv("DISTLOCK_LAB_COUNT");
    return asked != nullptr ? std::max(0, std::atoi(asked)) : 0;
}

/// Returns: how many times the thing is to be done to the locks: `few`, or as often as the environment says.
inline int injections(int few) { return lab_count() > 0 ? lab_count() : few; }

/// Returns: `little`; `all` when the environment asks for 200 injections or more.
template <class T>
T little_or_all(T little, T all) {
    return lab_count() >= 200 ? all : little;
}

inline double in_ms(std::chrono::duration<double, std::milli> d) { return d.count(); }

/// The least and the most of what was measured, in milliseconds.
class spread {
  public:
    void add(std::chrono::nanoseconds measured) {
        least_ = std::min(least_, measured);
        most_ = std::max(most_, measured);
    }
    double least() const { return in_ms(least_); }
    double most() const { return in_ms(most_); }

  private:
    std::chrono::nanoseconds least_ = std::chrono::nanoseconds::max();
    std::chrono::nanoseconds most_ = std::chrono::nanoseconds::min();
};

/// Effects: prints a line, as printf.
[[gnu::format(printf, 1, 2)]] inline void figure(const char* format, ...) {
    std::va_list values;
    va_start(values, format);
    std::vprintf(format, values);
    va_end(values);
    std::putchar('\n');
    std::fflush(stdout);
}

/// Returns: how many threads this process has. The system counts one that was joined a little longer.
inline auto thread_count() {
    namespace fs = std::filesystem;
    return std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator());
}

/// Returns: the same when it has not changed for 20 ms: without those that were joined before.
inline auto settled_thread_count() {
    auto count = thread_count();
    const auto began = std::chrono::steady_clock::now();
    auto since = began;
    while (std::chrono::steady_clock::now() - since < std::chrono::milliseconds{20} &&
           since - began < std::chrono::seconds{1}) {
        ::poll(nullptr, 0, 1);
        if (const auto now = thread_count(); now != count) {
            count = now;
            since = std::chrono::steady_clock::now();
        }
    }
    return count;
}

/// Returns: how often a thread of this process has slept and was woken.
inline long wake_ups_of(long thread) {
    std::ifstream status("/proc/self/task/" + std::to_string(thread) + "/status");
    for (std::string word; status >> word;) {
        long count = 0;
        if (word == "voluntary_ctxt_switches:" && status >> count) return count;
    }
    return -1;
}
