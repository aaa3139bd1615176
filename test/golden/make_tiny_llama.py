#!/usr/bin/env python3
"""Writes test/golden/tiny_llama: a decoder embedder in the layout of sentence-transformers 6.2: a random Llama of two
layers (grouped queries), last-token pooling, Normalize.

The tokenizer is a byte-level BPE of 200 merges learnt from WordNet definitions, with single digits, as SmolLM2's; every
text ends in <|endoftext|>, which is what the pooling takes. The weights come from numpy's PCG64.

usage: test/golden/make_tiny_llama.py [--wordnet /usr/share/wordnet] [--out test/golden]
"""
import argparse
import collections
import json
import os
import re
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))
import peers  # noqa: E402,F401  (offline mode, one thread)
import numpy as np  # noqa: E402
from prepare_wordnet import read_synsets, unique_pairs  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402
from sentence_transformers import SentenceTransformer  # noqa: E402
from sentence_transformers.base.modules import Normalize, Transformer  # noqa: E402
from sentence_transformers.sentence_transformer.modules import Pooling  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors  # noqa: E402

MERGES, POSITIONS, MAX_SEQ_LENGTH, INIT_STD = 200, 64, 32, 0.2
HIDDEN, INTERMEDIATE, HEADS, KEY_VALUE_HEADS, LAYERS = 32, 64, 4, 2, 2
END = "<|endoftext|>"


def learn_merges(definitions):
    """The most frequent pairs, ties by their spelling (the library's trainer breaks them at random)."""
    words = collections.Counter(w for d in definitions for w in re.findall(r" ?[a-z]+| ?[^\sa-z0-9]+", d.lower()))
    pieces = {word: tuple(word.replace(" ", "\u0120")) for word in words if word.isascii()}
    merges = []
    while len(merges) < MERGES:
        pairs = collections.Counter()
        for word, parts in pieces.items():
            for pair in zip(parts, parts[1:]):
                pairs[pair] += words[word]
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        for word, parts in pieces.items():
            merged, i = [], 0
            while i < len(parts):
                is_pair = parts[i:i + 2] == best
                merged.append("".join(best) if is_pair else parts[i])
                i += 2 if is_pair else 1
            pieces[word] = tuple(merged)
    return merges


def make_tokenizer(definitions):
    merges = learn_merges(definitions)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([END] + alphabet + ["".join(pair) for pair in merges])}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([END])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {END}", pair=f"$A {END} $B {END}", special_tokens=[(END, vocabulary[END])])
    return tokenizer


def make_weights(vocab_size):
    random = np.random.Generator(np.random.PCG64(20260301))

    def normal(*shape, mean=0.0):
        return (mean + INIT_STD * random.standard_normal(shape)).astype(np.float32)

    weights = {"embed_tokens.weight": normal(vocab_size, HIDDEN)}
    key_value = HIDDEN // HEADS * KEY_VALUE_HEADS
    for i in range(LAYERS):
        layer = f"layers.{i}."
        for name, rows, columns in (("q", HIDDEN, HIDDEN), ("k", key_value, HIDDEN), ("v", key_value, HIDDEN),
                                    ("o", HIDDEN, HIDDEN)):
            weights[f"{layer}self_attn.{name}_proj.weight"] = normal(rows, columns)
        for name, rows, columns in (("gate", INTERMEDIATE, HIDDEN), ("up", INTERMEDIATE, HIDDEN),
                                    ("down", HIDDEN, INTERMEDIATE)):
            weights[f"{layer}mlp.{name}_proj.weight"] = normal(rows, columns)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{layer}{name}.weight"] = normal(HIDDEN, mean=1.0)
    weights["norm.weight"] = normal(HIDDEN, mean=1.0)
    return weights


def write_transformer(directory, tokenizer):
    vocab_size = tokenizer.get_vocab_size()
    tokenizer.save(os.path.join(directory, "tokenizer.json"), pretty=False)
    files = {
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "pad_token": END,
                                  "model_max_length": MAX_SEQ_LENGTH, "padding_side": "left"},
        "config.json": {
            "architectures": ["LlamaModel"], "model_type": "llama", "vocab_size": vocab_size, "hidden_size": HIDDEN,
            "intermediate_size": INTERMEDIATE, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
            "num_key_value_heads": KEY_VALUE_HEADS, "hidden_act": "silu", "max_position_embeddings": POSITIONS,
            "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "attention_bias": False, "mlp_bias": False,
            "attention_dropout": 0.0, "tie_word_embeddings": True, "eos_token_id": 0, "pad_token_id": 0,
            "torch_dtype": "float32"},
    }
    for name, content in files.items():
        with open(os.path.join(directory, name), "w", encoding="utf-8") as out:
            json.dump(content, out)
    save_file(make_weights(vocab_size), os.path.join(directory, "model.safetensors"), metadata={"format": "pt"})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wordnet", default="/usr/share/wordnet")
    parser.add_argument("--out", default=HERE)
    arguments = parser.parse_args()
    definitions = [s.definition for s in unique_pairs(read_synsets(arguments.wordnet), "stft")]
    target = os.path.join(arguments.out, "tiny_llama")
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory() as directory:
        write_transformer(directory, make_tokenizer(definitions[:20000]))
        model = SentenceTransformer(modules=[Transformer(directory), Pooling(HIDDEN, pooling_mode="lasttoken"),
                                             Normalize()], device="cpu")
        model.save_pretrained(target, create_model_card=False)
    os.chmod(os.path.join(target, "model.safetensors"), 0o644)


if __name__ == "__main__":
    main()
