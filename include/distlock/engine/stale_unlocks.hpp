// The unlocks that are still to come for acquisitions that were lost and followed by others.
//
//   class stale_unlocks {
//     void make_room();
//     void add(std::thread::id owner, std::uint64_t serial, by) noexcept;
//     bool consume(std::thread::id caller) noexcept;
//     bool consume_own(std::thread::id owner, std::uint64_t after = 0) noexcept;
//     void consume_guarded(std::uint64_t serial) noexcept;
//     bool contains(std::thread::id caller) const noexcept;
//   };
#pragma once

#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace distlock::engine {

/// The unlock() of a thread whose lease ran out must not free the lock of the present owner, and until then
/// that thread must not take the present acquisition for its own. Not thread-safe.
class stale_unlocks {
  public:
    /// The unlock that is still to come.
    enum class by {
        any_thread,  ///< a bare one: a lock may be handed to another thread
        its_thread,  ///< a bare one of the thread that gave the lock up, and so cannot have left it to
                     ///< another
        guard        ///< a guard's, which names the serial
    };

    /// Effects: the next add() allocates nothing.
    /// Throws: std::bad_alloc.
    void make_room() {
        if (expected_.size() == expected_.capacity()) expected_.reserve(2 * expected_.size() + 1);
    }

    /// Preconditions: make_room() was called since the last add().
    /// Effects: expects one more unlock of an acquisition that `owner` took.
    void add(std::thread::id owner, std::uint64_t serial, by who) noexcept {
        constexpr std::size_t most = 1024;  // threads that never unlock must not fill the memory
        if (expected_.size() == most) {
            if (expected_.front().who == by::any_thread) ++older_;
            expected_.erase(expected_.begin());
        }
        expected_.push_back({owner, serial, who});
    }

    /// Effects: a bare unlock() came: takes away the thread's own entry, or else anybody's, for a lock may be
    /// handed to another thread.
    /// Returns: whether there was one.
    bool consume(std::thread::id caller) noexcept {
        if (consume_own(caller)) return true;
        if (older_ == 0) return erase_first([](const entry& e) { return e.who == by::any_thread; });
        --older_;
        return true;
    }

    /// Effects: takes away one bare unlock() of that thread's own, of an acquisition later than the serial
    /// `after`. Returns: whether there was one.
    bool consume_own(std::thread::id owner, std::uint64_t after = 0) noexcept {
        return erase_first(
            [&](const entry& e) { return e.who != by::guard && e.owner == owner && e.serial > after; });
    }

    /// Effects: the guard of that acquisition ended.
    void consume_guarded(std::uint64_t serial) noexcept {
        while (erase_first([&](const entry& e) { return e.who == by::guard && e.serial == serial; })) {}
    }

    /// Returns: whether an unlock is still to come from that thread, bare or by a guard.
    bool contains(std::thread::id caller) const noexcept {
        for (const entry& e : expected_) {
            if (e.owner == caller) return true;
        }
        return false;
    }

  private:
    struct entry {
        std::thread::id owner;
        std::uint64_t serial;
        by who;
    };

    template <class F>
    bool erase_first(F wanted) noexcept {
        for (auto at = expected_.begin(); at != expected_.end(); ++at) {
            if (!wanted(*at)) continue;
            expected_.erase(at);
            return true;
        }
        return false;
    }

    std::vector<entry> expected_;
    std::size_t older_ = 0;  // bare ones there was no room for
};

}  // namespace distlock::engine
