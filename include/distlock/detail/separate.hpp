// Header-only, or compiled once: define DISTLOCK_SEPARATE_COMPILATION in every source file of a program, and
// include <distlock/src.hpp> in one of them.
#pragma once

#ifdef DISTLOCK_SEPARATE_COMPILATION
#define DISTLOCK_INLINE

namespace distlock::detail {
// A program without src.hpp does not link, whatever it uses.
__attribute__((visibility("default"))) extern const char include_src_hpp_in_one_source_file;
[[gnu::used]] static const char* const src_hpp_is_there = &include_src_hpp_in_one_source_file;
}  // namespace distlock::detail
#else
#define DISTLOCK_INLINE inline

namespace distlock::detail {
// src.hpp has one by this name that is thread-local: the linker refuses a program, or a shared
// library, that has both.
[[gnu::used]] __attribute__((
    visibility("hidden"))) inline int a_program_is_header_only_or_compiled_separately_not_both = 0;
}  // namespace distlock::detail
#endif
