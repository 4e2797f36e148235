// A Redis Cluster of three masters on this machine.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <distlock/testing.hpp>

#include "support/catch.hpp"
#include "waiting.hpp"

class cluster {
  public:
    cluster() {
        constexpr int slots = 16384;
        for (std::size_t i = 0; i < nodes_.size(); ++i) {
            const auto bus = std::to_string(distlock::testing::impl::unused_port());
            nodes_[i] =
                std::make_unique<distlock::testing::redis_server>(distlock::testing::redis_server_options{
                    .tcp = true, .arguments = {"--cluster-enabled", "yes", "--cluster-port", bus}});
            std::vector<std::string> numbers;
            for (int slot = 0; slot < slots; ++slot) {
                if (static_cast<std::size_t>(slot) * nodes_.size() / slots == i)
                    numbers.push_back(std::to_string(slot));
            }
            std::vector<std::string_view> words{"CLUSTER", "ADDSLOTS"};
            words.insert(words.end(), numbers.begin(), numbers.end());
            REQUIRE(nodes_[i]->command(words) == "OK");
            if (i > 0) {
                const auto port = std::to_string(nodes_[i]->port());
                REQUIRE(nodes_[0]->command({"CLUSTER", "MEET", "127.0.0.1", port, bus}) == "OK");
            }
        }
        for (const auto& one : nodes_) {
            REQUIRE(eventually([&] {
                const auto info = one->command({"CLUSTER", "INFO"});
                return info.find("cluster_state:ok") != std::string::npos &&
                       info.find("cluster_known_nodes:3") != std::string::npos;
            }));
        }
    }

    const auto& nodes() const { return nodes_; }
    distlock::testing::redis_server& owner_of(const std::string& key) const {
        const auto slot = std::stoul(nodes_[0]->command({"CLUSTER", "KEYSLOT", key}));
        return *nodes_[slot * nodes_.size() / 16384];
    }

  private:
    std::array<std::unique_ptr<distlock::testing::redis_server>, 3> nodes_;
};

inline const cluster& three_masters() {
    static const cluster one;
    return one;
}
