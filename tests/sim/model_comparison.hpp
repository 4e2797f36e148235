// The same random commands to the model and to a real server, and every reply compared.
//
//   class standing_server;    // the real one; its wall clock stands where it is told
//   class comparison { comparison(standing_server&, seed); std::string run(); };    // what differs; empty: nothing
//
// The clock is moved between batches only. A batch is what one connection sends at once; others may wait in BLPOP meanwhile.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/base/error.hpp>
#include <distlock/testing/redis_server.hpp>
#include <distlock/wire/reply.hpp>

#include "sim/model_generator.hpp"
#include "sim/model_server.hpp"
#include "sim/model_wire.hpp"
#include "support/shifted_clock.hpp"

namespace sim {

/// A server whose wall clock stands, and which deletes no key by itself, so that its clock may be set back, too.
class standing_server {
  public:
    using wall = model_server::wall;

    /// Throws: distlock::error when there is no server; std::runtime_error for one that cannot be told to delete nothing.
    standing_server() {
        clock_.freeze_wall(wall{0});
        clock_.freeze_steady();  // Valkey adds what has passed by this one to a reading of the other
        distlock::testing::redis_server_options options;
        options.environment = clock_.environment();
        options.arguments = {"--enable-debug-command", "yes"};
        try {
            server_ = std::make_unique<distlock::testing::redis_server>(options);
        } catch (const distlock::error&) {  // Redis 6.2 has no such setting: DEBUG is always allowed
            options.arguments.clear();
            server_ = std::make_unique<distlock::testing::redis_server>(options);
        }
        const auto answer = server_->command({"DEBUG", "SET-ACTIVE-EXPIRE", "0"});
        if (answer != "OK") throw std::runtime_error("DEBUG: " + answer);
        const auto about = server_->command({"INFO", "server"});
        const auto is = [&](const char* version) {
            return about.find(version) != std::string::npos && about.find("valkey") == std::string::npos;
        };
        if (is("redis_version:6.")) kind_ = server_kind::redis_6;
        if (is("redis_version:7.0.")) kind_ = server_kind::redis_7_0;
    }
    const std::string& path() const { return server_->socket_path(); }
    server_kind kind() const { return kind_; }
    void show(wall now) { clock_.freeze_wall(now); }

  private:
    shifted_clock clock_;
    std::unique_ptr<distlock::testing::redis_server> server_;
    server_kind kind_ = server_kind::newer;
};

/// One seed: both sides from empty, until they differ.
class comparison {
  public:
    using reply = distlock::reply;
    using reply_kind = distlock::reply_kind;
    using wall = model_server::wall;
    using words = std::vector<std::string>;

    comparison(standing_server& server, std::uint64_t seed)
        : server_(server), random_(seed, server.kind()), dice_(~seed), seed_(seed), control_(server.path()) {
        server_.show(now_);
        ask_control({"FLUSHALL"});
        ask_control({"SCRIPT", "FLUSH"});
        for (std::size_t i = 0; i < connections; ++i) connect(i);
    }

    /// Returns: what differs; empty: nothing did.
    std::string run() {
        while (difference_.empty() && sent_ < commands_per_seed) {
            if (dice_.percent(45)) move_clock();
            if (dice_.percent(2)) reconnect(pick(dice_.percent(75) && model_.blocked_count() > 0));
            batch(pick(false));
        }
        return difference_;
    }
    std::size_t sent() const { return sent_; }
    std::size_t waits() const { return waits_; }
    std::size_t errors() const { return errors_; }

