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

/// Effects: where the condition does not hold, the test case ends here, passes, and says that it tested no
/// more, and why.
#define NOT_TESTED_UNLESS(condition, why)  \
    do {                                   \
        if (!(condition)) {                \
            WARN("NOT TESTED: " << (why)); \
            return;                        \
        }                                  \
    } while (false)

/// Matcher: the string contains `part`. (The two majors call theirs by different names.)
inline auto contains_text(const std::string& part) {
#if DISTLOCK_CATCH_MAJOR == 3
    return Catch::Matchers::ContainsSubstring(part);
#else
    return Catch::Matchers::Contains(part);
#endif
}
