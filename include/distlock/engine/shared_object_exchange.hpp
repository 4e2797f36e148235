// How a reader becomes the writer, and the writer a reader, in one step of the server. A guard of
// the one ends the other, which would else be held for ever.
#pragma once

#include <cstdint>
#include <thread>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/engine/lock_core.hpp>
#include <distlock/engine/reader_holds.hpp>
#include <distlock/engine/shared_object.hpp>
#include <distlock/wire/outcome.hpp>

namespace distlock::engine {

template <class Lazy>
typename shared_object<Lazy>::result shared_object<Lazy>::downgrade(const std::stop_token& stop) {
    if (in_forked_child() || stop.stop_requested()) return writers_->acquire(time_point::max(), {}, stop);
    const exchange of = writers_->begin_exchange();
    result got;
    if (of.from.empty()) {
        // A thread that had it and lost it owes no unlock() any more.
        if (const auto lost = writers_->adopt(); lost.serial != 0) writers_->unlock(lost.serial);
        return got;
    }
    try {
        batch& mine = begin_asking_alone();
        got = ask(mine, time_point::max(), {.once = true, .in_exchange_for = &of.from}, stop);
    } catch (...) {
        writers_->surrender(of);
        throw;
    }
    // The token is released even so: an answer may have been lost.
    writers_->surrender(of);
    if (got.serial == 0) return got;
    const guard here(mutex_);
    origin was{.write = of.guarded ? of.serial : 0};
    if (const upgraded came = forget_upgraded(of.serial); came.serial != 0) was = came.was;
    if (const auto* const reads = holds_.find(got.serial)) holds_.set_origin(*reads, was);
    return got;
}

// Where nobody knows what the server did, the reader may have become the writer, and is neither.
template <class Lazy>
typename shared_object<Lazy>::result shared_object<Lazy>::try_upgrade(const std::stop_token& stop) {
    if (in_forked_child() || stop.stop_requested()) return writers_->acquire(time_point::max(), {}, stop);
    batch* mine = nullptr;
    upgraded to;
    std::uint64_t serial = 0;
    exchange of;
    {
        const guard here(mutex_);
        const auto* const me = holds_.newest();
        if (me == nullptr) return {};
        mine = me->in;
        serial = me->serial;
        if (mine->readers > 1 || mine->now != phase::open) return {};
        upgraded_.reserve(upgraded_.size() + batches_.size());  // a grant must not fail for want of memory
        of = mine->core->begin_exchange(mine->serial);
        if (of.from.empty()) return {};
        to.was = me->guarded ? origin{.read = serial} : me->was;
        to.by = std::this_thread::get_id();
        mine->now = phase::exchanging;
        if (joined_ == mine) joined_ = nullptr;
    }
    result got;
    bool known = false;
    try {
        const manner how{.once = true, .guarded = bool(to.was), .in_exchange_for = &of.from};
        got = ask_after_readers(time_point::max(), how, stop);
        known = got.serial == 0 && got.cause == errc{};
    } catch (...) {
        end_upgrade(*mine, serial, of, false, to);
        throw;
    }
    if (to.was) to.serial = got.serial;
    end_upgrade(*mine, serial, of, known, to);
    return got;
}

template <class Lazy>
void shared_object<Lazy>::end_upgrade(batch& mine, std::uint64_t serial, const exchange& of, bool reads_on,
                                      const upgraded& to) noexcept {
    if (reads_on) {
        mine.core->end_exchange(of);
    } else {
        mine.core->surrender(of);
    }
    {
        const guard here(mutex_);
        const auto* const reader = holds_.find(serial);
        if (reads_on && reader != nullptr) {
            mine.now = phase::open;
            return;
        }
        if (reader != nullptr) holds_.remove(*reader);
        if (to.serial != 0) upgraded_.push_back(to);
        mine.readers = 0;
        mine.now = reads_on ? phase::releasing : phase::idle;
    }
    if (reads_on) release(mine, mine.used);
}

template <class Lazy>
release_outcome shared_object<Lazy>::unlock(std::uint64_t serial) noexcept {
    if (in_forked_child()) return release_outcome::wrong_process;
    const auto done = end_continuation({.write = serial});
    return done != release_outcome::not_held ? done : writers_->unlock(serial);
}

template <class Lazy>
release_outcome shared_object<Lazy>::unlock_shared(std::uint64_t serial) noexcept {
    const auto done = leave_batch(serial, true);
    if (done != release_outcome::not_held || serial == 0) return done;
    return end_continuation({.read = serial});
}

template <class Lazy>
release_outcome shared_object<Lazy>::end_continuation(const origin& was) noexcept {
    std::uint64_t reads = 0;
    std::uint64_t writes = 0;
    {
        const guard here(mutex_);
        const continuation now = continuation_of(was);
        if (now.reads != nullptr) reads = now.reads->serial;
        writes = now.writes;
        forget_upgraded(writes);
    }
    if (reads != 0) return leave_batch(reads, true);
    if (writes == 0) return release_outcome::not_held;
    return writers_->unlock(writes);
}

}  // namespace distlock::engine
