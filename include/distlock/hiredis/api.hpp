// One name for the hiredis headers, whatever the packaging.
#pragma once

#if __has_include(<hiredis/hiredis.h>)
#include <hiredis/hiredis.h>
#include <hiredis/read.h>
#elif __has_include(<hiredis.h>)  // as a sub-project
#include <hiredis.h>
#include <read.h>
#else
#error \
    "distlock/hiredis.hpp needs hiredis (apt-get install libhiredis-dev); any other connection works without it"
#endif
