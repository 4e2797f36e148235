// One line of the table of faults: which fault, how often, how many overlaps, and how long until
// somebody had the lock again.
//
//   void show_row(...);   // prints one, and appends it to the file that DISTLOCK_LAB_TABLE names
//   class row;            // one that is counted together
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "support/lab_figures.hpp"

/// Effects: shows a line; "0.0" for a time or bound there is none of. `wrong`: how often two owned a lock at
/// once, or what the row's test says of it.
inline void show_row(const char* id, long injections, std::size_t wrong, double worst_ms, double bound_ms) {
    char line[200];
    std::snprintf(line, sizeof line, "ROW %s %ld %zu %.1f %.1f", id, injections, wrong, worst_ms, bound_ms);
    figure("%s", line);
    const char* const file = std::getenv("DISTLOCK_LAB_TABLE");
    if (file == nullptr) return;
    if (std::FILE* const table = std::fopen(file, "a")) {
        std::fprintf(table, "%s\n", line);
        std::fclose(table);
    }
}

class row {
  public:
    using span = std::chrono::nanoseconds;

    /// `id` is of tests/fault/faults.txt; `bound` of the longest wait, zero where nobody waits.
    explicit row(std::string id, span bound = {}) : id_(std::move(id)), bound_(bound) {}
    row(const row&) = delete;
    row& operator=(const row&) = delete;
    ~row() { show_row(id_.c_str(), injections_, overlaps_, in_ms(worst_), in_ms(bound_)); }

    void injected(int times = 1) { injections_ += times; }
    /// Effects: notes how long it took; the longest is shown.
    void took(span how_long) { worst_ = std::max(worst_, how_long); }
    void overlapped(std::size_t times) { overlaps_ += times; }

    int injections() const { return injections_; }
    span bound() const { return bound_; }

  private:
    std::string id_;
    span bound_;
    int injections_ = 0;
    std::size_t overlaps_ = 0;
    span worst_{};
};
