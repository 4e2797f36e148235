# distlock_warnings(target): the warnings our own tests and examples are compiled with; errors where DISTLOCK_WERROR.
function(distlock_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Wshadow
    $<$<BOOL:${DISTLOCK_WERROR}>:-Werror>)
endfunction()
