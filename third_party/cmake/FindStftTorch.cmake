# LibTorch without Python and without the CUDA toolkit that the wheel's own CMake config insists on.
#
# STFT_TORCH_ROOT (cache variable or environment) may name
#   - a directory that holds include/ and lib/ (an unpacked `torch` wheel's torch/, or the LibTorch zip), or
#   - a Python environment (its site-packages/torch is used).
# Default: .deps/site/torch, which scripts/setup.sh fills.
#
# Targets: StftTorch::headers (include paths, ABI flags) and StftTorch::torch (libtorch_cpu, libc10); with STFT_CUDA also
# StftTorch::cuda (libtorch_cuda, libc10_cuda, the CUDA run-time library, the headers of CUDA and NCCL).
set(STFT_TORCH_ROOT "$ENV{STFT_TORCH_ROOT}" CACHE PATH "LibTorch: a wheel's torch directory, a Python environment or the LibTorch zip")
set(_stft_torch_candidates)
if(STFT_TORCH_ROOT)
  file(GLOB _stft_torch_env ${STFT_TORCH_ROOT}/lib/python3*/site-packages/torch)
  list(APPEND _stft_torch_candidates ${STFT_TORCH_ROOT} ${STFT_TORCH_ROOT}/torch ${_stft_torch_env})
else()
  list(APPEND _stft_torch_candidates ${PROJECT_SOURCE_DIR}/.deps/site/torch)
endif()

foreach(_candidate IN LISTS _stft_torch_candidates)
  if(EXISTS ${_candidate}/include/ATen/ATen.h AND EXISTS ${_candidate}/lib/libtorch_cpu.so)
    set(StftTorch_ROOT_DIR ${_candidate})
    break()
  endif()
endforeach()

if(StftTorch_ROOT_DIR)
  file(STRINGS ${StftTorch_ROOT_DIR}/include/torch/headeronly/version.h _stft_torch_version REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH)")
  string(REGEX REPLACE "[^0-9;]" "" _stft_torch_version "${_stft_torch_version}")
  string(REPLACE ";" "." StftTorch_VERSION "${_stft_torch_version}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(StftTorch REQUIRED_VARS StftTorch_ROOT_DIR VERSION_VAR StftTorch_VERSION
  REASON_FAILURE_MESSAGE "run scripts/setup.sh, or set STFT_TORCH_ROOT")

if(StftTorch_FOUND AND NOT TARGET StftTorch::torch)
  # The CUDA runtime and CUPTI that libtorch_cpu needs: beside the wheel, where pip would put them.
  set(StftTorch_LIBRARY_DIRS ${StftTorch_ROOT_DIR}/lib)
  set(_stft_nvidia_dirs ${StftTorch_ROOT_DIR}/../nvidia/cu13/lib ${StftTorch_ROOT_DIR}/../nvidia/cuda_runtime/lib)
  if(STFT_CUDA)
    # In a Python environment: all that libtorch_cuda needs when it runs.
    file(GLOB _stft_nvidia_dirs ${StftTorch_ROOT_DIR}/../nvidia/*/lib)
  endif()
  foreach(_dir ${_stft_nvidia_dirs})
    if(IS_DIRECTORY ${_dir})
      get_filename_component(_dir ${_dir} REALPATH)
      list(APPEND StftTorch_LIBRARY_DIRS ${_dir})
    endif()
  endforeach()

  add_library(StftTorch::headers INTERFACE IMPORTED)
  set_target_properties(StftTorch::headers PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${StftTorch_ROOT_DIR}/include;${StftTorch_ROOT_DIR}/include/torch/csrc/api/include"
    INTERFACE_COMPILE_DEFINITIONS "USE_DISTRIBUTED;USE_C10D_GLOO"
    INTERFACE_COMPILE_OPTIONS "-fopenmp")

  add_library(StftTorch::c10 SHARED IMPORTED)
  set_target_properties(StftTorch::c10 PROPERTIES IMPORTED_LOCATION ${StftTorch_ROOT_DIR}/lib/libc10.so)
  add_library(StftTorch::cpu SHARED IMPORTED)
  set_target_properties(StftTorch::cpu PROPERTIES IMPORTED_LOCATION ${StftTorch_ROOT_DIR}/lib/libtorch_cpu.so)

  add_library(StftTorch::torch INTERFACE IMPORTED)
  # One OpenMP runtime in the process: the wheel's own libgomp, never a second copy.
  set(_stft_gomp ${StftTorch_ROOT_DIR}/lib/libgomp.so.1)
  if(NOT EXISTS ${_stft_gomp})
    set(_stft_gomp gomp)
  endif()
  target_link_libraries(StftTorch::torch INTERFACE StftTorch::headers StftTorch::cpu StftTorch::c10 ${_stft_gomp})
  foreach(_dir IN LISTS StftTorch_LIBRARY_DIRS)
    target_link_options(StftTorch::torch INTERFACE "-Wl,-rpath,${_dir}" "-Wl,-rpath-link,${_dir}")
  endforeach()
endif()

if(StftTorch_FOUND AND STFT_CUDA AND NOT TARGET StftTorch::cuda)
  find_package(CUDAToolkit 13 REQUIRED)
  # The wheel's own NCCL header only: LibTorch's headers embed NCCL's structures, whose size differs between versions.
  find_path(StftTorch_NCCL_INCLUDE_DIR nccl.h
    PATHS ${StftTorch_ROOT_DIR}/../nvidia/nccl/include ${PROJECT_SOURCE_DIR}/.deps/nccl/include NO_DEFAULT_PATH)
  if(NOT StftTorch_NCCL_INCLUDE_DIR)
    message(FATAL_ERROR "nccl.h is missing: run scripts/setup.sh --cuda")
  endif()
  # The wheel's CUDA run-time library where it is there: libtorch_cpu loads that one already.
  find_library(StftTorch_CUDART NAMES libcudart.so.13 PATHS ${StftTorch_LIBRARY_DIRS} NO_DEFAULT_PATH)
  if(NOT StftTorch_CUDART)
    set(StftTorch_CUDART CUDA::cudart)
  endif()

  add_library(StftTorch::cuda INTERFACE IMPORTED)
  # CUDA's directory stands last: it may hold an nccl.h of another version.
  set_target_properties(StftTorch::cuda PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${StftTorch_NCCL_INCLUDE_DIR};${CUDAToolkit_INCLUDE_DIRS}"
    INTERFACE_COMPILE_DEFINITIONS USE_C10D_NCCL)
  target_link_libraries(StftTorch::cuda INTERFACE StftTorch::torch ${StftTorch_ROOT_DIR}/lib/libtorch_cuda.so
    ${StftTorch_ROOT_DIR}/lib/libc10_cuda.so ${StftTorch_CUDART})
  # cuBLAS, cuDNN, NCCL and the rest need not be on the machine that builds.
  target_link_options(StftTorch::cuda INTERFACE -Wl,--allow-shlib-undefined)
endif()
