#!/usr/bin/env python3
"""Compares a file that `stft encode` wrote with SentenceTransformer.encode of the same texts. Exit 0 when they agree, 1
when they do not. Used by peer_test.

usage: test/e2e/peer_encode_file.py MODEL --input TEXTS.txt --found FILE [--precision int8] [--prompt-name query]
       [--truncate-dim 16] [--compute float32]
"""
import argparse
import json
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

TOLERANCE = 1e-5  # of float32 embeddings
# Float rounding may move a number over the border of two codes, or a sign: that many of the codes may be neighbours.
NEIGHBOURS = 0.001


def read_lines(path):
    with open(path, "rb") as file:
        lines = file.read().split(b"\n")
    return [line.decode() for line in (lines if lines[-1] else lines[:-1])]


def read_matrix(path):
    import numpy
    from safetensors.numpy import load_file

    if path.endswith(".npy"):
        return numpy.load(path)
    if path.endswith(".safetensors"):
        return load_file(path)["embeddings"]
    with open(path, encoding="utf-8") as lines:
        return numpy.array([json.loads(line)["embedding"] for line in lines])


def fault(found, expected, precision):
    import numpy

    if found.shape != expected.shape:
        return f"shape {found.shape}, expected {expected.shape}"
    if precision == "float32":
        difference = float(numpy.abs(found - expected).max())
        print(f"peer_encode_file: largest difference {difference:.3g}", file=sys.stderr)
        return None if difference <= TOLERANCE else f"differs by {difference}"
    if precision.endswith("binary"):
        codes = [numpy.unpackbits((matrix.astype(int) + (128 if precision == "binary" else 0)).astype(numpy.uint8))
                 for matrix in (found, expected)]
    else:
        codes = [found, expected]
    difference = numpy.abs(codes[0].astype(int) - codes[1].astype(int))
    moved = float((difference > 0).mean())
    print(f"peer_encode_file: {moved:.3g} of the codes differ, by {difference.max()} at most", file=sys.stderr)
    return None if difference.max() <= 1 and moved <= NEIGHBOURS else f"codes differ by up to {difference.max()}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--input", required=True)
    parser.add_argument("--found", required=True)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--prompt-name")
    parser.add_argument("--truncate-dim", type=int)
    parser.add_argument("--compute", help="the dtype that the peer computes in; its own choice without: the file's")
    arguments = parser.parse_args()
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(arguments.model, device="cpu", truncate_dim=arguments.truncate_dim,
                                model_kwargs={"dtype": arguments.compute} if arguments.compute else None)
    expected = model.encode(read_lines(arguments.input), prompt_name=arguments.prompt_name,
                            precision=arguments.precision, show_progress_bar=False)
    found = read_matrix(arguments.found)
    problem = fault(found, expected, arguments.precision)
    if problem is None and not arguments.found.endswith(".jsonl") and found.dtype != expected.dtype:
        problem = f"type {found.dtype}, expected {expected.dtype}"
    if problem:
        print(f"peer_encode_file: {problem}", file=sys.stderr)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
