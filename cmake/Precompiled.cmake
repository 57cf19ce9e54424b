# Headers that are compiled once and not in each of 400 sources: off but for CMakePresets.json.
#
# A source still includes what it uses: the release preset, and clang-tidy, read it without them.
# Each set is a target that compiles nothing else; its flags are those of its users, or g++ says so.

option(CXLPOOL_PCH "Compile the headers that most sources include once" OFF)

# cxlpool_begin_with(TARGET SET DEFAULT): each source of TARGET begins with the headers of SET.
function(cxlpool_begin_with name set default)
  if(NOT set)
    set(set ${default})
  endif()
  if(NOT CXLPOOL_PCH OR set STREQUAL "none")
    return()
  endif()
  target_precompile_headers(${name} REUSE_FROM cxlpool_pch_${set})
  get_target_property(type ${name} TYPE)
  if(type STREQUAL "EXECUTABLE" AND NOT set STREQUAL "test")
    # The libraries' flag: headers compiled with it are no good for -fPIE.
    target_compile_options(${name} PRIVATE -fPIC)
  endif()
endfunction()

if(NOT CXLPOOL_PCH)
  return()
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Less garbage collection: a tenth of the time of a source that begins with many headers.
  add_compile_options(--param=ggc-min-heapsize=524288)
  if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES "(^|/)ccache$")
    # What ccache asks for (its manual, "Precompiled headers").
    add_compile_options(-fpch-preprocess)
    set(CMAKE_CXX_COMPILER_LAUNCHER
        env CCACHE_SLOPPINESS=pch_defines,time_macros ${CMAKE_CXX_COMPILER_LAUNCHER})
  endif()
endif()

set(std_headers
    <algorithm> <atomic> <chrono> <cstdint> <cstdlib> <cstring> <deque> <functional> <map> <memory>
    <mutex> <optional> <set> <string> <thread> <utility> <variant> <vector>
    <absl/container/flat_hash_map.h> <absl/status/status.h> <absl/status/statusor.h>
    <absl/strings/match.h> <absl/strings/numbers.h> <absl/strings/str_cat.h>
    <absl/strings/str_join.h> <absl/strings/string_view.h> <absl/time/clock.h> <absl/time/time.h>)
set(message_headers
    <cxlpool/v1/host_service.pb.h> <cxlpool/v1/inventory_service.pb.h>
    <cxlpool/v1/pool_service.pb.h> <cxlpool/v1/resources.pb.h>)
set(grpc_headers
    <grpcpp/grpcpp.h> <cxlpool/v1/host_service.grpc.pb.h>
    <cxlpool/v1/inventory_service.grpc.pb.h> <cxlpool/v1/pool_service.grpc.pb.h>)
set(test_headers
    <filesystem> <fstream> <future> <iostream> <random> <sstream>
    <absl/strings/str_format.h> <absl/strings/str_split.h> <gmock/gmock.h> <gtest/gtest.h>)

# cxlpool_precompile(SET DEPS target... HEADERS header...)
function(cxlpool_precompile set)
  cmake_parse_arguments(ARG "" "" "DEPS;HEADERS" ${ARGN})
  file(CONFIGURE OUTPUT pch/${set}.cc CONTENT "")
  add_library(cxlpool_pch_${set} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/pch/${set}.cc)
  target_link_libraries(cxlpool_pch_${set} PRIVATE cxlpool_flags ${ARG_DEPS})
  target_precompile_headers(cxlpool_pch_${set} PRIVATE ${ARG_HEADERS})
  if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache")
    # Without its preprocessor: that one finds the former precompiled header beside the new one's
    # source, takes it for the text, and ccache gives the former one back.
    set_target_properties(cxlpool_pch_${set} PROPERTIES CXX_COMPILER_LAUNCHER
      "env;CCACHE_DEPEND=1;${CMAKE_CXX_COMPILER_LAUNCHER}")
  endif()
endfunction()

cxlpool_precompile(std HEADERS ${std_headers})
cxlpool_precompile(messages DEPS cxlpool_proto HEADERS ${std_headers} ${message_headers})
cxlpool_precompile(grpc DEPS cxlpool_grpc
  HEADERS ${std_headers} ${message_headers} ${grpc_headers})
cxlpool_precompile(test DEPS GTest::gmock GTest::gtest HEADERS ${std_headers} ${test_headers})
# As cxlpool_test() has them: executables, and not optimised.
set_target_properties(cxlpool_pch_test PROPERTIES POSITION_INDEPENDENT_CODE OFF)
target_compile_options(cxlpool_pch_test PRIVATE -fPIE -O0)
