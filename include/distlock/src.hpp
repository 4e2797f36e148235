// A program with DISTLOCK_SEPARATE_COMPILATION compiles this once: include it in one source file. If hiredis
// is installed, that file includes it, unless it also defines DISTLOCK_WITHOUT_HIREDIS. In such a program a
// source file that names a dialect includes interop.hpp, too: distlock.hpp does not define them there.
#pragma once

#ifndef DISTLOCK_SEPARATE_COMPILATION
#error \
    "define DISTLOCK_SEPARATE_COMPILATION in every source file of the program; without it there is nothing to compile separately"
#endif

#include <distlock/base/error_impl.hpp>
#include <distlock/base/options_impl.hpp>
#include <distlock/engine/joint_acquire_impl.hpp>
#include <distlock/engine/lock_core_impl.hpp>
#include <distlock/engine/permit_pool.hpp>
#include <distlock/engine/shared_core_impl.hpp>
#include <distlock/net/any_connection_impl.hpp>
#include <distlock/net/cluster_uri_impl.hpp>
#include <distlock/net/sentinel_uri_impl.hpp>
#include <distlock/net/service_registry_impl.hpp>
#include <distlock/net/subscription_impl.hpp>
#include <distlock/net/uri_impl.hpp>
#include <distlock/wire/diagnosis_impl.hpp>
#include <distlock/wire/examination_impl.hpp>
#include <distlock/wire/family_inspector_impl.hpp>
#include <distlock/wire/outcome_impl.hpp>
#include <distlock/wire/permit_inspector_impl.hpp>
#include <distlock/wire/plain_inspector_impl.hpp>
#include <distlock/wire/reply_impl.hpp>
#include <distlock/wire/report_impl.hpp>
#if !defined(DISTLOCK_WITHOUT_HIREDIS) && (__has_include(<hiredis/hiredis.h>) || __has_include(<hiredis.h>))
#include <distlock/src_hiredis.hpp>
#endif

namespace distlock::detail {
const char include_src_hpp_in_one_source_file = 0;

// A linker refuses the mix: elsewhere this name is not thread-local.
[[gnu::used]] __attribute__((
    visibility("hidden"))) thread_local int a_program_is_header_only_or_compiled_separately_not_both = 0;
}  // namespace distlock::detail
