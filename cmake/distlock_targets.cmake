# Defines the library's targets, one per component; those that need a third party exist only where it was found.

# Guests get our headers as system headers, so that their own warning flags stay theirs.
set(_distlock_system SYSTEM)
if(PROJECT_IS_TOP_LEVEL)
  set(_distlock_system "")
endif()

# A parent links targets of this folder, but does not see what was imported in it unless that is global.
macro(_distlock_find_global package)
  set(_distlock_missing "")
  foreach(_distlock_target IN ITEMS ${ARGN})
    if(NOT TARGET ${_distlock_target})
      list(APPEND _distlock_missing ${_distlock_target})
    endif()
  endforeach()
  find_package(${package} QUIET)
  foreach(_distlock_target IN LISTS _distlock_missing)
    if(TARGET ${_distlock_target})
      set_target_properties(${_distlock_target} PROPERTIES IMPORTED_GLOBAL TRUE)
    endif()
  endforeach()
endmacro()

_distlock_find_global(Threads Threads::Threads)
if(NOT TARGET Threads::Threads)
  message(FATAL_ERROR "distlock needs a thread library, and CMake's FindThreads found none")
endif()

add_library(distlock_distlock INTERFACE)
target_include_directories(distlock_distlock ${_distlock_system} INTERFACE
  "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>")
target_compile_features(distlock_distlock INTERFACE cxx_std_20)
target_link_libraries(distlock_distlock INTERFACE Threads::Threads)
add_library(distlock::distlock ALIAS distlock_distlock)

add_library(distlock_testing INTERFACE)
target_link_libraries(distlock_testing INTERFACE distlock_distlock)
add_library(distlock::testing ALIAS distlock_testing)

# The annexes are always there to be installed (whoever uses the package looks for hiredis then); the names a parent
# links, distlock::hiredis and distlock::hiredis_tls, are given only where they would work.
add_library(distlock_hiredis INTERFACE)
target_link_libraries(distlock_hiredis INTERFACE distlock_distlock distlock::hiredis_library)
add_library(distlock_hiredis_tls INTERFACE)
target_link_libraries(distlock_hiredis_tls INTERFACE distlock_hiredis OpenSSL::SSL)

if(DISTLOCK_WITH_HIREDIS)
  set(_distlock_hiredis_scope GLOBAL)
  include("${PROJECT_SOURCE_DIR}/cmake/distlock_find_hiredis.cmake")
  if(TARGET distlock::hiredis_library)
    add_library(distlock::hiredis ALIAS distlock_hiredis)
    if(EXISTS "${PROJECT_SOURCE_DIR}/include/distlock/hiredis_tls.hpp")
      _distlock_find_global(OpenSSL OpenSSL::SSL OpenSSL::Crypto)
      if(TARGET OpenSSL::SSL)
        add_library(distlock::hiredis_tls ALIAS distlock_hiredis_tls)
      else()
        message(STATUS "distlock: no OpenSSL found, so there is no distlock::hiredis_tls")
      endif()
    endif()
  else()
    message(STATUS "distlock: no hiredis found, so there is no distlock::hiredis")
  endif()
endif()

# Compiled once instead of in every source file: link it beside the others. Built only where it is linked.
set(_distlock_sources "${PROJECT_BINARY_DIR}/compiled/distlock.cpp")
file(CONFIGURE OUTPUT "${_distlock_sources}" CONTENT "#define DISTLOCK_WITHOUT_HIREDIS\n#include <distlock/src.hpp>\n")
if(TARGET distlock::hiredis)
  list(APPEND _distlock_sources "${PROJECT_BINARY_DIR}/compiled/hiredis.cpp")
  file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/compiled/hiredis.cpp" CONTENT
    "#include <distlock/src_hiredis.hpp>\n")
endif()
add_library(distlock_compiled STATIC EXCLUDE_FROM_ALL ${_distlock_sources})
set_target_properties(distlock_compiled PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_compile_definitions(distlock_compiled PUBLIC DISTLOCK_SEPARATE_COMPILATION)
target_link_libraries(distlock_compiled PUBLIC distlock_distlock)
if(TARGET distlock::hiredis)
  target_link_libraries(distlock_compiled PRIVATE distlock::hiredis_library)
endif()
add_library(distlock::compiled ALIAS distlock_compiled)
