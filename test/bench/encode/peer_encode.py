"""Encodes a file of texts with sentence-transformers; what run.py compares stft with.

usage: peer_encode.py MODEL INPUT OUTPUT.npy --threads 2

INPUT has one text a line. Prints {"seconds": ..., "texts": ...}: the time of `encode` alone, on a model that is loaded
and has encoded a few texts before.
"""
import argparse
import json
import time

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

WARM_UP_TEXTS = 64


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("input")
    parser.add_argument("output")
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with open(arguments.input, encoding="utf-8") as lines:
        texts = lines.read().split("\n")[:-1]
    model = SentenceTransformer(arguments.model, device="cpu", model_kwargs={"dtype": "float32"})
    model.encode(texts[:WARM_UP_TEXTS])
    start = time.perf_counter()
    vectors = model.encode(texts)
    seconds = time.perf_counter() - start
    np.save(arguments.output, vectors)
    print(json.dumps({"seconds": seconds, "texts": len(texts)}))


if __name__ == "__main__":
    main()
