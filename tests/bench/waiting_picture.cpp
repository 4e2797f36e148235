// Draws who waited for a lock and who held it: four processes over distlock, and over polling every 100 ms.
//
//   waiting_picture file.svg
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include <distlock/testing.hpp>

#include "bench.hpp"
#include "processes.hpp"
#include "rivals.hpp"
#include "svg.hpp"

namespace {

using namespace bench;
using distlock::testing::redis_server;

constexpr int processes = 4;
constexpr nanoseconds shown_window = 600ms;

struct turn {
    nanoseconds asked;
    nanoseconds got;  // 0: not yet
    nanoseconds released;
};

struct record {
    std::size_t count;
    std::array<turn, 4096> turns;
};

struct board {
    std::atomic<int> ready;
    std::atomic<bool> go;
    std::atomic<bool> stop;
    std::array<record, processes> records;
};

void take_turns(const way& how, const std::string& uri, int who, board& all) {
    const auto lock = how.make(uri, "picture");
    std::minstd_rand random(static_cast<std::minstd_rand::result_type>(who + 1));
    std::uniform_int_distribution<int> inside(16'000, 24'000);  // us
    std::uniform_int_distribution<int> between(4'000, 12'000);
    record& mine = all.records[static_cast<std::size_t>(who)];
    ++all.ready;
    while (!all.go) pause(1ms);
    while (!all.stop && mine.count < mine.turns.size()) {
        turn& t = mine.turns[mine.count++];
        t.asked = now();
        if (!lock->lock(all.stop)) return;
        t.got = now();
        pause(std::chrono::microseconds{inside(random)});
        t.released = now();
        lock->unlock();
        pause(std::chrono::microseconds{between(random)});
    }
}

struct held_turn {
    std::size_t who;
    turn when;
};

// A run, cut to what is shown: the turns of all processes by the time they waited from, and the
// holds in their order.
struct history {
    nanoseconds begin{};
    std::vector<held_turn> turns{};
    std::vector<held_turn> holds{};

    nanoseconds end() const { return begin + shown_window; }
    double held_share() const {
        nanoseconds held{};
        for (const auto& h : holds) held += std::min(h.when.released, end()) - std::max(h.when.got, begin);
        return in_seconds(held) / in_seconds(shown_window);
    }
    /// Returns: how long after a release the next had the lock, usually.
    nanoseconds usual_gap() const {
        std::vector<nanoseconds> gaps;
        for (std::size_t i = 1; i < holds.size(); ++i)
            gaps.push_back(holds[i].when.got - holds[i - 1].when.released);
        return quantile(gaps, 0.5);
    }
    nanoseconds longest_wait() const {
        nanoseconds longest{};
        for (const auto& t : turns)
            longest = std::max(longest, (t.when.got.count() == 0 ? end() : t.when.got) - t.when.asked);
        return longest;
    }
};

history run_once(const way& how, const redis_server& server) {
    const shared_array<board> shared(1);
    board& all = shared[0];
    child_group group;
    for (int who = 0; who < processes; ++who) {
        group.start(how.name + ", process " + std::to_string(who + 1),
                    [&, who] { take_turns(how, server.uri(), who, all); });
    }
    group.wait_for("all were connected", 10s, [&] { return all.ready == processes; });
    history h;
    all.go = true;
    h.begin = now() + 2s;  // of warm-up
    group.wait_until(h.end() + 1s);
    all.stop = true;
    group.wait_for_end();

    for (std::size_t who = 0; who < processes; ++who) {
        const record& r = all.records[who];
        for (std::size_t i = 0; i < r.count; ++i) {
            const turn& t = r.turns[i];
            const bool over = t.released.count() != 0 && t.released <= h.begin;
            if (over || t.asked >= h.end()) continue;
            h.turns.push_back({who, t});
            if (t.got.count() != 0 && t.got < h.end()) h.holds.push_back({who, t});
        }
    }
    std::sort(h.holds.begin(), h.holds.end(),
              [](const auto& a, const auto& b) { return a.when.got < b.when.got; });
    return h;
}

// One run drawn from `top` on: a lane for each process, pale while it waits, solid while it holds; a line
// from the end of each hold to the begin of the next.
class panel {
  public:
    panel(svg::canvas& paper, const history& h, double top, const char* pale, const char* solid)
        : paper_(paper), history_(h), top_(top), pale_(pale), solid_(solid) {}

