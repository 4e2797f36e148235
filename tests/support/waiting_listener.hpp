// A thread that waits for the messages of a subscription.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include <distlock/base/clock.hpp>
#include <distlock/net/subscription.hpp>

#include "support/waiting.hpp"

/// Waits for a message that begins with `key`. Where `only_for_messages`, no confirmation and no refusal of
/// the subscription ends that.
template <bool only_for_messages>
struct waiting_listener {
    using woken = distlock::listener::woken;

    waiting_listener(const std::shared_ptr<distlock::subscription>& on, std::string what)
        : key(std::move(what)), mine(on, key), thread([this] {
              do got = mine.wait(distlock::clock::now() + std::chrono::seconds{20}, stop.get_token());
              while (only_for_messages && (got == woken::by_confirmation || got == woken::by_refusal));
              ended = distlock::clock::now();
              message = mine.message();
              done = true;
          }) {}
    ~waiting_listener() {
        stop.request_stop();
        if (thread.joinable()) thread.join();
    }
    bool returned() const {
        return eventually([&] { return done.load(); });
    }

    const std::string key;
    distlock::listener mine;
    std::stop_source stop;
    woken got{};
    std::string message;
    distlock::clock::time_point ended;
    std::atomic<bool> done{false};
    std::thread thread;
};
