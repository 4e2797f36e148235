// What all benchmarks share: one core, time, medians, the tables of figures and bars, and
// the frame of a program.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <poll.h>
#include <sched.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace bench {

using namespace std::chrono_literals;
using nanoseconds = std::chrono::nanoseconds;

/// An instant of CLOCK_MONOTONIC, which all processes share.
inline nanoseconds now() noexcept { return std::chrono::steady_clock::now().time_since_epoch(); }

inline double in_seconds(nanoseconds length) { return std::chrono::duration<double>(length).count(); }
inline double in_us(nanoseconds length) { return static_cast<double>(length.count()) / 1e3; }

/// Effects: lets time pass: work that needs no processor, or somebody else's turn on the core.
inline void pause_until(nanoseconds instant) noexcept {
    for (auto left = instant - now(); left.count() > 0; left = instant - now()) {
        const auto whole = std::chrono::duration_cast<std::chrono::seconds>(left);
        const timespec length{whole.count(), static_cast<long>((left - whole).count())};
        ::ppoll(nullptr, 0, &length, nullptr);
    }
}
inline void pause(nanoseconds length) noexcept { pause_until(now() + length); }

/// Effects: puts this process and all it starts on one core: across cores, wake-ups are measured instead of
/// work. Their pauses last as long as they say, not up to 50 us longer.
inline void pin_to_one_core() {
    ::prctl(PR_SET_TIMERSLACK, 1UL);
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    for (int cpu = CPU_SETSIZE - 1; cpu >= 0; --cpu) {
        if (!CPU_ISSET(static_cast<std::size_t>(cpu), &allowed)) continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(static_cast<std::size_t>(cpu), &one);
        ::sched_setaffinity(0, sizeof one, &one);
        return;
    }
}

/// Returns: the value below which `share` of the values lie; 0 when there are none.
template <class T>
T quantile(std::vector<T> values, double share) {
    if (values.empty()) return T{};
    const auto at = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1) + 0.5);
    std::nth_element(values.begin(), values.begin() + at, values.end());
    return values[static_cast<std::size_t>(at)];
}

/// What a figure was in the rounds of a run.
class figure {
  public:
    void add(double value) { values_.push_back(value); }
    double at(double share) const { return quantile(values_, share); }
    double median() const { return at(0.5); }
    double least() const { return at(0); }
    double most() const { return at(1); }

  private:
    std::vector<double> values_;
};

/// Returns: `value` with about three digits that say something.
inline std::string shown(double value) {
    char text[64];
    const int digits = value >= 100               ? 0
                       : value >= 10              ? 1
                       : value >= 1 || value == 0 ? 2
                       : value >= 0.0995          ? 3
                                                  : 4;
    std::snprintf(text, sizeof text, "%.*f", digits, value);
    return text;
}

inline std::string with_range(const figure& f) {
    return shown(f.median()) + " (" + shown(f.least()) + " - " + shown(f.most()) + ")";
}

/// Returns: a length of time with its unit.
inline std::string shown_time(nanoseconds length) {
    return length < 1ms ? shown(in_us(length)) + " us" : shown(in_us(length) / 1e3) + " ms";
}

/// Prints one line of a Markdown table.
inline void print_row(const std::vector<std::string>& cells) {
    std::string line = "|";
    for (const std::string& cell : cells) line += " " + cell + " |";
    std::puts(line.c_str());
    std::fflush(stdout);
}

/// Prints the head of a Markdown table below its title.
inline void print_head(const std::string& title, const std::vector<std::string>& columns) {
    std::printf("\n### %s\n\n", title.c_str());
    print_row(columns);
    print_row(std::vector<std::string>(columns.size(), "---"));
}

/// The bars the figures are held against; printed as one table at the end of a program.
class bars {
  public:
    void at_least(const std::string& what, const figure& f, double bar) {
        add(what, with_range(f), ">= " + shown(bar), f.median() >= bar);
    }
    void at_most(const std::string& what, const figure& f, double bar) {
        add(what, with_range(f), "<= " + shown(bar), f.median() <= bar);
    }
    /// For a run that was too short to tell.
    void not_judged(const std::string& what, const figure& f, const std::string& why) {
        lines_.push_back({what, with_range(f), "-", why});
    }
    void print() const {
        print_head("Bars", {"what", "median (range)", "bar", ""});
        for (const auto& line : lines_) print_row(line);
    }

  private:
    void add(const std::string& what, const std::string& found, const std::string& bar, bool met) {
        lines_.push_back({what, found, bar, met ? "met" : "**not met**"});
    }
    std::vector<std::vector<std::string>> lines_;
};

/// How long a program may take, and where its charts go.
class settings {
  public:
    settings(int argc, char** argv) {
        for (int i = 1; i < argc; ++i) {
            if (std::string_view(argv[i]) == "quick") {
                quick_ = true;
            } else {
                folder_ = argv[i];
            }
        }
        std::filesystem::create_directories(folder_);
    }
    nanoseconds window(nanoseconds normal) const { return quick_ ? normal / 2 : normal; }
    int count(int normal) const { return quick_ ? std::max(1, normal / 5) : normal; }
    /// Quick runs have one.
    int rounds(int normal) const { return quick_ ? 1 : normal; }
    std::string chart(const std::string& name) const { return folder_ + "/" + name + ".svg"; }

  private:
    bool quick_ = false;
    std::string folder_ = ".";
};

/// Effects: runs the body of a program, for `limit` seconds at most.
template <class Body>
int run(const char* name, int argc, char** argv, unsigned limit, Body body) {
    try {
        ::alarm(limit);  // children and servers end with this process
        pin_to_one_core();
        body(settings(argc, argv));
        return 0;
    } catch (const std::exception& failed) {
        std::fflush(stdout);
        std::fprintf(stderr, "%s: %s\n", name, failed.what());
        return 1;
    }
}

}  // namespace bench
