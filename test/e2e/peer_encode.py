#!/usr/bin/env python3
"""Loads a model directory in Python's SentenceTransformer and compares it with what the run says about it. Exit 0 when
all of it agrees, 1 when something does not. Used by peer_test.

usage: test/e2e/peer_encode.py MODEL --dimension 32 [--prompt NAME TEXT]... [--beir DIR --metrics METRICS.json]

METRICS.json: the metrics of the run's last evaluation, of an evaluator named beir, as log.jsonl has them.
"""
import argparse
import json
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

TEXTS = ["small flowers", "the state of being in love", "", "a person who is usually in the north"]
METRIC_TOLERANCE = 0.02  # of 60 queries one may change places where float32 rounding decides
EMBEDDING_TOLERANCE = 1e-6


def read_jsonl(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def evaluate(model, beir):
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    queries = {row["_id"]: row["text"] for row in read_jsonl(f"{beir}/queries.jsonl")}
    corpus = {}
    for row in read_jsonl(f"{beir}/corpus.jsonl"):
        corpus[row["_id"]] = " ".join(filter(None, [row.get("title"), row["text"]]))
    relevant = {}
    with open(f"{beir}/qrels/test.tsv", encoding="utf-8") as lines:
        for query, document, score in (line.rstrip("\n").split("\t") for line in list(lines)[1:]):
            if int(score) > 0:
                relevant.setdefault(query, set()).add(document)
    return InformationRetrievalEvaluator(queries, corpus, relevant, name="beir", write_csv=False)(model)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--dimension", type=int, required=True)
    parser.add_argument("--prompt", nargs=2, action="append", default=[])
    parser.add_argument("--beir")
    parser.add_argument("--metrics")
    arguments = parser.parse_args()
    import numpy
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(arguments.model, device="cpu")
    faults = []
    found = model.encode(TEXTS, show_progress_bar=False)
    if found.shape != (len(TEXTS), arguments.dimension) or not numpy.isfinite(found).all():
        faults.append(f"embeddings of shape {found.shape}, expected dimension {arguments.dimension}, all finite")
    for name, text in arguments.prompt:
        if model.prompts.get(name) != text:
            faults.append(f"prompt {name} is {model.prompts.get(name)!r}, expected {text!r}")
            continue
        by_name = model.encode(TEXTS, prompt_name=name, show_progress_bar=False)
        by_hand = model.encode([text + each for each in TEXTS], show_progress_bar=False)
        if numpy.abs(by_name - by_hand).max() > EMBEDDING_TOLERANCE:
            faults.append(f"encode(prompt_name={name!r}) is not the prompt put before the text")
    if arguments.metrics:
        with open(arguments.metrics, encoding="utf-8") as file:
            expected = json.load(file)
        measured = evaluate(model, arguments.beir)
        for name, value in expected.items():
            if name not in measured or abs(measured[name] - value) > METRIC_TOLERANCE:
                faults.append(f"{name} is {measured.get(name)}, the run says {value}")
        print("peer_encode: largest difference of a metric "
              f"{max(abs(measured.get(name, 9) - value) for name, value in expected.items()):.3g}", file=sys.stderr)
    for fault in faults:
        print(f"peer_encode: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
