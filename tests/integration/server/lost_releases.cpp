// A posted release that gets lost with its socket is repeated, also where the same object is granted
// another hold meanwhile.
#include <chrono>

#include <distlock/counting_semaphore.hpp>
#include <distlock/hiredis.hpp>
#include <distlock/mutex.hpp>
#include <distlock/shared_mutex.hpp>
#include <distlock/testing.hpp>

#include "support/catch.hpp"
#include "support/waiting.hpp"

namespace lost_releases_tests {

using namespace std::chrono_literals;
using distlock::hiredis_connection;
using distlock::lock_options;
using distlock::release_outcome;
using distlock::testing::redis_server;

namespace {

// Nobody waits for its end.
constexpr lock_options long_lease{.lease = 60s};

// Effects: what `release` sends gets lost on the server.
template <class Release>
void lose(const redis_server& server, Release release) {
    server.command({"CLIENT", "PAUSE", "60000", "WRITE"});
    CHECK(release() == release_outcome::posted);
    server.command({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
    server.command({"CLIENT", "UNPAUSE"});
}

struct writing {
    explicit writing(hiredis_connection& redis) : m(redis, "orders", long_lease) {}
    void take() { m.lock(); }
    release_outcome give_back() { return m.unlock(); }
    auto residual() const { return m.residual(); }
    distlock::mutex<hiredis_connection> m;
};
struct reading {
    explicit reading(hiredis_connection& redis) : m(redis, "orders", long_lease) {}
    void take() { m.lock_shared(); }
    release_outcome give_back() { return m.unlock_shared(); }
    auto residual() const { return m.residual(); }
    distlock::shared_mutex<hiredis_connection> m;
};
struct having_a_permit {
    explicit having_a_permit(hiredis_connection& redis) : pool(redis, "orders", 5, long_lease) {}
    void take() { mine = pool.acquire(); }
    release_outcome give_back() { return mine.release(); }
    auto residual() const { return pool.residual(); }
    distlock::counting_semaphore<hiredis_connection> pool;
    distlock::permit mine;
};

}  // namespace

// A grant to the same object was taken for the word that its last release had come: true of a mutex
// only. Readers and permits stayed on the server until their lease was over, and residual() said
// that nothing was left.
TEMPLATE_TEST_CASE("a lost release is repeated although the object was granted another hold", "", writing,
                   reading, having_a_permit) {
    const int lost = GENERATE(1, 3);
    INFO(lost << " releases get lost");
    const redis_server server;
    hiredis_connection redis(server.uri());
    TestType mine(redis);
    for (int i = 0; i < lost; ++i) {
        mine.take();
        lose(server, [&] { return mine.give_back(); });
    }
    mine.take();
    CHECK(mine.give_back() == release_outcome::posted);
    // While something is left, it is told.
    CHECK(eventually([&] {
        const bool told = mine.residual() > 0ms;
        const bool left = server.command({"EXISTS", "orders"}) != "0";
        CHECK((told || !left));
        return !told;
    }));
    CHECK(server.command({"EXISTS", "orders", "{orders}:distlock:queue", "{orders}:distlock:readers"}) ==
          "0");
}

}  // namespace lost_releases_tests
