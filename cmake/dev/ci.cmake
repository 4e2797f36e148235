# One job of the continuous integration, for anyone to run: cmake -D JOB=<name> -P cmake/dev/ci.cmake
#
# Everything is built under build/, one folder a job. Missing packages are installed (as root) or named.
cmake_minimum_required(VERSION 3.21)
get_filename_component(root "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
cmake_host_system_information(RESULT processors QUERY NUMBER_OF_LOGICAL_CORES)
if(DEFINED ENV{DISTLOCK_JOBS})
  set(processors "$ENV{DISTLOCK_JOBS}")
endif()
set(needs cmake ninja-build pkg-config libhiredis-dev libssl-dev liblua5.1-0-dev libsqlite3-dev catch2 redis-server)

set(about_tests "g++, warnings as errors, all labels (sh tests/run.sh)")
set(about_asan "clang++-14, warnings as errors, address and undefined behaviour sanitizers; labels unit, server, contract; with -D WITH_LINES=ON a finding names its lines")
set(about_tsan "clang++-14 with the thread sanitizer; labels unit, server, contract, but for tests of one thread; -D WITH_LINES=ON as for asan")
set(about_clang "clang++-14: what must not compile, the contracts of mutexes too (label compile_fail; the job asan builds the tests)")
set(about_headers "g++, warnings as errors; each header without others of ours, twice, and all in one program (label headers)")
set(about_libcxx "clang++-19 with libc++ and POSIX's calls instead of Linux's own, as elsewhere; label headers, what waits, wakes and calls the system of unit, two programs with sockets; with -D WITH_CONTRACT=ON all of unit and contract")
set(about_portable "zig c++ compiles the headers for macOS and FreeBSD, and those without sockets for Windows")
set(about_single_header "g++, warnings as errors, the library in one header; label contract")
set(about_packages "clang++-14; every way to have the library, the Conan recipe too (label consume)")
set(about_format "clang-format-14 finds nothing to change")
set(about_floors "the floors, includes, READMEs, forbidden words (label text) and the list of mutants, without building anything")
set(about_lab "the rows of the table of faults that a crew of processes goes through, 5 times each (sh tests/fault/run.sh --count 5 faults)")
set(about_fuzz "seven targets, 5 seconds each (sh tests/fuzz/run.sh 5)")
set(about_mutants "faults planted in our headers: each is found by a test (python3 tests/fault/mutants/run.py)")
set(about_coverage "which lines of include/ the labels unit, server and contract reach")
set(about_model "spin searches the models of the queue: all of what was changed, else what has few states (sh tests/model/run.sh --quick)")
set(about_interop "beside the real clients of Java, Go, Python and Node (sh tests/run.sh interop), where their tools are")
set(about_example "sh examples/run.sh, plain text, into build/example.log")
set(about_matrix "all labels in a Debian 13 chroot (root only), then server and contract on valkey-server")
set(about_all "tests, asan, tsan, clang, format")
set(jobs tests headers asan tsan clang libcxx portable single_header packages format floors model lab fuzz mutants coverage interop example matrix all)

# What one thread does.
set(one_thread "unit[.](")
string(APPEND one_thread "acknowledgement|acquire_in_queue|agenda|any_dialect|cluster_uri|command|command_route|diagnosis|fault_plan")
string(APPEND one_thread "|foreign_dialects|handoff|handoff_replies|hash_slot|jitter|joint_try|key|lease|operation_in_queue")
string(APPEND one_thread "|operation_woken|options|paced_bytes|permits|plain_inspector|printable|redirection|refresh_schedule|reply|request|request_framing|saturate")
string(APPEND one_thread "|script|sentinel_answer|sentinel_directory|sentinel_election|sentinel_schedule|sentinel_uri|server_error|server_facts|server_settings|server_standing|sha1|small_letter")
string(APPEND one_thread "|shared_handoff|slot_map|ticket|uri|wrong_type")
string(APPEND one_thread ")$")

# run(command...): the output goes where ours goes; a failure ends the job.
function(run)
  execute_process(COMMAND ${ARGV} WORKING_DIRECTORY "${root}" RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "job ${JOB}: this failed (${result}): ${command}")
  endif()
endfunction()

function(packages)
  run(sh cmake/dev/packages.sh ${ARGV})
endfunction()

# run_tests(build command...): the command runs ctest. Tests that fail are run once more, alone: the bounds of some do not bear a
# machine that stands still. The log says which they were.
function(run_tests build)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY "${root}" RESULT_VARIABLE result)
  if(result EQUAL 0)
    return()
  endif()
  message(STATUS "job ${JOB}: FAILED AT FIRST; what failed is run once more, alone")
  set(prefix ${ARGN})
  list(FIND prefix "${CMAKE_CTEST_COMMAND}" at)
  if(at LESS 0)
    set(prefix "")  # a script, which calls it
  else()
    list(SUBLIST prefix 0 ${at} prefix)
  endif()
  run(${prefix} "${CMAKE_CTEST_COMMAND}" --test-dir "${build}" --output-on-failure --no-tests=error --rerun-failed)
