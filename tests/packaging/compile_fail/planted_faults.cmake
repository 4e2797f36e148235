# Hands the harness files it must refuse, each with one fault, and one it must accept.
cmake_minimum_required(VERSION 3.21)
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")

# try(name content expected): expected is "" for success, else a pattern of what the harness must say.
function(try name content expected)
  file(WRITE "${WORK}/${name}.cpp" "${content}")
  execute_process(COMMAND "${CMAKE_COMMAND}" -D "FILE=${WORK}/${name}.cpp" -D "COMPILE=${COMPILE}" -D "WORK=${WORK}/${name}"
      -P "${HARNESS}"
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(expected STREQUAL "" AND NOT result EQUAL 0)
    message(SEND_ERROR "${name}: should have been accepted:\n${output}")
  elseif(NOT expected STREQUAL "" AND result EQUAL 0)
    message(SEND_ERROR "${name}: the planted fault was not found:\n${output}")
  elseif(NOT output MATCHES "${expected}")
    message(SEND_ERROR "${name}: failed, but not with '${expected}':\n${output}")
  else()
    message(STATUS "${name}: as expected")
  endif()
endfunction()

set(head "// CASE_x: nonsuch\n#if defined(CASE_x)\n")
set(twin "#elif defined(CASE_x_ok)\n")
try(good "${head}int a = nonsuch;\n${twin}int a = 1;\n#endif\n" "")
try(compiles "${head}int a = 1;\n${twin}int a = 1;\n#endif\n" "must not compile, and does")
try(other_reason "${head}int a = other;\n${twin}int a = 1;\n#endif\n" "but not with 'nonsuch'")
try(broken_twin "${head}int a = nonsuch;\n${twin}int a = other;\n#endif\n" "must compile, and does[\n ]+not")
try(no_twin "${head}int a = nonsuch;\n#endif\n" "missing among its[\n ]+twins")
try(no_block "// CASE_x: nonsuch\n#if defined(CASE_x_ok)\n#endif\n" "missing among its[\n ]+blocks")
try(no_expression "#if defined(CASE_y)\n#elif defined(CASE_y_ok)\n#endif\n" "holds no case")
try(nothing "int a = 1;\n" "holds no case")
