// What a distributed lock is for: processes add to one counter file, without distlock::mutex and with it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <random>
#include <signal.h>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "contention/drawing.hpp"
#include "contention/history.hpp"
#include "contention/options.hpp"
#include "contention/processes.hpp"
#include "contention/text.hpp"

namespace contention {
namespace {

using namespace std::chrono_literals;

nanoseconds now() { return distlock::clock::now().time_since_epoch(); }
void sleep_until(nanoseconds instant) { std::this_thread::sleep_for(instant - now()); }

// One of the processes.

// What a process is told on its command line. A URI may hold a password: it comes in the environment.
struct job {
    std::size_t process;
    bool with_lock;
    std::string lock_name;
    std::string folder;
    nanoseconds begin;
    nanoseconds end;

    std::string history_file() const { return folder + "/turns-" + std::to_string(process); }

    std::vector<std::string> arguments() const {
        return {"contention", "--worker", std::to_string(process),       std::to_string(with_lock),
                lock_name,    folder,     std::to_string(begin.count()), std::to_string(end.count())};
    }
    static job from(char** words) {
        return {std::stoul(words[0]),
                words[1][0] == '1',
                words[2],
                words[3],
                nanoseconds{std::stoll(words[4])},
                nanoseconds{std::stoll(words[5])}};
    }
};

constexpr const char* uri_variable = "CONTENTION_REDIS_URI";

// Work that takes a while: in the turn, between reading and writing, and after it.
class workload {
  public:
    explicit workload(std::size_t seed) : random_(static_cast<std::minstd_rand::result_type>(seed + 1)) {}
    void work() { pause(1500us, 2500us); }
    void rest() { pause(1ms, 7ms); }

  private:
    void pause(std::chrono::microseconds least, std::chrono::microseconds most) {
        std::uniform_int_distribution<std::chrono::microseconds::rep> length{least.count(), most.count()};
        std::this_thread::sleep_for(std::chrono::microseconds{length(random_)});
    }
    std::minstd_rand random_;
};

history take_turns_without_lock(const job& mine, counter_file& counter, std::stop_token stop) {
    history turns;
    workload load{mine.process};
    sleep_until(mine.begin);
    while (!stop.stop_requested()) {
        const nanoseconds entered = now();
        const long long number = counter.read();
        load.work();
        counter.write(number + 1);
        turns.push_back({entered, entered, now()});
        load.rest();
    }
    return turns;
}

history take_turns_with_lock(const job& mine, counter_file& counter, std::stop_token stop) {
    history turns;
    workload load{mine.process};
    distlock::hiredis_connection redis{std::getenv(uri_variable)};
    distlock::mutex counter_lock{redis, mine.lock_name, {.lease = 5s}};
    sleep_until(mine.begin);
    while (!stop.stop_requested()) {
        const nanoseconds asked = now();
        try {
            // Waits for its turn, or until it is told to stop. The end of the scope gives the lock back.
            distlock::scoped_lock guard{counter_lock, stop};
            const nanoseconds entered = now();
            const long long number = counter.read();
            load.work();
            // Had this process stood still for longer than its lease, another would be at it now.
            if (!guard.owns_lock()) continue;
            counter.write(number + 1);
            turns.push_back({asked, entered, now()});
        } catch (const distlock::error& failed) {
            if (failed.code() == distlock::errc::cancelled) break;
            throw;  // the mutex has ridden out what passes by itself; what is left, a person must see
        }
        load.rest();
    }
    return turns;
}

int worker(const job& mine) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // nobody would read what we write
    std::stop_source stop;
    std::jthread timer{[&stop, end = mine.end](std::stop_token done) {
        while (!done.stop_requested() && now() < end && next_signal(20ms) == 0) continue;
        stop.request_stop();
    }};
    try {
        counter_file counter{mine.folder + "/counter"};
        save(mine.with_lock ? take_turns_with_lock(mine, counter, stop.get_token())
                            : take_turns_without_lock(mine, counter, stop.get_token()),
             mine.history_file());
        return 0;
    } catch (const std::exception& failed) {
        std::fprintf(stderr, "process %zu: %s\n", mine.process + 1, failed.what());
        return 1;
    }
}

// The process that directs them.

void print(std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
}

style style_of_stdout() {
    const auto variable = [](const char* name) {
        const char* const value = std::getenv(name);
        return std::string_view(value != nullptr ? value : "");
    };
    style s;
    s.rich = ::isatty(STDOUT_FILENO) != 0 && variable("NO_COLOR").empty() && variable("TERM") != "dumb";
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        s.width = std::clamp<std::size_t>(size.ws_col, 60, 160);
    }
    return s;
}

