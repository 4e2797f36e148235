// The sockets of a Cluster's connection on which its messages come, read by the threads that wait for them.
//
//   class cluster_subscriber : public message_reader {
//     cluster_subscriber(cluster_nodes&, upkeep&);
//     std::shared_ptr<subscription> subscribe(std::string_view channel);
//   };
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <poll.h>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/time_source.hpp>
#include <distlock/detail/system_io.hpp>
#include <distlock/detail/thread_safety.hpp>
#include <distlock/hiredis/channel_interest.hpp>
#include <distlock/hiredis/cluster_nodes.hpp>
#include <distlock/hiredis/socket.hpp>
#include <distlock/hiredis/socket_opener.hpp>
#include <distlock/hiredis/stream.hpp>
#include <distlock/hiredis/subscriber.hpp>
#include <distlock/net/connect_schedule.hpp>
#include <distlock/net/hash_slot.hpp>
#include <distlock/net/redirection.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/server_error.hpp>

namespace distlock::detail {

/// A socket for each node on whose slots somebody listens. A channel belongs to the slot of its name, and is
/// asked for by SSUBSCRIBE on the node that has the slot; again where the server ends it (sunsubscribe),
/// redirects it (MOVED), or the map says that the slot has moved; and later if it is refused.
/// Silent sockets are asked whether they live, and those that fail are replaced, as by subscriber.
template <class Lazy>
class cluster_subscriber final : public message_reader {
  public:
    /// Both must outlive every read().
    cluster_subscriber(cluster_nodes<Lazy>& nodes, upkeep& connection)
        : nodes_(nodes), connection_(connection), hub_(std::make_shared<message_hub>(this)) {}
    cluster_subscriber(const cluster_subscriber&) = delete;
    cluster_subscriber& operator=(const cluster_subscriber&) = delete;

    /// As take_interest().
    std::shared_ptr<subscription> subscribe(std::string_view channel) {
        const annotated_lock guard(lock_);
        auto [whose, is_new] = take_interest(interests_, channel, hub_);
        if (is_new) {
            interests_.back().slot = hash_slot(channel);
            interrupt();
        }
        return std::move(whose);
    }

    void read(clock::time_point until) noexcept override {
        try {
            const auto now = clock::now();
            auto by = std::min(until, now + slice);
            arrange(now, by);
            converse(now, by);
            if (const auto then = clock::now(); then >= upkeep_at_) {
                upkeep_at_ = then + slice;
                connection_.keep_up();
            }
        } catch (...) {
            for (const auto& one : streams_) lose(*one, clock::now());  // there may be memory later
        }
    }
    void interrupt() noexcept override {
        to_arrange_ = true;
        wake_.set();
    }
    void reconnect() noexcept override {
        to_renew_ = true;
        interrupt();
    }

  private:
    struct request {
        bool begins;
        std::string channel;  // empty: a PING
    };
    enum class trust { whole, none, none_but_asked_again };
    // One node's socket. Only the thread that reads uses it.
    struct node_stream {
        explicit node_stream(std::shared_ptr<cluster_node> to) : node(std::move(to)) {}
        const std::shared_ptr<cluster_node> node;
        std::unique_ptr<socket_opener<Lazy>> opener;
        std::unique_ptr<stream> current;
        std::unique_ptr<stream> previous;  // until the current one has answered everything
        std::deque<request> asked;         // and not answered
        trust in_current = trust::whole;
        clock::time_point last{};  // when something was received, or sent after all was answered
        connect_schedule attempts;
    };
    using stage = channel_interest::stage;
    struct interest : channel_interest {
        std::uint16_t slot = 0;
        node_stream* on = nullptr;
        clock::duration pause{};  // after it was redirected, or ended by the server
    };
    struct saying {
        node_stream* to;
        request what;
    };

    // Effects: opens and closes sockets, and sends requests. `by`: when to call it again, if that is sooner.
    void arrange(clock::time_point now, clock::time_point& by) {
        for (const auto& one : streams_) {
            if (!one->opener || !one->opener->over()) continue;
            adopt(*one, std::exchange(one->opener, nullptr)->take(), now);
        }
        if (to_renew_.exchange(false)) {
            for (const auto& one : streams_) one->in_current = one->current ? trust::none : trust::whole;
        }
        if (to_arrange_.exchange(false) || now >= next_sweep_) {
            next_sweep_ = now + slice;
            for (saying& one : place(now)) send(*one.to, std::move(one.what), now);
        }
        by = std::min(by, next_sweep_);
        for (const auto& one : streams_) {
            if (one->opener || (one->current && one->in_current == trust::whole)) continue;
            if (one->attempts.due(now)) open(*one, now);
            by = std::min(by, one->attempts.next());
        }
    }

