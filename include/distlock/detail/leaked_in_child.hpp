// An object that a child after fork() does not destroy.
#pragma once

#include <distlock/detail/system.hpp>

namespace distlock::detail {

/// Destroying a condition variable waits for its waiters; those of a parent's threads never wake in a child,
/// whose copy must therefore be left as it is. Costs the child what the object holds.
template <class T>
class leaked_in_child {
  public:
    leaked_in_child() : value_() {}
    leaked_in_child(const leaked_in_child&) = delete;
    leaked_in_child& operator=(const leaked_in_child&) = delete;
    ~leaked_in_child() {
        if (here()) value_.~T();
    }

    /// Returns: whether this is the process that made it.
    bool here() const noexcept { return !process_.in_forked_child(); }

    T& get() noexcept { return value_; }

  private:
    union {
        T value_;
    };
    const own_process process_;
};

}  // namespace distlock::detail
