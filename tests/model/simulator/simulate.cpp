// The simulator: the library, unmodified, on virtual threads, clocks and networks, for one
// seed after the other.
//
//   simulate [--family] [--seed N] [--seeds COUNT] [--events N] [--trace] [--twice]
//
// Plays seeds from N on (1) until COUNT of them (any number) or N events (1,000,000) are done. An event is a
// message delivered to the server or to a client, a fiber resumed by a timer, or a fault; fibers woken by
// each other are counted apart. --twice plays each seed again, and compares the hashes of the two logs.
// --family: readers and writers, and permits, instead of mutexes. The exit code is 0 when all went well; a
// violation ends the program.
#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "model/simulator/family.hpp"
#include "model/simulator/scenario.hpp"

namespace {

struct wanted {
    std::uint64_t first = 1;
    std::uint64_t seeds = std::numeric_limits<std::uint64_t>::max();
    std::uint64_t events = 1'000'000;
    bool trace = false;
    bool twice = false;
    bool family = false;
};

sim::tally play(std::uint64_t seed, bool family, bool trace) {
    return family ? sim::family(seed, trace).play() : sim::scenario(seed, trace).play();
}

bool read(int argc, char** argv, wanted& w) {
    bool bounded = false;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        const auto number = [&](std::uint64_t& into) {
            if (++i == argc) return false;
            char* end = nullptr;
            into = std::strtoull(argv[i], &end, 10);
            return *end == '\0';
        };
        if (word == "--trace") {
            w.trace = true;
        } else if (word == "--family") {
            w.family = true;
        } else if (word == "--twice") {
            w.twice = true;
        } else if (word == "--seed") {
            if (!number(w.first)) return false;
        } else if (word == "--seeds") {
            if (!number(w.seeds)) return false;
            if (!bounded) w.events = std::numeric_limits<std::uint64_t>::max();
        } else if (word == "--events") {
            if (!number(w.events)) return false;
            bounded = true;
        } else {
            return false;
        }
    }
    return true;
}

}  // namespace

int main(int argc, char** argv) {
    wanted w;
    if (!read(argc, argv, w)) {
        std::fputs("simulate [--family] [--seed N] [--seeds COUNT] [--events N] [--trace] [--twice]\n",
                   stderr);
        return 2;
    }
    const auto begun = std::chrono::steady_clock::now();
    sim::tally all;
    std::uint64_t done = 0;
    for (; done < w.seeds && all.events < w.events; ++done) {
        const std::uint64_t seed = w.first + done;
        const sim::tally one = play(seed, w.family, w.trace);
        if (w.twice && play(seed, w.family, false).hash != one.hash) {
            std::printf("seed %" PRIu64 " is not played twice the same way\n", seed);
            return 1;
        }
        all.events += one.events;
        all.switches += one.switches;
        all.commands += one.commands;
        all.grants += one.grants;
        all.simulated += one.simulated;
        all.hash = all.hash * 31 + one.hash;
        all.longest_wait = std::max(all.longest_wait, one.longest_wait);
        all.longest_handover = std::max(all.longest_handover, one.longest_handover);
        all.longest_overrun = std::max(all.longest_overrun, one.longest_overrun);
        for (std::size_t i = 0; i < all.by_act.size(); ++i) all.by_act[i] += one.by_act[i];
    }
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    std::printf("seeds %" PRIu64 ", events %" PRIu64 " (%.0f/s), switches %" PRIu64 ", commands %" PRIu64
                ", grants %" PRIu64
                ", simulated %.0f s, longest wait %.3f s, handover %.3f s, overrun %.3f s, hash %016" PRIx64
                ", faults:",
                done, all.events, static_cast<double>(all.events) / took, all.switches, all.commands,
                all.grants, std::chrono::duration<double>(all.simulated).count(),
                std::chrono::duration<double>(all.longest_wait).count(),
                std::chrono::duration<double>(all.longest_handover).count(),
                std::chrono::duration<double>(all.longest_overrun).count(), all.hash);
    for (std::size_t i = 0; i < all.by_act.size(); ++i) {
        if (sim::is_fault(static_cast<sim::act>(i)))
            std::printf(" %s %" PRIu64, sim::act_names[i], all.by_act[i]);
    }
    std::printf(", violations 0\n");
    return 0;
}
