# distlock_header_units(name folder pattern [ALONE]): proves that the headers of this pattern under folder/distlock fit together: the
# program <name> includes them all.
#
# ALONE: and that every one stands alone. Each gets a translation unit that includes nothing else of ours, and includes it twice; where
# definitions are left out by DISTLOCK_SEPARATE_COMPILATION they are: that takes half the time, and what they include helps no header
# that forgot an #include. Two files of the program include all, with definitions; it fails to link where an `inline` is missing.
# The standard's headers stand before each, compiled once: check_includes.cmake looks after those.
include("${CMAKE_CURRENT_LIST_DIR}/standard_names.cmake")

# distlock_header_needs(out header): what must be linked for this header, seen from include/.
function(distlock_header_needs out header)
  if(header MATCHES "^distlock/(hiredis_tls\\.hpp|hiredis/tls.*)$")
    set(${out} distlock::hiredis_tls PARENT_SCOPE)
  elseif(header MATCHES "^distlock/(hiredis\\.hpp|hiredis/.*)$")
    set(${out} distlock::hiredis PARENT_SCOPE)
  elseif(header MATCHES "^distlock/(testing\\.hpp|testing/.*)$")
    set(${out} distlock::testing PARENT_SCOPE)
  else()
    set(${out} distlock::distlock PARENT_SCOPE)
  endif()
endfunction()

function(distlock_header_units name folder pattern)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE "${folder}" "${folder}/distlock/*.hpp")
  list(FILTER headers INCLUDE REGEX "${pattern}")
  list(REMOVE_ITEM headers distlock/src.hpp distlock/src_hiredis.hpp)  # of the other form
  if(NOT headers)
    message(FATAL_ERROR "no header found under ${folder}/distlock")
  endif()

  add_executable(${name})
  set(everything "#define slots\n#define signals public\n#define emit\n#define foreach for\n#define forever for (;;)\n")  # as Qt does
  set(count 0)
  foreach(header IN LISTS headers)
    distlock_header_needs(need ${header})
    if(NOT TARGET ${need})
      message(STATUS "headers: ${header} is left out, because there is no ${need} here")
      continue()
    endif()
    math(EXPR count "${count} + 1")
    string(APPEND everything "#include <${header}>\n")

    list(APPEND needs ${need})
    if(NOT "ALONE" IN_LIST ARGN)
      continue()
    endif()

    string(REPLACE "/" "_" unit "${header}")
    set(unit "${CMAKE_CURRENT_BINARY_DIR}/${name}_units/${unit}.cpp")
    set(form "#define DISTLOCK_SEPARATE_COMPILATION\n")
    if(header MATCHES "_impl[.]hpp$|/engine/(shared_object|permit_pool)")  # what src.hpp is made of
      set(form "")
    endif()
    file(CONFIGURE OUTPUT "${unit}" CONTENT "@form@#include <@header@>\n#include <@header@>\n" @ONLY)
    string(MAKE_C_IDENTIFIER "${need}" group)
    list(APPEND groups ${group})
    set(need_${group} ${need})
    list(APPEND units_${group} "${unit}")
  endforeach()

  # One object library per component: a header is compiled with what its component may use, and nothing more.
  list(REMOVE_DUPLICATES groups)
  list(TRANSFORM distlock_standard_headers REPLACE "(.+)" "<\\1>" OUTPUT_VARIABLE precompiled)
  set(first "")
  foreach(group IN LISTS groups)
    add_library(${name}_${group} OBJECT ${units_${group}})
    target_link_libraries(${name}_${group} PRIVATE ${need_${group}})
    distlock_warnings(${name}_${group})
    if(first)
      target_precompile_headers(${name}_${group} REUSE_FROM ${first})
    else()
      set(first ${name}_${group})
      target_precompile_headers(${first} PRIVATE ${precompiled})
    endif()
    add_dependencies(${name} ${name}_${group})
  endforeach()
  list(REMOVE_DUPLICATES needs)
  target_link_libraries(${name} PRIVATE ${needs})

  set(main "${CMAKE_CURRENT_BINARY_DIR}/${name}_units/main.cpp")
  file(CONFIGURE OUTPUT "${main}" @ONLY CONTENT
    "@everything@#include <cstdio>\n\nint main() {\n    std::puts(\"@count@ headers\");\n}\n")
  target_sources(${name} PRIVATE "${main}")
  if("ALONE" IN_LIST ARGN)
    set(again "${CMAKE_CURRENT_BINARY_DIR}/${name}_units/again.cpp")
    file(CONFIGURE OUTPUT "${again}" CONTENT "@everything@" @ONLY)
    target_sources(${name} PRIVATE "${again}")
  endif()
  distlock_warnings(${name})
endfunction()
