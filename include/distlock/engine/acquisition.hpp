// One grant, from the grant to its end: for how long it may be believed, who holds it, and who
// is told of its loss.
//
//   struct holder { thread, serial, fence, guarded };
//   class acquisition {
//     acquisition(std::size_t lock, const grant&, const lease_terms&, const holder&, time_point late_until);
//     const token& owner() const;  const holder& held_by() const;  const renewal& lease() const;
//     void observe(...);                                       // a lease_observer is told of the loss
//     std::stop_token lost(callback_pool&, time_point now);    // is stopped by the loss
//     bool has_listeners() const;
//     bool notify_loss(callback_pool&, time_point now);        // if it is lost
//     renewal::news on_renewal(const renew_outcome&, time_point sent, time_point now);
//     bool on_master_change(time_point at);
//     void ask_why(background_io&, dialect, now);              // before an observer is told of a loss
//     void pass(const holder&, const renewal&);                // to another thread of the process
//   };
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/observer.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/engine/action.hpp>
#include <distlock/engine/background_io.hpp>
#include <distlock/engine/callback_pool.hpp>
#include <distlock/engine/renewal.hpp>
#include <distlock/wire/any_dialect.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock::engine {

/// A thread's claim to an acquisition.
struct holder {
    std::thread::id thread;
    /// Tells acquisitions apart, of whatever lock object: threads pass on what was granted.
    std::uint64_t serial = 0;
    std::uint64_t fence = 0;
    bool guarded = false;  ///< a guard ends it, by its serial
};

/// Not thread-safe: used under the mutex of the lock object. Runs no code of the user itself.
class acquisition {
    using time_point = clock::time_point;

  public:
    /// Within it an observer is told of a loss, whatever becomes of the question why.
    static constexpr std::chrono::seconds longest_question{1};

    /// `lock`: what tells its lock from others. `late_until`: until then an earlier request by the
    /// same token may still arrive.
    [[gnu::noinline]] acquisition(std::size_t lock, const grant& got, const lease_terms& terms,
                                  const holder& by, time_point late_until)
        : lock_(lock),
          owner_(got.token),
          lease_(terms, got.ttl, got.sent, got.came, seed_of(got.token, 1)),
          by_(by),
          granted_serial_(by.serial),
          granted_fence_(by.fence),
          granted_at_(got.came),
          late_until_(late_until) {}

    [[gnu::noinline]] acquisition(acquisition&&) noexcept = default;
    [[gnu::noinline]] acquisition& operator=(acquisition&&) noexcept = default;
    [[gnu::noinline]] ~acquisition() = default;

    const token& owner() const noexcept { return owner_; }
    const renewal& lease() const noexcept { return lease_; }
    const holder& held_by() const noexcept { return by_; }
    /// Returns: the serial that it was granted under: tells what the server granted apart.
    std::uint64_t granted_serial() const noexcept { return granted_serial_; }
    /// Returns: the fence that the server gave it; those of later holders in this process follow it.
    std::uint64_t granted_fence() const noexcept { return granted_fence_; }
    time_point granted_at() const noexcept { return granted_at_; }
    time_point late_until() const noexcept { return late_until_; }

    /// Effects: `observer` is told of the loss.
    /// Throws: std::system_error, std::bad_alloc.
    [[gnu::cold]] void observe(std::shared_ptr<lease_observer> observer, const std::string& name,
                               callback_pool& callbacks) {
        on_loss_ =
            std::make_unique<tell_of_loss>(std::make_shared<loss_notice>(std::move(observer), name, owner_));
        callbacks.reserve_thread();
    }

    /// Returns: a token that is stopped by the loss; the same for every call by one holder.
    /// Throws: std::system_error, std::bad_alloc.
    std::stop_token lost(callback_pool& callbacks, time_point now) {
        // The answer must be true now, and not when a thread got round to it.
        if (notify_loss(callbacks, now))
            return stop_.stop_requested() ? stop_.get_token() : distlock::detail::stopped_token();
        if (!stop_.stop_possible()) {
            std::stop_source source;
            auto made = std::make_unique<request_stop>(source);
            callbacks.reserve_thread();
            stop_ = std::move(source);
            on_stop_ = std::move(made);
        }
        return stop_.get_token();
    }

    bool has_listeners() const noexcept { return on_stop_ || on_loss_; }

    /// Effects: if it is lost, those who asked are told, once.
    /// Returns: whether it is lost.
    [[gnu::noinline]] bool notify_loss(callback_pool& callbacks, time_point now) noexcept {
        const auto why = lease_.lost(now);
        if (!why) return false;
        if (on_stop_) tell(callbacks, std::move(on_stop_), true);
        if (on_loss_) {
            on_loss_->why = *why;
            tell(callbacks, std::move(on_loss_), true);
        }
        return true;
    }

    renewal::news on_renewal(const renew_outcome& outcome, time_point sent, time_point now) noexcept {
        return lease_.on_outcome(outcome, sent, now);
    }

    /// Effects and Returns: as renewal::on_master_change().
    [[gnu::cold]] bool on_master_change(time_point at) noexcept { return lease_.on_master_change(at); }

    /// Preconditions: it is lost, since the server says that the lock is not ours.
    /// Effects: unless the observer was told already, the background asks the server whether an operator took
    /// the lock, and tells the observer then, or after longest_question.
    [[gnu::cold]] void ask_why(background_io& io, const any_dialect& dialect, time_point now) noexcept {
        if (!on_loss_) return;
        try {
            auto asks = std::make_shared<question>(dialect, on_loss_->notice, about(true),
                                                   lease_.lost(now).value(), io);
            io.deadlines().schedule(*asks, now + longest_question);
            if (io.adopt(std::move(asks), now, background_io::most_questions)) on_loss_.reset();
        } catch (...) {
            // No memory for the question: the observer is told without.
        }
    }

