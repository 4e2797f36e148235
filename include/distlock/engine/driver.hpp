// The thin shell around the decisions: sends what the machine asks for, waits as long as it says, reads the clock.
//
//   acquisition take(connection, dialect, limits, stop, contended, trouble, owe, watch)  // runs engine::acquire to its end
//   given_back give_back(connection, dialect, owner, until)       // compare-and-delete, asked twice if need be
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/pause.hpp>
#include <distlock/detail/saturate.hpp>
#include <distlock/engine/acquire.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/wire/blocking_time.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/place.hpp>

namespace distlock::engine {

/// The end of an attempt.
struct acquisition {
    acquire_step end;          ///< granted, gave_up or failed
    token owner;               ///< of granted
    std::uint64_t fence = 0;   ///< of granted: the fencing token; 0: none was asked for
    clock::time_point sent{};  ///< of granted: before the first byte of the command that was answered
    clock::time_point came{};  ///< of granted: when its answer had come
    std::string trouble;       ///< of failed: what the connection or the server said last
    bool contended = false;
    bool open = false;  ///< of granted: an earlier sending was not answered, and may still be on its way
};

/// What became of a release.
struct given_back {
    release_outcome what;
    bool owed = false;  ///< the key may still be ours on the server
};

namespace detail {

inline std::uint64_t seed_from(const token& t) noexcept {
    std::uint64_t seed = 0;
    std::memcpy(&seed, t.view().data(), sizeof seed);
    return seed;
}

// The lock may be ours on the server although we do not want it: free it, wait for next to nothing. The body is
// sent, since nobody would see a NOSCRIPT. Returns: whether it is certain that nothing of ours is left there, and
// that nothing is still on its way: only a key that was found and deleted says both.
template <class Clock, class Conn, class Dialect>
bool disown(Conn& connection, const Dialect& dialect, const token& owner) noexcept {
    constexpr std::chrono::milliseconds shortly{30};
    command release = dialect.release(owner).with_body();
    release.until(Clock::now() + shortly);
    if (distlock::post(connection, release)) return false;
    return dialect.read_release(distlock::execute(connection, release)).what == release_outcome::released;
}

// Leaves to the lease what could not be released.
struct nothing_is_owed {
    void operator()(const token&) const noexcept {}
};

// Nobody watches a lock that is waited for; what expires is found by who comes next.
struct nobody_watches {
    bool begin(std::optional<std::chrono::milliseconds>) noexcept { return false; }
    void end() noexcept {}
    void settle() noexcept {}
    bool pass_on(std::shared_ptr<receipt>) noexcept { return false; }
};

// The server ends a wait by itself; a little later we do.
inline clock::time_point patience_with_server(clock::time_point deadline) noexcept {
    return distlock::detail::saturating_add(deadline, clock::duration(std::chrono::milliseconds{20}));
}

}  // namespace detail

/// A dialect that hands a lock to who waits for it.
template <class D>
concept handing_dialect = requires(const D& dialect, const token& owner) {
    dialect.enter(owner, place::join);
    dialect.hands_over();
};

/// A dialect whose releases are told on a channel.
template <class D>
concept telling_dialect = requires(const D& dialect) {
    { dialect.channel() } -> std::convertible_to<std::string_view>;
};

/// Whether waiters are woken over this connection, instead of asking again and again.
template <class Conn, class Dialect>
inline constexpr bool wakes_waiters = subscribing_connection<Conn>&& telling_dialect<Dialect>;

/// Returns: whether waiters are served in line over this connection.
template <class Conn, class Dialect>
bool serves_in_line(const Dialect& dialect) noexcept {
    if constexpr (waiting_connection<Conn> && handing_dialect<Dialect>) return dialect.hands_over();
    return false;
}

/// One attempt to take a lock, run to its end.
template <class Clock, class Conn, class Dialect, class Owe, class Watch>
class attempt {
    using kind = acquire_step::kind;
    using outcome_kind = acquire_outcome::kind;

  public:
    attempt(Conn& connection, const Dialect& dialect, const acquire_limits& limits,
            const std::stop_token& stop, std::atomic<errc>& trouble, Owe& owe, Watch& watch)
        : connection_(connection),
          dialect_(dialect),
          stop_(stop),
          trouble_(trouble),
          owe_(owe),
          watch_(watch),
          own_(token::generate()),
          machine_(limits, Clock::now(), detail::seed_from(own_)) {
        result_.owner = own_;
    }