// A bar that fills while a run lasts and then disappears; on plain paper one line that stays.
class progress {
  public:
    progress(const style& s, std::string title) : style_(s), title_(std::move(title)) {
        if (!style_.rich) print(title_ + " ...\n");
    }
    progress(const progress&) = delete;
    progress& operator=(const progress&) = delete;
    ~progress() {
        if (style_.rich) print("\r\x1b[K");
    }
    void show(double share) const {
        if (!style_.rich) return;
        const std::size_t width = 30;
        const std::size_t full =
            static_cast<std::size_t>(std::clamp(share, 0.0, 1.0) * static_cast<double>(width));
        print("\r" + title_ + "  " + repeated("━", full) + style_.dim(repeated("━", width - full)));
    }

  private:
    style style_;
    std::string title_;
};

std::string random_suffix() {
    std::random_device device;
    char text[17];
    std::snprintf(text, sizeof text, "%08x%08x", device(), device());
    return text;
}

run perform(const options& wanted, const std::string& folder, const std::string& lock_name, bool with_lock,
            const style& s) {
    counter_file counter{folder + "/counter"};
    counter.write(0);

    run r;
    r.begin = now() + 200ms;  // all begin together, once each is up and connected
    r.end = r.begin + std::chrono::seconds{wanted.seconds};
    worker_group workers;
    std::vector<job> jobs;
    for (std::size_t p = 0; p < static_cast<std::size_t>(wanted.processes); ++p) {
        jobs.push_back({p, with_lock, lock_name, folder, r.begin, r.end});
        workers.start(jobs.back().arguments());
    }
    const progress bar{s, std::string("  ") + (with_lock ? "with the lock" : "without a lock")};
    workers.wait(std::chrono::steady_clock::now() + std::chrono::seconds{wanted.seconds} + 15s, [&] {
        bar.show(std::chrono::duration<double>(now() - r.begin) /
                 std::chrono::duration<double>(r.end - r.begin));
    });

    for (const job& done : jobs) {
        std::optional<history> turns = load(done.history_file());
        if (!turns)
            throw std::runtime_error("process " + std::to_string(done.process + 1) + " left no record");
        r.processes.push_back(std::move(*turns));
    }
    r.counter = counter.read();
    return r;
}

std::string figure(std::string_view name, long long number, std::string_view remark = {}) {
    return "  " + padded_right(std::string(name), 22) + padded_left(grouped(number), 10) +
           (remark.empty() ? "" : "   ") + std::string(remark) + "\n";
}

std::string report_without_lock(const run& r, const style& s) {
    const auto ordered = in_order(r);
    const long long lost = r.increments() - r.counter;
    const double share = static_cast<double>(lost) / static_cast<double>(std::max(r.increments(), 1LL));
    return s.bold("Without a lock") + "\n\n" + figure("turns taken", r.increments()) +
           figure("the counter says", r.counter) +
           (lost > 0 ? figure("updates lost", lost, s.bad(percent(share)))
                     : figure("updates lost", lost, "this time; nothing guarantees it")) +
           "\n" + timeline(r, ordered, middle_of(r, ordered, s), s);
}

bool holds(const run& r) {
    return r.increments() > 0 && r.counter == r.increments() && overlaps(in_order(r)) == 0;
}

