// Asking a server what it is like for locks: the questions, and what the answers mean. No socket, no clock.
//
//   class examination {
//     std::span<const command> questions();                 // none: all is asked
//     void on_answers(replies, before, after);              // by our clock
//     const std::string& channel() const;  void on_subscribed(confirmed, why);
//     diagnosis conclude() const;
//   };
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <distlock/base/key.hpp>
#include <distlock/detail/separate.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/diagnosis.hpp>
#include <distlock/wire/examined.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/server_facts.hpp>

namespace distlock {

namespace detail {

/// Three rounds at most: what the server says of itself; what ACL DRYRUN says of the user; and where it
/// says nothing, commands that change nothing whatever the server does with them: the server looks at
/// permissions before all else.
class examination {
  public:
    using abilities = examined::abilities;

    /// `random`: lower-case hexadecimal digits that no name has.
    /// Throws: error(errc::invalid_name): no lock's name begins with that prefix.
    DISTLOCK_INLINE examination(const diagnose_options& options, abilities can, std::string_view random);
    examination(const examination&) = delete;
    examination& operator=(const examination&) = delete;

    /// Returns: what to ask next, in one pipeline if possible; none: all is asked. Valid until the next call.
    DISTLOCK_INLINE std::span<const command> questions();

    /// `replies`: to all questions; `before` and `after`: our clock around them.
    DISTLOCK_INLINE void on_answers(std::span<const reply> replies, wall_time before, wall_time after);

    /// Returns: a channel that the user must be permitted to subscribe to.
    const std::string& channel() const noexcept { return channel_; }
    DISTLOCK_INLINE void on_subscribed(bool confirmed, std::string_view why);

    /// Returns: whether the server talks with this user at all.
    bool admitted() const noexcept { return admitted_; }

    DISTLOCK_INLINE diagnosis conclude() const;

  private:
    enum class stage { facts, dry_run, trial, over };

    void ask(std::string_view words, std::initializer_list<std::string_view> before_them = {});
    bool may_write() const noexcept;
    const reply* refused_or_silent() const noexcept;
    void on_facts(std::span<const reply> replies);
    void on_dry_run(std::span<const reply> replies);
    void on_trial(std::span<const reply> replies);

    const key lock_;
    const std::string queue_, fence_, owner_, channel_;
    stage stage_ = stage::facts;
    std::vector<command> asked_;
    std::vector<std::size_t> trial_;  // which of asked_for::needs
    bool admitted_ = false;
    examined found_;
};

}  // namespace detail
}  // namespace distlock

#ifndef DISTLOCK_SEPARATE_COMPILATION
#include <distlock/wire/examination_impl.hpp>
#endif
