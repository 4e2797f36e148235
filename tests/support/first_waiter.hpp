// The first waiter of a queue, which keeps out others before it can be served: what the scripts know of it
// and ask it, and one that is gone.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <distlock/base/token.hpp>
#include <distlock/wire/enter_mode.hpp>
#include <distlock/wire/outcome.hpp>

#include "heard_channel.hpp"
#include "redis_link.hpp"

/// Returns: what is known of it, as if two seconds had passed.
inline std::string two_seconds_older(std::string known) {
    const auto at = known.find(' ', known.find(' ') + 1) + 1;
    const auto size = known.find(' ', at) - at;
    return known.replace(at, size, std::to_string(std::stoll(known.substr(at)) - 2000));
}

/// Returns: what the message asks `whom`; none where it asks nothing, or another waiter.
template <class Dialect>
std::optional<distlock::handover> question_to(const std::optional<std::string>& message,
                                              const distlock::token& whom, std::string_view name) {
    const auto said = message ? Dialect::read_message(*message) : std::nullopt;
    const bool asks = said && said->asks() && said->owner == whom && Dialect::name_in(*message) == name;
    return asks ? said : std::nullopt;
}
/// Returns: whether the message asks `whom` whether it is there.
template <class Dialect>
bool asks(const std::optional<std::string>& message, const distlock::token& whom, std::string_view name) {
    const auto said = question_to<Dialect>(message, whom, name);
    return said && !said->watch;
}
/// Returns: whether it asks `whom` to watch the queue.
template <class Dialect>
bool asks_to_watch(const std::optional<std::string>& message, const distlock::token& whom,
                   std::string_view name) {
    const auto said = question_to<Dialect>(message, whom, name);
    return said && said->watch;
}

/// A waiter that never looks again, whose socket for messages stays open.
class gone_waiter {
  public:
    explicit gone_waiter(const std::string& socket_path) : hands_(socket_path), ears_(socket_path) {}
    const std::string& channel() const { return ears_.name(); }
    /// Effects: it joins the queue, as `wants` says, whose channel is its own.
    template <class Dialect>
    void join(const Dialect& wants) {
        static_cast<void>(hands_.ask(wants.enter(me_, distlock::enter_mode::join)));
    }

  private:
    const distlock::token me_ = distlock::token::generate();
    redis_link hands_;
    heard_channel ears_;
};
