// What the server made of a request, by name.
#include <set>
#include <string_view>

#include <distlock/base/observer.hpp>
#include <distlock/leader_election.hpp>
#include <distlock/wire/outcome.hpp>
#include <distlock/wire/reply.hpp>

#include "support/catch.hpp"

namespace outcome_tests {

using distlock::acquire_outcome;
using distlock::errc;
using distlock::loss_reason;
using distlock::release_outcome;
using distlock::reply;

TEST_CASE("every outcome of a release, every loss and every end of a leadership has its own name") {
    CHECK(to_string(release_outcome::released) == "released");
    CHECK(to_string(release_outcome::unreachable) == "unreachable");
    CHECK(to_string(release_outcome::nested) == "nested");
    std::set<std::string_view> names;
    for (int i = 0; i <= static_cast<int>(release_outcome::nested); ++i)
        CHECK(names.insert(to_string(static_cast<release_outcome>(i))).second);
    CHECK(to_string(loss_reason::expired) == "expired");
    CHECK(to_string(loss_reason::taken) == "taken");
    CHECK(to_string(loss_reason::forced) == "forced");
    CHECK(to_string(loss_reason::max_hold) == "max_hold");
    CHECK(to_string(distlock::stop_reason::done) == "done");
    CHECK(to_string(distlock::stop_reason::lost) == "lost");
}

// A lock() in the middle of a fail-over waits for the new master.
TEST_CASE("an acquisition that is not sent for what may pass is tried again, another one is not") {
    using distlock::reply;
    using kind = acquire_outcome::kind;
    const auto became = [](errc cause) { return acquire_outcome::failure(reply::not_sent(cause, "x")); };
    for (const auto cause : {errc::unreachable, errc::no_reply, errc::unavailable, errc::read_only}) {
        CHECK(became(cause).what == kind::later);
        CHECK(became(cause).cause == cause);
    }
    for (const auto cause :
         {errc::authentication_failed, errc::permission_denied, errc::wrong_process, errc::tls_failed})
        CHECK(became(cause).what == kind::refused);
}

// Between two sockets to a replica it was said that no server had been reached.
TEST_CASE("a release that is not sent since the server is a replica is refused, and asked for again") {
    using distlock::release_verdict;
    const auto refused = release_verdict::failure(reply::not_sent(errc::read_only, "a replica"));
    CHECK(refused.what == release_outcome::refused);
    CHECK(refused.again);
    const auto unreached = release_verdict::failure(reply::not_sent(errc::unreachable, "no server"));
    CHECK(unreached.what == release_outcome::unreachable);
    CHECK(unreached.again);
}

TEST_CASE("a script that met a key on its way to another node may have taken the lock") {
    using kind = acquire_outcome::kind;
    const auto refused = acquire_outcome::failure(reply::error("TRYAGAIN Multiple keys request"));
    CHECK(refused.what == kind::later);
    const auto met = acquire_outcome::failure(reply::error(
        "ERR Script attempted to access a non local key in a cluster node script: 0, on @user_script:5."));
    CHECK(met.what == kind::unknown);
    CHECK(met.cause == errc::unavailable);
}

TEST_CASE("only a script that was refused at a command broke off") {
    using kind = acquire_outcome::kind;
    CHECK(acquire_outcome{.what = kind::refused, .cause = errc::permission_denied}.broke_off());
    CHECK(acquire_outcome{.what = kind::refused, .cause = errc::unsupported_command}.broke_off());
    CHECK_FALSE(acquire_outcome{.what = kind::refused, .cause = errc::wrong_type}.broke_off());
    CHECK_FALSE(acquire_outcome{.what = kind::later, .cause = errc::permission_denied}.broke_off());
    CHECK_FALSE(acquire_outcome{.what = kind::refused, .cause = errc::permission_denied, .certain = true}
                    .broke_off());
}

}  // namespace outcome_tests
