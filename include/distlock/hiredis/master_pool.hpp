// Commands, pipelines and posts on their way to the master that Sentinels name.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/detail/leaked_in_child.hpp>
#include <distlock/detail/system.hpp>
#include <distlock/detail/thread_safety.hpp>
#include <distlock/hiredis/connection_pool.hpp>
#include <distlock/hiredis/master_search.hpp>
#include <distlock/hiredis/node_pool.hpp>
#include <distlock/hiredis/secure.hpp>
#include <distlock/hiredis/stream.hpp>
#include <distlock/hiredis/subscriber.hpp>
#include <distlock/net/master_answer.hpp>
#include <distlock/net/master_listener.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/net/sentinel_schedule.hpp>
#include <distlock/net/sentinel_uri.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/net/uri.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock::detail {

/// What sentinel_connection does, but for what lives as long as it. Thread-safe. Its mutex is never held
/// while anybody waits for a server.
template <class Lazy>
class master_pool final : public connection_pool, upkeep, stream_source {
  public:
    /// Effects and Throws: as sentinel_connection.
    master_pool(const sentinel_uri& where, std::shared_ptr<const secure_layer> secure)
        : shown_(redacted(where)),
          connect_timeout_(where.master.connect_timeout),
          command_timeout_(where.master.command_timeout),
          search_(where, secure) {
        check_tls(where.master.scheme, secure != nullptr, shown_, "rediss+sentinel://");
    }
    master_pool(const master_pool&) = delete;
    master_pool& operator=(const master_pool&) = delete;

    reply execute(const command& cmd) override {
        return on_the_master(cmd, [&](node_pool& there) { return there.execute(cmd); });
    }

    acknowledged_reply execute_acknowledged(const command& write, const command& wait) override {
        reply replicated = reply::not_sent(errc::unreachable, shown_);
        reply answer = on_the_master(write, [&](node_pool& there) {
            auto both = there.execute_acknowledged(write, wait);
            replicated = std::move(both.replicated);
            return std::move(both.answer);
        });
        return {std::move(answer), std::move(replicated)};
    }

    void pipeline(std::span<const command> commands, std::span<reply> replies) override {
        if (commands.empty()) return;
        if (process_.in_forked_child()) {
            std::fill(replies.begin(), replies.end(), reply::not_sent(errc::wrong_process, shown_));
            return;
        }
        const auto last = last_deadline(commands);
        master there = search_.find(last, nullptr);
        if (!there) {
            std::fill(replies.begin(), replies.end(), search_.failure());
            return;
        }
        ask(*there, commands, replies);
        std::vector<std::size_t> sent;
        for (int hops = 0; hops < max_hops; ++hops) {
            sent = to_send_again(sent, commands, replies, there);
            if (sent.empty()) return;
            const master next = search_.find(last, nullptr);
            if (!next || next == there) return;
            there = next;
            send_again(sent, commands, replies, *there);
        }
    }

    bool post(const command& cmd, std::shared_ptr<receipt> wanted) override {
        if (process_.in_forked_child()) return false;
        const master there = search_.present();
        if (!there) return false;
        if (there->pool.post(cmd, std::move(wanted))) return true;
        search_.suspect(there);
        return false;
    }

    void collect() override {
        if (process_.in_forked_child()) return;
        if (const master there = search_.present()) there->pool.collect();
    }

    std::shared_ptr<subscription> subscribe(std::string_view name) override {
        if (process_.in_forked_child()) throw_error(errc::wrong_process, {shown_});
        const annotated_lock guard(lock_);
        auto& one = subscriber_.get();
        if (!one) {
            one = std::make_unique<subscriber>(static_cast<stream_source&>(*this), connect_timeout_,
                                               command_timeout_, static_cast<upkeep&>(*this));
            search_.on_replacement(one.get());
        }
        return one->subscribe(name);
    }

    void on_master_change(std::weak_ptr<master_listener> who) override {
        search_.on_master_change(std::move(who));
    }

    void follow() override {
        if (!process_.in_forked_child()) search_.follow(clock::now() + command_timeout_);
    }

