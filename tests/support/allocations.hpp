// How often operator new was called in this program, and one call of this thread's that fails. Link
// allocations.cpp, which replaces it.
#pragma once

#include <cstddef>

std::size_t allocations() noexcept;

/// Effects: of the calls of this thread from now on, the nth fails; none when it is zero or less.
void fail_allocation(long nth) noexcept;
/// Returns: whether it did.
bool allocation_failed() noexcept;
/// Returns: whether calls can fail: the thread sanitizer has an operator new that stands before ours.
bool allocations_can_fail() noexcept;
