// Commands, pipelines and posts on their way to the master that Sentinels name.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <poll.h>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/base/time_source.hpp>
#include <distlock/detail/leaked_in_child.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/detail/system.hpp>
#include <distlock/detail/system_io.hpp>
#include <distlock/detail/thread_safety.hpp>
#include <distlock/hiredis/channel.hpp>
#include <distlock/hiredis/connection_pool.hpp>
#include <distlock/hiredis/handshake.hpp>
#include <distlock/hiredis/master_listeners.hpp>
#include <distlock/hiredis/node_pool.hpp>
#include <distlock/hiredis/secure.hpp>
#include <distlock/hiredis/sentinel_inquiry.hpp>
#include <distlock/hiredis/socket.hpp>
#include <distlock/hiredis/subscriber.hpp>
#include <distlock/hiredis/switch_watch.hpp>
#include <distlock/net/master_answer.hpp>
#include <distlock/net/master_listener.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/net/refresh_schedule.hpp>
#include <distlock/net/sentinel_election.hpp>
#include <distlock/net/sentinel_schedule.hpp>
#include <distlock/net/sentinel_uri.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/net/uri.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock::detail {

/// What sentinel_connection does, but for what lives as long as it. Thread-safe. Its mutex is never held while anybody waits for a
/// server.
template <class Lazy>
class master_pool final : public connection_pool, upkeep, channel_source {
  public:
    /// Effects and Throws: as sentinel_connection.
    master_pool(const sentinel_uri& where, std::shared_ptr<const secure_layer> secure)
        : like_(where.master),
          name_(where.master_name),
          shown_(redacted(where)),
          secure_(std::move(secure)),
          inquiry_(where, secure_),
          watch_(name_) {
        const bool encrypted = like_.scheme == uri_scheme::tls;
        if (encrypted && !secure_) throw_error(errc::tls_unavailable, {shown_});
        if (!encrypted && secure_)
            throw_error(errc::invalid_uri, {shown_, " with TLS; write rediss+sentinel://"});
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
        if (current_process() != process_) {
            std::fill(replies.begin(), replies.end(), reply::not_sent(errc::wrong_process, shown_));
            return;
        }
        const auto last =
            std::max_element(commands.begin(), commands.end(), [](const auto& a, const auto& b) {
                return a.deadline() < b.deadline();
            })->deadline();
        master there = find(last, nullptr);
        if (!there) {
            std::fill(replies.begin(), replies.end(), failure());
            return;
        }
        there->pool.pipeline(commands, replies);
        std::vector<std::size_t> sent;
        for (int hops = 0; hops < max_hops; ++hops) {
            sent = to_send_again(sent, commands, replies, there);
            if (sent.empty()) return;
            const master next = find(last, nullptr);
            if (!next || next == there) return;
            there = next;
            send_again(sent, commands, replies, *there);
        }
    }

    bool post(const command& cmd, std::shared_ptr<receipt> wanted) override {
        if (current_process() != process_) return false;
        const master there = present();
        if (!there) return false;
        if (there->pool.post(cmd, std::move(wanted))) return true;
        suspect(there);
        return false;
    }

    void collect() override {
        if (current_process() != process_) return;
        if (const master there = present()) there->pool.collect();
    }

    std::shared_ptr<subscription> subscribe(std::string_view name) override {
        if (current_process() != process_) throw_error(errc::wrong_process, {shown_});
        const annotated_lock guard(lock_);
        auto& one = subscriber_.get();
        if (!one)
            one = std::make_unique<subscriber>(static_cast<channel_source&>(*this), like_.connect_timeout,
                                               like_.command_timeout, static_cast<upkeep&>(*this));
        return one->subscribe(name);
    }

    void on_master_change(std::weak_ptr<master_listener> who) override { listeners_.add(std::move(who)); }

    void follow() override {
        if (current_process() != process_) return;
        look_for_signs();
        const auto until = clock::now() + like_.command_timeout;
        {
            const annotated_lock guard(lock_);
            if (!current_ || !begin_to_ask(until)) return;
        }
        ask(until, -1);
    }

    std::string_view identity() const noexcept override { return shown_; }
    std::chrono::milliseconds command_timeout() const noexcept override { return like_.command_timeout; }
    // The Sentinels are asked first.
    std::chrono::milliseconds connect_timeout() const noexcept override {
        return 2 * like_.connect_timeout + like_.command_timeout;
    }

  private:
    // Another one may have taken its place: its sockets are over then.
    struct master_node {
        master_node(believed_master who, uri where, std::shared_ptr<const secure_layer> secure)
            : is(std::move(who)),
              pool(std::move(where), std::move(secure), superseded.get_token(), handshake::role::master) {}
        believed_master is;  // whoever asks uses it
        std::stop_source superseded;
        node_pool pool;
    };
    using master = std::shared_ptr<master_node>;

    static constexpr int max_hops = 5;

