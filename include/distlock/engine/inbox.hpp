// The messages that a lock object may get: its place among the listeners of its connection.
//
//   class inbox {
//     listener* expect(const token& owner) noexcept;
//         // messages for this token from now on, and for no other
//     listener* get() noexcept;
//     void forget() noexcept;                             // once a release by the token was sent
//   };
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/leaked_in_child.hpp>
#include <distlock/engine/acquire_step.hpp>
#include <distlock/engine/background_io.hpp>
#include <distlock/engine/background_release.hpp>
#include <distlock/net/any_connection.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/wire/any_dialect.hpp>
#include <distlock/wire/outcome.hpp>

namespace distlock::engine {

/// Returns: how waiters learn over such a connection that the lock is free.
inline waiting_manner manner_of_waiting(const any_connection& connection, const any_dialect& dialect) {
    if (!connection.can.subscribe) return waiting_manner::polls;
    if (dialect.hands_over()) return waiting_manner::queues;
    return dialect.channel() ? waiting_manner::woken : waiting_manner::polls;
}

/// The token of the present attempt or acquisition of one lock object. A hand-over to it that
/// comes while nobody waits is kept: a message for a token without a listener is answered with a
/// release. Not thread-safe.
class inbox {
  public:
    inbox(std::shared_ptr<background_io> io, std::shared_ptr<const any_dialect> dialect)
        : io_(std::move(io)),
          dialect_(std::move(dialect)),
          waits_(manner_of_waiting(io_->connection(), *dialect_)) {}
    inbox(const inbox&) = delete;
    inbox& operator=(const inbox&) = delete;

    listener* get() noexcept { return listener_.get() ? &*listener_.get() : nullptr; }
    subscription* source() const noexcept { return subscription_.get(); }
    /// Returns: where hand-overs are told; null: nowhere.
    std::shared_ptr<subscription> of_queue() const noexcept {
        return waits_ == waiting_manner::queues ? subscription_ : nullptr;
    }

    /// Returns: whether messages arrive, as far as is known.
    bool in_force() const noexcept { return subscription_ && subscription_->in_force(); }
    /// Returns: whether they are to be waited for: they never arrived, and that was not waited for as long as
    /// it may be. Those that have ceased may not be back for long.
    bool worth_waiting() const noexcept {
        return !refused() && subscription_->confirmations() == 0 && waited_ < longest_subscribing;
    }
    /// Returns: whether none is to be expected.
    bool refused() const noexcept { return !subscription_ || subscription_->refused(); }
    void waited(clock::duration span) noexcept { waited_ += span; }

    /// Effects: messages for `owner` are kept from now on. Waits for nothing.
    /// Returns: null when there is no memory for it, or no subscription: nobody hears then.
    listener* expect(const token& owner) noexcept {
        if (waits_ == waiting_manner::polls) return nullptr;
        const bool queues = waits_ == waiting_manner::queues;
        if (get() != nullptr && (owner_ == owner || !queues)) return get();
        forget();
        try {
            if (!subscription_)
                subscription_ = queues ? open() : io_->connection().subscribe(*dialect_->channel());
            if (!subscription_) return nullptr;
            owner_ = owner;
            listener_.get().emplace(subscription_, queues ? owner_.view() : std::string_view());
        } catch (...) {
            // Then the lock is found by looking.
        }
        return get();
    }

    void forget() noexcept { listener_.get().reset(); }

  private:
    [[gnu::cold]] std::shared_ptr<subscription> open() { return io_->messages(dialect_, leave_unclaimed); }

    // A lock that was handed over to a token that nobody here waits for. A question needs no answer.
    [[gnu::cold]] static void leave_unclaimed(background_io& io, const any_dialect& dialect,
                                              std::string_view text) {
        const auto given = dialect.read_message(text);
        if (!given || given->asks()) return;
        const auto now = io.time().now();
        auto lost = std::make_shared<background_release>(io, dialect.about(text));
        background_release::repeat(lost, given->owner,
                                   release(certainty::granted, now + clock::duration(given->ttl)), now,
                                   background_io::most_handed_over);
    }

    const std::shared_ptr<background_io> io_;
    const std::shared_ptr<const any_dialect> dialect_;
    const waiting_manner waits_;
    token owner_;
    std::shared_ptr<subscription> subscription_;
    distlock::detail::leaked_in_child<std::optional<listener>> listener_;  // another thread may have its hub
    clock::duration waited_{};
};

}  // namespace distlock::engine
