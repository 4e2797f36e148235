// The listeners of a connection that follows its master.
//
//   class master_listeners {
//     void add(std::weak_ptr<master_listener>);
//     void tell(function_ref<void(master_listener&)>) noexcept;
//   };
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <distlock/detail/function_ref.hpp>
#include <distlock/detail/thread_safety.hpp>
#include <distlock/net/master_listener.hpp>

namespace distlock::detail {

/// Thread-safe.
class master_listeners {
  public:
    /// Effects: `who` is told from now on, as long as it lives.
    /// Throws: std::bad_alloc.
    [[gnu::cold]] void add(std::weak_ptr<master_listener> who) {
        const annotated_lock guard(lock_);
        // Those that are told just now keep their places.
        const auto free =
            std::find_if(all_.begin(), all_.end(), [](const auto& one) { return one.expired(); });
        if (free == all_.end()) return all_.push_back(std::move(who));
        *free = std::move(who);
    }

    /// Effects: `say` is called for each that lives, without a lock. Needs no memory.
    [[gnu::cold]] void tell(function_ref<void(master_listener&)> say) noexcept {
        for (std::size_t i = 0;; ++i) {
            std::shared_ptr<master_listener> who;
            {
                const annotated_lock guard(lock_);
                if (i >= all_.size()) return;
                who = all_[i].lock();
            }
            if (who) say(*who);
        }
    }

  private:
    annotated_mutex lock_;
    std::vector<std::weak_ptr<master_listener>> all_ DISTLOCK_GUARDED_BY(lock_);
};

}  // namespace distlock::detail
