// Releases the tokens of one lock object: posted, confirmed, or repeated in the background.
//
//   class releaser {
//     release_outcome release(const ended_acquisition&, release_mode) noexcept;   // what a thread held
//     release_outcome give_back(const ended_acquisition&) noexcept;    // what was of no use
//     release_outcome confirm(token, valid_until, latest_expiry, stop) noexcept;   // by the calling thread
//     void leave(const token&, certainty, stop) noexcept;              // of an attempt that gave up
//     void leave_once(const token&, stop) noexcept;                    // of one that was refused midway
//     void repeat(const token&, certainty, latest_expiry) noexcept;    // in the background
//     void on_grant() noexcept;
//     bool unconfirmed() noexcept;                                     // a posted release
//     void confirm_posted(by, stop) noexcept;                          // asks the server for its word
//     time_point late_until(time_point now) const noexcept;
//         // what was sent by then and not answered may arrive
//     time_point latest_expiry() noexcept;  // until when something of ours may keep others out
//   };
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <stop_token>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/thread_safety.hpp>
#include <distlock/engine/acquire_step.hpp>
#include <distlock/engine/background_io.hpp>
#include <distlock/engine/background_release.hpp>
#include <distlock/engine/release.hpp>
#include <distlock/net/any_connection.hpp>
#include <distlock/wire/any_dialect.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/outcome.hpp>

namespace distlock::engine {

/// An acquisition that has ended, and is to be released.
struct ended_acquisition {
    token owner;
    clock::time_point valid_until;
    clock::time_point latest_expiry;
    certainty sure;  ///< in_doubt: an earlier request for it was not answered, and may still arrive
};

/// Thread-safe, but for release() and give_back(), which one thread at a time calls.
class releaser {
    using time_point = clock::time_point;

  public:
    /// `answer_time`: how long an answer may be on its way.
    [[gnu::cold]] releaser(std::shared_ptr<background_io> io, std::shared_ptr<const any_dialect> dialect,
                           std::chrono::milliseconds answer_time)
        : io_(std::move(io)),
          dialect_(std::move(dialect)),
          answer_time_(answer_time),
          posted_(in_background()) {}

    /// Effects: posted, while the acquisition is valid, it waits for next to nothing: what cannot be sent at
    /// once the background repeats.
    release_outcome release(const ended_acquisition& last, release_mode mode) noexcept {
        const auto now = io_->time().now();
        const bool posts = mode == release_mode::posted && now < last.valid_until;
        return carry_out(last, now, posts, time_point::max());
    }

    /// Effects: releases what was of no use to its owner. Where it can be posted, or its lease has run out,
    /// the thread waits for next to nothing: what is not sent, or not confirmed, by then the background
    /// repeats.
    [[gnu::cold]] release_outcome give_back(const ended_acquisition& last) noexcept {
        const auto now = io_->time().now();
        return carry_out(last, now, true, now < last.valid_until ? time_point::max() : now + shortly);
    }

    /// Effects: releases by `owner`, and asks once more where that may help; what is not confirmed then is
    /// repeated in the background. So is what a request of `stop`, or the time `by`, cuts short.
    /// Round trips: one; two when the answer is lost, or the server refuses.
    release_outcome confirm(const token& owner, time_point valid_until, time_point latest_expiry,
                            const std::stop_token& stop = {}, time_point by = time_point::max()) noexcept {
        const bool in_time = io_->time().now() < valid_until;
        const auto machine = ask_twice(owner, latest_expiry, by, stop);
        if (!machine.confirmed()) repeat(owner, certainty::granted, latest_expiry);
        return machine.outcome(in_time);
    }

    /// Effects: what the server has under a token that nobody uses any more, or may still get, is released.
    /// Waits for next to nothing, and for nothing at all once `stop` was requested and the background has
    /// room; where it has none, 60 ms at most.
    [[gnu::cold]] void leave(const token& owner, certainty sure, const std::stop_token& stop) noexcept {
        const auto now = io_->time().now();
        const bool stopped = stop.stop_requested();
        const auto send_by = stopped ? now : now + shortly;
        const std::stop_token* const waited_for = stopped ? nullptr : &stop;
        // A grant stands for a lease; a request that may still arrive is looked for.
        const auto until =
            sure == certainty::granted ? now + answer_time_ + dialect_->lease() : late_until(now);
        const engine::release how(sure, until);
        const std::size_t most = places_for(sure);
        try {
            auto mine = in_background();
            const auto posted =
                background_release::post(mine, {owner, how, answer_time_, send_by, waited_for}, most);
            if (posted != background_release::posting::sent) {
                // A key that was found and deleted says that nothing of ours is left. But of two requests in
                // doubt the other one may still be on its way.
                const bool gone = !stopped && release_by(owner, send_by, stop) == release_outcome::released;
                if (gone && sure == certainty::granted) return;
                const bool sent = !stopped && sure == certainty::in_doubt;
                background_release::repeat(mine, owner, how, sent ? now + answer_time_ : now, most);
            }
            const bool no_room = posted != background_release::posting::sent && mine->pending().empty();
            if (no_room) io_->request_room();
            if (no_room && stopped) return release_here(owner);
            keep(sure == certainty::granted ? kind::left : kind::in_doubt, std::move(mine));
        } catch (...) {
            if (!stopped) release_by(owner, send_by, stop);  // no memory
        }
    }

