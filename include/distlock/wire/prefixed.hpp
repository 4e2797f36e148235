// Plain locks whose client puts something before the name.
//
//   template <fixed_text Prefix> class prefixed;      // the plain dialect, with keys Prefix + name
//   using redigo = prefixed<"lock->">;                // garyburd/redigo with the RedisLock written on it, Go
//   using redis_semaphore = prefixed<"mutex:">;       // redis-semaphore's Mutex, Node
//   using pottery = prefixed<"redlock:">;             // pottery's Redlock on one server, Python
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/base/error.hpp>
#include <distlock/base/options.hpp>
#include <distlock/wire/dialect.hpp>
#include <distlock/wire/plain.hpp>
#include <distlock/wire/plain_inspector.hpp>

namespace distlock {

/// A text as a template argument.
template <std::size_t Size>
struct fixed_text {
    constexpr fixed_text(const char (&text)[Size]) { std::copy(text, text + Size, characters); }
    constexpr std::string_view view() const noexcept { return {characters, Size - 1}; }
    char characters[Size]{};
};

namespace detail {

/// Throws: error(errc::invalid_name) for an empty name: the prefix alone would be a lock, too.
inline std::string with_prefix(std::string_view prefix, const std::string& name) {
    if (name.empty()) throw error(errc::invalid_name, "the lock name is empty");
    return std::string(prefix) + name;
}

}  // namespace detail

/// As `plain`, under the key Prefix + name; name() is that key. Bytes are taken as they are: neither the
/// prefix nor the name is escaped, as in those clients, so with the prefix "a" the name "bc" is the lock
/// that "c" is with "ab".
template <fixed_text Prefix>
class prefixed : public plain {
  public:
    /// As plain_inspector, of the name without its prefix.
    class inspector : public plain_inspector {
      public:
        /// Throws: error(errc::invalid_name).
        explicit inspector(const std::string& name)
            : plain_inspector(detail::with_prefix(Prefix.view(), name)) {}

        /// Returns: the one of a lock whose key is known.
        static inspector of_key(std::string key) { return inspector(plain_inspector(std::move(key))); }

      private:
        explicit inspector(plain_inspector of) : plain_inspector(std::move(of)) {}
    };

    /// Preconditions: the options are checked.
    /// Throws: error(errc::invalid_name), also for a key that is too long, prefix included.
    prefixed(const std::string& name, const lock_options& options)
        : plain(detail::with_prefix(Prefix.view(), name), options) {}
};

static_assert(check_dialect<prefixed<"lock:">>());

using redigo = prefixed<"lock->">;
using redis_semaphore = prefixed<"mutex:">;
using pottery = prefixed<"redlock:">;

}  // namespace distlock
