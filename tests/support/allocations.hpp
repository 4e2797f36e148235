// How often operator new was called in this program, and one call of this thread's that fails. Link
// allocations.cpp, which replaces it.
#pragma once

#include <cstddef>

std::size_t allocations() noexcept;

/// Effects: of the calls of this thread from now on, the nth fails; none when it is zero or less.
void fail_allocation(long nth) noexcept;
/// Returns: whether it did.
bool allocation_failed() noexcept;
/// Returns: whether calls are counted, and can fail.
bool allocations_can_fail() noexcept;
/// Why they cannot.
inline constexpr char operator_new_is_not_ours[] = "the thread sanitizer has an operator new before ours";
