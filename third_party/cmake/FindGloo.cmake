# Headers of Gloo only (the wheel's libtorch_cpu contains the library but not its headers). Target: Gloo::headers.
find_path(Gloo_INCLUDE_DIR gloo/context.h)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Gloo REQUIRED_VARS Gloo_INCLUDE_DIR)
if(Gloo_FOUND AND NOT TARGET Gloo::headers)
  add_library(Gloo::headers INTERFACE IMPORTED)
  set_target_properties(Gloo::headers PROPERTIES INTERFACE_INCLUDE_DIRECTORIES ${Gloo_INCLUDE_DIR})
endif()
