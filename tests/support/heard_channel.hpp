// A channel of its own, on which a client that does nothing else listens.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "fresh_name.hpp"
#include "redis_link.hpp"

class heard_channel {
  public:
    explicit heard_channel(const std::string& socket_path) : ears_(socket_path) { ears_.subscribe(name_); }
    const std::string& name() const { return name_; }
    /// Returns: as redis_link::message().
    std::optional<std::string> message(std::chrono::milliseconds patience = std::chrono::seconds{10}) {
        return ears_.message(patience);
    }

  private:
    const std::string name_ = "process:" + fresh_name();
    redis_link ears_;
};
