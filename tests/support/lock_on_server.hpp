// What a stranger sees of one lock on a server: who has it, and how many tickets there are in its queue.
#pragma once

#include <string>
#include <string_view>

#include <distlock/base/key.hpp>
#include <distlock/testing.hpp>

#include "support/waiting.hpp"

struct lock_on_server {
    lock_on_server(const distlock::testing::redis_server& server, const std::string& name)
        : at(server), lock_key(name), queue_key(distlock::key(name).sibling("queue")) {}

    std::string holder() const { return at.command({"GET", lock_key}); }
    bool taken() const { return at.command({"EXISTS", lock_key}) == "1"; }
    int queued() const { return std::stoi(at.command({"ZCARD", queue_key})); }
    /// Returns: whether there were so many tickets by and by.
    bool gets(int waiters) const {
        return eventually([&] { return queued() == waiters; });
    }
    /// Returns: whether nothing is left of it: no owner, no queue.
    bool untouched() const { return at.command({"EXISTS", lock_key, queue_key}) == "0"; }

    /// Effects: takes the lock for a stranger, as every other client does.
    bool strangers(const char* ms) const {
        return at.command({"SET", lock_key, "a stranger's token", "NX", "PX", ms}) == "OK";
    }
    void strangers_release() const { at.command({"DEL", lock_key}); }

    const distlock::testing::redis_server& at;
    const std::string lock_key, queue_key;
};
