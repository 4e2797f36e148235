// What a server is like for locks: findings, each with its consequence.
//
//   enum class severity { ok, unknown, warning, problem };
//   struct finding   { severity how; std::string subject, text; };
//   class diagnosis  { begin(); end(); severity worst() const; const finding* about(subject) const; };
//   std::string to_string(const diagnosis&);       // a line for each;  out << diagnosis  prints the same
#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/detail/separate.hpp>

namespace distlock {

/// Each is worse than those before it.
enum class severity {
    ok,       ///< nothing to do
    unknown,  ///< the server could not be asked, or this user may not ask it
    warning,  ///< a fault, restart or fail-over can cost locks; or something dispensable is missing
    problem,  ///< locks fail now, or can be lost without any fault
};

constexpr std::string_view to_string(severity how) noexcept {
    constexpr std::string_view words[] = {"ok", "unknown", "warning", "problem"};
    return words[static_cast<unsigned>(how)];
}

struct finding {
    severity how = severity::unknown;
    std::string subject;  ///< "role", or the server's own word for a setting: "maxmemory-policy"
    std::string text;     ///< what it is, and its consequence for locks; printable, without passwords

    friend bool operator==(const finding&, const finding&) = default;
};

/// A snapshot, out of date on arrival: show it to people.
class diagnosis {
  public:
    diagnosis() = default;
    explicit diagnosis(std::vector<finding> findings) noexcept : findings_(std::move(findings)) {}

    auto begin() const noexcept { return findings_.begin(); }
    auto end() const noexcept { return findings_.end(); }
    const std::vector<finding>& findings() const noexcept { return findings_; }

    /// Returns: the worst of all findings; unknown, where there is none.
    DISTLOCK_INLINE severity worst() const noexcept;

    /// Returns: the first finding on that subject; null: there is none.
    DISTLOCK_INLINE const finding* about(std::string_view subject) const noexcept;

  private:
    std::vector<finding> findings_;
};

/// Returns: a line for each finding: severity, subject, text.
DISTLOCK_INLINE std::string to_string(const diagnosis& of);

template <class Traits>
std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& out, const diagnosis& of) {
    const std::string text = to_string(of);
    return out.write(text.data(), static_cast<std::ptrdiff_t>(text.size()));
}

}  // namespace distlock

#ifndef DISTLOCK_SEPARATE_COMPILATION
#include <distlock/wire/diagnosis_impl.hpp>
#endif
