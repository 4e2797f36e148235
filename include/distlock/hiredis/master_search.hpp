// The master as far as is known, and the question to the Sentinels that finds the next one:
// by one caller for all.
//
//   class master_search {  // master: std::shared_ptr<master_node>
//     master_search(const sentinel_uri&, std::shared_ptr<const secure_layer>);
//     master present();
//     master find(until, stop);
//         // asks, or waits for another caller who asks, if that is due
//     master find_alone(until, stop_fd);                       // does not wait for another one
//     void follow(until);                                      // asks if that is due
//     void suspect(const master&);                             // it may be one no longer
//     void look_for_signs();                                   // that it is one no longer
//     bool unheeded();  // whether there is one, and nobody has asked since
//     reply failure();                                         // why none is known
//     void on_master_change(std::weak_ptr<master_listener>);
//     void on_replacement(subscriber*);                        // restarted when another server is the master
//   };
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <optional>
#include <poll.h>
#include <stop_token>
#include <string>
#include <system_error>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/detail/leaked_in_child.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/detail/system_io.hpp>
#include <distlock/detail/thread_safety.hpp>
#include <distlock/hiredis/handshake.hpp>
#include <distlock/hiredis/master_listeners.hpp>
#include <distlock/hiredis/node_pool.hpp>
#include <distlock/hiredis/secure.hpp>
#include <distlock/hiredis/sentinel_inquiry.hpp>
#include <distlock/hiredis/subscriber.hpp>
#include <distlock/hiredis/switch_watch.hpp>
#include <distlock/hiredis/turn_to_ask.hpp>
#include <distlock/net/master_listener.hpp>
#include <distlock/net/refresh_schedule.hpp>
#include <distlock/net/sentinel_election.hpp>
#include <distlock/net/sentinel_schedule.hpp>
#include <distlock/net/sentinel_uri.hpp>
#include <distlock/net/uri.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock::detail {

/// A server that is the master, or was: another one may have taken its place, and its sockets are over then.
struct master_node {
    master_node(believed_master who, uri where, std::shared_ptr<const secure_layer> secure)
        : is(std::move(who)),
          pool(std::move(where), std::move(secure), superseded.get_token(), handshake::role::master) {}
    believed_master is;  // whoever asks the Sentinels uses it
    std::stop_source superseded;
    node_pool pool;
};

/// Thread-safe. Its mutex is never held while anybody waits for a server.
template <class Lazy>
class master_search {
  public:
    using master = std::shared_ptr<master_node>;

    master_search(const sentinel_uri& where, std::shared_ptr<const secure_layer> secure)
        : like_(where.master),
          name_(where.master_name),
          shown_(redacted(where)),
          secure_(std::move(secure)),
          inquiry_(where, secure_),
          watch_(name_) {}
    master_search(const master_search&) = delete;
    master_search& operator=(const master_search&) = delete;

    /// Returns: null: none was found yet.
    master present() {
        const annotated_lock guard(lock_);
        return current_;
    }

    /// Effects: asks the Sentinels if that is due, no longer than `until`, nor once `stop` was
    /// requested. Where another caller asks, waits for that one, as long as a question takes, and asks
    /// itself where that one had no time for it.
    /// Returns: the master, as far as is known.
    master find(clock::time_point until, const std::stop_token* stop) {
        {
            annotated_lock guard(lock_);
            const auto now = clock::now();
            // Of little time half is for the master that is known.
            if (current_ && hurries(until)) until = now + std::max(until - now, clock::duration::zero()) / 2;
            if (begin_look(now)) {
                const master there = current_;
                guard.unlock();
                look_at(there);
                guard.lock();
            }
            if (begin_to_ask(until)) {
                guard.unlock();
                return ask(until, stop);
            }
            if (current_ && (!schedule_.running() || schedule_.in_vain())) return current_;
            if (!schedule_.running() && !schedule_.cut_short()) return nullptr;
        }
        const auto wake = [this]() noexcept {
            const annotated_lock guard(lock_);
            found_.get().notify_all();
        };
        const std::stop_callback on_stop(stop != nullptr ? *stop : std::stop_token(), wake);
        annotated_lock guard(lock_);
        // Called with the mutex.
        const auto answered = [&]() DISTLOCK_UNCHECKED { return current_ != nullptr; };
        const auto begin = [&]() DISTLOCK_UNCHECKED { return begin_to_ask(until); };
        if (!wait_for_turn(found_.get(), guard.native(), schedule_, until, longest_question(), stop, answered,
                           begin))
            return current_;
        guard.unlock();
        return ask(until, stop);
    }

