// Commands, pipelines and posts on their way to the nodes of a Cluster.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/base/time_source.hpp>
#include <distlock/detail/concat.hpp>
#include <distlock/detail/leaked_in_child.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/detail/system.hpp>
#include <distlock/detail/thread_group.hpp>
#include <distlock/detail/thread_safety.hpp>
#include <distlock/hiredis/cluster_node.hpp>
#include <distlock/hiredis/cluster_nodes.hpp>
#include <distlock/hiredis/cluster_subscriber.hpp>
#include <distlock/hiredis/connection_pool.hpp>
#include <distlock/hiredis/node_pipeline.hpp>
#include <distlock/hiredis/secure.hpp>
#include <distlock/hiredis/subscriber.hpp>
#include <distlock/net/cluster_uri.hpp>
#include <distlock/net/command_route.hpp>
#include <distlock/net/hash_slot.hpp>
#include <distlock/net/master_listener.hpp>
#include <distlock/net/node_address.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/server_error.hpp>

namespace distlock::detail {

/// What cluster_connection does, but for what lives as long as it. Thread-safe.
template <class Lazy>
class cluster_pool final : public connection_pool {
  public:
    /// Effects and Throws: as cluster_connection.
    cluster_pool(const cluster_uri& where, std::shared_ptr<const secure_layer> secure)
        : shown_(checked(where, secure != nullptr)),
          scheme_(where.nodes.front().scheme),
          nodes_(where.nodes, std::move(secure)) {
        probes_.get() = std::make_shared<thread_group>();
    }
    cluster_pool(const cluster_pool&) = delete;
    cluster_pool& operator=(const cluster_pool&) = delete;
    ~cluster_pool() {
        if (process_.in_forked_child()) return;
        ends_.request_stop();
        probes_.get()->join();
    }

    reply execute(const command& cmd) override {
        return on_the_nodes(cmd, [&](node_pool& here, bool asking) { return here.execute(cmd, asking); });
    }

    acknowledged_reply execute_acknowledged(const command& write, const command& wait) override {
        reply replicated = reply::not_sent(errc::unreachable, shown_);
        reply answer = on_the_nodes(write, [&](node_pool& here, bool asking) {
            auto both = here.execute_acknowledged(write, wait, asking);
            replicated = std::move(both.replicated);
            return std::move(both.answer);
        });
        return {std::move(answer), std::move(replicated)};
    }

    /// Commands for other nodes than the first one's are sent by threads that end with the call: to connect
    /// takes as long as it takes, and a node that is dead must not keep the others from being sent theirs.
    /// The call waits for the slowest, once: what goes to a node that did not answer the last one is not sent
    /// until the node has answered a PING.
    void pipeline(std::span<const command> commands, std::span<reply> replies) override {
        if (commands.empty()) return;
        if (process_.in_forked_child()) {
            std::fill(replies.begin(), replies.end(), reply::not_sent(errc::wrong_process, shown_));
            return;
        }
        const auto last = last_deadline(commands);
        const bool in_vain = nodes_.refresh(when_running::go_on, last, nullptr);
        std::vector<journey> all(commands.size());  // those that are bound go with the ones before them
        for (std::size_t i = 0; i < all.size(); ++i) {
            all[i].to = nodes_.of(hash_slot(commands[i]));
            const bool late = commands[i].bound_to_previous() ? all[i - 1].at == journey::stage::over
                                                              : clock::now() >= commands[i].deadline();
            if (late) conclude(all[i], replies[i] = no_time_left());
        }
        for (;;) {
            auto pipelines = pack(all, commands);
            if (pipelines.empty()) return;
            send(pipelines);
            for (node_pipeline& one : pipelines) {
                note_silence(one);
                one.distribute(replies);
                for (const std::size_t i : one.which) {
                    if (!commands[i].bound_to_previous()) judge(all[i], replies[i]);
                }
            }
            reroute(all, commands, replies, last, in_vain);
        }
    }

