// The socket of a connection on which its messages come, read by the threads that wait for them.
//
//   struct upkeep { virtual void keep_up() = 0;  virtual milliseconds keep_up_every() const; };
//   struct stream_source { virtual std::unique_ptr<stream> connect(deadline, stop_fd) = 0; };
//   class subscriber : public message_reader {
//     subscriber(stream_source&, connect_timeout, command_timeout, upkeep&);
//     std::shared_ptr<subscription> subscribe(std::string_view channel);
//     void restart() noexcept;
//   };
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/detail/thread_safety.hpp>
#include <distlock/hiredis/channel_interest.hpp>
#include <distlock/hiredis/socket.hpp>
#include <distlock/hiredis/stream.hpp>
#include <distlock/net/connect_schedule.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/server_error.hpp>

namespace distlock::detail {

/// What a connection has to do from time to time: the thread that reads its messages does it.
struct upkeep {
    virtual void keep_up() = 0;
    /// Returns: about how often; a second at most.
    virtual std::chrono::milliseconds keep_up_every() const noexcept { return std::chrono::seconds{1}; }

  protected:
    ~upkeep() = default;
};

/// Where a connection's sockets come from.
struct stream_source {
    /// Returns: a new socket that nobody else uses; none when it is not to be had before `deadline`, or
    /// `stop_fd` can be read.
    virtual std::unique_ptr<stream> connect(clock::time_point deadline, int stop_fd) = 0;

  protected:
    ~stream_source() = default;
};

/// One socket for all subscriptions, opened by the first read(). It asks for messages by SUBSCRIBE and by
/// SSUBSCRIBE, which servers since 7.0 keep apart; one that knows no SSUBSCRIBE says so, and is not believed
/// to be broken. A request that was refused is asked again later: somebody may permit it. A socket
/// that was silent for three seconds is asked whether it lives, and replaced when it does not answer within
/// the command time-out. Sockets that fail are replaced after a pause, of 10 ms at first and of half a second
/// at last; an attempt may last as long as the pause after it.
class subscriber final : public message_reader {
  public:
    /// Both must outlive every read().
    [[gnu::cold]] subscriber(stream_source& sockets, std::chrono::milliseconds connect_timeout,
                             std::chrono::milliseconds command_timeout, upkeep& connection)
        : sockets_(sockets),
          connect_timeout_(connect_timeout),
          command_timeout_(command_timeout),
          connection_(connection),
          hub_(std::make_shared<message_hub>(this)) {}
    subscriber(const subscriber&) = delete;
    subscriber& operator=(const subscriber&) = delete;

    /// As take_interest().
    [[gnu::cold]] std::shared_ptr<subscription> subscribe(std::string_view channel) {
        const annotated_lock guard(lock_);
        auto [whose, is_new] = take_interest(interests_, channel, hub_);
        if (is_new) {
            to_send_ = true;
            // While the reader connects it is not disturbed: it sees this before it listens.
            if (listening_) wake_.set();
        }
        return std::move(whose);
    }

    void read(clock::time_point until) noexcept override {
        try {
            if (connect_if_due(until)) converse(until);
            if (const auto now = clock::now(); now >= upkeep_at_) {
                upkeep_at_ = now + connection_.keep_up_every();
                connection_.keep_up();
            }
        } catch (...) {
            replace_by(nullptr);  // memory or descriptors: there may be some later
        }
    }
    void interrupt() noexcept override { wake_.set(); }
    void reconnect() noexcept override {
        const annotated_lock guard(lock_);
        to_renew_ = true;
        if (listening_) wake_.set();
    }

    /// Effects: the server is not the right one any more: nothing is heard from it from now on, and the next
    /// read() subscribes on a new socket at once. From any thread; does not wait.
    [[gnu::cold]] void restart() noexcept {
        const annotated_lock guard(lock_);
        to_restart_ = true;
        for (const interest& one : interests_) {
            if (const auto whose = one.whose.lock()) whose->lapse();
        }
        if (current_) current_->shut_down();
        wake_.set();
    }

  private:
    using stage = channel_interest::stage;
    struct interest : channel_interest {
        std::uint64_t answer = 0;  // of this number confirms it

        bool due(clock::time_point now) const noexcept {
            return at == stage::unsent || (at == stage::refused && now >= next_time);
        }
    };
    struct request {
        bool begins;
        std::string channel;
    };

    static constexpr std::chrono::milliseconds busy_pause{50};  // before a busy server is asked again

