// What may be asked of a lock of the hand-off dialect, one step after the other, on a private
// server that may refuse it.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/testing.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/server_error.hpp>

#include "handoff_lock.hpp"
#include "support/catch.hpp"

namespace handoff_test {

using distlock::errc;
using distlock::reply_kind;

struct private_place {
    private_place() = default;
    /// The scripts are asked for by a user of that name, whose password is "secret"; the test's
    /// own commands are not.
    explicit private_place(const std::string& user) {
        server.command({"ACL", "SETUSER", user, "reset", "on", ">secret", "~*", "&*", "+@all"});
        if (!redis.ask({"AUTH", user, "secret"}).is_status("OK")) throw std::runtime_error("no user");
    }
    handoff_lock fresh(const lock_options& options, const std::string& channel = "") {
        return {server, redis, fresh_name(), options, channel};
    }
    void memory(const char* limit) const { server.command({"CONFIG", "SET", "maxmemory", limit}); }

    redis_server server;
    redis_link redis{server.socket_path()};
};

inline bool refused(const reply& r, errc cause) {
    UNSCOPED_INFO(r.text() << " " << r.number());
    return r.is(reply_kind::error) && distlock::classify_error(r.text()).cause == cause;
}

inline constexpr enter_mode everywhere[] = {enter_mode::try_once, enter_mode::join, enter_mode::last};

// So many tickets stand in the queue, of whom nobody can be told; each wants all there is.
inline void queue_others(const handoff_lock& it, int waiters) {
    it.at.command({"DEL", it.queue});
    for (int i = 0; i < waiters; ++i) {
        handoff_lock other(it.at, it.redis, it.lock, all);
        it.queue_up(other.ticket());
    }
}
// Another one has the lock.
inline void held_by_other(handoff_lock& it, int waiters) {
    it.at.command({"DEL", it.who});
    it.set(it.lock, token::generate().view(), "20000");
    queue_others(it, waiters);
}
// We have the lock.
inline void held_by_us(handoff_lock& it, int waiters) {
    it.set(it.lock, it.owner.view(), "20000");
    if (it.labels) it.set(it.who, it.owner_text(), "20000");
    queue_others(it, waiters);
}

inline reply enter(handoff_lock& it, enter_mode mode) { return it.ask(it.dialect.enter(it.owner, mode)); }

// Everything a lock has, as bytes.
inline std::string contents(const handoff_lock& it) {
    std::string bytes;
    for (const auto& key : {it.lock, it.queue, it.fence, it.who})
        bytes += it.at.command({"DUMP", key}) + "\n";
    return bytes;
}

using action = reply (*)(handoff_lock&);
struct step {
    const char* name;
    action run;
};
inline const std::vector<step> every_step{
    {"try", [](handoff_lock& it) { return enter(it, enter_mode::try_once); }},
    {"join", [](handoff_lock& it) { return enter(it, enter_mode::join); }},
    {"last", [](handoff_lock& it) { return enter(it, enter_mode::last); }},
    {"leave", [](handoff_lock& it) { return it.release(); }},
};

inline void make_hash(const handoff_lock& it, const std::string& key) {
    it.at.command({"DEL", key});
    it.at.command({"HSET", key, "a", "b"});
    it.at.command({"PEXPIRE", key, "60000"});
}

using layer = void (*)(handoff_lock&, int);
inline const std::vector<layer> layers{[](handoff_lock& it, int waiters) { queue_others(it, waiters); },
                                       held_by_us, held_by_other};

}  // namespace handoff_test
