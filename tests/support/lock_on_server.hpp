// What a stranger sees of one lock on a server: who has it, whether it is offered, how many are counted in line.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <distlock/base/key.hpp>
#include <distlock/testing.hpp>

#include "support/waiting.hpp"

struct lock_on_server {
    lock_on_server(const distlock::testing::redis_server& server, const std::string& name)
        : at(server),
          K(name),
          B(distlock::key(name).sibling("offers")),
          W(distlock::key(name).sibling("waiters")) {}

    std::string holder() const { return at.command({"GET", K}); }
    bool taken() const { return at.command({"EXISTS", K}) == "1"; }
    bool offered() const { return at.command({"EXISTS", B}) == "1"; }
    int counted() const {
        const std::string text = at.command({"GET", W});
        return text == "(nil)" ? 0 : std::stoi(text);
    }
    /// Returns: how many clients of the whole server are blocked; nobody else's, on a server of one's own.
    int blocked() const {
        const std::string info = at.command({"INFO", "clients"});
        return std::stoi(info.substr(info.find("blocked_clients:") + 16));
    }
    /// Returns: whether so many were counted and blocked by and by.
    bool gets(int waiters) const {
        return eventually([&] { return counted() == waiters && blocked() == waiters; });
    }
    /// Returns: whether nothing is left of it: no owner, no offer, no count.
    bool untouched() const { return at.command({"EXISTS", K, B, W}) == "0"; }

    /// Effects: takes the lock for a stranger, as every other client does.
    bool strangers(const char* ms) const {
        return at.command({"SET", K, "a stranger's token", "NX", "PX", ms}) == "OK";
    }
    void strangers_release() const { at.command({"DEL", K}); }

    const distlock::testing::redis_server& at;
    const std::string K, B, W;
};
