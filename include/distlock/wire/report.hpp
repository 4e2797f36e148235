// What there is to know about a lock from outside: who holds it, for how long, under which fencing token.
//
//   struct lock_report { holder, remaining, fence, waiters, queue, shares, limit };
//   std::string to_string(const lock_report&);     // a line;  out << report  prints the same
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <distlock/detail/separate.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock {

/// Who holds a lock.
struct lock_holder {
    /// The value of the key: for distlock 32 hexadecimal digits, else whatever that client writes.
    std::string token;
    std::string host;  ///< empty unless the holder set lock_options::owner_info
    std::int64_t pid = 0;
    std::string label;        ///< the text of lock_options::owner_info
    std::uint64_t holds = 1;  ///< how often it was taken by a holder that may take it again
};

/// A waiter in the queue on the server.
struct lock_waiter {
    std::chrono::microseconds waits{};  ///< since it joined, by the server's clock
    std::chrono::milliseconds lease{};  ///< that it will have
    std::string channel;                ///< where it hears of the lock; empty: nowhere
    std::string host;                   ///< empty unless it set lock_options::owner_info
    std::int64_t pid = 0;
    std::string label;          ///< the text of lock_options::owner_info
    bool reads = false;         ///< together with others
    std::uint64_t permits = 0;  ///< of a semaphore; 0: it waits for a lock
};

/// A moment of a lock's life; it may be over when it is read. Texts are the bytes that others wrote: make
/// them printable before you show them on a terminal.
struct lock_report {
    std::optional<lock_holder> holder;  ///< none: the lock is free, or readers have it
    /// Of a held lock: its TTL on the server; none: it never expires.
    std::optional<std::chrono::milliseconds> remaining;
    std::optional<std::uint64_t> fence;  ///< the last fencing token; none: none lately, or unknown
    /// Members of the queue, also such as are no tickets; none: this dialect has no queue.
    std::optional<std::uint64_t> waiters;
    std::vector<lock_waiter> queue;  ///< the first of them, at most a hundred
    /// How many readers have it, those of one object may count as one; of a semaphore: how many permits are
    /// out.
    std::optional<std::uint64_t> shares = {};
    /// Of a semaphore: how many permits there are; none: nobody has asked for one for long, or it was
    /// deleted.
    std::optional<std::uint64_t> limit = {};
};

namespace detail {
/// Returns: whether somebody lost the lock, by the answer to a forced release; none for a reply that says
/// neither.
inline std::optional<bool> read_forced(const reply& r) noexcept {
    if (r.is_integer(1)) return true;
    if (r.is_integer(0)) return false;
    return std::nullopt;
}
}  // namespace detail

/// Returns: a line for people, without its end: who has it, for how long, and how many wait. Printable.
DISTLOCK_INLINE std::string to_string(const lock_report& of);

template <class Traits>
std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& out, const lock_report& of) {
    const std::string text = to_string(of);
    return out.write(text.data(), static_cast<std::ptrdiff_t>(text.size()));
}

}  // namespace distlock

#ifndef DISTLOCK_SEPARATE_COMPILATION
#include <distlock/wire/report_impl.hpp>
#endif
