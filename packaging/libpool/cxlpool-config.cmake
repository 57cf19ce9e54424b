# find_package(cxlpool): the target cxlpool::cxlpool is libpool, with all that it links.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(absl)
find_dependency(Protobuf)
include("${CMAKE_CURRENT_LIST_DIR}/cxlpool-targets.cmake")
