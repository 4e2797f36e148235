// A master with two replicas, or another number, and three Sentinels that watch it, on this machine.
//
//   class sentinels {
//     explicit sentinels(std::size_t replicas = 2);
//     std::string uri(login = "", options = "") const;
//     redis_server& master() const;        // by the Sentinels
//     const auto& nodes() const, watchers() const;
//     void fail_over() const;              // the same; returns when all Sentinels name another master
//     void demand() const;                 // SENTINEL FAILOVER
//     void replace_by_hand(old) const;     // REPLICAOF, and the Sentinels are told
//     bool name_another_than(old) const;   // all of them, one and the same
//     bool most_name_another_than(old) const;
//     bool settled() const;
//     void set(what, to) const;            // SENTINEL SET, all of them
//     std::string logs() const;
//     void take_back(old) const;           // as a replica; returns when all have what the master has
//   };
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <distlock/testing.hpp>

#include "support/catch.hpp"
#include "support/waiting.hpp"

class sentinels {
  public:
    using server = distlock::testing::redis_server;
    using options = distlock::testing::redis_server_options;

    /// A time in milliseconds in which a master of ours answers, whatever else the machine does.
    static constexpr std::string_view never_down = "10000";

    explicit sentinels(std::size_t replicas = 2) {
        for (std::size_t i = 0; i <= replicas; ++i) {
            nodes_.push_back(std::make_unique<server>(options{
                .tcp = true,
                .arguments = {"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"}}));
            if (i > 0) {
                const auto port = std::to_string(nodes_[0]->port());
                REQUIRE(nodes_[i]->command({"REPLICAOF", "127.0.0.1", port}) == "OK");
                REQUIRE(eventually([&] { return replicates(*nodes_[i]); }, std::chrono::seconds{30}));
            }
        }
        for (auto& one : watchers_) {
            one = std::make_unique<server>(options{.tcp = true, .arguments = {"--sentinel"}});
            monitor(*one, *nodes_[0], "500");
        }
        wait_for_acquaintance();
    }

    std::string uri(const std::string& login = "", const std::string& rest = "") const {
        std::string all = "redis+sentinel://" + login;
        for (const auto& one : watchers_)
            all += (&one == &watchers_[0] ? "127.0.0.1:" : ",127.0.0.1:") + std::to_string(one->port());
        return all + "/m" + rest;
    }

    const auto& nodes() const { return nodes_; }
    const auto& watchers() const { return watchers_; }

    server& master() const {
        const auto port = port_by(*watchers_[0]);
        for (const auto& one : nodes_) {
            if (std::to_string(one->port()) == port) return *one;
        }
        FAIL("the Sentinels name a master that is none of ours");
        return *nodes_[0];
    }

    /// Returns: whether all Sentinels name one and the same, another than that.
    bool name_another_than(const server& old) const {
        const auto port = port_by(*watchers_[0]);
        return port != std::to_string(old.port()) && port == port_by(*watchers_[1]) &&
               port == port_by(*watchers_[2]);
    }

    /// Returns: what the server says; it is asked again when a Sentinel has ended all its sockets, as they do
    /// when they change its role.
    static std::string ask(const server& node, std::initializer_list<std::string_view> question) {
        std::string said;
        REQUIRE(eventually([&] {
            try {
                said = node.command(question);
                return true;
            } catch (const distlock::error&) {
                return false;
            }
        }));
        return said;
    }

    /// Returns: whether all of them name one and the same, which says so, too, and has all replicas.
    bool settled() const {
        const auto port = port_by(*watchers_[0]);
        return port == port_by(*watchers_[1]) && port == port_by(*watchers_[2]) &&
               ask(master(), {"INFO", "replication"})
                       .find("role:master\r\nconnected_slaves:" + std::to_string(nodes_.size() - 1)) !=
                   std::string::npos;
    }
    bool most_name_another_than(const server& old) const {
        const auto port = std::to_string(old.port());
        return std::count_if(watchers_.begin(), watchers_.end(),
                             [&](const auto& one) { return port_by(*one) != port; }) >= 2;
    }

