// Nodes of a Cluster that say what a test tells them to.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/net/hash_slot.hpp>

#include "fake_server.hpp"

/// Fake servers that know each other's ports.
class fake_cluster {
  public:
    using words = fake_server::words;
    /// Returns: what node number `node` answers, in bytes of the protocol.
    using answering =
        std::function<std::string(const fake_cluster& all, std::size_t node, const words& command)>;

    fake_cluster(std::size_t nodes, answering answer) : answer_(std::move(answer)) {
        for (std::size_t i = 0; i < nodes; ++i) {
            nodes_.push_back(std::make_unique<fake_server>([this, i](fake_server::peer& p) {
                complete_.wait(false);
                while (const auto command = p.next_command()) {
                    if (!p.send(answer_(*this, i, *command))) break;
                }
            }));
        }
        complete_ = true;
        complete_.notify_all();
    }

    const fake_server& node(std::size_t i) const { return *nodes_[i]; }
    std::string uri(std::size_t seed = 0, const std::string& options = "") const {
        return "redis+cluster://127.0.0.1:" + port(seed) + options;
    }
    /// Returns: how many commands that began so all nodes got.
    int commands(std::string_view word) const {
        int count = 0;
        for (const auto& one : nodes_) count += one->commands(word);
        return count;
    }

    /// Which of the nodes has a slot, where each has as many as the others.
    std::size_t share_of(std::uint16_t slot) const { return slot * nodes_.size() / distlock::slot_count; }

    /// Returns: the answer to CLUSTER SLOTS where the share of node i belongs to node owners[i].
    std::string slots(const std::vector<std::size_t>& owners) const {
        std::string text = "*" + std::to_string(owners.size()) + "\r\n";
        for (std::size_t i = 0; i < owners.size(); ++i) {
            const auto first = (i * distlock::slot_count + owners.size() - 1) / owners.size();
            const auto end = ((i + 1) * distlock::slot_count + owners.size() - 1) / owners.size();
            text += "*3\r\n:" + std::to_string(first) + "\r\n:" + std::to_string(end - 1) +
                    "\r\n*2\r\n$9\r\n127.0.0.1\r\n:" + port(owners[i]) + "\r\n";
        }
        return text;
    }
    /// Returns: that answer, but with the last node at another port.
    static std::string with_last_at(const std::string& map, const std::string& port) {
        return map.substr(0, map.rfind(':')) + ":" + port + "\r\n";
    }
    std::string moved(std::uint16_t slot, std::size_t to) const { return redirect("MOVED", slot, to); }
    std::string ask(std::uint16_t slot, std::size_t to) const { return redirect("ASK", slot, to); }

  private:
    std::string port(std::size_t i) const { return std::to_string(nodes_[i]->port()); }
    std::string redirect(const std::string& word, std::uint16_t slot, std::size_t to) const {
        return "-" + word + " " + std::to_string(slot) + " 127.0.0.1:" + port(to) + "\r\n";
    }

    answering answer_;
    std::atomic<bool> complete_{false};  // all nodes are there to be named
    std::vector<std::unique_ptr<fake_server>> nodes_;
};
