// Who is told that a connection leads to another server from now on.
#pragma once

namespace distlock {

class master_listener {
  public:
    /// Another server took the place of the master: what is sent from now on goes there. Called by the connection, from any thread,
    /// without a lock; it must not wait.
    virtual void master_changed() noexcept = 0;

  protected:
    ~master_listener() = default;
};

}  // namespace distlock
