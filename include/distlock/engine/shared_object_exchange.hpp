// How a reader becomes the writer, and the writer a reader, in one step of the server. A guard of
// the one ends the other, which would else be held for ever.
#pragma once

#include <cstdint>
#include <thread>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/engine/continuations.hpp>
#include <distlock/engine/lock_core.hpp>
#include <distlock/engine/reader_holds.hpp>
#include <distlock/engine/shared_object.hpp>
#include <distlock/wire/outcome.hpp>

namespace distlock::engine {

template <class Lazy>
typename shared_object<Lazy>::result shared_object<Lazy>::downgrade() {
    if (in_forked_child()) return writers_->acquire(time_point::max(), {}, {});
    running_exchange mine;
    result got;
    try {
        begin_downgrade(mine);
        if (mine.of.from.empty()) return {};
        const manner how{.once = true, .in_exchange_for = &mine.of.from};
        got = ask(*mine.in, time_point::max(), how, {});
    } catch (...) {
        end_downgrade(mine, {});
        throw;
    }
    if (end_downgrade(mine, got)) return got;
    leave_batch(got.serial, true);
    return {};
}

template <class Lazy>
void shared_object<Lazy>::begin_downgrade(running_exchange& mine) {
    surplus<batch> too_many;
    const guard here(mutex_);
    mine.of = writers_->begin_exchange();
    if (mine.of.from.empty()) return;
    make_room();
    mine.guards = continuations_.begin({.write = mine.of.serial}, mine.of.guarded);
    mine.in = &begin_asking(too_many);
}

template <class Lazy>
bool shared_object<Lazy>::end_downgrade(const running_exchange& mine, const result& got) noexcept {
    bool wanted = true;
    {
        const guard here(mutex_);
        if (!got.granted()) {
            continuations_.give_up(mine.guards);
        } else {
            wanted = continuations_.finish(mine.guards, {.read = got.serial}, {});
            if (const auto* const reads = holds_.find(got.serial); reads != nullptr && mine.guards)
                holds_.set_ended_by(*reads, ended_by::both);
        }
    }
    // The token is released even so: an answer may have been lost.
    if (!mine.of.from.empty()) writers_->surrender(mine.of, !got.granted());
    return wanted;
}

// Where nobody knows what the server did, the reader may have become the writer, and is neither.
template <class Lazy>
typename shared_object<Lazy>::result shared_object<Lazy>::try_upgrade() {
    if (in_forked_child()) return writers_->acquire(time_point::max(), {}, {});
    running_exchange mine;
    result got;
    try {
        begin_upgrade(mine);
        if (mine.of.from.empty()) return {};
        const manner how{.once = true, .guarded = bool(mine.guards), .in_exchange_for = &mine.of.from};
        got = ask_after_readers(time_point::max(), how, {});
    } catch (...) {
        end_upgrade(mine, {});
        throw;
    }
    if (got.taken()) {
        read_on(mine);
        return got;
    }
    if (end_upgrade(mine, got)) return got;
    writers_->unlock(got.serial);
    return {};
}

template <class Lazy>
void shared_object<Lazy>::begin_upgrade(running_exchange& mine) {
    const guard here(mutex_);
    const auto* const me = holds_.newest();
    if (me == nullptr || me->in->readers > 1 || me->in->now != phase::open) return;
    mine.of = me->in->core->begin_exchange(me->in->serial);
    if (mine.of.from.empty()) return;
    mine.in = me->in;
    mine.reader = me->serial;
    mine.in->now = phase::exchanging;
    if (joined_ == mine.in) joined_ = nullptr;
    mine.guards = continuations_.begin({.read = me->serial}, me->ends != ended_by::thread);
}

template <class Lazy>
bool shared_object<Lazy>::end_upgrade(const running_exchange& mine, const result& got) noexcept {
    bool wanted = true;
    {
        const guard here(mutex_);
        if (!got.granted()) {
            continuations_.give_up(mine.guards);
        } else {
            wanted = continuations_.finish(mine.guards, {.write = got.serial}, std::this_thread::get_id());
        }
        if (const auto* const reader = holds_.find(mine.reader)) holds_.remove(*reader);
    }
    mine.in->core->surrender(mine.of, false);
    const guard here(mutex_);
    mine.in->readers = 0;
    mine.in->now = phase::idle;
    return wanted;
}

template <class Lazy>
void shared_object<Lazy>::read_on(const running_exchange& mine) noexcept {
    mine.in->core->end_exchange(mine.of);
    {
        const guard here(mutex_);
        continuations_.give_up(mine.guards);
        mine.in->now = phase::open;
        if (holds_.find(mine.reader) != nullptr) return;
        mine.in->now = phase::releasing;
    }
    release(*mine.in, mine.in->used);
}

template <class Lazy>
release_outcome shared_object<Lazy>::unlock(std::uint64_t serial) noexcept {
    if (in_forked_child()) return release_outcome::wrong_process;
    return end_continuation({.write = serial}, writers_->unlock(serial));
}

template <class Lazy>
release_outcome shared_object<Lazy>::unlock_shared(std::uint64_t serial) noexcept {
    const auto done = leave_batch(serial, true);
    if (done != release_outcome::not_held || serial == 0) return done;
    return end_continuation({.read = serial}, done);
}

// An exchange may end while the guard does: what it has become is looked for after each step.
template <class Lazy>
release_outcome shared_object<Lazy>::end_continuation(serials of, release_outcome done) noexcept {
    for (;;) {
        {
            const guard here(mutex_);
            of = continuations_.take(of);
        }
        if (!of) return done;
        done = of.write != 0 ? writers_->unlock(of.write) : leave_batch(of.read, true);
    }
}

}  // namespace distlock::engine
