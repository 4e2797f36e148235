// Where a connection of the simulated world hears messages: a socket of its own, read by the fibers that
// wait. It keeps the promises of net/subscription.hpp.
//
//   class subscriber;    // a distlock::message_reader; std::shared_ptr<subscription> subscribe(channel);
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

#include "model/simulator/server.hpp"

namespace sim {

/// A socket that says nothing for three seconds while somebody reads is asked whether it lives.
class subscriber final : public distlock::message_reader {
    using clock = distlock::clock;
    using command = distlock::command;

  public:
    subscriber(server& peer, scheduler& s, process& owner, std::chrono::milliseconds timeout)
        : peer_(peer), scheduler_(s), owner_(owner), timeout_(timeout) {}
    subscriber(const subscriber&) = delete;
    subscriber& operator=(const subscriber&) = delete;
    ~subscriber() {
        for (const line& one : lines_) peer_.close(one.end, false);
    }

    std::shared_ptr<distlock::subscription> subscribe(std::string_view channel) {
        std::shared_ptr<distlock::subscription> made;
        {
            const std::lock_guard guard(lock_);
            if (auto known = find(channel)) return known;
            made = std::make_shared<distlock::subscription>(std::string(channel), hub_);
            wanted_.push_back({made, std::string(channel)});
        }
        interrupt();
        return made;
    }

    void read(clock::time_point until) noexcept override {
        scheduler_.stray();
        reading_ = scheduler_.running();
        while (!std::exchange(interrupted_, false) && clock::now() < until && !read_once(until)) continue;
        reading_ = nullptr;
    }
    void interrupt() noexcept override {
        interrupted_ = true;
        if (reading_ != nullptr) scheduler_.wake(*reading_);
    }
    void reconnect() noexcept override {
        distrusted_ = true;
        interrupt();
    }

    static constexpr std::chrono::milliseconds connect_timeout{500};
    static constexpr std::chrono::seconds silence{3};
    static constexpr std::chrono::milliseconds longest_pause{500};

  private:
    struct line {
        std::shared_ptr<socket> end;
        clock::time_point heard;
        clock::time_point asked = {};  // by PING; none: it was not
        std::vector<std::string> said = {};
        std::size_t unconfirmed = 0;
    };
    struct wish {
        std::weak_ptr<distlock::subscription> whose;
        std::string channel;
    };

    // Preconditions: lock_ is held.
    std::shared_ptr<distlock::subscription> find(std::string_view channel) const {
        for (const wish& one : wanted_) {
            if (one.channel != channel) continue;
            if (auto known = one.whose.lock()) return known;
        }
        return nullptr;
    }

    // Returns: whether something came or broke; else it has waited, or changed what it waits for.
    bool read_once(clock::time_point until) {
        if (owner_.dead) {
            lines_.clear();
            rest(until);
            return false;
        }
        const bool wants_another = lines_.empty() || distrusted_;
        if (wants_another && clock::now() >= next_try_) {
            connect(until);
            return false;
        }
        say();
        for (std::size_t i = lines_.size(); i-- > 0;) {
            while (!lines_[i].end->inbox.empty()) {
                const auto what = std::move(lines_[i].end->inbox.front());
                lines_[i].end->inbox.pop_front();
                lines_[i].heard = clock::now();
                lines_[i].asked = {};
                if (what.is(distlock::reply_kind::error)) {
                    close(i);
                    return true;
                }
                if (tell(i, what)) return true;
            }
            if (lines_[i].end->ended || !alive(lines_[i])) {
                close(i);
                return true;
            }
        }
        auto next = wants_another ? std::min(until, next_try_) : until;
        for (const line& one : lines_) next = std::min(next, due(one));
        rest(next);
        return false;
    }

    // What came since this fiber looked is not slept through: from here on it does not lose the processor.
    void rest(clock::time_point until) {
        if (interrupted_ || std::any_of(lines_.begin(), lines_.end(), [](const line& one) {
                return one.end->ended || !one.end->inbox.empty();
            }))
            return;
        fiber& me = *scheduler_.running();
        for (line& one : lines_) one.end->reader = &me;
        scheduler_.park(me.home().when(until.time_since_epoch()));
        for (line& one : lines_) one.end->reader = nullptr;
    }

