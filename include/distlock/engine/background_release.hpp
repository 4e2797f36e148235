// A release that no thread waits for: posted at once where the connection can, and repeated in the background
// until it is confirmed or the key has expired.
//
//   class background_release : public background_task {
//     background_release(background_io&, std::shared_ptr<const any_dialect>);
//     static posting post(shared_ptr<background_release>, const sending&, most) noexcept;
//         // and repeat it if need be
//     static void repeat(shared_ptr<background_release>, token, release, at, most) noexcept;
//     token pending() noexcept;                       // empty: none
//     time_point latest_expiry() noexcept;            // time_point{}: nothing is pending
//     void confirm() noexcept;                        // something that followed it shows that it is done
//   };
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <new>
#include <stop_token>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/time_source.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/thread_safety.hpp>
#include <distlock/engine/background_io.hpp>
#include <distlock/engine/release.hpp>
#include <distlock/net/any_connection.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/wire/any_dialect.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock::engine {

/// Thread-safe. The background has a share in it for as long as something is pending, so the lock
/// object may be gone; an object whose release is over can post another one. The answer to a posted
/// release is usually read with the next one on its socket; the background looks for one that was not,
/// and asks again if need be.
class background_release final : public background_task {
    using step = background_task::step;
    using time_point = clock::time_point;

  public:
    /// A release to be posted.
    struct sending {
        const token& owner;
        const release& how;
        std::chrono::milliseconds answer_time;   ///< for so long the answer may come
        time_point send_by = time_point::max();  ///< nobody waits for longer until it is sent,
        const std::stop_token* stop = nullptr;   ///< nor once this stop was requested
    };

    /// `io` outlives it, or its use.
    background_release(background_io& io, std::shared_ptr<const any_dialect> dialect)
        : io_(io), dialect_(std::move(dialect)) {}

    enum class posting {
        sent,        ///< it was handed to the system
        not_sent,    ///< it was not, and may be repeated
        impossible,  ///< the connection cannot post, or the background has no memory, no thread, or `most`
    };
    /// Preconditions: no other thread posts.
    /// Effects: sends the release; it is repeated unless it is confirmed in time. Where it is not
    /// sent, nothing is pending.
    static posting post(const std::shared_ptr<background_release>& mine, const sending& what,
                        std::size_t most = background_io::most_adopted) noexcept {
        any_connection& connection = mine->io_.connection();
        if (!connection.can.post) return posting::impossible;
        auto done = posting::impossible;
        try {
            command cmd = mine->dialect_->release(what.owner);
            if (!mine->expect_answer(mine, cmd, what, most)) cmd = cmd.with_body();
            cmd.until(what.send_by);
            if (what.stop != nullptr) cmd.until(*what.stop);
            done = posting::not_sent;
            if (connection.post(cmd, mine->receipt_)) return posting::sent;
        } catch (...) {
            // Then the caller must know another way.
        }
        mine->confirm();
        return done;
    }

    /// Effects: releases by `owner` in the background from `at` on. Where there is no memory or no thread for
    /// it, or `most` of the kind, the lease ends it.
    [[gnu::cold]] static void repeat(const std::shared_ptr<background_release>& mine, const token& owner,
                                     const release& how, time_point at,
                                     std::size_t most = background_io::most_adopted) noexcept {
        const distlock::detail::annotated_lock guard(mine->lock_);
        mine->owner_ = owner;
        mine->machine_ = how;
        mine->since_ = at;
        mine->has_script_ = true;  // or it says so, and gets it at once
        mine->phase_ = mine->io_.adopt(mine, at, most) ? phase::repeated : phase::unlisted;
    }

    /// Effects: notes the answer to what was posted, if it has come.
    token pending() noexcept {
        const distlock::detail::annotated_lock guard(lock_);
        return is_pending() ? owner_ : token();
    }
    /// Effects: as pending().
    time_point latest_expiry() noexcept {
        const distlock::detail::annotated_lock guard(lock_);
        return is_pending() ? machine_.latest_expiry() : time_point{};
    }
    void confirm() noexcept {
        const distlock::detail::annotated_lock guard(lock_);
        hear();
        if (phase_ != phase::unlisted) phase_ = phase::over;
    }
    /// The same, unless another release was posted meanwhile.
    void confirm(const token& owner) noexcept {
        const distlock::detail::annotated_lock guard(lock_);
        hear();
        if (phase_ != phase::unlisted && owner_ == owner) phase_ = phase::over;
    }

  private:
    enum class phase {
        unlisted,  // nothing is pending
        over,      // the same, but the background does not know yet
        posted,    // the answer may still come
        repeated,
    };

    static constexpr std::chrono::milliseconds shortly{50};
    static constexpr std::chrono::seconds long_enough{1};  // several of TCP's first retransmissions

