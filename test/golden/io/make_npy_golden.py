#!/usr/bin/env python3
"""Writes float32.npy, int8.npy, uint8_empty.npy and float64_1d.npy with numpy.save (numpy 2.4.6). Elements count up from 0.

usage: test/golden/io/make_npy_golden.py [--out test/golden/io]
"""
import argparse
import pathlib

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
ARRAYS = {
    "float32": (np.float32, (3, 5)),
    "int8": (np.int8, (12, 2)),
    "uint8_empty": (np.uint8, (0, 384)),
    "float64_1d": (np.float64, (4,)),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    arguments = parser.parse_args()
    for name, (dtype, shape) in ARRAYS.items():
        np.save(arguments.out / f"{name}.npy", np.arange(np.prod(shape)).astype(dtype).reshape(shape))


if __name__ == "__main__":
    main()
