// The same random commands to the model and to a real server, and every reply compared.
//
//   class standing_server;    // the real one; its wall clock stands where it is told
//   class comparison { comparison(standing_server&, seed); std::string run(); };
//       // what differs; empty: nothing
//
// The clock is moved between batches only. A batch is what one connection sends at once; others may have
// subscribed meanwhile.
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

#include "model/simulator/model_generator.hpp"
#include "model/simulator/model_server.hpp"
#include "model/simulator/model_wire.hpp"
#include "support/shifted_clock.hpp"

namespace sim {

/// A server whose wall clock stands, and which deletes no key by itself, so that its clock
/// may be set back, too.
class standing_server {
  public:
    using wall = model_server::wall;

    /// Throws: distlock::error when there is no server; std::runtime_error for one that cannot be
    /// told to delete nothing.
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
        const bool permitted = !dice_.percent(20);
        const bool counts = !dice_.percent(20);
        ask_control({"ACL", "SETUSER", "default", permitted ? "allchannels" : "resetchannels",
                     counts ? "+pubsub" : "-pubsub"});
        model_.permit(permitted, permitted, counts);
        if (server.kind() == server_kind::redis_6) model_.know_no_shards();
        if (server.kind() == server_kind::newer) model_.write_numbers(lua_spelling::in_full);
        for (std::size_t i = 0; i < connections; ++i) connect(i);
    }

    /// Returns: what differs; empty: nothing did.
    std::string run() {
        while (difference_.empty() && sent_ < commands_per_seed) {
            if (dice_.percent(45)) move_clock();
            if (dice_.percent(2)) reconnect(dice_.below(connections));
            batch(dice_.below(connections));
        }
        return difference_;
    }
    std::size_t sent() const { return sent_; }
    std::size_t messages() const { return messages_; }
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
    void move_clock() {
        now_ = random_.move(model_, now_);
        server_.show(now_);
        note("now " + std::to_string(now_.count()));
    }

    void batch(std::size_t who) {
        for (auto left = 1 + dice_.below(24); left > 0 && sent_ < commands_per_seed; --left)
            send(who, random_.next(model_, now_, who));
        peers_[who].socket->flush();
        compare();
    }

    void send(std::size_t who, const words& command) {
        ++sent_;
        peers_[who].socket->add(views(command));
        auto answer = model_.execute(who, views(command), now_);
        note(std::to_string(sent_) + ": connection " + std::to_string(who) + ": " + sim::show(command) +
             "-> " + (answer ? sim::show(*answer) : "messages"));
        model_.take_messages([&](model_server::client to, reply what) {
            note("   connection " + std::to_string(to) + " -> " + sim::show(what));
            if (what.is(reply_kind::array)) ++messages_;
            peers_[to].expected.push_back({sent_, std::move(what)});
        });
        if (!answer) return;
        if (answer->is(reply_kind::error)) ++errors_;
        peers_[who].expected.push_back({sent_, *std::move(answer)});
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
                report(i, sent_, sim::show(one.socket->receive().value_or(reply())), "no reply");
        }
    }
    bool alike(const reply& real, const reply& model) const {
        if (real.kind() != model.kind() || real.number() != model.number()) return false;
        // The texts are those of Redis 7.0. The first word is the same everywhere; before 7.0 it stands
        // within what is said about a script.
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
    std::size_t messages_ = 0;
    std::size_t errors_ = 0;
};

}  // namespace sim
