#!/usr/bin/env bash
# Runs clang-tidy (the list of .clang-tidy) over lib and app; a finding fails it. Reads the compile commands of the
# release preset, which must have been configured.
#
#   scripts/tidy.sh [PATTERN...]    only files whose path contains one of the patterns, e.g. lib/io
#   JOBS=N                          files at a time (default 2)
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=16  # 14 has no std::source_location
tidy=$(command -v "clang-tidy-$version" || true)
if [[ -z $tidy ]]; then
  echo "tidy: clang-tidy-$version is needed (Debian: apt-get install clang-tidy-$version)" >&2
  exit 1
fi
if [[ ! -f build/release/compile_commands.json ]]; then
  echo "tidy: build/release is not configured: cmake --preset release" >&2
  exit 1
fi
mkdir -p build/tidy
# g++'s precompiled header as a plain one: clang does not read the other.
cp build/release/lib/CMakeFiles/stft_torch_pch.dir/cmake_pch.hxx build/tidy/torch_headers.h
python3 - "$@" >build/tidy/files <<'PYTHON'
import json
import os
import re
import sys

torch_headers = os.path.abspath("build/tidy/torch_headers.h")
entries = json.load(open("build/release/compile_commands.json", encoding="utf-8"))
checked = []
for entry in entries:
    path = os.path.relpath(entry["file"])
    if not path.startswith(("lib/", "app/")):
        continue
    if sys.argv[1:] and not any(pattern in path for pattern in sys.argv[1:]):
        continue
    command = entry["command"].replace(" -Winvalid-pch", "").replace(" -fopenmp", "") + " -Wno-unknown-warning-option"
    entry["command"] = re.sub(r"-include \S+cmake_pch\.hxx", "-include " + torch_headers, command)
    checked.append(entry)
    print(entry["file"])
with open("build/tidy/compile_commands.json", "w", encoding="utf-8") as file:
    json.dump(checked, file, indent=1)
PYTHON
echo "tidy: $(wc -l <build/tidy/files) files" >&2
xargs -r -P "${JOBS:-2}" -n 1 "$tidy" -p build/tidy --quiet <build/tidy/files
