// Tasks that say something to the server, and how those that are due go in one pipeline.
//
//   class background_task : public timer_item {
//     virtual step begin(clock::time_point now) noexcept;       // what to send, or when to begin again
//     virtual step begin_last(clock::time_point now) noexcept;  // the background I/O ends
//     virtual clock::time_point end(const reply& answer, clock::time_point sent,
//                                   clock::time_point now) noexcept;
//   };
//   class background_runner : public timer_runner;
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/time_source.hpp>
#include <distlock/engine/known_scripts.hpp>
#include <distlock/engine/timer_thread.hpp>
#include <distlock/net/any_connection.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock::engine {

/// A task that says something to the server, again and again. All functions are called without a lock
/// of the background I/O.
class background_task : public timer_item {
  public:
    background_task() = default;
    background_task(const background_task&) = delete;
    background_task& operator=(const background_task&) = delete;
    virtual ~background_task() = default;

    struct step {
        std::optional<command> send;  ///< good until end() was called
        clock::time_point next;  ///< without a command: when to begin again; time_point::max(): not any more
        std::optional<command> behind = {};  ///< goes right behind it, on the same socket
    };
    virtual step begin(clock::time_point now) noexcept = 0;
    /// The same where it is not to begin again: the background I/O ends. It adds the bodies of
    /// scripts.
    virtual step begin_last(clock::time_point now) noexcept { return begin(now); }

    /// `sent` is before the first byte of the pipeline that the command went with.
    /// Returns: when to begin again; time_point::max(): not any more.
    virtual clock::time_point end(const reply& answer, clock::time_point sent,
                                  clock::time_point now) noexcept = 0;
    /// The same for a step with a command behind.
    virtual clock::time_point end_both(const reply& answer, const reply& /*behind*/, clock::time_point sent,
                                       clock::time_point now) noexcept {
        return end(answer, sent, now);
    }
};

class background_runner final : public timer_runner {
    using time_point = clock::time_point;

  public:
    background_runner(any_connection& connection, time_source time) : connection_(connection), time_(time) {}

    // As many as go in one pipeline: enough that round trips do not count, few enough for a server's
    // patience. Without a pipeline each goes alone: the answer of one must not wait for that of the next.
    std::size_t most() const noexcept override { return connection_.can.pipeline ? 1024 : 1; }

    std::chrono::milliseconds longest_wait() const noexcept override {
        return std::chrono::milliseconds{connection_.can.follow ? 100 : 1000};
    }

    // A server that answers hears of thousands; one that hangs holds up the end of a process hardly longer.
    std::chrono::milliseconds longest_end() const noexcept override { return std::chrono::milliseconds{200}; }

    // An owner that sends nothing until its lease is to be renewed hears of another master all the same.
    void idle() noexcept override {
        if (connection_.can.follow) connection_.follow();
    }

    [[gnu::cold]] void reserve() override {
        steps_.reserve(most());
        commands_.reserve(2 * most());
        replies_.reserve(2 * most());
    }

    [[gnu::cold]] std::size_t begin(std::span<timer_item*> due, time_point now, std::span<time_point> next,
                                    bool last) noexcept override {
        steps_.clear();
        for (std::size_t i = 0; i < due.size(); ++i) {
            auto& one = static_cast<background_task&>(*due[i]);
            auto step = last ? one.begin_last(now) : one.begin(now);
            next[i] = step.next;
            if (!step.send) continue;
            const std::size_t place = steps_.size();
            std::swap(due[place], due[i]);
            std::swap(next[place], next[i]);
            steps_.push_back({&one, &next[place], std::move(step)});
        }
        return steps_.size();
    }

    [[gnu::cold]] std::shared_ptr<blocking_work> run(std::span<timer_item* const>, time_point,
                                                     std::span<time_point>, bool last) noexcept override {
        // Replicas may be slow: nobody waits for them who does not need them.
        if (last && !brought_) brought_.emplace();
        send(false);
        send(true);
        return nullptr;
    }

  private:
    struct asking {
        background_task* who;
        time_point* next;
        background_task::step what;
    };

    // Effects: those with a command behind, or those without.
    [[gnu::cold]] void send(bool with_behind) noexcept {
        commands_.clear();
        for (const asking& one : steps_) {
            if (one.what.behind.has_value() != with_behind) continue;
            const command& what = *one.what.send;
            const bool with_body = brought_ && !brought_->has(what);
            commands_.push_back(with_body ? what.with_body() : what);
            // In a Cluster each may be for another server.
            if (with_body && !connection_.can.shard) brought_->note(what, true);
            if (with_behind) commands_.push_back(*one.what.behind);
        }
        if (commands_.empty()) return;
        replies_.resize(commands_.size());
        const auto sent = time_.now();
        connection_.execute_all(commands_, replies_);
        const auto came = time_.now();
        auto answer = replies_.begin();
        for (const asking& one : steps_) {
            if (one.what.behind.has_value() != with_behind) continue;
            const reply& first = *answer++;
            *one.next = with_behind ? one.who->end_both(first, *answer++, sent, came)
                                    : one.who->end(first, sent, came);
        }
    }

    any_connection& connection_;
    time_source time_;
    std::vector<asking> steps_;  // that have something to send
    // Of the last runs: a server that stands still will not say that it lacks a script, so the first of each
    // brings its body.
    std::optional<known_scripts> brought_;
    std::vector<command> commands_;
    std::vector<reply> replies_;
};

}  // namespace distlock::engine
