// A consumer of the testing component: it needs no third party.
#include <cstdio>

#include <distlock/testing.hpp>

int main() { std::puts("linked with testing"); }