endfunction()

# sanitized(name flags programs without [command...]): builds these test programs under a sanitizer and runs their tests, but for
# those whose names match `without`, which are not even built; the command runs ctest. By clang: g++ 12 takes two to three times
# as long to compile them so.
function(sanitized name flags programs without)
  packages(clang-14 libclang-rt-14-dev ${needs})
  set(build "${root}/build/${name}")
  set(debug -g0)  # what is found names functions; their lines take a fifth of the time to compile
  if(WITH_LINES)
    set(debug -g1)
  endif()
  run("${CMAKE_COMMAND}" -S . -B "${build}" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_COMPILER=clang++-14
    "-DCMAKE_CXX_FLAGS_DEBUG=${debug}" "-DCMAKE_CXX_FLAGS=-fno-omit-frame-pointer -D_GLIBCXX_ASSERTIONS ${flags}"
    # The tests count allocations with an operator new of their own; it stands before the sanitizer's.
    -DCMAKE_EXE_LINKER_FLAGS=-Wl,-z,muldefs
    -DDISTLOCK_WERROR=ON -DDISTLOCK_PRECOMPILE=ON -DDISTLOCK_BATCH=50 -DDISTLOCK_BUILD_EXAMPLES=OFF
    "-DDISTLOCK_TESTS_EXCEPT=${without}")
  run("${CMAKE_COMMAND}" --build "${build}" --parallel ${processors}
    --target ${programs})
  if(BUILD_ONLY)
    return()
  endif()
  math(EXPR at_once "2 * ${processors}")  # they wait most of their time
  run_tests("${build}" ${ARGN} "${CMAKE_CTEST_COMMAND}" --test-dir "${build}" --output-on-failure --no-tests=error
    --parallel ${at_once} -L "^(unit|server|contract)$")
endfunction()

function(job_tests)
  run(sh tests/run.sh)
endfunction()

# tests/run.sh compiles none alone.
function(job_headers)
  packages(g++ ${needs})
  set(build "${root}/build/headers")
  run("${CMAKE_COMMAND}" -S . -B "${build}" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-g0 -DDISTLOCK_WERROR=ON
    -DDISTLOCK_BUILD_EXAMPLES=OFF)
  run("${CMAKE_COMMAND}" --build "${build}" --parallel ${processors} --target distlock_headers)
  run("${CMAKE_CTEST_COMMAND}" --test-dir "${build}" --output-on-failure --no-tests=error -L "^headers$")
endfunction()

function(job_asan)
  # The tests count allocations with an operator new of their own, on malloc: not a mismatch to report.
  set(ENV{ASAN_OPTIONS} "detect_stack_use_after_return=1:strict_string_checks=1:alloc_dealloc_mismatch=0")
  set(ENV{UBSAN_OPTIONS} "print_stacktrace=1")
  set(ENV{DISTLOCK_TEST_THOROUGH} 0)
  # What is done to processes and servers from outside says little here, and takes long; without descriptors or memory a
  # sanitizer cannot do its own work. The checker of histories is ours alone.
  sanitized(asan "-fsanitize=address,undefined -fno-sanitize-recover=all"
    "distlock_unit;distlock_server_tests;distlock_tls_tests;distlock_contract" "^fault[.]|^server[.]resource_exhaustion$|^unit[.]history$")
