// One of two shared libraries, built with hidden visibility; SIDE is its name.
#include "side.hpp"

#include <distlock/base/error.hpp>
#include <distlock/detail/system.hpp>

#define JOINED(side, what) side##_##what
#define NAME(side, what) JOINED(side, what)

const std::error_category& NAME(SIDE, category)() { return distlock::error_category(); }
std::error_code NAME(SIDE, code)() { return distlock::errc::deadlock; }
void NAME(SIDE, throw)() { throw distlock::error(distlock::errc::deadlock, "from a shared library"); }
std::uint64_t NAME(SIDE, process)() { return distlock::detail::current_process().value; }
