# Oniguruma: regular expressions. Target: Oniguruma::oniguruma.
find_path(Oniguruma_INCLUDE_DIR oniguruma.h)
find_library(Oniguruma_LIBRARY onig)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Oniguruma REQUIRED_VARS Oniguruma_LIBRARY Oniguruma_INCLUDE_DIR)
if(Oniguruma_FOUND AND NOT TARGET Oniguruma::oniguruma)
  add_library(Oniguruma::oniguruma UNKNOWN IMPORTED)
  set_target_properties(Oniguruma::oniguruma PROPERTIES IMPORTED_LOCATION ${Oniguruma_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${Oniguruma_INCLUDE_DIR})
endif()
