// Messages that the server publishes on a channel, and the threads of this process that wait for them.
//
//   class message_reader { virtual void read(until); virtual void interrupt(); virtual void reconnect(); };
//   class message_hub    { explicit message_hub(message_reader* = nullptr); };
//   class subscription   { subscription(channel, std::shared_ptr<message_hub>); confirm(); lapse(); ... };
//   class listener       { listener(subscription&, key); woken wait(until, stop, time, ...); ... };
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/time_source.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/detail/system.hpp>
#include <distlock/detail/thread_safety.hpp>

namespace distlock {

/// A connection whose messages are read by the threads that wait for them: one of them at a time reads for
/// all, and nobody when nobody waits. A connection with a thread of its own that reads has none.
class message_reader {
  public:
    /// Effects: reads what comes and delivers it to its subscription. Returns when something was delivered or
    /// confirmed, or has lapsed, when `until` is reached, or after interrupt(); sooner if it likes, but it
    /// never returns again and again for a failure that lasts. Connects and subscribes where it must. While
    /// messages do not arrive `until` is near, again and again: see message_hub::reading_until().
    /// Preconditions: no other thread is in read().
    virtual void read(clock::time_point until) noexcept = 0;
    /// Effects: a read() that goes on, or else the next one, returns at once. From any thread; does not wait,
    /// and calls nothing of a hub or a subscription.
    virtual void interrupt() noexcept = 0;
    /// Effects: the present socket is not trusted any more: the next read() subscribes on a new one before it
    /// closes that. From any thread; does not wait.
    virtual void reconnect() noexcept = 0;

  protected:
    ~message_reader() = default;

    /// Messages that are heard before others are seen to: a server that talks without end must not hold the
    /// thread that reads.
    static constexpr int most_at_once = 256;
    static constexpr std::chrono::seconds silence{3};        ///< before the server is asked whether it lives
    static constexpr std::chrono::seconds refused_pause{2};  ///< before what it refused is asked again
    static constexpr std::chrono::seconds slice{1};  ///< the system's timers pause while it is suspended
};

class subscription;

/// One thread that waits for messages on a subscription: from its construction on, whatever begins with its
/// key is kept for it. An empty key is the beginning of every message.
class listener {
  public:
    enum class woken {
        by_message,       ///< see message()
        by_confirmation,  ///< the subscription is in force (again): messages may have been lost until now
        by_refusal,       ///< the server does not let the connection subscribe
        by_stop,
        by_time,
    };
    /// A longer message wakes the thread, but is not kept: its end may tell for which lock it is.
    static constexpr std::size_t longest_message = 256;

    /// `key` must outlive the listener.
    listener(std::shared_ptr<subscription> on, std::string_view key) noexcept;
    listener(const listener&) = delete;
    listener& operator=(const listener&) = delete;
    ~listener();

    /// Effects: waits until there is a message, a confirmation or a refusal that was not returned yet, `stop`
    /// is requested, it is `until`, or the subscription was not in force for all of the last `unheard`, in
    /// this wait. Meanwhile it may be this thread that reads for all others, too: then it returns as late as
    /// `patience`, where it opens a socket. Allocates nothing itself.
    /// Returns: the first of these that holds. Of several messages only the last is returned.
    /// Preconditions: one thread at a time.
    woken wait(clock::time_point until, const std::stop_token& stop, time_source time = {},
               clock::duration unheard = clock::duration::max(),
               clock::time_point patience = clock::time_point::min()) noexcept;

    /// Returns: the last message, empty where it is longer than longest_message; until the next wait().
    std::string_view message() const noexcept { return {taken_.data(), taken_size_}; }

  private:
    friend class message_hub;
    friend class subscription;

    const std::shared_ptr<subscription> on_;
    const std::string_view key_;
    detail::parker parker_;
    listener* next_ = nullptr;
    listener* previous_ = nullptr;
    bool asleep_ = false;
    bool message_ = false;
    bool confirmed_ = false;
    bool refused_ = false;
    std::array<char, longest_message> kept_{};
    std::size_t kept_size_ = 0;
    std::array<char, longest_message> taken_{};
    std::size_t taken_size_ = 0;
};

/// What the subscriptions of one connection share. Thread-safe.
class message_hub {
  public:
    /// `reader`: null: somebody else's thread reads. It must outlive every wait.
    explicit message_hub(message_reader* reader = nullptr) noexcept : reader_(reader) {}
    message_hub(const message_hub&) = delete;
    message_hub& operator=(const message_hub&) = delete;

    /// Returns: whether anybody has a listener, be it that it waits at this moment or not.
    bool awaited() const noexcept {
        const detail::annotated_lock guard(lock_);
        return first_ != nullptr;
    }

