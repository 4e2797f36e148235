// The nodes of a Cluster that are known, the sockets to each, and which of them has a slot.
//
//   class cluster_nodes {  // node: std::shared_ptr<cluster_node>
//     cluster_nodes(const std::vector<uri>& seeds, std::shared_ptr<const secure_layer>);
//     node of(std::optional<std::uint16_t> slot);  // its owner, or another
//     node at(const node_address&);
//     void assign(slot, const node_address&);          // the slot moved there
//     void invalidate();                               // the map is wrong
//     void suspect(cluster_node&);                     // or may be: that node did not answer
//     std::vector<node> look_for_signs();  // of nodes that are gone
//     void on_master_change(std::weak_ptr<master_listener>);
//     bool refresh(when_running, until, stop);         // a new map, if one is due
//     std::vector<node> used();
//     std::string refusal();                           // why there is no map
//     void on_change(message_reader*);                 // interrupted when the map changes
//   };
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/detail/leaked_in_child.hpp>
#include <distlock/detail/printable.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/detail/thread_safety.hpp>
#include <distlock/hiredis/cluster_node.hpp>
#include <distlock/hiredis/map_query_order.hpp>
#include <distlock/hiredis/master_listeners.hpp>
#include <distlock/hiredis/node_pool.hpp>
#include <distlock/hiredis/secure.hpp>
#include <distlock/hiredis/taken_over_slots.hpp>
#include <distlock/hiredis/turn_to_ask.hpp>
#include <distlock/net/master_listener.hpp>
#include <distlock/net/node_address.hpp>
#include <distlock/net/refresh_schedule.hpp>
#include <distlock/net/slot_map.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/net/uri.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>
#include <distlock/wire/server_error.hpp>

namespace distlock::detail {

/// Thread-safe. Its mutex is never held while anybody waits for a server. A node that left the map is closed
/// when the last call that uses it is over; at once, where it is silent.
template <class Lazy>
class cluster_nodes {
  public:
    using node = std::shared_ptr<cluster_node>;
    /// What becomes of a caller while another one asks for the map.
    enum class when_running { go_on, wait };

    /// `seeds`: not empty; they differ in host and port only.
    /// Throws: as node_pool.
    cluster_nodes(const std::vector<uri>& seeds, std::shared_ptr<const secure_layer> secure)
        : like_(seeds.front()), secure_(std::move(secure)) {
        for (const uri& one : seeds) {
            seeds_.push_back({one.host, one.port});
            static_cast<void>(open(seeds_.back()));  // throws now, not at the first command
        }
    }
    cluster_nodes(const cluster_nodes&) = delete;
    cluster_nodes& operator=(const cluster_nodes&) = delete;

    /// Returns: the owner of the slot, as far as is known; else a node that says who it is, as where the
    /// owner is silent and the map is refused.
    node of(std::optional<std::uint16_t> slot) {
        const annotated_lock guard(lock_);
        for (std::size_t i = 0; i < seeds_.size() && !(last_ && last_->may_be_asked()); ++i)
            last_ = named(seeds_[i]);
        const auto place = slot ? map_.owner(*slot) : std::nullopt;
        node owner = place ? known(*place) : last_;
        if (!owner->silent || refusal_.empty()) return owner;
        // Nobody says which node takes its place; another one redirects there.
        const auto may_know = [](const node& one) { return one && !one->silent; };
        if (may_know(last_)) return last_;
        const auto other = std::find_if(used_.begin(), used_.end(), may_know);
        if (other != used_.end()) return *other;
        const auto seed =
            std::find_if(seeds_.begin(), seeds_.end(),
                         [&](const node_address& one) DISTLOCK_UNCHECKED { return !is_silent(one); });
        return seed != seeds_.end() ? named(*seed) : owner;
    }

    node at(const node_address& where) {
        const annotated_lock guard(lock_);
        return named(where);
    }

    void assign(std::uint16_t slot, const node_address& to) {
        const annotated_lock guard(lock_);
        map_.assign(slot, to);
        changed();
    }

    void invalidate() noexcept {
        const annotated_lock guard(lock_);
        schedule_.invalidate();
    }
    void suspect(cluster_node& which) {
        const annotated_lock guard(lock_);
        schedule_.invalidate();
        which.silent = true;
    }

