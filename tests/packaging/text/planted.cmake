# What the planted-fault tests share. The caller has defined clean_tree(root), which writes a tree that must pass.
file(REMOVE_RECURSE "${WORK}")

# run(name expected): runs the checker on ${WORK}/name; expected is "" for success, else a pattern of what it must say.
function(run name expected)
  set(root "${WORK}/${name}")
  execute_process(COMMAND "${CMAKE_COMMAND}" -D "ROOT=${root}" -D "INCLUDE=${root}/include" -P "${CHECKER}"
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

# plant(name file text expected): a clean tree with this text at the end of one file.
function(plant name file text expected)
  clean_tree("${WORK}/${name}")
  file(APPEND "${WORK}/${name}/${file}" "${text}")
  run(${name} "${expected}")
endfunction()
