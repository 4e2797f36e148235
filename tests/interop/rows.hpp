// Every dialect and the real client it is for: the rows of the table in examples/interop.md.
#pragma once

#include <chrono>
#include <concepts>
#include <string>
#include <tuple>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/interop.hpp>
#include <distlock/testing.hpp>

#include "interop/peer.hpp"

namespace interop {

using namespace std::chrono_literals;
using distlock::lock_options;
using distlock::testing::redis_server;
using clk = distlock::clock;

inline redis_server& server() {
    static redis_server one({.tcp = true});
    return one;
}

inline std::string fresh_name() {
    static int count = 0;
    return "orders-" + std::to_string(++count);
}

// A client: what the program is called with, and what is told of it in figures.
struct client {
    std::vector<std::string> words;

    peer start() const {
        auto all = words;
        all.push_back(std::to_string(server().port()));
        return peer(all);
    }
};

inline client java(const std::string& version, const std::string& kind) {
    const auto folder = interop::built() + "/java-" + version;
    return {{"java", "-cp", folder + "/classes:" + folder + "/lib/*", "Peer", kind}};
}
inline client go(const std::string& kind) { return {{interop::built() + "/go/peer", kind}}; }
inline client python(const std::string& kind) {
    return {
        {interop::built() + "/python/bin/python", DISTLOCK_SOURCE_DIR "/tests/interop/python/peer.py", kind}};
}
inline client node(const std::string& kind) { return {{"node", interop::built() + "/node/peer.js", kind}}; }

// What is a row of the table: a dialect of ours and a client.
struct with_redigo {
    using dialect = distlock::redigo;
    static client theirs() { return go("redigo"); }
};
struct with_go_zero {
    using dialect = distlock::go_zero;
    static client theirs() { return go("gozero"); }
};
struct with_redsync {
    using dialect = distlock::plain;
    static client theirs() { return go("redsync"); }
};
struct handoff_with_redsync {
    using dialect = distlock::handoff;
    static client theirs() { return go("redsync"); }
};
struct with_redis_py {
    using dialect = distlock::plain;
    static client theirs() { return python("redispy"); }
};
struct with_python_redis_lock {
    using dialect = distlock::python_redis_lock;
    static client theirs() { return python("pythonredislock"); }
};
struct with_redlock {
    using dialect = distlock::plain;
    static client theirs() { return node("redlock"); }
};
struct with_redis_semaphore {
    using dialect = distlock::redis_semaphore;
    static client theirs() { return node("semaphore"); }
};
struct with_getset {
    using dialect = distlock::getset;
    static client theirs() { return java("4", "getset"); }
};
struct with_redisson_3 {
    using dialect = distlock::redisson;
    static client theirs() { return java("3", "redisson"); }
};
struct with_redisson_4 {
    using dialect = distlock::redisson;
    static client theirs() { return java("4", "redisson"); }
};
using rows = std::tuple<with_redigo, with_go_zero, with_redsync, handoff_with_redsync, with_redis_py,
                        with_python_redis_lock, with_redlock, with_redis_semaphore, with_getset,
                        with_redisson_3, with_redisson_4>;

template <class Row>
using lock_of = distlock::mutex<distlock::hiredis_connection, typename Row::dialect>;

// As long as a lock is kept without renewal: whole seconds, which are what some clients count in.
inline constexpr auto lease = 2s;
inline constexpr auto soon = 150ms;
inline constexpr lock_options unrenewed{.lease = lease, .renew = false};

// A queued waiter looks every second, unless told otherwise; their releases tell nobody.
template <class Row>
lock_options patient() {
    if (std::same_as<typename Row::dialect, distlock::handoff>) return {.recheck = 50ms};
    return {};
}

inline std::string acquire(const std::string& name, clk::duration wait,
                           std::chrono::milliseconds ttl = lease) {
    return "acquire " + name + " " + std::to_string(ttl.count()) + " " +
           std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(wait).count());
}

}  // namespace interop
