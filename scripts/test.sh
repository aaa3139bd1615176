#!/usr/bin/env bash
# Installs what is missing, builds, runs the tests; says at the end what took how long.
#
#   scripts/test.sh [--full] [options of ctest for the release build...]
#
# Always: the release build and all tests except the slow ones; the tests labelled fast under AddressSanitizer and
# UndefinedBehaviorSanitizer; the executable with CUDA, compiled and linked, where there is a CUDA toolkit.
#
#   --full   also the tests labelled slow, and those labelled peer, which need the Python packages of
#            test/golden/README.md; the tests labelled dist under ThreadSanitizer; clang-tidy; the fuzzers
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
selection=(--label-exclude '^(slow|peer|gpu)$')
is_full=no
if [[ ${1:-} == --full ]]; then
  selection=()
  is_full=yes
  shift
fi
torch_root=(${STFT_TORCH_ROOT:+"-DSTFT_TORCH_ROOT=$STFT_TORCH_ROOT"})
times=()

# phase NAME COMMAND...: runs it and notes the time.
phase() {
  local name=$1 begin=$SECONDS
  shift
  echo "test: === $name" >&2
  "$@"
  times+=("$(printf '%4d s  %s' $((SECONDS - begin)) "$name")")
}

# configure PRESET, then build: all of it or what the build preset of that name says.
build() {
  cmake --preset "$1" "${torch_root[@]}"
  cmake --build --preset "$1"
}

has_cuda_toolkit() { [[ -x ${CUDACXX:-/usr/local/cuda/bin/nvcc} ]] || command -v nvcc >/dev/null; }

build_with_cuda() {
  scripts/setup.sh --cuda
  cmake --preset cuda "${torch_root[@]}"
  cmake --build --preset cuda --target stft
}

fuzz() {
  if [[ -z ${STFT_PEER_PYTHON:-} ]]; then
    echo "test: skipped, since STFT_PEER_PYTHON (a Python with the packages of test/golden/README.md) is not set" >&2
    return
  fi
  "$STFT_PEER_PYTHON" scripts/fuzz_tokenizer.py --peer build/release/test/tokenizer/fuzz_peer --variants \
    --model .deps/models/all-MiniLM-L6-v2
}

phase "setup" scripts/setup.sh
phase "release: build" build release
phase "release: tests" ctest --preset release "${selection[@]}" "$@"
phase "asan: build" build asan
phase "asan: tests labelled fast" ctest --preset asan
if has_cuda_toolkit; then
  phase "cuda: build" build_with_cuda
else
  times+=("     -  cuda: skipped, there is no CUDA toolkit (nvcc) on this machine")
fi
if [[ $is_full == yes ]]; then
  phase "tsan: build" build tsan
  phase "tsan: tests labelled dist" ctest --preset tsan
  phase "clang-tidy" scripts/tidy.sh
  phase "fuzz" fuzz
fi
echo "test: all passed" >&2
printf 'test: %s\n' "${times[@]}" >&2
