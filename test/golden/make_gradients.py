#!/usr/bin/env python3
"""Writes gradients_tiny.{safetensors,json} and gradients_minilm.json: one MultipleNegativesRankingLoss (scale 20) on the
first rows of data/triplets.jsonl with 0, 1 and 2 hard negatives, without dropout.

The peers run in float64, so that the figures are exact to far beyond float32; the float32 run of the same code is
recorded beside them (loss_fp32, fp32_relative_error: the norm of the difference of all gradients over their norm).

usage: test/golden/make_gradients.py [--minilm .deps/models/all-MiniLM-L6-v2] [--out test/golden]
"""
import argparse
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import peers  # noqa: E402
import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss  # noqa: E402

SCALE = 20.0
COLUMNS = ("anchor", "positive", "negative_1", "negative_2")
PROJECTION = "v[i] = ((i*7919) mod 1009)/1009 - 0.5 over the row-major elements of a parameter"


def projection(n):
    return ((torch.arange(n, dtype=torch.int64) * 7919) % 1009).to(torch.float64) / 1009 - 0.5


def loss_and_gradients(path, rows, n_neg, dtype):
    model = peers.load_model(path, dtype)
    features = [model.preprocess([row[column] for row in rows]) for column in COLUMNS[:2 + n_neg]]
    loss = MultipleNegativesRankingLoss(model, scale=SCALE)(features, None)
    loss.backward()
    gradients, without = {}, []
    for name, parameter in model.named_parameters():
        if parameter.grad is None:
            without.append(peers.hf_name(name))
        else:
            gradients[peers.hf_name(name)] = parameter.grad.to(torch.float64)
    return loss.item(), gradients, without


def norm_of(tensors):
    return sum(float((t * t).sum()) for t in tensors) ** 0.5


def summarise(path, rows, n_neg):
    loss, gradients, without = loss_and_gradients(path, rows, n_neg, torch.float64)
    loss_fp32, gradients_fp32, _ = loss_and_gradients(path, rows, n_neg, torch.float32)
    total = norm_of(gradients.values())
    error = norm_of(gradients[k] - gradients_fp32[k] for k in gradients) / total
    figures = {"loss": loss, "loss_fp32": loss_fp32, "grad_norm": total, "fp32_relative_error": error}
    return figures, gradients, without


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minilm", default=".deps/models/all-MiniLM-L6-v2")
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    arguments = parser.parse_args()
    rows = peers.read_rows(HERE / "data" / "triplets.jsonl")
    loss = {"type": "MultipleNegativesRankingLoss", "scale": SCALE}

    tensors, tiny = {}, {"loss": loss, "rows": 12}
    minilm = {"loss": loss, "rows": 16, "projection": PROJECTION}
    for n_neg in (0, 1, 2):
        figures, gradients, tiny["without_gradient"] = summarise(HERE / "tiny_bert", rows[:12], n_neg)
        tiny[f"neg{n_neg}"] = figures
        tensors.update({f"neg{n_neg}/{k}": v.to(torch.float32).contiguous() for k, v in gradients.items()})

        figures, gradients, minilm["without_gradient"] = summarise(arguments.minilm, rows[:16], n_neg)
        figures["parameters"] = {k: {"norm": norm_of([v]), "dot": float(v.flatten() @ projection(v.numel()))}
                                 for k, v in gradients.items()}
        minilm[f"neg{n_neg}"] = figures

    path = arguments.out / "gradients_tiny.safetensors"
    save_file(tensors, path, metadata={"peers": " ".join(f"{k}={v}" for k, v in peers.VERSIONS.items())})
    os.chmod(path, 0o644)
    peers.write_json(arguments.out / "gradients_tiny.json", tiny)
    peers.write_json(arguments.out / "gradients_minilm.json", minilm)


if __name__ == "__main__":
    main()
