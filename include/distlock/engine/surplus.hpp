// Lock objects that a burst of calls left idle, more than are kept for calls to come.
//
//   template <class T> class surplus {
//     void take(std::vector<std::unique_ptr<T>>& from, is_idle, is_outdated) noexcept;
//   };
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>

namespace distlock::engine {

/// How many are kept: threads may come in any number, and permits be asked for in any.
inline constexpr std::ptrdiff_t most_idle = 16;

/// A call ends a few of them, not all. They end with the surplus: outside the mutex.
template <class T>
class surplus {
  public:
    /// Effects: takes from `from`, as far as there is room, those that are idle and outdated, and of the
    /// other idle ones those behind the first `most_idle`; but none whose release nobody has confirmed.
    template <class Idle, class Outdated>
    void take(std::vector<std::unique_ptr<T>>& from, Idle is_idle, Outdated is_outdated) noexcept {
        std::ptrdiff_t current = 0;
        for (auto& one : from) {
            if (count_ == taken_.size()) break;
            if (!is_idle(*one)) continue;
            if (!is_outdated(*one) && ++current <= most_idle) continue;
            if (one->core->residual() > clock::duration::zero()) continue;
            taken_[count_++] = std::move(one);
        }
        std::erase(from, nullptr);
    }

  private:
    std::array<std::unique_ptr<T>, 32> taken_;
    std::size_t count_ = 0;
};

}  // namespace distlock::engine
