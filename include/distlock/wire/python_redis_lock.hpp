// The dialect of python-redis-lock: plain, and a list that wakes the waiters in Python.
//
//   class python_redis_lock : public plain;
#pragma once

#include <string>
#include <string_view>

#include <distlock/base/options.hpp>
#include <distlock/base/token.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/dialect.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/prefixed.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/script.hpp>

namespace distlock {

namespace detail {

// Its waiters block on the list without looking again: a release that leaves nothing there leaves them
// asleep, also where the lease has run out. The signal is made anew and ends after a second, as theirs does.
inline constexpr script python_redis_lock_release{
    R"(-- KEYS: lock, signal, then what goes with the lock. ARGV: token.
-- Returns 1: released. 0: nothing there. -1: somebody else's, left alone.
local holder = redis.call('get', KEYS[1])
if holder and holder ~= ARGV[1] then
  local no = redis.pcall('set', KEYS[1], '', 'NX', 'PX', 1)
  if no and string.find(no.err, 'READONLY', 1, true) then return redis.error_reply('READONLY replica') end
  return -1
end
redis.call('del', KEYS[2])
redis.call('rpush', KEYS[2], '1')
redis.call('pexpire', KEYS[2], 1000)
if not holder then return 0 end
for i = 3, #KEYS do redis.call('del', KEYS[i]) end
return redis.call('del', KEYS[1]))",
    "02de6c547211c8ed504b37ab614845a05d90b0bf"};

inline constexpr std::string_view python_redis_lock_force =
    R"(-- KEYS: lock, signal; and mark, owner where there may be such.
-- Returns 1: taken from its owner. 0: nobody had it.
local holder = redis.call('get', KEYS[1])
redis.call('del', KEYS[2])
redis.call('rpush', KEYS[2], '1')
redis.call('pexpire', KEYS[2], 1000)
if not holder then return 0 end
if KEYS[3] then
  local life = math.min(math.max(redis.call('pttl', KEYS[1]), 1000), 86400000)
  redis.call('del', KEYS[4])
  redis.call('set', KEYS[3], holder, 'PX', life)
end
return redis.call('del', KEYS[1]))";

}  // namespace detail

/// Interoperates with the PyPI package python-redis-lock: the key is "lock:" + name, the list that wakes its
/// waiters "lock-signal:" + name. We wake them, and find their releases by asking, every
/// lock_options::recheck: to take a signal without taking the lock would leave one of them asleep. Two keys
/// in two slots: as that package, not for a Cluster.
class python_redis_lock : public prefixed<"lock:"> {
  public:
    /// As plain_inspector; a lock that is taken away wakes the waiters in Python.
    class inspector : public prefixed<"lock:">::inspector {
      public:
        /// Throws: error(errc::invalid_name).
        explicit inspector(const std::string& name)
            : prefixed::inspector(name), signal_("lock-signal:" + name) {}
        static inspector of_key(const std::string& key) {
            return inspector(key.substr(std::string_view("lock:").size()));
        }

        command force_release() const {
            if (mark_key().empty())
                return {{"EVAL", detail::python_redis_lock_force, "2", name(), signal_}, name()};
            return {{"EVAL", detail::python_redis_lock_force, "4", name(), signal_, mark_key(), owner_key()},
                    name()};
        }

      private:
        std::string signal_;
    };

    /// Preconditions: the options are checked.
    /// Throws: error(errc::invalid_name), as `prefixed`.
    python_redis_lock(const std::string& name, const lock_options& options)
        : prefixed(name, options), signal_("lock-signal:" + name) {}

    /// Returns: whether the fencing tokens between two of the server's are ours to give: its
    /// release tells of none.
    bool allows_local_fences() const noexcept { return false; }

    command release(const token& owner) const {
        if (const std::string* who = owner_key()) {
            return {detail::python_redis_lock_release, {this->name(), signal_, *who}, {owner.view()}};
        }
        return {detail::python_redis_lock_release, {this->name(), signal_}, {owner.view()}};
    }

    release_verdict read_release(const reply& r) const {
        release_verdict verdict = prefixed::read_release(r);
        verdict.note_refusal(r);  // a user that may not use the list may still free the lock
        return verdict;
    }

  private:
    std::string signal_;
};

static_assert(check_dialect<python_redis_lock>());

}  // namespace distlock