    void connect(clock::time_point until) {
        const auto patient = std::max<clock::time_point>(
            until, std::min<clock::time_point>(hub_->reading_until(), clock::now() + pause_));
        const auto by = std::min<clock::time_point>(patient, clock::now() + connect_timeout);
        dice& d = scheduler_.where().random();
        scheduler_.sleep(peer_.chances().latency(d) + peer_.chances().latency(d));
        auto end = clock::now() < by && !owner_.dead ? peer_.open(owner_) : nullptr;
        if (!end) return put_off();
        distrusted_ = false;
        if (lines_.size() == 2) close(1);  // which was not in force yet
        lines_.push_back({std::move(end), clock::now()});
    }
    void put_off() {
        next_try_ = clock::now() + pause_;
        pause_ = std::min(2 * pause_, longest_pause);
    }
    void close(std::size_t which) {
        peer_.close(lines_[which].end, false);
        lines_.erase(lines_.begin() + static_cast<std::ptrdiff_t>(which));
        if (lines_.empty()) put_off();
        if (!lines_.empty() && lines_.front().unconfirmed == 0) return;
        for (const auto& one : all_wanted()) one->lapse();
    }

    std::vector<std::shared_ptr<distlock::subscription>> all_wanted() {
        std::vector<std::shared_ptr<distlock::subscription>> all;
        const std::lock_guard guard(lock_);
        for (const wish& one : wanted_) {
            if (auto whose = one.whose.lock()) all.push_back(std::move(whose));
        }
        return all;
    }

    // Tells the server on each socket what it does not know yet.
    void say() {
        std::vector<std::string> channels;
        {
            const std::lock_guard guard(lock_);
            std::erase_if(wanted_, [](const wish& one) { return one.whose.expired(); });
            for (const wish& one : wanted_) channels.push_back(one.channel);
        }
        const auto among = [](const std::vector<std::string>& all, const std::string& one) {
            return std::find(all.begin(), all.end(), one) != all.end();
        };
        for (line& on : lines_) {
            std::erase_if(on.said, [&](const std::string& old) {
                if (among(channels, old)) return false;
                peer_.send(on.end, command{"UNSUBSCRIBE", old});
                return true;
            });
            for (const std::string& channel : channels) {
                if (among(on.said, channel)) continue;
                on.said.push_back(channel);
                ++on.unconfirmed;
                peer_.send(on.end, command{"SUBSCRIBE", channel});
            }
        }
    }
    // Returns: whether somebody may have heard of it.
    bool tell(std::size_t which, const distlock::reply& what) {
        const auto& parts = what.elements();
        if (parts.size() != 3) return false;
        std::shared_ptr<distlock::subscription> whose;
        {
            const std::lock_guard guard(lock_);
            whose = find(parts[1].text());
        }
        if (parts[0].text() == "message") {
            peer_.heard(owner_, parts[2].text());
            if (whose) whose->deliver(parts[2].text());
        } else if (parts[0].text() == "subscribe") {
            pause_ = first_pause;
            if (--lines_[which].unconfirmed == 0 && which == 1) close(0);
            if (whose) whose->confirm();
        } else {
            return false;
        }
        return true;
    }

    clock::time_point due(const line& one) const {
        return one.asked != clock::time_point{} ? one.asked + timeout_ : one.heard + silence;
    }
    bool alive(line& one) {
        if (clock::now() < due(one)) return true;
        if (one.asked != clock::time_point{}) return false;
        one.asked = clock::now();
        peer_.send(one.end, command{"PING"});
        return true;
    }

    static constexpr std::chrono::milliseconds first_pause{10};

    server& peer_;
    scheduler& scheduler_;
    process& owner_;
    const std::chrono::milliseconds timeout_;
    std::shared_ptr<distlock::message_hub> hub_ = std::make_shared<distlock::message_hub>(this);
    std::mutex lock_;
    std::vector<wish> wanted_;
    std::vector<line> lines_;  // at most two: one in force, and then the one that takes its place
    fiber* reading_ = nullptr;
    bool interrupted_ = false;
    bool distrusted_ = false;
    clock::time_point next_try_{};
    std::chrono::milliseconds pause_ = first_pause;
};

}  // namespace sim
