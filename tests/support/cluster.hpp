// A Redis Cluster of three masters on this machine, each with a replica if asked.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/net/hash_slot.hpp>
#include <distlock/testing.hpp>

#include "support/catch.hpp"
#include "waiting.hpp"

class cluster {
  public:
    using server = distlock::testing::redis_server;
    static constexpr std::size_t masters = 3;
    static constexpr std::chrono::seconds set_up{30};  // nodes agree by gossip

    explicit cluster(bool replicated = false) {
        std::vector<std::string> buses;
        for (std::size_t i = 0; i < (replicated ? 2 * masters : masters); ++i) {
            buses.push_back(std::to_string(distlock::testing::impl::unused_port()));
            nodes_.push_back(std::make_unique<server>(distlock::testing::redis_server_options{
                .tcp = true,
                .arguments = {"--cluster-enabled", "yes", "--cluster-port", buses[i],
                              "--cluster-node-timeout", "2000", "--repl-diskless-sync-delay", "0"}}));
            if (i < masters) add_slots(i);
            // Nodes of one epoch would first have to agree on others, and elect nobody until then.
            REQUIRE(nodes_[i]->command({"CLUSTER", "SET-CONFIG-EPOCH", std::to_string(i + 1)}) == "OK");
            if (i > 0) {
                const auto port = std::to_string(nodes_[i]->port());
                REQUIRE(nodes_[0]->command({"CLUSTER", "MEET", "127.0.0.1", port, buses[i]}) == "OK");
            }
        }
        for (const auto& one : nodes_) {
            REQUIRE(eventually(
                [&] {
                    const auto info = one->command({"CLUSTER", "INFO"});
                    return info.find("cluster_state:ok") != std::string::npos &&
                           info.find("cluster_known_nodes:" + std::to_string(nodes_.size())) !=
                               std::string::npos;
                },
                set_up));
        }
        for (std::size_t i = masters; i < nodes_.size(); ++i) {
            const auto id = id_of(*nodes_[i - masters]);
            REQUIRE(eventually(
                [&] {
                    return nodes_[i]->command({"CLUSTER", "REPLICATE", id}) == "OK";
                },
                set_up));
        }
        for (std::size_t i = masters; i < nodes_.size(); ++i) {
            REQUIRE(eventually([&] { return replicates(*nodes_[i]); }, set_up));
            // A master that does not know its replica does not let it take over, nor others vote for it.
            const auto id = id_of(*nodes_[i - masters]);
            for (const auto& one : nodes_) {
                REQUIRE(eventually(
                    [&] {
                        return one->command({"CLUSTER", "REPLICAS", id}).find(id_of(*nodes_[i])) !=
                               std::string::npos;
                    },
                    set_up));
            }
        }
    }

    /// The masters come first, as they were at the beginning; then the replica of each.
    const auto& nodes() const { return nodes_; }

    /// Returns: the master that had the slot of `key` at the beginning.
    server& owner_of(const std::string& key) const {
        return *nodes_[distlock::hash_slot(key) * masters / distlock::slot_count];
    }
    static std::string id_of(const server& node) { return node.command({"CLUSTER", "MYID"}); }

    std::string uri(const std::string& login = "", const std::string& options = "") const {
        std::string all = "redis+cluster://" + login;
        for (std::size_t i = 0; i < masters; ++i)
            all += (i > 0 ? ",127.0.0.1:" : "127.0.0.1:") + std::to_string(nodes_[i]->port());
        return all + options;
    }

    /// Effects: the slot is about to move key by key, and no key has moved.
    static void begin_migration(std::uint16_t slot, const server& from, const server& to) {
        const auto number = std::to_string(slot);
        REQUIRE(to.command({"CLUSTER", "SETSLOT", number, "IMPORTING", id_of(from)}) == "OK");
        REQUIRE(from.command({"CLUSTER", "SETSLOT", number, "MIGRATING", id_of(to)}) == "OK");
    }
    /// Effects: moves a slot the old way, key by key, and waits until all nodes say so: a node that hears
    /// late news of the slot would drop its keys.
    void migrate(std::uint16_t slot, const server& from, const server& to) const {
        const auto number = std::to_string(slot);
        const auto port = std::to_string(to.port());
        begin_migration(slot, from, to);
        for (;;) {
            const auto key = from.command({"CLUSTER", "GETKEYSINSLOT", number, "1"});
            if (key.empty()) break;
            const auto done = from.command({"MIGRATE", "127.0.0.1", port, key, "0", "5000"});
            REQUIRE((done == "OK" || done == "NOKEY"));
        }
        const auto owner = id_of(to);
        REQUIRE(to.command({"CLUSTER", "SETSLOT", number, "NODE", owner}) == "OK");
        REQUIRE(from.command({"CLUSTER", "SETSLOT", number, "NODE", owner}) == "OK");
        REQUIRE(eventually([&] { return all_agree(); }, set_up));
    }

