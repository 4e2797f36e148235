// One lock of the hand-off dialect on a real server, one process that wants it, and what a stranger sees of its keys.
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
#include <distlock/hiredis/connection.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/testing.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/handoff.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/reply.hpp>

namespace handoff_test {

using namespace std::chrono_literals;
using distlock::acquire_outcome;
using distlock::lock_options;
using distlock::place;
using distlock::reply;
using distlock::token;
using distlock::testing::redis_server;
using got = acquire_outcome::kind;

inline const std::string patient = "?connect_timeout=20s&command_timeout=20s";
inline constexpr const char* label = "night job";
inline const lock_options bare{.lease = 30s};
inline const lock_options fenced{.lease = 30s, .fencing = true};
inline const lock_options labelled{.lease = 30s, .owner_info = label};
inline const lock_options all{.lease = 30s, .fencing = true, .owner_info = label};
inline const std::initializer_list<const lock_options*> every_kind{&bare, &fenced, &labelled, &all};
inline constexpr std::int64_t lease = 30'000;
inline constexpr std::int64_t fence_life = 3'900'000;

inline std::string fresh_name() {
    static int count = 0;
    return "lock:" + std::to_string(++count);
}

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

struct handoff_lock {
    handoff_lock(const redis_server& server, distlock::hiredis_connection& connection,
                 const std::string& name, const lock_options& options)
        : at(server),
          redis(connection),
          dialect(name, options),
          K(name),
          B(distlock::key(name).sibling("offers")),
          W(distlock::key(name).sibling("waiters")),
          fence(distlock::key(name).sibling("fence")),
          who(distlock::key(name).sibling("owner")),
          labels(!options.owner_info.empty()) {}

    reply ask(const distlock::command& cmd) { return distlock::execute(redis, cmd); }
    acquire_outcome enter(place where) { return dialect.read_enter(ask(dialect.enter(owner, where))); }
    reply release() { return ask(dialect.release(owner)); }
    reply free() { return ask(dialect.free(owner)); }
    reply watch() { return ask(dialect.watch(token::generate())); }
    reply revive() { return ask(dialect.revive(token::generate())); }
    reply leave() { return ask(dialect.leave()); }

    /// Effects: takes the offer that is in the list, as one who waits, and adopts it where it is not complete.
    acquire_outcome pop() {
        acquire_outcome popped = dialect.read_wait(ask(dialect.wait("0.01")));
        if (!popped.offered) return popped;
        owner = popped.offered->owner;
        return dialect.complete(*popped.offered) ? popped : enter(place::adopt);
    }

    void set(const std::string& key, std::string_view value) const { at.command({"SET", key, value}); }
    void set(const std::string& key, std::string_view value, const char* ms) const {
        at.command({"SET", key, value, "PX", ms});
    }
    /// Effects: makes the server count so many who wait; 0: it has no count.
    void count(int waiters, const char* ms = "10000") const {
        at.command({"DEL", W});
        if (waiters != 0) set(W, std::to_string(waiters), ms);
    }
    /// Effects: puts a lock into the list that was handed on so many microseconds ago.
    void offer(const token& to, std::int64_t ago, const std::string& made_fence = "") const {
        const std::string text = std::string(to.view()) + ":30000:" + std::to_string(time_of(at) - ago);
        at.command({"DEL", B});
        at.command({"RPUSH", B, text + ":" + made_fence});
        at.command({"PEXPIRE", B, "30000"});
    }

    std::string get(const std::string& key) const { return at.command({"GET", key}); }
    bool exists(const std::string& key) const { return at.command({"EXISTS", key}) == "1"; }
    std::int64_t ttl(const std::string& key) const { return std::stoll(at.command({"PTTL", key})); }
    int waiters() const { return exists(W) ? std::stoi(get(W)) : 0; }
    int offers() const { return std::stoi(at.command({"LLEN", B})); }
    std::string first_offer() const { return at.command({"LINDEX", B, "0"}); }
    bool is_ours() const { return get(K) == owner.view(); }
    std::string owner_text() const {
        return std::string(owner.view()) + "\n" + distlock::describe_owner(label);
    }

    /// Returns: whether every key there is has a TTL, and none a longer one than it may.
    bool all_ends() const {
        const auto ends = [this](const std::string& key, std::int64_t most) {
            const auto left = ttl(key);
            return left == -2 || (left >= 0 && left <= most);
        };
        return ends(K, lease) && ends(B, lease) && ends(W, lease) && ends(who, lease) &&
               ends(fence, fence_life);
    }
    /// Returns: whether the lock is handed on: to a token nobody has, by one offer, which ends with it.
    bool is_offered() const {
        const std::string text = first_offer();
        const auto lock_left = ttl(K);
        const auto offer_left = ttl(B);
        // Each gets its TTL when the script comes to it, at most a millisecond apart.
        return offers() == 1 && text.substr(0, 32) == get(K) && !is_ours() && just_set(lock_left, lease) &&
               just_set(offer_left, lease) && offer_left <= lock_left + 1 && !exists(who) &&
               dialect.read_wait(reply::array({reply::string(B), reply::string(text)})).offered;
    }

    const redis_server& at;
    distlock::hiredis_connection& redis;
    distlock::handoff dialect;
    std::string K, B, W, fence, who;
    bool labels;
    token owner = token::generate();
};

}  // namespace handoff_test