    // Effects: each channel belongs to the stream of its slot's node. Streams that have none end.
    // Returns: the requests that are to be sent.
    std::vector<saying> place(clock::time_point now) {
        std::vector<saying> all;
        const annotated_lock guard(lock_);
        std::erase_if(interests_, [&](interest& one) {
            if (!one.whose.expired()) return false;
            if (one.at != stage::unsent) all.push_back({one.on, {false, std::move(one.channel)}});
            return true;
        });
        for (interest& one : interests_) {
            node_stream& home = stream_to(nodes_.of(one.slot));
            if (one.on != &home) {
                if (one.at != stage::unsent) all.push_back({one.on, {false, one.channel}});
                unsay(one);
                one.on = &home;
            }
            if (one.at == stage::sent || one.at == stage::in_force || !home.current) continue;
            if (now < one.next_time) {
                next_sweep_ = std::min(next_sweep_, one.next_time);
                continue;
            }
            all.push_back({&home, {true, one.channel}});
            one.at = stage::sent;
        }
        std::erase_if(streams_, [&](const std::unique_ptr<node_stream>& one) DISTLOCK_REQUIRES(lock_) {
            const auto uses = [&](const interest& i) { return i.on == one.get(); };
            const auto says = [&](const saying& s) { return s.to == one.get(); };
            return !one->opener && std::none_of(interests_.begin(), interests_.end(), uses) &&
                   std::none_of(all.begin(), all.end(), says);
        });
        return all;
    }

    node_stream& stream_to(const std::shared_ptr<cluster_node>& node) {
        const auto found = std::find_if(streams_.begin(), streams_.end(),
                                        [&](const auto& one) { return one->node == node; });
        if (found != streams_.end()) return **found;
        return *streams_.emplace_back(std::make_unique<node_stream>(node));
    }

    void open(node_stream& mine, clock::time_point now) {
        mine.attempts.begin(now);
        try {
            mine.opener = std::make_unique<socket_opener<Lazy>>(nodes_, mine.node, wake_);
        } catch (const std::system_error&) {  // no thread: the others wait, but it goes on
            adopt(mine, mine.node->pool.connect(now + nodes_.connect_timeout(), wake_.fd()), now);
        }
    }

    // Effects: `fresh` is the present socket; null: the node has none, and the old one is asked once more.
    void adopt(node_stream& mine, std::unique_ptr<stream> fresh, clock::time_point now) {
        interrupt();
        if (!fresh && mine.in_current == trust::none) {
            mine.in_current = trust::none_but_asked_again;
            each_on(mine, [&](interest& one) { unsay(one); });
        }
        if (!fresh) return nodes_.suspect(*mine.node);
        mine.in_current = trust::whole;
        auto old = std::move(mine.current);
        replace_by(mine, std::move(fresh), now);
        mine.previous = std::move(old);
    }

    // Effects: the present socket is over; one that it was to replace is the present one again.
    void lose(node_stream& mine, clock::time_point now) noexcept {
        each_sent(mine, [](interest&, const auto& whose) {
            if (whose) whose->unanswered();
        });
        mine.in_current = mine.previous ? trust::none : trust::whole;
        replace_by(mine, std::move(mine.previous), now);
        try {
            nodes_.suspect(*mine.node);
        } catch (...) {
            // Then the next caller finds out.
        }
    }

    void replace_by(node_stream& mine, std::unique_ptr<stream> next, clock::time_point now) noexcept {
        each_on(mine, [&](interest& one) { unsay(one); });
        mine.asked.clear();
        mine.last = now;
        mine.current = std::move(next);
        interrupt();
    }

    void unsay(interest& one) noexcept {
        if (one.at == stage::refused) one.next_time = {};                        // it may be permitted there
        if (std::exchange(one.at, stage::unsent) != stage::unsent) wake_.set();  // read() returns
        if (const auto whose = one.whose.lock()) whose->lapse();
    }

    void send(node_stream& to, request what, clock::time_point now) {
        if (!to.current) return;
        const bool ping = what.channel.empty();
        const std::string_view word = ping ? "PING" : what.begins ? "SSUBSCRIBE" : "SUNSUBSCRIBE";
        if (to.asked.empty()) to.last = now;
        const bool said = to.current->send_only({word, what.channel}, now + nodes_.command_timeout());
        to.asked.push_back(std::move(what));
        if (!said) lose(to, now);
    }

    // Effects: hears what the nodes say, until `by` or until it heard something.
    void converse(clock::time_point now, clock::time_point by) {
        std::vector<node_stream*> open;
        std::vector<pollfd> polled{{wake_.fd(), POLLIN, 0}};
        bool heard = false;
        for (const auto& one : streams_) {
            const bool silent = one->asked.empty() && now >= one->last + silence;
            if (one->current && silent) send(*one, {true, ""}, now);
            if (one->current && hear(*one)) heard = true;
            if (!one->current) continue;
            by = std::min(by, end_of(*one));
            open.push_back(one.get());
            polled.push_back({one->current->fd(), POLLIN, 0});
        }
        wait_for(polled.data(), cast_where_needed<nfds_t>(polled.size()),
                 heard ? clock::duration::zero() : time_source().slice(by));  // another may be silent
        if (polled[0].revents != 0) wake_.reset();
        const auto then = clock::now();
        for (std::size_t i = 0; i < open.size(); ++i) {
            node_stream& one = *open[i];
            if (polled[i + 1].revents != 0) {
                hear(one);
            } else if (!one.asked.empty() && then >= end_of(one)) {
                lose(one, then);
            }
        }
    }

