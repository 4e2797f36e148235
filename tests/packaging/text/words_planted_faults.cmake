# Plants each word check_words.cmake is for.
cmake_minimum_required(VERSION 3.21)

function(clean_tree root)
  file(WRITE "${root}/include/distlock/a.hpp" "// A comment may warn of system_clock.\nauto t = clock::now(); int c[3];\n")
  file(WRITE "${root}/tests/unit/a.cpp" "auto uri = \"redis://host\"; // no sleep_for here\n")
endfunction()

include("${CMAKE_CURRENT_LIST_DIR}/planted.cmake")

clean_tree("${WORK}/clean")
run(clean "")
run(absent "no headers found")
file(WRITE "${WORK}/no_tests/include/distlock/a.hpp" "int a;\n")
run(no_tests "no tests found")

set(header include/distlock/a.hpp)
plant(wall_clock ${header} "auto t = std::chrono::system_clock::now();\n" "a.hpp:3: system_clock: ")
plant(wall_clock_c ${header} "clock_gettime(CLOCK_REALTIME, &t);\n" "CLOCK_REALTIME: ")
plant(time_of_day ${header} "::gettimeofday(&t, nullptr);\n" "gettimeofday: ")
plant(wall_clock_compared include/distlock/diagnose.hpp "auto t = std::chrono::system_clock::now();\n" "")
plant(blocking ${header} "auto* r = ::redisCommand(c, \"PING\");\n" "redisCommand\\(: ")
plant(blocking_list ${header} "auto* r = redisvCommand (c, \"PING\", list);\n" "redisvCommand \\(: ")
plant(blocking_argv ${header} "auto* r = redisCommandArgv(c, 1, v, l);\n" "redisCommandArgv\\(: ")
plant(reconnect ${header} "redisReconnect(c);\n" "redisReconnect: ")
plant(after_uri ${header} "open(\"redis://x\"); redisReconnect(c);\n" "redisReconnect: ")
plant(allowed ${header} "redisAppendCommandArgv(c, 1, v, l);\n" "")
plant(sleep tests/unit/a.cpp "std::this_thread::sleep_for(1s);\n" "tests/unit/a.cpp:2: sleep_for: ")
plant(sleep_c tests/support/b.hpp "int a; usleep(5);\n" "tests/support/b.hpp:1: usleep: ")
