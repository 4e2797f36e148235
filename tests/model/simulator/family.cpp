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
    : participant(f, number, offset, ppm), family_(f) {}

void relative::make_locks(link& to) {
    dice& d = family_.where.random();
    const plan& how = family_.how;
    for (std::size_t i = 0; i < how.names.size(); ++i) {
        // Sometimes a process has two objects of one name.
        for (std::uint64_t count = d.chance(100'000) ? 2 : 1; count > 0; --count) {
            const auto options = how.use(d, i).options;
            object one{i, {}, {}};
            if (family_.is_pool(i)) {
                one.pool = std::make_unique<semaphore>(to, how.names[i], family_.limit(i), options);
            } else {
                one.lock = std::make_unique<shared>(to, how.names[i], options);
            }
            objects_.push_back(std::move(one));
        }
    }
}

void relative::ask_once(bool patiently) {
    dice& d = family_.where.random();
    object& o = objects_[d.index(objects_.size())];
    const auto kind = patiently ? 0 : d.below(6);
    std::stop_source stopper{std::nostopstate};
    if (!patiently && (d.chance(family_.how.cancels) || kind == 1)) {
        stopper = std::stop_source();
        stop_at(family_.where.now() + d.between(nanos(0), kind == 1 ? nanos(5s) : nanos(300ms)), stopper);
    }
    asking how{kind < 2, kind >= 4, kind == 2 ? nanos(0) : d.between(nanos(0), nanos(500ms)),
               stopper.get_token()};
    if (!how.patient && !how.once && d.chance(300'000)) {
        take_several(how);
        call_off(stopper);
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
    call_off(stopper);
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

family::family(std::uint64_t seed, bool trace) : simulation(seed, trace) {
    for (std::size_t i = 0; i < how.names.size(); ++i)
        limits_.push_back(
            where.random().chance(500'000) ? 1 + static_cast<std::int64_t>(where.random().below(4)) : 0);
}

void family::end() {
    nanos longest = distlock::handoff::queue_life({});
    for (const auto lease : how.leases) longest = std::max<nanos>(longest, lease);
    run_until(where.now() + longest + longest / 50 + 5ms + how.network.latest);
    nothing_left();
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

bool family::held(std::size_t name) const {
    return std::any_of(shares_.begin(), shares_.end(),
                       [&](const share& one) { return one.name == name && !one.who->dead; });
}

}  // namespace sim
