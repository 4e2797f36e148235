// The connections that the contract is checked over, each to a private server of its own kind.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <variant>
#include <vector>

#include <distlock/distlock.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/testing.hpp>

#include "support/catch.hpp"
#include "support/fake_sentinel.hpp"
#include "support/fresh_name.hpp"
#include "support/minimal_connection.hpp"
#include "support/round_trip.hpp"
#include "support/sanitizers.hpp"
#include "support/timing_tolerance.hpp"
#include "support/waiting.hpp"

namespace connection_fixtures {

using ::fresh_name;
using distlock::command;
using distlock::testing::redis_server;
using distlock::testing::redis_server_options;

/// One server for all tests of a program, on a unix socket.
inline redis_server& unix_server() {
    static redis_server server;
    return server;
}

/// The same, on a loopback port.
inline redis_server& tcp_server() {
    static redis_server server(redis_server_options{.tcp = true});
    return server;
}

struct over_unix_socket {
    static constexpr const char* kind = "over a unix socket";
    static redis_server& server() { return unix_server(); }
    distlock::hiredis_connection connection{uri_of(server())};
};

struct over_tcp {
    static constexpr const char* kind = "over a loopback port";
    static redis_server& server() { return tcp_server(); }
    distlock::hiredis_connection connection{uri_of(server())};
};

/// The same, as a Cluster that has no other node.
inline redis_server& cluster_server() {
    static redis_server server(
        redis_server_options{.tcp = true,
                             .arguments = {"--cluster-enabled", "yes", "--cluster-port",
                                           std::to_string(distlock::testing::impl::unused_port())}});
    static const bool works =
        server.command({"CLUSTER", "ADDSLOTSRANGE", "0", "16383"}) == "OK" && eventually([] {
            return server.command({"CLUSTER", "INFO"}).find("cluster_state:ok") != std::string::npos;
        });
    if (!works) throw std::runtime_error("no Cluster");
    return server;
}

struct over_a_cluster {
    static constexpr const char* kind = "over a Cluster";
    static redis_server& server() { return cluster_server(); }
    distlock::cluster_connection connection{"redis+cluster" +
                                            uri_of(server()).substr(uri_of(server()).find("://"))};
};

/// A Sentinel that names the server on the loopback port.
struct over_sentinel {
    static constexpr const char* kind = "over Sentinel";
    static redis_server& server() { return tcp_server(); }
    static const fake_sentinel& sentinel() {
        static const fake_sentinel one(tcp_server().port(), 1);
        return one;
    }
    distlock::sentinel_connection connection{sentinel_uri_of({sentinel().port()})};
};

struct over_minimal_connection {
    static constexpr const char* kind = "over a minimal connection";
    static redis_server& server() { return unix_server(); }
    minimal_connection connection{uri_of(server())};
};

inline auto make_lambda(distlock::hiredis_connection& inner) {
    return [&inner](const command& cmd) { return inner.execute(cmd); };
}

struct over_a_lambda {
    static constexpr const char* kind = "over a lambda";
    static redis_server& server() { return unix_server(); }
    distlock::hiredis_connection inner{uri_of(server())};
    decltype(make_lambda(inner)) connection = make_lambda(inner);
};

// Over Sentinel a sanitizer sees all that it sees on a loopback port.
using all = std::conditional_t<
    instrumented,
    std::tuple<over_unix_socket, over_sentinel, over_a_cluster, over_minimal_connection, over_a_lambda>,
    std::tuple<over_unix_socket, over_tcp, over_sentinel, over_a_cluster, over_minimal_connection,
               over_a_lambda>>;

/// Returns: what unlock() says in this mode of a lock whose server would answer `answer`.
template <class Fixture>
constexpr distlock::release_outcome said(
    distlock::release_mode how = distlock::lock_options{}.release,
    distlock::release_outcome answer = distlock::release_outcome::released) {
    const bool posts = how == distlock::posted && distlock::posting_connection<decltype(Fixture::connection)>;
    return posts ? distlock::release_outcome::posted : answer;
}

/// A connection of one of these fixtures, chosen at run time: what is said of all of them is compiled once.
/// The engine gets the very connection.
template <class... Fixtures>
class connection_of_any {
  public:
    explicit connection_of_any(std::size_t which) { make<Fixtures...>(which); }

