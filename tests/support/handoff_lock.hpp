// One lock of the hand-off dialect on a real server, one process that wants it, and what a
// stranger sees of its keys.
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include <distlock/base/key.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/owner.hpp>
#include <distlock/base/token.hpp>
#include <distlock/testing.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/enter_mode.hpp>
#include <distlock/wire/handoff.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/reply.hpp>

#include "fresh_name.hpp"
#include "redis_link.hpp"

namespace handoff_test {

using namespace std::chrono_literals;
using distlock::acquire_outcome;
using distlock::enter_mode;
using distlock::lock_options;
using distlock::reply;
using distlock::token;
using distlock::testing::redis_server;
using got = acquire_outcome::kind;

inline constexpr const char* label = "night job";
inline const lock_options bare{.lease = 30s};
inline const lock_options fenced{.lease = 30s, .fencing = true};
inline const lock_options labelled{.lease = 30s, .owner_info = label};
inline const lock_options all{.lease = 30s, .fencing = true, .owner_info = label};
inline const std::initializer_list<const lock_options*> every_kind{&bare, &fenced, &labelled, &all};
inline constexpr std::int64_t lease = 30'000;
inline constexpr std::int64_t fence_life = 3'900'000;
inline constexpr std::int64_t queue_life = 90'000;

/// Returns: whether a TTL was set to `full` within the last ten seconds.
inline bool just_set(std::int64_t ttl, std::int64_t full) { return ttl <= full && ttl > full - 10'000; }

inline std::int64_t time_of(const redis_server& server) {
    const std::string time = server.command({"TIME"});
    const auto line = time.find('\n');
    return std::stoll(time.substr(0, line)) * 1'000'000 + std::stoll(time.substr(line + 1));
}

/// Returns: whether nothing was written during `call`, TTLs included.
template <class Call>
bool changes_nothing(const redis_server& server, Call call) {
    const auto changes = [&] {
        const std::string info = server.command({"INFO", "persistence"});
        const auto at = info.find("rdb_changes_since_last_save:");
        return info.substr(at, info.find('\r', at) - at);
    };
    const auto before = changes();
    call();
    return changes() == before;
}

inline constexpr std::int64_t offer = 2'000;

struct handoff_lock {
    handoff_lock(const redis_server& server, redis_link& connection, const std::string& name,
                 const lock_options& options, const std::string& hears_at = "")
        : at(server),
          redis(connection),
          dialect(name, options, hears_at),
          lock(name),
          queue(distlock::key(name).sibling("queue")),
          fence(distlock::key(name).sibling("fence")),
          who(distlock::key(name).sibling("owner")),
          mark(distlock::key(name).sibling("forced")),
          channel(hears_at),
          fences(options.fencing),
          labels(!options.owner_info.empty()) {}

    reply ask(const distlock::command& cmd) { return redis.ask(cmd); }
    acquire_outcome enter(enter_mode mode) { return dialect.read_enter(ask(dialect.enter(owner, mode))); }
    reply release() { return ask(dialect.release(owner)); }
    reply release_minimal() { return ask(dialect.release_minimal(owner)); }
    reply force() { return ask(distlock::handoff::inspector(lock).force_release()); }

    /// The ticket of this owner, as the queue has it.
    std::string ticket() const { return std::string(owner.view()) + needs(); }
    std::string needs() const {
        const auto command = dialect.enter(owner, enter_mode::join);
        return std::string(command.argv()[8]);
    }

    void set(const std::string& key, std::string_view value) const { at.command({"SET", key, value}); }
    void set(const std::string& key, std::string_view value, const char* ms) const {
        at.command({"SET", key, value, "PX", ms});
    }
    /// Effects: somebody's ticket stands at the end of the queue.
    void queue_up(const std::string& ticket) const {
        at.command({"ZADD", queue, std::to_string(1000 + queued()), ticket});
        at.command({"PEXPIRE", queue, "60000"});
    }

    std::string get(const std::string& key) const { return at.command({"GET", key}); }
    bool exists(const std::string& key) const { return at.command({"EXISTS", key}) == "1"; }
    std::int64_t ttl(const std::string& key) const { return std::stoll(at.command({"PTTL", key})); }
    int queued() const { return std::stoi(at.command({"ZCARD", queue})); }
    bool is_queued() const { return at.command({"ZSCORE", queue, ticket()}) != "(nil)"; }
    bool is_ours() const { return get(lock) == owner.view(); }
    std::string owner_text() const {
        return std::string(owner.view()) + "\n" + distlock::describe_owner(label);
    }

    /// Returns: whether every key there is has a TTL, and none a longer one than it may.
    bool all_ends() const {
        const auto ends = [this](const std::string& key, std::int64_t most) {
            const auto left = ttl(key);
            return left == -2 || (left >= 0 && left <= most);
        };
        return ends(lock, lease) && ends(queue, queue_life) && ends(who, lease) && ends(fence, fence_life);
    }

    const redis_server& at;
    redis_link& redis;
    distlock::handoff dialect;
    std::string lock, queue, fence, who, mark, channel;
    bool fences, labels;
    token owner = token::generate();
};

}  // namespace handoff_test
