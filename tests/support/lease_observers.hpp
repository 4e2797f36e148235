// Observers of leases for tests: one counts what it is told, one writes it down and does what a test wants.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/observer.hpp>
#include <distlock/wire/outcome.hpp>

#include "support/gate.hpp"
#include "support/waiting.hpp"

struct counting_observer final : distlock::lease_observer {
    void at_risk(const std::string&, distlock::clock::duration) override { ++risks; }
    void lost(const std::string&, distlock::loss_reason) override { ++losses; }
    void master_changed(const std::string&) override { ++masters; }
    std::atomic<int> masters{0};
    std::atomic<int> risks{0};
    std::atomic<int> losses{0};
};

class recording_observer final : public distlock::lease_observer {
  public:
    void at_risk(const std::string& name, distlock::clock::duration left) override {
        {
            const std::lock_guard guard(lock_);
            heard_.push_back("at risk: " + name);
            risks_.push_back(left);
        }
        if (on_risk) on_risk();
    }
    void lost(const std::string& name, distlock::loss_reason why) override {
        {
            const std::lock_guard guard(lock_);
            heard_.push_back(std::string(to_string(why)) + ": " + name);
            losses_.push_back(why);
        }
        if (on_loss) on_loss();
    }

    /// Returns: "at risk: orders", "taken: orders" and the like, in order.
    std::vector<std::string> heard() const {
        const std::lock_guard guard(lock_);
        return heard_;
    }
    /// Returns: whether it has heard just that by and by.
    bool hears(const std::vector<std::string>& expected) const {
        return eventually([&] { return heard() == expected; });
    }
    std::vector<distlock::loss_reason> losses() const {
        const std::lock_guard guard(lock_);
        return losses_;
    }
    /// Returns: how much was left each time that a lease was at risk.
    std::vector<distlock::clock::duration> risks() const {
        const std::lock_guard guard(lock_);
        return risks_;
    }

    std::function<void()> on_risk;  // set before there is a lock
    std::function<void()> on_loss;

  private:
    mutable std::mutex lock_;
    std::vector<std::string> heard_;
    std::vector<distlock::loss_reason> losses_;
    std::vector<distlock::clock::duration> risks_;
};

/// Returns: an observer that does that at a loss.
inline std::shared_ptr<recording_observer> at_a_loss(std::function<void()> what) {
    auto made = std::make_shared<recording_observer>();
    made->on_loss = std::move(what);
    return made;
}

/// An observer that unlocks what was lost, once it may. It outlives the lock and its connection.
template <class Lockable>
struct unlocks_at_a_loss {
    bool done() const {
        return eventually([&] { return done_.load(); });
    }

    gate may;
    Lockable* lock = nullptr;
    std::atomic<bool> owned{true};  // what it is told just before
    std::atomic<distlock::release_outcome> end{};
    const std::shared_ptr<recording_observer> observer = at_a_loss([this] {
        may.pass();
        owned = lock->owns_lock();
        end = lock->unlock();
        done_ = true;
    });

  private:
    std::atomic<bool> done_{false};
};
