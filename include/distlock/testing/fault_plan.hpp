// What a fault proxy is to do to a conversation: the decisions, without a socket.
//
//   class fault_plan {
//     void cut(rule);                                      // from now on, instead of any rule before
//     void rewrite(which, bytes, times);                   // another reply in the place of the server's
//     void storm(seed, one_in);                            // cuts at random, the same for the same seed
//     void delay(part, duration);  void hold(part);        // all of one direction
//     void let_go();                                       // what is held
//     void slice(part, bytes, pause);                      // so many at a time
//     void leave_alone();                                  // ends all of these, delays and pauses at once
//     void forget();                                       // the same, and counts anew
//     int connections() const;
//     std::vector<words> requests(which) const;            // whole ones that came, since the beginning
//     std::vector<made> cuts() const;                      // what was cut, in order
//   };
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/detail/thread_safety.hpp>
#include <distlock/testing/paced_bytes.hpp>

namespace distlock::testing {

/// All members may be called from several threads.
class fault_plan {
  public:
    using words = std::vector<std::string>;

    /// Which commands are meant: any callable that takes the words of a command and returns whether it is
    /// meant; none: all commands. The proxy calls it on its thread, while it holds the plan's mutex: it must
    /// call nothing of the proxy, and throw nothing.
    class which {
      public:
        which() = default;
        template <class F>
            requires(!std::is_same_v<std::remove_cvref_t<F>, which>)
        which(F f) : asked_(std::make_shared<of<F>>(std::move(f))) {}
        /// Returns: whether there is a condition.
        explicit operator bool() const noexcept { return asked_ != nullptr; }
        bool operator()(const words& w) const { return !asked_ || asked_->says(w); }

      private:
        struct base {
            virtual ~base() = default;
            virtual bool says(const words& w) const = 0;
        };
        template <class F>
        struct of final : base {
            explicit of(F f) : call(std::move(f)) {}
            bool says(const words& w) const override { return call(w); }
            F call;
        };
        std::shared_ptr<const base> asked_;
    };

    enum class part {
        request,
        reply,
        message,  ///< a published message; its words are "message" or "smessage", channel and text
    };
    enum class ending {
        reset,    ///< RST to the client
        close,    ///< FIN to the client
        silence,  ///< the connection stays open, and nothing passes on it any more in either direction
        delay,    ///< as silence, but the rest of the request is kept, and reaches the server at deliver()
    };

    struct rule {
        part of = part::request;
        which command = {};     ///< whose request or reply, or which message
        std::size_t after = 0;  ///< how many bytes of it still pass; more than it has: all of it
        ending how = ending::reset;
        int first = 1;  ///< which match is the first that is cut, counted from 1, from now on
        int times = 1;  ///< how many matches in a row are cut, on whatever connections they come; 0: none
    };
    struct made {
        part of;
        words command;
        std::size_t size;    ///< of the request or reply, in bytes
        std::size_t passed;  ///< of them
    };

    /// Effects: requests, replies and messages are cut by `r` from now on, and by no earlier rule.
    void cut(rule r) {
        const detail::annotated_lock guard(lock_);
        rule_.reset();
        if (r.times > 0) rule_ = std::move(r);
    }
    /// Effects: the next `times` replies to `these`, or messages, are `bytes`, whatever the server says;
    /// none: they are lost.
    void rewrite(which these, std::string bytes, int times = 1) {
        const detail::annotated_lock guard(lock_);
        rewriting_ = {std::move(these), std::move(bytes), times};
    }
    /// Effects: cuts one in `one_in` requests, replies and messages, at any byte and in any way but delay.
    /// Whether and where depends on the seed, on the number of the connection, and on the number of the
    /// request, reply or message on it. 0: cuts none.
    void storm(std::uint64_t seed, std::uint32_t one_in) {
        const detail::annotated_lock guard(lock_);
        storm_seed_ = seed;
        storm_one_in_ = one_in;
    }
    /// Effects: what comes from now on is passed on so much later, in order.
    void delay(part of, clock::duration by) {
        const detail::annotated_lock guard(lock_);
        direction(of).delay = by;
    }
    /// Effects: nothing is passed on in this direction until let_go() or leave_alone(), nor does an end.
    /// Connections can be made.
    void hold(part of) {
        const detail::annotated_lock guard(lock_);
        direction(of).held = true;
    }
    /// Effects: what is held goes on, in order, in both directions.
    void let_go() {
        change([this]() DISTLOCK_UNCHECKED { pace_.requests.held = pace_.replies.held = false; });
    }
    /// Effects: passes no more than `bytes` at a time in this direction, with a pause in
    /// between. 0: all at once.
    void slice(part of, std::size_t bytes, clock::duration pause = {}) {
        change([&]() DISTLOCK_UNCHECKED {
            direction(of).slice = bytes;
            direction(of).pause = pause;
        });
    }
    /// Effects: ends cut(), rewrite(), storm(), delay(), hold() and slice(); what waited goes on.
    void leave_alone() {
        change([this]() DISTLOCK_UNCHECKED { calm(); });
    }

