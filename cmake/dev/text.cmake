# distlock_read_lines(out file): the lines of a text file as a list, safe to loop over.
#
# CMake's lists give a meaning to semicolons, brackets and backslashes; here they stand as control characters, which
# distlock_plain(out text) turns back.
string(ASCII 1 DISTLOCK_SEMICOLON)
string(ASCII 2 DISTLOCK_OPEN)
string(ASCII 3 DISTLOCK_CLOSE)
string(ASCII 4 DISTLOCK_BACKSLASH)

function(distlock_read_lines out file)
  file(READ "${file}" text)
  string(REPLACE "\\" "${DISTLOCK_BACKSLASH}" text "${text}")
  string(REPLACE ";" "${DISTLOCK_SEMICOLON}" text "${text}")
  string(REPLACE "[" "${DISTLOCK_OPEN}" text "${text}")
  string(REPLACE "]" "${DISTLOCK_CLOSE}" text "${text}")
  string(REPLACE "\r\n" "\n" text "${text}")
  string(REGEX REPLACE "\n$" "" text "${text}")
  string(REPLACE "\n" ";" text "${text}")
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

function(distlock_plain out text)
  string(REPLACE "${DISTLOCK_SEMICOLON}" ";" text "${text}")
  string(REPLACE "${DISTLOCK_OPEN}" "[" text "${text}")
  string(REPLACE "${DISTLOCK_CLOSE}" "]" text "${text}")
  string(REPLACE "${DISTLOCK_BACKSLASH}" "\\" text "${text}")
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

# distlock_conclude(check none seen faults): fails where nothing was there to be checked, or faults were listed.
function(distlock_conclude check none seen faults)
  if(seen EQUAL 0)
    message(FATAL_ERROR "${check}: ${none} found under ${INCLUDE}/distlock: nothing was checked")
  endif()
  if(faults GREATER 0)
    message(FATAL_ERROR "${check}: ${faults} fault(s), listed above")
  endif()
endfunction()
