# Gives hiredis one name, the imported target distlock::hiredis_library, however it was packaged; or leaves it undefined.
#
# In this order: a target the caller's tree already has (hiredis::hiredis or hiredis), upstream's CMake package (hiredis
# 1.0 and later), and the bare header and library (Debian), with pkg-config's help where there is one. Never
# find_package(Hiredis): what Debian 12 installs under that spelling ends the configuration with an error.

if(NOT TARGET distlock::hiredis_library)
  set(_distlock_hiredis "")
  # _distlock_first_library(out): the first of the names that is a library. A target of ExternalProject_Add(hiredis) is none.
  macro(_distlock_first_library out)
    foreach(_distlock_candidate IN ITEMS hiredis::hiredis hiredis hiredis::hiredis_static hiredis_static)
      if(NOT ${out} AND TARGET ${_distlock_candidate})
        get_target_property(_distlock_type ${_distlock_candidate} TYPE)
        if(_distlock_type MATCHES "_LIBRARY$")
          set(${out} ${_distlock_candidate})
        endif()
      endif()
    endforeach()
  endmacro()
  _distlock_first_library(_distlock_hiredis)
  if(NOT _distlock_hiredis)
    find_package(hiredis CONFIG QUIET)
    _distlock_first_library(_distlock_hiredis)
    if(_distlock_hiredis AND _distlock_hiredis_scope STREQUAL "GLOBAL")
      get_target_property(_distlock_imported ${_distlock_hiredis} IMPORTED)
      if(_distlock_imported)  # FetchContent may have answered with a target of this build
        set_target_properties(${_distlock_hiredis} PROPERTIES IMPORTED_GLOBAL TRUE)
      endif()
    endif()
  endif()

  if(_distlock_hiredis)
    add_library(distlock::hiredis_library INTERFACE IMPORTED ${_distlock_hiredis_scope})
    target_link_libraries(distlock::hiredis_library INTERFACE ${_distlock_hiredis})
    # Built inside the caller's tree its header is <hiredis.h>. Where the system also has another hiredis, a plain
    # <hiredis/hiredis.h> would find that one: forward the name to the header that belongs to the library.
    get_target_property(_distlock_imported ${_distlock_hiredis} IMPORTED)
    get_target_property(_distlock_source ${_distlock_hiredis} SOURCE_DIR)
    if(NOT _distlock_imported AND EXISTS "${_distlock_source}/hiredis.h")
      set(_distlock_forward "${CMAKE_CURRENT_BINARY_DIR}/distlock_hiredis_forward")
      file(CONFIGURE OUTPUT "${_distlock_forward}/hiredis/hiredis.h"
        CONTENT "// Forwards to the hiredis of this build.\n#include \"@_distlock_source@/hiredis.h\"\n" @ONLY)
      target_include_directories(distlock::hiredis_library INTERFACE "${_distlock_forward}")
    endif()
  elseif(NOT CMAKE_DISABLE_FIND_PACKAGE_hiredis)
    find_package(PkgConfig QUIET)
    if(PKG_CONFIG_FOUND)
      pkg_check_modules(_DISTLOCK_HIREDIS_PC QUIET hiredis)
    endif()
    find_path(DISTLOCK_HIREDIS_INCLUDE_DIR hiredis/hiredis.h
      HINTS ${hiredis_ROOT} ENV hiredis_ROOT ${_DISTLOCK_HIREDIS_PC_INCLUDEDIR} ${_DISTLOCK_HIREDIS_PC_INCLUDE_DIRS}
      PATH_SUFFIXES include
      DOC "The folder that holds hiredis/hiredis.h")
    find_library(DISTLOCK_HIREDIS_LIBRARY hiredis
      HINTS ${hiredis_ROOT} ENV hiredis_ROOT ${_DISTLOCK_HIREDIS_PC_LIBDIR} ${_DISTLOCK_HIREDIS_PC_LIBRARY_DIRS}
      PATH_SUFFIXES lib
      DOC "The hiredis library")
    mark_as_advanced(DISTLOCK_HIREDIS_INCLUDE_DIR DISTLOCK_HIREDIS_LIBRARY)
    if(DISTLOCK_HIREDIS_INCLUDE_DIR AND DISTLOCK_HIREDIS_LIBRARY)
      add_library(distlock::hiredis_library INTERFACE IMPORTED ${_distlock_hiredis_scope})
      target_include_directories(distlock::hiredis_library INTERFACE "${DISTLOCK_HIREDIS_INCLUDE_DIR}")
      target_link_libraries(distlock::hiredis_library INTERFACE "${DISTLOCK_HIREDIS_LIBRARY}")
    endif()
  endif()
endif()
