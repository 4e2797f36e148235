// How threads wait for messages, compiled once where a program asks for that.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/time_source.hpp>
#include <distlock/detail/saturate.hpp>
#include <distlock/detail/separate.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/detail/thread_safety.hpp>
#include <distlock/net/subscription.hpp>

namespace distlock {

DISTLOCK_INLINE void message_hub::wake(listener& one) noexcept {
    if (std::exchange(one.asleep_, false)) one.parker_.call(1);
}

DISTLOCK_INLINE void message_hub::rouse(listener& one) noexcept {
    if (leader_ == &one) return reader_->interrupt();
    wake(one);
}

DISTLOCK_INLINE void message_hub::wake_a_reader() noexcept {
    if (reader_ == nullptr || leader_ != nullptr) return;
    for (listener* one = first_; one != nullptr; one = one->next_) {
        if (one->asleep_) return wake(*one);
    }
}

DISTLOCK_INLINE void subscription::tell(bool listener::*news) noexcept {
    for (listener* one = hub_->first_; one != nullptr; one = one->next_) {
        if (one->on_.get() != this) continue;
        one->*news = true;
        message_hub::wake(*one);
    }
}

DISTLOCK_INLINE void subscription::confirm() noexcept {
    const detail::annotated_lock guard(hub_->lock_);
    in_force_ = true;
    refused_ = unanswered_ = false;
    ++confirmations_;
    tell(&listener::confirmed_);
}

DISTLOCK_INLINE void subscription::lapse() noexcept {
    const detail::annotated_lock guard(hub_->lock_);
    if (!in_force_.exchange(false)) return;
    // Their waits are shorter now.
    for (listener* one = hub_->first_; one != nullptr; one = one->next_) {
        if (one->on_.get() == this) message_hub::wake(*one);
    }
}

DISTLOCK_INLINE void subscription::refuse() noexcept {
    const detail::annotated_lock guard(hub_->lock_);
    be_refused();
}

DISTLOCK_INLINE void subscription::unanswered() noexcept {
    const detail::annotated_lock guard(hub_->lock_);
    if (confirmations_ == 0 && std::exchange(unanswered_, true)) be_refused();
}

DISTLOCK_INLINE void subscription::be_refused() noexcept {
    in_force_ = false;
    if (!refused_.exchange(true)) tell(&listener::refused_);
}

DISTLOCK_INLINE void subscription::deliver(std::string_view text) noexcept {
    std::shared_ptr<const handler> unclaimed;
    {
        const detail::annotated_lock guard(hub_->lock_);
        bool claimed = false;
        for (listener* one = hub_->first_; one != nullptr; one = one->next_) {
            if (one->on_.get() != this || !text.starts_with(one->key_)) continue;
            claimed = one->message_ = true;
            one->kept_size_ = text.size() <= one->kept_.size() ? text.size() : 0;
            std::copy_n(text.begin(), one->kept_size_, one->kept_.begin());
            message_hub::wake(*one);
        }
        if (!claimed) unclaimed = unclaimed_;
    }
    if (!unclaimed) return;
    try {
        unclaimed->handle(text);
    } catch (...) {
        // Without memory nothing is done about it: what was offered ends by itself.
    }
}

DISTLOCK_INLINE listener::listener(std::shared_ptr<subscription> on, std::string_view key) noexcept
    : on_(std::move(on)), key_(key) {
    message_hub& hub = *on_->hub_;
    const detail::annotated_lock guard(hub.lock_);
    next_ = hub.first_;
    if (next_ != nullptr) next_->previous_ = this;
    hub.first_ = this;
}

DISTLOCK_INLINE listener::~listener() {
    message_hub& hub = *on_->hub_;
    const detail::annotated_lock guard(hub.lock_);
    (previous_ != nullptr ? previous_->next_ : hub.first_) = next_;
    if (next_ != nullptr) next_->previous_ = previous_;
}

DISTLOCK_INLINE listener::woken listener::wait(clock::time_point until, const std::stop_token& stop,
                                               time_source time, clock::duration unheard,
                                               clock::time_point patience) noexcept {
    message_hub& hub = *on_->hub_;
    const auto on_stop = [this, &hub]() noexcept {
        const detail::annotated_lock guard(hub.lock_);
        hub.rouse(*this);
    };
    // Made before the lock is taken, and ended after it was released: both may have to wait for the call.
    std::optional<std::stop_callback<decltype(on_stop)>> callback;
    if (stop.stop_possible()) callback.emplace(stop, on_stop);

    constexpr auto never = clock::time_point::max();
    auto unheard_until = never;
    auto by = until;
    const auto ended = [&](woken& why) {
        if (std::exchange(message_, false)) {
            taken_ = kept_;
            taken_size_ = kept_size_;
            why = woken::by_message;
        } else if (std::exchange(confirmed_, false)) {
            why = woken::by_confirmation;
        } else if (std::exchange(refused_, false)) {
            why = woken::by_refusal;
        } else if (stop.stop_requested()) {
            why = woken::by_stop;
        } else {
            const auto now = time.now();
            if (!on_->in_force() && unheard_until == never)
                unheard_until = detail::saturating_add(now, unheard);
            by = std::min(until, unheard_until);
            if (now < by) return false;
            why = woken::by_time;
        }
        return true;
    };
    detail::annotated_lock guard(hub.lock_);
    for (;;) {
        if (woken why{}; ended(why)) {
            hub.wake_a_reader();
            return why;
        }
        // A stop request that ended() did not see finds this one as the leader, or asleep.
        if (hub.reader_ != nullptr && hub.leader_ == nullptr) {
            hub.leader_ = this;
            const auto real = [&](clock::time_point at) {
                return time.is_real() ? at : clock::now() + time.slice(at);
            };
            hub.reading_until_ = real(std::max(until, patience));
            guard.unlock();
            hub.reader_->read(real(by));
            guard.lock();
            hub.leader_ = nullptr;
        } else {
            parker_.rest();
            asleep_ = true;
            guard.unlock();
            parker_.sleep(time.slice(by));
            guard.lock();
            asleep_ = false;
        }
    }
}

}  // namespace distlock
