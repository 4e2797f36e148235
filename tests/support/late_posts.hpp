// A server in memory that has one lock of the family, and gets what is posted only when it is asked about.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>

#include <distlock/net/receipt.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/permit_scripts.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/shared_scripts.hpp>

#include "support/handoff_answers.hpp"
#include "support/script_calls.hpp"

/// Whoever asks has it alone, until a release is executed. Thread-safe.
struct late_posts {
    distlock::reply execute(const distlock::command& cmd) {
        using distlock::reply;
        const std::lock_guard guard(lock);
        const bool plain = cmd.argv()[0] == "SET";
        if (!plain &&
            (calls(cmd, distlock::detail::shared_leave) || calls(cmd, distlock::detail::permit_leave))) {
            taken = false;
            return reply::integer(1);
        }
        if (taken) return plain ? reply::nil() : handoff_answers::taken();
        taken = true;
        return plain ? reply::status("OK") : handoff_answers::granted("", 30'000);
    }
    bool post(const distlock::command&, const std::shared_ptr<distlock::receipt>& = nullptr) { return true; }
    void collect() {}
    /// It is not asked about a release before a test asks, however late that is.
    std::chrono::milliseconds command_timeout() const { return std::chrono::seconds{10}; }

    std::mutex lock;
    bool taken = false;
};