    /// Effects: the same, but nothing is repeated: a user that may not take a lock may mostly not release one
    /// either, and would ask again and again. A ticket that stays is offered the lock once.
    [[gnu::cold]] void leave_once(const token& owner, const std::stop_token& stop) noexcept {
        if (!stop.stop_requested()) release_by(owner, io_->time().now() + shortly, stop);
    }

    /// Effects: releases by `owner` in the background until `latest_expiry`, at first after `delay`; where
    /// there is no memory or no thread for it, the lease ends it.
    [[gnu::cold]] void repeat(const token& owner, certainty sure, time_point latest_expiry,
                              clock::duration delay = {}) noexcept {
        try {
            auto mine = in_background();
            const bool granted = sure == certainty::granted;
            background_release::repeat(mine, owner, engine::release(sure, latest_expiry),
                                       io_->time().now() + delay,
                                       granted ? background_io::most_adopted : background_io::most_in_doubt);
            keep(granted ? kind::pending : kind::in_doubt, std::move(mine));
        } catch (...) {}
    }

    /// Returns: until when what was sent by `now` and not answered may still arrive, and keep the lock; as
    /// far as it is looked for.
    time_point late_until(time_point now) const noexcept {
        constexpr std::chrono::minutes long_enough{1};
        return now + answer_time_ + std::min<clock::duration>(dialect_->lease(), long_enough);
    }

    void on_grant() noexcept {
        if (!shares_) posted_->confirm();  // or it would not have been granted
    }

    bool unconfirmed() noexcept { return !posted_->pending().empty() || (shares_ && other_posted()); }
    /// Effects: asks the server what became of the posted releases, and once more where that may help. Waits
    /// until `by`, or shortest_answer_time where that is longer.
    [[gnu::cold]] void confirm_posted(time_point by, const std::stop_token& stop) noexcept {
        const auto answer_by = std::max(by, io_->time().now() + shortest_answer_time);
        auto one = posted_;
        do {
            const token owner = one->pending();
            if (owner.empty()) continue;
            const auto machine = ask_twice(owner, one->latest_expiry(), answer_by, stop);
            if (!machine.confirmed()) return;  // the background goes on
            one->confirm(owner);
        } while (shares_ && !stop.stop_requested() && (one = other_posted()));
    }

    time_point latest_expiry() noexcept {
        const distlock::detail::annotated_lock guard(lock_);
        time_point last = posted_->latest_expiry();
        for (const auto& one : kept_) last = std::max(last, one.what->latest_expiry());
        return last;
    }

  private:
    // Releases in the background. Where one token excludes the next, a later one of a kind says that an
    // earlier one does not matter, but in_doubt: there the one that may last longest matters.
    enum class kind { pending, left, in_doubt, posted };
    struct kept {
        kind of;
        std::shared_ptr<background_release> what;
    };

    static constexpr std::chrono::milliseconds shortly{30};

    // One answer ends what is known to be there. A crowd that stops at once leaves that; what is in doubt is
    // looked for all of a lease.
    static constexpr std::size_t places_for(certainty sure) noexcept {
        return sure == certainty::granted ? background_io::most_handed_over : background_io::most_in_doubt;
    }

    release_outcome carry_out(const ended_acquisition& last, time_point now, bool posts,
                              time_point answer_by) noexcept {
        using posting = background_release::posting;
        const engine::release how(certainty::granted, last.latest_expiry);
        const auto posted =
            posts ? post({last.owner, how, answer_time_, now + shortly}) : posting::impossible;
        auto done = posted == posting::sent ? release_outcome::posted : release_outcome::unreachable;
        if (posted == posting::impossible)
            done = confirm(last.owner, last.valid_until, last.latest_expiry, {}, answer_by);
        if (last.sure == certainty::in_doubt)
            repeat(last.owner, certainty::in_doubt, late_until(io_->time().now()), answer_time_);
        return done;
    }

