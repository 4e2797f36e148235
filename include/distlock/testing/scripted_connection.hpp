// A connection without a server: it answers from a script and writes down what it was asked.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/detail/thread_safety.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock::testing {

/// Plays replies in order, one for each command, and records the commands. When the script has run out it
/// answers reply::not_sent with errc::unreachable, as a server that is gone. Thread-safe.
///
///   scripted_connection redis{reply::status("OK"), reply::integer(1)};
///   distlock::mutex orders{redis, "orders:42"};
///
/// A lock that somebody else has takes two replies: reply::nil() to SET, then taken(). With
/// lock_options::fencing or lock_options::owner_info, and for a leader_election, there is no SET: granted(),
/// or found_taken() and then, to each re-check of a call that waits, taken(). Where an object found the lock
/// taken the last time, and for a reader of a shared_mutex, or its writer with those options, the first
/// command is a re-check: granted() with a TTL, or taken(). Renewals take replies, too; so does the question
/// why a lock was lost, where an observer is to hear that.
class scripted_connection {
  public:
    /// A command as it was given to the connection.
    struct recorded {
        std::vector<std::string> argv;
        std::string routing_key;
        clock::time_point deadline;
    };

    scripted_connection() = default;
    scripted_connection(std::initializer_list<reply> replies) : replies_(replies) {}

    /// Effects: appends a reply to the script.
    void then(reply next) {
        const detail::annotated_lock guard(lock_);
        replies_.push_back(std::move(next));
    }

    /// Effects: appends a reply that is given only after `first` ran, during the command: time passes,
    /// another client acts.
    template <class Action>
    void then(Action first, reply next) {
        const detail::annotated_lock guard(lock_);
        replies_.push_back(std::move(next));
        actions_.push_back({taken_ + replies_.size(), std::make_unique<action_of<Action>>(std::move(first))});
    }

    reply execute(const command& cmd) {
        detail::annotated_lock guard(lock_);
        recorded entry{{}, std::string(cmd.routing_key()), cmd.deadline()};
        for (const auto argument : cmd.argv()) entry.argv.emplace_back(argument);
        commands_.push_back(std::move(entry));
        if (replies_.empty()) return reply::not_sent(errc::unreachable, "the script has run out");
        reply next = std::move(replies_.front());
        replies_.pop_front();
        ++taken_;
        std::unique_ptr<action> first;
        if (!actions_.empty() && actions_.front().at == taken_) {
            first = std::move(actions_.front().run);
            actions_.pop_front();
        }
        guard.unlock();
        if (first) first->run();
        return next;
    }

    /// Returns: what was asked so far.
    std::vector<recorded> commands() const {
        const detail::annotated_lock guard(lock_);
        return commands_;
    }

    /// Returns: how many replies of the script are left.
    std::size_t left() const {
        const detail::annotated_lock guard(lock_);
        return replies_.size();
    }

  private:
    struct action {
        virtual ~action() = default;
        virtual void run() = 0;
    };
    template <class F>
    struct action_of final : action {
        explicit action_of(F f) : call(std::move(f)) {}
        void run() override { call(); }
        F call;
    };
    struct placed {
        std::size_t at;  // before the reply of this number
        std::unique_ptr<action> run;
    };

    mutable detail::annotated_mutex lock_;
    std::deque<reply> replies_ DISTLOCK_GUARDED_BY(lock_);
    std::deque<placed> actions_ DISTLOCK_GUARDED_BY(lock_);
    std::size_t taken_ DISTLOCK_GUARDED_BY(lock_) = 0;
    std::vector<recorded> commands_ DISTLOCK_GUARDED_BY(lock_);
};

static_assert(check_connection<scripted_connection>());

/// Returns: what a server answers to the script by which a mutex with lock_options::fencing or
/// lock_options::owner_info asks first, or a leader_election, where the lock is free. `fence`: 0 without
/// fencing.
inline reply granted(std::uint64_t fence) {
    return reply::array({reply::integer(1), reply::string(fence == 0 ? "" : std::to_string(fence))});
}
/// Returns: what it answers to the scripts of the default dialect that ask after the lock was found taken, or
/// for a reader of a shared_mutex, where the lock is granted for `ttl`.
inline reply granted(std::uint64_t fence, std::chrono::milliseconds ttl) {
    return reply::array({reply::integer(1), reply::string(fence == 0 ? "" : std::to_string(fence)),
                         reply::integer(ttl.count())});
}

/// Returns: what a server answers to the script that asks first, while somebody else has the lock for `ttl`.
inline reply found_taken(std::chrono::milliseconds ttl) {
    return reply::array({reply::integer(0), reply::integer(ttl.count())});
}

/// Returns: what a server answers to the scripts that ask after the lock was found taken, while somebody else
/// has the lock for `ttl`.
inline reply taken(std::chrono::milliseconds ttl) {
    return reply::array({reply::integer(0), reply::integer(ttl.count()), reply::integer(0), reply::integer(0),
                         reply::integer(0)});
}

}  // namespace distlock::testing
