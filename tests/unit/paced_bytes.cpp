// Bytes that a fault proxy passes on late, or a few at a time.
#include <array>
#include <chrono>
#include <cstddef>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

#include <distlock/base/clock.hpp>
#include <distlock/testing/paced_bytes.hpp>

#include "support/catch.hpp"

namespace paced_bytes_tests {

using namespace std::chrono_literals;
using distlock::clock;
using distlock::testing::impl::pace;
using distlock::testing::impl::paced_bytes;

namespace {

struct peer {
    peer() { REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0); }
    peer(const peer&) = delete;
    peer& operator=(const peer&) = delete;
    ~peer() {
        ::close(ends[0]);
        if (ends[1] >= 0) ::close(ends[1]);
    }
    std::string received() const {
        std::array<char, 100> bytes{};
        const auto n = ::recv(ends[1], bytes.data(), bytes.size(), 0);
        return n > 0 ? std::string(bytes.data(), static_cast<std::size_t>(n)) : "";
    }
    std::array<int, 2> ends{-1, -1};
};

// When to ask again, at the latest.
clock::time_point next_of(paced_bytes& bytes, const pace& how) {
    auto next = clock::time_point::max();
    CHECK_FALSE(bytes.due(clock::now(), how, next));
    return next;
}

}  // namespace

TEST_CASE("bytes without a delay pass at once, and in order behind those that have one") {
    peer to;
    paced_bytes bytes;
    CHECK(bytes.empty());
    bytes.add("a", 0s);
    CHECK(bytes.send_to(to.ends[0], {}));
    CHECK(to.received() == "a");
    bytes.add("b", 1h);
    bytes.add("c", 0s);
    bytes.add("", 0s);
    CHECK(bytes.send_to(to.ends[0], {}));
    CHECK(to.received().empty());
    CHECK_FALSE(bytes.empty());
    CHECK(next_of(bytes, {}) > clock::now() + 59min);
    bytes.hurry();
    CHECK(bytes.send_to(to.ends[0], {}));
    CHECK(to.received() == "bc");
    CHECK(bytes.empty());
}

TEST_CASE("a pause between two slices ends when all delays and pauses do") {
    peer to;
    paced_bytes bytes;
    bytes.add("abc", 0s);
    const pace slowly{.slice = 1, .pause = 1h};
    CHECK(bytes.send_to(to.ends[0], slowly));
    CHECK(to.received() == "a");
    CHECK(next_of(bytes, slowly) > clock::now() + 59min);
    bytes.hurry();
    CHECK(bytes.send_to(to.ends[0], slowly));
    CHECK(to.received() == "b");
    CHECK(bytes.send_to(to.ends[0], {}));
    CHECK(to.received() == "c");
}

TEST_CASE("bytes that are held pass when they are held no more") {
    peer to;
    paced_bytes bytes;
    bytes.add("a", 0s);
    CHECK(next_of(bytes, {.held = true}) == clock::time_point::max());
    CHECK(bytes.send_to(to.ends[0], {.held = true}));
    CHECK(to.received().empty());
    CHECK(bytes.send_to(to.ends[0], {}));
    CHECK(to.received() == "a");
}

TEST_CASE("a delay without end is no delay that is over") {
    paced_bytes bytes;
    bytes.add("a", clock::duration::max());
    CHECK(next_of(bytes, {}) == clock::time_point::max());
}

TEST_CASE("bytes for a peer that is gone say so, and may be cleared") {
    peer to;
    ::close(to.ends[1]);
    to.ends[1] = -1;
    paced_bytes bytes;
    bytes.add("a", 0s);
    CHECK_FALSE(bytes.send_to(to.ends[0], {}));
    bytes.add("b", 1h);
    bytes.clear();
    CHECK(bytes.empty());
    CHECK(bytes.send_to(to.ends[0], {}));
}

}  // namespace paced_bytes_tests
