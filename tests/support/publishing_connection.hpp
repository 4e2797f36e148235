// A connection by a script that can subscribe; the test publishes.
#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <distlock/net/subscription.hpp>
#include <distlock/testing/scripted_connection.hpp>

struct publishing_connection {
    distlock::reply execute(const distlock::command& cmd) { return inner.execute(cmd); }
    std::shared_ptr<distlock::subscription> subscribe(std::string_view channel) {
        channels.emplace_back(channel);
        if (on_subscribing) on_subscribing();
        if (refuses) throw std::runtime_error("no socket is left");
        source = std::make_shared<distlock::subscription>(std::string(channel));
        if (in_force) source->confirm();
        return source;
    }

    distlock::testing::scripted_connection inner;
    std::shared_ptr<distlock::subscription> source;  // the last one
    std::vector<std::string> channels;               // of each subscription
    std::function<void()> on_subscribing;
    bool in_force = true;
    bool refuses = false;
};