    bool post(const command& cmd, std::shared_ptr<receipt> wanted) override {
        if (process_.in_forked_child()) return false;
        const node here = nodes_.of(hash_slot(cmd));
        if (here->pool.post(cmd, std::move(wanted))) return true;
        nodes_.suspect(*here);
        return false;
    }

    void collect() override {
        if (process_.in_forked_child()) return;
        for (const node& one : nodes_.used()) one->pool.collect();
    }

    std::shared_ptr<subscription> subscribe(std::string_view channel) override {
        if (process_.in_forked_child()) throw_error(errc::wrong_process, {shown_});
        const annotated_lock guard(lock_);
        auto& one = subscriber_.get();
        if (!one) {
            one = std::make_unique<cluster_subscriber<Lazy>>(nodes_, upkeep_);
            nodes_.on_change(one.get());
        }
        return one->subscribe(channel);
    }

    void on_master_change(std::weak_ptr<master_listener> who) override {
        nodes_.on_master_change(std::move(who));
    }

    void follow() override {
        if (process_.in_forked_child()) return;
        for (const node& one : nodes_.look_for_signs()) probe(one);
        nodes_.refresh(when_running::go_on, clock::now() + command_timeout(), nullptr);
    }

    std::string_view identity() const noexcept override { return shown_; }
    std::chrono::milliseconds command_timeout() const noexcept override { return nodes_.command_timeout(); }
    // The map is asked for first.
    std::chrono::milliseconds connect_timeout() const noexcept override {
        return 2 * nodes_.connect_timeout() + nodes_.command_timeout();
    }

  private:
    static std::string checked(const cluster_uri& where, bool secure) {
        check_uri(where);
        std::string shown = redacted(where);
        check_tls(where.nodes.front().scheme, secure, shown, "rediss+cluster://");
        return shown;
    }

    using node = std::shared_ptr<cluster_node>;
    using when_running = typename cluster_nodes<Lazy>::when_running;

    struct collector final : upkeep {
        explicit collector(cluster_pool& of) noexcept : pool(of) {}
        void keep_up() override { pool.collect(); }
        cluster_pool& pool;
    };

    // Of one command of a pipeline. A pipeline does not wait for a slot: the other commands would.
    struct journey {
        enum class stage { under_way, to_reroute, over };
        command_route route = {};
        node to = nullptr;
        stage at = stage::under_way;
        bool asking = false;
    };
    // To a command for a server that redirects nothing: others would grant the same lock.
    reply no_cluster(const node_address& at) {
        constexpr std::string_view none = " of no Cluster (cluster support disabled)";
        if (says_no_cluster(nodes_.refusal()))
            return reply::not_sent(errc::invalid_uri, concat({shown_, ": this server is", none, "; use ",
                                                              scheme_name(scheme_), "://"}));
        return reply::not_sent(errc::unreachable,
                               concat({shown_, ": at ", at.host, ":", at.port, " is a server", none}));
    }

    // To a command that, sent now, would be executed when nobody waits for it any more.
    reply no_time_left() const {
        return reply::not_sent(errc::unreachable, shown_ + ": the time-out is over");
    }

