# Install rules: one export set per component, the hiredis shim, a config that asks only for what was chosen, pkg-config.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Nothing in the package depends on the architecture, so everything but the headers goes under share/.
set(_distlock_package "${CMAKE_INSTALL_DATADIR}/cmake/distlock")
set(_distlock_generated "${PROJECT_BINARY_DIR}/package")

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/distlock" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING PATTERN "*.hpp")
foreach(_distlock_component IN ITEMS distlock testing hiredis hiredis_tls)
  set_target_properties(distlock_${_distlock_component} PROPERTIES EXPORT_NAME ${_distlock_component})
  install(TARGETS distlock_${_distlock_component} EXPORT distlock_${_distlock_component}
    INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
  install(EXPORT distlock_${_distlock_component} NAMESPACE distlock::
    FILE distlock_${_distlock_component}.cmake DESTINATION "${_distlock_package}")
endforeach()

write_basic_package_version_file("${_distlock_generated}/distlock-config-version.cmake"
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES
  "${PROJECT_SOURCE_DIR}/cmake/distlock-config.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/distlock_find_hiredis.cmake"
  "${_distlock_generated}/distlock-config-version.cmake"
  DESTINATION "${_distlock_package}")

set(_distlock_doc "${CMAKE_INSTALL_DOCDIR}")
if(NOT PROJECT_IS_TOP_LEVEL)
  set(_distlock_doc "${CMAKE_INSTALL_DATAROOTDIR}/doc/distlock")  # DOCDIR is the parent's
endif()
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${_distlock_doc}")

# pcfiledir keeps the pkg-config files right when the installed tree is moved.
set(_distlock_pc_folder "${CMAKE_INSTALL_DATADIR}/pkgconfig")
cmake_path(ABSOLUTE_PATH _distlock_pc_folder BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}" OUTPUT_VARIABLE _distlock_pc_up)
file(RELATIVE_PATH _distlock_pc_up "${_distlock_pc_up}" "${CMAKE_INSTALL_PREFIX}")
string(REGEX REPLACE "/$" "" _distlock_pc_up "${_distlock_pc_up}")
cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_INCLUDEDIR BASE_DIRECTORY "\${prefix}" OUTPUT_VARIABLE _distlock_pc_include)
foreach(_distlock_pc IN ITEMS distlock distlock-hiredis)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/${_distlock_pc}.pc.in" "${_distlock_generated}/${_distlock_pc}.pc" @ONLY)
  install(FILES "${_distlock_generated}/${_distlock_pc}.pc" DESTINATION "${_distlock_pc_folder}")
endforeach()