    // Effects: opens a socket where there is none, or not the right one; without, waits
    // until it may try again.
    // Returns: whether there is one that was there before.
    [[gnu::cold]] bool connect_if_due(clock::time_point until) {
        // A read() that was to return does.
        if (restart_if_asked()) return false;
        const auto now = clock::now();
        {
            const annotated_lock guard(lock_);
            if (current_ && (!to_renew_ || !attempts_.due(now))) return true;
            listening_ = false;
        }
        // It was woken while it listened: that would break off the connect as soon as it begins.
        if (wake_.reset()) return false;
        if (!attempts_.due(now)) {
            wait_for(wake_, std::min(until, attempts_.next()));
            wake_.reset();
            return false;
        }
        begin_attempt(now);
        // A connect that is broken off begins anew: behind a slow link one of the next attempts lasts longer.
        const auto patient = std::max(until, std::min(hub_->reading_until(), attempts_.next()));
        auto fresh = sockets_.connect(std::min(patient, now + connect_timeout_), wake_.fd());
        if (fresh) {
            replace_by(std::move(fresh));
            return false;  // what was in force is not: the wait may be shorter now
        }
        const bool interrupted = wake_.reset();
        if (current_) reconnect();
        return current_ != nullptr && !interrupted;  // it is heard meanwhile
    }

    void begin_attempt(clock::time_point now) noexcept {
        const annotated_lock guard(lock_);
        to_renew_ = false;
        attempts_.begin(now);
    }

    // Effects: where the server is not the right one any more, ends both sockets. Returns: whether it was so.
    [[gnu::cold]] bool restart_if_asked() {
        {
            const annotated_lock guard(lock_);
            if (!std::exchange(to_restart_, false)) return false;
            to_renew_ = false;
        }
        replace_by(nullptr);
        previous_.reset();
        attempts_ = {};
        return true;
    }

    // Effects: says to the server what is to be said, waits for what it says, and hears what has come by
    // then: a waiter looks once for all that came while nobody read.
    void converse(clock::time_point until) {
        const auto now = clock::now();
        auto by = std::min(until, now + connection_.keep_up_every());
        const auto requests = to_be_said(now, by);
        for (const request& one : requests) {
            // The answer to the second is the one that counts: the first is known by then.
            if (!send({one.begins ? "SSUBSCRIBE" : "SUNSUBSCRIBE", one.channel}) ||
                !send({one.begins ? "SUBSCRIBE" : "UNSUBSCRIBE", one.channel}))
                return;
        }
        if (unanswered() == 0 && now >= last_ + silence && !send({"PING", ""})) return;

        const auto end = last_ + (unanswered() > 0 ? clock::duration(command_timeout_) : silence);
        auto said = current_->listen(std::min(by, end), wake_.fd());
        if (!said) {
            wake_.reset();
            if (unanswered() > 0 && clock::now() >= end) lose();
        }
        for (int n = 1; said; ++n) {
            if (!said->answered()) return lose();
            last_ = clock::now();
            tell(*said);
            if (unanswered() == 0) previous_.reset();
            if (n == most_at_once) return;
            said = current_->listen(clock::time_point{}, -1);
        }
    }

    std::uint64_t unanswered() const noexcept { return sent_ - answered_; }

    bool send(const command& cmd) {
        const auto now = clock::now();
        if (unanswered() == 0) last_ = now;
        ++sent_;
        if (current_->send_only(cmd, now + command_timeout_)) return true;
        lose();
        return false;
    }

    // Effects: the present socket is over. One that it was to replace is the present one again, until there
    // is another: a full server turned the new one away.
    [[gnu::cold]] void lose() noexcept {
        each_sent([](const interest&, const std::shared_ptr<subscription>& whose) {
            if (whose) whose->unanswered();
        });
        const bool kept = previous_ != nullptr;
        replace_by(std::move(previous_));
        previous_.reset();
        if (kept) reconnect();
    }

    // Effects: `by` becomes the time when another socket is to be opened, if that is sooner. From now on
    // the reader is woken.
    // Returns: what the server has not been told yet; nothing most of the time.
    [[gnu::cold]] std::vector<request> to_be_said(clock::time_point now, clock::time_point& by) {
        std::vector<request> all;
        const annotated_lock guard(lock_);
        listening_ = true;
        if (to_renew_) by = std::min(by, attempts_.next());
        if (!to_send_ && now < next_sweep_) {
            by = std::min(by, next_sweep_);
            return all;
        }
        next_sweep_ = now + slice;
        const bool nothing = std::all_of(interests_.begin(), interests_.end(), [&](const interest& one) {
            return !one.due(now) && !one.whose.expired();
        });
        if (nothing) {
            to_send_ = false;
            return all;
        }
        all.reserve(interests_.size());
        std::erase_if(interests_, [&](interest& one) {
            if (!one.whose.expired()) return false;
            if (one.at != stage::unsent) all.push_back({false, std::move(one.channel)});
            return true;
        });
        for (interest& one : interests_) {
            if (!one.due(now)) continue;
            all.push_back({true, one.channel});
            one.answer = sent_ + 2 * all.size();
        }
        for (interest& one : interests_) {
            if (one.due(now)) one.at = stage::sent;
        }
        to_send_ = false;
        return all;
    }

