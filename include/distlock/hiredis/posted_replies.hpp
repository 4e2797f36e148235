// The replies that are still to come on a socket for commands nobody waits for.
//
//   class posted_replies {
//     void make_room();                           // the next expect() takes no memory
//     void expect(std::shared_ptr<receipt>);      // null: nobody wants to know
//     void settle(reply) noexcept;                // the first of them came
//     std::size_t count() const noexcept;
//     std::size_t unconfirmed() const noexcept;   // of these: nobody wants to know, and sends it again
//     bool in_forked_child() const noexcept;
//   };
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/detail/system.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock::detail {

/// First posted, first answered. Allocates nothing once it was as long as it gets.
class posted_replies {
  public:
    posted_replies() = default;
    posted_replies(const posted_replies&) = delete;
    posted_replies& operator=(const posted_replies&) = delete;
    /// Effects: those that did not come never will. In a child after fork() none: a thread of its parent
    /// may have had a receipt.
    ~posted_replies() {
        if (in_forked_child()) return;
        while (count() > 0)
            settle(reply::no_answer(errc::no_reply, "it broke off"));  // short: it takes no memory
    }

    /// Effects: the next expect() takes no memory.
    void make_room() {
        if (to_come_.size() == to_come_.capacity()) to_come_.reserve(2 * to_come_.size() + 1);
    }
    void expect(std::shared_ptr<receipt> who) {
        const bool unknown = who == nullptr;
        to_come_.push_back(std::move(who));
        if (unknown) ++unconfirmed_;
    }

    /// Preconditions: count() > 0.
    void settle(reply answer) noexcept {
        if (const auto who = std::move(to_come_[first_++])) {
            who->settle(std::move(answer));
        } else {
            --unconfirmed_;
        }
        // Answered entries are dropped when nothing is left, or when they are the larger part.
        constexpr std::size_t few = 64;
        if (first_ < to_come_.size() && (first_ < few || 2 * first_ < to_come_.size())) return;
        to_come_.erase(to_come_.begin(), to_come_.begin() + static_cast<std::ptrdiff_t>(first_));
        first_ = 0;
    }

    std::size_t count() const noexcept { return to_come_.size() - first_; }
    /// Returns: how many of them have no receipt: a sender that has one learns of a loss and
    /// repeats the command.
    std::size_t unconfirmed() const noexcept { return unconfirmed_; }

    bool in_forked_child() const noexcept { return process_.in_forked_child(); }

  private:
    const own_process process_;
    std::vector<std::shared_ptr<receipt>> to_come_;
    std::size_t first_ = 0;
    std::size_t unconfirmed_ = 0;
};

}  // namespace distlock::detail
