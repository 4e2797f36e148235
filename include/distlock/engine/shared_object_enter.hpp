// How a thread comes to read: it joins a batch that has just entered, waits in one that is asked for,
// or asks for the next. And how a writer comes after readers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <distlock/base/error.hpp>
#include <distlock/detail/saturate.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/engine/acquire_after_releases.hpp>
#include <distlock/engine/acquire_step.hpp>
#include <distlock/engine/lock_core.hpp>
#include <distlock/engine/shared_object.hpp>
#include <distlock/engine/waiter_queue.hpp>

namespace distlock::engine {

template <class Lazy>
typename shared_object<Lazy>::result shared_object<Lazy>::ask_after_readers(time_point until,
                                                                            const manner& how,
                                                                            const std::stop_token& stop) {
    const auto readers = [this](std::size_t i) -> std::shared_ptr<lock_core> {
        const guard here(mutex_);
        return i < batches_.size() ? batches_[i]->core : nullptr;
    };
    return acquire_after_releases(readers, nullptr, until, how, stop,
                                  [&] { return writers_->acquire(until, how, stop); });
}

template <class Lazy>
typename shared_object<Lazy>::batch& shared_object<Lazy>::idle_batch(surplus<batch>& over) {
    const auto is_idle = [](const batch& one) { return one.now == phase::idle; };
    if (std::ssize(batches_) > most_idle) over.take(batches_, is_idle, [](const batch&) { return false; });
    for (const auto& one : batches_) {
        if (is_idle(*one)) return *one;
    }
    batches_.push_back(std::make_unique<batch>(make_lock_core(io_, dialect_, options_, observer_)));
    return *batches_.back();
}

template <class Lazy>
typename shared_object<Lazy>::result shared_object<Lazy>::enter_batch(time_point until, manner how,
                                                                      const std::stop_token& stop) {
    waiter_queue::waiter me(std::this_thread::get_id(), how.guarded);
    std::optional<std::stop_callback<recheck_on_stop>> on_stop;
    if (stop.stop_possible() && !how.once) on_stop.emplace(stop, recheck_on_stop{mutex_, me});
    const turn mine = wait_for_turn(me, until, how.once, stop);
    on_stop.reset();
    if (mine.asks == nullptr) return mine.told;
    how.once = how.once || mine.asks->at_last;
    how.failing_since = mine.failing_since;
    return ask(*mine.asks, until, how, stop);
}

template <class Lazy>
typename shared_object<Lazy>::turn shared_object<Lazy>::wait_for_turn(waiter_queue::waiter& me,
                                                                      time_point until, bool once,
                                                                      const std::stop_token& stop) {
    surplus<batch> too_many;
    guard here(mutex_);
    make_room();
    const bool waits = !once && until == time_point::max();
    if (joined_ != nullptr && joined_->now == phase::open && may_join(*joined_)) {
        if (!waits || successor_ != nullptr || !ends_soon(*joined_))
            return {.told = let_in(*joined_, me.thread, me.guarded)};
        successor_ = &begin_asking(too_many);
        return {.asks = successor_};
    }
    if (successor_ != nullptr) joined_ = std::exchange(successor_, nullptr);
    if (once || joined_ == nullptr || joined_->now != phase::asking) {
        batch& mine = begin_asking(too_many);
        if (!once) joined_ = &mine;
        return {.asks = &mine};
    }
    batch* in = joined_;
    in->members.join(me);
    ++expected_;
    for (const auto came = time_.now();;) {
        // Once it was told, the batch may be gone.
        const bool told = me.dequeued();
        const bool over = !told && !in->at_last && until != time_point::max() && time_.now() >= until;
        if (!told && (over || stop.stop_requested())) {
            in->members.leave(me);
            --expected_;
            if (stop.stop_requested()) return {.told = writers_->acquire(until, {}, stop)};  // says so
            // Only the server knows whether "somebody else has it" is true. One thread asks for all whose
            // time is up, and who were there when it asked.
            if (last_look_ == nullptr || last_look_->at_last < came) {
                last_look_ = &begin_asking(too_many);
                last_look_->at_last = time_.now();
                return {.asks = last_look_};
            }
            in = last_look_;
            in->members.join(me);
            ++expected_;
        }
        const auto longest = me.prepare_sleep(told || in->at_last ? time_point::max() : until, time_);
        here.unlock();
        me.sleep(longest);
        const wake why = me.reason();
        if (why == wake::granted) return {.told = {.serial = me.serial, .fence = me.fence}};
        if (why == wake::told) return {.told = answer(me.cause)};
        here.lock();
        if (why != wake::go_remote) continue;
        const auto since = in->last_error == errc{} ? time_point::max() : std::max(came, in->failing_since);
        if (!out_of_patience(options_.patience, since, time_.now()))
            return {.asks = in, .failing_since = since};
        const errc cause = in->last_error;
        end_asking(*in);
        return {.told = failed(cause)};
    }
}

template <class Lazy>
typename shared_object<Lazy>::result shared_object<Lazy>::ask(batch& mine, time_point until, manner how,
                                                              const std::stop_token& stop) {
    result got;
    try {
        // Whichever thread comes last ends it.
        got = mine.core->acquire(
            until, {how.once, true, how.in_exchange_for, how.together, how.failing_since}, stop);
    } catch (...) {
        const guard here(mutex_);
        mine.last_error = {};
        end_asking(mine);
        throw;
    }
    waiter_queue to_wake;
    {
        const guard here(mutex_);
        if (got.granted()) {
            got = open(mine, got, how.guarded, to_wake);
        } else {
            end_in_vain(mine, got, to_wake);
        }
    }
    while (!to_wake.empty()) {
        auto& next = *to_wake.first();
        to_wake.leave(next);
        next.wake_up();
    }
    return got;
}

template <class Lazy>
void shared_object<Lazy>::end_in_vain(batch& mine, const result& got, waiter_queue& to_wake) noexcept {
    // That the time of one was up, or that it was stopped, says nothing of the server.
    if (got.cause != errc::cancelled) {
        mine.last_error = got.cause;
        mine.failing_since = std::min(got.failing_since, time_.now());
    } else if (got.failing_since == time_point::max()) {
        mine.last_error = {};  // the server answered meanwhile
    }
    while (mine.at_last && got.cause != errc::cancelled && !mine.members.empty()) {
        auto& next = mine.members.dequeue(wake::told);
        --expected_;
        next.cause = got.without_ttl ? errc::holder_without_ttl : got.cause;
        to_wake.join(next);
    }
    end_asking(mine);
}

template <class Lazy>
typename shared_object<Lazy>::result shared_object<Lazy>::open(batch& mine, const result& got, bool guarded,
                                                               waiter_queue& to_wake) noexcept {
    mine.now = phase::open;
    mine.used = false;
    mine.serial = got.serial;
    mine.fence = got.fence;
    const auto now = time_.now();
    mine.joins_until = distlock::detail::saturating_add(now, joining_time(options_));
    mine.least = (mine.until() - now) / 2;
    const bool succeeds = successor_ == &mine;
    if (succeeds) successor_ = nullptr;
    if (last_look_ == &mine) last_look_ = nullptr;
    if (joined_ == nullptr || succeeds) joined_ = &mine;
    --expected_;
    const auto told = let_in(mine, std::this_thread::get_id(), guarded);
    while (!mine.members.empty()) {
        auto& next = mine.members.dequeue(wake::granted);
        --expected_;
        next.serial = let_in(mine, next.thread, next.guarded).serial;
        next.fence = mine.fence;
        to_wake.join(next);
    }
    return told;
}

}  // namespace distlock::engine
