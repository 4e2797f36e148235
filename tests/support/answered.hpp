// A try that is not answered in time is made again: its last question is given 50 ms, which a busy machine
// may not have. That the answer comes in time is for tests of their own.
//
//   answered(ask)       ask() throws errc::no_reply     obtains(ask)       the same of a lock that is free
//   answered(ec, ask)   ask() sets `ec` to it           obtains(ec, ask)
#pragma once

#include <chrono>
#include <optional>
#include <system_error>

#include <distlock/base/error.hpp>

#include "support/waiting.hpp"

/// Returns: what `ask` returned, which sets `ec`.
template <class Ask>
auto answered(std::error_code& ec, Ask ask) {
    for (int asked = 1;; ++asked) {
        auto got = ask();
        if (ec != distlock::errc::no_reply || asked == 20) return got;
    }
}

template <class Ask>
auto answered(Ask ask) {
    for (int asked = 1;; ++asked) {
        try {
            return ask();
        } catch (const distlock::error& failed) {
            if (failed.code() != distlock::errc::no_reply || asked == 20) throw;
        }
    }
}

/// The same of what nobody else has. What an unanswered question may have taken is waited for.
template <class Ask>
auto obtains(std::error_code& ec, Ask ask) {
    auto got = ask();
    if (ec != distlock::errc::no_reply) return got;
    eventually([&] {
        got = ask();
        return ec != distlock::errc::no_reply && (got || ec);
    });
    return got;
}

template <class Ask>
auto obtains(Ask ask) {
    bool in_doubt = false;
    std::optional<decltype(ask())> got;
    eventually([&] {
        try {
            got.emplace(ask());
            return *got || !in_doubt;
        } catch (const distlock::error& failed) {
            if (failed.code() != distlock::errc::no_reply) throw;
            in_doubt = true;
            return false;
        }
    });
    if (!got) throw distlock::error(distlock::errc::no_reply, "not answered in time again and again");
    return *std::move(got);
}
