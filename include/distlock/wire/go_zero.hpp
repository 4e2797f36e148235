// The dialect of go-zero's RedisLock: plain, with a TTL of whole seconds and a half.
//
//   class go_zero : public plain;
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include <distlock/base/options.hpp>
#include <distlock/wire/dialect.hpp>
#include <distlock/wire/plain.hpp>

namespace distlock {

/// Interoperates with github.com/zeromicro/go-zero/core/stores/redis, RedisLock: the key is the name, its TTL
/// the seconds that were set and 500 ms. Our lease is rounded up to that, and believed no longer than it was
/// asked for; a lock that could not be released stays for as much longer than residual() says.
///
/// A RedisLock that acquires again what it holds refreshes its TTL and counts nothing: its first Release
/// frees the lock. Here every acquisition has a token of its own, so none can free an outer one: a second
/// lock() of the same thread waits, as with any mutex, and a recursive_mutex counts.
class go_zero : public plain {
  public:
    /// Preconditions: the options are checked.
    /// Throws: error(errc::invalid_name), as `plain`.
    go_zero(std::string name, const lock_options& options)
        : plain(std::move(name), options, ttl_of(options.lease)) {}

  private:
    static std::chrono::milliseconds ttl_of(std::chrono::milliseconds lease) {
        constexpr std::chrono::milliseconds tolerance{500};
        return std::chrono::ceil<std::chrono::seconds>(lease) + tolerance;
    }
};

static_assert(check_dialect<go_zero>());

}  // namespace distlock
