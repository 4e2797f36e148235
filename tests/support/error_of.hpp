// The error that a call of the library ends with, to be looked at.
#pragma once

#include <distlock/base/error.hpp>

#include "catch.hpp"

/// Preconditions: `call` throws a distlock::error; else the test fails here. Returns: it.
template <class Call>
distlock::error error_of(Call call) {
    try {
        static_cast<void>(call());
    } catch (const distlock::error& e) {
        return e;
    }
    FAIL("nothing was thrown");
    throw 0;  // FAIL throws, and is not said to
}
