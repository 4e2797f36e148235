# single_header_includes(folder single include): an include folder, to stand before all others: each header that the single header
# holds is the single header there, and each other one is that of `include`.
function(single_header_includes folder single include)
  file(STRINGS "${single}" marks REGEX "^// ---- <distlock/[^>]+>$")
  file(GLOB_RECURSE headers RELATIVE "${include}" "${include}/distlock/*.hpp")
  foreach(header IN LISTS headers)
    set(target "${include}/${header}")
    if("// ---- <${header}>" IN_LIST marks)
      set(target "${single}")
    endif()
    file(CONFIGURE OUTPUT "${folder}/${header}" CONTENT "#include \"@target@\"\n" @ONLY)
  endforeach()
endfunction()
