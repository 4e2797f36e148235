// The sockets to one server that nobody uses just now, and which of them is lent for what.
//
//   class kept_sockets {
//     explicit kept_sockets(std::size_t most_idle);
//     pooled lend(purpose, clock::time_point until, bool may_be_spare);
//     pooled lend_reserve();             // the socket for pipelines, for something else
//     std::optional<reply> refuse_new();  // why no new one is opened just now
//     void opened_in_vain(reply why);     // a new one, which the server will not serve
//     void end_pause();                   // the server serves new ones, or is not reached
//     bool take_back(pooled);            // returns whether the server turned out to be a replica
//     bool read_posted();                // the same
//     void discard(pooled);              // which was over before it was used
//     bool close_ended();
//   };
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/base/time_source.hpp>
#include <distlock/detail/leaked_in_child.hpp>
#include <distlock/detail/thread_safety.hpp>
#include <distlock/hiredis/byte_stream.hpp>
#include <distlock/hiredis/stream.hpp>
#include <distlock/net/connect_schedule.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock::detail {

/// Some are idle; one is the reserve, for pipelines: renewals find a socket on which the server answered
/// lately, where no other can be had. Thread-safe.
class kept_sockets {
  public:
    enum class purpose {
        command,
        unit,  // of several commands, for a caller who waits
        post,
        pipeline,
    };

  private:
    // Lifts the reservation of a socket that ends while it is lent.
    struct lift {
        void operator()(kept_sockets* of) const noexcept {
            const annotated_lock guard(of->mutex_);
            of->reserve_is(reserve::missing);
        }
    };

  public:
    /// A socket, and what was the number of the last event when something happened to it.
    struct pooled {
        std::unique_ptr<kept_sockets, lift> reserved;  // lent: it is the reserve
        std::unique_ptr<stream> on;                    // ends first
        std::uint64_t opened = 0;                      // before it was
        std::uint64_t taken = 0;
        std::uint64_t heard = 0;  // the server answered on it
        clock::time_point idle_since{};
        bool spare = false;  // none is lent, though one may be kept: a new one is better, if it can be had

        /// Returns: whether no answer on it was taken back.
        bool is_new() const noexcept { return heard == opened; }
    };

    explicit kept_sockets(std::size_t most_idle) : most_idle_(most_idle) { idle_.reserve(most_idle); }

    /// `may_be_spare`: for a pipeline a new socket is better than the last idle one, and than one on which
    /// the server may be silent; for a command, in the place of one that the server ended. `until`: so long a
    /// pipeline may wait for the reserve.
    /// Returns: a socket that is kept; without one (on), when a new one is to be opened.
    pooled lend(purpose why, clock::time_point until, bool may_be_spare) {
        annotated_lock guard(mutex_);
        pooled found;
        if (why == purpose::pipeline) pipelined_ = true;
        // The server executes posted commands before the first pipeline.
        const bool last_idle =
            reserve_ == reserve::missing && idle_.size() == 1 && !idle_.back().on->waits_for_answers();
        const bool spare = may_be_spare && (why == purpose::pipeline ? last_idle || reserve_may_be_silent()
                                                                     : take_replacement());
        if (spare) {
            // Nothing is taken.
        } else if (why == purpose::pipeline && reserve_ == reserve::here) {
            found = lend_reserve_to(reserve::lent_to_pipeline);
        } else if (!idle_.empty()) {
            found = std::move(idle_.back());
            idle_.pop_back();
        } else if (why == purpose::post && reserve_ == reserve::here && pipelines_waiting_ == 0) {
            // Nobody waits for an answer on it, so it is back at once. A new one would cost round trips.
            found = lend_reserve_to(reserve::lent_to_command);
        } else if (why == purpose::pipeline && reserve_ == reserve::lent_to_command) {
            // It is called with the mutex.
            const auto back = [&]() DISTLOCK_UNCHECKED { return reserve_ != reserve::lent_to_command; };
            // It is back soon, and there may be no other.
            ++pipelines_waiting_;
            wait_until(reserve_back_.get(), guard.native(), until, back);
            --pipelines_waiting_;
            if (reserve_ == reserve::here) found = lend_reserve_to(reserve::lent_to_pipeline);
        }
        found.taken = ++events_;
        found.spare = spare;
        if (!found.on) found.opened = found.heard = found.taken;
        return found;
    }

    /// Returns: the reserve; none, when it is not there or a pipeline waits for it.
    [[gnu::cold]] pooled lend_reserve() {
        const annotated_lock guard(mutex_);
        pooled found;
        if (reserve_ != reserve::here || pipelines_waiting_ > 0) return found;
        found = lend_reserve_to(reserve::lent_to_command);
        found.taken = ++events_;
        return found;
    }

