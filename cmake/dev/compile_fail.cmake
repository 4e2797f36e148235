# Runs the cases of one file in tests/packaging/compile_fail: what must not compile, beside the twin that must.
#
#   cmake -D FILE=<file.cpp> -D "COMPILE=<compiler and flags>" -D WORK=<folder> -P compile_fail.cmake
#
# What the file includes is precompiled in the folder.
#
# A case is written
#   // CASE_name: <regular expression>
#   #if defined(CASE_name)
#   ...must be refused, and what the compiler says must match...
#   #elif defined(CASE_name_ok)
#   ...must compile...
#   #endif
# A file without a case, a case without a twin and an expression without a case are errors.
cmake_minimum_required(VERSION 3.21)

file(STRINGS "${FILE}" lines)
get_filename_component(file_name "${FILE}" NAME)
set(cases "")
set(blocks "")
set(twins "")
foreach(line IN LISTS lines)
  if(line MATCHES "^// (CASE_[a-z0-9_]+): (.+)$")
    list(APPEND cases ${CMAKE_MATCH_1})
    set(expected_${CMAKE_MATCH_1} "${CMAKE_MATCH_2}")
  elseif(line MATCHES "^#[ ]*(if|elif) defined\\((CASE_[a-z0-9_]+)_ok\\)")
    list(APPEND twins ${CMAKE_MATCH_2})
  elseif(line MATCHES "^#[ ]*(if|elif) defined\\((CASE_[a-z0-9_]+)\\)")
    list(APPEND blocks ${CMAKE_MATCH_2})
  endif()
endforeach()
if(NOT cases)
  message(FATAL_ERROR "${file_name}: holds no case ('// CASE_name: expression')")
endif()
foreach(case IN LISTS cases blocks twins)
  foreach(part IN ITEMS cases blocks twins)
    if(NOT case IN_LIST ${part})
      message(SEND_ERROR "${file_name}: ${case} is missing among its ${part} "
        "(cases: the expression; blocks: #if defined(${case}); twins: #elif defined(${case}_ok))")
      set(malformed TRUE)
    endif()
  endforeach()
endforeach()
if(malformed)
  return()
endif()

list(FILTER lines INCLUDE REGEX "^#include <")
list(JOIN lines "\n" includes)
set(first "${WORK}/first.hpp")
file(REMOVE_RECURSE "${WORK}")
file(WRITE "${first}" "${includes}\n")
execute_process(COMMAND ${COMPILE} -x c++-header "${first}" -o "${first}.gch" RESULT_VARIABLE result ERROR_VARIABLE text)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${file_name}: what it includes does not compile:\n${text}")
endif()

# compile(out_result out_text source option...)
function(compile out_result out_text source)
  execute_process(COMMAND ${COMPILE} -include "${first}" -fsyntax-only ${ARGN} "${source}"
    RESULT_VARIABLE result OUTPUT_VARIABLE text ERROR_VARIABLE text)
  set(${out_result} "${result}" PARENT_SCOPE)
  set(${out_text} "${text}" PARENT_SCOPE)
endfunction()

# All twins at once, each in a namespace of its own; one by one only to say which does not compile.
set(all "")
foreach(case IN LISTS cases)
  string(APPEND all "namespace of_${case} {\n#define ${case}_ok\n#include \"${FILE}\"\n#undef ${case}_ok\n}\n")
endforeach()
file(WRITE "${WORK}/twins.cpp" "${all}")
compile(all_result all_text "${WORK}/twins.cpp")

foreach(case IN LISTS cases)
  if(NOT all_result EQUAL 0)
    compile(result text "${FILE}" -D${case}_ok)
    if(NOT result EQUAL 0)
      set(all_text "")
      message(SEND_ERROR "${file_name}: ${case}_ok must compile, and does not:\n${text}")
    endif()
  endif()
  compile(result text "${FILE}" -D${case})
  if(result EQUAL 0)
    message(SEND_ERROR "${file_name}: ${case} must not compile, and does")
  elseif(NOT text MATCHES "${expected_${case}}")
    message(SEND_ERROR "${file_name}: ${case} is refused, but not with '${expected_${case}}':\n${text}")
  else()
    message(STATUS "${case}: as expected")
  endif()
endforeach()
if(NOT all_result EQUAL 0 AND all_text)
  message(SEND_ERROR "${file_name}: each twin compiles, but not each in a namespace beside the others:\n${all_text}")
endif()
