# Plants each fault check_includes.cmake is for.
cmake_minimum_required(VERSION 3.21)

function(clean_tree root)
  file(WRITE "${root}/include/distlock/a.hpp" "#pragma once\n#include <string>\n#include <distlock/detail/stop_token.hpp>\n"
    "// std::vector\ninline std::string a(std::stop_token) { return \"std::vector\"; }\n")
  file(WRITE "${root}/include/distlock/unnamed.hpp" "#include <compare>\n#include <initializer_list>\n#include <new>\n"
    "#include <cerrno>\n#include <version>\n#ifdef __cpp_lib_jthread\n#endif\nstruct c { friend auto operator<=>(c, c) = default; };\n"
    "inline void* d(void* at) {\n  for (int i : {1, 2}) errno = i;\n  return new (at) c;\n}\n")
endfunction()

include("${CMAKE_CURRENT_LIST_DIR}/planted.cmake")

clean_tree("${WORK}/clean")
run(clean "")
file(MAKE_DIRECTORY "${WORK}/empty/include/distlock")
run(empty "nothing was checked")
plant(missing include/distlock/a.hpp "std::vector<int> b();\n" "a.hpp: uses std::vector and does not include <vector>")
plant(missing_of_two include/distlock/a.hpp "std::jthread b();\n" "does not include <thread> or <stop_token>")
plant(in_a_comment include/distlock/a.hpp "// #include <vector>\nstd::vector<int> b();\n" "uses std::vector")
plant(unused include/distlock/a.hpp "#include <vector>\n" "a.hpp: includes <vector> and uses nothing of it")
plant(unused_beside_its_like include/distlock/a.hpp "#include <string_view>\n" "a.hpp: includes <string_view> and uses nothing")
plant(unlisted include/distlock/a.hpp "#include <valarray>\nstd::valarray<int> b();\n" "includes <valarray> and uses nothing")
foreach(header IN ITEMS cerrno compare initializer_list new version)
  plant(unused_${header} include/distlock/a.hpp "#include <${header}>\n" "a.hpp: includes <${header}> and uses nothing")
endforeach()
