// A release that nobody waits for: asked again and again until the server has done it, or its lease has.
//
//   class debt;                                                    // until when something may be owed
//   template <...> class owed_release : public lease_keeper::chore;
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/token.hpp>
#include <distlock/engine/lease_keeper.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock::engine {

/// How long a key of ours may still be on the server though nobody holds the lock. Thread-safe.
class debt {
  public:
    explicit debt(clock::time_point gone_by) noexcept : gone_by_(gone_by) {}
    /// Returns: the instant by which it is gone in any case; in the past when nothing is owed.
    clock::time_point gone_by() const noexcept { return gone_by_.load(); }
    void settle() noexcept { gone_by_ = clock::time_point{}; }

  private:
    std::atomic<clock::time_point> gone_by_;
};

/// Ends with the server's word that the key is not ours, or when the lease is over. Owns all it needs: the mutex may
/// be gone.
template <connection Conn, class Dialect, class Clock>
class owed_release final : public lease_keeper<Conn, Clock>::chore {
    using chore = typename lease_keeper<Conn, Clock>::chore;

  public:
    /// `posted`: of one that is on its way; null: none is.
    owed_release(const Dialect& dialect, const token& owner, std::shared_ptr<debt> owed,
                 std::shared_ptr<receipt> posted = nullptr)
        : dialect_(dialect), owner_(owner), owed_(std::move(owed)), posted_(std::move(posted)) {}

  private:
    typename chore::step begin(clock::time_point now) noexcept override {
        if (now >= owed_->gone_by() || done_already()) return {{}, clock::time_point::max()};
        const command release = plainly_ ? dialect_.free(owner_) : dialect_.release(owner_);
        return {unheard_ ? release.with_body() : release, {}};
    }

    clock::time_point end(const reply& answer, clock::time_point, clock::time_point now) noexcept override {
        unheard_ = !answer.answered();
        const auto verdict = dialect_.read_release(answer);
        switch (verdict.what) {
            case release_outcome::refused:
                plainly_ = verdict.plainly && !plainly_;
                if (plainly_) return now;
                [[fallthrough]];
            case release_outcome::unreachable:
                pause_ = std::min<clock::duration>(pause_ * 2, longest_pause);
                return std::min(now + pause_, owed_->gone_by());
            default:
                owed_->settle();
                return clock::time_point::max();
        }
    }

    bool done_already() noexcept {
        const auto answer = posted_ ? posted_->answer() : std::nullopt;
        if (!answer) return false;
        const auto what = dialect_.read_release(*answer).what;
        if (what == release_outcome::unreachable || what == release_outcome::refused) return false;
        owed_->settle();
        return true;
    }

    // Who waits for the lock waits for this, too, once the server is itself again.
    static constexpr std::chrono::milliseconds longest_pause{100};

    const Dialect dialect_;
    const token owner_;
    const std::shared_ptr<debt> owed_;
    const std::shared_ptr<receipt> posted_;
    clock::duration pause_ = std::chrono::milliseconds{25};
    bool unheard_ = false;  // the answer that was lost may have been that the server lacks the script
    bool plainly_ = false;  // what was refused may be granted to the command that needs least
};

}  // namespace distlock::engine
