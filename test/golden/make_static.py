#!/usr/bin/env python3
"""Writes tiny_static/: a sentence-transformers model of a StaticEmbedding with tiny_bert's tokenizer and a Normalize, and
static.safetensors: its vectors of the texts below (`embeddings`) and the table's gradient of
sum(vectors * cos(0, 1, 2, ...)) (`gradient`).

usage: test/golden/make_static.py [--out test/golden]
"""
import argparse
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import peers  # noqa: E402,F401
import numpy as np  # noqa: E402
import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from sentence_transformers import SentenceTransformer  # noqa: E402
from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

WIDTH = 8
TEXTS = ["one", "a text of some more words", "", "another short one",
         "the longest of these texts, by a margin, in both words and tokens " * 3]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    arguments = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(HERE / "tiny_bert" / "tokenizer.json"))
    random = np.random.Generator(np.random.PCG64(20261201))
    table = random.standard_normal((tokenizer.get_vocab_size(), WIDTH)).astype(np.float32)
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=table), Normalize()], device="cpu")
    directory = arguments.out / "tiny_static"
    model.save_pretrained(str(directory), create_model_card=False)
    for path in directory.rglob("*"):
        os.chmod(path, 0o755 if path.is_dir() else 0o644)
    vectors = model(model.preprocess(TEXTS))["sentence_embedding"]
    (vectors * torch.arange(vectors.numel()).cos().view(vectors.shape)).sum().backward()
    path = arguments.out / "static.safetensors"
    save_file({"embeddings": vectors.detach().contiguous(), "gradient": model[0].embedding.weight.grad}, path)
    os.chmod(path, 0o644)


if __name__ == "__main__":
    main()
