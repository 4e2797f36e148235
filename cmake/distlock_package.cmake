# The Debian package libdistlock-dev: cpack in the build folder. Nothing that is installed is built, so nothing need be.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)
set(CMAKE_SKIP_PACKAGE_ALL_DEPENDENCY ON)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME libdistlock-dev)
set(CPACK_PACKAGE_CONTACT "distlock contributors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGE_DESCRIPTION "distlock::mutex, a lock for a fleet of processes: header-only, C++20, over hiredis or any other connection.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS  # whatever the umask
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS libhiredis-dev)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS libssl-dev)
# Debian wants the licence here.
set(_distlock_copyright "${PROJECT_BINARY_DIR}/package/copyright")
configure_file("${PROJECT_SOURCE_DIR}/LICENSE" "${_distlock_copyright}/share/doc/libdistlock-dev/copyright" COPYONLY)
set(CPACK_INSTALLED_DIRECTORIES "${_distlock_copyright}" usr)
include(CPack)