    std::string_view identity() const noexcept override { return shown_; }
    std::chrono::milliseconds command_timeout() const noexcept override { return command_timeout_; }
    // The Sentinels are asked first.
    std::chrono::milliseconds connect_timeout() const noexcept override {
        return 2 * connect_timeout_ + command_timeout_;
    }

  private:
    using master = std::shared_ptr<master_node>;

    static constexpr int max_hops = 5;

    // `execute(node_pool&)`: the reply to `cmd` there.
    template <class Execute>
    reply on_the_master(const command& cmd, Execute execute) {
        if (process_.in_forked_child()) return reply::not_sent(errc::wrong_process, shown_);
        master there = search_.find(cmd.deadline(), cmd.stop());
        for (int hops = 0;; ++hops) {
            if (!there) return not_found(cmd);
            reply answer = execute(there->pool);
            if (answer.is(reply_kind::error)) answer.said_at(there->is.at.host, there->is.at.port);
            if (!may_go_elsewhere(answer, there) || hops == max_hops || too_late(cmd)) return answer;
            const master next = search_.find(cmd.deadline(), cmd.stop());
            if (next == there) return answer;
            there = next;
        }
    }

    static bool too_late(const command& cmd) {
        return cmd.stop_requested() || clock::now() >= cmd.deadline();
    }

    // Returns: whether another master may be sent the command.
    bool may_go_elsewhere(const reply& answer, const master& from) {
        const auto said = judge_master(answer);
        if (said.suspect) search_.suspect(from);
        return said.suspect && !said.executed;
    }

    // `sent`: what `from` answered; empty: all.
    std::vector<std::size_t> to_send_again(const std::vector<std::size_t>& sent,
                                           std::span<const command> commands, std::span<const reply> replies,
                                           const master& from) {
        std::vector<std::size_t> again;
        const auto now = clock::now();
        const std::size_t count = sent.empty() ? replies.size() : sent.size();
        for (std::size_t k = 0; k < count; ++k) {
            const std::size_t i = sent.empty() ? k : sent[k];
            const bool elsewhere = may_go_elsewhere(replies[i], from);
            const bool goes = commands[i].bound_to_previous() ? !again.empty() && again.back() + 1 == i
                                                              : elsewhere && now < commands[i].deadline();
            if (goes) again.push_back(i);
        }
        return again;
    }

    static void ask(master_node& there, std::span<const command> commands, std::span<reply> replies) {
        there.pool.pipeline(commands, replies);
        for (reply& one : replies) {
            if (one.is(reply_kind::error)) one.said_at(there.is.at.host, there.is.at.port);
        }
    }

    static void send_again(const std::vector<std::size_t>& which, std::span<const command> commands,
                           std::span<reply> replies, master_node& to) {
        std::vector<command> some;
        for (const std::size_t i : which) some.push_back(commands[i]);
        std::vector<reply> answers(some.size());
        ask(to, some, answers);
        for (std::size_t k = 0; k < which.size(); ++k) replies[which[k]] = std::move(answers[k]);
    }

    reply not_found(const command& cmd) {
        if (cmd.stop_requested()) return reply::not_sent(errc::cancelled, shown_ + ": stopped");
        return search_.failure();
    }

    std::chrono::milliseconds keep_up_every() const noexcept override {
        return sentinel_schedule::look_every;
    }
    // By the thread that reads messages. It asks when it connects, and can be interrupted there.
    void keep_up() override {
        collect();
        search_.look_for_signs();
        if (!search_.unheeded()) return;
        const annotated_lock guard(lock_);
        subscriber_.get()->reconnect();
    }
    std::unique_ptr<stream> connect(clock::time_point deadline, int stop_fd) override {
        const master there = search_.find_alone(deadline, stop_fd);
        if (!there) return nullptr;
        auto made = there->pool.connect(deadline, stop_fd);
        if (!made) search_.suspect(there);
        return made;
    }

    const std::string shown_;  // the URI, fit for messages
    const std::chrono::milliseconds connect_timeout_;
    const std::chrono::milliseconds command_timeout_;
    const own_process process_;
    master_search<Lazy> search_;
    annotated_mutex lock_;
    // None before the first subscribe().
    leaked_in_child<std::unique_ptr<subscriber>> subscriber_ DISTLOCK_GUARDED_BY(lock_);
};

}  // namespace distlock::detail
