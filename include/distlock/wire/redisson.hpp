// The dialect of Redisson's RLock and RFencedLock.
//
//   class redisson {
//     redisson(std::string name, const lock_options&);
//     command acquire(const token&) const;   // one script; may be repeated
//     command look(const token&) const;      // the same
//     command renew(const token&) const;
//     command release(const token&) const;   // frees, and wakes the waiters
//     command release_minimal(const token&) const;  // the same
//     std::string_view channel() const;      // on which releases are told
//     and what the replies mean: read_acquire, read_look, read_renew, read_release
//   };
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/base/error.hpp>
#include <distlock/base/key.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/token.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/dialect.hpp>
#include <distlock/wire/handoff_scripts.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/redisson_inspector.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/script.hpp>
#include <distlock/wire/sibling_keys.hpp>

namespace distlock {

namespace detail {

// That somebody else has a lock is only said by a master, as in plain.hpp; here a write that changes nothing
// is HSETNX of a field that is there.
//
// Redisson's read-write lock looks at nothing but its own field `mode`: it is granted on top of a lock of
// ours. Ours is lost then: its field goes, so that the read-write lock ends with its own owners.
inline constexpr std::string_view redisson_enter_contract =
    R"(-- KEYS: lock, and the counter of fences where it is kept. ARGV: field, lease in ms, channel.
-- Returns {1, fence or '', connections that listen}: ours. {0, TTL left in ms}: somebody else's, -1 when it has none.
)"sv;
inline constexpr std::string_view redisson_enter_body =
    R"(local field, wrong = lock_in(KEYS[1])
if wrong then return wrong end
local ours = field == ARGV[1]
if field and not ours then
  local no = redis.pcall('hsetnx', KEYS[1], field, 1)
  if type(no) == 'table' and string.find(no.err, 'READONLY', 1, true) then
    return redis.error_reply('READONLY replica')
  end
  return {0, redis.call('pttl', KEYS[1])}
end
local fence = ''
if ours then redis.call('pexpire', KEYS[1], ARGV[2]) end -- needs no memory; after it the others are not refused
if KEYS[2] then
  fence = ours and redis.call('get', KEYS[2])
  if not fence then
    redis.call('incr', KEYS[2])
    fence = redis.call('get', KEYS[2])
  end
end
redis.call('hset', KEYS[1], ARGV[1], 1)
local no = redis.pcall('pexpire', KEYS[1], ARGV[2])
if type(no) == 'table' then -- whose user may not do that has none, or nobody could end it
  redis.call('del', KEYS[1])
  return no
end
local function listen(how) return redis.pcall('pubsub', how, ARGV[3])[2] end
local all, shard = listen('numsub'), listen('shardnumsub')
-- A user that may not ask takes it that somebody listens.
return {1, fence, (all or 1) + (shard or 0)})"sv;
inline constexpr std::string_view redisson_enter_sha1 = "40ad60d86a0a0409ab9e93fb963bf8a51d4c2d08"sv;
inline constexpr script redisson_enter{joined<redisson_enter_contract, redisson_lock_in, redisson_enter_body>,
                                       redisson_enter_sha1};

inline constexpr script redisson_renew{
    R"(-- KEYS: lock. ARGV: field, lease in ms.
-- Returns 1: renewed. 0: nothing there. -1: somebody else's, left alone, also when it is ours besides.
local fields = redis.call('hlen', KEYS[1])
if fields == 0 then return redis.call('del', KEYS[1]) end
local ours = redis.call('hexists', KEYS[1], ARGV[1]) == 1
if ours and fields == 1 then return redis.call('pexpire', KEYS[1], ARGV[2]) end
local no = redis.pcall('hsetnx', KEYS[1], redis.call('hkeys', KEYS[1])[1], 1)
if type(no) == 'table' and string.find(no.err, 'READONLY', 1, true) then return redis.error_reply('READONLY replica') end
if ours then redis.pcall('hdel', KEYS[1], ARGV[1]) end
return -1)",
    "5adde2515c198f1d3aff9dfa31b7dcf360e37677"};

// Redisson listens with SSUBSCRIBE on a Cluster of servers that have it, else with SUBSCRIBE, and hears
// nothing of the other; a server that has no SPUBLISH, or may not, says so to nobody.
inline constexpr script redisson_release{
    R"(-- KEYS: lock. ARGV: field, channel.
-- Returns 1: released. 0: nothing there. -1: somebody else's, left alone, also when it is ours besides.
local fields = redis.call('hlen', KEYS[1])
if fields == 0 then return redis.call('del', KEYS[1]) end
local ours = redis.call('hexists', KEYS[1], ARGV[1]) == 1
if not ours or fields > 1 then
  local no = redis.pcall('hsetnx', KEYS[1], redis.call('hkeys', KEYS[1])[1], 1)
  if type(no) == 'table' and string.find(no.err, 'READONLY', 1, true) then return redis.error_reply('READONLY replica') end
  if ours then redis.pcall('hdel', KEYS[1], ARGV[1]) end
  return -1
end
redis.call('del', KEYS[1])
redis.pcall('publish', ARGV[2], '0')
redis.pcall('spublish', ARGV[2], '0')
return 1)",
    "073519b6db2992c1c883801e4be076ffbe61108c"};

}  // namespace detail

