# Plants each fault check_includes.cmake is for.
cmake_minimum_required(VERSION 3.21)

function(clean_tree root)
  file(WRITE "${root}/include/distlock/a.hpp" "#pragma once\n#include <string>\n#include <distlock/detail/stop_token.hpp>\n"
    "// std::vector\ninline std::string a(std::stop_token) { return \"std::vector\"; }\n")
endfunction()

include("${CMAKE_CURRENT_LIST_DIR}/planted.cmake")

clean_tree("${WORK}/clean")
run(clean "")
file(MAKE_DIRECTORY "${WORK}/empty/include/distlock")
run(empty "nothing was checked")
plant(missing include/distlock/a.hpp "std::vector<int> b();\n" "a.hpp: uses std::vector and does not include <vector>")
plant(missing_of_two include/distlock/a.hpp "std::jthread b();\n" "does not include <thread> or <stop_token>")
plant(in_a_comment include/distlock/a.hpp "// #include <vector>\nstd::vector<int> b();\n" "uses std::vector")