    clock::time_point end_of(const node_stream& one) const noexcept {
        return one.last + (one.asked.empty() ? clock::duration(silence) : nodes_.command_timeout());
    }

    // Effects: hears some of what has come by now. Returns: whether there was something.
    bool hear(node_stream& from) {
        bool heard = false;
        for (int n = 0; from.current && n < most_at_once; ++n) {
            const auto said = from.current->listen(clock::time_point{}, -1);
            if (!said) return heard;
            heard = true;
            from.last = clock::now();
            said->answered() ? tell(from, *said) : lose(from, from.last);
        }
        return heard;
    }

    // ["smessage", channel, text]; ["ssubscribe", channel, count], and the same of the end, which the server
    // may say by itself; or an error. All but messages, and an end that was not asked for, answer the first
    // request that was not answered yet.
    void tell(node_stream& from, const reply& said) {
        const auto& parts = said.elements();
        const auto what = parts.size() == 3 ? std::string_view(parts[0].text()) : std::string_view();
        if (what == "smessage") {
            if (const auto whose = find(parts[1].text())) whose->deliver(parts[2].text());
            return;
        }
        const bool ends = what == "sunsubscribe";
        const bool answers =
            !from.asked.empty() &&
            (!ends || (!from.asked.front().begins && from.asked.front().channel == parts[1].text()));
        request asked{true, {}};
        if (answers) {
            asked = std::move(from.asked.front());
            from.asked.pop_front();
            if (from.asked.empty()) from.previous.reset();
        }
        if (what == "ssubscribe") return confirm(from, parts[1].text());
        if (ends && !answers) return ask_again(from, parts[1].text());
        if (answers && asked.begins && said.is(reply_kind::error)) refused(from, asked.channel, said.said());
    }

    void refused(node_stream& by, const std::string& channel, std::string_view why) {
        const auto there = read_redirection(why, by.node->at);
        if (there && there->to) nodes_.assign(there->slot, *there->to);
        if (there) nodes_.invalidate();
        if (there || classify_error(why).transient) return ask_again(by, channel);
        each_sent(by, [&](interest& one, const auto& whose) {
            if (one.channel != channel) return;
            one.at = stage::refused;
            one.next_time = by.last + refused_pause;
            if (whose) whose->refuse();
        });
    }

    // Effects: calls `f` for each channel of the node.
    template <class F>
    void each_on(const node_stream& on, F f) noexcept {
        const annotated_lock guard(lock_);
        for (interest& one : interests_) {
            if (one.on == &on) f(one);
        }
    }
    // Effects: calls `f` for what was asked for on the node's present socket, and not answered.
    template <class F>
    void each_sent(const node_stream& on, F f) noexcept {
        each_on(on, [&](interest& one) {
            if (one.at == stage::sent) f(one, one.whose.lock());
        });
    }

    std::shared_ptr<subscription> find(std::string_view channel) {
        const annotated_lock guard(lock_);
        for (const interest& one : interests_) {
            if (one.channel == channel) return one.whose.lock();
        }
        return nullptr;
    }

    void confirm(node_stream& from, std::string_view channel) {
        // The first answer does not confirm a channel that was given up and is asked for again.
        const auto same = [&](const request& one) { return one.channel == channel; };
        if (std::any_of(from.asked.begin(), from.asked.end(), same)) return;
        each_sent(from, [&](interest& one, const auto& whose) {
            if (one.channel != channel) return;
            one.at = stage::in_force;
            one.pause = {};
            if (whose) whose->confirm();
        });
    }

    // At once, the first time; then in pauses: two nodes may each say that it is the other's.
    void ask_again(const node_stream& from, std::string_view channel) {
        each_on(from, [&](interest& one) {
            if (one.channel != channel) return;
            unsay(one);
            one.next_time = clock::now() + one.pause;
            one.pause = std::clamp<clock::duration>(2 * one.pause, connect_schedule::first_pause,
                                                    connect_schedule::longest_pause);
        });
        to_arrange_ = true;
    }

    cluster_nodes<Lazy>& nodes_;
    upkeep& connection_;
    const std::shared_ptr<message_hub> hub_;
    wake_event wake_;
    std::atomic<bool> to_arrange_ = false;
    std::atomic<bool> to_renew_ = false;  // no present socket is trusted any more
    annotated_mutex lock_;
    std::vector<interest> interests_ DISTLOCK_GUARDED_BY(lock_);
    // Only the thread that reads uses the following.
    std::vector<std::unique_ptr<node_stream>> streams_;
    clock::time_point next_sweep_{};
    clock::time_point upkeep_at_{};
};

}  // namespace distlock::detail