    /// Effects: `observer` is told that a renewal failed.
    [[gnu::cold]] void warn(std::shared_ptr<lease_observer> observer, const std::string& name,
                            callback_pool& callbacks, time_point now) const noexcept {
        try {
            tell(callbacks, std::make_unique<tell_of_risk>(std::move(observer), name, lease_.until() - now),
                 false);
        } catch (...) {
            // No memory for a warning; a loss has its own.
        }
    }

    /// Effects: `observer` is told that another server took the place of the master.
    [[gnu::cold]] void tell_master_changed(std::shared_ptr<lease_observer> observer, const std::string& name,
                                           callback_pool& callbacks) const noexcept {
        try {
            tell(callbacks, std::make_unique<tell_of_master>(std::move(observer), name), false);
        } catch (...) {
            // As above.
        }
    }

    /// Effects: a guard ends it. Returns: by whom it is held.
    [[gnu::cold]] const holder& adopt() noexcept {
        by_.guarded = true;
        return by_;
    }

    /// Effects: another thread has it now, by the same grant, with `lease`.
    void pass(const holder& to, const renewal& lease) noexcept {
        lease_ = lease;
        by_ = to;
        if (to.fence != 0) owner_.fence(to.fence);
        stop_ = std::stop_source(std::nostopstate);
        on_stop_.reset();
    }

  private:
    struct request_stop final : callback {
        explicit request_stop(std::stop_source of) : callback(true), source(std::move(of)) {}
        [[gnu::cold]] void run() override { source.request_stop(); }
        std::stop_source source;
    };
    struct tell_of_risk final : callback {
        tell_of_risk(std::shared_ptr<lease_observer> whom, std::string of, clock::duration for_so_long)
            : observer(std::move(whom)), name(std::move(of)), left(for_so_long) {}
        [[gnu::cold]] void run() override { observer->at_risk(name, left); }
        std::shared_ptr<lease_observer> observer;
        std::string name;
        clock::duration left;
    };
    struct tell_of_master final : callback {
        tell_of_master(std::shared_ptr<lease_observer> whom, std::string of)
            : observer(std::move(whom)), name(std::move(of)) {}
        [[gnu::cold]] void run() override { observer->master_changed(name); }
        std::shared_ptr<lease_observer> observer;
        std::string name;
    };
    // Tells an observer once.
    struct loss_notice {
        loss_notice(std::shared_ptr<lease_observer> whom, std::string of, const token& by)
            : observer(std::move(whom)), name(std::move(of)), owner(by) {}
        void tell(loss_reason why) {
            if (!told.exchange(true)) observer->lost(name, why);
        }
        const std::shared_ptr<lease_observer> observer;
        const std::string name;
        const token owner;
        std::atomic<bool> told{false};
    };
    struct tell_of_loss final : callback {
        explicit tell_of_loss(std::shared_ptr<loss_notice> what, loss_reason of = loss_reason::expired)
            : notice(std::move(what)), why(of) {}
        [[gnu::cold]] void run() override { notice->tell(why); }
        const std::shared_ptr<loss_notice> notice;
        loss_reason why;
    };

    // Asks the server whether an operator took the lock. No thread waits for the answer but the one that
    // renews, and the observer not for long: the lock object may be gone by then.
    class question final : public background_task, public deadline {
      public:
        [[gnu::cold]] question(const any_dialect& dialect, const std::shared_ptr<loss_notice>& notice,
                               const subject& about, loss_reason why, background_io& io)
            : asked_(dialect.forced(notice->name)),
              io_(io),
              tells_(std::make_unique<tell_of_loss>(notice, why)),
              tells_late_(std::make_unique<tell_of_loss>(notice, why)) {
            tells_->about = tells_late_->about = about;
        }
        [[gnu::cold]] ~question() override {
            io_.deadlines().cancel(static_cast<deadline&>(*this));
            if (tells_) io_.callbacks().post(std::move(tells_));
        }

        [[gnu::cold]] background_task::step begin(time_point now) noexcept override {
            command ask = asked_->forced();
            ask.until(now + longest_question);
            return {ask, {}};
        }
        [[gnu::cold]] time_point end(const reply& answer, time_point, time_point) noexcept override {
            if (asked_->was_forced(answer, tells_->notice->owner)) tells_->why = loss_reason::forced;
            io_.callbacks().post(std::move(tells_));
            return time_point::max();
        }
        [[gnu::cold]] time_point on_deadline(time_point) noexcept override {
            io_.callbacks().post(std::move(tells_late_));
            return time_point::max();
        }

      private:
        const std::unique_ptr<const any_forced_question> asked_;
        background_io& io_;  // outlives what it has adopted
        std::unique_ptr<tell_of_loss> tells_;
        std::unique_ptr<tell_of_loss> tells_late_;
    };

    subject about(bool lost) const noexcept { return {lock_, by_.serial, lost}; }
    void tell(callback_pool& callbacks, std::unique_ptr<callback> what, bool lost) const noexcept {
        what->about = about(lost);
        callbacks.post(std::move(what));
    }

    std::size_t lock_;
    token owner_;
    renewal lease_;
    holder by_;
    std::uint64_t granted_serial_;
    std::uint64_t granted_fence_;
    time_point granted_at_;
    time_point late_until_;
    std::stop_source stop_{std::nostopstate};  // once somebody asked for its token
    std::unique_ptr<request_stop> on_stop_;    // until it was lost
    std::unique_ptr<tell_of_loss> on_loss_;
};

}  // namespace distlock::engine
