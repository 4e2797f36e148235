// A connection of the simulated world: what hiredis_connection is on sockets, on the network of this folder.
// It keeps the promises of net/connection.hpp, and is meant to do what hiredis/connection.hpp and
// hiredis/stream.hpp do in every case.
//
//   class link;    // execute, pipeline, post, collect, subscribe, host, command_timeout, identity
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/net/service_registry.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

#include "model/simulator/server.hpp"
#include "model/simulator/subscriber.hpp"

namespace sim {

/// The client's end of one socket. Not shared: one fiber at a time.
class line_to_server {
    using clock = distlock::clock;
    using command = distlock::command;
    using errc = distlock::errc;
    using reply = distlock::reply;

  public:
    line_to_server(server& peer, scheduler& s, std::shared_ptr<socket> end)
        : peer_(peer), scheduler_(s), end_(std::move(end)) {}
    line_to_server(const line_to_server&) = delete;
    line_to_server& operator=(const line_to_server&) = delete;
    ~line_to_server() {
        peer_.close(end_, broken_ && posted_.empty());
        while (!posted_.empty()) settle(lost("the connection broke"));
    }

    reply run(const command& cmd, clock::time_point deadline) {
        if (cmd.stop_requested()) return reply::not_sent(errc::cancelled, "stopped");
        if (!send({&cmd, 1})) return unsent();
        const auto wake = [this]() noexcept {
            if (end_->reader != nullptr) scheduler_.wake(*end_->reader);
        };
        std::optional<std::stop_callback<decltype(wake)>> on_stop;
        if (cmd.stop() != nullptr) on_stop.emplace(*cmd.stop(), wake);
        reply answer = next_answer(deadline, &cmd);
        on_stop.reset();
        broken_ = broken_ || cmd.stop_requested();
        return answer;
    }
    void run_all(std::span<const command> commands, std::span<reply> replies, clock::time_point deadline,
                 std::size_t& answered, reply& failure) {
        failure = reply::nil();
        if (!send(commands)) {
            failure = unsent();
            return;
        }
        for (; answered < replies.size(); ++answered) {
            reply next = next_answer(deadline);
            if (!next.answered()) {
                broken_ = true;
                failure = std::move(next);
                return;
            }
            replies[answered] = std::move(next);
        }
    }
    bool post(const command& cmd, std::shared_ptr<distlock::receipt> wanted) {
        if (!send({&cmd, 1})) return false;
        posted_.push_back(std::move(wanted));
        posted_at_ = clock::now();
        broken_ = false;
        return true;
    }

    enum class state { ready, owing, over };
    state drain_posted() {
        if (broken_) return state::over;
        if (posted_.empty()) return end_->ended || !end_->inbox.empty() ? state::over : state::ready;
        if (clock::now() - posted_at_ < 1ms && posted_.size() < most_unanswered) return state::ready;
        while (!end_->inbox.empty()) {
            if (posted_.empty()) return state::over;
            settle(take());
        }
        if (end_->ended) return state::over;
        return posted_.size() < most_unanswered ? state::ready : state::owing;
    }
    void collect() {
        posted_at_ = {};
        if (!posted_.empty() && drain_posted() == state::over) broken_ = true;
    }
    bool broken() const { return broken_; }

  private:
    static constexpr std::size_t most_unanswered = 256;

    static reply lost(const char* why) { return reply::no_answer(errc::no_reply, why); }
    static reply unsent() { return reply::not_sent(errc::unreachable, "the connection broke"); }

    // Returns: false when the end of the connection has come already, and nothing can be sent.
    bool send(std::span<const command> commands) {
        broken_ = true;  // until the exchange is complete
        scheduler_.stray();
        if (end_->ended) return false;
        for (const command& one : commands) peer_.send(end_, one);
        return true;
    }
    reply take() {
        reply first = std::move(end_->inbox.front());
        end_->inbox.pop_front();
        return first;
    }
    void settle(reply answer) {
        const auto who = std::move(posted_.front());
        posted_.pop_front();
        if (who) who->settle(std::move(answer));
    }

    // `asked`: its stop request ends the wait.
    reply next_answer(clock::time_point deadline, const command* asked = nullptr) {
        fiber& me = *scheduler_.running();
        for (;;) {
            while (!end_->inbox.empty()) {
                reply next = take();
                if (posted_.empty()) {
                    broken_ = false;
                    return next;
                }
                settle(std::move(next));
            }
            if (end_->ended) return lost("the server closed the connection");
            const auto now = me.home().local(scheduler_.where().now());
            if (now >= deadline.time_since_epoch()) return lost("no reply in time");
            if (asked != nullptr && asked->stop_requested())
                return reply::no_answer(errc::cancelled, "stopped");
            end_->reader = &me;
            scheduler_.park(me.home().when(deadline.time_since_epoch()));
            end_->reader = nullptr;
        }
    }

    server& peer_;
    scheduler& scheduler_;
    const std::shared_ptr<socket> end_;
    std::deque<std::shared_ptr<distlock::receipt>> posted_;
    clock::time_point posted_at_{};
    bool broken_ = false;
};

/// Of one virtual process. In a dead one every call fails at once.
class link {
    using clock = distlock::clock;
    using command = distlock::command;
    using errc = distlock::errc;
    using reply = distlock::reply;

  public:
    link(server& peer, scheduler& s, process& owner, std::chrono::milliseconds timeout)
        : peer_(peer), scheduler_(s), owner_(owner), timeout_(timeout), messages_(peer, s, owner, timeout) {}
    link(const link&) = delete;
    link& operator=(const link&) = delete;

