// What may be asked of a lock of the hand-off dialect, one step after the other, on a private server that may refuse it.
#pragma once

#include <string>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/testing.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/server_error.hpp>

#include "catch.hpp"
#include "handoff_lock.hpp"

namespace handoff_test {

using distlock::errc;
using distlock::hiredis_connection;
using distlock::reply_kind;

struct private_place {
    explicit private_place(const std::string& user = "") : login(user) {}
    handoff_lock fresh(const lock_options& options) { return {server, redis, fresh_name(), options}; }
    void memory(const char* limit) const { server.command({"CONFIG", "SET", "maxmemory", limit}); }

    redis_server server;
    std::string login;
    hiredis_connection redis{"unix://" + login + server.socket_path() + patient};
};

inline bool refused(const reply& r, errc cause) {
    UNSCOPED_INFO(r.text() << " " << r.number());
    return r.is(reply_kind::error) && distlock::classify_error(r.text()).cause == cause;
}

inline constexpr place everywhere[] = {place::none, place::join, place::stay, place::quit, place::adopt};

// Another one has the lock; so many are counted.
inline void held_by_other(handoff_lock& it, int waiters) {
    it.at.command({"DEL", it.B, it.who});
    it.set(it.K, token::generate().view(), "20000");
    it.count(waiters);
}

// We have the lock; so many are counted.
inline void held_by_us(handoff_lock& it, int waiters) {
    it.at.command({"DEL", it.B});
    it.set(it.K, it.owner.view(), "20000");
    if (it.labels) it.set(it.who, it.owner_text(), "20000");
    it.count(waiters);
}

inline reply enter(handoff_lock& it, place where) { return it.ask(it.dialect.enter(it.owner, where)); }

// Everything a lock has, as bytes.
inline std::string contents(const handoff_lock& it) {
    std::string bytes;
    for (const auto& key : {it.K, it.B, it.W, it.fence, it.who}) bytes += it.at.command({"DUMP", key}) + "\n";
    return bytes;
}

using action = reply (*)(handoff_lock&);
struct step {
    const char* name;
    action run;
};
inline const std::vector<step> every_step{
    {"try", [](handoff_lock& it) { return enter(it, place::none); }},
    {"join", [](handoff_lock& it) { return enter(it, place::join); }},
    {"stay", [](handoff_lock& it) { return enter(it, place::stay); }},
    {"quit", [](handoff_lock& it) { return enter(it, place::quit); }},
    {"adopt", [](handoff_lock& it) { return enter(it, place::adopt); }},
    {"release", [](handoff_lock& it) { return it.release(); }},
    {"look", [](handoff_lock& it) { return it.watch(); }},
    {"revive", [](handoff_lock& it) { return it.revive(); }},
    {"leave", [](handoff_lock& it) { return it.leave(); }},
};

inline void make_hash(const handoff_lock& it, const std::string& key) {
    it.at.command({"DEL", key});
    it.at.command({"HSET", key, "a", "b"});
    it.at.command({"PEXPIRE", key, "60000"});
}

using layer = void (*)(handoff_lock&, int);
inline const std::vector<layer> layers{[](handoff_lock& it, int waiters) { it.count(waiters); }, held_by_us,
                                       held_by_other};

}  // namespace handoff_test