    /// Effects: as leave_alone(); and connections(), requests() and cuts() begin anew.
    void forget() {
        change([this]() DISTLOCK_UNCHECKED {
            calm();
            connections_ = 0;
            requests_.clear();
            cuts_.clear();
        });
    }
    /// Returns: how many connections were made since the last forget().
    int connections() const {
        const detail::annotated_lock guard(lock_);
        return connections_;
    }
    /// Returns: the whole requests of `these` since then, in order, whether they were passed on or not.
    std::vector<words> requests(const which& these = {}) const {
        const detail::annotated_lock guard(lock_);
        std::vector<words> out;
        std::copy_if(requests_.begin(), requests_.end(), std::back_inserter(out), these);
        return out;
    }
    /// Returns: what was cut since then, in order.
    std::vector<made> cuts() const {
        const detail::annotated_lock guard(lock_);
        return cuts_;
    }

  protected:
    fault_plan() = default;
    fault_plan(const fault_plan&) = delete;
    fault_plan& operator=(const fault_plan&) = delete;
    ~fault_plan() = default;

    /// How everything is to be passed on just now.
    struct paces {
        impl::pace requests{};
        impl::pace replies{};
        std::uint64_t calms = 0;  ///< how often all was left alone: what waited then passes
    };
    struct sentence {
        std::size_t passes;
        ending how;
    };

    paces present() const {
        const detail::annotated_lock guard(lock_);
        return pace_;
    }

    /// Returns: the number of a connection that came.
    int count_connection() {
        const detail::annotated_lock guard(lock_);
        return ++connections_;
    }

    /// `nth`: of the requests, replies or messages on that connection. Returns: what is to
    /// be cut; none: nothing.
    std::optional<sentence> judge(int connection, std::uint64_t nth, part of, const words& command,
                                  std::size_t size) {
        const detail::annotated_lock guard(lock_);
        if (of == part::request) requests_.push_back(command);
        const auto ruled = by_rule(of, command, size);
        const auto drawn = of == part::message ? ~nth : nth * 2 + (of == part::reply ? 1 : 0);
        const auto cut = ruled ? ruled : by_storm(connection, drawn, size);
        if (cut) cuts_.push_back({of, command, size, cut->passes});
        return cut;
    }

    std::string rewritten(const words& command, std::string bytes) {
        const detail::annotated_lock guard(lock_);
        if (rewriting_.times <= 0 || !rewriting_.command(command)) return bytes;
        --rewriting_.times;
        return rewriting_.bytes;
    }

    // It hears at once that something has changed.
    virtual void heed() noexcept = 0;

  private:
    struct rewriting {
        which command;
        std::string bytes;
        int times = 0;
    };

    // The thread-safety analysis does not see that it is called with the mutex.
    template <class F>
    void change(F f) {
        {
            const detail::annotated_lock guard(lock_);
            f();
        }
        heed();
    }
    void calm() DISTLOCK_REQUIRES(lock_) {
        rule_.reset();
        rewriting_.times = 0;
        storm_one_in_ = 0;
        pace_ = {.calms = pace_.calms + 1};
    }

    impl::pace& direction(part of) DISTLOCK_REQUIRES(lock_) {
        return of == part::request ? pace_.requests : pace_.replies;
    }

    std::optional<sentence> by_rule(part of, const words& command, std::size_t size)
        DISTLOCK_REQUIRES(lock_) {
        if (!rule_ || rule_->of != of || !rule_->command(command)) return std::nullopt;
        if (--rule_->first > 0) return std::nullopt;
        const sentence passed{std::min(rule_->after, size), rule_->how};
        if (--rule_->times <= 0) rule_.reset();
        return passed;
    }
    std::optional<sentence> by_storm(int connection, std::uint64_t nth, std::size_t size) const
        DISTLOCK_REQUIRES(lock_) {
        if (storm_one_in_ == 0) return std::nullopt;
        const auto drawn = mixed(mixed(storm_seed_ ^ static_cast<std::uint64_t>(connection) << 32U) ^ nth);
        if (drawn % storm_one_in_ != 0) return std::nullopt;
        constexpr ending endings[] = {ending::reset, ending::close, ending::silence};
        const auto again = mixed(drawn);
        const std::size_t passed = (again >> 8U) % (size + 1);
        return sentence{passed, endings[again % 3]};
    }
    // splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
    static std::uint64_t mixed(std::uint64_t x) noexcept {
        x += 0x9e3779b97f4a7c15U;
        x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
        x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
        return x ^ (x >> 31U);
    }

    mutable detail::annotated_mutex lock_;
    std::optional<rule> rule_ DISTLOCK_GUARDED_BY(lock_);
    rewriting rewriting_ DISTLOCK_GUARDED_BY(lock_);
    std::uint64_t storm_seed_ DISTLOCK_GUARDED_BY(lock_) = 0;
    std::uint32_t storm_one_in_ DISTLOCK_GUARDED_BY(lock_) = 0;
    paces pace_ DISTLOCK_GUARDED_BY(lock_);
    int connections_ DISTLOCK_GUARDED_BY(lock_) = 0;
    std::vector<words> requests_ DISTLOCK_GUARDED_BY(lock_);
    std::vector<made> cuts_ DISTLOCK_GUARDED_BY(lock_);
};

}  // namespace distlock::testing
