# jemalloc: keeps the step's buffers instead of returning them to the kernel. Optional. Target: Jemalloc::jemalloc.
find_library(Jemalloc_LIBRARY jemalloc)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Jemalloc REQUIRED_VARS Jemalloc_LIBRARY)
if(Jemalloc_FOUND AND NOT TARGET Jemalloc::jemalloc)
  add_library(Jemalloc::jemalloc UNKNOWN IMPORTED)
  set_target_properties(Jemalloc::jemalloc PROPERTIES IMPORTED_LOCATION ${Jemalloc_LIBRARY})
endif()
