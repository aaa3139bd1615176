#!/usr/bin/env bash
# Installs what is missing, builds, runs the tests.
#
#   scripts/test.sh [--full] [options of ctest...]
#
#   --full   also the tests labelled slow, and those labelled peer, which need the Python packages of test/golden/README.md
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
selection=(--label-exclude '^(slow|peer)$')
if [[ ${1:-} == --full ]]; then
  selection=()
  shift
fi
scripts/setup.sh
cmake --preset release ${STFT_TORCH_ROOT:+"-DSTFT_TORCH_ROOT=$STFT_TORCH_ROOT"}
cmake --build --preset release
ctest --preset release "${selection[@]}" "$@"
