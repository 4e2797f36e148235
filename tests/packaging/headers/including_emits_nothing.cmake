# A source file that only includes the headers holds nothing of the engine. cmake -D OBJECTS=<object files> -P this
#
# g++ emits a class's table of virtual functions, and all that it leads to, wherever its key function is defined, even where that is
# `inline`: https://gcc.gnu.org/onlinedocs/gcc/Vague-Linkage.html. So each virtual function is defined in its class.
cmake_minimum_required(VERSION 3.21)
if(NOT OBJECTS)
  message(FATAL_ERROR "headers: no object file was given")
endif()
foreach(object IN LISTS OBJECTS)
  file(STRINGS "${object}" found REGEX "_ZT?[A-Z]*N?K?8distlock6engine")
  if(found)
    list(LENGTH found count)
    list(GET found 0 first)
    message(FATAL_ERROR "headers: including them emits ${count} symbols of the engine into ${object}, ${first} first; "
      "is a virtual function defined outside its class?")
  endif()
endforeach()
message(STATUS "headers: including them emits nothing of the engine")
