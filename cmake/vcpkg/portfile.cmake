# An overlay port: it installs the repository it stands in. Features only bring what their headers need; all headers are installed.

# There is nothing to build.
set(VCPKG_BUILD_TYPE release)
set(VCPKG_FIXUP_ELF_RPATH OFF)
set(VCPKG_POLICY_SKIP_PKGCONFIG_CHECK enabled)  # share/ is right for a package whose only library is -pthread
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)

vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    -DDISTLOCK_BUILD_TESTS=OFF
    -DDISTLOCK_BUILD_EXAMPLES=OFF
    -DDISTLOCK_WITH_HIREDIS=OFF  # the package looks for it where it is used
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/distlock)
if(NOT "hiredis" IN_LIST FEATURES)
  file(REMOVE "${CURRENT_PACKAGES_DIR}/share/pkgconfig/distlock-hiredis.pc")  # vcpkg asks pkg-config for what it requires
endif()
vcpkg_fixup_pkgconfig()
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
