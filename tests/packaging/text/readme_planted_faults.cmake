# Plants each fault check_readme.cmake is for.
cmake_minimum_required(VERSION 3.21)

set(homes include/distlock/README.md include/distlock/net/README.md include/distlock/wire/README.md examples/README.md
  examples/interop.md tests/README.md)

function(clean_tree root)
  file(WRITE "${root}/examples/one.cpp"
    "#include <distlock/distlock.hpp>\n\nint main() {\n    int a[2] = {1, 2};\n\n    if (a[0]) {\n        return a[1];\n    }\n}\n")
  set(links "")
  foreach(home IN LISTS homes)
    string(APPEND links "[one](${home})\n")
    file(WRITE "${root}/${home}" "# No code\n")
  endforeach()
  file(WRITE "${root}/README.md"
    "# Title\n```cpp\n#include <distlock/distlock.hpp>\n\nint main() {\n    int a[2] = {1, 2};\n```\n"
    "```sh\nsh run.sh [a](gone.md)\n```\n- item:\n  ```cpp\n  int a[2] = {1, 2};\n  \n  if (a[0]) {\n      return a[1];\n  }\n  ```\n"
    "${links}## `try_lock()`, and why\n## Twice\n## Twice\n"
    "[a](#title) and [b](#try_lock-and-why), [c](#twice-1); ![d](examples/one.cpp) [e](examples/README.md#no-code)\n"
    "[f](https://example.org/x#y) [g](examples) `[h](gone.md)` [`i`](LICENSE) <img src=\"LICENSE\"/>\n")
  file(WRITE "${root}/LICENSE" "None.\n")
  file(WRITE "${root}/tests/README.md" "# No code\n[up](../README.md#title) [down](fault/README.md#far-away)\n")
  file(WRITE "${root}/tests/fault/README.md" "# Far away\n[up](../../README.md)\n")
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
foreach(home IN LISTS homes)
  string(MAKE_C_IDENTIFIER "block_in_${home}" name)
  plant(${name} ${home} "```cpp\nint b;\n```\n" "${home}:[0-9]+: .*${nowhere}")
endforeach()
plant(block_elsewhere tests/fault/README.md "```cpp\nint b;\n```\n" "tests/fault/README.md:[0-9]+: .*${nowhere}")
plant(empty_block README.md "```cpp\n```\n" "an empty C")
plant(unmarked README.md "```c++\nint b;\n```\n" "mark it cpp")
plant(open README.md "```cpp\nint main() {\n" "never closed")
clean_tree("${WORK}/no_blocks")
file(WRITE "${WORK}/no_blocks/README.md" "# Title\n")
run(no_blocks "holds no C")

foreach(home IN ITEMS README.md ${homes})
  string(MAKE_C_IDENTIFIER "no_${home}" name)
  clean_tree("${WORK}/${name}")
  file(REMOVE "${WORK}/${name}/${home}")
  run(${name} "${home}:1: does not exist")
endforeach()

plant(no_file README.md "[a](gone.md)\n" "README.md:[0-9]+: the link 'gone.md' leads nowhere")
plant(no_picture README.md "![a](gone.svg)\n" "'gone.svg' leads nowhere")
plant(no_source README.md "<img src=\"gone.svg\"/>\n" "'gone.svg' leads nowhere")
plant(second_on_the_line README.md "[a](LICENSE) `code` [b](gone.md)\n" "'gone.md' leads nowhere")
plant(behind_a_bracket README.md "a[0] and [b](gone.md); c\n" "'gone.md' leads nowhere")
plant(in_a_table README.md "| [b](gone.md) | c |\n" "'gone.md' leads nowhere")
plant(relative_to_the_root tests/README.md "[a](examples/one.cpp)\n" "tests/README.md:3: .*leads nowhere: there is no tests/examples/one.cpp")
plant(out_of_the_repository README.md "[a](../clean/README.md)\n" "out of the repository")
plant(absolute README.md "[a](/LICENSE)\n" "out of the repository")
plant(no_address README.md "[a]()\n" "a link without an address")
plant(no_heading README.md "[a](#titel)\n" "'#titel' leads to no heading of README.md")
plant(no_heading_there README.md "[a](tests/README.md#title)\n" "leads to no heading of tests/README.md")
plant(not_as_often README.md "[a](#twice-2)\n" "leads to no heading")
plant(heading_in_a_block README.md "```sh\n# Comment\n```\n[a](#comment)\n" "leads to no heading")
plant(place_in_a_source README.md "[a](examples/one.cpp#L3)\n" "a file that has no headings")
plant(broken_link README.md "[a](\nLICENSE)\n" "a link does not end on its line")
plant(broken_code README.md "`int\na` and [b](gone.md) `c`\n" "inline code does not end on its line")
plant(by_reference README.md "[a][1]\n[1]: gone.md\n" "a link by reference")
plant(far_from_the_readme examples/more.md "# More\n" "examples/more.md:1: is not within two links")
clean_tree("${WORK}/three_links")
file(APPEND "${WORK}/three_links/tests/fault/README.md" "[a](farther.md)\n")
file(WRITE "${WORK}/three_links/tests/fault/farther.md" "# Farther\n")
run(three_links "tests/fault/farther.md:1: is not within two links")
