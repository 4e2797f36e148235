// A lock over TLS. Usage: tls rediss://host[:port] CA_FILE [CERTIFICATE_FILE KEY_FILE]
#include <cstdio>

#include <distlock/distlock.hpp>
#include <distlock/hiredis_tls.hpp>

namespace {

int lock_over_tls(const char* where, const distlock::tls_options& trust) {
    try {
        distlock::hiredis_connection redis{where, distlock::tls(trust)};
        distlock::mutex order{redis, "orders:42"};
        const distlock::scoped_lock guard{order};
        std::puts("locked");
        return 0;
    } catch (const distlock::error& e) {  // errc::tls_failed: the server is not trusted, or does not trust us
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 3) return lock_over_tls(argv[1], {.ca_file = argv[2]});
    // The server asks who the client is.
    if (argc == 5)
        return lock_over_tls(argv[1], {.ca_file = argv[2], .certificate_file = argv[3], .key_file = argv[4]});
    std::fputs("usage: tls rediss://host[:port] CA_FILE [CERTIFICATE_FILE KEY_FILE]\n", stderr);
    return 2;
}