    /// Effects: a node that has ended a socket is suspect; while it is silent, the map is to be asked for
    /// again and again, since others have not replaced it yet.
    /// Returns: those that are to be asked whether they live: they may have ended idle sockets only, and
    /// nothing else may be sent to them for hours.
    std::vector<node> look_for_signs() {
        std::vector<node> silent;
        for (const node& one : used()) {
            if (one->pool.close_ended()) suspect(*one);
            if (one->silent) silent.push_back(one);
        }
        const auto now = clock::now();
        const annotated_lock guard(lock_);
        if (silent.empty()) {
            // One that speaks again may have been replaced.
            if (doubt_pause_ != refresh_schedule::pause) schedule_.invalidate();
            doubt_pause_ = refresh_schedule::pause;
        } else if (now >= next_doubt_) {
            schedule_.invalidate();
            next_doubt_ = now + doubt_pause_;
            doubt_pause_ = std::min<clock::duration>(2 * doubt_pause_, longest_doubt_pause);
            return silent;
        }
        return {};
    }

    /// Effects: `who` is told which slots a replica has taken, once their master has left the map.
    void on_master_change(std::weak_ptr<master_listener> who) { listeners_.add(std::move(who)); }

    /// Effects: asks for a new map if one is due, no longer than `until`, nor once `stop` was requested.
    /// Where another caller asks, waits for that one, as long as a question takes, and asks itself where that
    /// one had no time for it; with go_on, only if there is no map yet, nobody refused it, and not with the
    /// command's time. A map that cannot be had changes nothing: a node redirects what is not its own.
    /// Returns: whether it asked in vain, or waited for a caller that did, and there is no map.
    bool refresh(when_running what, clock::time_point until, const std::stop_token* stop) {
        const auto wake = [this]() noexcept {
            const annotated_lock guard(lock_);
            refreshed_.get().notify_all();
        };
        {
            annotated_lock guard(lock_);
            if (schedule_.begin(clock::now())) {
                guard.unlock();
                return !learn(until, stop);
            }
            if (what == when_running::go_on && !(map_.nodes().empty() && refusal_.empty())) return false;
            if (!schedule_.running() && !schedule_.cut_short()) return false;
        }
        const auto patience = what == when_running::go_on ? some_of(until) : until;
        const std::stop_callback on_stop(stop != nullptr ? *stop : std::stop_token(), wake);
        annotated_lock guard(lock_);
        const auto before = schedule_.questions_ended();
        // Called with the mutex.
        const auto begin = [&]() DISTLOCK_UNCHECKED { return schedule_.begin(clock::now()); };
        const auto answered = [] { return false; };  // a map that is there does not do
        if (!wait_for_turn(refreshed_.get(), guard.native(), schedule_, patience, longest_question(), stop,
                           answered, begin))
            return map_.nodes().empty() && schedule_.questions_ended() != before;
        guard.unlock();
        return !learn(until, stop);
    }

    std::vector<node> used() {
        const annotated_lock guard(lock_);
        std::vector<node> all = used_;
        std::erase(all, nullptr);
        if (last_ && !map_.place(last_->at)) all.push_back(last_);
        return all;
    }

    /// Returns: the answer of a node that refused the map the last time, fit for messages; empty: none did.
    std::string refusal() {
        const annotated_lock guard(lock_);
        return printable(refusal_);
    }

    void on_change(message_reader* who) {
        const annotated_lock guard(lock_);
        reader_ = who;
    }

    std::chrono::milliseconds connect_timeout() const noexcept { return like_.connect_timeout; }
    std::chrono::milliseconds command_timeout() const noexcept { return like_.command_timeout; }

  private:
    static constexpr std::size_t most_strangers = 16;
    static constexpr std::chrono::milliseconds longest_doubt_pause{500};

    // Returns: so long a caller may do without the map, and still send its command.
    clock::time_point some_of(clock::time_point until) const noexcept {
        return refresh_schedule::some_of(clock::now(), until, longest_question());
    }
    clock::duration longest_question() const noexcept {
        return like_.connect_timeout + like_.command_timeout;
    }

