# Plants each fault check_synopses.cmake is for.
cmake_minimum_required(VERSION 3.21)

function(clean_tree root)
  file(WRITE "${root}/include/distlock/lock.hpp" "// A lock.
//
//   class lock {
//     explicit lock(std::string name, options = {});
//     bool held(std::size_t by) const noexcept;   // by that thread
//     void end();  void begin(
//         time_point at);
//   };
//   for (lock one = make(\"x\"); one.held(0);) one.end();
#pragma once
class lock {
  public:
    explicit lock(const std::string& name, const options& how = {});
    bool held(std::size_t by) const noexcept { return by == 0; }
    virtual void end();
    void begin(clock::time_point at) noexcept;
};
// void gone(int);
")
  file(WRITE "${root}/include/distlock/plain.hpp" "// Without a synopsis: of gone(int).\n#pragma once\n")
endfunction()

include("${CMAKE_CURRENT_LIST_DIR}/planted.cmake")

clean_tree("${WORK}/clean")
run(clean "")

# differ(name from to expected): a clean tree with other words in the synopsis.
function(differ name from to expected)
  clean_tree("${WORK}/${name}")
  set(file "${WORK}/${name}/include/distlock/lock.hpp")
  file(READ "${file}" text)
  string(FIND "${text}" "#pragma once" begin)
  string(SUBSTRING "${text}" 0 ${begin} head)
  string(SUBSTRING "${text}" ${begin} -1 rest)
  string(REPLACE "${from}" "${to}" head "${head}")
  file(WRITE "${file}" "${head}${rest}")
  run(${name} "${expected}")
endfunction()
differ(renamed "held(" "is_held(" "lock.hpp: the synopsis says what is not declared: bool is_held")
differ(other_result "bool held" "int held" "not declared: int held")
differ(other_parameter "std::size_t by" "std::size_t since" "not declared: bool held.std::size_t since")
differ(second_of_a_line "void begin(" "void start(" "not declared: void start")
differ(over_two_lines "time_point at" "duration at" "not declared: void begin")
differ(only_in_a_comment "void end()" "void gone(int)" "not declared: void gone")
differ(part_of_a_name "held(" "eld(" "not declared: bool eld")
differ(nothing_is_checked "//  " "-- " "nothing was checked")
