# Runs one case of the consumer tests; tests/packaging/consume/CMakeLists.txt says with which variables.
cmake_minimum_required(VERSION 3.21)
set(prefix "${WORK}/prefix")
set(here "${CMAKE_CURRENT_LIST_DIR}")
set(build "${WORK}/${CASE}")
file(REMOVE_RECURSE "${build}")

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "${CASE}: this failed: ${command}\n${output}")
  endif()
endfunction()

# host(folder argument...): configures, builds and runs the host project in this folder.
function(host folder)
  run("${CMAKE_COMMAND}" -S "${here}/${folder}" -B "${build}" -G "${GENERATOR}" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-g0
    "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_CXX_FLAGS=${CXX_FLAGS}" "-DSOURCE=${SOURCE}" "-DCMAKE_PREFIX_PATH=${prefix}"
    "-DWITH_TLS=${WITH_TLS}" ${ARGN})
  run("${CMAKE_COMMAND}" --build "${build}")
  run("${CMAKE_CTEST_COMMAND}" --test-dir "${build}" --output-on-failure --no-tests=error)
endfunction()

# project_version(out): the version, which has its home in CMakeLists.txt.
function(project_version out)
  file(STRINGS "${SOURCE}/CMakeLists.txt" line REGEX "^project[(]distlock VERSION ")
  string(REGEX REPLACE "^.* VERSION ([0-9.]+).*$" "\\1" version "${line}")
  set(${out} "${version}" PARENT_SCOPE)
endfunction()

# Makes hiredis impossible to find, wherever it is.
get_filename_component(library_folder "${HIREDIS_LIBRARY}" DIRECTORY)
file(WRITE "${build}/no_hiredis.cmake"
  "set(CMAKE_IGNORE_PATH \"${HIREDIS_INCLUDE};${HIREDIS_INCLUDE}/hiredis;${library_folder}\" CACHE STRING \"\")\n"
  "set(CMAKE_DISABLE_FIND_PACKAGE_hiredis ON CACHE BOOL \"\")\n")
set(no_hiredis -C "${build}/no_hiredis.cmake")

if(CASE STREQUAL "install")
  # Installed in one place and used in another: nothing may remember the first.
  set(first "${WORK}/installed_here_first")
  file(REMOVE_RECURSE "${first}" "${prefix}")
  run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${first}")
  file(GLOB_RECURSE files RELATIVE "${first}" "${first}/*")
  foreach(needed IN ITEMS include/distlock/distlock.hpp share/cmake/distlock/distlock-config.cmake
      share/cmake/distlock/distlock_find_hiredis.cmake share/pkgconfig/distlock.pc share/pkgconfig/distlock-hiredis.pc)
    if(NOT needed IN_LIST files)
      message(SEND_ERROR "install: ${needed} is missing")
    endif()
  endforeach()
  file(GLOB_RECURSE headers RELATIVE "${SOURCE}" "${SOURCE}/include/*.hpp")
  foreach(header IN LISTS headers)
    if(NOT header IN_LIST files)
      message(SEND_ERROR "install: ${header} is missing")
    endif()
  endforeach()
  foreach(file IN LISTS files)
    if(NOT file MATCHES "^(include/distlock/.*\\.hpp|share/cmake/distlock/[^/]+\\.cmake|share/pkgconfig/distlock[a-z-]*\\.pc)$")
      message(SEND_ERROR "install: ${file} should not be installed")
    endif()
    file(READ "${first}/${file}" text)
    foreach(path IN ITEMS "${first}" "${SOURCE}/" "${BUILD}")
      string(FIND "${text}" "${path}" position)
      if(NOT position EQUAL -1)
        message(SEND_ERROR "install: ${file} remembers ${path}")
      endif()
    endforeach()
  endforeach()
  file(RENAME "${first}" "${prefix}")

elseif(CASE STREQUAL "fetch_content")
  host(fetch_content)
  run("${CMAKE_COMMAND}" --install "${build}" --prefix "${build}/prefix")
  if(EXISTS "${build}/prefix/include" OR EXISTS "${build}/prefix/share")
    message(FATAL_ERROR "fetch_content: distlock was installed with its host, unasked")
  endif()
elseif(CASE STREQUAL "subdirectory_without_hiredis")
  host(subdirectory_without_hiredis -DDISTLOCK_WITH_HIREDIS=OFF)
elseif(CASE STREQUAL "subdirectory_hiredis_missing")
  host(subdirectory_without_hiredis ${no_hiredis})
