// Who asks the server for several locks at once.
#pragma once

#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock::engine {

class joint_asker {
  public:
    joint_asker() = default;
    joint_asker(const joint_asker&) = delete;
    joint_asker& operator=(const joint_asker&) = delete;
    virtual ~joint_asker() = default;

    /// Returns: what became of `one`.
    virtual reply ask(const command& one) noexcept = 0;
};

}  // namespace distlock::engine