endfunction()

function(job_tsan)
  set(ENV{TSAN_OPTIONS} "halt_on_error=1:second_deadlock_stack=1:die_after_fork=0")
  # Kernels that scatter addresses widely break g++ 12's thread sanitizer; without scattering it runs everywhere.
  execute_process(COMMAND setarch -R true RESULT_VARIABLE result OUTPUT_QUIET ERROR_QUIET)
  set(prefix "")
  if(result EQUAL 0)
    set(prefix setarch -R)
  endif()
  # What one thread does, the address sanitizer has seen; what is killed says nothing.
  set(single "server[.](bad_|connection_cuts|resource_exhaustion|handoff_|plain_scripts|redis_server|no_allocations)|tls[.]|fault[.](fenced|forked|crowd|killed_owner)")
  string(APPEND single "|${one_thread}")
  sanitized(tsan "-fsanitize=thread" "distlock_unit;distlock_server;distlock_contract" "^(${single})" ${prefix})
endfunction()

function(job_clang)
  packages(clang-14 ${needs})
  set(ENV{CXX} clang++-14)
  run(sh tests/run.sh compile_fail)
endfunction()

function(job_libcxx)
  packages(clang-19 libc++-19-dev libc++abi-19-dev ${needs})
  execute_process(COMMAND clang++-19 -std=c++20 -stdlib=libc++ -fsyntax-only -Iinclude -x c++ include/distlock/distlock.hpp
    WORKING_DIRECTORY "${root}" OUTPUT_QUIET ERROR_VARIABLE said)
  if(NOT said MATCHES "error: [^\n]*std::stop_token[^\n]*-fexperimental-library")
    message(FATAL_ERROR "job libcxx: without std::stop_token the umbrella does not say how to get it, but:\n${said}")
  endif()
  # Linux's own calls; what follows has POSIX's.
  run(clang++-19 -std=c++20 -stdlib=libc++ -fexperimental-library -fsyntax-only -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror
    -Iinclude tests/packaging/consume/over_tls.cpp tests/packaging/consume/with_testing.cpp)

  # What another library of the standard, and POSIX's calls, could do otherwise. That all compiles, label headers shows.
  set(unit "(system|signal_masked_thread|thread_group|timer_thread|callback_pool|deadline_timer|subscription|subscriber|error|mutex)$")
  set(contract "mutex$")
  if(WITH_CONTRACT)
    set(unit "")
    set(contract "")
  endif()
  set(build "${root}/build/libcxx")
  run("${CMAKE_COMMAND}" -S . -B "${build}" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_COMPILER=clang++-19
    "-DCMAKE_CXX_FLAGS_DEBUG=-g0" "-DCMAKE_CXX_FLAGS=-stdlib=libc++ -fexperimental-library -DDISTLOCK_POSIX_ONLY"
    -DDISTLOCK_WERROR=ON -DDISTLOCK_PRECOMPILE=ON -DDISTLOCK_BATCH=50 -DDISTLOCK_BUILD_EXAMPLES=OFF -DDISTLOCK_TESTS_HEADER_ONLY=ON
    "-DDISTLOCK_TESTS_ONLY=^(unit[.]${unit}|contract[.]${contract}|server[.]hiredis_connection$)"
    -DDISTLOCK_TESTS_HEADERS=public)  # job headers has each alone
  set(programs distlock_headers distlock_unit distlock_contract_tests distlock_server_tests)
  set(labels "headers|unit|contract|server")
  # Catch2 3 is a library, made for libstdc++.
  if(NOT EXISTS /usr/include/catch2/catch.hpp)
    message(STATUS "job libcxx: the tests were NOT RUN, there is no Catch2 2.13 here")
    set(programs distlock_headers)
    set(labels "headers")
  endif()
  run("${CMAKE_COMMAND}" --build "${build}" --parallel ${processors} --target ${programs})
  if(BUILD_ONLY)
    return()
  endif()
  run_tests("${build}" "${CMAKE_CTEST_COMMAND}" --test-dir "${build}" --output-on-failure --no-tests=error
    --parallel ${processors} -L "^(${labels})$" -E "planted_faults")