std::string report_with_lock(const run& r, const style& s) {
    const auto ordered = in_order(r);
    const long long lost = r.increments() - r.counter;
    const auto overlapping = static_cast<long long>(overlaps(ordered));
    const auto verdict = [&](bool well, std::string_view yes, std::string_view no) {
        return well ? s.good(yes) : s.bad(no);
    };
    nanoseconds longest{0};
    for (const history& turns : r.processes) longest = std::max(longest, waits_of(turns).longest);
    return s.bold("With distlock::mutex") + "\n\n" + figure("turns taken", r.increments()) +
           figure("the counter says", r.counter) +
           figure("updates lost", lost, verdict(lost == 0, "exact", "the lock did not hold")) +
           figure("overlapping turns", overlapping,
                  verdict(overlapping == 0, "none", "the lock did not hold")) +
           "\n" + timeline(r, ordered, middle_of(r, ordered, s), s) + "\n" + table(r, s) + "\n" +
           s.dim("  held " + percent(busy_share(r)) + " of the time; longest wait " + spoken(longest) +
                 "; most turns in a row " + std::to_string(longest_streak(ordered))) +
           "\n";
}

// Fails early, once and with a clear message if the server cannot be used, instead of once in every process.
void try_out(const std::string& uri, const std::string& lock_name) {
    distlock::hiredis_connection redis{uri};
    distlock::mutex trial{redis, lock_name, {.lease = 5s}};
    const distlock::scoped_lock guard{trial};
}

int direct(const options& wanted) {
    const style s = style_of_stdout();
    const temporary_folder folder;
    std::optional<distlock::testing::redis_server> server;
    if (!wanted.redis) server.emplace();
    const std::string uri = wanted.redis ? *wanted.redis : server->uri();
    const std::string lock_name = "distlock:contention:" + random_suffix();
    try_out(uri, lock_name);
    ::setenv(uri_variable, uri.c_str(), 1);

    const std::string seconds = std::to_string(wanted.seconds) + " s";
    print("\n" +
          s.bold(std::to_string(wanted.processes) + " processes add to one counter file, " + seconds +
                 " without a lock and " + seconds + " with one.") +
          "\nA turn: read the number, work for about two milliseconds, write the number plus one.\n" +
          s.dim(server
                    ? "On a private server, process " + std::to_string(server->pid()) + ", gone afterwards."
                    : std::string("On the server you named.")) +
          "\n\n");

    print(report_without_lock(perform(wanted, folder.path(), lock_name, false, s), s) + "\n");
    const run locked = perform(wanted, folder.path(), lock_name, true, s);
    print(report_with_lock(locked, s) + "\n");
    if (!holds(locked)) {
        print(s.bad("The lock did not hold.") + " Please report this, with the output above.\n");
        return 1;
    }
    print(s.good(s.rich ? "✓ " : "OK: ") +
          "nothing was lost, and never were two processes in their turn at once.\n\n");
    return 0;
}

int contention_main(int argc, char** argv) {
    block_awaited_signals();
    if (argc == 8 && std::string_view(argv[1]) == "--worker") return worker(job::from(argv + 2));
    try {
        const options wanted = parse({argv + 1, argv + argc});
        if (wanted.help) {
            print(usage);
            return 0;
        }
        if (wanted.redis)
            static_cast<void>(distlock::parse_uri(*wanted.redis));  // throws if it makes no sense
        return direct(wanted);
    } catch (const usage_error& wrong) {
        std::fprintf(stderr, "contention: %s; --help shows all options\n", wrong.what());
        return 2;
    } catch (const distlock::error& failed) {
        std::fprintf(stderr, "contention: %s\n", failed.what());
        return failed.code() == distlock::errc::invalid_uri ? 2 : 1;
    } catch (const interrupted& asked) {
        std::fprintf(stderr, "\nStopped; everything that was started has ended.\n");
        return 128 + asked.signal;
    } catch (const std::exception& failed) {
        std::fprintf(stderr, "contention: %s\n", failed.what());
        return 1;
    }
}

}  // namespace
}  // namespace contention

int main(int argc, char** argv) { return contention::contention_main(argc, argv); }
