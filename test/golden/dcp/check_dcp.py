#!/usr/bin/env python3
"""Reads a torch.distributed.checkpoint directory with torch and prints its entries: the check that Python accepts what
stft wrote. With --expected every tensor of that safetensors file must be there, bit for bit.

usage: test/golden/dcp/check_dcp.py DIRECTORY [--expected FILE.safetensors]
"""
import argparse
import sys

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch.distributed.checkpoint.metadata import TensorStorageMetadata


def equal(left, right):
    return left.dtype == right.dtype and torch.equal(left.reshape(-1).view(torch.uint8), right.reshape(-1).view(torch.uint8))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--expected")
    arguments = parser.parse_args()
    reader = dcp.FileSystemReader(arguments.directory)
    state = {}
    for key, entry in reader.read_metadata().state_dict_metadata.items():
        is_tensor = isinstance(entry, TensorStorageMetadata)
        state[key] = torch.zeros(entry.size, dtype=entry.properties.dtype) if is_tensor else key
    dcp.load(state, storage_reader=reader)
    for key, value in state.items():
        shown = f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)
        print(f"{key}: {shown}")
    expected = load_file(arguments.expected) if arguments.expected else {}
    wrong = [key for key, tensor in expected.items() if key not in state or not equal(state[key], tensor)]
    if wrong:
        sys.exit(f"differ: {wrong}")
    print(f"{len(expected)} tensors equal")


if __name__ == "__main__":
    main()
