// The server as the network sees it: a model_server with a clock of its own, that stalls, restarts, and is
// looked over the shoulder.
//
//   class server {
//     std::shared_ptr<socket> open(process&);                            // null: nobody listens
//     void send(const std::shared_ptr<socket>&, const command&);  // with whatever goes wrong on the way
//     void close(const std::shared_ptr<socket>&, bool purge);            // by the client
//     void stall(span); void restart(span); void flush_scripts(); void forget(key); void cut(which); void
//         abandon(process&);
//   };
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <distlock/wire/command.hpp>
#include <distlock/wire/handoff_scripts.hpp>
#include <distlock/wire/joint_try.hpp>
#include <distlock/wire/plain.hpp>
#include <distlock/wire/reply.hpp>

#include "model/simulator/fibers.hpp"
#include "model/simulator/model_server.hpp"
#include "model/simulator/network.hpp"
#include "model/simulator/world.hpp"

namespace sim {

/// Who looks over the server's shoulder.
class witness {
  public:
    virtual void sent(process& by, const distlock::command& what) = 0;
    virtual void executed(process& by, std::span<const std::string_view> argv, const model_server& on) = 0;
    virtual void heard(process& by, std::string_view message) = 0;

  protected:
    ~witness() = default;
};

/// Who stops and kills processes at the worst moment.
class nemesis {
  public:
    virtual void strike_at(process& whom) = 0;

