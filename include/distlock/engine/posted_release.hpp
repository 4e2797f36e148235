// A release that unlock() does not wait for: sent at once, and confirmed in the background.
//
//   template <connection Conn, class Dialect, class Clock> class posted_release {
//     bool post(keeper, const token& owner, time_point gone_by) noexcept;
//     bool open() noexcept;                        // the server has not said yet that it is done
//     void settle() noexcept;                      // it must be done
//     void retire() noexcept;                      // what is open is somebody else's concern
//   };
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/base/token.hpp>
#include <distlock/engine/lease_keeper.hpp>
#include <distlock/engine/owed_release.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock::engine {

/// Of one lock object, which has at most one such release that matters: whoever is granted the lock after it knows that it is
/// done. Thread-safe. The answer is usually read with the next one on its socket; what was not heard of by and by is
/// looked for, and asked again if need be, until the lease is over.
template <connection Conn, class Dialect, class Clock>
class posted_release {
    using keeper_type = lease_keeper<Conn, Clock>;
    using time_point = clock::time_point;

  public:
    posted_release(Conn& connection, const Dialect& dialect, std::chrono::milliseconds answer_time)
        : connection_(connection), dialect_(dialect), answer_time_(answer_time) {}
    posted_release(const posted_release&) = delete;
    posted_release& operator=(const posted_release&) = delete;

    static constexpr bool possible = posting_connection<Conn>;

    /// Preconditions: possible; no other thread posts.
    /// Returns: whether it was handed to the system; if not, nothing was.
    bool post(const std::shared_ptr<keeper_type>& keeper, const token& owner, time_point gone_by) noexcept {
        try {
            if (!keeper_) keeper_ = keeper;
            {
                const std::lock_guard guard(state_);
                hear();
                // One whose answer may still come must not be taken for the next one's.
                if (!receipt_ || !heard_) receipt_ = std::make_shared<receipt>();
                heard_ = false;
                receipt_->expect();
                owner_ = owner;
                gone_by_ = gone_by;
                posted_at_ = Clock::now();
                refused_ = failed_ = false;
                if (!listed_) keeper_->list(confirmation_, posted_at_ + shortly);
                listed_ = open_ = true;
            }
            if (send(known_ ? dialect_.release(owner) : dialect_.release(owner).with_body())) return true;
        } catch (...) {}
        settle();
        return false;
    }

    bool open() noexcept {
        const std::lock_guard guard(state_);
        hear();
        return open_ && Clock::now() < gone_by_;
    }

    /// Returns: by whom, and until when, a lock may still be kept from others.
    token owner() const noexcept {
        const std::lock_guard guard(state_);
        return owner_;
    }
    time_point gone_by() const noexcept {
        const std::lock_guard guard(state_);
        return gone_by_;
    }

    void settle() noexcept {
        const std::lock_guard guard(state_);
        hear();
        open_ = false;
    }

    /// Effects: nothing of it runs any more; if it is still open, the keeper goes on by itself.
    void retire() noexcept {
        if (!keeper_) return;
        keeper_->strike(confirmation_);
        if (!open()) return;
        try {
            keeper_->owe(std::make_unique<owed_release<Conn, Dialect, Clock>>(
                             dialect_, owner_, std::make_shared<debt>(gone_by_), receipt_),
                         Clock::now() + answer_time_);
        } catch (...) {
            // It was posted; what became of it nobody will ask.
        }
    }

  private:
    using chore = typename keeper_type::chore;
    struct confirmation final : chore {
        explicit confirmation(posted_release& of) : mine(of) {}
        typename chore::step begin(time_point now) noexcept override { return mine.begin_asking(now); }
        time_point end(const reply& answer, time_point, time_point now) noexcept override {
            return mine.end_asking(answer, now);
        }
        posted_release& mine;
        token owner;
    };

    static constexpr std::chrono::milliseconds shortly{50};

    bool send(const command& release) {
        if constexpr (confirming_connection<Conn>) {
            return connection_.post(release, receipt_);
        } else {
            return distlock::post(connection_, release);
        }
    }

    // Effects: notes what was answered, if it was.
    void hear() noexcept {
        if (!open_ || !receipt_) return;
        const auto answer = receipt_->answer();
        if (!answer) return;
        heard_ = true;
        judge(*answer);
    }

    void judge(const reply& answer) noexcept {
        switch (dialect_.read_release(answer).what) {
            case release_outcome::released:
            case release_outcome::expired:
            case release_outcome::taken:
                open_ = false;
                known_ = true;
                break;
            case release_outcome::refused:
                known_ = false;
                // What it lacks it is sent; what was refused may be granted to the command that needs least.
                if (!answer.text().starts_with("NOSCRIPT")) refused_ = !refused_;
                [[fallthrough]];
            default:
                failed_ = true;
        }
    }

    typename chore::step begin_asking(time_point now) noexcept {
        if constexpr (confirming_connection<Conn>) {
            if (open()) collect();
        }
        const std::lock_guard guard(state_);
        hear();
        if (!open_ || now >= gone_by_) {
            open_ = listed_ = false;
            return {{}, time_point::max()};
        }
        // Its answer may still be on its way.
        if (confirming_connection<Conn> && !failed_ && now < posted_at_ + answer_time_)
            return {{}, now + shortly};
        confirmation_.owner = owner_;
        const token& owner = confirmation_.owner;
        const command release = refused_ ? dialect_.free(owner) : dialect_.release(owner);
        return {known_ ? release : release.with_body(), {}};
    }

    time_point end_asking(const reply& answer, time_point now) noexcept {
        const std::lock_guard guard(state_);
        if (open_ && owner_ == confirmation_.owner) judge(answer);
        listed_ = open_;
        return open_ ? now + shortly : time_point::max();
    }

    void collect() noexcept {
        try {
            connection_.collect();
        } catch (...) {
            // Then it will be asked.
        }
    }

    Conn& connection_;
    const Dialect& dialect_;
    const std::chrono::milliseconds answer_time_;
    mutable std::mutex state_;
    std::shared_ptr<keeper_type> keeper_;
    std::shared_ptr<receipt> receipt_;
    token owner_;
    time_point gone_by_{};
    time_point posted_at_{};
    bool open_ = false;     // not confirmed
    bool heard_ = false;    // the receipt has had its answer
    bool failed_ = false;   // it was answered, or will not be
    bool refused_ = false;  // by the server
    bool known_ = false;    // the server has the script
    bool listed_ = false;   // the keeper has us on its list
    confirmation confirmation_{*this};
};

}  // namespace distlock::engine
