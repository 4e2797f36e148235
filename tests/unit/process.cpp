// Which process this is, known without asking the system.
#include <sys/wait.h>
#include <unistd.h>

#include <distlock/detail/process.hpp>

#include "support/catch.hpp"

using distlock::detail::current_process;

TEST_CASE("a process, its child and the child of that each know themselves") {
    CHECK(current_process() == ::getpid());
    const pid_t child = ::fork();
    if (child == 0) {
        bool right = current_process() == ::getpid();
        const pid_t grandchild = ::fork();
        if (grandchild == 0) ::_exit(current_process() == ::getpid() ? 0 : 1);
        int status = -1;
        right = right && ::waitpid(grandchild, &status, 0) == grandchild && status == 0;
        right = right && current_process() == ::getpid();
        ::_exit(right ? 0 : 1);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(current_process() == ::getpid());
}