    acquisition run(bool contended) {
        acquire_step step = machine_.begin(contended || dialect_.looks_at_once());
        for (;;) {
            if (goes_on(step) && stop_.stop_requested()) {
                const auto first = step;
                step = machine_.on_stop();
                step.release_first = step.release_first || first.release_first;
                step.leave_first = step.leave_first || first.leave_first;
            }
            settle(step);
            switch (step.what) {
                case kind::send_acquire:
                    step = say(dialect_.acquire(own_), step.at,
                               [&](const reply& r) { return dialect_.read_acquire(r); });
                    break;
                case kind::send_look:
                    step = say(dialect_.look(own_), step.at,
                               [&](const reply& r) { return dialect_.read_look(r); });
                    break;
                case kind::send_enter:
                    step = enter(step);
                    break;
                case kind::wait:
                    step = wait(step.at);
                    break;
                case kind::pause:
                    pause(step.at);
                    step = machine_.on_wake(Clock::now());
                    break;
                case kind::granted:
                case kind::gave_up:
                case kind::failed:
                    if (step.what == kind::failed && step.cause == errc::wrong_type) name_types();
                    result_.end = step;
                    result_.open = machine_.open();
                    return std::move(result_);
            }
        }
    }

  private:
    static bool goes_on(const acquire_step& step) noexcept {
        return step.what != kind::granted && step.what != kind::gave_up && step.what != kind::failed;
    }

    // What is to be done before a step: no grant may stay with a token that nobody uses, and nobody in line who left.
    void settle(const acquire_step& step) {
        if (step.leave_first) leave();
        if (step.release_first && !detail::disown<Clock>(connection_, dialect_, result_.owner))
            owe_(result_.owner);
        if (step.fresh_token) result_.owner = own_ = token::generate();
    }

    template <class Read>
    acquire_step say(command cmd, clock::time_point answer_by, Read read) {
        cmd.until(answer_by);
        const auto sent = Clock::now();
        const reply answer = distlock::execute(connection_, cmd);
        const acquire_outcome outcome = read(answer);
        note(outcome, answer);
        result_.fence = outcome.fence;
        result_.sent = sent;
        result_.came = Clock::now();
        ttl_ = outcome.ttl;
        return machine_.on_outcome(outcome, sent, result_.came);
    }

    void note(const acquire_outcome& outcome, const reply& answer) {
        const bool busy = outcome.what == outcome_kind::busy;
        result_.contended = result_.contended || busy || outcome.awaited;
        trouble_ = outcome.cause;
        if (outcome.what == outcome_kind::granted || busy) return;
        // What else a reply holds is nobody's message.
        const bool says_why = answer.is(reply_kind::error) || !answer.answered();
        result_.trouble = says_why ? answer.text() : "the reply makes no sense";
    }

    // Effects: says what the key holds, and what it should.
    void name_types() {
        constexpr std::chrono::milliseconds shortly{50};
        command question{{"TYPE", dialect_.name()}, dialect_.name()};
        question.until(Clock::now() + shortly);
        const reply type = distlock::execute(connection_, question);
        // Else it was a key beside the lock, or it is gone.
        if (!type.is(reply_kind::status) || type.text() == Dialect::stored_as || type.text() == "none")
            return;
        result_.trouble = "the key holds a " + type.text() + " where this lock needs a " +
                          std::string(Dialect::stored_as) + " (" + result_.trouble + ")";
    }

    acquire_step enter(const acquire_step& step) {
        if constexpr (handing_dialect<Dialect>) {
            if (step.where != place::adopt) result_.owner = own_;
            if (step.where == place::quit) watch_.settle();
            const auto next = say(dialect_.enter(result_.owner, step.where), step.at,
                                  [&](const reply& r) { return dialect_.read_enter(r); });
            entered_ = result_.sent;
            return next;
        }
        return machine_.on_stop();
    }

    // The first time the subscription is made, which is over when the server has confirmed it: what happened until then is seen
    // by the look that follows.
    void pause(clock::time_point until) {
        if constexpr (wakes_waiters<Conn, Dialect>) {
            try {
                if (!bell_) bell_ = connection_.subscribe(dialect_.channel());
            } catch (const std::exception&) {
                // Then we find out by asking.
            }
            // Until the subscription is in force, and where it never is, we look as those do who are told nothing.
            if (!bell_ || rung_ == 0)
                until = std::min(until, Clock::now() + distlock::detail::default_recheck);
            if (bell_) {
                const bool told = bell_->template wait<Clock>(rung_, until, stop_) && rung_ != 0;
                if (told)
                    distlock::detail::pause_until<Clock>(stop_, std::min(until, Clock::now() + scatter()));
                rung_ = bell_->count();
                return;
            }
        }
        distlock::detail::pause_until<Clock>(stop_, until);
    }

    // All who wait are told at once; who is slower, in another language or behind a longer way, is to have its turn, too.
    clock::duration scatter() const noexcept {
        constexpr std::uint64_t longest = 1000;
        return std::chrono::microseconds((detail::seed_from(own_) + rung_ * 7919) % longest);
    }

