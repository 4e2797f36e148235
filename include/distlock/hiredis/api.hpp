// One name for the header of hiredis, whatever the packaging.
#pragma once
#pragma GCC system_header  // of hiredis itself, too, where a build names its folder by -I

// First the folder that a build names: the other form also finds the system's hiredis, and the header of one
// with the library of another writes past its objects.
#if __has_include(<hiredis.h>)
#include <hiredis.h>
#elif __has_include(<hiredis/hiredis.h>)
#include <hiredis/hiredis.h>
#else
#error \
    "distlock/hiredis.hpp needs hiredis (apt-get install libhiredis-dev); any other connection works without it"
#endif
