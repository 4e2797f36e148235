// What an object keeps for calls to come, and has too much of after a burst of them.
//
//   template <class T> class surplus {
//     void take(std::vector<std::unique_ptr<T>>& from, F may_go) noexcept;
//   };
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace distlock::engine {

/// How many are kept: threads may come in any number, and permits be asked for in any.
inline constexpr std::ptrdiff_t most_idle = 16;

/// A few at a time, so that no call has to end them all. What was taken ends with it: outside the mutex.
template <class T>
class surplus {
  public:
    /// Effects: takes from `from`, as far as there is room, those of which `may_go(one)` says so.
    template <class F>
    void take(std::vector<std::unique_ptr<T>>& from, F may_go) noexcept {
        std::erase_if(from, [&](std::unique_ptr<T>& one) {
            if (count_ == taken_.size() || !may_go(*one)) return false;
            taken_[count_++] = std::move(one);
            return true;
        });
    }

  private:
    std::array<std::unique_ptr<T>, 32> taken_;
    std::size_t count_ = 0;
};

}  // namespace distlock::engine
