// The version of the library, for #if: major * 10000 + minor * 100 + patch.
#pragma once

#define DISTLOCK_VERSION 100
