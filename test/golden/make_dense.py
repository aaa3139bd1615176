#!/usr/bin/env python3
"""Writes dense.safetensors: what sentence-transformers makes of the vectors `input` [N, 4] with a Dense of `weight`,
`bias` and, where the widths differ, `residual`: `GELU`, `ReLU`, `SiLU`, `Sigmoid`, `Identity`, `Tanh` (to 3 wide),
`residual_narrower` (Tanh, to 3 wide) and `residual_same` (GELU, to 4 wide with `square_weight`, no bias).

usage: test/golden/make_dense.py [--out test/golden]
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
from sentence_transformers.base.modules import Dense  # noqa: E402

WIDTH, NARROW, TEXTS = 4, 3, 5


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    arguments = parser.parse_args()
    random = np.random.Generator(np.random.PCG64(20261202))

    def numbers(*shape):
        return torch.from_numpy(random.standard_normal(shape).astype(np.float32))

    tensors = {"input": numbers(TEXTS, WIDTH), "weight": numbers(NARROW, WIDTH), "bias": numbers(NARROW),
               "residual": numbers(NARROW, WIDTH), "square_weight": numbers(WIDTH, WIDTH)}

    def run(dense):
        if hasattr(dense, "residual"):
            dense.residual.weight = torch.nn.Parameter(tensors["residual"])
        return dense({"sentence_embedding": tensors["input"]})["sentence_embedding"].detach().contiguous()

    weights = {"init_weight": tensors["weight"], "init_bias": tensors["bias"]}
    outputs = {name: run(Dense(WIDTH, NARROW, activation_function=getattr(torch.nn, name)(), **weights))
               for name in ("GELU", "ReLU", "SiLU", "Sigmoid", "Identity", "Tanh")}
    outputs["residual_narrower"] = run(Dense(WIDTH, NARROW, use_residual=True, **weights))
    outputs["residual_same"] = run(Dense(WIDTH, WIDTH, bias=False, activation_function=torch.nn.GELU(),
                                         init_weight=tensors["square_weight"], use_residual=True))
    path = arguments.out / "dense.safetensors"
    save_file({**tensors, **outputs}, path)
    os.chmod(path, 0o644)


if __name__ == "__main__":
    main()