    /// Effects: makes another server the master, as an operator does who does not leave it to the Sentinels,
    /// and tells them. All of them forget the old one before any is told: it would believe another's word of
    /// an epoch that is newer than none.
    void replace_by_hand(const server& old) const {
        const auto next = std::find_if(nodes_.begin(), nodes_.end(),
                                       [&](const auto& one) { return one.get() != &old && one->running(); });
        REQUIRE(ask(**next, {"REPLICAOF", "NO", "ONE"}) == "OK");
        for (const auto& one : watchers_) REQUIRE(one->command({"SENTINEL", "REMOVE", "m"}) == "OK");
        for (const auto& one : watchers_) monitor(*one, **next, never_down);
        const auto port = std::to_string((*next)->port());
        for (const auto& one : nodes_) {
            if (one != *next) REQUIRE(ask(*one, {"REPLICAOF", "127.0.0.1", port}).starts_with("OK"));
        }
    }

    /// Returns: what the Sentinels wrote down, for a person to read.
    std::string logs() const {
        std::string all;
        for (const auto& one : watchers_) {
            std::ifstream file(one->folder() + "/server.log");
            for (std::string line; std::getline(file, line);) all += line + "\n";
        }
        return all;
    }

    /// Effects: SENTINEL FAILOVER; does not wait for its end. Who is asked hears once a second whether a
    /// replica is the master yet, gives up after failover-timeout, and begins nothing anew that was demanded:
    /// it takes its time.
    void demand() const {
        REQUIRE(watchers_[0]->command({"SENTINEL", "SET", "m", "failover-timeout", "10000"}) == "OK");
        REQUIRE(eventually([&] { return watchers_[0]->command({"SENTINEL", "FAILOVER", "m"}) == "OK"; }));
    }
    /// Effects: demand(). Returns when all Sentinels name another master.
    void fail_over() const {
        const server& old = master();
        demand();
        REQUIRE(eventually([&] { return name_another_than(old); }, std::chrono::seconds{30}));
    }

    void set(std::string_view what, std::string_view to) const {
        for (const auto& one : watchers_) REQUIRE(one->command({"SENTINEL", "SET", "m", what, to}) == "OK");
    }
    /// Effects: what was the master before is a replica that has all the new one has.
    void take_back(const server& old) const {
        REQUIRE(eventually([&] { return name_another_than(old); }, std::chrono::seconds{30}));
        const server& fresh = master();
        const auto port = std::to_string(fresh.port());
        REQUIRE(ask(old, {"REPLICAOF", "127.0.0.1", port}).starts_with("OK"));
        for (const auto& one : nodes_) {
            const auto replicates = [&] {
                const auto said = ask(*one, {"INFO", "replication"});
                return said.find("master_port:" + port) != std::string::npos &&
                       said.find("master_link_status:up") != std::string::npos;
            };
            if (one.get() != &fresh) REQUIRE(eventually(replicates, std::chrono::seconds{30}));
        }
    }

    /// Returns when all Sentinels know each other and the replicas.
    void wait_for_acquaintance() const {
        for (const auto& one : watchers_) {
            REQUIRE(eventually(
                [&] {
                    const auto known = one->command({"SENTINEL", "MASTER", "m"});
                    const auto replicas = "num-slaves\n" + std::to_string(nodes_.size() - 1) + "\n";
                    return known.find(replicas) != std::string::npos &&
                           known.find("num-other-sentinels\n2\n") != std::string::npos;
                },
                std::chrono::seconds{30}));
        }
    }

  private:
    static void monitor(const server& watcher, const server& master, std::string_view down_after) {
        const auto port = std::to_string(master.port());
        REQUIRE(watcher.command({"SENTINEL", "MONITOR", "m", "127.0.0.1", port, "2"}) == "OK");
        REQUIRE(watcher.command({"SENTINEL", "SET", "m", "down-after-milliseconds", down_after}) == "OK");
        REQUIRE(watcher.command({"SENTINEL", "SET", "m", "failover-timeout", "3000"}) == "OK");
    }
    static std::string port_by(const server& watcher) {
        const auto said = watcher.command({"SENTINEL", "GET-MASTER-ADDR-BY-NAME", "m"});
        return said.substr(said.find('\n') + 1);
    }
    static bool replicates(const server& node) {
        return node.command({"INFO", "replication"}).find("master_link_status:up") != std::string::npos;
    }

    std::vector<std::unique_ptr<server>> nodes_;
    std::array<std::unique_ptr<server>, 3> watchers_;
};
