# xxHash: fast check-sums. Target: Xxhash::xxhash.
find_path(Xxhash_INCLUDE_DIR xxhash.h)
find_library(Xxhash_LIBRARY xxhash)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Xxhash REQUIRED_VARS Xxhash_LIBRARY Xxhash_INCLUDE_DIR)
if(Xxhash_FOUND AND NOT TARGET Xxhash::xxhash)
  add_library(Xxhash::xxhash UNKNOWN IMPORTED)
  set_target_properties(Xxhash::xxhash PROPERTIES IMPORTED_LOCATION ${Xxhash_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${Xxhash_INCLUDE_DIR})
endif()