    // `execute(node_pool&)`: the reply to `cmd` there.
    template <class Execute>
    reply on_the_master(const command& cmd, Execute execute) {
        if (current_process() != process_) return reply::not_sent(errc::wrong_process, shown_);
        master there = find(cmd.deadline(), cmd.stop());
        for (int hops = 0;; ++hops) {
            if (!there) return not_found(cmd);
            reply answer = execute(there->pool);
            if (!may_go_elsewhere(answer, there) || hops == max_hops || too_late(cmd)) return answer;
            const master next = find(cmd.deadline(), cmd.stop());
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
        if (said.suspect) suspect(from);
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

    static void send_again(const std::vector<std::size_t>& which, std::span<const command> commands,
                           std::span<reply> replies, master_node& to) {
        std::vector<command> some;
        for (const std::size_t i : which) some.push_back(commands[i]);
        std::vector<reply> answers(some.size());
        to.pool.pipeline(some, answers);
        for (std::size_t k = 0; k < which.size(); ++k) replies[which[k]] = std::move(answers[k]);
    }

    master present() {
        const annotated_lock guard(lock_);
        return current_;
    }

    // What happened on the sockets of an older master says nothing about the present one.
    void suspect(const master& which) noexcept {
        const annotated_lock guard(lock_);
        if (which == current_) schedule_.doubt();
    }

    // Effects: the master is suspect if it has ended a socket, or a Sentinel said +switch-master. During a fail-over that is asked for
    // the old master goes on for seconds as if it was one.
    void look_for_signs() {
        annotated_lock guard(lock_);
        if (!begin_look(clock::now())) return;
        const master there = current_;
        guard.unlock();
        look_at(there);
    }
    // Returns: when Sentinels that are asked now have answered at the latest.
    clock::time_point answered_by() const noexcept {
        return clock::now() + like_.connect_timeout + like_.command_timeout;
    }
    bool hurries(clock::time_point until) const noexcept { return until < answered_by(); }
    sentinel_schedule::caller who_has(clock::time_point until) const noexcept {
        return hurries(until) ? sentinel_schedule::caller::hurried : sentinel_schedule::caller::patient;
    }
    bool may_ask(clock::time_point until) const noexcept DISTLOCK_REQUIRES(lock_) {
        return schedule_.may_begin(clock::now(), who_has(until), current_ != nullptr);
    }
    bool begin_to_ask(clock::time_point until) noexcept DISTLOCK_REQUIRES(lock_) {
        return schedule_.begin(clock::now(), who_has(until), current_ != nullptr);
    }
    bool begin_look(clock::time_point now) noexcept DISTLOCK_REQUIRES(lock_) {
        return current_ && schedule_.begin_look(now);
    }
    void look_at(const master& there) {
        const bool told = watch_.heard();
        const bool ended = there->pool.lost_idle();
        const annotated_lock guard(lock_);
        // A Sentinel speaks of the master of now: `there` may have been replaced since, and that one, too.
        if (!told && !(ended && there == current_)) return;
        schedule_.see_sign();
    }

    /// Effects: asks the Sentinels if that is due, no longer than `until`, nor once `stop` was requested. Where another caller asks,
    /// waits as long for that one, and asks itself where that one had no time for it.
    /// Returns: the master, as far as is known.
    master find(clock::time_point until, const std::stop_token* stop) {
        {
            annotated_lock guard(lock_);
            const auto now = clock::now();
            // Of little time half is for the master that is known.
            if (current_ && hurries(until)) until = now + std::max(until - now, clock::duration::zero()) / 2;
            if (begin_look(now)) {
                const master there = current_;
                guard.unlock();
                look_at(there);
                guard.lock();
            }
            if (begin_to_ask(until)) {
                guard.unlock();
                return ask(until, stop);
            }
            if (!schedule_.running() && (current_ || !schedule_.cut_short())) return current_;
        }
        const auto wake = [this]() noexcept {
            const annotated_lock guard(lock_);
            found_.get().notify_all();
        };
        const std::stop_callback on_stop(stop != nullptr ? *stop : std::stop_token(), wake);
        annotated_lock guard(lock_);
        // They are called with the mutex.
        const auto stopped = [&] { return stop != nullptr && stop->stop_requested(); };
        const auto over = [&]() DISTLOCK_UNCHECKED { return !schedule_.running() || stopped(); };
        for (;;) {
            wait_until(found_.get(), guard.native(), until, over);
            if (current_ || !schedule_.cut_short() || stopped() || clock::now() >= until) return current_;
            if (begin_to_ask(until)) {
                guard.unlock();
                return ask(until, stop);
            }
            const auto begun = [&]() DISTLOCK_UNCHECKED { return schedule_.running() || stopped(); };
            wait_until(found_.get(), guard.native(), std::min(until, schedule_.next()), begun);
        }
    }

    // Preconditions: schedule_.begin() returned true.
    master ask(clock::time_point until, const std::stop_token* stop) {
        std::optional<wake_on_stop> wake;
        try {
            if (stop != nullptr) wake.emplace(*stop);
        } catch (const std::exception&) {
            // Then it takes its time.
        }
        return ask(until, wake ? wake->fd() : -1);
    }

    master ask(clock::time_point until, int stop_fd) {
        const auto longest = answered_by();
        const master old = present();
        master fresh;
        reply why = reply::not_sent(errc::unreachable, "no memory");  // short: it takes none
        bool learned = false;
        using ending = sentinel_schedule::ending;
        bool asked = false;
        bool again = false;
        try {
            const auto last = old ? std::optional(old->is) : std::nullopt;
            const auto heard = inquiry_.ask(last, std::min(until, longest), stop_fd);
            const auto said = heard.conclude();
            asked = !stopped(stop_fd) && (until >= longest || clock::now() < until);
            learned = said.what == sentinel_election::kind::believed;
            if (learned) {
                watch_.listen_on(inquiry_.learn(heard, said.master.at));
                const auto how = old ? compare(old->is, said.master) : succession::other;
                if (how == succession::other) {
                    fresh = node(said.master);
                } else {
                    old->is.epoch = std::max(old->is.epoch, said.master.epoch);
                }
                again = how == succession::again;
            } else {
                why = explain(said, shown_, name_);
            }
        } catch (const std::exception&) {
            learned = false;  // memory, threads or descriptors: perhaps there is some by and by
            fresh = nullptr;
        }
        {
            const annotated_lock guard(lock_);
            if (fresh) current_ = fresh;
            schedule_.end(learned ? ending::learned
                          : asked ? ending::in_vain
                                  : ending::cut_short,
                          clock::now(), some_jitter());
            why_ = std::move(why);
            found_.get().notify_all();
        }
        if (fresh && old) supersede(*old);
        if (again) tell();
        return fresh ? fresh : old;
    }

    static bool stopped(int stop_fd) noexcept {
        pollfd polled{stop_fd, POLLIN, 0};
        return stop_fd >= 0 && wait_for(&polled, 1, clock::duration::zero()) > 0;
    }

    master node(const believed_master& who) const {
        uri where = like_;
        where.host = who.at.host;
        where.port = who.at.port;
        return std::make_shared<master_node>(who, std::move(where), secure_);
    }

    // Effects: nothing is heard from the old master any more; then all that it granted is renewed where the new one is.
    void supersede(master_node& old) {
        old.superseded.request_stop();
        {
            const annotated_lock guard(lock_);
            if (subscriber_.get()) subscriber_.get()->restart();
        }
        tell();
    }

    // Effects: all that is held is renewed.
    void tell() {
        listeners_.tell([](master_listener& who) { who.master_changed(); });
    }

    reply failure() {
        const annotated_lock guard(lock_);
        return why_;
    }
    reply not_found(const command& cmd) {
        if (cmd.stop_requested()) return reply::not_sent(errc::cancelled, shown_ + ": stopped");
        return failure();
    }

    std::chrono::milliseconds keep_up_every() const noexcept override {
        return sentinel_schedule::look_every;
    }
    // By the thread that reads messages. It asks when it connects, and can be interrupted there.
    void keep_up() override {
        collect();
        look_for_signs();
        const annotated_lock guard(lock_);
        if (schedule_.unheeded() && may_ask(clock::now() + like_.connect_timeout))
            subscriber_.get()->reconnect();
    }
    // The thread that reads messages does not wait for another one that asks: it may be interrupted.
    std::unique_ptr<channel> connect(clock::time_point deadline, int stop_fd) override {
        master there;
        {
            annotated_lock guard(lock_);
            if (schedule_.running()) return nullptr;
            there = current_;
            if (begin_to_ask(deadline)) {
                guard.unlock();
                there = ask(deadline, stop_fd);
            }
        }
        if (!there) return nullptr;
        auto made = there->pool.connect(deadline, stop_fd);
        if (!made) suspect(there);
        return made;
    }

    // Processes that lose their master together need not ask together.
    static clock::duration some_jitter() noexcept {
        const auto most = clock::duration(refresh_schedule::longest_jitter).count();
        return clock::duration(clock::now().time_since_epoch().count() % most);
    }

    const uri like_;  // of every master, but for host and port
    const std::string name_;
    const std::string shown_;  // the URI, fit for messages
    const std::shared_ptr<const secure_layer> secure_;
    const process_id process_ = current_process();
    sentinel_inquiry<Lazy> inquiry_;  // whoever asks uses it
    switch_watch<Lazy> watch_;
    annotated_mutex lock_;
    sentinel_schedule schedule_ DISTLOCK_GUARDED_BY(lock_);
    master current_ DISTLOCK_GUARDED_BY(lock_);  // null: none was found yet
    reply why_ DISTLOCK_GUARDED_BY(lock_) = reply::not_sent(errc::unreachable,
                                                            shown_);  // none was found the last time
    master_listeners listeners_;
    leaked_in_child<std::condition_variable> found_;
    // None before the first subscribe().
    leaked_in_child<std::unique_ptr<subscriber>> subscriber_ DISTLOCK_GUARDED_BY(lock_);
};

}  // namespace distlock::detail
