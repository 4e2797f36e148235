# Plants each fault check_readme.cmake is for.
cmake_minimum_required(VERSION 3.21)

function(clean_tree root)
  file(WRITE "${root}/examples/one.cpp"
    "#include <distlock/distlock.hpp>\n\nint main() {\n    int a[2] = {1, 2};\n\n    if (a[0]) {\n        return a[1];\n    }\n}\n")
  file(WRITE "${root}/README.md"
    "# Title\n```cpp\n#include <distlock/distlock.hpp>\n\nint main() {\n    int a[2] = {1, 2};\n```\n"
    "```sh\nsh run.sh\n```\n- item:\n  ```cpp\n  int a[2] = {1, 2};\n  \n  if (a[0]) {\n      return a[1];\n  }\n  ```\n")
  file(WRITE "${root}/include/distlock/README.md" "No code.\n")
endfunction()

include("${CMAKE_CURRENT_LIST_DIR}/planted.cmake")

clean_tree("${WORK}/clean")
run(clean "")
run(absent "no examples/")
set(nowhere "does not stand in any examples")
plant(changed README.md "```cpp\nint b;\n```\n" "README.md:[0-9]+: .*${nowhere}")
plant(one_character README.md "```cpp\nint a[2] = {1,2};\n```\n" "${nowhere}")
plant(half_a_line README.md "```cpp\nint a[2]\n```\n" "${nowhere}")
plant(other_indentation README.md "```cpp\nif (a[0]) {\n  return a[1];\n}\n```\n" "${nowhere}")
plant(line_left_out README.md "```cpp\nint a[2] = {1, 2};\nif (a[0]) {\n```\n" "${nowhere}")
plant(floor_plan include/distlock/README.md "```cpp\nint b;\n```\n" "include/distlock/README.md:2: .*${nowhere}")
plant(empty_block README.md "```cpp\n```\n" "an empty C")
plant(unmarked README.md "```c++\nint b;\n```\n" "mark it cpp")
plant(open README.md "```cpp\nint main() {\n" "never closed")
clean_tree("${WORK}/no_blocks")
file(WRITE "${WORK}/no_blocks/README.md" "# Title\n")
run(no_blocks "holds no C")
clean_tree("${WORK}/no_readme")
file(REMOVE "${WORK}/no_readme/README.md")
run(no_readme "does not exist")
