// The same with TLS: OpenSSL is found, too.
#include <distlock/hiredis_tls.hpp>

int main() {
    static_cast<void>(distlock::tls());
    return 0;
}
