# find_package(cxlpool): the target cxlpool::cxlpool is libcxlpool and its headers; cxlpool::heap, where it
# was built, is libcxlpool-heap.
include("${CMAKE_CURRENT_LIST_DIR}/cxlpool-targets.cmake")