    /// Returns: none where a new socket may be opened now. Where the server ended the last ones unanswered,
    /// as a proxy does that has no server behind it, has no room for them, or is a replica, one is tried
    /// every `pause_in_vain`, whoever wants one; else what became of the last.
    [[gnu::cold]] std::optional<reply> refuse_new() {
        const annotated_lock guard(mutex_);
        if (in_vain_ < most_in_vain) return std::nullopt;
        const auto now = clock::now();
        if (!attempts_in_vain_.due(now)) {
            if (why_in_vain_.is(reply_kind::not_sent)) return why_in_vain_;
            return reply::not_sent(errc::no_reply,
                                   "it ends new connections unanswered; has it a server behind it, or TLS?");
        }
        attempts_in_vain_.begin(now);
        return std::nullopt;
    }
    [[gnu::cold]] void opened_in_vain(reply why) {
        const annotated_lock guard(mutex_);
        was_in_vain(std::move(why));
    }
    /// Effects: what became of the last ones is old news.
    [[gnu::cold]] void end_pause() {
        const annotated_lock guard(mutex_);
        in_vain_ = 0;
    }

    /// Preconditions: `mine.on`.
    /// Effects: keeps it, or closes it: where it broke, where the server may have become a replica since,
    /// or too many are idle.
    /// Returns: whether the server turned out to be a replica. All sockets that were opened by now may lead
    /// to one then; none of them is kept.
    [[nodiscard, gnu::noinline]] bool take_back(pooled mine) {
        const annotated_lock guard(mutex_);
        stream& c = *mine.on;
        // Old news are none: what is connected since may lead to the new master.
        bool demoted = c.demoted() && mine.opened >= role_changed_;
        if (demoted) forget_all();
        if (c.fell_silent()) forget_silent_since(mine.taken);
        const bool is_new = mine.is_new();
        const bool answered = c.take_heard();
        // A server that ends a new one may have no room for it.
        if (c.server_ended() && !is_new && to_replace_ < idle_.size()) ++to_replace_;
        if (is_new) judge_new(c, c.server_ended());
        if (c.broken()) return demoted;
        if (answered) mine.heard = ++events_;
        if (mine.opened < role_changed_) return demoted;
        // The server may have turned a socket away that was only posted on.
        const bool better =
            mine.heard > mine.opened &&
            (reserve_ == reserve::missing ? pipelined_
                                          : reserve_may_be_silent() && mine.heard > silent_since_);
        if (mine.reserved || better) {
            static_cast<void>(mine.reserved.release());
            keep_reserve(std::move(mine));
        } else if (idle_.size() < most_idle_) {
            mine.idle_since = clock::now();
            idle_.push_back(std::move(mine));
            if (surplus(idle_.back().idle_since)) demoted = try_read_posted();
        }
        return demoted;
    }

    /// Preconditions: `mine.on`, which is over, but no replica's.
    [[gnu::cold]] void discard(pooled mine) {
        const annotated_lock guard(mutex_);
        if (mine.is_new()) judge_new(*mine.on, true);
    }

    /// Effects: reads what was answered to posted commands; closes surplus sockets, but for those that an
    /// answer is to come on.
    /// Returns: as take_back().
    [[nodiscard, gnu::cold]] bool read_posted() {
        const annotated_lock guard(mutex_);
        return read_all_posted();
    }

    /// Effects: closes the sockets that the server has ended. Returns: whether there was one.
    [[gnu::cold]] bool close_ended() {
        const annotated_lock guard(mutex_);
        const auto over = [](const pooled& one) noexcept {
            try {
                return one.on->drain_posted() == stream::state::over;
            } catch (...) {
                return true;  // without memory it is broken
            }
        };
        bool ended = std::erase_if(idle_, over) > 0;
        if (reserve_ == reserve::here && over(kept_reserve_)) {
            forget_reserve();
            ended = true;
        }
        return ended;
    }

  private:
    enum class reserve { missing, here, lent_to_command, lent_to_pipeline };

    void reserve_is(reserve now) noexcept DISTLOCK_REQUIRES(mutex_) {
        reserve_ = now;
        if (pipelines_waiting_ > 0) reserve_back_.get().notify_all();
    }
    [[gnu::noinline]] pooled lend_reserve_to(reserve whom) noexcept DISTLOCK_REQUIRES(mutex_) {
        reserve_ = whom;
        pooled lent = std::move(kept_reserve_);
        lent.reserved.reset(this);
        return lent;
    }
    [[gnu::noinline]] void keep_reserve(pooled mine) noexcept DISTLOCK_REQUIRES(mutex_) {
        kept_reserve_ = std::move(mine);
        reserve_is(reserve::here);
    }
    [[gnu::cold]] void forget_reserve() noexcept DISTLOCK_REQUIRES(mutex_) {
        kept_reserve_ = {};
        reserve_is(reserve::missing);
    }

