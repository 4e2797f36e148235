# An overlay port: it installs the repository it stands in. Features only bring what their headers need; all headers are installed.
set(VCPKG_BUILD_TYPE release)  # there is nothing to build
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
vcpkg_fixup_pkgconfig()
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
