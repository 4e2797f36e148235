// What tests of the scripts of shared locks and semaphores have in common: a server and a link to it, the
// keys of a lock as a stranger sees them, and one that asks for it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/base/error.hpp>
#include <distlock/base/key.hpp>
#include <distlock/base/token.hpp>
#include <distlock/testing.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/enter_mode.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/server_error.hpp>

#include "support/catch.hpp"
#include "support/redis_link.hpp"

namespace script_test {

using distlock::enter_mode;
using distlock::errc;
using distlock::reply;
using distlock::token;
using distlock::testing::redis_server;
using got = distlock::acquire_outcome::kind;

inline constexpr enter_mode modes[] = {enter_mode::try_once, enter_mode::join, enter_mode::last};

/// A server, its own or that one, and a link to it.
struct place {
    place() : own(std::in_place), server(*own), link(server.socket_path()) {}
    explicit place(const redis_server& of) : server(of), link(server.socket_path()) {}
    std::optional<redis_server> own;
    const redis_server& server;
    redis_link link;
};

/// Returns: one for all tests of the program that need no other.
inline place& common() {
    static place all;
    return all;
}

/// What the keys of every kind of lock have.
struct seen_keys {
    seen_keys(place& where, const std::string& name)
        : at(where), queue(distlock::key(name).sibling("queue")) {}
    std::string ask(std::initializer_list<std::string_view> words) const { return at.server.command(words); }
    int queued() const { return std::stoi(ask({"ZCARD", queue})); }
    std::int64_t ttl(const std::string& key) const { return std::stoll(ask({"PTTL", key})); }

    place& at;
    const std::string queue;
};

/// One that has a lock, or wants it.
template <class Dialect>
struct script_asker {
    /// `made`: what the dialect is made of.
    template <class... Made>
    explicit script_asker(redis_link& to, Made&&... made) : link(to), dialect(std::forward<Made>(made)...) {}
    distlock::acquire_outcome enter(enter_mode mode) {
        last = ask(dialect.enter(me, mode));
        return dialect.read_enter(last);
    }
    bool granted(enter_mode mode = enter_mode::try_once) { return enter(mode).what == got::granted; }
    bool waits() {
        const auto outcome = enter(enter_mode::join);
        return outcome.what == got::busy && outcome.queued.ticket != 0;
    }
    int leave() { return static_cast<int>(ask(dialect.release(me)).number()); }
    int renew() { return static_cast<int>(ask(dialect.renew(me)).number()); }
    reply ask(const distlock::command& cmd) { return link.ask(cmd); }

    redis_link& link;
    Dialect dialect;
    token me = token::generate();
    reply last = reply::nil();
};

inline bool refused(const reply& r, errc cause) {
    UNSCOPED_INFO(r.text() << " " << r.number());
    return r.is(distlock::reply_kind::error) && distlock::classify_error(r.text()).cause == cause;
}

}  // namespace script_test
