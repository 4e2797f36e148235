# Has clang look whether our headers use what a mutex guards only while they hold it, and whether it notices where they do not.
#
#   cmake -D CLANG=<clang++> -D INCLUDE=<folder of our headers> -D WORK=<folder> -P mutex_contracts.cmake
cmake_minimum_required(VERSION 3.21)

file(REMOVE_RECURSE "${WORK}")
set(source "${WORK}/everything.cpp")
set(includes "")
foreach(header IN ITEMS distlock diagnose hiredis hiredis_tls interop src testing)
  string(APPEND includes "#include <distlock/${header}.hpp>\n")
endforeach()
# It looks into a template's members where they are made; most are by the definitions in src.hpp.
file(WRITE "${source}" "${includes}template class distlock::recursive_mutex<distlock::hiredis_connection>;\n")

# look(out_result out_text include)
function(look out_result out_text include)
  execute_process(COMMAND "${CLANG}" -std=c++20 -fsyntax-only -Werror=thread-safety -DDISTLOCK_SEPARATE_COMPILATION "-I${include}"
      "${source}"
    RESULT_VARIABLE result OUTPUT_VARIABLE text ERROR_VARIABLE text)
  set(${out_result} "${result}" PARENT_SCOPE)
  set(${out_text} "${text}" PARENT_SCOPE)
endfunction()

look(result text "${INCLUDE}")
if(NOT result EQUAL 0)
  message(FATAL_ERROR "a header breaks the contract of a mutex, or does not compile:\n${text}")
endif()

foreach(guarded IN ITEMS engine/background_release recursive_mutex)
  file(REMOVE_RECURSE "${WORK}/planted")
  file(COPY "${INCLUDE}/" DESTINATION "${WORK}/planted")
  set(header "${WORK}/planted/distlock/${guarded}.hpp")
  file(READ "${header}" text)
  string(REGEX REPLACE "const (distlock::)?detail::annotated_lock guard\\((lock_|state_)\\);" "" planted "${text}")
  if(planted STREQUAL text)
    message(FATAL_ERROR "${header} holds no lock that could be left out")
  endif()
  file(WRITE "${header}" "${planted}")
  look(result text "${WORK}/planted")
  if(result EQUAL 0 OR NOT text MATCHES "requires holding mutex")
    message(FATAL_ERROR "a lock was left out of ${guarded}.hpp, and clang did not say so:\n${text}")
  endif()
endforeach()
