// Looks after a lock on behalf of a thread that waits for it in line: what expires, or was deleted, is handed on.
//
//   template <connection Conn, class Dialect, class Clock> class lookout {
//     bool begin(std::optional<milliseconds> ttl) noexcept;   // the thread waits now
//     void end() noexcept;                                    // it does not any more
//     void settle() noexcept;                                 // and no look of ours is on its way
//     bool pass_on(std::shared_ptr<receipt>) noexcept;        // what the thread is offered when it has gone
//   };
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/parent_only.hpp>
#include <distlock/engine/driver.hpp>
#include <distlock/engine/lease_keeper.hpp>
#include <distlock/engine/owed_release.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock::engine {

/// The thread in line cannot look itself without losing its place. So the keeper of the connection does, on another
/// socket: when the lock's TTL is over, and at least every `interval`.
template <connection Conn, class Dialect, class Clock>
class lookout {
    using keeper_type = lease_keeper<Conn, Clock>;
    using time_point = clock::time_point;

  public:
    lookout(Conn& connection, const Dialect& dialect, std::chrono::milliseconds interval)
        : connection_(connection),
          dialect_(dialect),
          interval_(std::max(interval, std::chrono::milliseconds{1})) {}
    lookout(const lookout&) = delete;
    lookout& operator=(const lookout&) = delete;
    ~lookout() {
        if (settled_.here() && keeper_) keeper_->strike(look_);
    }

    /// `ttl`: of the lock, as it was seen last.
    /// Returns: false when there is no thread or no memory for it: nobody looks.
    bool begin(std::optional<std::chrono::milliseconds> ttl) noexcept {
        const std::lock_guard guard(state_);
        waiting_ = true;
        uncounted_ = false;
        next_ = Clock::now() + until_next(ttl);
        if (listed_ && listed_for_ <= next_) return true;
        try {
            if (!keeper_) keeper_ = keeper_of<Clock>(connection_);
            if (fresh_.empty()) fresh_ = token::generate();
            keeper_->list(look_, next_);
            listed_for_ = next_;
            return listed_ = true;
        } catch (...) {
            return waiting_ = false;
        }
    }

    void end() noexcept {
        const std::lock_guard guard(state_);
        waiting_ = false;
    }

    /// Effects: as end(), and waits for a look that is on its way, for a little while: done after we left the line, it
    /// would hand the lock to nobody.
    void settle() noexcept {
        constexpr std::chrono::milliseconds little_while{20};
        std::unique_lock guard(state_);
        waiting_ = false;
        settled_.get().wait_for(guard, little_while, [&] { return !looking_; });
    }

    /// Effects: the thread's place in line is left when it is known what the server gave for it: a lock that it was offered
    /// goes to the next in line.
    /// Returns: false when there is no memory for that.
    bool pass_on(std::shared_ptr<receipt> late) noexcept {
        try {
            if (!keeper_) keeper_ = keeper_of<Clock>(connection_);
            const auto now = Clock::now();
            keeper_->owe(std::make_unique<late_offer>(*this, std::move(late), now),
                         now + late_offer::shortly);
            return true;
        } catch (...) {
            return false;
        }
    }

  private:
    using chore = typename keeper_type::chore;

    // Owns all it needs, but for the keeper, which owns it: the mutex may be gone.
    class late_offer final : public chore {
      public:
        static constexpr std::chrono::milliseconds shortly{10};

        late_offer(const lookout& of, std::shared_ptr<receipt> late, time_point now)
            : connection_(of.connection_),
              keeper_(*of.keeper_),
              dialect_(of.dialect_),
              late_(std::move(late)),
              gone_by_(now + clock::duration(dialect_.lease())) {}
        // It is given up, perhaps with the connection.
        ~late_offer() override {
            if (!done_) done_ = leave_unheard();
        }

      private:
        static constexpr std::chrono::milliseconds longest{100};

