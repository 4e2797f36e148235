// The scripts that find out which kind a lock is; compiled once where a program asks for that.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/base/error.hpp>
#include <distlock/base/key.hpp>
#include <distlock/detail/separate.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/family_inspector.hpp>
#include <distlock/wire/handoff_scripts.hpp>
#include <distlock/wire/permit_inspector.hpp>
#include <distlock/wire/plain_inspector.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/report.hpp>
#include <distlock/wire/script.hpp>
#include <distlock/wire/shared_inspector.hpp>

namespace distlock {

namespace detail {

// Each kind's own script, as a function whose parameter hides the server's KEYS. Which kind a key is of GET
// and ZCARD say, which every user of a lock may use: TYPE would stand in the ACL log.
inline constexpr std::string_view family_contract =
    R"(-- KEYS: lock, queue, fence, owner, mark, readers, limit.
-- Answers as the script of its kind does.
)"sv;
inline constexpr std::string_view family_is_pool =
    R"(
local function is_other(said)
  return type(said) == 'table' and said.err and string.find(said.err, 'WRONGTYPE', 1, true)
end
local function is_pool()
  local held = redis.pcall('get', KEYS[1])
  if held then return is_other(held) and not is_other(redis.pcall('zcard', KEYS[1])) end
  return is_other(redis.pcall('get', KEYS[7]))
end
)"sv;
inline std::string_view family_inspect() noexcept {
    static char room[8 * 1024];
    static const std::string_view all = put_together(
        room, {family_contract, "local function of_pool(KEYS)\n", permit_inspect(),
               "\nend\nlocal function of_lock(KEYS)\n", shared_inspect(), "\nend", family_is_pool,
               "if is_pool() then return of_pool({KEYS[1], KEYS[7], KEYS[5], KEYS[2]}) end\n"
               "return of_lock({KEYS[1], KEYS[3], KEYS[4], KEYS[2], KEYS[6]})"});
    return all;
}

// A lock is a shared mutex's where readers have it, or wait. A writer that waits may take a mutex's message.
inline constexpr std::string_view family_has_readers =
    R"(local function has_readers()
  if string.find(redis.call('get', KEYS[1]) or '', '^distlock:readers') then return true end
  for _, ticket in ipairs(redis.pcall('zrange', KEYS[2], '0', '99')) do
    if string.find(ticket, '^%x+ %d+ %d+ [PS]') then return true end
  end
end
if is_pool() then return of_pool({KEYS[1], KEYS[2], KEYS[7], KEYS[5]}) end
if has_readers() then return of_shared({KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[6], KEYS[5]}) end
return of_mutex({KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]}))"sv;
inline std::string_view family_force_release() noexcept {
    static char room[32 * 1024];
    static const std::string_view all =
        put_together(room, {family_contract, "local function of_pool(KEYS)\n", permit_force_release(),
                            "\nend\nlocal function of_shared(KEYS)\n", shared_force_release(),
                            "\nend\nlocal function of_mutex(KEYS)\n", plain_force_release(), "\nend",
                            family_is_pool, family_has_readers});
    return all;
}

}  // namespace detail

[[gnu::cold]] DISTLOCK_INLINE family_inspector::family_inspector(std::string name)
    : lock_(std::make_shared<const plain_inspector>(std::move(name))) {
    try {
        const key k(lock_->name());
        siblings_.emplace(siblings{k.sibling("queue"), k.sibling("fence"), k.sibling("owner"),
                                   k.sibling("forced"), k.sibling("readers"), k.sibling("limit")});
    } catch (const error&) {
        // A name that can have no keys beside it is a mutex's.
    }
}

DISTLOCK_INLINE const std::string& family_inspector::name() const noexcept { return lock_->name(); }

[[gnu::cold]] DISTLOCK_INLINE command family_inspector::inspect() const {
    return siblings_ ? ask(detail::family_inspect()) : lock_->inspect();
}
[[gnu::cold]] DISTLOCK_INLINE command family_inspector::force_release() const {
    return siblings_ ? ask(detail::family_force_release()) : lock_->force_release();
}

[[gnu::cold]] DISTLOCK_INLINE std::optional<lock_report> family_inspector::read_inspect(
    const reply& r) const {
    if (auto pool = permit_inspector::read(r)) return pool;
    return lock_->read_inspect(r);
}
[[gnu::cold]] DISTLOCK_INLINE std::optional<bool> family_inspector::read_force_release(const reply& r) const {
    return lock_->read_force_release(r);
}

[[gnu::cold]] DISTLOCK_INLINE command family_inspector::ask(std::string_view script) const {
    const auto& [queue, fence, owner, mark, readers, limit] = *siblings_;
    return {{"EVAL", script, "7", name(), queue, fence, owner, mark, readers, limit}, name()};
}

}  // namespace distlock