endfunction()

function(job_single_header)
  packages(g++ ${needs})
  set(build "${root}/build/single_header")
  run("${CMAKE_COMMAND}" -S . -B "${build}" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-g0 -DDISTLOCK_WERROR=ON
    -DDISTLOCK_PRECOMPILE=ON -DDISTLOCK_TESTS_SINGLE_HEADER=ON -DDISTLOCK_BUILD_EXAMPLES=OFF)
  run("${CMAKE_COMMAND}" --build "${build}" --parallel ${processors} --target distlock_contract)
  if(BUILD_ONLY)
    return()
  endif()
  run("${CMAKE_CTEST_COMMAND}" --test-dir "${build}" --output-on-failure --no-tests=error --parallel ${processors} -L "^contract$")
endfunction()

function(job_packages)
  packages(clang-14 python3-venv ${needs})
  set(build "${root}/build/packages")
  run("${CMAKE_COMMAND}" -S . -B "${build}" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_COMPILER=clang++-14 -DDISTLOCK_CONAN=ON
    -DDISTLOCK_TESTS_EVERY_HOST=ON -DDISTLOCK_BUILD_EXAMPLES=OFF)
  run("${CMAKE_CTEST_COMMAND}" --test-dir "${build}" --output-on-failure --no-tests=error -L "^consume$")
endfunction()

