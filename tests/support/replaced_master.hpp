// A connection whose master a test replaces.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include <distlock/net/master_listener.hpp>

/// A `Connection` that tells its listener of another master when a test says so.
template <class Connection>
struct replaced_master : Connection {
    void on_master_change(std::weak_ptr<distlock::master_listener> who) { listener = std::move(who); }
    void follow() { ++follows; }
    std::atomic<int> follows{0};
    void change_master() const {
        if (const auto told = listener.lock()) told->master_changed();
    }
    std::weak_ptr<distlock::master_listener> listener;
};
