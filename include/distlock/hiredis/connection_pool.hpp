// The interface behind a connection that follows its servers. Its sockets and threads are templates: they are
// compiled where such a connection is made, and not where its header is included.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string_view>

#include <distlock/net/master_listener.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock::detail {

/// As the functions of the connections. Thread-safe.
class connection_pool {
  public:
    connection_pool() = default;
    connection_pool(const connection_pool&) = delete;
    connection_pool& operator=(const connection_pool&) = delete;
    virtual ~connection_pool() = default;

    virtual reply execute(const command& cmd) = 0;
    virtual acknowledged_reply execute_acknowledged(const command& write, const command& wait) = 0;
    virtual void pipeline(std::span<const command> commands, std::span<reply> replies) = 0;
    virtual bool post(const command& cmd, std::shared_ptr<receipt> wanted) = 0;
    virtual void collect() = 0;
    virtual std::shared_ptr<subscription> subscribe(std::string_view channel) = 0;
    virtual void on_master_change(std::weak_ptr<master_listener> who) = 0;
    virtual void follow() = 0;
    virtual std::string_view identity() const noexcept = 0;
    virtual std::chrono::milliseconds command_timeout() const noexcept = 0;
    virtual std::chrono::milliseconds connect_timeout() const noexcept = 0;
};

}  // namespace distlock::detail
