# Where the standard's names come from that headers here use: distlock_from_<name>, with | between what will do; and all of these
# headers, distlock_standard_headers.
#
# https://en.cppreference.com/w/cpp/header
function(distlock_names header)
  foreach(name IN LISTS ARGN)
    set("distlock_from_${name}" "${header}" PARENT_SCOPE)
  endforeach()
  string(REPLACE "|" ";" headers "${header}")
  list(FILTER headers EXCLUDE REGEX "/")
  list(APPEND distlock_standard_headers ${headers})
  list(REMOVE_DUPLICATES distlock_standard_headers)
  set(distlock_standard_headers ${distlock_standard_headers} PARENT_SCOPE)
endfunction()

distlock_names("algorithm" min max clamp find find_if find_if_not sort stable_sort any_of all_of none_of copy copy_if
  count_if max_element min_element remove_if reverse rotate equal fill fill_n for_each lower_bound upper_bound partition
  search transform unique push_heap pop_heap make_heap nth_element swap_ranges adjacent_find mismatch binary_search is_sorted
  copy_n stable_partition)
distlock_names("array" array)
distlock_names("atomic" atomic atomic_flag atomic_bool atomic_thread_fence memory_order_relaxed memory_order_acquire
  memory_order_release)
distlock_names("bit" bit_ceil countl_zero countr_zero rotl rotr bit_cast)
distlock_names("cctype" isxdigit tolower)
distlock_names("charconv" to_chars from_chars)
distlock_names("chrono" chrono chrono_literals)
distlock_names("compare" strong_ordering weak_ordering partial_ordering)
distlock_names("concepts" same_as convertible_to invocable derived_from integral constructible_from default_initializable
  move_constructible)
distlock_names("condition_variable" condition_variable condition_variable_any cv_status)
distlock_names("cstddef" size_t ptrdiff_t byte nullptr_t)
distlock_names("cstdint" int8_t uint8_t int16_t uint16_t int32_t uint32_t int64_t uint64_t uintptr_t)
distlock_names("cstdio" fprintf printf puts snprintf fputs FILE fopen)
distlock_names("cstdlib" getenv abort exit strtol strtoull malloc free)
distlock_names("cstring" memcpy memset strlen strcmp memcmp memchr strchr strrchr strerror)
distlock_names("deque" deque)
distlock_names("exception" exception exception_ptr current_exception rethrow_exception terminate uncaught_exceptions)
distlock_names("filesystem" filesystem)
distlock_names("fstream" ifstream ofstream)
distlock_names("initializer_list" initializer_list)
distlock_names("iterator" back_inserter begin end size ssize next prev istreambuf_iterator)
distlock_names("limits" numeric_limits)
distlock_names("list" list)
distlock_names("map" map multimap)
distlock_names("memory" unique_ptr shared_ptr weak_ptr make_unique make_shared enable_shared_from_this addressof owner_less
  static_pointer_cast)
distlock_names("mutex" mutex recursive_mutex lock_guard unique_lock scoped_lock once_flag call_once adopt_lock
  defer_lock adopt_lock_t defer_lock_t try_to_lock)
distlock_names("new" bad_alloc nothrow)
distlock_names("numeric" accumulate iota)
distlock_names("optional" optional nullopt)
distlock_names("ratio" nano ratio_divide)
distlock_names("set" set multiset)
distlock_names("shared_mutex" shared_mutex shared_lock)
distlock_names("span" span)
distlock_names("sstream" ostringstream istringstream)
distlock_names("stdexcept" runtime_error logic_error invalid_argument out_of_range length_error)
distlock_names("string" string to_string char_traits)
distlock_names("string_view" string_view)
distlock_names("system_error" error_code error_condition error_category system_error errc generic_category system_category
  make_error_code is_error_code_enum)
distlock_names("thread" thread this_thread)
distlock_names("tuple" tuple tie apply make_tuple)
distlock_names("type_traits" is_same_v decay_t remove_cvref_t enable_if_t conditional_t true_type false_type
  is_nothrow_move_constructible_v is_base_of_v invoke_result_t is_enum_v underlying_type_t is_trivially_copyable_v is_void_v
  is_arithmetic_v is_const_v is_floating_point_v remove_reference_t)
distlock_names("unordered_map" unordered_map)
distlock_names("utility" move forward exchange swap pair make_pair index_sequence make_index_sequence declval as_const
  in_place)
distlock_names("variant" variant visit monostate holds_alternative)
distlock_names("vector" vector)
distlock_names("stop_token|distlock/detail/stop_token.hpp" stop_token stop_source stop_callback nostopstate)
distlock_names("thread|stop_token" jthread)
distlock_names("array|tuple|utility" tuple_size_v)
distlock_names("ostream|iosfwd" basic_ostream)

# What a header gives without std:: before it, as a pattern: code with none of it includes the header in vain.
set(distlock_unnamed_cerrno "errno[^.>]")
set(distlock_unnamed_compare "<=>")
set(distlock_unnamed_initializer_list "for \\([^;{]* : {")
set(distlock_unnamed_new "new \\(")
set(distlock_unnamed_version "__cpp_lib_")