/// Interoperates with Redisson 3.2 to 4.x, and 2.7 to 2.15: `getLock(name)`, and with lock_options::fencing
/// `getFencedLock(name)`. The key is a hash of one field, the holder, whose value counts its holds. Ours is
/// the acquisition's token and always counts one: a recursive_mutex counts the rest by itself. A waiter is
/// told of a release by a message, where the connection is a subscribing_connection, and looks for itself
/// when the TTL is over.
///
/// Redisson before 2.7.0, and 3.0 and 3.1, publish on another channel, `redisson_lock__channel__{name}`: they
/// exclude us and we them, but a release of theirs wakes none of our waiters, nor one of ours theirs: each
/// looks when the TTL is over.
///
/// A `getReadWriteLock(name)` must not have the same name: Redisson grants it on top of any lock that is not
/// of its kind. While it is held, acquiring fails with errc::wrong_type. Granted on top of a lock of ours it
/// is a loss at the next renewal, loss_reason::taken, and our release leaves it alone.
///
/// With fencing the token is the counter `redisson_lock_token:{name}`, which Redisson's fenced locks
/// share; it never ends. Passing a lock on within the process would skip it: with fencing each
/// acquisition asks the server.
///
/// lock_options::owner_info is refused with errc::invalid_option: the hash has no place for it that Redisson
/// would not take for a holder.
class redisson {
  public:
    using inspector = redisson_inspector;

    /// The type of the lock's key, as the server names it.
    static constexpr std::string_view stored_as = "hash";

    /// Preconditions: the options are checked.
    /// Throws: error(errc::invalid_name); error(errc::invalid_option) with lock_options::owner_info.
    redisson(std::string name, const lock_options& options)
        : key_(std::move(name)),
          lease_(options.lease),
          lease_text_(std::to_string(options.lease.get().count())),
          channel_(detail::redisson_key("redisson_lock__channel", key_.name())),
          counter_(options.fencing ? detail::redisson_key("redisson_lock_token", key_.name()) : "") {
        if (!options.owner_info.empty())
            throw error(errc::invalid_option, "owner_info is set, and Redisson's hash has no place for it");
    }

    const std::string& name() const noexcept { return key_.name(); }
    std::chrono::milliseconds lease() const noexcept { return lease_; }
    bool acquire_is_script() const noexcept { return true; }

    /// Returns: the channel on which a release is told, by a message in decimal digits.
    std::string_view channel() const noexcept { return channel_; }

    /// Returns: whether the fencing tokens between two of the server's are ours to give.
    bool allows_local_fences() const noexcept { return counter_.empty(); }

    command acquire(const token& owner) const { return look(owner); }
    command look(const token& owner) const {
        const std::array<argument, 2> keys{key_.name(), counter_};
        const std::array<argument, 3> arguments{owner.view(), lease_text_, channel_};
        const std::size_t count = counter_.empty() ? 1 : 2;
        return {detail::redisson_enter, std::span(keys).first(count), std::span<const argument>(arguments)};
    }
    command renew(const token& owner) const { return renew(owner, lease_text_); }
    /// `ttl` as plain::renew().
    command renew(const token& owner, std::string_view ttl) const {
        return {detail::redisson_renew, {key_.name()}, {owner.view(), ttl}};
    }
    command release(const token& owner) const {
        return {detail::redisson_release, {key_.name()}, {owner.view(), channel_}};
    }
    command release_minimal(const token& owner) const { return release(owner); }

    acquire_outcome read_acquire(const reply& r) const { return read_look(r); }
    acquire_outcome read_look(const reply& r) const {
        const auto& parts = r.elements();
        if (parts.size() != 3 || !parts[2].is(reply_kind::integer)) {
            // A grant comes with a third part.
            const bool taken = parts.size() == 2 && parts[0].is_integer(0);
            return taken ? detail::read_taken(r, false) : acquire_outcome::failure(r);
        }
        auto outcome = detail::read_taken(parts[0], parts[1], !counter_.empty(), r);
        outcome.awaited = parts[2].number() > 0;
        return outcome;
    }
    renew_outcome read_renew(const reply& r) const { return detail::read_renewed(r); }
    release_verdict read_release(const reply& r) const { return detail::read_released(r); }

  private:
    key key_;
    std::chrono::milliseconds lease_;
    std::string lease_text_;
    std::string channel_;
    std::string counter_;  // empty without fencing
};

static_assert(telling_dialect<redisson>);

}  // namespace distlock