    void changed() noexcept DISTLOCK_REQUIRES(lock_) {
        if (reader_ != nullptr) reader_->interrupt();
    }

    // Returns: whether there is a new map.
    bool learn(clock::time_point until, const std::stop_token* stop) noexcept {
        std::optional<slot_map> fresh;
        std::vector<node> left;  // closed without the mutex
        std::vector<std::uint16_t> changed_hands;
        std::string why;  // there is no map
        const auto longest = clock::now() + longest_question();
        bool asked = false;
        try {
            fresh = ask(std::min(until, longest), some_of(until), stop, why);
            asked = until >= longest && !stop_requested(stop);
            left.resize(fresh ? fresh->nodes().size() : 0);
            if (fresh) changed_hands = taken_over_.update(*fresh);
        } catch (...) {
            fresh.reset();  // without memory the old map is used on
        }
        {
            const auto jitter = refresh_schedule::some_jitter(clock::now());
            const annotated_lock guard(lock_);
            if (!why.empty()) {
                schedule_.end_refused(jitter);
            } else if (!fresh && !asked) {
                schedule_.end_cut_short(jitter);
            } else {
                schedule_.end(fresh.has_value(), jitter);
            }
            refusal_.swap(why);
            if (fresh) replace_by(*std::move(fresh), left);
            refreshed_.get().notify_all();
        }
        for (const node& one : left) {
            if (one && one->silent) one->superseded.request_stop();
        }
        if (!changed_hands.empty())
            listeners_.tell([&](master_listener& who) { who.master_changed_of(changed_hands); });
        return fresh.has_value();
    }

    // `some`: until then, where a node answers, but gives no map: it redirects, and a silent one must not
    // have all the time. `refusal`: why nobody gives it, where a node says so.
    std::optional<slot_map> ask(clock::time_point until, clock::time_point some, const std::stop_token* stop,
                                std::string& refusal) {
        std::size_t speaking = 0, of_none = 0;
        const auto all = candidates(speaking);
        for (std::size_t i = 0; i < all.size(); ++i) {
            const auto now = clock::now();
            if (now >= until || stop_requested(stop)) break;
            command question{"CLUSTER", std::string_view("SLOTS")};
            // The next one must have some of the time; one that may be dead has it when this one may be, too.
            const auto enough = now + like_.command_timeout / 2;
            const bool alone = i + 1 == all.size() || (i + 1 == speaking && until >= enough);
            question.until(alone ? until : now + (until - now) / 2);
            if (stop != nullptr) question.until(*stop);
            const node one = at(all[i]);
            const reply answer = one->pool.ask_for_map(question);
            one->of_no_cluster = says_no_cluster(answer.said());
            if (one->of_no_cluster) {
                if (++of_none == all.size()) refusal = no_cluster_support;
                until = std::min(until, some);
                continue;
            }
            if (!answer.answered()) {
                if (answer.cause() == errc::cancelled) continue;
                if (question.deadline() >= enough) one->silent = true;
                map_query_order_.add(one->at, false);
                continue;
            }
            one->answered();
            auto map = slot_map::read(answer, one->at);
            const bool refused = answer.is(reply_kind::error) && !classify_error(answer.said()).transient;
            if (refused) refusal = answer.text();
            const annotated_lock guard(lock_);
            last_ = one;
            if (map) {
                refusal.clear();
                // Others may know who took the place of a silent one.
                const bool in_vain = std::any_of(used_.begin(), used_.end(), [&](const node& of) {
                    return of && of->silent && map->place(of->at);
                });
                in_vain ? map_query_order_.add(one->at, true) : map_query_order_.clear();
                return map;
            }
            until = std::min(until, some);
        }
        return std::nullopt;
    }

