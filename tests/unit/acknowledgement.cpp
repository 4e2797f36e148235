// What WAIT says of replicas, and what it is sent behind.
#include <chrono>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <distlock/base/clock.hpp>
#include <distlock/base/error.hpp>
#include <distlock/detail/stop_token.hpp>
#include <distlock/wire/acknowledgement.hpp>
#include <distlock/wire/command.hpp>
#include <distlock/wire/reply.hpp>

#include "support/argv_of.hpp"
#include "support/catch.hpp"

namespace acknowledgement_tests {

namespace {

using distlock::acknowledgement;
using distlock::command;
using distlock::errc;
using distlock::replica_wait;
using distlock::reply;
using kind = acknowledgement::kind;
using words = std::vector<std::string_view>;
using namespace std::chrono_literals;

acknowledgement read(const reply& answer, int wanted = 2) { return replica_wait(wanted, 1s).read(answer); }

}  // namespace

TEST_CASE("the wait for replicas goes where the write goes, for as long, and until the same stop") {
    const std::stop_source source;
    const auto stop = source.get_token();
    command write{{"SET", "orders", "x"}, "orders"};
    write.until(distlock::clock::time_point(7s)).until(stop);
    const replica_wait wait(2, 150ms);
    const command behind = wait.behind(write);
    CHECK(argv_of(behind) == words{"WAIT", "2", "150"});
    CHECK(behind.routing_key() == "orders");
    CHECK(behind.deadline() == distlock::clock::time_point(7s));
    CHECK(behind.stop() == &stop);
    CHECK(behind.bound_to_previous());
    CHECK_FALSE(write.bound_to_previous());
    CHECK_FALSE(behind.is_script());
}

TEST_CASE("a wait is never for ever: zero is what the server takes for that") {
    const command write{{"SET", "a", "b"}, "a"};
    for (const auto longest : {0ms, -1ms, 1ms, std::chrono::milliseconds::min()}) {
        const replica_wait wait(1, longest);
        CHECK(argv_of(wait.behind(write)) == words{"WAIT", "1", "1"});
    }
    const replica_wait wait(std::numeric_limits<int>::max(), std::chrono::milliseconds::max());
    CHECK(argv_of(wait.behind(write)) == words{"WAIT", "2147483647", "3600000"});
    CHECK(wait.behind(write).takes() == 1h);
    CHECK(write.takes() == 0ms);
}

TEST_CASE("as many replicas as wanted, or more, are enough; fewer are too few, and counted") {
    CHECK(read(reply::integer(2)).what == kind::enough);
    CHECK(read(reply::integer(7)).what == kind::enough);
    CHECK(read(reply::integer(1)).what == kind::too_few);
    CHECK(read(reply::integer(1)).replicas == 1);
    CHECK(read(reply::integer(1)).cause == errc::not_replicated);
    CHECK(read(reply::integer(0)).what == kind::too_few);
}

TEST_CASE(
    "an answer that is missing, makes no sense, or comes of a change of roles says nothing of replicas") {
    CHECK(read(reply::no_answer(errc::no_reply, "")).what == kind::unknown);
    CHECK(read(reply::no_answer(errc::cancelled, "")).cause == errc::cancelled);
    CHECK(read(reply::not_sent(errc::unreachable, "")).what == kind::unknown);
    CHECK(read(reply::integer(-1)).what == kind::unknown);
    CHECK(read(reply::nil()).cause == errc::protocol_error);
    CHECK(read(reply::string("2")).what == kind::unknown);
    CHECK(read(reply::error("UNBLOCKED force unblock from blocking operation, instance state changed "
                            "(master -> replica?)"))
              .what == kind::unknown);
    CHECK(read(reply::error("ERR WAIT cannot be used with replica instances. Please also note that since "
                            "Redis 4.0 ..."))
              .cause == errc::read_only);
    CHECK(read(reply::error("LOADING x")).what == kind::unknown);
}

TEST_CASE("a server that will never say is not asked again") {
    CHECK(read(reply::error("NOPERM User worker has no permissions to run the 'wait' command")).what ==
          kind::refused);
    CHECK(read(reply::error("NOPERM x")).cause == errc::permission_denied);
    CHECK(read(reply::error("ERR unknown command 'WAIT'")).cause == errc::unsupported_command);
}

TEST_CASE("the last wait for as many replicas answers for those before it, and for no others") {
    const command write{{"SET", "a", "b"}, "a"};
    const replica_wait one(1, 100ms);
    const replica_wait two(2, 100ms);
    const std::vector<command> all{write, one.behind(write), write, two.behind(write),
                                   write, one.behind(write), write};
    const std::vector<std::size_t> by{0, 5, 2, 3, 4, 5, 6};
    for (std::size_t i = 0; i < all.size(); ++i) CHECK(distlock::answered_by(all, i) == by[i]);
}

}  // namespace acknowledgement_tests