    // Throws: when the background cannot have it.
    // Returns: whether the server has the script.
    bool expect_answer(const std::shared_ptr<background_release>& mine, const command& whole,
                       const sending& what, std::size_t most) {
        const distlock::detail::annotated_lock guard(lock_);
        hear();
        // One whose answer may still come must not be taken for the next one's.
        if (!receipt_ || awaits_answer_) receipt_ = std::make_shared<receipt>();
        receipt_->expect();
        const auto now = io_.time().now();
        if (phase_ == phase::unlisted && !io_.adopt(mine, now + shortly, most)) throw std::bad_alloc();
        owner_ = what.owner;
        machine_ = what.how;
        since_ = now;
        answer_by_ = now + what.answer_time;
        awaits_answer_ = io_.connection().can.confirm;
        phase_ = phase::posted;
        if (one_server()) has_script_ = io_.scripts().has(whole);
        return has_script_;
    }

    // In a Cluster each lock may be another server's.
    bool one_server() const noexcept { return !io_.connection().can.shard; }

    bool is_pending() noexcept DISTLOCK_REQUIRES(lock_) {
        hear();
        return (phase_ == phase::posted || phase_ == phase::repeated) &&
               io_.time().now() < machine_.latest_expiry();
    }

    // Effects: notes the answer to what was posted, if it has come.
    void hear() noexcept DISTLOCK_REQUIRES(lock_) {
        if (!awaits_answer_) return;
        const auto answer = receipt_->answer();
        if (!answer) return;
        awaits_answer_ = false;
        if (phase_ == phase::posted) judge(*answer, io_.time().now());
    }

    // Returns: when to send again.
    [[gnu::cold]] time_point judge(const reply& answer, time_point now) noexcept DISTLOCK_REQUIRES(lock_) {
        const auto verdict = dialect_->read_release(answer);
        // The answer that got lost may have been NOSCRIPT.
        const bool has_script = verdict.executed();
        if (machine_.next() == release::form::whole && has_script != has_script_) {
            has_script_ = has_script;
            if (one_server()) io_.scripts().note(dialect_->release(owner_), has_script);
        }
        const auto next = machine_.on_verdict(verdict, now);
        phase_ = next == time_point::max() ? phase::over : phase::repeated;
        return next;
    }

    [[gnu::cold]] step begin(time_point now) noexcept override {
        any_connection& connection = io_.connection();
        if (connection.can.confirm && !pending().empty()) connection.collect();
        const distlock::detail::annotated_lock guard(lock_);
        // The server may take a request in doubt until then: one more release undoes it.
        const bool is_last = phase_ == phase::repeated && machine_.in_doubt();
        if (!is_pending() && !is_last) {
            phase_ = phase::unlisted;
            return {{}, time_point::max()};
        }
        if (connection.can.confirm && phase_ == phase::posted && now < answer_by_) return {{}, now + shortly};
        asked_ = owner_;
        phase_ = phase::repeated;
        if (machine_.next() == release::form::minimal) return {dialect_->release_minimal(asked_), {}};
        const command whole = dialect_->release(asked_);
        return {has_script_ ? whole : whole.with_body(), {}};
    }

    // Nobody waits for the answer to a posted release then. The background I/O sees to the script.
    [[gnu::cold]] step begin_last(time_point now) noexcept override {
        {
            const distlock::detail::annotated_lock guard(lock_);
            answer_by_ = now;
            has_script_ = true;
        }
        return begin(now);
    }

    [[gnu::cold]] time_point end(const reply& answer, time_point sent, time_point now) noexcept override {
        const distlock::detail::annotated_lock guard(lock_);
        // Meanwhile another release may have been posted.
        if (phase_ != phase::repeated || owner_ != asked_) return now + shortly;
        // Behind a release that was sent before its time was over a request in doubt may still have come.
        const auto next = judge(answer, machine_.in_doubt() ? sent : now);
        // One that was answered for a while finds next to nothing any more. Others need its place.
        const bool gives_way = machine_.in_doubt() && machine_.answered() && now - since_ >= long_enough &&
                               io_.take_room_request();
        if (phase_ != phase::over && !gives_way) return next;
        phase_ = phase::unlisted;
        return time_point::max();
    }

    background_io& io_;
    const std::shared_ptr<const any_dialect> dialect_;
    distlock::detail::annotated_mutex lock_;
    std::shared_ptr<receipt> receipt_;  // of the thread that posts
    token owner_ DISTLOCK_GUARDED_BY(lock_);
    release machine_ DISTLOCK_GUARDED_BY(lock_);
    time_point since_ DISTLOCK_GUARDED_BY(lock_){};
    time_point answer_by_ DISTLOCK_GUARDED_BY(lock_){};
    phase phase_ DISTLOCK_GUARDED_BY(lock_) = phase::unlisted;
    bool awaits_answer_ DISTLOCK_GUARDED_BY(lock_) = false;  // the receipt's
    bool has_script_ DISTLOCK_GUARDED_BY(lock_) = false;     // the server
    token asked_;                                            // of the background: must live until end()
};

}  // namespace distlock::engine