    // `execute(node_pool&, bool asking)`: the reply to `cmd` there.
    template <class Execute>
    reply on_the_nodes(const command& cmd, Execute execute) {
        if (process_.in_forked_child()) return reply::not_sent(errc::wrong_process, shown_);
        const auto slot = hash_slot(cmd);
        bool in_vain = nodes_.refresh(when_running::go_on, cmd.deadline(), cmd.stop());
        if (clock::now() >= cmd.deadline()) return no_time_left();
        node here = nodes_.of(slot);
        bool asking = false;
        for (command_route route;;) {
            reply answer = execute(here->pool, asking);
            const auto next = route.on_answer(answer, here->at, clock::now());
            note(next, answer, *here);
            asking = next.asking;
            const auto from = here;
            switch (next.what) {
                case command_route::kind::done:
                    return explained(std::move(answer), from->at);
                case command_route::kind::follow:
                    here = nodes_.at(*next.to);
                    in_vain = false;
                    break;
                case command_route::kind::wait:
                    pause_until(cmd.stop() != nullptr ? *cmd.stop() : std::stop_token(),
                                std::min(next.at, cmd.deadline()));
                    in_vain = false;
                    here = owner(slot, cmd, in_vain);
                    break;
                case command_route::kind::reroute:
                    here = owner(slot, cmd, in_vain);
                    if (here == from) return explained(std::move(answer), from->at);
                    break;
            }
            if (cmd.stop_requested()) return reply::not_sent(errc::cancelled, "stopped");
            if (clock::now() >= cmd.deadline()) return explained(std::move(answer), from->at);
        }
    }

    void note(const command_route::step& next, const reply& answer, cluster_node& from) {
        if (answer.answered()) from.answered();
        if (next.moved) {
            nodes_.assign(*next.moved, *next.to);
            nodes_.invalidate();
        } else if (next.invalidates) {
            nodes_.suspect(from);
        }
    }

    // Returns: the node that has the slot by the newest map. `in_vain`: the call has asked for it before, and
    // nobody gave it: to ask again would take as long once more.
    node owner(std::optional<std::uint16_t> slot, const command& cmd, bool in_vain) {
        if (!in_vain) nodes_.refresh(when_running::wait, cmd.deadline(), cmd.stop());
        return nodes_.of(slot);
    }

    static std::vector<node_pipeline> pack(const std::vector<journey>& all,
                                           std::span<const command> commands) {
        std::vector<node_pipeline> pipelines;
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (all[i].at == journey::stage::over || commands[i].bound_to_previous()) continue;
            auto mine = std::find_if(pipelines.begin(), pipelines.end(), [&](const node_pipeline& one) {
                return one.to == all[i].to && one.asking == all[i].asking;
            });
            if (mine == pipelines.end()) mine = pipelines.insert(mine, {all[i].to, all[i].asking, {}});
            mine->add(i, commands[i]);
            if (i + 1 < all.size() && commands[i + 1].bound_to_previous()) mine->add(i + 1, commands[i + 1]);
        }
        for (node_pipeline& one : pipelines) one.replies.resize(one.commands.size());
        return pipelines;
    }

    void send(std::vector<node_pipeline>& pipelines) {
        const auto now = clock::now();
        for (node_pipeline& one : pipelines) {
            if (now < one.to->passed_over_until.load()) {
                one.mark_unsent(reply::not_sent(
                    errc::unreachable,
                    one.to->at.host + ":" + std::to_string(one.to->at.port) + " did not answer"));
                probe(one.to);
            }
        }
        std::vector<std::jthread> others;
        others.reserve(pipelines.size());
        std::vector<node_pipeline*> mine{&pipelines.front()};
        mine.reserve(pipelines.size());
        for (std::size_t i = 1; i < pipelines.size(); ++i) {
            if (!pipelines[i].sent) continue;
            try {
                const blocked_signals here;
                others.emplace_back([&pipelines, i] { pipelines[i].deliver(); });
            } catch (const std::system_error&) {
                mine.push_back(&pipelines[i]);  // one after the other, then
            }
        }
        for (node_pipeline* const one : mine) one->deliver();
    }

    // Effects: the next pipelines do not wait for a node that did not answer this one; a full one said so.
    static void note_silence(const node_pipeline& one) noexcept {
        const reply& last = one.replies.back();
        if (one.sent && !last.answered() && last.cause() != errc::unavailable) one.to->pass_over();
    }

