// A stop request ends the call at once over TLS, too: in the handshake, before an answer, in the queue.
#include <chrono>
#include <optional>
#include <string>

#include <distlock/hiredis_tls.hpp>
#include <distlock/mutex.hpp>

#include "integration/tls/certificates.hpp"
#include "integration/tls/servers.hpp"
#include "support/catch.hpp"
#include "support/lock_on_server.hpp"
#include "support/stoppable.hpp"
#include "support/waiting.hpp"

namespace stop_requests_tests {

using namespace std::chrono_literals;
using distlock::hiredis_connection;
using servers::tls_is_wanted;
using servers::trusting_ca;

namespace {

const std::string patient = "?connect_timeout=5s&command_timeout=5s";

}  // namespace

TEST_CASE("over TLS a stop request ends every step of a lock() while the server stands still") {
    NOT_TESTED_UNLESS(tls_is_wanted(), "DISTLOCK_TEST_WITHOUT_TLS=1");
    enum class step { handshake, answer, queue };
    const auto at = GENERATE(step::handshake, step::answer, step::queue);
    INFO(static_cast<int>(at));
    servers::real server(certificates::set::get().address);
    const lock_on_server seen(server.plain(), "orders");
    {
        hiredis_connection redis(server.uri() + patient, trusting_ca());
        distlock::mutex lock{redis, "orders", {.recheck = 1h, .patience = 20s}};
        if (at == step::answer) {
            lock.lock();
            lock.unlock();
            REQUIRE(eventually([&] { return seen.untouched(); }));
        }
        if (at == step::queue) REQUIRE(seen.strangers("60000"));
        std::optional<stoppable> call;
        if (at == step::queue) {
            call.emplace(lock);
            REQUIRE(seen.gets(1));
        }
        const standstill s(server.plain());
        if (!call) call.emplace(lock);
        REQUIRE(call->sleeps());
        call->stop();
    }
    CHECK(seen.gets(0));
    if (at == step::queue) seen.strangers_release();
    CHECK(eventually([&] { return seen.untouched(); }));
}

}  // namespace stop_requests_tests
