// A connection of any type: what the engine talks to.
//
//   class any_connection {
//     reply execute(const command&) noexcept;  void execute_all(commands, replies) noexcept;
//     acknowledged_reply execute_acknowledged(write, wait) noexcept;
//     bool post(const command&, std::shared_ptr<receipt>);  void collect();         // where it can
//     std::shared_ptr<subscription> subscribe(std::string_view channel);            // where it can
//     void on_master_change(who);  void follow();                                   // where it can
//     std::string identity() const;
//     std::optional<milliseconds> command_timeout() const;  milliseconds connect_timeout() const;
//     const abilities can;
//   };
//   template <connection C> class any_connection_of : public any_connection { any_connection_of(C&); };
//   void execute_all(C&, commands, replies);   // over a connection of any type, in one go where it can
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <distlock/net/connection.hpp>
#include <distlock/net/master_listener.hpp>
#include <distlock/net/receipt.hpp>
#include <distlock/net/subscription.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

namespace distlock {

/// See the concepts in connection.hpp. The engine is compiled once for all of them. Thread-safe.
class any_connection {
  public:
    struct abilities {
        bool pipeline = false;
        bool acknowledge = false;
        bool post = false;
        bool confirm = false;  ///< it notes the answer to a posted command in the receipt
        bool subscribe = false;
        bool shard = false;  ///< it hears what SPUBLISH sends, not PUBLISH
        bool follow = false;
    };

    any_connection(const any_connection&) = delete;
    any_connection& operator=(const any_connection&) = delete;
    virtual ~any_connection() = default;

    const abilities can;

    /// Effects and Returns: as distlock::execute().
    virtual reply execute(const command& cmd) noexcept = 0;

    /// Effects: as distlock::execute_all().
    void execute_all(std::span<const command> commands, std::span<reply> replies) noexcept;

    /// Preconditions: can.pipeline or can.acknowledge; `wait` is bound to the write.
    /// Effects: as distlock::execute() of the write, with `wait` behind it each time.
    acknowledged_reply execute_acknowledged(const command& write, const command& wait) noexcept;

    /// Returns: whether it was handed to the system. Without can.confirm nothing is noted in `wanted`; null:
    /// nobody wants the answer.
    virtual bool post(const command& cmd, const std::shared_ptr<receipt>& wanted) noexcept = 0;
    virtual void collect() noexcept = 0;

    /// Preconditions: can.subscribe.
    /// Throws: what the connection throws.
    virtual std::shared_ptr<subscription> subscribe(std::string_view channel) = 0;

    /// Effects: `who` is told when another server takes the place of the master; by a connection that does
    /// not follow one, never.
    /// Throws: std::bad_alloc.
    virtual void on_master_change(const std::weak_ptr<master_listener>& who) = 0;
    virtual void follow() noexcept = 0;

    /// Returns: which server it leads to, equal for connections to one server; empty: it does not say.
    virtual std::string identity() const = 0;

    /// Returns: how long it waits for an answer at most; none: it does not say.
    virtual std::optional<std::chrono::milliseconds> command_timeout() const noexcept = 0;
    /// Returns: how long it takes at most until a command is sent; zero: it does not say.
    virtual std::chrono::milliseconds connect_timeout() const noexcept = 0;

  protected:
    explicit any_connection(const abilities& what) noexcept : can(what) {}

  private:
    virtual void call_all(std::span<const command> commands, std::span<reply> replies) noexcept = 0;
    virtual acknowledged_reply call_acknowledged(const command& write, const command& wait) noexcept = 0;
    void one_by_one(std::span<const command> commands, std::span<reply> replies) noexcept;
    // Effects: executes again, with their bodies, the scripts that the server lacked.
    // Throws: std::bad_alloc; nothing is sent then.
    void call_with_bodies(std::span<const command> commands, std::span<reply> replies);
};

template <connection C>
class any_connection_of final : public any_connection {
  public:
    /// `connection` outlives this.
    explicit any_connection_of(C& connection) noexcept
        : any_connection({.pipeline = pipelining_connection<C>,
                          .acknowledge = acknowledging_connection<C>,
                          .post = posting_connection<C>,
                          .confirm = confirming_connection<C>,
                          .subscribe = subscribing_connection<C>,
                          .shard = sharded_connection<C>,
                          .follow = following_connection<C>}),
          it_(connection) {}

