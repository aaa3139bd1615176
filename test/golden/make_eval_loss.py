#!/usr/bin/env python3
"""Writes eval_loss_tiny.json: the eval_loss that SentenceTransformerTrainer logs for 7 rows in batches of 4 (the last one
has 3), for tiny_bert with MultipleNegativesRankingLoss and with CoSENTLoss. The trainer shuffles
evaluation sets too; here it is given the file order.

usage: test/golden/make_eval_loss.py [--out test/golden]
"""
import argparse
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import peers  # noqa: E402
import torch  # noqa: E402
from datasets import Dataset  # noqa: E402
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments  # noqa: E402
from sentence_transformers.base.sampler import DefaultBatchSampler  # noqa: E402
from sentence_transformers.sentence_transformer.losses import CoSENTLoss, MultipleNegativesRankingLoss  # noqa: E402

ROWS = 7
BATCH = 4


def in_file_order(dataset, batch_size, drop_last, **_):
    return DefaultBatchSampler(torch.utils.data.SequentialSampler(dataset), batch_size=batch_size, drop_last=drop_last)


def eval_loss(loss_class, rows):
    model = peers.load_model(HERE / "tiny_bert")
    with tempfile.TemporaryDirectory() as directory:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=directory, per_device_eval_batch_size=BATCH, use_cpu=True, disable_tqdm=True,
            batch_sampler=in_file_order)
        data = Dataset.from_list(rows)
        trainer = SentenceTransformerTrainer(
            model=model, args=arguments, train_dataset=data, eval_dataset=data, loss=loss_class(model))
        return trainer.evaluate()["eval_loss"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    arguments = parser.parse_args()
    pairs = peers.read_rows(HERE / "data" / "pairs.jsonl", ROWS)
    scored = peers.read_rows(HERE / "data" / "scored_pairs.jsonl", ROWS)
    peers.write_json(arguments.out / "eval_loss_tiny.json", {
        "rows": ROWS,
        "batch": BATCH,
        "MultipleNegativesRankingLoss": eval_loss(
            MultipleNegativesRankingLoss, [{"anchor": row["anchor"], "positive": row["positive"]} for row in pairs]),
        "CoSENTLoss": eval_loss(CoSENTLoss, [{"a": row["a"], "b": row["b"], "score": row["score"]} for row in scored]),
    })


if __name__ == "__main__":
    main()
