// How readers, writers and permits are played: family.hpp.
#include "model/simulator/family.hpp"

#include <algorithm>

#include <distlock/scoped_lock.hpp>
#include <distlock/try_lock_for.hpp>

namespace sim {

using distlock::detail::guard_access;
using distlock::detail::joint_access;
using manner = distlock::engine::lock_core::manner;

relative::relative(family& f, std::uint64_t number, nanos offset, std::int64_t ppm)
    : home(number, offset, ppm), waiters(f.how.names.size()), family_(f) {
    f.threads.detach(f.threads.spawn(home, &relative::run_main, this).id());
}

void* relative::run_main(void* self) {
    static_cast<relative*>(self)->main();
    return nullptr;
}
void* relative::run_worker(void* self) {
    static_cast<relative*>(self)->work();
    return nullptr;
}
void* relative::run_canceller(void* self) {
    static_cast<relative*>(self)->cancel();
    return nullptr;
}

void relative::main() {
    scheduler& threads = family_.threads;
    dice& d = family_.where.random();
    const plan& how = family_.how;
    link_ = std::make_unique<link>(family_.peer, threads, home, how.timeout);
    for (std::size_t i = 0; i < how.names.size(); ++i) {
        // Sometimes a process has two objects of one name.
        for (std::uint64_t count = d.chance(100'000) ? 2 : 1; count > 0; --count) {
            const auto options = how.use(d, i).options;
            object one{i, {}, {}};
            if (family_.is_pool(i)) {
                one.pool = std::make_unique<semaphore>(*link_, how.names[i], family_.limit(i), options);
            } else {
                one.lock = std::make_unique<shared>(*link_, how.names[i], options);
            }
            objects_.push_back(std::move(one));
        }
    }
    std::vector<std::uint64_t> workers(1 + d.index(how.threads));
    for (auto& one : workers) one = threads.spawn(home, &relative::run_worker, this).id();
    canceller_ = &threads.spawn(home, &relative::run_canceller, this);
    for (const auto one : workers) threads.join(one);
    workers_over_ = true;
    threads.wake(*canceller_);
    threads.join(canceller_->id());
    objects_.clear();
    home.left = true;
    link_.reset();
    over_ = true;
}

void relative::cancel() {
    scheduler& threads = family_.threads;
    while (!workers_over_) {
        nanos next = end_of_time;
        for (std::size_t i = 0; i < to_cancel_.size();) {
            if (to_cancel_[i].when > family_.where.now()) {
                next = std::min(next, to_cancel_[i++].when);
                continue;
            }
            auto whom = to_cancel_[i].whom;
            to_cancel_.erase(to_cancel_.begin() + static_cast<std::ptrdiff_t>(i));
            whom.request_stop();
            i = 0;
            next = end_of_time;
        }
        if (!workers_over_) threads.park(std::min(next, family_.where.now() + 1s));
    }
}

void relative::kill() {
    home.dead = true;
    family_.peer.abandon(home);
    for (auto& one : to_cancel_) one.when = nanos(0);
    if (canceller_ != nullptr) family_.threads.wake(*canceller_);
}

void relative::work() {
    dice& d = family_.where.random();
    while (!home.dead && !family_.quiet) {
        ask_once(false);
        if (family_.how.idle > nanos(0) && !d.chance(300'000))
            family_.threads.sleep(d.between(nanos(0), family_.how.idle));
    }
    // Things go right from here on: whoever waits is served.
    if (!home.dead) family_.threads.sleep(d.between(1ms, 2s));
    for (int more = 0; more < 3 && !home.dead; ++more) ask_once(true);
}

void relative::ask_once(bool patiently) {
    dice& d = family_.where.random();
    object& o = objects_[d.index(objects_.size())];
    const auto kind = patiently ? 0 : d.below(6);
    std::stop_source stopper{std::nostopstate};
    if (!patiently && (d.chance(family_.how.cancels) || kind == 1)) {
        stopper = std::stop_source();
        to_cancel_.push_back(
            {family_.where.now() + d.between(nanos(0), kind == 1 ? nanos(5s) : nanos(300ms)), stopper});
        family_.threads.wake(*canceller_);
    }
    asking how{kind < 2, kind >= 4, kind == 2 ? nanos(0) : d.between(nanos(0), nanos(500ms)),
               stopper.get_token()};
    if (!how.patient && !how.once && d.chance(300'000)) {
        take_several(how);
        std::erase_if(to_cancel_, [&](const cancellation& c) { return c.whom == stopper; });
        return;
    }
    if (how.patient) ++waiters[o.name];
    if (o.pool) {
        take_permits(o, how);
    } else if (d.chance(400'000)) {
        write(o, how);
    } else {
        read(o, how);
    }
    std::erase_if(to_cancel_, [&](const cancellation& c) { return c.whom == stopper; });
}

void relative::judge(const asking& how, std::size_t name, bool got, std::error_code ec) {
    world& w = family_.where;
    if (how.patient) --waiters[name];
    if (got || home.dead) return;
    w.note(ec ? act::trouble : act::taken, home.number, static_cast<std::uint64_t>(ec.value()));
    const bool cancelled = ec == distlock::errc::cancelled && how.stop.stop_requested();
    if (ec && !cancelled && (family_.how.calm || w.now() - 5s > family_.all_is_well))
        w.fail("'" + family_.how.names[name] + "': a call fails while all is well: " + ec.message());
    if (!ec && how.patient) w.fail("a wait without limit ended without an error");
}

void relative::hold_for_a_while(std::size_t name) {
    dice& d = family_.where.random();
    const nanos lease = family_.how.leases[name];
    if (d.chance(family_.how.long_holds)) {
        family_.threads.sleep(d.between(nanos(0), 2 * lease));
    } else if (d.chance(500'000)) {
        family_.threads.sleep(d.between(nanos(0), d.chance(800'000) ? nanos(2ms) : lease / 4));
    }
}

namespace {

struct attempt {
    distlock::engine::lock_core::result got{};
    std::error_code ec{};
};

template <class Acquire>
attempt try_it(bool patient, bool once, nanos span, Acquire acquire) {
    attempt made;
    const auto until = patient || once ? distlock::clock::time_point::max()
                                       : distlock::clock::now() + distlock::clock::duration(span);
    try {
        made.got = acquire(until, manner{.once = once});
        if (made.got.cause != distlock::errc{}) made.ec = made.got.cause;
    } catch (const std::system_error& e) {
        made.ec = e.code();
    }
    return made;
}

}  // namespace

void relative::write(object& o, const asking& how) {
    shared& lock = *o.lock;
    const auto made = try_it(how.patient, how.once, how.span, [&](auto until, manner m) {
        return joint_access::acquire(lock, until, m, how.stop);
    });
    judge(how, o.name, made.got.serial != 0, made.ec);
    if (made.got.serial == 0) return;
    auto mine = family_.begin({&home, o.name, -1, [&lock, serial = made.got.serial] {
                                   return guard_access::valid_until(lock, serial).time_since_epoch();
                               }});
    hold_for_a_while(o.name);
    family_.let_go(mine);
    std::error_code ec;
    if (!family_.where.random().chance(200'000) || home.dead) {
        lock.unlock();
        return;
    }
    if (!lock.downgrade(ec)) {
        lock.unlock();
        return;
    }
    const nanos until = lock.shared_until().time_since_epoch();
    mine = family_.begin({&home, o.name, 0, [until] { return until; }});
    hold_for_a_while(o.name);
    family_.let_go(mine);
    lock.unlock_shared();
}

void relative::read(object& o, const asking& how) {
    shared& lock = *o.lock;
    const auto made = try_it(how.patient, how.once, how.span, [&](auto until, manner m) {
        return joint_access::acquire_shared(lock, until, m, how.stop);
    });
    judge(how, o.name, made.got.serial != 0, made.ec);
    if (made.got.serial == 0) return;
    auto mine = family_.begin({&home, o.name, 0, [&lock, serial = made.got.serial] {
                                   return guard_access::shared_until(lock, serial).time_since_epoch();
                               }});
    hold_for_a_while(o.name);
    family_.let_go(mine);
    std::error_code ec;
    if (!family_.where.random().chance(200'000) || home.dead || !lock.try_upgrade(ec)) {
        lock.unlock_shared();
        return;
    }
    const nanos until = lock.valid_until().time_since_epoch();
    mine = family_.begin({&home, o.name, -1, [until] { return until; }});
    hold_for_a_while(o.name);
    family_.let_go(mine);
    lock.unlock();
}

void relative::take_permits(object& o, const asking& how) {
    dice& d = family_.where.random();
    const auto n = 1 + static_cast<std::int64_t>(d.below(static_cast<std::uint64_t>(family_.limit(o.name))));
    std::error_code ec;
    distlock::permit got;
    if (how.patient) {
        got = o.pool->acquire(n, how.stop, ec);
    } else if (how.once) {
        got = o.pool->try_acquire(n, how.stop, ec).value_or(distlock::permit());
    } else {
        got = o.pool->try_acquire_for(how.span, n, how.stop, ec).value_or(distlock::permit());
    }
    judge(how, o.name, got.n() != 0, ec);
    if (got.n() == 0) return;
    const auto mine =
        family_.begin({&home, o.name, n, [&got] { return got.valid_until().time_since_epoch(); }});
    hold_for_a_while(o.name);
    family_.let_go(mine);
    got.release();
}

// One object of each name, all or none.
void relative::take_several(const asking& how) {
    using distlock::engine::joint_member;
    dice& d = family_.where.random();
    struct part {
        std::size_t name;
        std::int64_t n;
        std::unique_ptr<joint_member> member;
    };
    std::list<distlock::permit> permits;
    std::vector<part> parts;
    for (object& o : objects_) {
        if (!parts.empty() && parts.back().name == o.name) continue;
        if (o.pool) {
            const auto n =
                1 + static_cast<std::int64_t>(d.below(static_cast<std::uint64_t>(family_.limit(o.name))));
            permits.emplace_back(*o.pool, std::defer_lock, n);
            parts.push_back({o.name, n, std::make_unique<distlock::detail::joint_permit>(permits.back())});
        } else if (d.chance(500'000)) {
            parts.push_back({o.name, 0, std::make_unique<distlock::detail::joint_reader<shared>>(*o.lock)});
        } else {
            parts.push_back({o.name, -1, std::make_unique<distlock::detail::joint_mutex<shared>>(*o.lock)});
        }
    }
    std::vector<joint_member*> members;
    for (const part& one : parts) members.push_back(one.member.get());
    distlock::engine::lock_core::result got;
    try {
        const auto until = distlock::clock::now() + distlock::clock::duration(how.span);
        got = distlock::engine::acquire_all(members, until, how.stop);
    } catch (const std::system_error&) {}
    if (got.serial == 0) return;
    std::vector<std::list<share>::iterator> shares;
    for (const part& one : parts) {
        const nanos until = one.member->valid_until().time_since_epoch();
        shares.push_back(family_.begin({&home, one.name, one.n, [until] { return until; }}));
    }
    hold_for_a_while(parts.front().name);
    for (std::size_t i = 0; i < parts.size(); ++i) {
        family_.let_go(shares[i]);
        parts[i].member->undo();
    }
}

family::family(std::uint64_t seed, bool trace)
    : where(seed, trace),
      how(plan::of(where.random())),
      threads(where, how.habits),
      peer(where, threads, how.network, how.server_ppm),
      idle_since_(how.names.size(), end_of_time) {
    for (std::size_t i = 0; i < how.names.size(); ++i)
        limits_.push_back(
            where.random().chance(500'000) ? 1 + static_cast<std::int64_t>(where.random().below(4)) : 0);
}

tally family::play() {
    peer.haunted_by(*this);
    peer.watched_by(*this);
    for (std::size_t i = 0; i < how.processes; ++i) start_process();
    for (std::uint64_t what = pause; what < go_on; ++what) again(what);
    where.at(how.duration, *this, end_of_trouble);
    while (threads.left() > 0 || !quiet) {
        if (!where.step()) where.fail("fibers wait for what will never happen");
        look();
        if (quiet) watch_progress();
    }
    nanos longest = distlock::handoff::queue_life({});
    for (const auto lease : how.leases) longest = std::max<nanos>(longest, lease);
    run_until(where.now() + longest + longest / 50 + 5ms + how.network.latest);
    nothing_left();
    result.events = where.events();
    result.hash = where.hash();
    result.switches = threads.switches();
    result.commands = peer.commands();
    result.simulated = where.now();
    for (std::size_t i = 0; i < result.by_act.size(); ++i)
        result.by_act[i] = where.count(static_cast<act>(i));
    return result;
}

void family::run_until(nanos end) {
    where.at(end, *this, go_on);
    while (where.now() < end && where.step()) continue;
}

std::list<share>::iterator family::begin(share what) {
    ++result.grants;
    where.note(act::grant, what.who->number, static_cast<std::uint64_t>(what.n + 1), how.names[what.name]);
    return shares_.insert(shares_.end(), std::move(what));
}
void family::let_go(std::list<share>::iterator what) {
    where.note(act::unlock, what->who->number, static_cast<std::uint64_t>(what->n + 1),
               how.names[what->name]);
    shares_.erase(what);
}

// What all threads believe at once.
void family::look() {
    const scheduler::aside here(threads);
    std::vector<std::int64_t> permits(limits_.size()), readers(limits_.size()), writers(limits_.size());
    for (const share& one : shares_) {
        if (one.who->dead || one.who->local(where.now()) >= one.until()) continue;
        if (one.n > 0) permits[one.name] += one.n;
        if (one.n == 0) ++readers[one.name];
        if (one.n < 0) ++writers[one.name];
    }
    for (std::size_t i = 0; i < limits_.size(); ++i) {
        if (writers[i] > 1) fail(i, "two threads write");
        if (writers[i] > 0 && readers[i] > 0) fail(i, "a thread writes where another reads");
        if (is_pool(i) && permits[i] > limits_[i])
            fail(i, std::to_string(permits[i]) + " of " + std::to_string(limits_[i]) + " permits are out");
    }
}

void family::nothing_left() {
    for (std::size_t i = 0; i < how.names.size(); ++i) {
        const distlock::key k(how.names[i]);
        for (const std::string& key : {how.names[i], k.sibling("queue"), k.sibling("readers"),
                                       k.sibling("owner"), k.sibling("limit")}) {
            if (peer.model().exists(key, peer.wall())) fail(i, "a key is left: " + key);
        }
    }
}

// Whoever waits without limit for what nobody has is served soon.
void family::watch_progress() {
    if (where.now() > quiet_since_ + 300s) where.fail("after five minutes somebody is still there");
    for (std::size_t i = 0; i < how.names.size(); ++i) {
        bool awaited = false;
        for (const auto& one : relatives_) awaited = awaited || (!one->home.dead && one->waiters[i] > 0);
        const bool had = std::any_of(shares_.begin(), shares_.end(),
                                     [&](const share& one) { return one.name == i && !one.who->dead; });
        if (!awaited || had) {
            idle_since_[i] = end_of_time;
            continue;
        }
        idle_since_[i] = std::min(idle_since_[i], where.now());
        const nanos span = where.now() - idle_since_[i];
        result.longest_wait = std::max(result.longest_wait, span);
        const nanos unheard =
            how.network.may_count ? nanos(0) : 2s * static_cast<int>(started_ * how.threads);
        if (span > 2 * nanos(how.leases[i]) + unheard + (healed_ ? 2s : 8s))
            fail(i, "nobody is served though everything works");
    }
}

nanos family::mean_of(std::uint64_t what) const {
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

void family::again(std::uint64_t what) {
    const nanos mean = mean_of(what);
    if (mean > nanos(0)) where.at(where.now() + where.random().between(nanos(1), 2 * mean), *this, what);
}

void family::happen(std::uint64_t what) {
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

relative* family::pick() {
    std::vector<relative*> alive;
    for (const auto& one : relatives_) {
        if (!one->home.dead && !one->home.stopped()) alive.push_back(one.get());
    }
    return alive.empty() ? nullptr : alive[where.random().index(alive.size())];
}

void family::stop_or_kill(relative& whom, bool stop) {
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

void family::strike_at(process& whom) {
    if (quiet || whom.dead || whom.stopped()) return;
    for (const auto& one : relatives_) {
        if (&one->home == &whom && !one->over()) return stop_or_kill(*one, !where.random().chance(250'000));
    }
}

void family::strike(std::uint64_t what) {
    dice& d = where.random();
    if (what == pause || what == kill) {
        if (relative* const who = pick()) stop_or_kill(*who, what == pause);
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
    } else {
        peer.cut(d.below(4));
    }
}

void family::start_process() {
    dice& d = where.random();
    const auto drift =
        static_cast<std::int64_t>(d.below(static_cast<std::uint64_t>(2 * how.drift_ppm + 1))) - how.drift_ppm;
    where.note(act::start, started_ + 1);
    relatives_.push_back(
        std::make_unique<relative>(*this, ++started_, d.between(1s, 1000s), how.server_ppm + drift));
}

void family::be_quiet() {
    where.note(act::quiet);
    quiet = true;
    quiet_since_ = where.now();
    threads.calm();
    peer.calm();
    for (auto& [when, who] : stopped_) threads.go_on(who->home);
    stopped_.clear();
    healed_ = where.random().chance(500'000);
    if (!healed_) return;
    peer.heal();
    all_is_well = std::max(peer.works_again(), where.now()) + how.network.latest + 100ms;
}

}  // namespace sim