  protected:
    ~nemesis() = default;
};

class server final : public message::sink {
  public:
    server(world& w, scheduler& s, const hazards& what, std::int64_t ppm)
        : world_(w), scheduler_(s), hazards_(what), clock_(std::chrono::seconds{1'700'000'000}, ppm) {
        model_.permit(what.may_subscribe, what.may_publish, what.may_count);
    }

    void watched_by(witness& w) { witness_ = &w; }
    void haunted_by(nemesis& n) { nemesis_ = &n; }
    const domain& clock() const { return clock_; }
    std::chrono::microseconds wall() const {
        return std::chrono::duration_cast<std::chrono::microseconds>(clock_.local(world_.now()));
    }
    model_server& model() { return model_; }
    const hazards& chances() const { return hazards_; }
    void calm() { hazards_.calm(); }
    std::uint64_t commands() const { return commands_; }

    bool listens() const { return world_.now() >= up_at_; }

    std::shared_ptr<socket> open(process& by) {
        if (!listens()) return nullptr;
        auto made = std::make_shared<socket>(by, ++sockets_made_);
        sockets_.emplace(made->number, made);
        std::erase_if(by.sockets, [](const auto& one) { return one.expired(); });
        by.sockets.push_back(made);
        return made;
    }

    void send(const std::shared_ptr<socket>& on, const distlock::command& cmd) {
        if (on->owner.dead) return;
        if (witness_ != nullptr) witness_->sent(on->owner, cmd);
        if (on->silent || on->ended) return;
        dice& d = world_.random();
        nanos way = hazards_.latency(d);
        if (d.chance(hazards_.lose_request)) {
            fault(act::lose_request, *on);
            break_off(on, world_.now() + way);
            return;
        }
        if (d.chance(hazards_.silence)) {
            fault(act::silence, *on);
            silence(on);
            return;
        }
        if (d.chance(hazards_.late)) {
            fault(act::late, *on);
            way += d.between(nanos(0), hazards_.latest);
        }
        message& m = blank();
        m.load(*this, on, cmd, world_);
        m.loses_reply = d.chance(hazards_.lose_reply);
        m.silences = !m.loses_reply && d.chance(hazards_.silence);
        m.refused = d.chance(hazards_.refuse);
        on->last_up = std::max(on->last_up, world_.now() + way);
        world_.at(on->last_up, m, 0);
        if (d.chance(hazards_.strike)) {
            nemesis_->strike_at(on->owner);
            scheduler_.sleep(nanos(0));  // a stopped process does not go on
        }
    }

    /// Effects: the process has read a message.
    void heard(process& by, std::string_view message) const {
        if (witness_ != nullptr) witness_->heard(by, message);
    }

    /// Effects: the client closes; `purge`: what it has sent and is not there yet may be lost.
    void close(const std::shared_ptr<socket>& on, bool purge) {
        on->closed = true;
        if (on->silent) {
            // Nobody tells the server: it finds out by itself.
            tell_end(on, world_.now() + world_.random().between(1s, 5s));
            return;
        }
        if (purge && world_.random().chance(500'000)) on->purged = true;
        tell_end(on, std::max(on->last_up, world_.now() + hazards_.latency(world_.random())));
    }

    // Faults.
    void stall(nanos span) { stalled_until_ = std::max(stalled_until_, world_.now() + span); }
    /// Returns: when it executes something again, or when it last began to.
    nanos works_again() const { return stalled_until_; }
    void flush_scripts() { model_.forget_scripts(); }
    void restart(nanos span) {
        up_at_ = world_.now() + span;
        stalled_until_ = std::max(stalled_until_, up_at_);
        for (auto& [number, one] : sockets_) {
            one->at_server = false;
            one->purged = true;
            hear_end(one, world_.now() + hazards_.latency(world_.random()));
        }
        sockets_.clear();
        model_.restart();
    }
    /// Effects: a connection breaks, every other time one that has subscribed. 0: both hear of it. 1: only
    /// the server. 2: only the client. 3: nobody.
    void cut(std::uint64_t how) {
        std::vector<std::shared_ptr<socket>> all;
        const bool subscribed = world_.random().chance(500'000);
        for (const auto& [number, one] : sockets_) {
            if (!subscribed || model_.subscribed(number)) all.push_back(one);
        }
        if (all.empty()) return;
        const auto one = all[world_.random().index(all.size())];
        fault(how == 0 ? act::cut : act::half_open, *one);
        if (how == 0) return break_off(one, world_.now());
        silence(one);
        if (how == 1) drop(one);
        if (how == 2) hear_end(one, world_.now());
    }
    /// Effects: who hears nothing any more is told so.
    void heal() {
        for (const auto& weak : silent_) {
            if (const auto one = weak.lock()) break_off(one, world_.now());
        }
        silent_.clear();
    }
    /// Effects: the process is no more. What it has sent may still come.
    void abandon(process& dead) {
        const bool whole_machine = world_.random().chance(300'000);
        for (const auto& weak : dead.sockets) {
            const auto one = weak.lock();
            if (!one || one->closed) continue;
            one->purged = world_.random().chance(500'000);
            if (whole_machine) silence(one);
            tell_end(one, whole_machine ? world_.now() + world_.random().between(500ms, 4s)
                                        : std::max(one->last_up, world_.now() + 100us));
            one->ended = true;
            wake_reader(*one);
        }
    }

  private:
    class delivery final : public happening {
      public:
        explicit delivery(server& of) : mine(of) {}
        void happen(std::uint64_t /*what*/) override { mine.deliver(*this); }
        server& mine;
        std::shared_ptr<socket> to;
        distlock::reply what;
        bool is_end = false;
    };

    void fault(act what, const socket& on) { world_.note(what, on.owner.number, on.number); }

    message& blank() {
        if (free_messages_.empty()) {
            all_messages_.push_back(std::make_unique<message>());
            return *all_messages_.back();
        }
        message& m = *free_messages_.back();
        free_messages_.pop_back();
        m.loses_reply = m.silences = m.refused = false;
        return m;
    }
    delivery& blank_delivery() {
        if (free_deliveries_.empty()) {
            all_deliveries_.push_back(std::make_unique<delivery>(*this));
            return *all_deliveries_.back();
        }
        delivery& d = *free_deliveries_.back();
        free_deliveries_.pop_back();
        return d;
    }

    void come(message& m) override {
        const auto& from = m.from;
        if (from->at_server && !(from->purged && !m.is_end)) {
            if (world_.now() < stalled_until_) return world_.at(stalled_until_, m, 0);
            if (m.is_end) {
                drop(from);
            } else {
                execute(m);
            }
        }
        m.from.reset();
        free_messages_.push_back(&m);
    }

    void execute(message& m) {
        const auto from = m.from;
        const auto argv = m.argv();
        world_.note(act::request, from->owner.number, from->number, name_of(argv));
        ++commands_;
        std::optional<distlock::reply> answer;
        if (m.refused) {
            answer = refusal();
        } else {
            answer = model_.execute(from->number, argv, wall());
        }
        if (witness_ != nullptr) witness_->executed(from->owner, argv, model_);
        if (m.loses_reply) {
            fault(act::lose_reply, *from);
            break_off(from, world_.now() + hazards_.latency(world_.random()));
        } else if (m.silences) {
            fault(act::silence, *from);
            silence(from);
        } else if (answer) {
            reply(from, *std::move(answer));
        }
        model_.take_messages([&](std::uint64_t to, distlock::reply what) {
            if (const auto found = sockets_.find(to); found != sockets_.end())
                publish(found->second, std::move(what), to == from->number);
        });
    }
    // Who subscribes is told so in any case.
    void publish(const std::shared_ptr<socket>& to, distlock::reply what, bool confirms) {
        if (!confirms && world_.random().chance(hazards_.lose_message)) return fault(act::lose_message, *to);
        if (!confirms && world_.random().chance(hazards_.late)) {
            fault(act::late, *to);
            to->last_down =
                std::max(to->last_down, world_.now()) + world_.random().between(nanos(0), hazards_.latest);
        }
        reply(to, std::move(what));
    }

    // What a command is called in the log: of a script, what makes it differ from others.
    static std::string_view name_of(std::span<const std::string_view> argv) {
        if (!argv[0].starts_with("EVAL")) return argv[0];
        const auto is = [&](const distlock::script& s) {
            return argv[1].data() == s.text().data() || argv[1] == s.sha1();
        };
        if (is(distlock::detail::joint_enter)) return "several";
        const auto arguments = argv.subspan(3 + static_cast<std::size_t>(argv[2][0] - '0'));
        if (is(distlock::detail::handoff_enter)) return arguments[2];
        if (is(distlock::detail::handoff_leave)) return "leave";
        if (is(distlock::detail::shared_enter) || is(distlock::detail::permit_enter)) return arguments[2];
        if (is(distlock::detail::shared_leave) || is(distlock::detail::permit_leave)) return "leave";
        if (is(distlock::detail::shared_exchange)) return "exchange";
        if (is(distlock::detail::shared_renew) || is(distlock::detail::permit_renew)) return "renew";
        if (is(distlock::detail::plain_renew)) return "renew";
        return is(distlock::detail::plain_release) ? "release" : "look";
    }
    // And a reply.
    static std::string_view name_of(const distlock::reply& what) {
        const distlock::reply& first = what.elements().empty() ? what : what.elements().front();
        if (!first.is(distlock::reply_kind::integer)) return first.text();
        static constexpr std::array<std::string_view, 5> numbers{"-2", "-1", "0", "1", "2"};
        return first.number() < -2 || first.number() > 2
                   ? "some"
                   : numbers[static_cast<std::size_t>(first.number() + 2)];
    }

    distlock::reply refusal() {
        world_.note(act::refuse);
        static constexpr std::array<const char*, 5> passing{
            "LOADING Redis is loading the dataset in memory", "BUSY Redis is busy running a script",
            "TRYAGAIN Multiple keys request during rehashing of slot",
            "READONLY You can't write against a read only replica.", "MASTERDOWN Link with MASTER is down"};
        if (world_.random().chance(200'000))
            return distlock::reply::error("OOM command not allowed when used memory > 'maxmemory'.");
        return distlock::reply::error(passing[world_.random().index(passing.size())]);
    }

    void reply(const std::shared_ptr<socket>& to, distlock::reply what) {
        if (to->silent) return;
        delivery& d = blank_delivery();
        d.to = to;
        d.what = std::move(what);
        d.is_end = false;
        to->last_down = std::max(to->last_down, world_.now() + hazards_.latency(world_.random()));
        world_.at(to->last_down, d, 0);
    }
    void hear_end(const std::shared_ptr<socket>& on, nanos when) {
        delivery& d = blank_delivery();
        d.to = on;
        d.is_end = true;
        on->last_down = std::max(on->last_down, when);
        world_.at(on->last_down, d, 0);
    }
    void deliver(delivery& d) {
        socket& to = *d.to;
        if (d.is_end) {
            to.ended = true;
            wake_reader(to);
        } else if (!to.silent && !to.closed && !to.ended && !to.owner.dead) {
            world_.note(act::reply, to.owner.number, to.number, name_of(d.what));
            to.inbox.push_back(std::move(d.what));
            wake_reader(to);
            if (world_.random().chance(hazards_.strike)) nemesis_->strike_at(to.owner);
        }
        d.to.reset();
        free_deliveries_.push_back(&d);
    }
    void wake_reader(const socket& of) {
        if (of.reader != nullptr) scheduler_.wake(*of.reader);
    }

    void silence(const std::shared_ptr<socket>& which) {
        which->silent = true;
        silent_.push_back(which);
    }
    // Effects: the connection is over, for the server now and for the client then.
    void break_off(const std::shared_ptr<socket>& on, nanos then) {
        on->purged = true;
        drop(on);
        hear_end(on, then);
    }
    void tell_end(const std::shared_ptr<socket>& on, nanos when) {
        message& m = blank();
        m.load_end(*this, on);
        world_.at(when, m, 0);
    }
    void drop(const std::shared_ptr<socket>& on) {
        if (!on->at_server) return;
        on->at_server = false;
        model_.disconnect(on->number);
        sockets_.erase(on->number);
    }

    world& world_;
    scheduler& scheduler_;
    hazards hazards_;
    const domain clock_;
    model_server model_;
    witness* witness_ = nullptr;  // of everything, if anybody is
    nemesis* nemesis_ = nullptr;
    std::unordered_map<std::uint64_t, std::shared_ptr<socket>> sockets_;
    std::vector<std::weak_ptr<socket>> silent_;
    std::uint64_t sockets_made_ = 0;
    std::uint64_t commands_ = 0;
    nanos up_at_{0};
    nanos stalled_until_{0};
    std::vector<std::unique_ptr<message>> all_messages_;
    std::vector<message*> free_messages_;
    std::vector<std::unique_ptr<delivery>> all_deliveries_;
    std::vector<delivery*> free_deliveries_;
};

}  // namespace sim
