#!/usr/bin/env python3
"""Writes four_ranks/ (a torch.distributed.checkpoint directory of four gloo ranks) and four_ranks_expected.safetensors.

Cut by rows, by rows and columns (2 x 2), fewer rows than ranks, a scalar, and the values of an optimizer. The tensors'
bytes repeat; the ids that torch puts into the files do not.

usage: test/golden/dcp/make_dcp.py [--out test/golden/dcp]
"""
import argparse
import os
import pathlib
import shutil

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from safetensors.torch import save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

HERE = pathlib.Path(__file__).resolve().parent
WORLD = 4
NAME = "four_ranks"
VALUES = {
    "lr": 0.001,
    "betas": (0.9, 0.999),
    "amsgrad": False,
    "fused": None,
    "decoupled_weight_decay": True,
    "params": ["grid.weight", "rows.weight", "few.bias"],
}


def full_tensors():
    generator = torch.Generator().manual_seed(7)

    def random(*shape):
        return torch.randn(*shape, generator=generator)

    return {
        "grid.weight": random(7, 6),
        "columns.weight": random(3, 8).to(torch.bfloat16),
        "rows.weight": random(9, 5),
        "cube": random(5, 2, 3).to(torch.float16),
        "few.bias": random(3),
        "ids": torch.arange(10, dtype=torch.int64),
        "step": torch.tensor(12.0),
    }


def save(rank, directory):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517")
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    line = init_device_mesh("cpu", (WORLD,))
    placements = {
        "grid.weight": (grid, [Shard(0), Shard(1)]),
        "columns.weight": (grid, [Replicate(), Shard(1)]),
        "rows.weight": (line, [Shard(0)]),
        "cube": (line, [Shard(0)]),
        "few.bias": (line, [Shard(0)]),
        "ids": (line, [Shard(0)]),
    }
    state = {}
    for name, tensor in full_tensors().items():
        state[name] = distribute_tensor(tensor, *placements[name]) if name in placements else tensor
    os.chdir(directory)  # the files name the path they were saved to
    dcp.save({"model": state, "optimizer": {"param_groups": [VALUES]}}, checkpoint_id=NAME)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    out = parser.parse_args().out.resolve()
    shutil.rmtree(out / NAME, ignore_errors=True)
    mp.spawn(save, args=(out,), nprocs=WORLD)
    save_file({"model." + name: tensor for name, tensor in full_tensors().items()}, out / f"{NAME}_expected.safetensors")


if __name__ == "__main__":
    main()