  private:
    static constexpr std::size_t connections = 6;
    static constexpr std::size_t commands_per_seed = 2000;
    static constexpr wall begin{1'700'000'000'000'000};

    struct expectation {
        std::size_t number;
        reply what;
    };
    struct peer {
        std::unique_ptr<sim::wire_socket> socket;
        std::int64_t id = 0;
        std::deque<expectation> expected;
        std::size_t waits_since = 0;  // the number of the command that blocked it
    };

    static std::vector<std::string_view> views(const words& all) { return {all.begin(), all.end()}; }
    void ask_control(const words& what) { control_.ask(views(what)); }
    void connect(std::size_t i) {
        peers_[i].socket = std::make_unique<sim::wire_socket>(server_.path());
        peers_[i].id = peers_[i].socket->ask(views({"CLIENT", "ID"})).number();
    }
    void reconnect(std::size_t i) {
        ask_control({"CLIENT", "KILL", "ID", std::to_string(peers_[i].id)});
        model_.disconnect(i);
        note("connection " + std::to_string(i) + " is closed and made anew");
        connect(i);
    }
    // Returns: a connection that waits, or one that does not; there is one.
    std::size_t pick(bool waits) {
        for (;;) {
            const auto i = dice_.below(connections);
            if (model_.blocked(i) == waits) return i;
        }
    }

    void move_clock() {
        now_ = random_.move(model_, now_);
        server_.show(now_);
        note("now " + std::to_string(now_.count()));
        // The server looks after those whose time is over when it comes by, and then answers this.
        ask_control({"PING"});
        model_.time_out(now_);
        take_ready();
        compare();
    }

    void batch(std::size_t who) {
        auto left = 1 + dice_.below(24);
        bool goes_on = true;
        for (; left > 0 && goes_on && sent_ < commands_per_seed; --left)
            goes_on = send(who, random_.next(model_, now_, model_.blocked_count() + 2 < connections));
        peers_[who].socket->flush();
        compare();
        // Who waits gets no reply that says it does: what came in before this is done when this is answered.
        if (!goes_on) ask_control({"PING"});
    }

    // Returns: whether `who` may send another.
    bool send(std::size_t who, words command) {
        words real = command;
        const auto other = dice_.below(connections);
        for (std::size_t i = 0; i < command.size(); ++i) {
            if (command[i] != "?") continue;
            command[i] = std::to_string(model_.id_of(other));
            real[i] = std::to_string(peers_[other].id);
        }
        ++sent_;
        peers_[who].socket->add(views(real));
        auto answer = model_.execute(who, views(command), now_);
        if (answer && answer->is(reply_kind::error)) ++errors_;
        if (answer && answer->is_integer(static_cast<std::int64_t>(model_.id_of(who))) &&
            command.size() == 2 && sim::same_word(command[0], "client"))
            answer = reply::integer(peers_[who].id);
        note(std::to_string(sent_) + ": connection " + std::to_string(who) + ": " + sim::show(real) + "-> " +
             (answer ? sim::show(*answer) : "blocked"));
        if (answer) {
            peers_[who].expected.push_back({sent_, *std::move(answer)});
        } else {
            peers_[who].waits_since = sent_;
            ++waits_;
        }
        take_ready();
        return !model_.blocked(who);
    }

    void take_ready() {
        model_.take_ready([&](model_server::client who, reply what) {
            note("   connection " + std::to_string(who) + " -> " + sim::show(what));
            peers_[who].expected.push_back({peers_[who].waits_since, std::move(what)});
        });
    }

    void compare() {
        for (std::size_t i = 0; i < connections && difference_.empty(); ++i) {
            auto& one = peers_[i];
            for (; !one.expected.empty() && difference_.empty(); one.expected.pop_front()) {
                const auto& [number, model] = one.expected.front();
                const auto real = one.socket->receive();
                if (!real || !alike(*real, model))
                    report(i, number, real ? sim::show(*real) : "no reply", sim::show(model));
            }
            if (difference_.empty() && !one.socket->silent())
                report(i, one.waits_since, sim::show(one.socket->receive().value_or(reply())), "no reply");
        }
    }
    bool alike(const reply& real, const reply& model) const {
        if (real.kind() != model.kind() || real.number() != model.number()) return false;
        // The texts are those of Redis 7.0. The first word is the same everywhere; before 7.0 it stands within what is said about
        // a script.
        if (real.is(reply_kind::error) && server_.kind() != server_kind::redis_7_0)
            return real.text().find(model.text().substr(0, model.text().find(' '))) != std::string::npos;
        if (real.text() != model.text() || real.elements().size() != model.elements().size()) return false;
        for (std::size_t i = 0; i < real.elements().size(); ++i) {
            if (!alike(real.elements()[i], model.elements()[i])) return false;
        }
        return true;
    }

    void note(std::string what) {
        history_.push_back(std::move(what));
        if (history_.size() > 20) history_.pop_front();
    }
    void report(std::size_t who, std::size_t number, const std::string& real, const std::string& model) {
        difference_ = "seed " + std::to_string(seed_) + ", command " + std::to_string(number) +
                      ", connection " + std::to_string(who) + "\n  server: " + real + "\n  model:  " + model +
                      "\nlast:\n";
        for (const std::string& line : history_) difference_ += "  " + line + "\n";
    }

    standing_server& server_;
    sim::generator random_;
    sim::dice dice_;
    std::uint64_t seed_;
    wall now_ = begin;
    model_server model_;
    sim::wire_socket control_;
    std::array<peer, connections> peers_;
    std::deque<std::string> history_;
    std::string difference_;
    std::size_t sent_ = 0;
    std::size_t waits_ = 0;
    std::size_t errors_ = 0;
};

}  // namespace sim
