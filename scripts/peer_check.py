#!/usr/bin/env python3
"""Loads a model directory in Python's SentenceTransformer, encodes a text file, one text a line, and compares with
embeddings from a .safetensors file. Exit 0 when they agree, 1 when they do not.

Needs sentence-transformers (versions in test/golden/README.md); used by hand and by the tests labelled peer.

usage: scripts/peer_check.py runs/quickstart/final --sentences test/golden/data/sentences.txt \\
           --expected embeddings.safetensors [--tensor NAME] [--tolerance 1e-5]
"""
import argparse
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a sentence-transformers directory, as final/")
    parser.add_argument("--sentences", required=True, help="text file")
    parser.add_argument("--expected", required=True, help=".safetensors with one row per text")
    parser.add_argument("--tensor", help="its name; default: the only one of the file")
    parser.add_argument("--tolerance", type=float, default=1e-5, help="of one element (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=32)
    return parser, parser.parse_args()


def main():
    parser, arguments = parse_arguments()
    import numpy
    import sentence_transformers
    from safetensors.numpy import load_file

    with open(arguments.sentences, encoding="utf-8", newline="\n") as lines:
        sentences = [line.rstrip("\n") for line in lines]
    tensors = load_file(arguments.expected)
    name = arguments.tensor or next(iter(tensors))
    if name not in tensors or (arguments.tensor is None and len(tensors) > 1):
        parser.error(f"--tensor must be one of {', '.join(sorted(tensors))}")
    expected = tensors[name].astype(numpy.float64)

    model = sentence_transformers.SentenceTransformer(arguments.model, device="cpu")
    found = model.encode(sentences, batch_size=arguments.batch_size, show_progress_bar=False).astype(numpy.float64)
    if found.shape != expected.shape:
        print(f"peer_check: the model gives {found.shape}, {arguments.expected} holds {expected.shape}", file=sys.stderr)
        return 1
    difference = numpy.abs(found - expected).max(axis=1)
    difference[numpy.isnan(difference)] = numpy.inf
    worst = int(difference.argmax())
    agrees = bool(difference[worst] <= arguments.tolerance)
    print(f"peer_check: sentence-transformers {sentence_transformers.__version__}, {len(sentences)} texts, largest "
          f"difference {difference[worst]:.3g} in text {worst + 1}: {'agrees' if agrees else 'DIFFERS'}", file=sys.stderr)
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
