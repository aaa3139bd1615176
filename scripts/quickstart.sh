#!/usr/bin/env bash
# From a fresh clone to a fine-tuned model: installs what is missing, builds, prepares WordNet, and trains
# all-MiniLM-L6-v2 on it with two sharded ranks. Prints nDCG@10 before and after.
#
#   scripts/quickstart.sh [options of `stft train`...]
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh
python3 scripts/prepare_wordnet.py --out data/wordnet
cmake --preset release ${STFT_TORCH_ROOT:+"-DSTFT_TORCH_ROOT=$STFT_TORCH_ROOT"}
cmake --build --preset release --target stft
build/release/stft train configs/quickstart.yaml --overwrite "$@"

cat >&2 <<MESSAGE

The fine-tuned model is in $PWD/runs/quickstart/final. With sentence-transformers installed, in Python:

    from sentence_transformers import SentenceTransformer
    model = SentenceTransformer("$PWD/runs/quickstart/final")
    model.encode(["a small domesticated feline"])
MESSAGE
