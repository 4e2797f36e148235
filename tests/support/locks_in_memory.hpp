// A server in memory for locks in the plain dialect: who has which, and what was asked of each.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <distlock/net/connection.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/plain.hpp>
#include <distlock/wire/reply.hpp>

/// A connection to itself. A key ends when a test says so; every fence is larger than the one before, of whatever lock. Thread-safe.
class locks_in_memory {
  public:
    distlock::reply execute(const distlock::command& cmd) {
        using distlock::reply;
        const std::lock_guard guard(lock_);
        const auto argv = cmd.argv();
        const auto is = [&](const distlock::script& s) { return argv[1] == s.sha1() || argv[1] == s.text(); };
        const bool set = argv[0] == "SET";
        const std::string name(argv[set ? 1 : 3]);
        if (set || is(distlock::detail::plain_look)) {
            std::string& holder = holders_[name];
            const std::string_view token = argv[set ? 2 : 4];
            if (!holder.empty() && holder != token) return set ? reply::nil() : reply::integer(20'000);
            holder = token;
            return reply::status("OK");
        }
        if (is(distlock::detail::plain_look_beside)) {
            std::string& holder = holders_[name];
            if (!holder.empty() && holder != argv[6])
                return reply::array({reply::integer(0), reply::integer(20'000)});
            holder = argv[6];
            return reply::array({reply::integer(1), reply::string(std::to_string(fence_ += fence_step))});
        }
        const bool releases = is(distlock::detail::plain_release);
        if (releases) released_.push_back(name);
        std::string& holder = holders_[name];
        if (holder.empty()) return reply::integer(0);
        const std::size_t keys = argv[2] == "1" ? 1 : 2;
        if (holder != argv[3 + keys]) return reply::integer(-1);
        if (releases) holder.clear();
        return reply::integer(1);
    }

    static constexpr std::uint64_t fence_step = 1000;

    /// Returns: the token of the owner; empty: there is none.
    std::string holder(const std::string& name) const {
        const std::lock_guard guard(lock_);
        const auto found = holders_.find(name);
        return found == holders_.end() ? std::string() : found->second;
    }
    /// Effects: nobody has it any more: its TTL is over.
    void end_lease(const std::string& name) {
        const std::lock_guard guard(lock_);
        holders_[name].clear();
    }
    /// Returns: how often a release of it was asked for.
    std::ptrdiff_t releases(const std::string& name) const {
        const std::lock_guard guard(lock_);
        return std::count(released_.begin(), released_.end(), name);
    }

  private:
    mutable std::mutex lock_;
    std::map<std::string, std::string> holders_;
    std::vector<std::string> released_;
    std::uint64_t fence_ = 100;
};