elseif(CASE STREQUAL "hiredis_in_tree")
  set(tree "${WORK}/hiredis_tree")
  file(WRITE "${tree}/hiredis.h"
    "#pragma once\n#define HIREDIS_OF_THIS_TREE\n#include \"${HIREDIS_INCLUDE}/hiredis/hiredis.h\"\n")
  file(WRITE "${tree}/CMakeLists.txt" "add_library(hiredis INTERFACE)\n"
    "target_include_directories(hiredis INTERFACE \"\${CMAKE_CURRENT_SOURCE_DIR}\")\n"
    "target_link_libraries(hiredis INTERFACE \"${HIREDIS_LIBRARY}\")\n")
  host(hiredis_in_tree "-DHIREDIS_TREE=${tree}")

elseif(CASE STREQUAL "find_package_plain")
  host(find_package_plain)
elseif(CASE STREQUAL "find_package_hiredis")
  host(find_package_hiredis)
elseif(CASE STREQUAL "find_package_hiredis_config")
  set(upstream "${WORK}/upstream")
  file(WRITE "${upstream}/share/hiredis/hiredis-config.cmake"
    "add_library(hiredis::hiredis SHARED IMPORTED)\n"
    "set_target_properties(hiredis::hiredis PROPERTIES IMPORTED_LOCATION \"${HIREDIS_LIBRARY}\"\n"
    "  INTERFACE_INCLUDE_DIRECTORIES \"${HIREDIS_INCLUDE}\")\n")
  host(find_package_hiredis -DEXPECT_HIREDIS_TARGET=ON "-Dhiredis_DIR=${upstream}/share/hiredis")
elseif(CASE STREQUAL "find_package_components")
  host(find_package_components ${no_hiredis})