    /// Effects: as find(), for the thread that reads messages, which must stay interruptible: it does not
    /// wait for another caller who asks.
    /// Returns: null where another caller asks, or `stop_fd` can be read, too.
    master find_alone(clock::time_point until, int stop_fd) {
        {
            const annotated_lock guard(lock_);
            if (schedule_.running()) return nullptr;
            if (!begin_to_ask(until)) return current_;
        }
        const master there = ask(until, stop_fd);
        return stopped(stop_fd) ? nullptr : there;
    }

    /// Effects: looks for signs, and asks the Sentinels whether the master that is known is still the
    /// one, if that is due.
    void follow(clock::time_point until) {
        look_for_signs();
        {
            const annotated_lock guard(lock_);
            if (!current_ || !begin_to_ask(until)) return;
        }
        ask(until, -1);
    }

    /// Effects: it may be the master no more. The sockets of an older one tell nothing about the present one.
    void suspect(const master& which) noexcept {
        const annotated_lock guard(lock_);
        if (which == current_) schedule_.doubt();
    }

    /// Effects: the master is suspect if it has ended a socket, or a Sentinel said +switch-master. During a
    /// fail-over that is asked for the old master goes on for seconds as if it was one.
    void look_for_signs() {
        annotated_lock guard(lock_);
        if (!begin_look(clock::now())) return;
        const master there = current_;
        guard.unlock();
        look_at(there);
    }

    /// Returns: whether a sign was seen, nobody has asked since, and a caller with the time to connect may.
    bool unheeded() {
        const annotated_lock guard(lock_);
        return schedule_.unheeded() && may_ask(clock::now() + like_.connect_timeout);
    }

    /// Returns: why no master is known, as it was the last time.
    reply failure() {
        const annotated_lock guard(lock_);
        return why_;
    }

    void on_master_change(std::weak_ptr<master_listener> who) { listeners_.add(std::move(who)); }
    /// Preconditions: it is there as long as anything is asked of this.
    void on_replacement(subscriber* who) {
        const annotated_lock guard(lock_);
        subscriber_ = who;
    }

  private:
    clock::duration longest_question() const noexcept {
        return like_.connect_timeout + like_.command_timeout;
    }
    // Returns: when Sentinels that are asked now have answered at the latest.
    clock::time_point answered_by() const noexcept { return clock::now() + longest_question(); }
    bool hurries(clock::time_point until) const noexcept { return until < answered_by(); }
    sentinel_schedule::caller who_has(clock::time_point until) const noexcept {
        return hurries(until) ? sentinel_schedule::caller::hurried : sentinel_schedule::caller::patient;
    }
    bool may_ask(clock::time_point until) const noexcept DISTLOCK_REQUIRES(lock_) {
        return schedule_.may_begin(clock::now(), who_has(until), current_ != nullptr);
    }
    bool begin_to_ask(clock::time_point until) noexcept DISTLOCK_REQUIRES(lock_) {
        return schedule_.begin(clock::now(), who_has(until), current_ != nullptr);
    }
    bool begin_look(clock::time_point now) noexcept DISTLOCK_REQUIRES(lock_) {
        return current_ && schedule_.begin_look(now);
    }
    void look_at(const master& there) {
        using news = typename switch_watch<Lazy>::news;
        const news told = watch_.hear();
        const bool ended = there->pool.close_ended();
        const annotated_lock guard(lock_);
        // A Sentinel speaks of the master of now: `there` may have been replaced since, and that one, too.
        // And while none is heard, somebody must ask, also where no commands are sent.
        const bool sign = told == news::changed || told == news::all_missed;
        if (sign || (ended && there == current_)) return schedule_.see_sign();
        if (told != news::some_missed) return;
        // To be listened to again, one that is missed has to answer, though the others decide without it.
        for_the_missed_ = std::chrono::milliseconds{50};
        schedule_.doubt();
    }

