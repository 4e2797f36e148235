// A master with replicas, on this machine.
//
//   class replicated_server {
//     explicit replicated_server(std::size_t replicas = 1);
//     redis_server& master() const, replica(std::size_t i = 0) const;
//     bool replicate() const;
//   };
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>
#include <distlock/wire/acknowledgement.hpp>

#include "support/catch.hpp"
#include "support/waiting.hpp"

class replicated_server {
  public:
    using server = distlock::testing::redis_server;

    explicit replicated_server(std::size_t replicas = 1)
        : master_(std::make_unique<server>(
              distlock::testing::redis_server_options{.tcp = true, .arguments = quick()})) {
        for (std::size_t i = 0; i < replicas; ++i) {
            auto more = quick();
            more.insert(more.end(), {"--replicaof", "127.0.0.1 " + std::to_string(master_->port())});
            replicas_.push_back(std::make_unique<server>(
                distlock::testing::redis_server_options{.tcp = true, .arguments = more}));
        }
        REQUIRE(replicate());
    }

    server& master() const { return *master_; }
    server& replica(std::size_t i = 0) const { return *replicas_.at(i); }

    /// Returns: whether all replicas acknowledge what is written, at last. One that the master calls online,
    /// and that has what was written, may not do so for a second.
    bool replicate() const {
        distlock::hiredis_connection redis(master_->uri());
        const distlock::command write{{"SET", "replicated", "yes"}, "replicated"};
        const distlock::replica_wait wait(static_cast<int>(replicas_.size()), std::chrono::milliseconds{100});
        return eventually([&] {
            const auto said = redis.execute_acknowledged(write, wait.behind(write)).replicated;
            return wait.read(said).what == distlock::acknowledgement::kind::enough;
        });
    }

  private:
    static std::vector<std::string> quick() {
        return {"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"};
    }

    std::unique_ptr<server> master_;
    std::vector<std::unique_ptr<server>> replicas_;
};
