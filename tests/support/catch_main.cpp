// The main() of every test program: Catch's own, except that running no test at all is a failure.
#define CATCH_CONFIG_RUNNER
#include "support/catch.hpp"

int main(int argc, char** argv) {
    Catch::Session session;
    if (const int wrong = session.applyCommandLine(argc, argv); wrong != 0) return wrong;
#if DISTLOCK_CATCH_MAJOR == 2
    auto& settings = session.configData();
    settings.warnings = static_cast<Catch::WarnAbout::What>(settings.warnings | Catch::WarnAbout::NoTests);
#endif
    return session.run();
}
