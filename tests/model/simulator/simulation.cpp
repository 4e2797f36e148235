// How a seed is played: simulation.hpp.
#include "model/simulator/simulation.hpp"

#include <algorithm>

namespace sim {

participant::participant(simulation& s, std::uint64_t number, nanos offset, std::int64_t ppm)
    : home(number, offset, ppm), waiters(s.how.names.size()), simulation_(s) {
    s.threads.detach(s.threads.spawn(home, &participant::run_main, this).id());
}

void* participant::run_main(void* self) {
    static_cast<participant*>(self)->main();
    return nullptr;
}
void* participant::run_worker(void* self) {
    static_cast<participant*>(self)->work();
    return nullptr;
}
void* participant::run_canceller(void* self) {
    static_cast<participant*>(self)->cancel();
    return nullptr;
}

void participant::main() {
    scheduler& threads = simulation_.threads;
    link_ = std::make_unique<link>(simulation_.peer, threads, home, simulation_.how.timeout);
    make_locks(*link_);
    std::vector<std::uint64_t> workers(1 + simulation_.where.random().index(simulation_.how.threads));
    for (auto& one : workers) one = threads.spawn(home, &participant::run_worker, this).id();
    canceller_ = &threads.spawn(home, &participant::run_canceller, this);
    for (const auto one : workers) threads.join(one);
    workers_over_ = true;
    threads.wake(*canceller_);
    threads.join(canceller_->id());
    end_locks();
    home.left = true;
    link_.reset();  // which waits for those who are told
    over_ = true;
}

void participant::work() {
    scheduler& threads = simulation_.threads;
    dice& d = simulation_.where.random();
    while (!home.dead && !simulation_.quiet) {
        ask_once(false);
        if (simulation_.how.idle > nanos(0) && !d.chance(300'000))
            threads.sleep(d.between(nanos(0), simulation_.how.idle));
    }
    // Things go right from here on: whoever waits is served.
    if (!home.dead) threads.sleep(d.between(1ms, 2s));
    for (int more = 0; more < 3 && !home.dead; ++more) ask_once(true);
}

void participant::stop_at(nanos when, std::stop_source whom) {
    to_cancel_.push_back({when, std::move(whom)});
    simulation_.threads.wake(*canceller_);
}

void participant::call_off(const std::stop_source& whom) {
    std::erase_if(to_cancel_, [&](const cancellation& c) { return c.whom == whom; });
}

void participant::cancel() {
    scheduler& threads = simulation_.threads;
    while (!workers_over_) {
        nanos next = end_of_time;
        for (std::size_t i = 0; i < to_cancel_.size();) {
            if (to_cancel_[i].when > simulation_.where.now()) {
                next = std::min(next, to_cancel_[i++].when);
                continue;
            }
            auto whom = to_cancel_[i].whom;
            to_cancel_.erase(to_cancel_.begin() + static_cast<std::ptrdiff_t>(i));
            whom.request_stop();
            i = 0;
            next = end_of_time;
        }
        if (!workers_over_) threads.park(std::min(next, simulation_.where.now() + 1s));
    }
}

void participant::kill() {
    home.dead = true;
    simulation_.bury(home);
    simulation_.peer.abandon(home);
    // Its fibers run to their end, so that memory is freed: none waits for long.
    for (auto& one : to_cancel_) one.when = nanos(0);
    if (canceller_ != nullptr) simulation_.threads.wake(*canceller_);
}

void participant::hold_for_a_while(std::size_t name) {
    scheduler& threads = simulation_.threads;
    dice& d = simulation_.where.random();
    const nanos lease = simulation_.how.leases[name];
    if (d.chance(simulation_.how.long_holds)) {
        threads.sleep(d.between(nanos(0), 2 * lease));
    } else if (d.chance(500'000)) {
        threads.sleep(d.between(nanos(0), d.chance(800'000) ? nanos(2ms) : lease / 4));
    }
}

simulation::simulation(std::uint64_t seed, bool trace)
    : where(seed, trace),
      how(plan::of(where.random())),
      threads(where, how.habits),
      peer(where, threads, how.network, how.server_ppm),
      idle_since_(how.names.size(), end_of_time) {}

tally simulation::play() {
    peer.haunted_by(*this);
    for (std::size_t i = 0; i < how.processes; ++i) start_process();
    for (std::uint64_t what = pause; what < go_on; ++what) again(what);
    where.at(how.duration, *this, end_of_trouble);
    while (threads.left() > 0 || !quiet) {
        if (!where.step()) where.fail("fibers wait for what will never happen");
        look();
        if (quiet || hands_over()) watch_progress();
    }
    end();
    result.events = where.events();
    result.hash = where.hash();
    result.switches = threads.switches();
    result.commands = peer.commands();
    result.simulated = where.now();
    for (std::size_t i = 0; i < result.by_act.size(); ++i)
        result.by_act[i] = where.count(static_cast<act>(i));
    return result;
}

void simulation::run_until(nanos end) {
    where.at(end, *this, go_on);
    while (where.now() < end && where.step()) continue;
}

nanos simulation::mean_of(std::uint64_t what) const {
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
        case cut:
            return how.trouble.cut;
        default:
            return nanos(0);
    }
}

void simulation::again(std::uint64_t what) {
    const nanos mean = mean_of(what);
    if (mean > nanos(0)) where.at(where.now() + where.random().between(nanos(1), 2 * mean), *this, what);
}

void simulation::happen(std::uint64_t what) {
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

participant* simulation::pick() {
    std::vector<participant*> alive;
    for (const auto& one : participants_) {
        if (!one->home.dead && !one->home.stopped()) alive.push_back(one.get());
    }
    return alive.empty() ? nullptr : alive[where.random().index(alive.size())];
}

void simulation::stop_or_kill(participant& whom, bool stop) {
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

void simulation::strike_at(process& whom) {
    if (quiet || whom.dead || whom.stopped()) return;
    for (const auto& one : participants_) {
        if (&one->home == &whom && !one->over()) return stop_or_kill(*one, !where.random().chance(250'000));
    }
}

void simulation::strike(std::uint64_t what) {
    dice& d = where.random();
    if (what == pause || what == kill) {
        if (participant* const who = pick()) stop_or_kill(*who, what == pause);
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
    } else if (what == cut) {
        peer.cut(d.below(4));
    } else {
        lose_data(what);
    }
}

void simulation::start_process() {
    dice& d = where.random();
    const auto drift =
        static_cast<std::int64_t>(d.below(static_cast<std::uint64_t>(2 * how.drift_ppm + 1))) - how.drift_ppm;
    where.note(act::start, started_ + 1);
    ++started_;
    participants_.push_back(make_participant(started_, d.between(1s, 1000s), how.server_ppm + drift));
}

void simulation::be_quiet() {
    where.note(act::quiet);
    quiet = true;
    quiet_since_ = where.now();
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

// Whoever waits without limit is served: what is free, or held by nobody who lives, is somebody's soon; at
// once, where everybody hands it over.
void simulation::watch_progress() {
    if (quiet && where.now() > quiet_since_ + 300s) where.fail("after five minutes somebody is still there");
    for (std::size_t i = 0; i < how.names.size(); ++i) {
        bool awaited = false;
        for (const auto& one : participants_) awaited = awaited || (!one->home.dead && one->waiters[i] > 0);
        if (!awaited || held(i)) {
            idle_since_[i] = end_of_time;
            continue;
        }
        idle_since_[i] = std::min(idle_since_[i], where.now());
        const nanos span = where.now() - std::max(progress(i), idle_since_[i]);
        if (hands_over()) {
            result.longest_handover = std::max(result.longest_handover, span);
            if (span > 50ms + 10 * (how.habits.usual + how.habits.stray))
                fail(i, "it is free, and who waits is not served at once");
        }
        if (!quiet) continue;
        result.longest_wait = std::max(result.longest_wait, span);
        // Where a connection is silent, a waiter finds out after three seconds. Where nobody may count who
        // hears, a process that is gone has its turn for two.
        const nanos unheard =
            how.network.may_count ? nanos(0) : 2s * static_cast<int>(started_ * how.threads);
        if (span > 2 * nanos(how.leases[i]) + unheard + (healed_ ? 2s : 8s))
            fail(i, "nobody is served though everything works");
    }
}

}  // namespace sim