    acquire_step wait(clock::time_point deadline) {
        if constexpr (waiting_connection<Conn> && handing_dialect<Dialect>) {
            // Where nobody looks after it, we leave the line to do it.
            const auto whole = deadline;
            if (!watch_.begin(ttl_))
                deadline = std::min(deadline, Clock::now() + std::chrono::milliseconds{500});
            const blocking_time seconds = deadline == clock::time_point::max()
                                              ? blocking_time()
                                              : blocking_time(deadline - Clock::now());
            std::shared_ptr<receipt> late;
            const reply answer = distlock::wait(connection_, dialect_.wait(seconds.view()),
                                                detail::patience_with_server(deadline), stop_, late);
            watch_.end();
            bool left = false;
            if constexpr (attentive_connection<Conn>) left = late && watch_.pass_on(std::move(late));
            acquire_outcome outcome = dialect_.read_wait(answer);
            // That we go and look is no trouble of the server's.
            if (deadline < whole && outcome.what == outcome_kind::unknown && outcome.cause == errc::no_reply)
                outcome = acquire_outcome::busy();
            note(outcome, answer);
            if (outcome.offered) accept(*outcome.offered);
            result_.came = Clock::now();
            if (left) machine_.on_left();
            return machine_.on_waited(outcome, outcome.offered && dialect_.complete(*outcome.offered),
                                      result_.came);
        }
        return machine_.on_stop();
    }

    void accept(const offer& offered) {
        if (machine_.open()) owe_(own_);
        result_.owner = offered.owner;
        result_.fence = offered.fence;
        result_.sent = entered_;
    }

    void leave() noexcept {
        if constexpr (handing_dialect<Dialect>) {
            constexpr std::chrono::milliseconds shortly{50};
            watch_.settle();
            command cmd = dialect_.leave();
            cmd.until(Clock::now() + shortly);
            // A server in trouble is not waited for again.
            const bool in_trouble = trouble_ != errc{} && trouble_ != errc::cancelled;
            if (in_trouble && distlock::post(connection_, cmd.with_body())) return;
            const reply answer = distlock::execute(connection_, cmd);
            static_cast<void>(answer);  // if it was not heard, the count ends with our lease
        }
    }

    Conn& connection_;
    const Dialect& dialect_;
    const std::stop_token& stop_;
    std::atomic<errc>& trouble_;
    Owe& owe_;
    Watch& watch_;
    token own_;  // by which we ask; what we are offered comes with another
    acquire machine_;
    acquisition result_;
    std::optional<std::chrono::milliseconds> ttl_;  // of the lock, when it was last seen taken
    clock::time_point entered_{};                   // before the sending that got us in line
    std::shared_ptr<subscription> bell_;            // where we are told of releases
    std::uint64_t rung_ = 0;                        // its count, before the last look
};

/// Effects: tries to take the lock within `limits` and until `stop` is requested. `trouble` says at any time
/// what keeps the server from answering; errc{} when it does. `owe(owner)`, which does not throw, is called for
/// every token under which the server may have, or may still get, a lock that nobody wants. While the attempt
/// waits in line, between watch.begin(TTL of the lock) and watch.end() somebody should look whether the lock expired;
/// begin says whether somebody does, and after settle() nobody does. Where the connection is attentive,
/// watch.pass_on(receipt) is called for a wait whose answer may still come, and be an offer; it says whether it looks after that,
/// and after the place in line. None of them throws.
/// Throws: error(errc::no_entropy), std::bad_alloc; nothing is left on the server then but what a lost reply
/// can leave.
/// Round trips: one when the lock is free; two when it is taken and this is a try; in line, two until the wait begins, one
/// when the lock was found taken the last time; one more to name the type of a key that is no lock.
template <class Clock, class Conn, class Dialect, class Owe = detail::nothing_is_owed,
          class Watch = detail::nobody_watches>
acquisition take(Conn& connection, const Dialect& dialect, const acquire_limits& limits,
                 const std::stop_token& stop, bool contended, std::atomic<errc>& trouble, Owe owe = {},
                 Watch&& watch = {}) {
    return attempt<Clock, Conn, Dialect, Owe, std::remove_reference_t<Watch>>(connection, dialect, limits,
                                                                              stop, trouble, owe, watch)
        .run(contended);
}

/// Effects: frees the lock if `owner` still holds it; a lost answer is asked for once more, on whatever the
/// connection gives then. `until` is the end of the grant's validity.
/// Round trips: one; two when an answer is lost.
template <class Clock, class Conn, class Dialect>
given_back give_back(Conn& connection, const Dialect& dialect, const token& owner,
                     typename Clock::time_point until) noexcept {
    const bool in_time = Clock::now() < until;
    const command release = dialect.release(owner);
    release_verdict verdict = dialect.read_release(distlock::execute(connection, release));
    const bool open = verdict.open;
    if (verdict.again) {
        // Who waits in line is only served by the whole release.
        const command again = verdict.plainly ? dialect.free(owner) : release;
        verdict = dialect.read_release(distlock::execute(connection, again));
    }
    switch (verdict.what) {
        case release_outcome::released:
            return {in_time ? release_outcome::released : release_outcome::expired};
        case release_outcome::expired:
        case release_outcome::taken:
            // The answer that was lost may have been "released", and the next owner may be in already.
            return {open && in_time ? release_outcome::released : verdict.what};
        case release_outcome::unreachable:
        case release_outcome::refused:
            return {verdict.what, true};
        default:
            return {verdict.what};
    }
}

}  // namespace distlock::engine
