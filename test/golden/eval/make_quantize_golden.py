#!/usr/bin/env python3
"""Writes quantize.safetensors: embeddings and what sentence_transformers.util.quantize_embeddings makes of them.

usage: test/golden/eval/make_quantize_golden.py [--out test/golden/eval]    (versions: test/golden/README.md)
"""
import argparse
import os
import pathlib

import numpy as np
from safetensors.numpy import save_file
from sentence_transformers.util import quantize_embeddings

HERE = pathlib.Path(__file__).resolve().parent
SEED = 20


def embeddings():
    """Ordinary columns, columns of zeros, of one value, of two values, and values around 0; 13 is no multiple of 8."""
    values = np.random.default_rng(SEED).standard_normal((120, 13)).astype(np.float32)
    values[:, 3] = 0
    values[:, 4] = -0.25
    values[:, 5] = np.where(values[:, 5] > 0, np.float32(0.1), np.float32(-0.1))
    values[:, 6] *= np.float32(1e-30)
    values[:10, 7] = -0.0
    return values


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    arguments = parser.parse_args()
    values = embeddings()
    tensors = {"embeddings": values}
    for precision in ("int8", "uint8", "binary", "ubinary"):
        tensors[precision] = np.ascontiguousarray(quantize_embeddings(values, precision=precision))
    path = arguments.out / "quantize.safetensors"
    save_file(tensors, path)
    os.chmod(path, 0o644)


if __name__ == "__main__":
    main()