    reply execute(const command& cmd) {
        return on_a_line(cmd.deadline(), &cmd,
                         [&](line_to_server& l) { return l.run(cmd, answer_by(cmd.deadline())); });
    }

    void pipeline(std::span<const command> commands, std::span<reply> replies) {
        if (commands.empty()) return;
        auto last = commands.front().deadline();
        for (const command& one : commands) last = std::max(last, one.deadline());
        std::size_t answered = 0;
        reply failure;
        reply outcome = on_a_line(last, nullptr, [&](line_to_server& l) {
            answered = 0;
            l.run_all(commands, replies, answer_by(last), answered, failure);
            return failure;
        });
        if (outcome.answered()) return;
        for (std::size_t i = answered; i < replies.size(); ++i)
            replies[i] = outcome;  // all of it is sent, or nothing
    }

    bool post(const command& cmd, std::shared_ptr<distlock::receipt> wanted = nullptr) {
        bool posted = false;
        on_a_line(cmd.deadline(), &cmd, [&](line_to_server& l) {
            posted = l.post(cmd, std::move(wanted));
            return reply::nil();
        });
        return posted;
    }

    void collect() {
        const std::lock_guard guard(idle_lock_);
        for (auto& one : idle_) one->collect();
        std::erase_if(idle_, [](const auto& one) { return one->broken(); });
    }

    std::shared_ptr<distlock::subscription> subscribe(std::string_view channel) {
        return messages_.subscribe(channel);
    }

    distlock::service_registry& services() noexcept { return services_; }
    std::chrono::milliseconds command_timeout() const noexcept { return timeout_; }
    std::string_view identity() const noexcept { return "sim://server"; }

    static constexpr std::chrono::milliseconds connect_timeout{500};

  private:
    clock::time_point answer_by(clock::time_point deadline) const {
        return std::min<clock::time_point>(deadline, clock::now() + timeout_);
    }

    // `asked`: its stop request ends it; null: nothing does.
    std::unique_ptr<line_to_server> open(clock::time_point by, const command* asked) {
        const auto there_and_back = peer_.chances().latency(scheduler_.where().random()) +
                                    peer_.chances().latency(scheduler_.where().random());
        connect(there_and_back, asked);
        if (clock::now() >= by || owner_.dead || (asked != nullptr && asked->stop_requested()))
            return nullptr;
        auto end = peer_.open(owner_);
        return end ? std::make_unique<line_to_server>(peer_, scheduler_, std::move(end)) : nullptr;
    }

    void connect(nanos takes, const command* asked) {
        fiber& me = *scheduler_.running();
        bool sleeps = false;
        const auto wake = [&]() noexcept {
            if (sleeps) scheduler_.wake(me);
        };
        std::optional<std::stop_callback<decltype(wake)>> on_stop;
        if (asked != nullptr && asked->stop() != nullptr) on_stop.emplace(*asked->stop(), wake);
        if (asked != nullptr && asked->stop_requested()) return;
        sleeps = true;
        scheduler_.sleep(takes);
        sleeps = false;
    }

    template <class Use>
    reply on_a_line(clock::time_point deadline, const command* asked, Use use) {
        for (;;) {
            if (owner_.dead) {
                scheduler_.sleep(10us);
                return reply::not_sent(errc::unreachable, "the process is no more");
            }
            auto mine = take_idle();
            const bool kept = mine != nullptr;
            if (!kept)
                mine = open(std::min<clock::time_point>(deadline, clock::now() + connect_timeout), asked);
            if (!mine && asked != nullptr && asked->stop_requested())
                return reply::not_sent(errc::cancelled, "stopped");
            if (!mine) return reply::not_sent(errc::unreachable, "connection refused");
            reply answer = use(*mine);
            const bool stopped = !answer.answered() && answer.cause() == errc::cancelled;
            if (kept && mine->broken() && answer.is(distlock::reply_kind::not_sent) && !stopped) continue;
            if (!mine->broken()) keep(std::move(mine));
            return answer;
        }
    }
    std::unique_ptr<line_to_server> take_idle() {
        std::vector<std::unique_ptr<line_to_server>> owing;
        auto found = last_idle();
        for (; found; found = last_idle()) {
            const auto state = found->drain_posted();
            if (state == line_to_server::state::ready) break;
            if (state == line_to_server::state::owing) owing.push_back(std::move(found));
        }
        for (auto& later : owing) keep(std::move(later));
        return found;
    }
    std::unique_ptr<line_to_server> last_idle() {
        const std::lock_guard guard(idle_lock_);
        if (idle_.empty()) return nullptr;
        auto last = std::move(idle_.back());
        idle_.pop_back();
        return last;
    }
    void keep(std::unique_ptr<line_to_server> mine) {
        constexpr std::size_t most_idle = 16;
        const std::lock_guard guard(idle_lock_);
        if (idle_.size() < most_idle) idle_.push_back(std::move(mine));
    }

    server& peer_;
    scheduler& scheduler_;
    process& owner_;
    const std::chrono::milliseconds timeout_;
    std::mutex idle_lock_;
    std::vector<std::unique_ptr<line_to_server>> idle_;
    subscriber messages_;
    distlock::service_registry services_;  // last: what lives there uses the others until it ends
};

static_assert(distlock::check_connection<link>());
static_assert(distlock::pipelining_connection<link> && distlock::confirming_connection<link> &&
              distlock::subscribing_connection<link> && distlock::service_hosting_connection<link>);

}  // namespace sim
