// The callback of a connection that follows its master: another server took its place.
#pragma once

#include <cstdint>
#include <span>

namespace distlock {

class master_listener {
  public:
    /// Another server took the place of the master: what is sent from now on goes there. Called by the
    /// connection, from any thread, without a lock; it must not wait.
    virtual void master_changed() noexcept = 0;

    /// The same in a Cluster: another server took the place of the master of those slots, and the locks in
    /// others stay where they are.
    virtual void master_changed_of(std::span<const std::uint16_t> /*slots*/) noexcept { master_changed(); }

  protected:
    ~master_listener() = default;
};

}  // namespace distlock
