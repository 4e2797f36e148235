// inspect() and force_release() for shared locks.
//
//   class shared_inspector : public plain_inspector { inspect, force_release, was_forced };
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <distlock/base/key.hpp>
#include <distlock/base/token.hpp>
#include <distlock/detail/concat.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/plain_inspector.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/shared_scripts.hpp>

namespace distlock {

namespace detail {

inline constexpr std::string_view shared_inspect_rest =
    R"(
local report = {text(KEYS[1]), redis.call('pttl', KEYS[1]), text(KEYS[2]), text(KEYS[3]), time[1] * 1000000 + time[2], size, first}
if string.find(report[1], '^distlock:readers ') then
  report[8] = 1
elseif report[1] == 'distlock:readers' then
  local now = redis.call('time')
  report[8] = redis.call('zcount', KEYS[5], string.format('(%.0f', now[1] * 1000 + math.floor(now[2] / 1000)), '+inf')
end
return report)"sv;
inline std::string_view shared_inspect() noexcept {
    return joined<plain_inspect_contract, plain_inspect_queue, shared_inspect_rest>();
}

// As plain_force_release: a waiter is handed the lock, if that can be done.
inline constexpr std::string_view shared_force_release_contract =
    R"(-- KEYS: lock, queue, fence, owner, readers, mark.
-- Returns 1: taken from its owner, or from all readers. 0: nobody had it.
)"sv;
inline constexpr std::string_view shared_force_release_body =
    R"(local holder = redis.call('get', KEYS[1])
if not holder then return redis.call('del', KEYS[1]) end
local life = math.min(math.max(redis.call('pttl', KEYS[1]), 1000), 86400000)
redis.call('del', KEYS[6])
redis.call('set', KEYS[6], holder, 'PX', life) -- nothing is taken before the mark is set
redis.call('del', KEYS[4], KEYS[5])
local done, given = pcall(function() return (pass(head(), nil, false)) end)
settle(done and given)
return 1)"sv;
inline std::string_view shared_force_release() noexcept {
    return joined<shared_force_release_contract, handoff_functions, handoff_clock, shared_functions,
                  shared_force_release_body>();
}

}  // namespace detail

/// As plain_inspector, of the locks of shared_mutex. All functions are pure; commands are
/// views into this object.
class shared_inspector : public plain_inspector {
  public:
    /// Throws: error(errc::invalid_name), also for a name that can have no keys beside it.
    explicit shared_inspector(std::string name)
        : plain_inspector(std::move(name)), readers_(key(this->name()).sibling("readers")) {}

    command inspect() const {
        return {
            {"EVAL", detail::shared_inspect(), "5", name(), fence_key(), owner_key(), queue_key(), readers_},
            name()};
    }
    /// Takes the lock from the writer, or from all readers, and hands it on.
    command force_release() const {
        return {{"EVAL", detail::shared_force_release(), "6", name(), queue_key(), fence_key(), owner_key(),
                 readers_, mark_key()},
                name()};
    }
    /// Readers have one mark for all, but for one that was alone.
    bool was_forced(const reply& r, const token& owner) const {
        return r.is_string("distlock:readers") ||
               r.is_string(detail::concat({"distlock:readers ", owner.view()})) ||
               plain_inspector::was_forced(r, owner);
    }

  private:
    std::string readers_;
};

/// The same, as a writer asks: what was taken from readers was not its lock.
class exclusive_inspector : public shared_inspector {
  public:
    using shared_inspector::shared_inspector;
    bool was_forced(const reply& r, const token& owner) const {
        return plain_inspector::was_forced(r, owner);
    }
};

}  // namespace distlock
