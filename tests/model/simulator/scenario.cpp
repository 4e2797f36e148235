// How a seed is played: scenario.hpp.
#include "model/simulator/scenario.hpp"

#include <algorithm>

namespace sim {

namespace {

// How long after a loss, at the most, somebody may be told of it: the timer's thread, a thread for the
// callback, and both may stray a few times.
nanos slack_of(const scheduler::habits& h) {
    return 30ms + 20 * (h.usual + h.stray) + (h.no_thread != 0 ? nanos(2s) : nanos(0));
}

}  // namespace

scenario::scenario(std::uint64_t seed, bool trace)
    : where(seed, trace),
      how(plan::of(where.random())),
      threads(where, how.habits),
      peer(where, threads, how.network, how.server_ppm),
      check(where, threads, peer, slack_of(how.habits)),
      hands_over_(how.orderly()),
      idle_since_(how.names.size(), end_of_time) {}

tally scenario::play() {
    peer.haunted_by(*this);
    // Where no thread can be had, or requests come later than anybody waits for them, releases may
    // be left to the lease.
    check.looks_behind = how.network.late == 0 && how.habits.no_thread == 0;
    check.calm = how.calm;
    check.answers = how.habits.no_thread == 0;
    for (std::size_t i = 0; i < how.names.size(); ++i) check.add_name(how.names[i], how.leases[i]);
    for (std::size_t i = 0; i < how.processes; ++i) start_process();
    for (std::uint64_t what = pause; what < go_on; ++what) again(what);
    where.at(how.duration, *this, end_of_trouble);
    while (threads.left() > 0 || !quiet) {
        if (!where.step()) where.fail("fibers wait for what will never happen");
        check.look();
        if (quiet || hands_over_) watch_progress();
    }
    if (hands_over_) {
        run_until(where.now() + 100ms);
        check.nothing_left();
    }
    // What is still on its way comes, and what is kept ends with its lease.
    run_until(check.all_gone_by() + how.network.latest);
    check.nothing_left();
    result.events = where.events();
    result.hash = where.hash();
    result.switches = threads.switches();
    result.commands = peer.commands();
    result.grants = check.grants();
    result.simulated = where.now();
    for (std::size_t i = 0; i < result.by_act.size(); ++i)
        result.by_act[i] = where.count(static_cast<act>(i));
    return result;
}

void scenario::run_until(nanos end) {
    where.at(end, *this, go_on);
    while (where.now() < end && where.step()) continue;
}

nanos scenario::mean_of(std::uint64_t what) const {
    switch (what) {
        case pause:
            return how.trouble.pause;
        case kill:
            return how.trouble.kill;
        case stall:
            return how.trouble.stall;
        case restart:
            return how.trouble.restart;
        case flush:
            return how.trouble.flush;
        case forget:
            return how.trouble.forget;
        case evict:
            return how.trouble.evict;
        case cut:
            return how.trouble.cut;
        default:
            return nanos(0);
    }
}

void scenario::again(std::uint64_t what) {
    const nanos mean = mean_of(what);
    if (mean > nanos(0)) where.at(where.now() + where.random().between(nanos(1), 2 * mean), *this, what);
}

void scenario::happen(std::uint64_t what) {
    if (what == end_of_trouble) return be_quiet();
    if (what == go_on) {
        for (auto& [when, who] : stopped_) {
            if (when > where.now()) continue;
            where.note(act::resume, who->home.number);
            threads.go_on(who->home);
        }
        std::erase_if(stopped_, [&](const auto& one) { return one.first <= where.now(); });
        return;
    }
    if (quiet) return;
    if (what == begin_anew) return start_process();
    strike(what);
    again(what);
}

actor* scenario::pick() {
    std::vector<actor*> alive;
    for (const auto& one : actors_) {
        if (!one->home.dead && !one->home.stopped()) alive.push_back(one.get());
    }
    return alive.empty() ? nullptr : alive[where.random().index(alive.size())];
}

void scenario::stop_or_kill(actor& whom, bool stop) {
    dice& d = where.random();
    where.note(stop ? act::pause : act::kill, whom.home.number);
    if (!stop) {
        whom.kill();
        where.at(where.now() + d.between(1ms, 1s), *this, begin_anew);
        return;
    }
    const auto lease = *std::max_element(how.leases.begin(), how.leases.end());
    threads.stop(whom.home);
    const nanos until = where.now() + d.between(1ms, d.chance(500'000) ? nanos(100ms) : nanos(lease) * 5 / 2);
    stopped_.emplace_back(until, &whom);
    where.at(until, *this, go_on);
}

void scenario::strike_at(process& whom) {
    if (quiet || whom.dead || whom.stopped()) return;
    for (const auto& one : actors_) {
        if (&one->home == &whom && !one->over()) return stop_or_kill(*one, !where.random().chance(250'000));
    }
}

void scenario::strike(std::uint64_t what) {
    dice& d = where.random();
    if (what == pause || what == kill) {
        if (actor* const who = pick()) stop_or_kill(*who, what == pause);
    } else if (what == stall) {
        const nanos span = d.between(1ms, d.chance(500'000) ? nanos(50ms) : nanos(800ms));
        where.note(act::stall, 0, static_cast<std::uint64_t>(span / 1ms));
        peer.stall(span);
    } else if (what == restart) {
        const nanos span = d.between(1ms, 400ms);
        where.note(act::restart, 0, static_cast<std::uint64_t>(span / 1ms));
        peer.restart(span);
    } else if (what == flush) {
        where.note(act::flush);
        peer.flush_scripts();
    } else if (what == forget) {
        const std::size_t which = d.index(how.names.size());
        where.note(act::forget, which);
        check.forget(which);
    } else if (what == evict) {
        const std::size_t which = d.index(how.names.size());
        where.note(act::evict, which);
        check.evict(which);
    } else {
        peer.cut(d.below(4));
    }
}

void scenario::start_process() {
    dice& d = where.random();
    const auto drift =
        static_cast<std::int64_t>(d.below(static_cast<std::uint64_t>(2 * how.drift_ppm + 1))) - how.drift_ppm;
    where.note(act::start, started_ + 1);
    actors_.push_back(
        std::make_unique<actor>(*this, ++started_, d.between(1s, 1000s), how.server_ppm + drift));
}

void scenario::be_quiet() {
    where.note(act::quiet);
    quiet = true;
    quiet_since = where.now();
    threads.calm();
    peer.calm();
    for (auto& [when, who] : stopped_) threads.go_on(who->home);
    stopped_.clear();
    // What is late comes late all the same.
    healed_ = where.random().chance(500'000);
    if (!healed_) return;
    peer.heal();
    all_is_well = std::max(peer.works_again(), where.now()) + how.network.latest + 100ms;
}

// Whoever waits without limit is served: a lock that is free, or held by nobody who lives, is somebody's
// soon; at once, where everybody hands it over.
void scenario::watch_progress() {
    if (quiet && where.now() > quiet_since + 300s) where.fail("after five minutes somebody is still there");
    for (std::size_t i = 0; i < how.names.size(); ++i) {
        bool awaited = false;
        for (const auto& one : actors_) awaited = awaited || (!one->home.dead && one->waiters[i] > 0);
        if (!awaited || check.held(i)) {
            idle_since_[i] = end_of_time;
            continue;
        }
        idle_since_[i] = std::min(idle_since_[i], where.now());
        const nanos span = where.now() - std::max(check.progress(i), idle_since_[i]);
        if (hands_over_) {
            result.longest_handover = std::max(result.longest_handover, span);
            if (span > 50ms + 10 * (how.habits.usual + how.habits.stray))
                check.fail(i, "it is free, and who waits is not served at once");
        }
        if (!quiet) continue;
        result.longest_wait = std::max(result.longest_wait, span);
        // Where a connection is silent, a waiter finds out after three seconds. Where nobody may count who
        // hears, a process that is gone has its turn for two.
        const nanos unheard =
            how.network.may_count ? nanos(0) : 2s * static_cast<int>(started_ * how.threads);
        if (span > 2 * nanos(how.leases[i]) + unheard + (healed_ ? 2s : 8s))
            check.fail(i, "nobody is served though everything works");
    }
}

}  // namespace sim
