// The unlocks that are still to come for acquisitions that were lost and followed by others.
//
//   class strays {
//     void remember(std::thread::id taker);
//     bool forget(std::thread::id caller) noexcept;
//     bool owes(std::thread::id caller) const noexcept;
//   };
#pragma once

#include <algorithm>
#include <cstddef>
#include <thread>
#include <vector>

namespace distlock::engine {

/// An unlock() owed by a thread whose lease ran out must not free the lock of the one that has it now. Not
/// thread-safe.
class strays {
  public:
    /// Effects: one more unlock() is to come from the thread that took an acquisition.
    /// Throws: std::bad_alloc.
    void remember(std::thread::id taker) {
        constexpr std::size_t most = 64;  // threads that never unlock must not fill the memory
        if (takers_.size() == most) {
            takers_.erase(takers_.begin());
            ++older_;
        }
        takers_.push_back(taker);
    }

    /// Effects: takes one unlock off the books: the thread's own, or else anybody's, for a lock may be handed to
    /// another thread.
    /// Returns: whether there was one.
    bool forget(std::thread::id caller) noexcept {
        auto found = std::find(takers_.begin(), takers_.end(), caller);
        if (found == takers_.end() && older_ > 0) {
            --older_;
            return true;
        }
        if (found == takers_.end()) found = takers_.begin();
        if (found == takers_.end()) return false;
        takers_.erase(found);
        return true;
    }

    /// Returns: whether an unlock() is still to come from that thread.
    bool owes(std::thread::id caller) const noexcept {
        return std::find(takers_.begin(), takers_.end(), caller) != takers_.end();
    }

  private:
    std::vector<std::thread::id> takers_;
    std::size_t older_ = 0;  // those there was no room for
};

}  // namespace distlock::engine