    void judge_new(const stream& fresh, bool ended) DISTLOCK_REQUIRES(mutex_) {
        if (fresh.turned_away()) {
            was_in_vain(reply::not_sent(errc::unavailable, no_room));
        } else if (fresh.demoted()) {
            was_in_vain(reply::not_sent(errc::read_only, "the server is a replica"));
        } else if (fresh.answered() || fresh.fell_silent()) {
            in_vain_ = 0;
        } else if (ended) {
            was_in_vain({});
        }
    }
    [[gnu::cold]] void was_in_vain(reply why) noexcept DISTLOCK_REQUIRES(mutex_) {
        why_in_vain_ = std::move(why);
        if (in_vain_ < most_in_vain && ++in_vain_ == most_in_vain) attempts_in_vain_.begin(clock::now());
    }
    // Effects: one of those that the server ended is replaced, by the caller.
    // Returns: false: none is left to replace.
    bool take_replacement() noexcept DISTLOCK_REQUIRES(mutex_) {
        to_replace_ = std::min(to_replace_, idle_.size());
        if (to_replace_ == 0) return false;
        --to_replace_;
        return true;
    }

    // Effects: the server is a replica, so all others that were opened by now may lead to one.
    [[gnu::cold]] void forget_all() noexcept DISTLOCK_REQUIRES(mutex_) {
        role_changed_ = ++events_;
        idle_.clear();
        to_replace_ = 0;
        if (reserve_ == reserve::here) forget_reserve();
    }

    // Returns: whether there is a socket that nobody needed for a while, beside two: the one that was
    // not used for longest.
    bool surplus(clock::time_point now) const noexcept DISTLOCK_REQUIRES(mutex_) {
        return idle_.size() > 2 && now - idle_.front().idle_since >= std::chrono::seconds{1};
    }

    [[gnu::cold]] bool read_all_posted() DISTLOCK_REQUIRES(mutex_) {
        bool demoted = false;
        const auto read = [&](pooled& one) DISTLOCK_REQUIRES(mutex_) {
            one.on->collect();
            if (one.on->demoted() && one.opened >= role_changed_) demoted = true;
            if (one.on->broken() && one.is_new()) judge_new(*one.on, true);
        };
        for (pooled& one : idle_) read(one);
        if (reserve_ == reserve::here) read(kept_reserve_);
        std::erase_if(idle_, [](const pooled& one) { return one.on->broken(); });
        if (reserve_ == reserve::here && kept_reserve_.on->broken()) forget_reserve();
        if (demoted) forget_all();
        const auto now = clock::now();
        while (surplus(now) && !idle_.front().on->waits_for_answers()) idle_.erase(idle_.begin());
        return demoted;
    }
    bool try_read_posted() noexcept DISTLOCK_REQUIRES(mutex_) {
        try {
            return read_all_posted();
        } catch (...) {
            return false;  // without memory they are read later
        }
    }

    // Effects: on the others the server may be as silent as on one that was taken then. The reserve is kept
    // all the same: there may be no other socket to be had.
    [[gnu::cold]] void forget_silent_since(std::uint64_t taken) noexcept DISTLOCK_REQUIRES(mutex_) {
        std::erase_if(idle_, [&](const pooled& one) { return one.heard < taken; });
        silent_since_ = std::max(silent_since_, taken);
    }
    bool reserve_may_be_silent() const noexcept DISTLOCK_REQUIRES(mutex_) {
        return reserve_ == reserve::here && kept_reserve_.heard < silent_since_;
    }

    // A server that ends all its sockets now and then is well: a caller just then waits for no pause.
    static constexpr int most_in_vain = 10;
    static constexpr std::chrono::milliseconds pause_in_vain{100};

    const std::size_t most_idle_;
    annotated_mutex mutex_;
    std::vector<pooled> idle_ DISTLOCK_GUARDED_BY(mutex_);
    pooled kept_reserve_ DISTLOCK_GUARDED_BY(mutex_);  // as long as it is not lent
    reserve reserve_ DISTLOCK_GUARDED_BY(mutex_) = reserve::missing;
    bool pipelined_ DISTLOCK_GUARDED_BY(mutex_) = false;  // there is to be a reserve
    int pipelines_waiting_ DISTLOCK_GUARDED_BY(mutex_) = 0;
    leaked_in_child<std::condition_variable> reserve_back_;
    // So many were ended by the server while they were in use: it may be about to end the others, too.
    std::size_t to_replace_ DISTLOCK_GUARDED_BY(mutex_) = 0;
    // New ones, one after the other, that the server did not serve; and when another may be tried then.
    int in_vain_ DISTLOCK_GUARDED_BY(mutex_) = 0;
    connect_schedule attempts_in_vain_ DISTLOCK_GUARDED_BY(mutex_){pause_in_vain, pause_in_vain,
                                                                   pause_in_vain};
    reply why_in_vain_ DISTLOCK_GUARDED_BY(mutex_);  // of the last, where greetings say it
    // Counts when sockets are taken, are heard from, and are no longer trusted.
    std::uint64_t events_ DISTLOCK_GUARDED_BY(mutex_) = 0;
    // The last event after which a socket was silent.
    std::uint64_t silent_since_ DISTLOCK_GUARDED_BY(mutex_) = 0;
    // Those that were opened before this event are not kept.
    std::uint64_t role_changed_ DISTLOCK_GUARDED_BY(mutex_) = 0;
};

}  // namespace distlock::detail
