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
    /// Returns: whether what it told is the answer to a second request: the first one may still arrive.
    virtual bool asked_twice() const noexcept = 0;
};

}  // namespace distlock::engine
