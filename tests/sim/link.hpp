// A connection of the simulated world: what hiredis_connection is on sockets, on the network of this folder. It keeps the
// promises of net/connection.hpp, and is meant to do what hiredis/connection.hpp and hiredis/channel.hpp do in every case.
//
//   class link;    // execute, pipeline, wait, post, collect, host, command_timeout, identity
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
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
#include <distlock/net/companion.hpp>
#include <distlock/net/connection.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/wire/blocking_time.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

#include "sim/server.hpp"

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
        const std::size_t given_up = engaged_ ? 1 : 0;
        peer_.close(end_, (broken_ || engaged_) && posted_.size() <= given_up);
        while (!posted_.empty()) settle(lost("the connection broke"));
    }

    struct stop_flag {
        bool raised = false;
    };

    reply run(const command& cmd, clock::time_point deadline) {
        if (!send({&cmd, 1})) return unsent();
        return next_answer(deadline, nullptr);
    }
    void run_all(std::span<const command> commands, std::span<reply> replies, clock::time_point deadline,
                 std::size_t& answered, reply& failure) {
        failure = reply::nil();
        if (!send(commands)) {
            failure = unsent();
            return;
        }
        for (; answered < replies.size(); ++answered) {
            reply next = next_answer(deadline, nullptr);
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

    enum class word { heard, refused, unknown };

    /// As detail::channel::wait.
    template <class Unblock, class Blocked>
    reply wait(const command& cmd, clock::time_point deadline, const stop_flag& stop, Unblock unblock,
               Blocked blocked) {
        if (!send({&cmd, 1})) return unsent();
        for (bool known = true;;) {
            const auto until = clock::now() + (known ? clock::duration(3s) : clock::duration(50ms));
            if (until >= deadline) break;
            reply answer = next_answer(until, &stop);
            if (!answer.answered() && how_ == ending::stopped) break;
            if (answer.answered() || how_ != ending::timed_out || !known) return answer;
            known = blocked(std::min<clock::time_point>(deadline, clock::now() + 50ms));
        }
        reply first = next_answer(deadline, &stop);
        const auto give_up_at = clock::now() + 50ms;
        while (!first.answered() && (how_ == ending::timed_out || how_ == ending::stopped)) {
            const word ended = unblock(give_up_at);
            const auto until = ended == word::heard
                                   ? std::min<clock::time_point>(give_up_at, clock::now() + 10ms)
                                   : clock::time_point{};
            reply late = next_answer(until, nullptr);
            may_hear_ = !late.answered() && how_ == ending::timed_out && ended != word::refused;
            if (late.is(distlock::reply_kind::nil)) return first;
            if (late.answered()) return late;
            if (ended != word::heard || clock::now() >= give_up_at) break;
        }
        return first;
    }
    bool may_hear() const { return may_hear_; }
    void hear_later(std::shared_ptr<distlock::receipt> wanted) {
        posted_.push_back(std::move(wanted));
        engaged_ = true;
        broken_ = false;
    }
    bool engaged() const { return engaged_; }
    bool waits_for_answers() const { return !broken_ && !posted_.empty(); }
    /// Effects: whoever reads looks whether it is to stop.
    void nudge() {
        if (end_->reader != nullptr) scheduler_.wake(*end_->reader);
    }

    enum class state { ready, owing, over };
    state look() {
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
        if (!posted_.empty() && look() == state::over) broken_ = true;
    }
    bool broken() const { return broken_; }

    std::optional<std::int64_t> id;

  private:
    static constexpr std::size_t most_unanswered = 256;
    enum class ending { done, closed, timed_out, stopped };

    static reply lost(const char* why, errc cause = errc::no_reply) { return reply::no_answer(cause, why); }
    static reply unsent() { return reply::not_sent(errc::unreachable, "the connection broke"); }

    // Returns: false when the end of the connection has come already, and nothing can be sent.
    bool send(std::span<const command> commands) {
        broken_ = true;  // until the exchange is complete
        may_hear_ = false;
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

    reply next_answer(clock::time_point deadline, const stop_flag* stop) {
        fiber& me = *scheduler_.running();
        for (;;) {
            while (!end_->inbox.empty()) {
                reply next = take();
                if (posted_.empty()) {
                    broken_ = false;
                    how_ = ending::done;
                    return next;
                }
                settle(std::move(next));
            }
            if (end_->ended) {
                how_ = ending::closed;
                return lost("the server closed the connection");
            }
            if (stop != nullptr && stop->raised) {
                how_ = ending::stopped;
                return lost("stopped", errc::cancelled);
            }
            const auto now = me.home().local(scheduler_.where().now());
            if (now >= deadline.time_since_epoch()) {
                how_ = ending::timed_out;
                return lost("no reply in time");
            }
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
    ending how_ = ending::done;
    bool broken_ = false;
    bool may_hear_ = false;
    bool engaged_ = false;
};

/// Of one virtual process. In a dead one every call fails at once.
class link {
    using clock = distlock::clock;
    using command = distlock::command;
    using errc = distlock::errc;
    using reply = distlock::reply;

  public:
    link(server& peer, scheduler& s, process& owner, std::chrono::milliseconds timeout)
        : peer_(peer), scheduler_(s), owner_(owner), timeout_(timeout) {}
    link(const link&) = delete;
    link& operator=(const link&) = delete;

    reply execute(const command& cmd) {
        return on_a_line(cmd.deadline(),
                         [&](line_to_server& l) { return l.run(cmd, answer_by(cmd.deadline())); });
    }

    void pipeline(std::span<const command> commands, std::span<reply> replies) {
        if (commands.empty()) return;
        auto last = commands.front().deadline();
        for (const command& one : commands) last = std::max(last, one.deadline());
        std::size_t answered = 0;
        reply failure;
        reply outcome = on_a_line(last, [&](line_to_server& l) {
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
        on_a_line(cmd.deadline(), [&](line_to_server& l) {
            posted = l.post(cmd, std::move(wanted));
            return reply::nil();
        });
        return posted;
    }

    void collect() {
        const std::lock_guard guard(idle_lock_);
        for (auto& one : idle_) one->collect();
        std::erase_if(idle_, [](const auto& one) { return one->broken(); });
        for (auto& one : engaged_) one.on->collect();
        forget_engaged();
    }

    reply wait(const command& cmd, clock::time_point deadline, std::stop_token stop) {
        std::shared_ptr<distlock::receipt> late;
        return wait(cmd, deadline, std::move(stop), late);
    }
    reply wait(const command& cmd, clock::time_point deadline, std::stop_token stop,
               std::shared_ptr<distlock::receipt>& late) {
        if (stop.stop_requested()) return reply::not_sent(errc::cancelled, "stopped");
        line_to_server::stop_flag flag;
        line_to_server* reading = nullptr;
        const auto raise = [&] {
            flag.raised = true;
            if (reading != nullptr) reading->nudge();
        };
        const std::stop_callback<decltype(raise)> on_stop(stop, raise);
        reply answer = on_a_line(deadline, [&](line_to_server& l) {
            if (auto failure = introduce(l, deadline)) return *std::move(failure);
            if (*l.id == 0) return wait_in_turns(l, cmd, deadline, stop);
            reading = &l;
            reply got = l.wait(
                cmd, deadline, flag, [&](clock::time_point by) { return unblock(*l.id, by); },
                [&](clock::time_point by) { return blocked(*l.id, by); });
            reading = nullptr;
            if (l.may_hear()) l.hear_later(late = std::make_shared<distlock::receipt>());
            return got;
        });
        if (!answer.is(distlock::reply_kind::not_sent) || !stop.stop_requested()) return answer;
        return reply::not_sent(errc::cancelled, answer.text());
    }

    distlock::companion& host() noexcept { return companion_; }
    std::chrono::milliseconds command_timeout() const noexcept { return timeout_; }
    std::string_view identity() const noexcept { return "sim://server"; }

    static constexpr std::chrono::milliseconds connect_timeout{500};

  private:
    clock::time_point answer_by(clock::time_point deadline) const {
        return std::min<clock::time_point>(deadline, clock::now() + timeout_);
    }

    std::optional<reply> introduce(line_to_server& l, clock::time_point deadline) {
        if (l.id) return std::nullopt;
        const std::array<command, 2> questions{command{"CLIENT", "ID"}, command{"CLIENT", "UNBLOCK", "0"}};
        std::array<reply, 2> answers;
        std::size_t answered = 0;
        reply failure;
        l.run_all(questions, answers, answer_by(deadline), answered, failure);
        if (!failure.answered()) return reply::not_sent(failure.cause(), failure.text());
        const auto integer = distlock::reply_kind::integer;
        l.id = answers[0].is(integer) && answers[1].is(integer) ? answers[0].number() : 0;
        return std::nullopt;
    }
    line_to_server::word unblock(std::int64_t id, clock::time_point by) {
        using word = line_to_server::word;
        const std::string who = std::to_string(id);
        const reply answer = execute(command{"CLIENT", "UNBLOCK", who}.until(by));
        if (answer.is(distlock::reply_kind::integer)) return word::heard;
        return answer.is(distlock::reply_kind::no_answer) ? word::unknown : word::refused;
    }
    bool blocked(std::int64_t id, clock::time_point by) {
        const std::string who = std::to_string(id);
        const reply answer = execute(command{"CLIENT", "LIST", "ID", who}.until(by));
        if (!answer.is(distlock::reply_kind::string)) return true;
        return answer.text().find("flags=b") != std::string::npos;
    }
    reply wait_in_turns(line_to_server& l, const command& cmd, clock::time_point deadline,
                        const std::stop_token& stop) {
        for (;;) {
            const auto now = clock::now();
            const auto turn = std::clamp<clock::duration>(deadline - now, 1ms, 100ms);
            const distlock::blocking_time seconds(turn);
            reply answer = l.run(cmd.with_last(seconds.view()), now + turn + timeout_);
            if (!answer.is(distlock::reply_kind::nil)) return answer;
            if (stop.stop_requested()) return reply::no_answer(errc::cancelled, "stopped");
            if (clock::now() >= deadline) return reply::no_answer(errc::no_reply, "no reply in time");
        }
    }

    std::unique_ptr<line_to_server> open(clock::time_point by) {
        const auto there_and_back = peer_.chances().latency(scheduler_.where().random()) +
                                    peer_.chances().latency(scheduler_.where().random());
        scheduler_.sleep(there_and_back);
        if (clock::now() >= by || owner_.dead) return nullptr;
        auto end = peer_.open(owner_);
        return end ? std::make_unique<line_to_server>(peer_, scheduler_, std::move(end)) : nullptr;
    }

    template <class Use>
    reply on_a_line(clock::time_point deadline, Use use) {
        for (;;) {
            if (owner_.dead) {
                scheduler_.sleep(10us);
                return reply::not_sent(errc::unreachable, "the process is no more");
            }
            auto mine = take_idle();
            const bool kept = mine != nullptr;
            if (!kept) mine = open(std::min<clock::time_point>(deadline, clock::now() + connect_timeout));
            if (!mine) return reply::not_sent(errc::unreachable, "connection refused");
            reply answer = use(*mine);
            if (kept && mine->broken() && answer.is(distlock::reply_kind::not_sent)) continue;
            if (!mine->broken()) keep(std::move(mine));
            return answer;
        }
    }
    std::unique_ptr<line_to_server> take_idle() {
        std::vector<std::unique_ptr<line_to_server>> owing;
        auto found = last_idle();
        for (; found; found = last_idle()) {
            const auto state = found->look();
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
        if (mine->engaged()) {
            forget_engaged();
            if (engaged_.size() < most_idle) engaged_.push_back({std::move(mine), clock::now() + 2s});
            return;
        }
        if (idle_.size() < most_idle) idle_.push_back(std::move(mine));
    }

    void forget_engaged() {
        std::erase_if(engaged_, [now = clock::now()](const auto& one) {
            return !one.on->waits_for_answers() || now >= one.until;
        });
    }

    struct engagement {
        std::unique_ptr<line_to_server> on;
        clock::time_point until;
    };

    server& peer_;
    scheduler& scheduler_;
    process& owner_;
    const std::chrono::milliseconds timeout_;
    std::mutex idle_lock_;
    std::vector<std::unique_ptr<line_to_server>> idle_;
    std::vector<engagement> engaged_;
    distlock::companion companion_;  // last: what lives there uses the others until it ends
};

static_assert(distlock::check_connection<link>());
static_assert(distlock::pipelining_connection<link> && distlock::attentive_connection<link> &&
              distlock::hosting_connection<link>);

}  // namespace sim