    distlock::reply execute(const command& cmd) {
        return on_it([&](auto& it) {
            if constexpr (distlock::executes_a_command<decltype(it.connection)>) {
                return it.connection.execute(cmd);
            } else {
                return it.connection(cmd);
            }
        });
    }

    template <class Clock>
    friend std::shared_ptr<distlock::engine::background_io> background_io_of(connection_of_any& c) {
        return c.on_it([](auto& it) { return distlock::engine::background_io_of<Clock>(it.connection); });
    }

    template <class What>
    decltype(auto) on_it(What what) {
        return std::visit([&](auto& it) -> decltype(auto) { return what(*it); }, fixture_);
    }

  private:
    template <class First, class... Others>
    void make(std::size_t which) {
        if (which == 0) {
            fixture_ = std::make_unique<First>();
        } else if constexpr (sizeof...(Others) > 0) {
            make<Others...>(which - 1);
        }
    }

    std::variant<std::unique_ptr<Fixtures>...> fixture_;
};

template <class Fixtures>
class over_each_of;
/// The test goes over all of these, one after the other.
template <class... Fixtures>
class over_each_of<std::tuple<Fixtures...>> {
  public:
    over_each_of() : over_each_of(GENERATE(range(std::size_t{0}, sizeof...(Fixtures)))) {}

    /// Returns: a second connection of the same kind.
    over_each_of another() const { return over_each_of(which_); }

    redis_server& server() {
        return connection.on_it([](auto& it) -> redis_server& { return it.server(); });
    }
    /// Returns: as said() of the fixture.
    distlock::release_outcome said(distlock::release_mode how = distlock::lock_options{}.release,
                                   distlock::release_outcome answer = distlock::release_outcome::released) {
        return connection.on_it(
            [&]<class Fixture>(Fixture&) { return connection_fixtures::said<Fixture>(how, answer); });
    }
    bool subscribes() {
        return connection.on_it(
            [](auto& it) { return distlock::subscribing_connection<decltype(it.connection)>; });
    }

    connection_of_any<Fixtures...> connection;

  private:
    explicit over_each_of(std::size_t which) : connection(which), which_(which) {}

    const std::size_t which_;
    // What failed is said with it.
    Catch::ScopedMessage kind_{Catch::MessageBuilder("INFO", CATCH_INTERNAL_LINEINFO, Catch::ResultWas::Info)
                               << connection.on_it([](auto& it) { return it.kind; })};
};
using over_each = over_each_of<all>;
/// These post, and wait in the queue.
using over_each_of_ours = over_each_of<std::tuple<over_unix_socket, over_tcp, over_a_cluster>>;
using any_of_all = decltype(over_each::connection);

/// Returns: how many of these keys there are. One by one: a Cluster takes no command for several slots.
inline std::size_t count_of(const redis_server& server, const std::vector<std::string>& keys) {
    const auto is_there = [&](const std::string& k) { return server.command({"EXISTS", k}) == "1"; };
    return static_cast<std::size_t>(std::count_if(keys.begin(), keys.end(), is_there));
}

/// Returns: whether these keys are gone: at once when the release was confirmed, else soon.
template <class Fixture>
bool gone(Fixture& fixture, const std::vector<std::string>& keys,
          distlock::release_mode how = distlock::lock_options{}.release) {
    const auto are = [&] { return count_of(fixture.server(), keys) == 0; };
    const auto said_of = [&] {
        if constexpr (requires { fixture.said(how); }) {
            return fixture.said(how);
        } else {
            return said<Fixture>(how);
        }
    };
    return said_of() == distlock::release_outcome::posted ? eventually(are) : are();
}

}  // namespace connection_fixtures
