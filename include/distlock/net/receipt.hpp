// The answer to a posted command, once the connection has read it.
//
//   class receipt {
//     void expect() noexcept;                     // before it is posted
//     void settle(reply) noexcept;                // by the connection
//     std::optional<reply> answer() noexcept;     // none: not known yet
//   };
#pragma once

#include <optional>
#include <utility>

#include <distlock/detail/thread_safety.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock {

/// Shared by the caller that posts a command and the connection. The connection notes the answer when it
/// reads it, perhaps while it reads for another command on the same socket. Thread-safe.
class receipt {
  public:
    /// Effects: forgets what is known: another command will be posted.
    void expect() noexcept {
        const detail::annotated_lock guard(lock_);
        answer_.reset();
    }
    /// Effects: this is the answer; reply::no_answer when there will be none.
    void settle(reply answer) noexcept {
        const detail::annotated_lock guard(lock_);
        answer_ = std::move(answer);
    }
    /// Returns: the answer, to the first who asks.
    std::optional<reply> answer() noexcept {
        const detail::annotated_lock guard(lock_);
        std::optional<reply> known = std::move(answer_);
        answer_.reset();
        return known;
    }

  private:
    detail::annotated_mutex lock_;
    std::optional<reply> answer_ DISTLOCK_GUARDED_BY(lock_);
};

}  // namespace distlock
