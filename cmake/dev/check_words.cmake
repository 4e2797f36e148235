# Checks that words with a known danger do not occur: cmake -D ROOT=<repository> -P check_words.cmake
cmake_minimum_required(VERSION 3.21)
include("${CMAKE_CURRENT_LIST_DIR}/text.cmake")
if(NOT ROOT)
  get_filename_component(ROOT "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
endif()

# Files that may sleep although they are tests, each with the reason in a comment beside it.
set(may_sleep
  tests/model/simulator/interpose.cpp)  # defines it

# Headers that may read the wall clock, each with the reason.
set(may_read_wall_clock
  include/distlock/diagnose.hpp)  # compares it with the server's

set(faults 0)
set(start "(^|[^A-Za-z0-9_])")

# check(file word why): `word` must not occur in `file`, comments aside.
macro(check file word why)
  if(line MATCHES "${start}(${word})")
    math(EXPR faults "${faults} + 1")
    string(STRIP "${CMAKE_MATCH_2}" found)
    message(NOTICE "${file}:${number}: ${found}: ${why}")
  endif()
endmacro()

file(GLOB_RECURSE headers RELATIVE "${ROOT}" "${ROOT}/include/*.hpp")
file(GLOB_RECURSE tests RELATIVE "${ROOT}" "${ROOT}/tests/*.cpp" "${ROOT}/tests/*.hpp")
foreach(kind IN ITEMS headers tests)
  if(NOT ${kind})
    message(FATAL_ERROR "words: no ${kind} found under ${ROOT}: nothing was checked")
  endif()
endforeach()

foreach(file IN LISTS headers tests)
  distlock_read_lines(lines "${ROOT}/${file}")
  set(number 0)
  foreach(line IN LISTS lines)
    math(EXPR number "${number} + 1")
    # A comment may name what it warns of; the // of a URI starts none.
    string(REGEX REPLACE "(^|[^:])//.*$" "\\1" line "${line}")
    if(file IN_LIST headers)
      if(NOT file IN_LIST may_read_wall_clock)
        check("${file}" "system_clock|CLOCK_REALTIME|gettimeofday"
          "wall clocks jump: leases are counted on distlock::clock")
      endif()
      check("${file}" "redisv?Command(Argv)?[ \t]*[(]"
        "blocks past the deadline: append the command and wait with poll() to the deadline")
      check("${file}" "redisReconnect[A-Za-z]*"
        "loses time-outs and crashes with TLS: free the context and build a new one")
    elseif(NOT file IN_LIST may_sleep)
      check("${file}" "sleep_for|sleep_until|usleep|nanosleep"
        "a test must not sleep to be right: wait for the condition, with a deadline")
    endif()
  endforeach()
endforeach()

list(LENGTH headers header_count)
list(LENGTH tests test_count)
if(faults GREATER 0)
  message(FATAL_ERROR "words: ${faults} fault(s), listed above")
endif()
message(STATUS "words: nothing found in ${header_count} headers and ${test_count} test files")
