// How often operator new was called in this program. Link allocations.cpp, which replaces it.
#pragma once

#include <cstddef>

std::size_t allocations() noexcept;
