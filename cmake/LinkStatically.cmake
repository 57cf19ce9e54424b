# cxlpool_static_parts(OUT target...): what the targets link, as archives: our own libraries, and of
# the others the archive that lies beside the shared one. Empty where one of them has none.
function(cxlpool_static_parts out)
  set(${out} "" PARENT_SCOPE)
  set(waiting ${ARGN})
  set(seen "")
  set(parts "")
  while(waiting)
    list(POP_FRONT waiting item)
    string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" item "${item}")
    if(item IN_LIST seen OR NOT TARGET "${item}")
      continue()
    endif()
    list(APPEND seen "${item}")
    get_target_property(needs ${item} INTERFACE_LINK_LIBRARIES)
    if(needs)
      list(APPEND waiting ${needs})
    endif()
    get_target_property(type ${item} TYPE)
    get_target_property(imported ${item} IMPORTED)
    if(type STREQUAL "INTERFACE_LIBRARY")
      continue()
    elseif(NOT imported)
      list(APPEND parts $<TARGET_FILE:${item}>)
      continue()
    endif()
    get_target_property(file ${item} LOCATION)
    string(REGEX REPLACE "\\.so[.0-9]*$" ".a" file "${file}")
    if(NOT EXISTS "${file}")
      return()
    endif()
    list(APPEND parts "${file}")
  endwhile()
  set(${out} ${parts} PARENT_SCOPE)
endfunction()

# cxlpool_fast_binary(NAME SRCS file... DEPS target...): as cxlpool_binary, for what runs the same
# small steps over and over: linked statically and with tcmalloc, which takes a third less CPU time
# where many small calls go from library to library. As cxlpool_binary where an archive is missing
# or a sanitizer is on.
function(cxlpool_fast_binary name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  find_library(CXLPOOL_STATIC_TCMALLOC libtcmalloc_minimal.a)
  cxlpool_static_parts(parts ${ARG_DEPS})
  if(NOT parts OR NOT CXLPOOL_STATIC_TCMALLOC OR CXLPOOL_SANITIZE)
    cxlpool_binary(${name} ${ARGN})
    return()
  endif()
  # Compiled with what the targets ask for, linked with their archives alone.
  add_library(${name}-objects OBJECT ${ARG_SRCS})
  target_link_libraries(${name}-objects PRIVATE cxlpool_flags ${ARG_DEPS})
  add_executable(${name} $<TARGET_OBJECTS:${name}-objects>)
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin LINKER_LANGUAGE CXX)
  # Each archive again until nothing is missing: they need each other.
  target_link_libraries(${name} PRIVATE
    -static -Wl,--start-group ${parts} ${CXLPOOL_STATIC_TCMALLOC} -latomic -Wl,--end-group)
  set_property(TARGET ${name} PROPERTY LINK_DEPENDS ${parts})
endfunction()
