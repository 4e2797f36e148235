// An attempt to take a lock that runs on the test's thread, and the words that tests of
// attempts have in common.
#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include <distlock/base/lease.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/token.hpp>
#include <distlock/engine/background_io.hpp>
#include <distlock/engine/blocking.hpp>
#include <distlock/engine/inbox.hpp>
#include <distlock/engine/operation.hpp>
#include <distlock/engine/remote_status.hpp>
#include <distlock/mutex.hpp>
#include <distlock/testing/manual_clock.hpp>
#include <distlock/testing/scripted_connection.hpp>
#include <distlock/wire/plain.hpp>

namespace attempt_test {

using distlock::acquire_outcome;
using distlock::command;
using distlock::enter_mode;
using distlock::errc;
using distlock::handover;
using distlock::queue_place;
using distlock::release_outcome;
using distlock::renew_outcome;
using distlock::reply;
using distlock::time_source;
using distlock::token;
using distlock::validity_end;
using distlock::engine::acquire;
using distlock::engine::acquire_limits;
using distlock::engine::acquire_step;
using distlock::engine::action;
using distlock::engine::event;
using distlock::engine::grant;
using distlock::engine::inbox;
using distlock::engine::operation;
using distlock::engine::waiting_manner;
using distlock::testing::manual_clock;
using distlock::testing::scripted_connection;
using namespace std::chrono_literals;
using words = std::vector<std::string>;

/// The tokens under which an attempt may have left something.
struct left_tokens {
    words tokens = {};
    std::vector<bool> in_doubt = {};
    void add(const distlock::engine::action::leaving& what) {
        tokens.emplace_back(what.token.view());
        in_doubt.push_back(what.in_doubt);
    }
};

template <class Clock, class Conn, class Dialect>
inbox inbox_of(Conn& connection, const Dialect& dialect) {
    return {distlock::engine::background_io_of<Clock>(connection),
            std::make_shared<const distlock::any_dialect_of<Dialect>>(dialect)};
}

struct left_alone {
    void operator()(const distlock::engine::action::leaving&) const noexcept {}
};

/// Runs an attempt on the calling thread.
template <class Clock, class Conn, class Dialect, class Leave = left_alone>
grant take(Conn& connection, const Dialect& dialect, const acquire_limits& limits,
           const std::stop_token& stop, bool contended, distlock::engine::remote_status& status,
           inbox& messages, Leave leave = {}) {
    const distlock::any_dialect_of<Dialect> spoken(dialect);
    distlock::any_connection_of<Conn> link(connection);
    operation op(spoken, limits, contended);
    return distlock::engine::run_blocking(link, time_source::of<Clock>(), op, stop, status, messages, leave);
}

/// Returns: what a command of the plain dialect is: "SET", "look", "look with body", "release",
/// "release with body".
inline std::string plain_name_of(const words& argv) {
    using namespace distlock::detail;
    if (argv.at(0) == "SET") return "SET";
    const bool body = argv.at(0) == "EVAL";
    const auto& script = argv.at(1);
    if (script == (body ? plain_look.text() : plain_look.sha1())) return body ? "look with body" : "look";
    if (script == (body ? plain_release.text() : plain_release.sha1()))
        return body ? "release with body" : "release";
    return "something else";
}
/// Returns: by which token it is.
inline std::string plain_token_of(const words& argv) { return argv.at(0) == "SET" ? argv.at(2) : argv.at(4); }

inline words what_was_sent(const scripted_connection& c) {
    words all;
    for (const auto& cmd : c.commands()) all.push_back(plain_name_of(cmd.argv));
    return all;
}
inline words tokens_of(const scripted_connection& c) {
    words all;
    for (const auto& cmd : c.commands()) all.push_back(plain_token_of(cmd.argv));
    return all;
}

}  // namespace attempt_test
