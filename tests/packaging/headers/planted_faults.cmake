# Plants one fault after the other in a two-header tree and expects the header units to find it.
cmake_minimum_required(VERSION 3.21)
file(REMOVE_RECURSE "${WORK}")

set(good_a "#pragma once\n#include <string>\ninline std::string a() { return {}; }\n")
set(good_b "#pragma once\n#include <distlock/a.hpp>\ninline std::string b() { return a(); }\n")

# try(name a b expected): builds with these two headers; expected is "" for success, else a pattern of the output.
function(try name a b expected)
  set(headers "${WORK}/${name}/include")
  file(MAKE_DIRECTORY "${headers}/distlock")
  if(a)
    file(WRITE "${headers}/distlock/a.hpp" "${a}")
  endif()
  if(b)
    file(WRITE "${headers}/distlock/b.hpp" "${b}")
  endif()
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -S "${PROJECT}" -B "${WORK}/${name}/build" -G "${GENERATOR}"
      "-DCMAKE_CXX_COMPILER=${CXX}" "-DHEADERS=${headers}"
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(result EQUAL 0)
    execute_process(COMMAND "${CMAKE_COMMAND}" --build "${WORK}/${name}/build"
      RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  endif()
  if(expected STREQUAL "" AND NOT result EQUAL 0)
    message(SEND_ERROR "${name}: should have been accepted:\n${output}")
  elseif(NOT expected STREQUAL "" AND result EQUAL 0)
    message(SEND_ERROR "${name}: the planted fault was not found")
  elseif(NOT output MATCHES "${expected}")
    message(SEND_ERROR "${name}: failed, but not with '${expected}':\n${output}")
  else()
    message(STATUS "${name}: as expected")
  endif()
endfunction()

try(clean "${good_a}" "${good_b}" "")
try(missing_include "${good_a}" "#pragma once\ninline std::string b() { return a(); }\n" "not declared|undeclared")
try(missing_guard "#include <string>\ninline std::string a() { return {}; }\n" "" "redefinition")
try(missing_inline "#pragma once\nint a() { return 1; }\n" "" "multiple definition|duplicate symbol")
try(warning "#pragma once\ninline int a(long value) { return value; }\n" "" "conversion|shorten")
try(nothing "" "" "no header found")
