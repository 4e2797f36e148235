// Which scripts a server is known to have.
#include <cstddef>

#include <distlock/engine/known_scripts.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/script.hpp>

#include "support/catch.hpp"

namespace known_scripts_tests {

namespace {

using distlock::command;
using distlock::script;
using distlock::engine::known_scripts;

inline constexpr script scripts[]{
    script{"return 0"},  script{"return 1"},  script{"return 2"},  script{"return 3"},  script{"return 4"},
    script{"return 5"},  script{"return 6"},  script{"return 7"},  script{"return 8"},  script{"return 9"},
    script{"return 10"}, script{"return 11"}, script{"return 12"}, script{"return 13"}, script{"return 14"},
    script{"return 15"}, script{"return 16"}};
constexpr std::size_t most = 16;

command call(std::size_t i) { return {scripts[i], {"orders"}, {"token"}}; }

/// Returns: what knows as many scripts as it can, the first of them for long.
void fill(known_scripts& of) {
    for (int i = 0; i < 20; ++i) of.note(call(0), true);
    for (std::size_t i = 1; i < most; ++i) of.note(call(i), true);
}
/// Returns: how many of the scripts, from that one on, are known.
std::size_t known(const known_scripts& of, std::size_t from = 0) {
    std::size_t count = 0;
    for (std::size_t i = from; i <= most; ++i) count += of.has(call(i)) ? 1 : 0;
    return count;
}

}  // namespace

TEST_CASE("no script is known at first, and a command that is none needs none") {
    known_scripts server;
    CHECK(known(server) == 0);
    const command plain{"GET", "orders"};
    CHECK(server.has(plain));
    server.note(plain, false);
    CHECK(server.has(plain));
}

TEST_CASE("sixteen scripts are known however often one of them was noted, and one more is not") {
    known_scripts server;
    fill(server);
    CHECK(known(server) == most);
    server.note(call(most), true);
    CHECK(known(server) == most);
    CHECK_FALSE(server.has(call(most)));
}

TEST_CASE("a script that the server lacks is known no more, and leaves its place to another") {
    known_scripts server;
    fill(server);
    server.note(call(0), false);
    CHECK_FALSE(server.has(call(0)));
    CHECK(known(server, 1) == most - 1);
    server.note(call(most), true);
    CHECK(known(server, 1) == most);
}

TEST_CASE("a server that took the master's place is not known to have any script") {
    known_scripts server;
    fill(server);
    server.forget();
    CHECK(known(server) == 0);
    fill(server);
    CHECK(known(server) == most);
}

}  // namespace known_scripts_tests
