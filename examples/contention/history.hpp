// Who held the lock when, as the processes of the contention demo wrote it down, and what follows from it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace contention {

using std::chrono::nanoseconds;

/// One turn of one process; instants on distlock::clock, which all processes of a machine share.
struct turn {
    nanoseconds asked;    ///< wanted the lock
    nanoseconds entered;  ///< had it
    nanoseconds left;     ///< was done, just before giving it back
};

/// The turns of one process, in order.
using history = std::vector<turn>;

/// One run of the demo, with or without the lock.
struct run {
    std::vector<history> processes;
    long long counter = 0;  ///< what the counter file said in the end
    nanoseconds begin{};
    nanoseconds end{};

    long long increments() const {
        long long sum = 0;
        for (const history& turns : processes) sum += static_cast<long long>(turns.size());
        return sum;
    }
};

inline void save(const history& turns, const std::string& file) {
    std::ofstream out{file};
    for (const turn& t : turns)
        out << t.asked.count() << ' ' << t.entered.count() << ' ' << t.left.count() << '\n';
}

/// Returns: nothing if the file is not there or does not end where a history ends.
inline std::optional<history> load(const std::string& file) {
    std::ifstream in{file};
    if (!in) return std::nullopt;
    history turns;
    for (nanoseconds::rep asked, entered, left; in >> asked >> entered >> left;) {
        turns.push_back({nanoseconds{asked}, nanoseconds{entered}, nanoseconds{left}});
    }
    if (!in.eof()) return std::nullopt;
    return turns;
}

/// A turn and whose it was.
struct owned_turn {
    std::size_t process;
    turn when;
};

/// Returns: the turns of all processes in the order in which they began.
inline std::vector<owned_turn> in_order(const run& r) {
    std::vector<owned_turn> all;
    for (std::size_t p = 0; p < r.processes.size(); ++p) {
        for (const turn& t : r.processes[p]) all.push_back({p, t});
    }
    std::sort(all.begin(), all.end(),
              [](const owned_turn& a, const owned_turn& b) { return a.when.entered < b.when.entered; });
    return all;
}

/// Returns: how many turns began before an earlier one had ended. With a lock that works: none.
inline std::size_t overlaps(const std::vector<owned_turn>& ordered) {
    std::size_t count = 0;
    nanoseconds busy_until = nanoseconds::min();
    for (const owned_turn& t : ordered) {
        if (t.when.entered < busy_until) ++count;
        busy_until = std::max(busy_until, t.when.left);
    }
    return count;
}

/// Returns: the most turns that one process had before another had one.
inline std::size_t longest_streak(const std::vector<owned_turn>& ordered) {
    std::size_t longest = 0;
    std::size_t streak = 0;
    for (std::size_t i = 0; i < ordered.size(); ++i) {
        streak = i > 0 && ordered[i].process == ordered[i - 1].process ? streak + 1 : 1;
        longest = std::max(longest, streak);
    }
    return longest;
}

/// How long a process waited for its turns.
struct waits {
    nanoseconds median{};
    nanoseconds p99{};
    nanoseconds longest{};
};

inline waits waits_of(const history& turns) {
    if (turns.empty()) return {};
    std::vector<nanoseconds> sorted;
    for (const turn& t : turns) sorted.push_back(t.entered - t.asked);
    std::sort(sorted.begin(), sorted.end());
    const auto at = [&](std::size_t percent) { return sorted[(sorted.size() - 1) * percent / 100]; };
    return {at(50), at(99), sorted.back()};
}

/// Preconditions: no two turns overlap.
/// Returns: the share of the run during which somebody was in a turn, from 0 to 1.
inline double busy_share(const run& r) {
    nanoseconds busy{0};
    for (const history& turns : r.processes) {
        for (const turn& t : turns) busy += t.left - t.entered;
    }
    const auto length = r.end - r.begin;
    return length > nanoseconds{0} ? static_cast<double>(busy.count()) / static_cast<double>(length.count())
                                   : 0.0;
}

}  // namespace contention
