# Packages, and the three functions that every CMakeLists.txt here uses.

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(Protobuf REQUIRED)
find_package(GTest REQUIRED)
pkg_check_modules(SQLITE3 REQUIRED IMPORTED_TARGET sqlite3)
pkg_check_modules(CXL REQUIRED IMPORTED_TARGET libcxl)
pkg_check_modules(NUMA REQUIRED IMPORTED_TARGET numa)
pkg_check_modules(OPENSSL REQUIRED IMPORTED_TARGET libssl libcrypto)
pkg_check_modules(TOMLPP REQUIRED IMPORTED_TARGET tomlplusplus)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(LZ4 REQUIRED IMPORTED_TARGET liblz4)
pkg_check_modules(ISAL QUIET IMPORTED_TARGET libisal)  # A faster CRC-32 where it is there.
pkg_check_modules(GRPC REQUIRED IMPORTED_TARGET grpc++)
find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)

add_library(cxlpool_flags INTERFACE)
target_compile_options(cxlpool_flags INTERFACE -Wall -Wextra -Wpedantic -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Nobody puts functions of his own in the place of ours: they may be inlined for all -fPIC.
  target_compile_options(cxlpool_flags INTERFACE -fno-semantic-interposition)
endif()
if(CXLPOOL_PCH AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 sees overlapping copies in std::string that are not there (GCC bug 105651), and does not
  # know a precompiled header for a system's.
  target_compile_options(cxlpool_flags INTERFACE -Wno-restrict)
endif()
target_include_directories(cxlpool_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_definitions(cxlpool_flags INTERFACE CXLPOOL_VERSION="${PROJECT_VERSION}")
find_program(CXLPOOL_MOLD mold)
if(CXLPOOL_MOLD)
  # A tenth of the time that the default linker takes for each of some 130 programs.
  target_link_options(cxlpool_flags INTERFACE -fuse-ld=mold)
endif()
if(CXLPOOL_SANITIZE)
  target_compile_options(cxlpool_flags INTERFACE -fsanitize=${CXLPOOL_SANITIZE} -fno-omit-frame-pointer)
  if(CXLPOOL_SANITIZE MATCHES "thread")
    # protobuf lays out maps otherwise under this macro than the packaged library does.
    target_compile_options(cxlpool_flags INTERFACE -U__SANITIZE_THREAD__)
    # First among the libraries of a program: its symbols are the ones that count.
    add_library(cxlpool_tsan_locks SHARED ${PROJECT_SOURCE_DIR}/test/tsan_locks.cc)
    target_link_options(cxlpool_tsan_locks PRIVATE -fsanitize=thread)
    target_link_libraries(cxlpool_flags INTERFACE cxlpool_tsan_locks)
    target_link_options(cxlpool_flags INTERFACE $<TARGET_FILE:cxlpool_tsan_locks>)
  endif()
  target_link_options(cxlpool_flags INTERFACE -fsanitize=${CXLPOOL_SANITIZE})
endif()

include(cmake/Precompiled.cmake)

# cxlpool_library(NAME SRCS file... DEPS target... [PCH std|messages|grpc|none] [AS_ONE]): a static
# library; sources may be empty. PCH: the precompiled headers that its sources begin with; default:
# std. Where headers are precompiled, eight sources are compiled as one, or with AS_ONE all of them, because they
# share headers that cost seconds: no two of them use a name for different things.
function(cxlpool_library name)
  cmake_parse_arguments(ARG "AS_ONE" "PCH" "SRCS;DEPS" ${ARGN})
  if(ARG_SRCS)
    add_library(${name} STATIC ${ARG_SRCS})
    # Our own flags are nothing for who links an installed library.
    target_link_libraries(${name} PUBLIC $<BUILD_INTERFACE:cxlpool_flags> ${ARG_DEPS})
    cxlpool_begin_with(${name} "${ARG_PCH}" std)
    set(at_once 8)
    if(ARG_AS_ONE)
      set(at_once 0)
    endif()
    cxlpool_as_one(${name} ${at_once} ${ARG_SRCS})
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE cxlpool_flags ${ARG_DEPS})
  endif()
endfunction()

# cxlpool_binary(NAME SRCS file... DEPS target... [PCH as of a library]): an executable, in build/bin.
function(cxlpool_binary name)
  cmake_parse_arguments(ARG "" "PCH" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE cxlpool_flags ${ARG_DEPS})
  cxlpool_begin_with(${name} "${ARG_PCH}" std)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
endfunction()

# What tools/test --quick builds: each cxlpool_test() but those that are slow, and the command they try.
add_custom_target(cxlpool_tests)

# cxlpool_busy(TEST [SECONDS]): a test that keeps a processor busy. CTest counts halves of processors (tools/test): it takes two
# of them, and one that mostly waits takes one. Busy ones begin first, by their seconds where they are long: they do
# not fit in where one that waits has ended, so the others fill what they leave, and none long is left for the end.
function(cxlpool_busy test)
  set(seconds ${ARGN} 0)
  list(GET seconds 0 seconds)
  math(EXPR cost "1000 + ${seconds}")
  set_tests_properties(${test} PROPERTIES PROCESSORS 2 COST ${cost})
endfunction()

# cxlpool_on_days(even|odd TEST...): .ci/run leaves them out on the other days.
function(cxlpool_on_days days)
  foreach(test ${ARGN})
    set_property(TEST ${test} APPEND PROPERTY LABELS ${days}_days)
  endforeach()
endfunction()

# cxlpool_test(NAME SRCS file... DEPS target... [LABELS label...] [TIMEOUT seconds] [NOT_ALONE] [WAITS]): a
# GoogleTest binary that CTest runs, or with NOT_ALONE another test. Default label: unit; label slow
# as well: more than ten seconds, and not for tools/test --quick. A folder has
# one, and a second where tests need a process, options or a time of their own. The environment's
# GTEST_FILTER runs a part of it: GTEST_FILTER='WriterTest.*' tools/test -R fm_service_test. Its sources are
# compiled as one, as those of a library that is AS_ONE. It is a busy one,
# unless it WAITS.
function(cxlpool_test name)
  cmake_parse_arguments(ARG "NOT_ALONE;WAITS" "TIMEOUT" "SRCS;DEPS;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE cxlpool_flags ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  cxlpool_as_tests(${name})
  cxlpool_as_one(${name} 0 ${ARG_SRCS})
  if(ARG_NOT_ALONE)
    return()
  endif()
  if(NOT "slow" IN_LIST ARG_LABELS AND NOT "integration" IN_LIST ARG_LABELS)
    add_dependencies(cxlpool_tests ${name})
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
  if(NOT ARG_WAITS)
    cxlpool_busy(${name})
  endif()
endfunction()

# cxlpool_test_objects(NAME SRCS file... DEPS target...): tests that several programs have; who names it
# among its DEPS has them all.
function(cxlpool_test_objects name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_library(${name} OBJECT ${ARG_SRCS})
  target_link_libraries(${name} PUBLIC cxlpool_flags ${ARG_DEPS} GTest::gmock)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${name} PRIVATE -fPIE)
  cxlpool_as_tests(${name})
endfunction()

# What is tested is optimised; the tests' own code compiles in half the time without.
function(cxlpool_as_tests name)
  target_compile_options(${name} PRIVATE -O0)
  cxlpool_begin_with(${name} test test)
endfunction()

# cxlpool_as_one(TARGET AT_ONCE source...): compiles so many of the target's sources as one, or with 0 all, where
# headers are precompiled. The release preset and clang-tidy compile each by itself, and see that it includes what it uses.
function(cxlpool_as_one name at_once)
  if(NOT CXLPOOL_PCH OR ARGC LESS 4)
    return()
  endif()
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${at_once})
  # Never built: so that compile_commands.json has each source, for clang-tidy.
  add_library(${name}_each OBJECT EXCLUDE_FROM_ALL ${ARGN})
  foreach(property COMPILE_DEFINITIONS COMPILE_OPTIONS INCLUDE_DIRECTORIES LINK_LIBRARIES)
    set_property(TARGET ${name}_each PROPERTY ${property} $<TARGET_PROPERTY:${name},${property}>)
  endforeach()
endfunction()
