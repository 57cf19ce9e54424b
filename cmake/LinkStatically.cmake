# Programs that have their libraries within them.

# What an archive is taken of, where one lies beside the shared library: gRPC, and what it alone brings along; libyaml, which reads
# only what we wrote.
# The system's C libraries (OpenSSL, zlib, SQLite) stay shared: their fixes arrive by themselves.
set(cxlpool_archived "^(grpc|gpr|upb|address_sorting|re2|cares|protobuf|absl|yaml)")

# cxlpool_parts(ARCHIVES SHARED target...): all that the targets link. ARCHIVES: our own libraries, and of the others
# the archive that lies beside the shared one. SHARED: of those that pkg-config names by their files, the ones that
# are not among cxlpool_archived. ARCHIVES is empty where an archive is missing.
function(cxlpool_parts archives_out shared_out)
  set(${archives_out} "" PARENT_SCOPE)
  set(waiting ${ARGN})
  set(seen "")
  set(archives "")
  set(shared "")
  while(waiting)
    list(POP_FRONT waiting item)
    string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" item "${item}")
    if(item IN_LIST seen)
      continue()
    endif()
    list(APPEND seen "${item}")
    set(file "${item}")
    if(TARGET "${item}")
      get_target_property(needs ${item} INTERFACE_LINK_LIBRARIES)
      if(needs)
        list(APPEND waiting ${needs})
      endif()
      get_target_property(type ${item} TYPE)
      get_target_property(imported ${item} IMPORTED)
      if(type STREQUAL "INTERFACE_LIBRARY")
        continue()
      elseif(NOT imported)
        list(APPEND archives $<TARGET_FILE:${item}>)
        continue()
      endif()
      get_target_property(file ${item} LOCATION)
    elseif(NOT item MATCHES "/lib([^/]+)\\.so[.0-9]*$")
      continue()
    elseif(NOT CMAKE_MATCH_1 MATCHES "${cxlpool_archived}")
      list(APPEND shared "${item}")
      continue()
    endif()
    string(REGEX REPLACE "\\.so[.0-9]*$" ".a" file "${file}")
    if(NOT EXISTS "${file}")
      return()
    endif()
    list(APPEND archives "${file}")
  endwhile()
  list(REMOVE_DUPLICATES archives)
  set(${archives_out} ${archives} PARENT_SCOPE)
  set(${shared_out} ${shared} PARENT_SCOPE)
endfunction()

# Compiles with what the targets ask for, and links with these parts and nothing else.
function(_cxlpool_binary_of_parts name sources deps archives)
  add_library(${name}-objects OBJECT ${sources})
  target_link_libraries(${name}-objects PRIVATE cxlpool_flags ${deps})
  add_executable(${name} $<TARGET_OBJECTS:${name}-objects>)
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin LINKER_LANGUAGE CXX)
  # Each archive again until nothing is missing: they need each other.
  target_link_libraries(${name} PRIVATE -Wl,--start-group ${archives} -Wl,--end-group ${ARGN})
  set_property(TARGET ${name} PROPERTY LINK_DEPENDS ${archives})
endfunction()

# cxlpool_fast_binary(NAME SRCS file... DEPS target...): as cxlpool_binary, for what runs the same
# small steps over and over: linked statically and with tcmalloc, which takes a third less CPU time
# where many small calls go from library to library. As cxlpool_binary where an archive is missing
# or a sanitizer is on.
function(cxlpool_fast_binary name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  find_library(CXLPOOL_STATIC_TCMALLOC libtcmalloc_minimal.a)
  cxlpool_parts(archives shared ${ARG_DEPS})
  # Nobody installs it: here OpenSSL's archive will do.
  foreach(library ${shared})
    string(REGEX REPLACE "\\.so[.0-9]*$" ".a" archive "${library}")
    if(NOT EXISTS "${archive}")
      set(archives "")
    endif()
    if(archives)
      list(APPEND archives "${archive}")
    endif()
  endforeach()
  if(NOT archives OR NOT CXLPOOL_STATIC_TCMALLOC OR CXLPOOL_SANITIZE)
    cxlpool_binary(${name} ${ARGN})
    return()
  endif()
  _cxlpool_binary_of_parts(${name} "${ARG_SRCS}" "${ARG_DEPS}" "${archives};${CXLPOOL_STATIC_TCMALLOC}" -latomic -static)
endfunction()

# cxlpool_command(NAME SRCS file... DEPS target...): as cxlpool_binary, for what is started for one call: gRPC is within
# it. Fifty shared libraries take longer to load than the call (docs/adr/0035). As cxlpool_binary where an archive is
# missing, or with a sanitizer, which has to tell our code from others'.
function(cxlpool_command name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  cxlpool_parts(archives shared ${ARG_DEPS})
  if(NOT archives OR CXLPOOL_SANITIZE)
    cxlpool_binary(${name} ${ARGN})
    return()
  endif()
  _cxlpool_binary_of_parts(${name} "${ARG_SRCS}" "${ARG_DEPS}" "${archives}" ${shared} Threads::Threads cxlpool_flags)
endfunction()
