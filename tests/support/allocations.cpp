// Counts calls of operator new. In a file of its own: a compiler that sees both halves of a replaced pair warns.
#include "allocations.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::size_t> calls{0};
}

std::size_t allocations() noexcept { return calls.load(); }

void* operator new(std::size_t size) {
    ++calls;
    if (void* p = std::malloc(size == 0 ? 1 : size)) return p;
    throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
