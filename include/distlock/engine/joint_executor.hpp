// Sends the commands of several lock objects as one.
#pragma once

#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock::engine {

class joint_executor {
  public:
    joint_executor() = default;
    joint_executor(const joint_executor&) = delete;
    joint_executor& operator=(const joint_executor&) = delete;
    virtual ~joint_executor() = default;

    /// Returns: what became of `one`.
    virtual reply execute(const command& one) noexcept = 0;
};

}  // namespace distlock::engine