    // ["message", channel, text], the like of shards, or an answer. ["subscribe", channel, count] confirms.
    // An error refuses, unless it will pass. All other answers are ignored.
    void tell(const reply& said) {
        const auto& parts = said.elements();
        const auto what = parts.size() == 3 ? std::string_view(parts[0].text()) : std::string_view();
        const bool message = what == "message" || what == "smessage";
        if (!message && unanswered() > 0) ++answered_;
        if (said.is(reply_kind::error)) {
            if (classify_error(said.said()).transient) return ask_again();
            return each_sent([&](interest& one, const std::shared_ptr<subscription>& whose) {
                if (one.answer != answered_) return;
                one.at = stage::refused;
                one.next_time = last_ + refused_pause;
                if (whose) whose->refuse();
            });
        }
        if (!message && what != "subscribe") return;
        std::shared_ptr<subscription> whose;
        {
            const annotated_lock guard(lock_);
            if (to_restart_) return;  // it was received before
            for (interest& one : interests_) {
                if (one.channel != parts[1].text()) continue;
                // The answer to the first time does not confirm a channel that was given up
                // and is asked for again.
                if (!message && (one.at != stage::sent || answered_ < one.answer)) return;
                whose = one.whose.lock();
                if (!message) one.at = stage::in_force;
                break;
            }
        }
        if (!whose) return;
        if (message) {
            whose->deliver(parts[2].text());
        } else {
            whose->confirm();
        }
    }

    // Effects: calls `f` for what was asked for on the present socket, and not answered.
    template <class F>
    [[gnu::cold]] void each_sent(F f) noexcept {
        const annotated_lock guard(lock_);
        for (interest& one : interests_) {
            if (one.at == stage::sent) f(one, one.whose.lock());
        }
    }

    // Effects: what is not in force is asked for again, after a pause. The error does not say which that is.
    void ask_again() {
        const annotated_lock guard(lock_);
        for (interest& one : interests_) {
            if (one.at == stage::sent) one.at = stage::unsent;
        }
        next_sweep_ = clock::now() + busy_pause;
    }

    // Effects: `fresh`, or none, is the present socket. The last one stays open until that has
    // answered everything.
    [[gnu::cold]] void replace_by(std::unique_ptr<stream> fresh) noexcept {
        const annotated_lock guard(lock_);
        for (interest& one : interests_) {
            one.at = stage::unsent;
            if (const auto whose = one.whose.lock()) whose->lapse();
        }
        to_send_ = true;
        sent_ = answered_ = 0;
        last_ = clock::now();
        previous_ = fresh ? std::move(current_) : nullptr;
        current_ = std::move(fresh);
    }

    stream_source& sockets_;
    const std::chrono::milliseconds connect_timeout_;
    const std::chrono::milliseconds command_timeout_;
    upkeep& connection_;
    const std::shared_ptr<message_hub> hub_;
    wake_event wake_;

    annotated_mutex lock_;
    std::vector<interest> interests_ DISTLOCK_GUARDED_BY(lock_);
    bool to_send_ DISTLOCK_GUARDED_BY(lock_) = false;     // some of them are new
    bool to_renew_ DISTLOCK_GUARDED_BY(lock_) = false;    // the present socket is not trusted any more
    bool to_restart_ DISTLOCK_GUARDED_BY(lock_) = false;  // nor is what it says
    bool listening_ DISTLOCK_GUARDED_BY(lock_) = false;  // the reader is to be woken when one of these is set

    // Only the thread that reads uses the following. Another one may end the present socket, under the lock.
    std::unique_ptr<stream> current_;
    std::unique_ptr<stream> previous_;
    clock::time_point last_{};  // when something was received, or sent after all was answered
    std::uint64_t sent_ = 0;    // requests on the present socket
    std::uint64_t answered_ = 0;
    connect_schedule attempts_;
    clock::time_point next_sweep_{};
    clock::time_point upkeep_at_{};
};

}  // namespace distlock::detail