# zig has the headers of other systems, and their C++ library.
function(job_portable)
  packages(${needs})
  set(build "${root}/build/portable")
  execute_process(COMMAND python3 -m pip --version RESULT_VARIABLE result OUTPUT_QUIET ERROR_QUIET)
  if(NOT result EQUAL 0)
    message(STATUS "job portable: NOT RUN, there is no python3 with pip here")
    return()
  endif()
  set(zig "${build}/zig/ziglang/zig")
  if(NOT EXISTS "${zig}")
    set(ENV{PIP_ROOT_USER_ACTION} ignore)
    run(python3 -m pip install --quiet --target "${build}/zig" ziglang==0.17.1)
  endif()
  set(ENV{ZIG_GLOBAL_CACHE_DIR} "${build}/zig_cache")
  set(ENV{ZIG_LOCAL_CACHE_DIR} "${build}/zig_cache")

  # Third parties in a folder of their own: beside them stand the headers of this system.
  file(GLOB third_parties /usr/include/hiredis /usr/include/openssl /usr/include/*/openssl)
  file(COPY ${third_parties} DESTINATION "${build}/third_parties")

  # Every header, and a program that locks, which makes something of the templates; then what is compiled separately.
  file(GLOB headers RELATIVE "${root}/include" "${root}/include/distlock/*.hpp")
  list(REMOVE_ITEM headers distlock/src.hpp distlock/src_hiredis.hpp)
  list(TRANSFORM headers REPLACE "(.+)" "#include <\\1>\n")
  set(floors ${headers})
  list(FILTER floors EXCLUDE REGEX "/(hiredis|hiredis_tls|testing)[.]hpp")
  list(JOIN headers "" headers)
  list(JOIN floors "" floors)
  set(separate "#define DISTLOCK_SEPARATE_COMPILATION\n")
  set(consumers "${root}/tests/packaging/consume")
  file(CONFIGURE OUTPUT "${build}/all.cpp" CONTENT "${headers}#include \"${consumers}/over_tls.cpp\"\n")
  file(CONFIGURE OUTPUT "${build}/all_compiled.cpp" CONTENT "${separate}${headers}#include <distlock/src.hpp>\n")
  file(CONFIGURE OUTPUT "${build}/floors.cpp" CONTENT "${floors}#include \"${consumers}/plain.cpp\"\n")
  file(CONFIGURE OUTPUT "${build}/floors_compiled.cpp" CONTENT
    "${separate}#define DISTLOCK_WITHOUT_HIREDIS\n${floors}#include <distlock/src.hpp>\n")
  foreach(system IN ITEMS aarch64-macos x86_64-macos x86_64-freebsd x86_64-windows-gnu)
    set(part all)
    if(system MATCHES "windows")
      set(part floors)
    endif()
    set(sources ${part} ${part}_compiled)
    if(system STREQUAL "x86_64-macos")
      set(sources ${part})  # the system calls are those of the other macOS
    endif()
    foreach(source IN LISTS sources)
      run("${zig}" c++ -target ${system} -std=c++20 -g0 -fno-sanitize=undefined
        -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wthread-safety -Werror -Iinclude -isystem "${build}/third_parties" -c "${build}/${source}.cpp" -o "${build}/${system}_${source}.o")
    endforeach()
    message(STATUS "portable: the headers compile for ${system}")
  endforeach()
endfunction()

function(job_format)
  packages(clang-format-14)
  set(files "")
  foreach(folder IN ITEMS include tests examples)
    file(GLOB_RECURSE found RELATIVE "${root}" "${root}/${folder}/*.hpp" "${root}/${folder}/*.cpp")
    list(APPEND files ${found})
  endforeach()
  list(LENGTH files count)
  if(count EQUAL 0)
    message(FATAL_ERROR "job format: no files found")
  endif()
  run(clang-format-14 --dry-run --Werror ${files})
  message(STATUS "format: nothing to change in ${count} files")
endfunction()

function(job_floors)
  foreach(check IN ITEMS floors includes words readme)
    run("${CMAKE_COMMAND}" -P "cmake/dev/check_${check}.cmake")
  endforeach()
  find_program(python python3)
  if(python)
    run("${python}" tests/fault/mutants/run.py --check)
  else()
    message(STATUS "job floors: the list of mutants was NOT checked, there is no python3 here")
  endif()
endfunction()

function(job_model)
  packages(g++ spin)
  run(sh tests/model/run.sh --quick)
endfunction()

function(job_lab)
  run(sh tests/fault/run.sh --count 5 faults)
endfunction()

function(job_fuzz)
  run(sh tests/fuzz/run.sh 5)
endfunction()

function(job_mutants)
  run(python3 tests/fault/mutants/run.py)
endfunction()

function(job_coverage)
  packages(g++ gcovr ${needs})
  set(build "${root}/build/coverage")
  run("${CMAKE_COMMAND}" -S . -B "${build}" -G Ninja -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_CXX_FLAGS_DEBUG=-O0 --coverage"
    -DDISTLOCK_BUILD_EXAMPLES=OFF)
  run("${CMAKE_COMMAND}" --build "${build}" --parallel ${processors}
    --target distlock_unit distlock_server distlock_contract)
  # What is killed in the middle writes no counts: that is no failure here.
  execute_process(COMMAND "${CMAKE_CTEST_COMMAND}" --test-dir "${build}" --no-tests=error --parallel ${processors}
    -L "^(unit|server|contract)$" -E "^fault[.](crowd|killed_owner)$" WORKING_DIRECTORY "${root}")
  run(gcovr --root . --object-directory "${build}" --filter include/ --exclude-throw-branches
    --gcov-ignore-parse-errors --print-summary)
endfunction()

function(job_interop)
  foreach(tool IN ITEMS java mvn go python3 node npm)
    find_program(found_${tool} ${tool})
    if(NOT found_${tool})
      message(STATUS "job interop: NOT RUN, there is no ${tool} here")
      return()
    endif()
  endforeach()
  if(BUILD_ONLY)
    run(sh tests/interop/build.sh "${root}/build/interop")
    return()
  endif()
  run_tests("${root}/build/tests" sh tests/run.sh interop)
endfunction()

function(job_example)
  set(log "${root}/build/example.log")
  file(MAKE_DIRECTORY "${root}/build")
  set(ENV{NO_COLOR} 1)
  execute_process(COMMAND sh examples/run.sh WORKING_DIRECTORY "${root}" RESULT_VARIABLE result
    OUTPUT_FILE "${log}" ERROR_FILE "${log}")
  file(READ "${log}" text)
  message("${text}")
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "job example: examples/run.sh failed (${result}); its output is in ${log}")
  endif()
  string(ASCII 27 escape)
  string(FIND "${text}" "${escape}" position)
  if(NOT position EQUAL -1)
    message(FATAL_ERROR "job example: ${log} holds terminal control characters although NO_COLOR was set")
  endif()
endfunction()

function(job_matrix)
  set(chroot /var/tmp/distlock-matrix)
  if(DEFINED ENV{DISTLOCK_MATRIX_DIR})
    set(chroot "$ENV{DISTLOCK_MATRIX_DIR}")
  endif()
  execute_process(COMMAND id -u OUTPUT_VARIABLE user OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT user EQUAL 0)
    message(FATAL_ERROR "job matrix: a chroot needs root")
  endif()
  packages(debootstrap git)

  # Made once, about a minute; a half-made one is made again.
  if(NOT EXISTS "${chroot}/.distlock-complete")
    message(STATUS "matrix: making a Debian 13 chroot in ${chroot}")
    file(REMOVE_RECURSE "${chroot}")
    set(include g++ ninja-build ca-certificates ${needs} valkey-server)
    list(REMOVE_DUPLICATES include)
    list(JOIN include "," include)
    run(debootstrap --variant=minbase "--include=${include}" trixie "${chroot}" http://deb.debian.org/debian)
    file(TOUCH "${chroot}/.distlock-complete")
  endif()
  if(NOT EXISTS "${chroot}/etc/hosts")
    file(WRITE "${chroot}/etc/hosts" "127.0.0.1 localhost\n::1 localhost\n")
  endif()

  # The tree as it is now, uncommitted changes included, ignored files not.
  set(tree "${chroot}/src/distlock")
  file(REMOVE_RECURSE "${tree}")
  file(MAKE_DIRECTORY "${tree}")
  execute_process(COMMAND git -c "safe.directory=${root}" ls-files --cached --others --exclude-standard
    WORKING_DIRECTORY "${root}" OUTPUT_VARIABLE files COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX REPLACE "\n$" "" files "${files}")
  string(REPLACE "\n" ";" files "${files}")
  foreach(file IN LISTS files)
    if(EXISTS "${root}/${file}")
      get_filename_component(folder "${file}" DIRECTORY)
      file(COPY "${root}/${file}" DESTINATION "${tree}/${folder}")
    endif()
  endforeach()

  # In a mount namespace of its own, so that nothing stays mounted, whatever happens.
  set(inside "mount -t proc proc \"$1/proc\" && mount --rbind /dev \"$1/dev\" && root=$1 && shift &&
    exec chroot \"$root\" /usr/bin/env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin \"$@\"")
  set(enter unshare --mount --propagation private sh -c "${inside}" sh "${chroot}" "DISTLOCK_JOBS=${processors}")
  message(STATUS "matrix: Debian 13, redis-server")
  run(${enter} DISTLOCK_TEST_SERVER=redis-server sh /src/distlock/tests/run.sh)
  message(STATUS "matrix: Debian 13, valkey-server")
  run(${enter} DISTLOCK_TEST_SERVER=valkey-server sh /src/distlock/tests/run.sh server contract)
endfunction()

function(job_all)
  foreach(name IN ITEMS tests asan tsan clang format)
    set(JOB ${name})
    cmake_language(CALL job_${name})
  endforeach()
endfunction()

if(NOT JOB IN_LIST jobs)
  set(list "")
  foreach(name IN LISTS jobs)
    string(APPEND list "  ${name}: ${about_${name}}\n")
  endforeach()
  message(FATAL_ERROR "usage: cmake -D JOB=<name> [-D BUILD_ONLY=ON] [-D WITH_CONTRACT=ON] [-D WITH_LINES=ON] -P cmake/dev/ci.cmake, with one of\n${list}")
endif()
message(STATUS "job ${JOB}: ${about_${JOB}}")
cmake_language(CALL job_${JOB})
message(STATUS "job ${JOB}: passed")