    /// Returns: in read(): until when the thread that reads may be kept. The `until` of read() may be sooner:
    /// then the thread re-checks the lock. A read() that opens a socket may return as late as this, since
    /// giving up at `until` would lose the attempt.
    clock::time_point reading_until() const noexcept {
        const detail::annotated_lock guard(lock_);
        return reading_until_;
    }

  private:
    friend class listener;
    friend class subscription;

    static void wake(listener& one) noexcept;
    // Effects: that listener stops sleeping, or reading.
    void rouse(listener& one) noexcept DISTLOCK_REQUIRES(lock_);
    void wake_a_reader() noexcept DISTLOCK_REQUIRES(lock_);

    mutable detail::annotated_mutex lock_;
    message_reader* const reader_;
    listener* leader_ DISTLOCK_GUARDED_BY(lock_) = nullptr;  // the one that reads for all
    listener* first_ DISTLOCK_GUARDED_BY(lock_) = nullptr;
    clock::time_point reading_until_ DISTLOCK_GUARDED_BY(lock_){};
};

/// One channel, for as long as somebody has it. The connection confirms it when the server has, at first and
/// after each socket that broke, and delivers what is published on it. Thread-safe.
class subscription {
  public:
    explicit subscription(std::string channel,
                          std::shared_ptr<message_hub> hub = std::make_shared<message_hub>())
        : channel_(std::move(channel)), hub_(std::move(hub)) {}

    const std::string& channel() const noexcept { return channel_; }

    /// Returns: how often the server has confirmed it.
    std::uint64_t confirmations() const noexcept { return confirmations_.load(); }

    /// Returns: whether messages arrive, as far as is known: it was confirmed, and has not lapsed since.
    bool in_force() const noexcept { return in_force_.load(); }

    /// Returns: whether the server refused it, the last time it was asked.
    bool refused() const noexcept { return refused_.load(); }

    /// Effects: subscribes on a new socket, where the connection can: for a caller to whom messages do not
    /// arrive.
    void reconnect() noexcept {
        if (hub_->reader_ != nullptr) hub_->reader_->reconnect();
    }

    /// Effects: `unclaimed(std::string_view)` is called, by whichever thread delivers it, with every message
    /// that no listener is there for. It must not wait. Only the first one counts.
    template <class F>
    [[gnu::cold]] void on_unclaimed(F unclaimed) {
        struct handler_of final : handler {
            explicit handler_of(F f) : call(std::move(f)) {}
            void handle(std::string_view text) const override { call(text); }
            const F call;
        };
        auto made = std::make_shared<const handler_of>(std::move(unclaimed));
        const detail::annotated_lock guard(hub_->lock_);
        if (!unclaimed_) unclaimed_ = std::move(made);
    }

    /// Called by the connection each time the server has confirmed the subscription.
    void confirm() noexcept;
    /// Called by the connection when its socket broke, or is not trusted any more; the next confirm() puts
    /// the subscription in force again. Wakes its waiters, so that they re-check the lock sooner. It does not
    /// wake the thread in read(): read() must return after this call. The caller must hold no lock that
    /// interrupt() takes.
    void lapse() noexcept;
    /// Called by the connection when the server refused to subscribe: a waiter takes a ticket then that is
    /// served without a message, and looks for the lock.
    void refuse() noexcept;
    /// Called by the connection when its socket ended, or was silent, before the server answered. Twice in a
    /// row, of one that was never confirmed, that is a refusal: once may be a socket that broke.
    void unanswered() noexcept;
    /// Called by the connection for each message on the channel.
    void deliver(std::string_view text) noexcept;

  private:
    friend class listener;

    // Effects: each of its listeners is woken, and finds that flag set.
    void tell(bool listener::*news) noexcept DISTLOCK_REQUIRES(hub_->lock_);
    void be_refused() noexcept DISTLOCK_REQUIRES(hub_->lock_);

    // As std::function, whose header costs every user compile time.
    struct handler {
        virtual ~handler() = default;
        virtual void handle(std::string_view text) const = 0;
    };

    const std::string channel_;
    const std::shared_ptr<message_hub> hub_;
    std::atomic<std::uint64_t> confirmations_{0};
    std::atomic<bool> in_force_{false};
    std::atomic<bool> refused_{false};
    bool unanswered_ DISTLOCK_GUARDED_BY(hub_->lock_) = false;  // the last time
    std::shared_ptr<const handler> unclaimed_ DISTLOCK_GUARDED_BY(hub_->lock_);
};

}  // namespace distlock

#ifndef DISTLOCK_SEPARATE_COMPILATION
#include <distlock/net/subscription_impl.hpp>
#endif