    // Effects: what is not sent is repeated in the background.
    background_release::posting post(const background_release::sending& what) noexcept {
        using posting = background_release::posting;
        std::shared_ptr<background_release> another;  // most need none
        if (shares_ && !posted_->pending().empty()) {
            try {
                another = in_background();
            } catch (...) {
                return posting::impossible;  // no memory
            }
        }
        const auto& mine = another ? another : posted_;
        const auto done = background_release::post(mine, what);
        if (done == posting::not_sent)
            background_release::repeat(mine, what.owner, what.how, io_->time().now());
        if (done != posting::impossible && another) keep(kind::posted, std::move(another));
        return done;
    }

    // Effects: what the background has no room to repeat the thread does. Of a server that answers, the third
    // release finds what the first one overtook on a new socket: meanwhile the server has accepted and read
    // that.
    // Throws: std::bad_alloc.
    [[gnu::cold]] void release_here(const token& owner) {
        // From now on: of a crowd that stops at once each waits for the others, until its time is over.
        const auto answer_by = io_->time().now() + shortly;
        for (int n = 0; n < 3; ++n) {
            const auto said = release_by(owner, answer_by, {});
            if (said == release_outcome::released) return;
            if (said == release_outcome::unreachable) return post_once(owner);
        }
    }

    // Effects: sends it where it can be posted; without a receipt, or a socket that ends would drop it as
    // somebody else's to repeat.
    // Throws: std::bad_alloc.
    [[gnu::cold]] void post_once(const token& owner) {
        any_connection& connection = io_->connection();
        if (!connection.can.post) return;
        command cmd = dialect_->release(owner).with_body();
        cmd.until(io_->time().now() + shortly);
        connection.post(cmd, nullptr);
    }

    // Returns: one that is pending, beside posted_; null: there is none.
    [[gnu::cold]] std::shared_ptr<background_release> other_posted() noexcept {
        const distlock::detail::annotated_lock guard(lock_);
        for (const auto& one : kept_) {
            if (one.of == kind::posted && !one.what->pending().empty()) return one.what;
        }
        return nullptr;
    }

    std::shared_ptr<background_release> in_background() const {
        return std::make_shared<background_release>(*io_, dialect_);
    }

    engine::release ask_twice(const token& owner, time_point latest_expiry, time_point by,
                              const std::stop_token& stop) noexcept {
        engine::release machine(certainty::granted, latest_expiry);
        if (ask(owner, machine, by, stop) && !stop.stop_requested()) ask(owner, machine, by, stop);
        return machine;
    }

    // Returns: whether it may help to ask again.
    bool ask(const token& owner, engine::release& machine, time_point by,
             const std::stop_token& stop) noexcept {
        const bool minimal = machine.next() == engine::release::form::minimal;
        command cmd = minimal ? dialect_->release_minimal(owner) : dialect_->release(owner);
        cmd.until(by).until(stop);
        const auto verdict = dialect_->read_release(io_->connection().execute(cmd));
        machine.on_verdict(verdict, io_->time().now());
        return verdict.again;
    }

    // The body is sent: nobody would wait for it once the server had said that it lacks it.
    [[gnu::cold]] release_outcome release_by(const token& owner, time_point answer_by,
                                             const std::stop_token& stop) noexcept {
        command cmd = dialect_->release(owner).with_body();
        cmd.until(answer_by).until(stop);
        return dialect_->read_release(io_->connection().execute(cmd)).what;
    }

    // Without memory for it the release goes on unseen.
    [[gnu::cold]] void keep(kind of, std::shared_ptr<background_release> last) noexcept {
        const distlock::detail::annotated_lock guard(lock_);
        const auto settled = [&](const kept& one) {
            const auto until = one.what->latest_expiry();
            const bool outlasts = of == kind::in_doubt && until > last->latest_expiry();
            return until == time_point{} || (!shares_ && one.of == of && !outlasts);
        };
        std::erase_if(kept_, settled);
        try {
            kept_.push_back({of, std::move(last)});
        } catch (...) {}
    }

    const std::shared_ptr<background_io> io_;
    const std::shared_ptr<const any_dialect> dialect_;
    const std::chrono::milliseconds answer_time_;
    const bool shares_ = dialect_->is_shared();
    const std::shared_ptr<background_release> posted_;  // a posted release
    distlock::detail::annotated_mutex lock_;
    std::vector<kept> kept_ DISTLOCK_GUARDED_BY(lock_);
};

}  // namespace distlock::engine
