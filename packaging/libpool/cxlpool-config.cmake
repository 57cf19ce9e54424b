# find_package(cxlpool): the target cxlpool::cxlpool is libcxlpool and its headers.
include("${CMAKE_CURRENT_LIST_DIR}/cxlpool-targets.cmake")