    // Preconditions: schedule_.begin() returned true.
    master ask(clock::time_point until, const std::stop_token* stop) {
        std::optional<wake_on_stop> wake;
        try {
            if (stop != nullptr) wake.emplace(*stop);
        } catch (const std::exception&) {
            // Then it takes its time.
        }
        return ask(until, wake ? wake->fd() : -1);
    }

    master ask(clock::time_point until, int stop_fd) {
        const auto longest = answered_by();
        std::chrono::milliseconds for_others;
        master old;
        {
            const annotated_lock guard(lock_);
            old = current_;
            for_others = std::exchange(for_the_missed_, {});
        }
        master fresh;
        reply why;
        bool learned = false;
        using ending = sentinel_schedule::ending;
        bool asked = false;
        bool again = false;
        try {
            const auto last = old ? std::optional(old->is) : std::nullopt;
            const auto heard = inquiry_.ask(last, std::min(until, longest), stop_fd, for_others);
            const auto said = heard.conclude();
            asked = !stopped(stop_fd) && (until >= longest || clock::now() < until);
            if (said.what == sentinel_election::kind::believed) {
                watch_.listen_on(inquiry_.learn(heard, said.master.at));
                const auto how = old ? compare(old->is, said.master) : succession::other;
                if (how == succession::other) {
                    fresh = node(said.master);
                } else {
                    old->is.epoch = std::max(old->is.epoch, said.master.epoch);
                }
                again = how == succession::again;
                learned = true;
            } else {
                why = explain(said, like_.scheme, shown_, name_);
            }
        } catch (const std::system_error& e) {  // descriptors: there may be some later
            why = out_of_resources(e.what());
        } catch (const std::exception&) {
            why = out_of_memory();
        }
        {
            const annotated_lock guard(lock_);
            if (fresh) current_ = fresh;
            const auto now = clock::now();
            schedule_.end(learned ? ending::learned
                          : asked ? ending::in_vain
                                  : ending::cut_short,
                          now, refresh_schedule::some_jitter(now));
            if (!learned) why_ = std::move(why);
            found_.get().notify_all();
        }
        if (fresh && old) supersede(*old);
        if (again) tell();
        return fresh ? fresh : old;
    }

    reply out_of_resources(const char* what) const noexcept {
        try {
            return reply::not_sent(errc::unreachable, shown_ + ": " + what);
        } catch (const std::exception&) {
            return out_of_memory();
        }
    }
    static reply out_of_memory() {
        return reply::not_sent(errc::unreachable, "no memory");  // short: it takes none
    }

    static bool stopped(int stop_fd) noexcept {
        pollfd polled{stop_fd, POLLIN, 0};
        return stop_fd >= 0 && wait_for(&polled, 1, clock::duration::zero()) > 0;
    }

    master node(const believed_master& who) const {
        return std::make_shared<master_node>(who, with_place(like_, who.at.host, who.at.port), secure_);
    }

    // Effects: nothing is heard from the old master any more; then all that it granted is renewed
    // where the new one is.
    void supersede(master_node& old) {
        old.superseded.request_stop();
        {
            const annotated_lock guard(lock_);
            if (subscriber_ != nullptr) subscriber_->restart();
        }
        tell();
    }

    // Effects: all that is held is renewed.
    void tell() {
        listeners_.tell([](master_listener& who) { who.master_changed(); });
    }

    const uri like_;  // of every master, but for host and port
    const std::string name_;
    const std::string shown_;  // the URI, fit for messages
    const std::shared_ptr<const secure_layer> secure_;
    sentinel_inquiry<Lazy> inquiry_;  // whoever asks uses it
    switch_watch<Lazy> watch_;
    master_listeners listeners_;
    annotated_mutex lock_;
    sentinel_schedule schedule_ DISTLOCK_GUARDED_BY(lock_);
    master current_ DISTLOCK_GUARDED_BY(lock_);
    // The next question waits for so long.
    std::chrono::milliseconds for_the_missed_ DISTLOCK_GUARDED_BY(lock_){};
    reply why_ DISTLOCK_GUARDED_BY(lock_) = reply::not_sent(errc::unreachable, shown_);
    subscriber* subscriber_ DISTLOCK_GUARDED_BY(lock_) = nullptr;  // none before the first subscribe()
    leaked_in_child<std::condition_variable> found_;
};

}  // namespace distlock::detail
