// One include for the tests, whether Catch2 2.13 or 3.x is installed.
#pragma once

// An assertion whose expression throws fails, and ends its case.
#define CATCH_CONFIG_FAST_COMPILE

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#define DISTLOCK_CATCH_MAJOR 3
#else
#include <catch2/catch.hpp>
#define DISTLOCK_CATCH_MAJOR 2
#endif

/// Matcher: the string contains `part`. (The two majors call theirs by different names.)
inline auto contains_text(const std::string& part) {
#if DISTLOCK_CATCH_MAJOR == 3
    return Catch::Matchers::ContainsSubstring(part);
#else
    return Catch::Matchers::Contains(part);
#endif
}