    // First the node that answered last, if not in vain, at the end those that may be dead; those of the URI
    // behind those of the map. `speaking`: how many are not silent.
    std::vector<node_address> candidates(std::size_t& speaking) {
        const annotated_lock guard(lock_);
        std::vector<node_address> all;
        const auto add = [&](const node_address& one) {
            if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
        };
        if (last_) add(last_->at);
        for (const node_address& one : map_.nodes()) add(one);
        for (const node_address& one : seeds_) add(one);
        // Each has its turn to be asked first, also where more are silent than strangers are kept.
        map_query_order_.put_last(all);
        const auto speaks = [&](const node_address& one) DISTLOCK_UNCHECKED { return !is_silent(one); };
        speaking =
            static_cast<std::size_t>(std::stable_partition(all.begin(), all.end(), speaks) - all.begin());
        return all;
    }
    bool is_silent(const node_address& where) const noexcept DISTLOCK_REQUIRES(lock_) {
        const auto that_one = [&](const node& one) { return one && one->at == where && one->silent; };
        return std::any_of(used_.begin(), used_.end(), that_one) ||
               std::any_of(strangers_.begin(), strangers_.end(), that_one) || that_one(last_);
    }

    node named(const node_address& where) DISTLOCK_REQUIRES(lock_) {
        if (const auto place = map_.place(where)) return known(*place);
        if (node one = met(where)) return one;
        // A node that gets its first slots is in no map before it has them.
        if (strangers_.size() == most_strangers) strangers_.erase(strangers_.begin());
        return strangers_.emplace_back(open(where));
    }

    node known(std::size_t place) DISTLOCK_REQUIRES(lock_) {
        used_.resize(map_.nodes().size());
        const node_address& where = map_.nodes()[place];
        auto& mine = used_[place];
        if (mine) return mine;
        mine = met(where);
        std::erase(strangers_, mine);
        if (!mine) mine = open(where);
        return mine;
    }

    // Returns: the node as it was met before a map named it, with its sockets; null: it was not.
    node met(const node_address& where) const DISTLOCK_REQUIRES(lock_) {
        if (is_last(where)) return last_;
        const auto one = std::find_if(strangers_.begin(), strangers_.end(),
                                      [&](const node& of) { return of->at == where; });
        return one != strangers_.end() ? *one : nullptr;
    }

    bool is_last(const node_address& where) const noexcept DISTLOCK_REQUIRES(lock_) {
        return last_ && last_->at == where && !last_->superseded.stop_requested();
    }

    node open(const node_address& where) const {
        return std::make_shared<cluster_node>(with_place(like_, where.host, where.port), secure_);
    }

    // Preconditions: as many in `left` as nodes in the map. Effects: they are the nodes that left.
    void replace_by(slot_map fresh, std::vector<node>& left) noexcept DISTLOCK_REQUIRES(lock_) {
        for (std::size_t i = 0; i < used_.size(); ++i) {
            const auto place = fresh.place(map_.nodes()[i]);
            if (place) left[*place] = std::move(used_[i]);
        }
        for (node& one : strangers_) {
            const auto place = fresh.place(one->at);
            if (place) left[*place] = std::move(one);
        }
        std::erase(strangers_, nullptr);
        map_ = std::move(fresh);
        used_.swap(left);
        changed();
    }

    const uri like_;
    const std::shared_ptr<const secure_layer> secure_;
    std::vector<node_address> seeds_;  // of the URI; not changed any more
    annotated_mutex lock_;
    slot_map map_ DISTLOCK_GUARDED_BY(lock_);
    std::vector<node> strangers_ DISTLOCK_GUARDED_BY(lock_);  // the last that were named and are in no map
    // Of map_.nodes(), as far as it reaches; null: not used yet.
    std::vector<node> used_ DISTLOCK_GUARDED_BY(lock_);
    node last_ DISTLOCK_GUARDED_BY(lock_);            // that was asked for the map
    std::string refusal_ DISTLOCK_GUARDED_BY(lock_);  // why there is no map, where the nodes will not say it
    taken_over_slots taken_over_;                     // whoever asks uses it
    map_query_order map_query_order_;                 // as taken_over_
    clock::time_point next_doubt_ DISTLOCK_GUARDED_BY(lock_){};
    clock::duration doubt_pause_ DISTLOCK_GUARDED_BY(lock_){refresh_schedule::pause};
    master_listeners listeners_;
    refresh_schedule schedule_ DISTLOCK_GUARDED_BY(lock_);
    message_reader* reader_ DISTLOCK_GUARDED_BY(lock_) = nullptr;
    leaked_in_child<std::condition_variable> refreshed_;
};

}  // namespace distlock::detail
