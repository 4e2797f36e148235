// The main() of every test program: Catch's own, except that running no test at all is a failure, and that
// servers live in memory.
#define CATCH_CONFIG_RUNNER
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <unistd.h>

#include "support/catch.hpp"

// A Sentinel writes each change to disk before it goes on. Where that takes it two seconds, since others
// write too, it stands still for thirty (+tilt).
static void keep_folders_in_memory() {
    constexpr std::uintmax_t room = 512 * 1024 * 1024;
    std::error_code none;
    if (::access("/dev/shm", W_OK) != 0 || std::filesystem::space("/dev/shm", none).available < room || none)
        return;
    ::setenv("TMPDIR", "/dev/shm", 0);
}

int main(int argc, char** argv) {
    Catch::Session session;
    if (const int wrong = session.applyCommandLine(argc, argv); wrong != 0) return wrong;
#if DISTLOCK_CATCH_MAJOR == 2
    auto& settings = session.configData();
    settings.warnings = static_cast<Catch::WarnAbout::What>(settings.warnings | Catch::WarnAbout::NoTests);
#endif
    keep_folders_in_memory();
    return session.run();
}