elseif(CASE STREQUAL "pkg_config" OR CASE STREQUAL "plain_include")
  separate_arguments(flags UNIX_COMMAND "${CXX_FLAGS}")
  list(APPEND flags -std=c++20 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror)
  file(MAKE_DIRECTORY "${build}")
  foreach(package IN ITEMS distlock distlock-hiredis)
    set(program "${build}/${package}")
    if(CASE STREQUAL "pkg_config")
      string(REPLACE "distlock" "included" source "${package}.cpp")
      string(REPLACE "-" "_" source "${source}")
      set(ENV{PKG_CONFIG_PATH} "${prefix}/share/pkgconfig")
      execute_process(COMMAND pkg-config --cflags --libs ${package}
        OUTPUT_VARIABLE words OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
      if(package STREQUAL "distlock" AND words MATCHES "hiredis")
        message(FATAL_ERROR "pkg-config distlock asks for hiredis: ${words}")
      endif()
      separate_arguments(words UNIX_COMMAND "${words}")
    else()
      set(words "-I${SOURCE}/include" -pthread)
      set(source plain.cpp)
      if(package STREQUAL "distlock-hiredis")
        set(source over_hiredis.cpp)
        list(APPEND words "-I${HIREDIS_INCLUDE}" "${HIREDIS_LIBRARY}")
      endif()
    endif()
    run("${CXX}" ${flags} "${here}/${source}" ${words} -o "${program}")
    run("${program}")
  endforeach()

elseif(CASE STREQUAL "separate_compilation")
  separate_arguments(flags UNIX_COMMAND "${CXX_FLAGS}")
  list(APPEND flags -std=c++20 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror "-I${SOURCE}/include" "-I${HIREDIS_INCLUDE}" -pthread)
  set(separate -DDISTLOCK_SEPARATE_COMPILATION)
  file(MAKE_DIRECTORY "${build}")
  foreach(part IN ITEMS src.hpp scoped_lock.hpp)
    file(WRITE "${build}/${part}.cpp" "#include <distlock/${part}>\n")
  endforeach()
  # compile(object source flag...)
  function(compile object source)
    run("${CXX}" ${flags} ${ARGN} -c "${source}" -o "${build}/${object}.o")
  endfunction()
  function(link program)
    list(TRANSFORM ARGN PREPEND "${build}/")
    list(TRANSFORM ARGN APPEND ".o")
    execute_process(COMMAND "${CXX}" ${flags} ${ARGN} "${HIREDIS_LIBRARY}" -o "${build}/${program}"
      RESULT_VARIABLE result ERROR_VARIABLE said)
    set(result "${result}" PARENT_SCOPE)
    set(said "${said}" PARENT_SCOPE)
  endfunction()
  compile(main "${here}/over_hiredis.cpp" ${separate})
  compile(src "${build}/src.hpp.cpp" ${separate})
  compile(another "${build}/scoped_lock.hpp.cpp" ${separate})
  run(ar rcs "${build}/libsrc.a" "${build}/src.o")
  compile(header_only "${build}/scoped_lock.hpp.cpp")
  link(program main src another)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "separate_compilation: does not link\n${said}")
  endif()
  run("${build}/program")
  link(mixed main src header_only)
  if(result EQUAL 0 OR NOT said MATCHES "header_only_or_compiled_separately_not_both")
    message(FATAL_ERROR "separate_compilation: a program of both forms links, or is refused without the reason\n${said}")
  endif()
  link(without_src main another)
  if(result EQUAL 0 OR NOT said MATCHES "include_src_hpp_in_one_source_file")
    message(FATAL_ERROR "separate_compilation: a program without src.hpp links, or is refused without the reason\n${said}")
  endif()
  # The same where it is in an archive, of which the linker takes what it needs.
  execute_process(COMMAND "${CXX}" ${flags} "${build}/main.o" "${build}/header_only.o" "${build}/libsrc.a" "${HIREDIS_LIBRARY}"
    -o "${build}/mixed" RESULT_VARIABLE result ERROR_VARIABLE said)
  if(result EQUAL 0 OR NOT said MATCHES "header_only_or_compiled_separately_not_both")
    message(FATAL_ERROR "separate_compilation: a program of both forms links with an archive\n${said}")
  endif()
  # Without hiredis.
  compile(plain "${here}/plain.cpp" ${separate})
  compile(plain_src "${build}/src.hpp.cpp" -fPIC ${separate} -DDISTLOCK_WITHOUT_HIREDIS)
  run("${CXX}" ${flags} "${build}/plain.o" "${build}/plain_src.o" -o "${build}/plain_program")
  run("${build}/plain_program")
  # Equal codes are equal on both sides of a shared library that is compiled separately, too.
  file(WRITE "${build}/library.cpp" "#include <distlock/distlock.hpp>\nstd::error_code code() { return distlock::errc::cancelled; }\n")
  file(WRITE "${build}/program.cpp" "#include <distlock/distlock.hpp>\nstd::error_code code();\n"
    "int main() { return code() == distlock::errc::cancelled ? 0 : 1; }\n")
  run("${CXX}" ${flags} -fPIC -shared -Wl,-Bsymbolic-functions ${separate} "${build}/library.cpp" "${build}/plain_src.o"
    -o "${build}/liblibrary.so")
  run("${CXX}" ${flags} ${separate} "${build}/program.cpp" "${build}/plain_src.o" "${build}/liblibrary.so"
    "-Wl,-rpath,${build}" -o "${build}/two_sides")
  run("${build}/two_sides")

elseif(CASE STREQUAL "single_header")
  # As a user makes it.
  run("${CMAKE_COMMAND}" -S "${SOURCE}" -B "${build}/tree" -G "${GENERATOR}" "-DCMAKE_CXX_COMPILER=${CXX}" -DDISTLOCK_BUILD_TESTS=OFF
    -DDISTLOCK_BUILD_EXAMPLES=OFF)
  run("${CMAKE_COMMAND}" --build "${build}/tree" --target distlock_single_header)
  set(single "${build}/tree/single/distlock.hpp")
  separate_arguments(flags UNIX_COMMAND "${CXX_FLAGS}")
  list(APPEND flags -std=c++20 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wold-style-cast -Werror -pthread "-I${HIREDIS_INCLUDE}")

  # It holds what the compiler reads of the two headers it stands for, each once.
  file(WRITE "${build}/both.cpp" "#include <distlock/distlock.hpp>\n#include <distlock/hiredis.hpp>\n")
  execute_process(COMMAND "${CXX}" ${flags} "-I${SOURCE}/include" -M "${build}/both.cpp"
    OUTPUT_VARIABLE read COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "/include/distlock/[^ \n]+[.]hpp" read "${read}")
  list(TRANSFORM read REPLACE "^/include/(.*)$" "// ---- <\\1>")
  file(STRINGS "${single}" held REGEX "^// ---- <distlock/[^>]+>$")
  list(SORT read)
  list(SORT held)
  if(NOT read OR NOT held STREQUAL read)
    message(FATAL_ERROR "single_header: it should hold\n${read}\nand holds\n${held}")
  endif()

  # Two source files of one program, which include it twice; one asks for it by the names of its headers.
  include("${here}/single_header_includes.cmake")
  single_header_includes("${build}/include" "${single}" "${SOURCE}/include")
  file(WRITE "${build}/alone.cpp" "#include \"distlock.hpp\"\n#include \"distlock.hpp\"\n")
  run("${CXX}" ${flags} "-I${build}/tree/single" "-I${build}/include" "${build}/alone.cpp" "${here}/over_hiredis.cpp" "${HIREDIS_LIBRARY}"
    -o "${build}/program")
  run("${build}/program")

  execute_process(COMMAND "${CXX}" ${flags} "-I${build}/tree/single" -DDISTLOCK_SEPARATE_COMPILATION -E "${build}/alone.cpp"
    RESULT_VARIABLE result OUTPUT_QUIET ERROR_VARIABLE said)
  if(result EQUAL 0 OR NOT said MATCHES "distlock in one header is header-only")
    message(FATAL_ERROR "single_header: compiles separately, or is refused without the reason\n${said}")
  endif()

