#!/usr/bin/env python3
"""Writes cosent_tiny.json: traces of SentenceTransformerTrainer on data/scored.csv in file order, batches of 32,
CoSENTLoss (scale 20), without dropout: 20 steps of plain SGD and 20 of AdamW with weight decay. What a trace holds is
said in make_training.py.

usage: test/golden/make_cosent.py [--out test/golden]
"""
import argparse
import csv
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import make_training  # noqa: E402
import peers  # noqa: E402
from datasets import disable_progress_bars  # noqa: E402
from sentence_transformers.sentence_transformer.losses import CoSENTLoss  # noqa: E402

SGD = {**make_training.SGD_TINY, "learning_rate": 0.005, "max_steps": 20}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    arguments = parser.parse_args()
    disable_progress_bars()
    with open(HERE / "data" / "scored.csv", encoding="utf-8", newline="") as file:
        rows = [{**row, "score": float(row["score"])} for row in csv.DictReader(file)]
    task = {"columns": ("definition", "lemmas", "score"), "loss": CoSENTLoss}
    tiny_bert = HERE / "tiny_bert"
    model, sgd = make_training.figures(tiny_bert, rows, SGD, **task)
    sgd["final_weights"] = make_training.weight_figures(model, peers.load_model(tiny_bert))
    adamw = make_training.figures(tiny_bert, rows, make_training.ADAMW_TINY, **task)[1]
    peers.write_json(arguments.out / "cosent_tiny.json", {"sgd": sgd, "adamw": adamw})


if __name__ == "__main__":
    main()