        typename chore::step begin(time_point now) noexcept override {
            if (!leaving_) {
                collect();
                const auto answer = late_->answer();
                if (!answer) return {{}, now + (pause_ = std::min(2 * pause_, longest))};
                if (const auto offered = dialect_.read_wait(*answer).offered) {
                    release(*offered, now);  // its place in line went with the offer
                    done_ = true;
                } else {
                    leaving_ = true;
                    done_ = !answer->answered() && leave_unheard();
                }
            }
            if (now >= gone_by_) done_ = true;
            if (done_) return {{}, time_point::max()};
            return {dialect_.leave(), {}};
        }
        time_point end(const reply& answer, time_point, time_point now) noexcept override {
            // An answer that was lost may have been of a place that was left.
            done_ = !answer.is(reply_kind::not_sent);
            return done_ ? time_point::max() : now + longest;
        }

        void release(const offer& offered, time_point now) noexcept {
            try {
                auto owed = std::make_shared<debt>(now + clock::duration(offered.lease));
                keeper_.owe(std::make_unique<owed_release<Conn, Dialect, Clock>>(dialect_, offered.owner,
                                                                                 std::move(owed)),
                            now);
            } catch (...) {
                // Its lease ends it.
            }
        }
        // A server that hangs is told all the same, and not waited for.
        bool leave_unheard() noexcept {
            command cmd = dialect_.leave().with_body();
            cmd.until(Clock::now() + shortly);
            return distlock::post(connection_, cmd);
        }
        void collect() noexcept {
            if constexpr (confirming_connection<Conn>) {
                try {
                    connection_.collect();
                } catch (...) {
                    // Another time, perhaps.
                }
            }
        }

        Conn& connection_;
        keeper_type& keeper_;
        const Dialect dialect_;
        const std::shared_ptr<receipt> late_;
        const time_point gone_by_;  // the place in line, whatever becomes of this
        std::chrono::milliseconds pause_ = shortly;
        bool leaving_ = false;  // what the wait gave is known, and was no offer
        bool done_ = false;
    };

    struct look final : chore {
        explicit look(lookout& of) : mine(of) {}
        typename chore::step begin(time_point now) noexcept override { return mine.begin_look(now); }
        time_point end(const reply& answer, time_point, time_point now) noexcept override {
            return mine.end_look(answer, now);
        }
        lookout& mine;
    };

    clock::duration until_next(std::optional<std::chrono::milliseconds> ttl) const noexcept {
        constexpr std::chrono::milliseconds grid{1};  // a TTL is rounded down
        if (!ttl || ttl->count() < 0 || *ttl >= interval_) return interval_;
        return *ttl + grid;
    }

    typename chore::step begin_look(time_point now) noexcept {
        const std::lock_guard guard(state_);
        if (!waiting_) {
            listed_ = false;
            return {{}, time_point::max()};
        }
        if (now < next_) return {{}, listed_for_ = next_};
        looking_ = true;
        return {uncounted_ ? dialect_.revive(fresh_) : dialect_.watch(fresh_), {}};
    }

    time_point end_look(const reply& answer, time_point now) noexcept {
        const std::lock_guard guard(state_);
        looking_ = false;
        settled_.get().notify_all();
        const auto seen = dialect_.read_watch(answer);
        uncounted_ = seen.uncounted;
        next_ = seen.uncounted ? now : now + until_next(seen.ttl);
        listed_ = waiting_;
        return waiting_ ? listed_for_ = next_ : time_point::max();
    }

    Conn& connection_;
    const Dialect& dialect_;
    const std::chrono::milliseconds interval_;
    std::mutex state_;
    distlock::detail::parent_only<std::condition_variable> settled_;
    std::shared_ptr<keeper_type> keeper_;
    token fresh_;             // what new owners' tokens are made of
    bool waiting_ = false;    // a thread waits in line
    bool listed_ = false;     // the keeper has us on its list
    bool looking_ = false;    // a look is on its way
    bool uncounted_ = false;  // the server has lost the count of those who wait
    time_point next_{};
    time_point listed_for_{};  // when the keeper begins, at the latest
    look look_{*this};
};

// What a lock object has for it: `Otherwise` where nobody waits in line.
template <class Conn, class Dialect, class Clock, class Otherwise>
struct lookout_for {
    using type = Otherwise;
};
template <class Conn, handing_dialect Dialect, class Clock, class Otherwise>
struct lookout_for<Conn, Dialect, Clock, Otherwise> {
    using type = lookout<Conn, Dialect, Clock>;
};

}  // namespace distlock::engine
