#!/usr/bin/env python3
"""Reads a checkpoint of a run with Python's own tools and compares it with the run's final/, of the same step. Exit 0
when all of it agrees, 1 when something does not. Used by peer_checkpoint_test.

usage: test/e2e/peer_checkpoint.py CHECKPOINT FINAL --step 30 --moments OUT.safetensors

A SHARDED checkpoint: torch.distributed.checkpoint loads the model with the keys of SentenceTransformer's state dict,
and accelerate merges it. A FULL one: SentenceTransformer loads it. Both: torch.distributed.checkpoint loads the optimizer
into an AdamW over the model's parameters, whose moments are written to OUT as "<parameter>.exp_avg" and so on;
transformers reads trainer_state.json.
"""
import argparse
import os
import pathlib
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

TEXTS = ["small flowers", "the state of being in love", "", "a person who is usually in the north"]


def differences(found, expected, what):
    import torch

    faults = [f"{what}: '{key}' is missing" for key in expected if key not in found]
    for key, tensor in expected.items():
        if key in found and not torch.equal(found[key], tensor):
            faults.append(f"{what}: '{key}' differs")
    return faults


def load_sharded_model(folder, expected):
    import torch
    import torch.distributed.checkpoint as dcp

    target = {key: torch.full_like(tensor, 7) for key, tensor in expected.items()}
    dcp.load({"model": target}, checkpoint_id=folder)
    return differences(target, expected, "dcp.load")


def merge(folder, expected):
    from accelerate.utils import merge_fsdp_weights
    from safetensors.torch import load_file

    with tempfile.TemporaryDirectory() as directory:
        merge_fsdp_weights(str(folder), directory)
        return differences(load_file(pathlib.Path(directory) / "model.safetensors"), expected, "merge_fsdp_weights")


def trained_parameters(model):
    # No gradient reaches the pooler, so a run keeps no moments of it, as Python's FSDP does not.
    return [(name, parameter) for name, parameter in model.named_parameters() if ".pooler." not in name]


def make_optimizer(model):
    import torch

    decaying, others = [], []
    for name, parameter in trained_parameters(model):
        (others if name.endswith("bias") or "LayerNorm" in name else decaying).append(parameter)
    groups = [{"params": decaying, "weight_decay": 0.5}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=9.0)


def load_optimizer(model, folder, step):
    """The optimizer with the checkpoint's state, and what is wrong with it."""
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

    for name, parameter in model.named_parameters():
        parameter.requires_grad_(".pooler." not in name)
    optimizer = make_optimizer(model)
    state = get_optimizer_state_dict(model, optimizer)
    for fields in state["state"].values():
        for tensor in fields.values():
            tensor.fill_(7)
    dcp.load({"optimizer": state}, checkpoint_id=folder)
    set_optimizer_state_dict(model, optimizer, state)
    faults = []
    moments = {}
    for name, parameter in trained_parameters(model):
        fields = optimizer.state[parameter]
        if fields["step"].item() != step:
            faults.append(f"'{name}' is at step {fields['step'].item()}")
        for key, tensor in fields.items():
            moments[f"{name}.{key}"] = tensor.detach().clone()
    for group in optimizer.param_groups:
        if not 0 <= group["lr"] < 0.1 or group["betas"] != (0.9, 0.999):
            faults.append(f"lr {group['lr']}, betas {group['betas']}")
    # What was loaded can be used.
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    return moments, faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("final")
    parser.add_argument("--step", type=int, required=True)
    parser.add_argument("--moments", required=True)
    arguments = parser.parse_args()
    import numpy
    from safetensors.torch import save_file
    from sentence_transformers import SentenceTransformer
    from transformers.trainer_callback import TrainerState

    model = SentenceTransformer(arguments.final, device="cpu")
    expected = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    sharded = arguments.checkpoint / "pytorch_model_fsdp_0"
    if sharded.is_dir():
        faults = load_sharded_model(sharded, expected) + merge(sharded, expected)
    else:
        full = SentenceTransformer(str(arguments.checkpoint), device="cpu")
        faults = differences(full.state_dict(), expected, "SentenceTransformer")
        embeddings = [m.encode(TEXTS, show_progress_bar=False) for m in (full, model)]
        if not numpy.isfinite(embeddings[0]).all() or not numpy.array_equal(*embeddings):
            faults.append("the checkpoint encodes otherwise than final/")
    state = TrainerState.load_from_json(str(arguments.checkpoint / "trainer_state.json"))
    if state.global_step != arguments.step or not state.log_history or state.log_history[-1]["step"] != arguments.step:
        faults.append(f"trainer_state.json: step {state.global_step}, history {state.log_history[-1:]}")
    moments, more = load_optimizer(model, arguments.checkpoint / "optimizer_0", arguments.step)
    faults += more
    save_file(moments, arguments.moments)
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{len(expected)} tensors, {len(moments)} of the optimizer, {len(faults)} faults", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
