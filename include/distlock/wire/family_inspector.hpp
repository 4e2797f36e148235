// inspect() and force_release() for a name of any kind: a mutex, a shared mutex or a semaphore.
//
//   class family_inspector {
//     explicit family_inspector(std::string name);
//     command inspect() const;           std::optional<lock_report> read_inspect(const reply&) const;
//     command force_release() const;     std::optional<bool> read_force_release(const reply&) const;
//   };
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <distlock/detail/separate.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/report.hpp>

namespace distlock {

class plain_inspector;

/// All functions are pure; commands are views into this object.
class family_inspector {
  public:
    /// Throws: error(errc::invalid_name).
    explicit family_inspector(std::string name);

    const std::string& name() const noexcept;

    command inspect() const;
    /// Takes a lock from its owner or all readers, or the permits from all that have some; the first
    /// waiter is handed it.
    command force_release() const;

    std::optional<lock_report> read_inspect(const reply& r) const;
    std::optional<bool> read_force_release(const reply& r) const;

  private:
    struct siblings {
        std::string queue, fence, owner, mark, readers, limit;
    };

    command ask(std::string_view script) const;

    const std::shared_ptr<const plain_inspector> lock_;
    std::optional<siblings> siblings_;
};

}  // namespace distlock

#ifndef DISTLOCK_SEPARATE_COMPILATION
#include <distlock/wire/family_inspector_impl.hpp>
#endif
