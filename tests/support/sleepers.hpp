// Threads that are known to sleep: so that others can be sent to queue behind them.
#pragma once

#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include <distlock/detail/thread_group.hpp>
#include <distlock/testing/manual_clock.hpp>

#include "support/waiting.hpp"

/// A thread that runs `what`, which blocks before long.
class sleeper {
  public:
    template <class What>
    explicit sleeper(What what) : thread_(std::make_shared<distlock::detail::thread_group>()) {
        // Which is compiled once, other than std::jthread.
        thread_->start([this, what = std::move(what)]() mutable {
            id_ = static_cast<int>(::syscall(SYS_gettid));
            what();
            done_ = true;
        });
    }
    sleeper(const sleeper&) = delete;
    sleeper& operator=(const sleeper&) = delete;
    ~sleeper() { join(); }

    /// Returns: whether it sleeps by and by, or has come to its end. Several looks, with pauses: a
    /// sanitizer's own locks let it sleep for a moment, too.
    bool sleeps() const {
        int looks = 0;
        return eventually([this, &looks] {
            looks = id_ != 0 && state() == 'S' ? looks + 1 : 0;
            return done_ || looks == 4;
        });
    }
    bool done() const { return done_; }
    void join() {
        if (const auto thread = std::exchange(thread_, nullptr)) thread->join();
    }

  private:
    char state() const {
        std::ifstream stat("/proc/self/task/" + std::to_string(id_) + "/stat");
        std::string text;
        std::getline(stat, text);
        const auto name_end = text.rfind(')');
        return name_end == std::string::npos ? '?' : text[name_end + 2];
    }

    std::atomic<int> id_{0};
    std::atomic<bool> done_{false};
    std::shared_ptr<distlock::detail::thread_group> thread_;
};

/// Returns: whether it is over by and by, while time goes on in such steps.
inline bool ends(const sleeper& one, std::chrono::milliseconds step = std::chrono::milliseconds{10}) {
    return eventually([&] {
        if (!one.done()) distlock::testing::manual_clock::advance(step);
        return one.done();
    });
}
