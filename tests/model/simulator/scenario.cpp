// How a seed of mutexes is played: scenario.hpp.
#include "model/simulator/scenario.hpp"

namespace sim {

namespace {

// How long after a loss, at the most, somebody may be told of it: the timer's thread, a thread for the
// callback, and both may stray a few times.
nanos slack_of(const scheduler::habits& h) {
    return 30ms + 20 * (h.usual + h.stray) + (h.no_thread != 0 ? nanos(2s) : nanos(0));
}

}  // namespace

scenario::scenario(std::uint64_t seed, bool trace)
    : simulation(seed, trace), check(where, threads, peer, slack_of(how.habits)), hands_over_(how.orderly()) {
    // Where no thread can be had, or requests come later than anybody waits for them, releases may
    // be left to the lease.
    check.looks_behind = how.network.late == 0 && how.habits.no_thread == 0;
    check.calm = how.calm;
    check.answers = how.habits.no_thread == 0;
    for (std::size_t i = 0; i < how.names.size(); ++i) check.add_name(how.names[i], how.leases[i]);
}

nanos scenario::mean_of(std::uint64_t what) const {
    if (what == forget) return how.trouble.forget;
    if (what == evict) return how.trouble.evict;
    return simulation::mean_of(what);
}

void scenario::lose_data(std::uint64_t what) {
    const std::size_t which = where.random().index(how.names.size());
    where.note(what == forget ? act::forget : act::evict, which);
    what == forget ? check.forget(which) : check.evict(which);
}

void scenario::end() {
    if (hands_over_) {
        run_until(where.now() + 100ms);
        check.nothing_left();
    }
    // What is still on its way comes, and what is kept ends with its lease.
    run_until(check.all_gone_by() + how.network.latest);
    check.nothing_left();
    result.grants = check.grants();
}

}  // namespace sim
