# distlock_warnings(target): the warnings our own tests and examples are compiled with; errors where DISTLOCK_WERROR. Clang checks
# the contracts of our mutexes besides (detail/thread_safety.hpp).
function(distlock_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Wshadow
    $<$<CXX_COMPILER_ID:Clang,AppleClang>:-Wthread-safety>
    $<$<BOOL:${DISTLOCK_WERROR}>:-Werror>)
endfunction()
