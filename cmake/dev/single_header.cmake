# Writes the library into one header: cmake -D OUTPUT=<file> -P single_header.cmake
#
# It holds what the doors below reach, each header once, behind those that it includes. The headers of the standard library and the system
# stand at its top, but for those that are included on a condition.
cmake_minimum_required(VERSION 3.21)
include("${CMAKE_CURRENT_LIST_DIR}/text.cmake")
set(doors distlock/distlock.hpp distlock/hiredis.hpp)
get_filename_component(root "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
if(NOT OUTPUT)
  message(FATAL_ERROR "usage: cmake -D OUTPUT=<file> -P cmake/dev/single_header.cmake")
endif()

file(STRINGS "${root}/CMakeLists.txt" version REGEX "^project[(]distlock VERSION ")
if(NOT version MATCHES "VERSION ([0-9.]+)")
  message(FATAL_ERROR "single_header: CMakeLists.txt names no version")
endif()
set(version "${CMAKE_MATCH_1}")

# The header-only form is the only one here: what stands on this condition stands without it.
set(always "#ifndef DISTLOCK_SEPARATE_COMPILATION")

set(text "")
set(held "")
set(others "")

# flush(): moves what was read of `header` to `text`. A macro: both belong to its caller.
macro(flush)
  if(part MATCHES "[^\n]")
    string(APPEND text "\n// ---- <${header}>${continued}\n${part}")
    set(continued ", continued")
  endif()
  set(part "")
endmacro()

# add(header): appends it to `text`, after what it includes.
function(add header)
  list(APPEND held "${header}")
  set(part "")
  set(continued "")
  set(conditions "")
  distlock_read_lines(lines "${root}/include/${header}")
  foreach(line IN LISTS lines)
    if(line MATCHES "^[ \t]*#[ \t]*pragma[ \t]+(once|GCC system_header)")
      continue()
    elseif(line MATCHES "^[ \t]*#[ \t]*if")
      list(APPEND conditions "${line}")
      if(line STREQUAL always)
        continue()
      endif()
    elseif(line MATCHES "^[ \t]*#[ \t]*el" AND conditions MATCHES "${always}$")
      message(FATAL_ERROR "single_header: ${header} has a part that is never compiled here: '${line}' behind '${always}'")
    elseif(line MATCHES "^[ \t]*#[ \t]*endif")
      list(POP_BACK conditions condition)
      if(condition STREQUAL always)
        continue()
      endif()
    elseif(line MATCHES "^[ \t]*#[ \t]*include[ \t]*<(distlock/[^>]+)>")
      set(name "${CMAKE_MATCH_1}")
      if(conditions STREQUAL always)
        flush()  # the half that stands behind it needs it
      elseif(conditions)
        message(FATAL_ERROR "single_header: ${header} includes <${name}> on another condition than '${always}'")
      endif()
      if(NOT name IN_LIST held)
        add("${name}")
      endif()
      continue()
    elseif(line MATCHES "^[ \t]*#[ \t]*include[ \t]*<([^>]+)>" AND NOT conditions)
      list(APPEND others "#include <${CMAKE_MATCH_1}>")
      continue()
    endif()
    string(APPEND part "${line}\n")
  endforeach()
  flush()
  foreach(variable IN ITEMS text held others)
    set(${variable} "${${variable}}" PARENT_SCOPE)
  endforeach()
endfunction()

foreach(door IN LISTS doors)
  if(NOT door IN_LIST held)
    add("${door}")
  endif()
endforeach()
distlock_plain(text "${text}")
list(REMOVE_DUPLICATES others)
list(SORT others)
list(JOIN others "\n" others)
string(REGEX REPLACE "\n\n\n+" "\n\n" text "${text}")

file(READ "${root}/LICENSE" licence)
string(STRIP "${licence}" licence)
string(REGEX REPLACE "\n" "\n// " licence "// ${licence}")
string(REGEX REPLACE " +\n" "\n" licence "${licence}")

string(CONFIGURE [[
// distlock @version@ in one header: <distlock/distlock.hpp> and <distlock/hiredis.hpp>, made by cmake/dev/single_header.cmake. It needs
// C++20, hiredis, and a thread library: c++ -std=c++20 -pthread service.cpp -lhiredis
//
// Left out: TLS (<distlock/hiredis_tls.hpp>), the dialects of other clients (<distlock/interop.hpp>), what looks a server over
// (<distlock/diagnose.hpp>), what helps to test a service (<distlock/testing.hpp>). No source file includes both this and a header of
// include/distlock.
//
@licence@
#pragma once

#ifdef DISTLOCK_SEPARATE_COMPILATION
#error "distlock in one header is header-only: do not define DISTLOCK_SEPARATE_COMPILATION, or use the headers of include/distlock"
#endif
]] top @ONLY)
file(WRITE "${OUTPUT}" "${top}\n${others}\n${text}")
list(LENGTH held count)
message(STATUS "single_header: ${count} headers of distlock ${version} in ${OUTPUT}")
