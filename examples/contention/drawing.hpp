// Draws the history of a contention run: a timeline with one row per process, and a table of the turns. Pure.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "history.hpp"
#include "text.hpp"

namespace contention {

inline constexpr std::size_t label_width = 13;

/// A stretch of time spread over the columns of the terminal.
struct window {
    nanoseconds begin;
    nanoseconds length;
    std::size_t columns;

    /// Where an instant lies, in columns.
    double column(nanoseconds instant) const {
        return static_cast<double>((instant - begin).count()) / static_cast<double>(length.count()) *
               static_cast<double>(columns);
    }
};

/// Returns: a window in the middle of the run, wide enough for many turns, narrow enough that a usual turn is
/// a block of two columns or more.
inline window middle_of(const run& r, const std::vector<owned_turn>& ordered, const style& s) {
    const std::size_t columns = s.width - label_width - 1;
    std::vector<nanoseconds> lengths;
    for (const owned_turn& t : ordered) lengths.push_back(t.when.left - t.when.entered);
    nanoseconds usual = std::chrono::milliseconds{1};
    if (!lengths.empty()) {
        const auto median = lengths.begin() + static_cast<std::ptrdiff_t>(lengths.size() / 2);
        std::nth_element(lengths.begin(), median, lengths.end());
        usual = *median;
    }
    nanoseconds length = std::chrono::milliseconds{100};
    while (length > std::chrono::milliseconds{20} &&
           usual * static_cast<std::ptrdiff_t>(columns) < length * 2) {
        length -= std::chrono::milliseconds{10};
    }
    length = std::min(length, r.end - r.begin);
    return {r.begin + (r.end - r.begin - length) / 2, length, columns};
}

/// What a column of a row shows of one process: from where to where it was in a turn, in eighths.
struct cell {
    int from = 8;
    int to = 0;
    bool empty() const { return to <= from; }
};

/// Returns: the row of one process. A turn is rounded inwards, so that two turns never seem to touch when
/// they do not, but none vanishes.
inline std::vector<cell> cells_of(const history& turns, const window& w) {
    std::vector<cell> row(w.columns);
    const int last = static_cast<int>(w.columns) * 8;
    for (const turn& t : turns) {
        if (t.left < w.begin || t.entered > w.begin + w.length) continue;
        const int from = std::clamp(static_cast<int>(std::ceil(w.column(t.entered) * 8)), 0, last - 1);
        const int to = std::clamp(static_cast<int>(std::floor(w.column(t.left) * 8)), from + 1, last);
        for (int column = from / 8; column * 8 < to; ++column) {
            cell& c = row[static_cast<std::size_t>(column)];
            c.from = std::min(c.from, std::max(from - column * 8, 0));
            c.to = std::max(c.to, std::min(to - column * 8, 8));
        }
    }
    return row;
}

/// Returns: a cell as one character. Blocks that begin inside a column are drawn in reverse: the font only
/// has blocks that end there.
inline std::string drawn(const cell& c, std::size_t process, const style& s) {
    if (!s.rich) return c.to - c.from > 4 ? "#" : " ";
    static constexpr std::string_view eighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
    if (c.empty()) return " ";
    if (c.to == 8 && c.from > 0) {
        return s.paint("7;" + std::string(s.colour(process)), eighths[static_cast<std::size_t>(c.from)]);
    }
    return s.of_process(process, eighths[static_cast<std::size_t>(c.to)]);
}

/// Returns: for each column the most processes that were in a turn at the same instant, and one of them.
struct crowd {
    std::size_t most = 0;
    std::size_t process = 0;
};
inline std::vector<crowd> crowds(const std::vector<owned_turn>& ordered, const window& w) {
    std::vector<crowd> columns(w.columns);
    std::vector<owned_turn> inside;
    for (const owned_turn& t : ordered) {
        if (t.when.left >= w.begin && t.when.entered <= w.begin + w.length) inside.push_back(t);
    }
    for (std::size_t column = 0; column < w.columns; ++column) {
        const auto edge = [&](std::size_t c) {
            return w.begin +
                   w.length * static_cast<std::ptrdiff_t>(c) / static_cast<std::ptrdiff_t>(w.columns);
        };
        // The crowd is largest at the column's begin or where a turn begins.
        std::vector<nanoseconds> instants{edge(column)};
        for (const owned_turn& t : inside) {
            if (t.when.entered > edge(column) && t.when.entered < edge(column + 1))
                instants.push_back(t.when.entered);
        }
        nanoseconds longest{0};
        for (const owned_turn& t : inside) {
            const nanoseconds share =
                std::min(t.when.left, edge(column + 1)) - std::max(t.when.entered, edge(column));
            if (share > longest) {
                longest = share;
                columns[column].process = t.process;
            }
        }
        for (const nanoseconds instant : instants) {
            const auto there = std::count_if(inside.begin(), inside.end(), [&](const owned_turn& t) {
                return t.when.entered <= instant && instant < t.when.left;
            });
            columns[column].most = std::max(columns[column].most, static_cast<std::size_t>(there));
        }
    }
    return columns;
}

/// Returns: a scale in milliseconds under a timeline, with a mark every ten columns or so.
inline std::string ruler(const window& w, const style& s) {
    const double ms = static_cast<double>(w.length.count()) / 1e6;
    double step = 1;
    for (const double candidate : {1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0}) {
        step = candidate;
        if (ms / step * 9 <= static_cast<double>(w.columns)) break;
    }
    std::string marks;
    std::string line = repeated(s.rich ? "─" : "-", w.columns);
    std::vector<bool> tick(w.columns + 1);
    for (int i = 0; step * i <= ms; ++i) {
        const auto column = static_cast<std::size_t>(step * i / ms * static_cast<double>(w.columns));
        std::string mark = std::to_string(static_cast<int>(step * i));
        if (i == 0) mark += " ms";
        if (column + mark.size() > w.columns) break;
        tick[column] = true;
        marks = padded_right(marks, column) + mark;
    }
    line.clear();
    for (std::size_t column = 0; column < w.columns; ++column) {
        line += s.rich ? (tick[column] ? "┬" : "─") : (tick[column] ? "+" : "-");
    }
    const std::string indent(label_width, ' ');
    return indent + s.dim(line) + "\n" + indent + s.dim(marks) + "\n";
}

/// Returns: one row per process, time across, and under them a row that says how many were in a turn at once.
inline std::string timeline(const run& r, const std::vector<owned_turn>& ordered, const window& w,
                            const style& s) {
    std::string text;
    for (std::size_t p = 0; p < r.processes.size(); ++p) {
        const std::string label = padded_right("  process " + std::to_string(p + 1), label_width);
        text += s.of_process(p, label);
        for (const cell& c : cells_of(r.processes[p], w)) text += drawn(c, p, s);
        text += '\n';
    }
    text += s.dim(padded_right("  at once", label_width));
    for (const crowd& c : crowds(ordered, w)) {
        if (c.most == 0) {
            text += ' ';
        } else if (c.most == 1) {
            text += s.rich ? s.of_process(c.process, "▄") : "1";
        } else {
            const std::string digit(1, c.most < 10 ? static_cast<char>('0' + c.most) : '+');
            text += s.paint("1;38;5;231;48;5;160", digit);
        }
    }
    return text + '\n' + ruler(w, s);
}

/// Returns: a bar of `share` (0 to 1) of `width` columns.
inline std::string bar(double share, std::size_t width, const style& s) {
    const auto eighths = static_cast<std::size_t>(std::lround(share * static_cast<double>(width) * 8));
    if (!s.rich) return repeated("#", (eighths + 4) / 8);
    static constexpr std::string_view ends[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    return repeated("█", eighths / 8) + std::string(ends[eighths % 8]);
}

/// Returns: the turns of each process: how many, how long they waited, and a bar to compare them by.
inline std::string table(const run& r, const style& s) {
    const double seconds = std::chrono::duration<double>(r.end - r.begin).count();
    const auto line = [](std::string label, std::string turns, std::string rate, std::string median,
                         std::string p99) {
        return padded_right(std::move(label), label_width) + padded_left(std::move(turns), 7) +
               padded_left(std::move(rate), 9) + padded_left(std::move(median), 10) +
               padded_left(std::move(p99), 10);
    };
    const auto row = [&](std::string label, const history& turns) {
        const waits waited = waits_of(turns);
        return line(std::move(label), grouped(static_cast<long long>(turns.size())),
                    grouped(std::llround(static_cast<double>(turns.size()) / seconds)), spoken(waited.median),
                    spoken(waited.p99));
    };
    const std::size_t used = label_width + 7 + 9 + 10 + 10 + 3;
    const std::size_t bar_width = s.width > used + 16 ? std::min<std::size_t>(s.width - used - 6, 40) : 10;
    std::size_t most = 1;
    history all;
    for (const history& turns : r.processes) {
        most = std::max(most, turns.size());
        all.insert(all.end(), turns.begin(), turns.end());
    }

    std::string text =
        s.dim(line("", "turns", "a second", "wait p50", "wait p99") + "   share of the turns") + "\n";
    for (std::size_t p = 0; p < r.processes.size(); ++p) {
        const auto turns = static_cast<double>(r.processes[p].size());
        const double share = all.empty() ? 0 : turns / static_cast<double>(all.size());
        const std::string cells = row("  process " + std::to_string(p + 1), r.processes[p]);
        text += s.of_process(p, cells.substr(0, label_width)) + cells.substr(label_width) + "   ";
        text += s.of_process(p, bar(turns / static_cast<double>(most), bar_width, s)) + " " + percent(share) +
                "\n";
    }
    return text + s.bold(row("  all", all)) + "\n";
}

}  // namespace contention
