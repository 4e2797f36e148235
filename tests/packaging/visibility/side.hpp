// What each of the two shared libraries hands out.
#pragma once

#include <cstdint>
#include <system_error>

#define DISTLOCK_VISIBILITY_SIDE(side)                                                   \
    __attribute__((visibility("default"))) const std::error_category& side##_category(); \
    __attribute__((visibility("default"))) std::error_code side##_code();                \
    __attribute__((visibility("default"))) void side##_throw();                          \
    __attribute__((visibility("default"))) std::uint64_t side##_process();

DISTLOCK_VISIBILITY_SIDE(left)
DISTLOCK_VISIBILITY_SIDE(right)
