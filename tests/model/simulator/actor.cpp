// What the threads of a virtual process do: scenario.hpp.
#include <algorithm>

#include "model/simulator/scenario.hpp"

namespace sim {

// Told of losses; never after its connection is gone.
class actor::watcher final : public distlock::lease_observer {
  public:
    explicit watcher(actor& of) : actor_(of) {}
    void at_risk(const std::string& /*name*/, distlock::clock::duration /*left*/) override {
        look("at_risk");
    }
    void lost(const std::string& /*name*/, distlock::loss_reason /*why*/) override { look("lost"); }

  private:
    void look(const char* what) const {
        if (actor_.over())
            actor_.scenario_.where.fail(std::string(what) + " is told after the connection is gone");
        if (actor_.scenario_.where.random().chance(100'000)) actor_.scenario_.threads.sleep(20ms);
    }
    actor& actor_;
};

actor::actor(scenario& s, std::uint64_t number, nanos offset, std::int64_t ppm)
    : participant(s, number, offset, ppm), scenario_(s) {}

void actor::make_locks(link& to) {
    dice& d = scenario_.where.random();
    const plan& how = scenario_.how;
    for (std::size_t i = 0; i < how.names.size(); ++i) {
        // Sometimes a process has two objects of one lock.
        for (std::uint64_t objects = d.chance(100'000) ? 2 : 1; objects > 0; --objects) {
            const lock_plan l = how.use(d, i);
            auto observer = l.observed ? std::make_shared<watcher>(*this) : nullptr;
            locks_.push_back(make_lock(to, how.names[i], l, std::move(observer)));
            names_.push_back(i);
        }
    }
}

void actor::end_locks() {
    dice& d = scenario_.where.random();
    while (!locks_.empty())
        locks_.erase(locks_.begin() + static_cast<std::ptrdiff_t>(d.index(locks_.size())));
}

void actor::ask_once(bool patiently) {
    world& w = scenario_.where;
    dice& d = w.random();
    const std::size_t object = d.index(locks_.size());
    any_lock& l = *locks_[object];
    const std::size_t which = names_[object];
    const nanos begun = w.now();
    const auto kind = patiently ? 0 : d.below(6);
    const bool guarded = d.chance(300'000) && kind < 2;
    std::stop_source stopper{std::nostopstate};
    nanos stopped_at = end_of_time;
    if (!patiently && (d.chance(scenario_.how.cancels) || kind == 1)) {
        stopper = std::stop_source();
        stopped_at = w.now() + d.between(nanos(0), kind == 1 ? nanos(5s) : nanos(300ms));
        stop_at(stopped_at, stopper);
    }
    const auto stop = stopper.get_token();
    const nanos span =
        kind == 2 ? nanos(0) : d.between(nanos(0), d.chance(500'000) ? nanos(50ms) : nanos(1s));
    std::error_code ec;
    bool got = false;
    std::uint64_t serial = 0;
    const bool others = l.inside > 0;
    ++l.inside;
    w.note(act::call, home.number, kind, scenario_.how.names[which]);
    if (guarded) {
        ++waiters[which];
        try {
            serial = l.lock_guarded(stop);
            got = true;
            l.found(serial);
        } catch (const std::system_error& e) {
            ec = e.code();
        }
        --waiters[which];
    } else if (kind < 2) {
        ++waiters[which];
        got = l.lock(stop, ec);
        --waiters[which];
    } else if (kind < 4) {
        got = l.try_lock_for(span, stop, ec);
        check_time("try_lock_for", begun, span, 400ms);
    } else {
        got = l.try_lock(ec);
        check_time("try_lock", begun, nanos(0), 6s);
    }
    if (stopped_at != end_of_time && w.now() > stopped_at)
        check_time("a cancelled call", std::max(begun, stopped_at), nanos(0), 2500ms);
    if (got) {
        if (!guarded) serial = l.find_serial();
        hold_it(l, which, serial, guarded);
    } else if (!home.dead) {
        w.note(ec ? act::trouble : act::taken, home.number, static_cast<std::uint64_t>(ec.value()));
        const bool cancelled = ec == distlock::errc::cancelled && stop.stop_requested();
        const bool late = begun > scenario_.all_is_well;
        if (ec && !cancelled && (scenario_.how.calm || late))
            scenario_.check.fail(which, "a call fails while all is well: " + ec.message());
        if (!ec && kind < 2)
            scenario_.check.fail(which, "lock() returned without the lock and without an error");
        const bool may_be =
            others || l.inside > 1 || l.last_inside >= begun || scenario_.check.was_held_since(which, begun);
        if (!ec && !may_be)
            scenario_.check.fail(which, "'somebody else has it' is said of a lock that nobody had");
    }
    --l.inside;
    l.last_inside = w.now();
    if (stopped_at != end_of_time) call_off(stopper);
}

void actor::check_time(const char* what, nanos begun, nanos least, nanos slack) const {
    const world& w = scenario_.where;
    const nanos took = w.now() - begun;
    if (home.dead || home.stopped() || home.went_on() > begun || took <= least) return;
    scenario_.result.longest_overrun = std::max(scenario_.result.longest_overrun, took - least);
    const auto& habits = scenario_.how.habits;
    if (took - least > slack + 20 * (habits.stray + habits.usual))
        w.fail(std::string(what) + " took " + std::to_string((took - least) / 1ms) + " ms too long");
}

void actor::hold_it(any_lock& l, std::size_t which, std::uint64_t serial, bool guarded) {
    world& w = scenario_.where;
    dice& d = w.random();
    std::stop_token lost{};
    if (serial != 0 && d.chance(500'000)) {
        try {
            lost = l.lost(serial);
        } catch (const std::system_error&) {}
        if (!lost.stop_possible() || lost.stop_requested()) lost = {};
    }
    hold* h = nullptr;
    if (serial != 0 && !home.dead) {
        const scheduler::aside here(scenario_.threads);
        const bool still = l.valid_until(serial) != nanos(0);
        const std::uint64_t fence = still ? l.fence() : 0;
        if (still) h = &scenario_.check.begin(home, l, which, serial, fence, lost);
    }
    hold_for_a_while(which);
    if (h != nullptr) scenario_.check.let_go(*h);
    const nanos begun = w.now();
    auto said = distlock::release_outcome::nested;  // a guard does not say
    if (guarded) {
        l.unlock_guarded(serial);
    } else {
        said = l.unlock();
    }
    check_time("unlock", begun, nanos(0), 5s);
    w.note(act::unlock, home.number, static_cast<std::uint64_t>(said), scenario_.how.names[which]);
    if (said == distlock::release_outcome::not_held && serial != 0)
        w.fail("unlock() says that the lock was not held");
    if (h != nullptr) scenario_.check.end(*h, said);
}

}  // namespace sim
