// How far away the tests' servers are: DISTLOCK_TEST_ROUND_TRIP, as "80ms", is added to each round trip.
#pragma once

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#include <distlock/engine/acquire_step.hpp>
#include <distlock/testing.hpp>

#include "support/sanitizers.hpp"
#include "support/timing_tolerance.hpp"

/// Returns: what is added to each round trip; zero: nothing.
inline std::chrono::milliseconds round_trip() {
    const char* const given = std::getenv("DISTLOCK_TEST_ROUND_TRIP");
    const std::string_view text = given == nullptr ? "" : given;
    if (text.empty()) return {};
    int ms = 0;
    const auto [stop, problem] = std::from_chars(text.data(), text.data() + text.size(), ms);
    if (problem != std::errc{} || ms < 0 || std::string_view(stop) != "ms")
        throw std::invalid_argument("DISTLOCK_TEST_ROUND_TRIP is no number of ms, as 80ms");
    return std::chrono::milliseconds{ms};
}

/// Returns: whether an answer comes in the time that is waited for one, whatever the caller's time-out.
inline bool answers_come_at_once() { return round_trip() < distlock::engine::shortest_answer_time; }

/// Returns: how often a test repeats what it repeats `near` times beside its server: far away, and under a
/// sanitizer, each takes longer.
inline int repetitions(int near) {
    return round_trip().count() > 0 ? std::max(near / 100, 20) : instrumented ? near / 5 : near;
}

/// The tolerance of a call that talks to one of these servers.
inline const std::chrono::milliseconds round_trip_tolerance = timing_tolerance + 4 * round_trip();

/// Returns: the URI by which a test reaches `server`: its own, or that of a proxy as far away as round_trip()
/// says, which lasts as long as the program.
inline std::string uri_of(const distlock::testing::redis_server& server) {
    using namespace distlock::testing;
    const auto time = round_trip();
    if (time.count() == 0) return server.uri();
    static std::mutex lock;
    static std::map<std::string, fault_proxy> proxies;
    const std::lock_guard guard(lock);
    const auto [place, made] = proxies.try_emplace(server.socket_path(), server.socket_path());
    if (made) {
        place->second.delay(fault_plan::part::request, time / 2);
        place->second.delay(fault_plan::part::reply, time / 2);
    }
    return place->second.uri();
}
