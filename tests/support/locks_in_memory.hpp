// A server in memory for locks in the plain dialect and the hand-off's: who has which, until when, and
// what was asked of each.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/detail/saturate.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/net/service_registry.hpp>
#include <distlock/testing/manual_clock.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/handoff_scripts.hpp>
#include <distlock/wire/plain.hpp>
#include <distlock/wire/reply.hpp>

#include "support/gate.hpp"
#include "support/handoff_answers.hpp"
#include "support/replaced_master.hpp"

/// A connection to itself. Keys end by manual_clock; nobody is queued; every fence, which the plain dialect
/// has, is larger than the one before, of whatever lock. A test can put its own answers in the place of the
/// server's, or have it wait. Thread-safe.
class locks_in_memory {
  public:
    struct recorded {
        std::string what;  // "take", "renew", "release", "mark": who took the lock away by force
        std::string lock;
        std::string token;
        distlock::clock::time_point deadline;
    };
    using answers = std::function<std::optional<distlock::reply>(const std::string& what)>;

    distlock::reply execute(const distlock::command& cmd) {
        using distlock::reply;
        const request asked(cmd);
        answers first;
        {
            const std::lock_guard guard(lock_);
            all_.push_back({asked.what, asked.lock, asked.token, cmd.deadline()});
            first = instead_;
        }
        if (first) {
            if (auto answer = first(asked.what)) return *answer;
        }
        const std::lock_guard guard(lock_);
        key& it = keys_[asked.lock];
        it.end_in_time();
        if (asked.what == "mark") return it.mark.empty() ? reply::nil() : reply::string(it.mark);
        if (asked.what == "take") return take(it, asked);
        if (asked.what.empty()) return reply::error("ERR not a command of locks");
        if (it.owner != asked.token) return reply::integer(it.owner.empty() ? 0 : -1);
        if (asked.what == "renew") {
            it.ends = after(asked.lease);
        } else {
            it.owner.clear();
        }
        return reply::integer(1);
    }

    /// Effects: from now on `f` is asked first, on the thread of the command: a reply is given
    /// instead of the server's.
    void instead(answers f) {
        const std::lock_guard guard(lock_);
        instead_ = std::move(f);
    }
    void answer(std::string to, distlock::reply with) {
        instead([to = std::move(to),
                 with = std::move(with)](const std::string& what) -> std::optional<distlock::reply> {
            if (what == to) return with;
            return {};
        });
    }
    /// Effects: from now on whatever is asked that waits at the gate before it is answered.
    void wait_at(std::string what, const gate& hold) {
        instead([what = std::move(what), &hold](const std::string& asked) -> std::optional<distlock::reply> {
            if (asked == what) hold.pass();
            return {};
        });
    }
    void as_usual() { instead({}); }

    void prolong(const std::string& lock = "orders") {
        const std::lock_guard guard(lock_);
        keys_[lock].ends = now() + std::chrono::seconds{30};
    }
    void delete_key(const std::string& lock = "orders") { give_to({}, lock); }
    void give_to(std::string somebody, const std::string& lock = "orders") {
        const std::lock_guard guard(lock_);
        keys_[lock] = {std::move(somebody), {}, now() + std::chrono::hours{1}};
    }
    void force_release(const std::string& lock = "orders") {
        const std::lock_guard guard(lock_);
        key& it = keys_[lock];
        it.mark = std::exchange(it.owner, {});
    }

    /// Returns: the token of the owner; empty: there is none.
    std::string owner(const std::string& lock = "orders") const {
        const std::lock_guard guard(lock_);
        const auto found = keys_.find(lock);
        return found == keys_.end() || now() >= found->second.ends ? std::string() : found->second.owner;
    }
    /// Returns: how long until the key ends.
    std::chrono::milliseconds ttl(const std::string& lock = "orders") const {
        const std::lock_guard guard(lock_);
        return std::chrono::ceil<std::chrono::milliseconds>(keys_.at(lock).ends - now());
    }
    std::vector<recorded> sent() const {
        const std::lock_guard guard(lock_);
        return all_;
    }
    /// Returns: how often that was asked of the lock.
    int count(std::string_view what, std::string_view lock = "orders") const {
        const std::lock_guard guard(lock_);
        return static_cast<int>(std::count_if(all_.begin(), all_.end(), [&](const recorded& one) {
            return one.what == what && one.lock == lock;
        }));
    }

    static constexpr std::uint64_t fence_step = 1000;

  private:
    using time_point = distlock::clock::time_point;
    static time_point now() { return distlock::testing::manual_clock::now(); }
    static time_point after(std::chrono::milliseconds span) {
        using namespace distlock::detail;
        return saturating_add(now(), saturating_cast<time_point::duration, rounding::up>(span));
    }

    struct key {
        void end_in_time() {
            if (now() >= ends) owner.clear();
        }
        std::string owner;
        std::string mark;
        time_point ends{};
    };

    struct request {
        explicit request(const distlock::command& cmd) {
            using namespace distlock::detail;
            const auto argv = cmd.argv();
            if (argv[0] == "GET") {
                what = "mark";
                lock = argv[1].substr(1, argv[1].find('}') - 1);
                return;
            }
            const bool set = argv[0] == "SET";
            if (set) what = "take";
            for (const auto& [known, name] : {std::pair{&plain_look, "take"},
                                              {&plain_look_with_siblings, "take"},
                                              {&handoff_enter, "take"},
                                              {&plain_renew, "renew"},
                                              {&plain_release, "release"},
                                              {&handoff_leave, "release"}}) {
                if (argv[1] != known->sha1() && argv[1] != known->text()) continue;
                script = known;
                what = name;
            }
            if (what.empty()) return;
            lock = argv[set ? 1 : 3];
            const std::size_t arguments = set ? 2 : 3 + std::stoul(std::string(argv[2]));
            token = argv[arguments];
            // With the script `enter` it is the beginning of a ticket.
            if (what != "release")
                lease = std::chrono::milliseconds(std::stoll(std::string(argv[set ? 5 : arguments + 1])));
        }
        std::string what;
        std::string lock;
        std::string token;
        std::chrono::milliseconds lease{};
        const distlock::script* script = nullptr;  // none: SET
    };

    distlock::reply take(key& it, const request& asked) {
        using distlock::reply;
        using namespace distlock::detail;
        const bool ours = it.owner.empty() || it.owner == asked.token;
        const auto ttl = std::chrono::ceil<std::chrono::milliseconds>(it.ends - now()).count();
        if (ours) {
            it.owner = asked.token;
            it.ends = after(asked.lease);
        }
        if (asked.script == nullptr) return ours ? reply::status("OK") : reply::nil();
        if (asked.script == &plain_look) return ours ? reply::status("OK") : reply::integer(ttl);
        if (asked.script == &handoff_enter) {
            return ours ? handoff_answers::granted("", asked.lease.count()) : handoff_answers::taken(ttl);
        }
        if (!ours) return reply::array({reply::integer(0), reply::integer(ttl)});
        return reply::array({reply::integer(1), reply::string(std::to_string(fence_ += fence_step))});
    }

    mutable std::mutex lock_;
    answers instead_;
    std::vector<recorded> all_;
    std::map<std::string, key> keys_;
    std::uint64_t fence_ = 100;
};

/// The same with a service registry: its background I/O lives as long as it does.
struct hosted_locks : locks_in_memory {
    distlock::service_registry& services() { return services_; }
    distlock::service_registry services_;
};

using following_locks = replaced_master<hosted_locks>;