elseif(CASE STREQUAL "cpack_deb")
  find_program(dpkg_deb dpkg-deb)
  if(NOT dpkg_deb)
    message(STATUS "cpack_deb: NOT RUN, there is no dpkg-deb here")
    return()
  endif()
  get_filename_component(tools "${CMAKE_COMMAND}" DIRECTORY)
  run("${tools}/cpack" --config "${BUILD}/CPackConfig.cmake" -B "${build}/deb")
  file(GLOB package "${build}/deb/*.deb")
  project_version(version)
  if(NOT package STREQUAL "${build}/deb/libdistlock-dev_${version}_all.deb")
    message(FATAL_ERROR "cpack_deb: made '${package}'")
  endif()
  foreach(expected IN ITEMS "Package libdistlock-dev" "Version ${version}" "Architecture all" "Depends" "Recommends libhiredis-dev")
    string(REGEX MATCH "^([^ ]+) ?(.*)$" ignored "${expected}")
    set(value "${CMAKE_MATCH_2}")
    execute_process(COMMAND "${dpkg_deb}" -f "${package}" "${CMAKE_MATCH_1}" OUTPUT_VARIABLE said OUTPUT_STRIP_TRAILING_WHITESPACE
      COMMAND_ERROR_IS_FATAL ANY)
    if(NOT said STREQUAL value)
      message(SEND_ERROR "cpack_deb: expected '${expected}', it says '${said}'")
    endif()
  endforeach()
  run("${dpkg_deb}" -x "${package}" "${build}/root")
  file(GLOB_RECURSE files RELATIVE "${build}/root" "${build}/root/*")
  foreach(file IN LISTS files)
    if(NOT file MATCHES "^usr/(include/distlock/.*\\.hpp|share/cmake/distlock/[^/]+\\.cmake|share/pkgconfig/distlock[a-z-]*\\.pc)$"
        AND NOT file STREQUAL "usr/share/doc/libdistlock-dev/copyright")
      message(SEND_ERROR "cpack_deb: ${file} should not be in the package")
    endif()
  endforeach()
  file(GLOB_RECURSE needed RELATIVE "${SOURCE}" "${SOURCE}/include/*.hpp")
  foreach(file IN ITEMS ${needed} share/pkgconfig/distlock-hiredis.pc share/doc/libdistlock-dev/copyright)
    if(NOT "usr/${file}" IN_LIST files)
      message(SEND_ERROR "cpack_deb: ${file} is missing")
    endif()
  endforeach()
  set(prefix "${build}/root/usr")
  host(find_package_plain)