    reply execute(const command& cmd) noexcept override { return distlock::execute(it_, cmd); }
    bool post([[maybe_unused]] const command& cmd,
              [[maybe_unused]] const std::shared_ptr<receipt>& wanted) noexcept override {
        if constexpr (confirming_connection<C>) {
            if (!wanted) return distlock::post(it_, cmd);
            try {
                auto mine = wanted;  // a connection may take it by reference
                return it_.post(cmd, mine);
            } catch (...) {
                return false;
            }
        } else {
            return distlock::post(it_, cmd);
        }
    }
    void collect() noexcept override {
        if constexpr (confirming_connection<C>) {
            try {
                it_.collect();
            } catch (...) {
                // Then what was posted is asked about.
            }
        }
    }
    std::shared_ptr<subscription> subscribe([[maybe_unused]] std::string_view channel) override {
        if constexpr (subscribing_connection<C>) return it_.subscribe(channel);
        return nullptr;
    }
    void on_master_change([[maybe_unused]] const std::weak_ptr<master_listener>& who) override {
        if constexpr (following_connection<C>) it_.on_master_change(who);
    }
    void follow() noexcept override {
        if constexpr (following_connection<C>) {
            try {
                it_.follow();
            } catch (...) {
                // Then it is found out when something is sent.
            }
        }
    }
    std::string identity() const override { return detail::identity_of(it_); }
    std::optional<std::chrono::milliseconds> command_timeout() const noexcept override {
        try {
            if constexpr (timed_connection<C>) return sensible(std::as_const(it_).command_timeout());
        } catch (...) {
            // It does not say, just now.
        }
        return std::nullopt;
    }
    std::chrono::milliseconds connect_timeout() const noexcept override {
        try {
            if constexpr (requires { std::as_const(it_).connect_timeout(); })
                return sensible(std::as_const(it_).connect_timeout());
        } catch (...) {
            // As above.
        }
        return {};
    }

  private:
    // Of a user's connection, which may say anything.
    static std::chrono::milliseconds sensible(std::chrono::milliseconds timeout) noexcept {
        return std::clamp<std::chrono::milliseconds>(timeout, std::chrono::milliseconds{0},
                                                     std::chrono::hours{24});
    }

    void call_all([[maybe_unused]] std::span<const command> commands,
                  [[maybe_unused]] std::span<reply> replies) noexcept override {
        if constexpr (pipelining_connection<C>) detail::call_all(it_, commands, replies);
    }
    acknowledged_reply call_acknowledged([[maybe_unused]] const command& write,
                                         [[maybe_unused]] const command& wait) noexcept override {
        if constexpr (acknowledging_connection<C>) return detail::call_acknowledged(it_, write, wait);
        return {};
    }

    C& it_;
};

/// Effects: executes all of `commands`, in one pipeline where the connection can, else one after the other.
/// Those that the server answers with NOSCRIPT are executed again with the script's body; in a pipeline that
/// is after all others.
/// Preconditions: as many replies as commands.
/// Round trips: one, two when the server lacks a script; without a pipeline so many for each command.
template <connection C>
void execute_all(C& c, std::span<const command> commands, std::span<reply> replies) noexcept {
    any_connection_of<C>(c).execute_all(commands, replies);
}

}  // namespace distlock

#ifndef DISTLOCK_SEPARATE_COMPILATION
#include <distlock/net/any_connection_impl.hpp>
#endif
