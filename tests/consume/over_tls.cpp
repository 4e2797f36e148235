// A consumer of the TLS component: it compiles and links; that it connects is tested against a server elsewhere.
#include <cstdio>

#include <distlock/hiredis_tls.hpp>

int main() { std::puts("linked with TLS"); }
