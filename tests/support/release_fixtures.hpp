// What tests of releases have in common: a lock of the hand-off, and connections that execute by a
// script, or post besides.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <distlock/base/options.hpp>
#include <distlock/base/token.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/testing/manual_clock.hpp>
#include <distlock/testing/scripted_connection.hpp>
#include <distlock/wire/any_dialect.hpp>
#include <distlock/wire/handoff.hpp>

#include "support/handoff_names.hpp"

namespace release_test {

using distlock::command;
using distlock::errc;
using distlock::receipt;
using distlock::reply;
using distlock::token;
using distlock::testing::manual_clock;
using distlock::testing::scripted_connection;
using namespace std::chrono_literals;
using words = std::vector<std::string>;
using time_point = distlock::clock::time_point;

inline constexpr auto answer_time = 200ms;
inline constexpr auto lease = 30s;
inline const auto dialect = std::make_shared<const distlock::any_dialect_of<distlock::handoff>>(
    "orders", distlock::lock_options{.lease = lease});
inline const reply lost = reply::no_answer(errc::no_reply, "the answer was lost");
inline const reply done = reply::integer(1);

inline std::string whole(const token& by) { return "leave " + std::string(by.view()); }
inline std::string minimal(const token& by) { return "free " + std::string(by.view()); }
/// Returns: of each release that was executed, whether it was whole or minimal, and by which token.
inline words executed_by(const scripted_connection& script) {
    words all;
    for (const auto& one : script.commands()) {
        const auto what = handoff_name_of(one.argv);
        all.push_back(what + ' ' + one.argv.at(what == "free" ? 4 : 7));
    }
    return all;
}

/// How a command came to a connection.
struct manner {
    explicit manner(const command& cmd)
        : deadline(cmd.deadline()),
          can_be_stopped(cmd.stop() != nullptr),
          with_body(cmd.argv()[0] == "EVAL") {}
    time_point deadline;
    bool can_be_stopped;
    bool with_body;
};

/// Executes by a script, and cannot post.
struct executing {
    reply execute(const command& cmd) {
        if (const manner how(cmd); how.can_be_stopped || how.deadline != time_point::max()) bounded = how;
        return inner.execute(cmd);
    }
    scripted_connection inner;
    std::optional<manner> bounded;  // of the last command that was not worth any time
};

/// Posts into a list besides; the test says what was answered.
struct posting : executing {
    reply execute(const command& cmd) {
        if (execute_throws) throw std::runtime_error("of a user's client");
        return executing::execute(cmd);
    }
    bool post(const command& cmd, std::shared_ptr<receipt> wanted = nullptr) {
        if (post_throws) throw std::runtime_error("of a user's client");
        if (!takes) return false;
        posted.emplace_back(cmd.argv().begin(), cmd.argv().end());
        how.emplace_back(cmd);
        receipts.push_back(std::move(wanted));
        return true;
    }
    void collect() {
        ++collected;
        if (post_throws) throw std::runtime_error("of a user's client");
    }

    std::vector<words> posted;
    std::vector<manner> how;
    std::vector<std::shared_ptr<receipt>> receipts;
    std::atomic<bool> takes = true;
    std::atomic<bool> post_throws = false;
    std::atomic<bool> execute_throws = false;
    std::atomic<int> collected{0};
};

}  // namespace release_test
