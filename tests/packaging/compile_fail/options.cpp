// What a lock's options refuse.
#include <chrono>

#include <distlock/base/options.hpp>

using namespace std::chrono_literals;

// CASE_unknown_field: no non-static data member named .*time_to_live|field designator .*time_to_live
#if defined(CASE_unknown_field)
distlock::lock_options o{.time_to_live = 30s};
#elif defined(CASE_unknown_field_ok)
distlock::lock_options o{.lease = 30s};
#endif

// CASE_bare_number: number_without_a_unit|invokes a deleted function
#if defined(CASE_bare_number)
distlock::lock_options o{.lease = 30};
#elif defined(CASE_bare_number_ok)
distlock::lock_options o{.lease = std::chrono::hours{1}};
#endif