    void draw(const std::string& title) {
        char caption[160];
        std::snprintf(caption, sizeof caption,
                      "held %.0f %% of the time; from release to next holder %s; longest wait %s",
                      100 * history_.held_share(), shown_time(history_.usual_gap()).c_str(),
                      shown_time(history_.longest_wait()).c_str());
        paper_.text(20, top_, title, {.size = 13.5, .bold = true});
        paper_.text(right, top_, caption, {.size = 12, .anchor = "end", .colour = svg::faint_ink});
        for (std::size_t who = 0; who < processes; ++who) {
            paper_.line(left, middle(who), right, middle(who), svg::grid_ink);
            paper_.text(left - 10, middle(who) + 4, "process " + std::to_string(who + 1),
                        {.size = 12, .anchor = "end", .colour = svg::faint_ink});
        }
        for (const auto& t : history_.turns) {
            const auto got = t.when.got.count() == 0 ? history_.end() : t.when.got;
            block(t.who, t.when.asked, got, pale_, 9);
        }
        for (const auto& h : history_.holds) block(h.who, h.when.got, h.when.released, solid_, 18);
        for (std::size_t i = 1; i < history_.holds.size(); ++i)
            arrow(history_.holds[i - 1], history_.holds[i]);
    }

  private:
    static constexpr double left = 92;
    static constexpr double right = 880;
    static constexpr double lane = 30;

    double x(nanoseconds instant) const {
        const double share = in_seconds(instant - history_.begin) / in_seconds(shown_window);
        return left + (right - left) * std::clamp(share, 0.0, 1.0);
    }
    double middle(std::size_t who) const { return top_ + 27 + lane * static_cast<double>(who); }

    void block(std::size_t who, nanoseconds from, nanoseconds to, const char* fill, double height) {
        paper_.rect(x(from), middle(who) - height / 2, std::max(x(to) - x(from), 0.5), height, fill, 1.5);
    }
    void arrow(const held_turn& from, const held_turn& to) {
        if (from.who == to.who) return;
        const double down = to.who > from.who ? 1 : -1;
        const double tip = middle(to.who) - down * 9;
        const double base = tip - down * 5;
        paper_.line(x(from.when.released), middle(from.who) + down * 9, x(to.when.got), base, svg::ink, 1.1);
        paper_.triangle(x(to.when.got) - 3, base, x(to.when.got) + 3, base, x(to.when.got), tip, svg::ink);
    }

    svg::canvas& paper_;
    const history& history_;
    double top_;
    const char* pale_;
    const char* solid_;
};

void draw(const history& queued, const history& polled, const std::string& path) {
    svg::canvas paper(900, 420, "Four processes take turns with one lock, 20 ms each");
    paper.rect(560, 21, 14, 9, "#b6d4fb", 1.5);
    paper.rect(574, 21, 14, 9, "#f6cfae", 1.5);
    paper.text(594, 30, "waits", {.size = 12.5});
    paper.rect(650, 17, 14, 16, "#0969da", 1.5);
    paper.rect(664, 17, 14, 16, "#bc4c00", 1.5);
    paper.text(684, 30, "holds", {.size = 12.5});
    paper.line(740, 25, 764, 25, svg::ink, 1.1);
    paper.triangle(764, 22, 764, 28, 770, 25, svg::ink);
    paper.text(776, 30, "next holder", {.size = 12.5});
    panel(paper, queued, 66, "#b6d4fb", "#0969da").draw("distlock: handed over by the server");
    panel(paper, polled, 228, "#f6cfae", "#bc4c00").draw("SET NX, polled every 100 ms");

    for (int ms = 0; ms <= 600; ms += 100) {
        const double at = 92 + (880 - 92) * ms / 600.0;
        paper.line(at, 370, at, 375, svg::faint_ink);
        paper.text(at, 389, std::to_string(ms), {.size = 11.5, .anchor = "middle", .colour = svg::faint_ink});
    }
    paper.line(92, 370, 880, 370, svg::faint_ink);
    paper.text(486, 408, "time, ms (after 2 s)", {.size = 12, .anchor = "middle", .colour = svg::faint_ink});
    paper.save(path);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fputs("usage: waiting_picture file.svg\n", stderr);
        return 2;
    }
    return bench::run("waiting_picture", 1, argv, 60, [&](const settings&) {
        const redis_server server({.tcp = true});
        draw(run_once(ours, server), run_once(polling_100, server), argv[1]);
        std::printf("Picture: %s\n", argv[1]);
    });
}
