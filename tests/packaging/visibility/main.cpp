// An error from one shared library equals the same error from another, and is caught by its own type. And a
// library can be unloaded while its threads end: the first reply that one of them ended waited for the
// loader, and the loader for the thread.
#include <cstdio>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <distlock/base/error.hpp>
#include <distlock/detail/system.hpp>

#include "side.hpp"

namespace {

bool holds(bool condition, const char* sentence) {
    if (!condition) std::fprintf(stderr, "FAILED: %s\n", sentence);
    return condition;
}

bool is_caught(void (*thrower)()) {
    try {
        thrower();
    } catch (const distlock::error& e) {
        return e.code() == distlock::errc::deadlock;
    } catch (...) {}
    return false;
}

// A library that was loaded in the child took its parent for it, and spoke on the parent's sockets.
bool in_child_all_agree() {
    const auto parent = left_process();
    const auto child = ::fork();
    if (child == 0) ::_exit(left_process() != parent && left_process() == right_process() ? 0 : 1);
    int status = -1;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

int main() {
    bool ok = holds(&left_category() == &right_category(), "both libraries have one category object");
    ok &= holds(&left_category() == &distlock::error_category(), "and it is the program's");
    ok &= holds(left_code() == right_code(), "their codes are equal");
    ok &= holds(left_code() == distlock::errc::deadlock, "and equal to the enumerator");
    ok &=
        holds(left_process() == distlock::detail::current_process().value, "both know which process this is");
    ok &= holds(in_child_all_agree(), "and so they do in a child, though only one was asked in the parent");
    ok &= holds(is_caught(left_throw) && is_caught(right_throw), "their exceptions are caught by type");

    void* const loaded = ::dlopen(DISTLOCK_UNLOADED, RTLD_NOW | RTLD_LOCAL);
    ok &= holds(loaded != nullptr && ::dlclose(loaded) == 0, "a shared library is loaded, and unloaded");
    ok &= holds(::dlopen(DISTLOCK_UNLOADED, RTLD_NOW | RTLD_NOLOAD) == nullptr, "and is not there any more");
    return ok ? 0 : 1;
}