    /// Effects: moves a slot in one piece, where the servers can: from Valkey 9 and Redis 8.4
    /// on. Else as migrate().
    /// Returns: by which way, for a message.
    std::string migrate_whole(std::uint16_t slot, const server& from, const server& to) const {
        const auto number = std::to_string(slot);
        std::string way = "CLUSTER MIGRATESLOTS";
        auto said =
            from.command({"CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", number, number, "NODE", id_of(to)});
        if (is_unknown(said)) {
            way = "CLUSTER MIGRATION IMPORT";
            said = to.command({"CLUSTER", "MIGRATION", "IMPORT", number, number});
        }
        if (is_unknown(said)) {
            migrate(slot, from, to);
            return "key by key, since the server cannot move a slot whole";
        }
        INFO(way << ": " << said);
        REQUIRE_FALSE(said.starts_with("-"));
        const bool moved = eventually([&] { return has(to, slot) && all_agree(); }, set_up);
        if (!moved) {
            UNSCOPED_INFO(from.command({"CLUSTER", "GETSLOTMIGRATIONS"}));
            UNSCOPED_INFO(to.command({"CLUSTER", "MIGRATION", "STATUS", "ALL"}));
        }
        REQUIRE(moved);
        return way;
    }

  private:
    void add_slots(std::size_t i) const {
        std::vector<std::string> numbers;
        for (std::size_t slot = 0; slot < distlock::slot_count; ++slot) {
            if (slot * masters / distlock::slot_count == i) numbers.push_back(std::to_string(slot));
        }
        std::vector<std::string_view> words{"CLUSTER", "ADDSLOTS"};
        words.insert(words.end(), numbers.begin(), numbers.end());
        REQUIRE(nodes_[i]->command(words) == "OK");
    }
    static bool is_unknown(const std::string& said) {
        return said.starts_with("-ERR") && said.find("nknown subcommand") != std::string::npos;
    }
    bool all_agree() const {
        const auto said = view_of(*nodes_[0]);
        return std::all_of(nodes_.begin(), nodes_.end(),
                           [&](const auto& one) { return view_of(*one) == said; });
    }
    /// Returns: whether the node says that it has the slot.
    static bool has(const server& node, std::uint16_t slot) {
        std::istringstream all(node.command({"CLUSTER", "NODES"}));
        for (std::string line; std::getline(all, line);) {
            if (line.find("myself") == std::string::npos) continue;
            std::istringstream words(line);
            const std::vector<std::string> parts{std::istream_iterator<std::string>(words), {}};
            return std::any_of(parts.begin() + std::min<std::ptrdiff_t>(8, std::ssize(parts)), parts.end(),
                               [&](const std::string& range) {
                                   if (range.front() == '[') return false;  // on its way, key by key
                                   const auto dash = range.find('-');
                                   const int first = std::stoi(range);
                                   const int last =
                                       dash == std::string::npos ? first : std::stoi(range.substr(dash + 1));
                                   return first <= slot && slot <= last;
                               });
        }
        return false;
    }
    /// Returns: which nodes there are, with their epochs and slots, as that one says.
    static std::vector<std::string> view_of(const server& node) {
        std::vector<std::string> lines;
        std::istringstream all(node.command({"CLUSTER", "NODES"}));
        for (std::string line; std::getline(all, line);) {
            // id, address, flags, master, ping, pong, epoch, link, slots; of these what is not the
            // speaker's own affair.
            std::istringstream words(line);
            std::vector<std::string> parts{std::istream_iterator<std::string>(words), {}};
            if (parts.size() < 8) continue;
            std::string kept = parts[0] + " " + parts[6];
            for (std::size_t i = 8; i < parts.size(); ++i) kept += " " + parts[i];
            lines.push_back(std::move(kept));
        }
        std::sort(lines.begin(), lines.end());
        return lines;
    }
    static bool replicates(const server& node) {
        return node.command({"INFO", "replication"}).find("master_link_status:up") != std::string::npos;
    }

    std::vector<std::unique_ptr<server>> nodes_;
};

inline const cluster& three_masters() {
    static const cluster one;
    return one;
}
