// Counts calls of operator new, and fails them when it is told. In a file of its own: a compiler that sees
// both halves of a replaced pair warns.
#include "allocations.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::size_t> calls{0};
thread_local long until_failure = -1;  // below zero: none fails
}  // namespace

std::size_t allocations() noexcept { return calls.load(); }

void fail_allocation(long nth) noexcept { until_failure = nth; }
bool allocation_failed() noexcept { return until_failure == 0; }
bool allocations_can_fail() noexcept {
    const auto before = calls.load();
    ::operator delete(::operator new(1));
    return calls != before;
}

void* operator new(std::size_t size) {
    ++calls;
    if (until_failure > 0 && --until_failure == 0) throw std::bad_alloc();
    if (void* p = std::malloc(size == 0 ? 1 : size)) return p;
    throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
