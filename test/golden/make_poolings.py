#!/usr/bin/env python3
"""Writes poolings.safetensors: the token vectors of three texts (`text_0`, ...) and what every pooling mode of
sentence-transformers makes of them (`cls`, `max`, ..., and `several`: lasttoken, then weightedmean). Padding on either
side gives the same.

usage: test/golden/make_poolings.py [--out test/golden]
"""
import argparse
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import peers  # noqa: E402,F401
import numpy as np  # noqa: E402
import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from sentence_transformers.sentence_transformer.modules import Pooling  # noqa: E402

LENGTHS, WIDTH = (4, 1, 7), 6


def pooled(texts, mode, side):
    longest = max(LENGTHS)
    hidden, mask = torch.zeros(len(texts), longest, WIDTH), torch.zeros(len(texts), longest, dtype=torch.int64)
    for i, text in enumerate(texts):
        at = slice(longest - len(text), longest) if side == "left" else slice(0, len(text))
        hidden[i, at], mask[i, at] = text, 1
    features = {"token_embeddings": hidden, "attention_mask": mask}
    return Pooling(WIDTH, pooling_mode=mode)(features)["sentence_embedding"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    arguments = parser.parse_args()
    random = np.random.Generator(np.random.PCG64(20260202))
    texts = [torch.from_numpy(random.standard_normal((n, WIDTH)).astype(np.float32)) for n in LENGTHS]
    tensors = {f"text_{i}": text for i, text in enumerate(texts)}
    modes = {mode: mode for mode in Pooling.POOLING_MODES}
    for name, mode in {**modes, "several": ["lasttoken", "weightedmean"]}.items():
        tensors[name] = pooled(texts, mode, "right")
        assert torch.allclose(pooled(texts, mode, "left"), tensors[name], atol=1e-6), name
    path = arguments.out / "poolings.safetensors"
    save_file(tensors, path)
    os.chmod(path, 0o644)


if __name__ == "__main__":
    main()
