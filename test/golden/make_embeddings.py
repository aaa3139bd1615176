#!/usr/bin/env python3
"""Writes embeddings_minilm.safetensors and embeddings_tiny.safetensors: float32 embeddings of data/sentences.txt.

usage: test/golden/make_embeddings.py [--minilm .deps/models/all-MiniLM-L6-v2] [--out test/golden]
"""
import argparse
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import peers  # noqa: E402
import numpy as np  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402
from sentence_transformers import SentenceTransformer  # noqa: E402
from sentence_transformers.sentence_transformer import modules  # noqa: E402

BATCH_AGREEMENT = 2e-6  # one text at a time against padded batches of 32


def encode(model, sentences):
    model.eval()
    single = model.encode(sentences, batch_size=1, convert_to_numpy=True, show_progress_bar=False)
    padded = model.encode(sentences, batch_size=32, convert_to_numpy=True, show_progress_bar=False)
    difference = float(np.abs(single - padded).max())
    assert difference < BATCH_AGREEMENT, difference
    return np.ascontiguousarray(single, dtype=np.float32)


def variant(tiny_bert, pooling, normalize):
    parts = list(peers.load_model(tiny_bert).children())
    chain = [parts[0], modules.Pooling(parts[1].embedding_dimension, pooling_mode=pooling)]
    return SentenceTransformer(modules=chain + ([parts[2]] if normalize else []), device="cpu")


def save(path, tensors):
    save_file(tensors, path, metadata={"peers": " ".join(f"{k}={v}" for k, v in peers.VERSIONS.items())})
    os.chmod(path, 0o644)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minilm", default=".deps/models/all-MiniLM-L6-v2")
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    arguments = parser.parse_args()
    sentences = (HERE / "data" / "sentences.txt").read_text(encoding="utf-8").splitlines()
    tiny_bert = HERE / "tiny_bert"
    save(arguments.out / "embeddings_tiny.safetensors", {
        "mean": encode(peers.load_model(tiny_bert), sentences),
        "cls": encode(variant(tiny_bert, "cls", True), sentences),
        "max": encode(variant(tiny_bert, "max", True), sentences),
        "mean_without_normalize": encode(variant(tiny_bert, "mean", False), sentences),
        "dense": encode(peers.load_model(HERE / "tiny_bert_dense"), sentences),
    })
    save(arguments.out / "embeddings_minilm.safetensors",
         {"embeddings": encode(peers.load_model(arguments.minilm), sentences)})


if __name__ == "__main__":
    main()