elseif(CASE STREQUAL "vcpkg_port")
  project_version(version)
  file(READ "${SOURCE}/cmake/vcpkg/vcpkg.json" manifest)
  string(JSON named GET "${manifest}" version)
  if(NOT named STREQUAL version)
    message(FATAL_ERROR "vcpkg_port: cmake/vcpkg/vcpkg.json names the version ${named}, CMakeLists.txt ${version}")
  endif()
  find_program(vcpkg vcpkg HINTS "$ENV{VCPKG_ROOT}" "$ENV{VCPKG_INSTALLATION_ROOT}")
  if(vcpkg)
    # Without its default feature it needs nothing from the network.
    run("${vcpkg}" install "distlock[core]" --classic --enforce-port-checks "--overlay-ports=${SOURCE}/cmake/vcpkg" "--x-install-root=${build}/installed"
      "--x-buildtrees-root=${build}/buildtrees" "--x-packages-root=${build}/packages")
    file(GLOB prefix "${build}/installed/*/share/distlock")
    get_filename_component(prefix "${prefix}/../.." ABSOLUTE)
  else()
    message(STATUS "vcpkg_port: vcpkg was NOT RUN, there is none here; its functions are stood in for")
    set(prefix "${build}/packages/distlock")
    run("${CMAKE_COMMAND}" -D "PORTFILE=${SOURCE}/cmake/vcpkg/portfile.cmake" -D PORT=distlock -D FEATURES=core -D "CURRENT_PACKAGES_DIR=${prefix}"
      -D "BUILD=${build}/buildtrees" -D "GENERATOR=${GENERATOR}" -D "CXX=${CXX}" -P "${here}/vcpkg_stand_in.cmake")
  endif()
  foreach(needed IN ITEMS include/distlock/distlock.hpp share/distlock/distlock-config.cmake share/distlock/copyright share/distlock/usage
      share/pkgconfig/distlock.pc)
    if(NOT EXISTS "${prefix}/${needed}")
      message(SEND_ERROR "vcpkg_port: ${needed} is missing")
    endif()
  endforeach()
  foreach(excess IN ITEMS share/cmake share/pkgconfig/distlock-hiredis.pc)
    if(EXISTS "${prefix}/${excess}")
      message(SEND_ERROR "vcpkg_port: ${excess} should not be in the package")
    endif()
  endforeach()
  host(find_package_plain)

elseif(CASE STREQUAL "conan_package")
  find_program(conan conan HINTS "${WORK}/conan_tool/bin")
  if(NOT conan)
    find_program(python python3)
    if(NOT python)
      message(STATUS "conan_package: NOT RUN, there is neither conan nor python3 here")
      return()
    endif()
    execute_process(COMMAND "${python}" -m venv "${WORK}/conan_tool" OUTPUT_QUIET ERROR_QUIET)
    execute_process(COMMAND "${WORK}/conan_tool/bin/pip" install --quiet "conan>=2,<3" RESULT_VARIABLE result ERROR_VARIABLE said)
    if(NOT result EQUAL 0)
      message(STATUS "conan_package: NOT RUN, there is no conan here, and pip does not bring it:\n${said}")
      return()
    endif()
    find_program(conan conan HINTS "${WORK}/conan_tool/bin" REQUIRED)
  endif()
  set(ENV{CONAN_HOME} "${build}/home")
  set(ENV{CXX} "${CXX}")
  run("${conan}" profile detect)

  # hiredis and OpenSSL are those of this system, under the names they have in ConanCenter: nothing is fetched.
  function(stand_in name version component libraries folder)
    file(CONFIGURE OUTPUT "${build}/${name}/conanfile.py" @ONLY CONTENT [[
from conan import ConanFile
from conan.tools.files import copy


class StandIn(ConanFile):
    name = "@name@"
    version = "@version@"

    def package(self):
        copy(self, "@name@/*.h", "@HIREDIS_INCLUDE@", self.package_folder + "/include")

    def package_info(self):
        self.cpp_info.components["@component@"].libs = "@libraries@".split()
        self.cpp_info.components["@component@"].libdirs = ["@folder@"]
]])
    run("${conan}" create "${build}/${name}" --no-remote)
  endfunction()
  stand_in(hiredis 1.2.0 hiredislib hiredis "${library_folder}")
  set(forms "hiredis=False")
  if(WITH_TLS)
    get_filename_component(openssl_folder "${OPENSSL_LIBRARY}" DIRECTORY)
    stand_in(openssl 3.0.0 ssl "ssl crypto" "${openssl_folder}")
    list(APPEND forms "tls=True")
  else()
    list(APPEND forms "hiredis=True")
  endif()
  foreach(form IN LISTS forms)
    run("${conan}" create "${SOURCE}/cmake/conan" --no-remote -o "&:${form}" -s build_type=Debug -s compiler.cppstd=20
      -c "tools.cmake.cmake_layout:test_folder=${build}/test" -c "tools.build:cxxflags=['-g0']")
  endforeach()

else()
  message(FATAL_ERROR "no such case: '${CASE}'")
endif()
message(STATUS "${CASE}: as expected")
