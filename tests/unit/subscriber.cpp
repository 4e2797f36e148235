// The reader of a connection's messages, without a server: what it does for the connection beside.
#include <chrono>
#include <memory>

#include <distlock/base/clock.hpp>
#include <distlock/hiredis/stream.hpp>
#include <distlock/hiredis/subscriber.hpp>

#include "support/catch.hpp"

namespace subscriber_tests {

using namespace std::chrono_literals;
using distlock::clock;

TEST_CASE("the upkeep of a connection is done now and then, however often its messages are read") {
    struct nowhere final : distlock::detail::stream_source {
        std::unique_ptr<distlock::detail::stream> connect(clock::time_point, int) override { return nullptr; }
    };
    struct counting final : distlock::detail::upkeep {
        void keep_up() override { ++times; }
        int times = 0;
    };
    nowhere sockets;
    counting kept;
    distlock::detail::subscriber reader(sockets, 100ms, 100ms, kept);
    for (int i = 0; i < 100; ++i) reader.read(clock::now());
    CHECK(kept.times >= 1);
    CHECK(kept.times <= 2);  // each second
}

}  // namespace subscriber_tests
