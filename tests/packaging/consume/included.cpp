// A consumer that includes and links; that a lock works is seen where distlock is fetched and where it
// is plainly included.
#include <distlock/distlock.hpp>

int main() { return distlock::make_error_code(distlock::errc::unreachable) ? 0 : 1; }
