// Options: the defaults, and what is refused.
#include <chrono>
#include <limits>
#include <string>
#include <system_error>
#include <type_traits>

#include <distlock/base/error.hpp>
#include <distlock/base/lease.hpp>
#include <distlock/base/options.hpp>
#include <distlock/base/owner.hpp>

#include "support/catch.hpp"

namespace options_tests {

namespace {

using distlock::errc;
using distlock::lock_options;
using namespace std::chrono;
using namespace std::chrono_literals;

/// Returns: the error code with which the options are refused; none if they are not. The message goes to
/// `text`.
std::error_code refusal(const lock_options& options, milliseconds command_timeout = 200ms,
                        std::string* text = nullptr) {
    try {
        distlock::detail::check_options(options, command_timeout);
    } catch (const distlock::error& e) {
        if (text != nullptr) *text = e.what();
        return e.code();
    }
    return {};
}

static_assert(std::is_aggregate_v<lock_options>);

// Options are constants in many programs.
constexpr lock_options at_night{.lease = 10s, .fencing = true, .owner_info = "night job"};
static_assert(at_night.owner_info == "night job");

}  // namespace

TEST_CASE("the defaults are what the documentation says, and are accepted") {
    const lock_options defaults;
    CHECK(defaults.lease.get() == 30s);
    CHECK(defaults.renew);
    CHECK(defaults.max_hold.get() == 0ms);
    CHECK(defaults.hold_at_least.get() == 0ms);
    CHECK_FALSE(defaults.fencing);
    CHECK_FALSE(defaults.recheck.given());
    CHECK(distlock::detail::polling_recheck == 50ms);
    CHECK(distlock::detail::queued_recheck == 1s);
    CHECK(defaults.owner_info.empty());
    CHECK(defaults.patience.get() == 2s);
    CHECK(defaults.release == distlock::posted);
    CHECK(defaults.local_budget.get() == 5ms);
    CHECK_FALSE(refusal(defaults));
}

TEST_CASE("all options are named in the order in which the documentation lists them") {
    const lock_options options{.lease = 10s,
                               .renew = false,
                               .max_hold = 1h,
                               .hold_at_least = 10s,
                               .fencing = true,
                               .recheck = 20ms,
                               .owner_info = "night job",
                               .patience = 1s,
                               .release = distlock::confirmed,
                               .local_budget = 0ms};
    CHECK_FALSE(refusal(options));
    CHECK_FALSE(options.renew);
    CHECK(options.fencing);
    CHECK(options.release == distlock::release_mode::confirmed);
    CHECK(options.owner_info == "night job");
}

TEST_CASE("options take any unit") {
    const lock_options options{
        .lease = 1min, .max_hold = 1.5h, .recheck = 1500us, .patience = duration<double>(0.5)};
    CHECK(options.lease.get() == 60s);
    CHECK(options.max_hold.get() == 90min);
    CHECK(options.recheck.get() == 1ms);
    CHECK(options.patience.get() == 500ms);
    CHECK_FALSE(refusal(options));
}

TEST_CASE("a lease from 10 ms to 24 h is accepted, any other refused") {
    CHECK_FALSE(refusal({.lease = 10ms}, 0ms));
    CHECK_FALSE(refusal({.lease = 24h}));
    CHECK(refusal({.lease = 9ms}, 0ms) == errc::invalid_lease);
    CHECK(refusal({.lease = 9999us}, 0ms) == errc::invalid_lease);
    CHECK(refusal({.lease = 24h + 1ms}) == errc::invalid_lease);
    for (const distlock::time_span lease :
         {distlock::time_span(0s), distlock::time_span(-1s), distlock::time_span(1ms),
          distlock::time_span(999us), distlock::time_span(hours::max()), distlock::time_span(hours::min()),
          distlock::time_span(nanoseconds::max()), distlock::time_span(nanoseconds::min()),
          distlock::time_span(duration<double>(std::numeric_limits<double>::quiet_NaN())),
          distlock::time_span(duration<double>(std::numeric_limits<double>::infinity()))}) {
        INFO(lease.get().count());
        CHECK(refusal({.lease = lease}, 0ms) == errc::invalid_lease);
    }
}

TEST_CASE("a lease must be longer than the command time-out") {
    CHECK_FALSE(refusal({.lease = 201ms}, 200ms));
    std::string text;
    CHECK(refusal({.lease = 200ms}, 200ms, &text) == errc::invalid_lease);
    CHECK_THAT(text, contains_text("a lease of 200 ms with a command time-out of 200 ms"));
    CHECK(refusal({.lease = 199ms}, 200ms) == errc::invalid_lease);
    CHECK(refusal({.lease = 30s}, milliseconds::max()) == errc::invalid_lease);
}

TEST_CASE("a longest hold of 10 ms or more is accepted, {} is none, any other refused") {
    CHECK_FALSE(refusal({.max_hold = {}}));
    CHECK_FALSE(refusal({.max_hold = 10ms}));
    CHECK_FALSE(refusal({.lease = 30s, .max_hold = 100ms}));
    CHECK_FALSE(refusal({.max_hold = hours::max()}));
    for (const distlock::time_span max_hold :
         {distlock::time_span(0ms), distlock::time_span(1ms), distlock::time_span(999us),
          distlock::time_span(9999us), distlock::time_span(-1ns), distlock::time_span(-10ms),
          distlock::time_span(hours::min()),
          distlock::time_span(duration<double>(std::numeric_limits<double>::quiet_NaN()))}) {
        INFO(max_hold.get().count());
        std::string text;
        CHECK(refusal({.max_hold = max_hold}, 200ms, &text) == errc::invalid_option);
        CHECK_THAT(text,
                   contains_text("max_hold") && contains_text("give 10 ms or more, or {} for no limit"));
    }
}

TEST_CASE("a least hold is no longer than the longest, nor than a lease that is not renewed") {
    CHECK_FALSE(refusal({.hold_at_least = {}}));
    CHECK_FALSE(refusal({.hold_at_least = 0ms}));
    CHECK_FALSE(refusal({.lease = 10s, .hold_at_least = 40s}));
    CHECK_FALSE(refusal({.hold_at_least = hours::max()}));
    CHECK_FALSE(refusal({.lease = 40s, .renew = false, .hold_at_least = 40s}));
    CHECK_FALSE(refusal({.max_hold = 40s, .hold_at_least = 40s}));
    std::string text;
    CHECK(refusal({.hold_at_least = -1ms}, 200ms, &text) == errc::invalid_option);
    CHECK_THAT(text, contains_text("hold_at_least is -1 ms, give zero or more"));
    CHECK(refusal({.lease = 40s, .renew = false, .hold_at_least = 40001ms}, 200ms, &text) ==
          errc::invalid_option);
    CHECK_THAT(text, contains_text("longer than the lease; give 40000 ms or less, or renew = true"));
    CHECK(refusal({.lease = 40s, .renew = false, .max_hold = 60s, .hold_at_least = 40001ms}, 200ms, &text) ==
          errc::invalid_option);
    CHECK(refusal({.max_hold = 40s, .hold_at_least = 40001ms}, 200ms, &text) == errc::invalid_option);
    CHECK_THAT(text, contains_text("longer than max_hold; give 40000 ms or less"));
}

TEST_CASE("an owner_info of up to 256 bytes, any bytes, is accepted, a longer one refused") {
    CHECK_FALSE(refusal({.owner_info = std::string(256, 'x')}));
    CHECK_FALSE(refusal({.owner_info = std::string(256, '\0')}));
    CHECK_FALSE(refusal({.owner_info = "\n\xff"}));
    std::string text;
    CHECK(refusal({.owner_info = std::string(257, 'x')}, 200ms, &text) == errc::invalid_option);
    CHECK_THAT(text, contains_text("owner_info has 257 bytes, give 256 at most"));
    CHECK_THAT(text, !contains_text("xxx"));
}

TEST_CASE("a recheck from 1 ms to 1 h is accepted, {} is the default, any other refused") {
    CHECK_FALSE(refusal({.recheck = {}}));
    CHECK_FALSE(refusal({.recheck = 1ms}));
    CHECK_FALSE(refusal({.recheck = 1h}));
    for (const distlock::time_span recheck :
         {distlock::time_span(0ms), distlock::time_span(999us), distlock::time_span(-1ns),
          distlock::time_span(-1ms), distlock::time_span(1h + 1ms), distlock::time_span(hours::max()),
          distlock::time_span(duration<double>(std::numeric_limits<double>::quiet_NaN()))}) {
        INFO(recheck.get().count());
        std::string text;
        CHECK(refusal({.recheck = recheck}, 200ms, &text) == errc::invalid_option);
        CHECK_THAT(text, contains_text("recheck") && contains_text("give one from 1 ms to 1 h"));
    }
}

TEST_CASE("a patience of zero or more is accepted, a negative one refused") {
    CHECK_FALSE(refusal({.patience = 0ms}));
    CHECK_FALSE(refusal({.patience = hours::max()}));
    for (const distlock::time_span patience :
         {distlock::time_span(-1ms), distlock::time_span(-1ns), distlock::time_span(hours::min()),
          distlock::time_span(duration<double>(std::numeric_limits<double>::quiet_NaN()))}) {
        INFO(patience.get().count());
        std::string text;
        CHECK(refusal({.patience = patience}, 200ms, &text) == errc::invalid_option);
        CHECK_THAT(text, contains_text("patience") && contains_text("give zero or more"));
    }
}

TEST_CASE("a local budget from nothing to 1 h is accepted, any other refused") {
    CHECK_FALSE(refusal({.local_budget = {}}));
    CHECK_FALSE(refusal({.local_budget = 0ms}));
    CHECK_FALSE(refusal({.local_budget = 1h}));
    for (const distlock::time_span budget :
         {distlock::time_span(-1ms), distlock::time_span(-1ns), distlock::time_span(1h + 1ms),
          distlock::time_span(hours::max()), distlock::time_span(hours::min())}) {
        INFO(budget.get().count());
        std::string text;
        CHECK(refusal({.local_budget = budget}, 200ms, &text) == errc::invalid_option);
        CHECK_THAT(text, contains_text("local_budget") && contains_text("give one from 0 ms to 1 h"));
    }
}

TEST_CASE("a message names the value and the unit") {
    std::string text;
    static_cast<void>(refusal({.lease = 1ms}, 200ms, &text));
    CHECK_THAT(text, contains_text("a lease of 1 ms") && contains_text("from 10 ms to 24 h"));
}

TEST_CASE("0 to 1000 replicas are accepted, any other number refused") {
    CHECK_FALSE(refusal({.replicas = 0}));
    CHECK_FALSE(refusal({.replicas = 1000}));
    std::string text;
    CHECK(refusal({.replicas = -1}, 200ms, &text) == errc::invalid_option);
    CHECK_THAT(text, contains_text("replicas is -1, give 0 to 1000"));
    CHECK(refusal({.replicas = 1001}) == errc::invalid_option);
    CHECK(refusal({.replicas = std::numeric_limits<int>::min()}) == errc::invalid_option);
}

TEST_CASE("replicas are waited for 1 ms at least: zero is what the server takes for ever") {
    CHECK_FALSE(refusal({.replica_timeout = 1ms}));
    CHECK_FALSE(refusal({.replica_timeout = hours::max()}));
    std::string text;
    CHECK(refusal({.replica_timeout = 0ms}, 200ms, &text) == errc::invalid_option);
    CHECK_THAT(text, contains_text("replica_timeout is 0 ms, give 1 ms or more"));
    CHECK(refusal({.replica_timeout = 999us}) == errc::invalid_option);
    CHECK(refusal({.replica_timeout = -1h}) == errc::invalid_option);
}

}  // namespace options_tests
