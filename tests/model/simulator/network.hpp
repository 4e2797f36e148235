// The way between processes and the server: sockets, what travels on them, and what goes wrong there.
//
//   class process;                 // a virtual process: a domain that can die
//   struct hazards;                // latencies, and the chances of each fault
//   class socket;                  // a connection's two ends; first sent, first there
//   class message;                 // a request on its way; owns its arguments
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

#include "model/simulator/fibers.hpp"
#include "model/simulator/world.hpp"

namespace sim {

class socket;

class process : public domain {
  public:
    process(std::uint64_t which, nanos offset, std::int64_t ppm) : domain(offset, ppm), number(which) {}

    const std::uint64_t number;
    bool dead = false;                           // nothing of it counts any more
    bool left = false;                           // it ended its connection
    std::vector<std::weak_ptr<socket>> sockets;  // all that it has opened and may still have
};

/// Chances are per million messages.
struct hazards {
    nanos least = 30us;  // latency, one way
    nanos usual = 150us;
    nanos slow = 5ms;
    std::uint32_t slows = 20'000;
    std::uint32_t lose_request = 0;  // the connection breaks before the request comes
    std::uint32_t lose_reply = 0;    // it is executed, then the connection breaks
    std::uint32_t silence = 0;       // from here on nothing passes on this socket, and nobody is told
    std::uint32_t late = 0;          // the request comes up to `latest` later
    std::uint32_t refuse = 0;        // the server answers with an error
    std::uint32_t strike = 0;  // the process is stopped or killed just when it sends, or when an answer comes
    nanos latest = 500ms;
    std::uint32_t lose_message = 0;  // of what is published: it does not come, and nobody knows
    bool may_subscribe = true;
    bool may_publish = true;
    bool may_count = true;  // who hears: PUBSUB

    nanos latency(dice& d) const {
        return d.chance(slows) ? d.between(usual, slow) : d.between(least, usual);
    }
    void calm() {
        lose_request = lose_reply = silence = late = refuse = strike = lose_message = 0;
        usual = 150us;
        slow = 5ms;
    }
};

/// Both ends of a connection. The client's end is used by one fiber at a time.
class socket {
  public:
    socket(process& whose, std::uint64_t which) : owner(whose), number(which) {}
    socket(const socket&) = delete;
    socket& operator=(const socket&) = delete;

    process& owner;
    const std::uint64_t number;  // by which the server knows it
    nanos last_up{0};            // when what was sent last comes
    nanos last_down{0};
    bool silent = false;    // nothing passes any more, either way
    bool purged = false;    // what is on its way to the server will not come
    bool at_server = true;  // the server knows it

    // The client's end.
    std::deque<distlock::reply> inbox;
    bool ended = false;   // the client has heard that it is over
    bool closed = false;  // the client has no use for it any more
    fiber* reader = nullptr;
};

/// A request on its way. Pooled.
class message final : public happening {
  public:
    class sink {
      public:
        virtual void come(message&) = 0;

      protected:
        ~sink() = default;
    };

    /// Effects: takes the arguments over. The text of a script is a constant, and is not copied.
    void load(sink& to, std::shared_ptr<socket> by, const distlock::command& cmd, world& w) {
        to_ = &to;
        from = std::move(by);
        size_ = cmd.argv().size();
        if (size_ > most_arguments) w.fail("a command of too many words for this model");
        std::size_t used = 0;
        for (std::size_t i = 0; i < size_; ++i) {
            const std::string_view text = cmd.argv()[i];
            if (i == 1 && cmd.argv()[0] == "EVAL") {
                argv_[i] = text;
                continue;
            }
            if (used + text.size() > text_.size()) w.fail("a command that is too long for this model");
            std::copy(text.begin(), text.end(), text_.begin() + static_cast<std::ptrdiff_t>(used));
            argv_[i] = {text_.data() + used, text.size()};
            used += text.size();
        }
        is_end = false;
    }
    /// Effects: it says that the connection is over.
    void load_end(sink& to, std::shared_ptr<socket> by) {
        to_ = &to;
        from = std::move(by);
        size_ = 0;
        is_end = true;
    }

    std::span<const std::string_view> argv() const { return {argv_.data(), size_}; }
    void happen(std::uint64_t /*what*/) override { to_->come(*this); }

    std::shared_ptr<socket> from;
    bool is_end = false;
    bool loses_reply = false;
    bool silences = false;  // its reply, and all after it
    bool refused = false;

  private:
    sink* to_ = nullptr;
    std::size_t size_ = 0;
    static constexpr std::size_t most_arguments = 64;
    std::array<std::string_view, most_arguments> argv_;
    std::array<char, 4096> text_;
};

}  // namespace sim