    // Effects: a thread of its own asks the node whether it answers. Where it does not, pipelines that pass
    // it over go on; where there is no thread to be had, the next one waits for it.
    void probe(const node& silent) {
        if (silent->probed.exchange(true)) return;
        if (!silent->unheard()) {  // it has answered another thread's question meanwhile
            silent->probed = false;
            return;
        }
        try {
            const auto longest = nodes_.connect_timeout() + nodes_.command_timeout();
            probes_.get()->start([silent, longest, stop = ends_.get_token()]() noexcept {
                ask_whether_it_lives(*silent, clock::now() + longest, stop);
                silent->probed = false;
            });
        } catch (const std::exception&) {
            silent->probed = false;
            silent->passed_over_until = clock::time_point{};
        }
    }
    static void ask_whether_it_lives(cluster_node& which, clock::time_point until,
                                     const std::stop_token& stop) noexcept {
        try {
            command ping{argument("PING")};
            ping.until(until).until(stop);
            if (which.pool.execute(ping).answered()) return which.answered();
        } catch (const std::exception&) {
            // It is asked again.
        }
        which.silent_as_before();
    }

    // Effects: where that one goes next, by what its node answered.
    void judge(journey& one, reply& answer) {
        const auto next = one.route.on_answer(answer, one.to->at, clock::now());
        note(next, answer, *one.to);
        one.asking = next.asking;
        switch (next.what) {
            case command_route::kind::follow:
                one.to = nodes_.at(*next.to);
                break;
            case command_route::kind::reroute:
                one.at = journey::stage::to_reroute;
                break;
            case command_route::kind::done:
            case command_route::kind::wait:
                conclude(one, answer);
                break;
        }
    }

    // Effects: those go to the node that the newest map names. A command that is too late, or would go to
    // the same node, is over. `in_vain`: as for owner().
    void reroute(std::vector<journey>& all, std::span<const command> commands, std::span<reply> replies,
                 clock::time_point last, bool in_vain) {
        const bool some = std::any_of(
            all.begin(), all.end(), [](const journey& one) { return one.at == journey::stage::to_reroute; });
        if (some && !in_vain) nodes_.refresh(when_running::wait, last, nullptr);
        const auto now = clock::now();
        for (std::size_t i = 0; i < all.size(); ++i) {
            journey& one = all[i];
            if (one.at == journey::stage::over || commands[i].bound_to_previous()) continue;
            bool elsewhere = true;
            if (std::exchange(one.at, journey::stage::under_way) == journey::stage::to_reroute)
                elsewhere = one.to != std::exchange(one.to, nodes_.of(hash_slot(commands[i])));
            if (!elsewhere || now >= commands[i].deadline()) conclude(one, replies[i]);
        }
    }

    void conclude(journey& one, reply& answer) {
        answer = explained(std::move(answer), one.to->at);
        one.at = journey::stage::over;
    }

    // Returns: the answer for the caller; where the command found no way, and the nodes refuse
    // the map, it says so.
    reply explained(reply from_node, const node_address& at) {
        reply answer = concluded(std::move(from_node), at);
        if (answer.is(reply_kind::error)) answer.said_at(at.host, at.port);
        if (!answer.is(reply_kind::not_sent) || answer.cause() == errc::cancelled) return answer;
        if (says_no_cluster(answer.said())) return no_cluster(at);
        const std::string refusal = nodes_.refusal();
        if (refusal.empty()) return answer;
        return reply::not_sent(answer.cause(),
                               std::string(answer.text())
                                   .append("; CLUSTER SLOTS, which says where else, is refused: ")
                                   .append(refusal));
    }

    const std::string shown_;  // fit for messages
    const uri_scheme scheme_;
    const own_process process_;
    cluster_nodes<Lazy> nodes_;
    collector upkeep_{*this};
    std::stop_source ends_;
    leaked_in_child<std::shared_ptr<thread_group>> probes_;
    annotated_mutex lock_;
    // None before the first subscribe().
    leaked_in_child<std::unique_ptr<cluster_subscriber<Lazy>>> subscriber_ DISTLOCK_GUARDED_BY(lock_);
};

}  // namespace distlock::detail
