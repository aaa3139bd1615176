#!/usr/bin/env python3
"""Writes test/golden/tiny_bert (the directory layout of sentence-transformers 2 to 5) and test/golden/tiny_bert_dense
(the same transformer, a Dense module behind the pooling, the layout of sentence-transformers 6.2).

Random weights, large enough that no gradient vanishes; a WordPiece vocabulary of 500 entries derived from WordNet
definitions, so that most words take several pieces. The weights come from numpy's PCG64 and are rounded to float32.

usage: test/golden/make_tiny_bert.py [--wordnet /usr/share/wordnet] [--out test/golden]
"""
import argparse
import collections
import json
import os
import re
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))
import peers  # noqa: E402,F401  (offline mode, one thread)
import numpy as np  # noqa: E402
from prepare_wordnet import read_synsets, unique_pairs  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402
from sentence_transformers import SentenceTransformer  # noqa: E402
from sentence_transformers.sentence_transformer import modules  # noqa: E402
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors  # noqa: E402
import torch  # noqa: E402

VOCAB_SIZE = 500
SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
HIDDEN, INTERMEDIATE, HEADS, LAYERS, POSITIONS, MAX_SEQ_LENGTH, DENSE_FEATURES = 32, 64, 4, 2, 64, 32, 16
INIT_STD = 0.2

CONFIG = {
    "architectures": ["BertModel"], "attention_probs_dropout_prob": 0.0, "classifier_dropout": None, "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0, "hidden_size": HIDDEN, "initializer_range": INIT_STD, "intermediate_size": INTERMEDIATE,
    "layer_norm_eps": 1e-12, "max_position_embeddings": POSITIONS, "model_type": "bert", "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS, "pad_token_id": 0, "position_embedding_type": "absolute", "type_vocab_size": 2,
    "use_cache": True,
}


def write_json(directory, name, content):
    path = os.path.join(directory, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as out:
        json.dump(content, out, indent=2)
        out.write("\n")


def make_vocabulary(definitions):
    """Every character, then the word starts and word parts that save the most pieces (frequency times length). The
    library's own WordPiece trainer breaks ties at random, this does not."""
    words = collections.Counter(w for d in definitions for w in re.findall("[a-z]+", d.lower()))
    symbols = sorted({c for d in definitions for c in d.lower() if not c.isspace()})
    vocabulary = SPECIAL_TOKENS + symbols + ["##" + c for c in symbols if c.isalnum()]
    pieces = collections.Counter()
    for word, count in words.items():
        for end in range(2, min(len(word), 7) + 1):
            pieces[word[:end]] += count * (end - 1)
        for begin in range(1, len(word) - 1):
            for end in range(begin + 2, min(len(word), begin + 4) + 1):
                pieces["##" + word[begin:end]] += count * (end - begin - 1)
    ranked = sorted(pieces.items(), key=lambda piece: (-piece[1], piece[0]))
    return vocabulary + [piece for piece, _ in ranked[:VOCAB_SIZE - len(vocabulary)]]


def make_tokenizer(definitions):
    vocabulary = {token: i for i, token in enumerate(make_vocabulary(definitions))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(SPECIAL_TOKENS)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(t, tokenizer.token_to_id(t)) for t in ("[CLS]", "[SEP]")])
    return tokenizer


def make_weights(vocab_size):
    random = np.random.Generator(np.random.PCG64(20260101))
    weights = {}

    def normal(name, *shape, mean=0.0):
        weights[name] = (mean + INIT_STD * random.standard_normal(shape)).astype(np.float32)

    def linear(name, n_out, n_in):
        normal(name + ".weight", n_out, n_in)
        normal(name + ".bias", n_out)

    def layer_norm(name):
        normal(name + ".weight", HIDDEN, mean=1.0)
        normal(name + ".bias", HIDDEN)

    normal("embeddings.word_embeddings.weight", vocab_size, HIDDEN)
    normal("embeddings.position_embeddings.weight", POSITIONS, HIDDEN)
    normal("embeddings.token_type_embeddings.weight", 2, HIDDEN)
    layer_norm("embeddings.LayerNorm")
    for i in range(LAYERS):
        layer = f"encoder.layer.{i}."
        for part in ("query", "key", "value"):
            linear(layer + "attention.self." + part, HIDDEN, HIDDEN)
        linear(layer + "attention.output.dense", HIDDEN, HIDDEN)
        layer_norm(layer + "attention.output.LayerNorm")
        linear(layer + "intermediate.dense", INTERMEDIATE, HIDDEN)
        linear(layer + "output.dense", HIDDEN, INTERMEDIATE)
        layer_norm(layer + "output.LayerNorm")
    linear("pooler.dense", HIDDEN, HIDDEN)
    weights["embeddings.position_ids"] = np.arange(POSITIONS, dtype=np.int64)[None, :]
    return weights


def write_tiny_bert(directory, tokenizer):
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    vocab = sorted(tokenizer.get_vocab().items(), key=lambda entry: entry[1])
    with open(os.path.join(directory, "vocab.txt"), "w", encoding="utf-8") as out:
        out.writelines(token + "\n" for token, _ in vocab)
    tokenizer.save(os.path.join(directory, "tokenizer.json"), pretty=False)
    write_json(directory, "tokenizer_config.json", {
        "do_lower_case": True, "unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]",
        "mask_token": "[MASK]", "tokenize_chinese_chars": True, "strip_accents": None, "do_basic_tokenize": True,
        "tokenizer_class": "BertTokenizer", "model_max_length": POSITIONS})
    write_json(directory, "config.json", {**CONFIG, "vocab_size": len(vocab)})
    write_json(directory, "sentence_bert_config.json", {"max_seq_length": MAX_SEQ_LENGTH, "do_lower_case": False})
    write_json(directory, "config_sentence_transformers.json", {
        "__version__": {"sentence_transformers": "2.0.0", "transformers": "4.6.1", "pytorch": "1.8.1"}})
    names = ("Transformer", "Pooling", "Normalize")
    write_json(directory, "modules.json", [
        {"idx": i, "name": str(i), "path": f"{i}_{name}" if i else "", "type": "sentence_transformers.models." + name}
        for i, name in enumerate(names)])
    write_json(directory, "1_Pooling/config.json", {
        "word_embedding_dimension": HIDDEN, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True,
        "pooling_mode_max_tokens": False, "pooling_mode_mean_sqrt_len_tokens": False})
    weights = os.path.join(directory, "model.safetensors")
    save_file(make_weights(len(vocab)), weights, metadata={"format": "pt"})
    os.chmod(weights, 0o644)


def write_tiny_bert_dense(directory, tiny_bert):
    """Saved by the peer itself, so that the layout is its own."""
    shutil.rmtree(directory, ignore_errors=True)
    transformer, pooling, normalize = SentenceTransformer(tiny_bert, device="cpu").children()
    dense = modules.Dense(HIDDEN, DENSE_FEATURES, activation_function=torch.nn.Tanh())
    random = np.random.Generator(np.random.PCG64(20260102))
    state = {name: torch.from_numpy((INIT_STD * random.standard_normal(tuple(value.shape))).astype(np.float32))
             for name, value in dense.state_dict().items()}
    dense.load_state_dict(state)
    model = SentenceTransformer(modules=[transformer, pooling, dense, normalize], device="cpu")
    model.save_pretrained(directory, create_model_card=False)
    os.chmod(os.path.join(directory, "model.safetensors"), 0o644)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wordnet", default="/usr/share/wordnet")
    parser.add_argument("--out", default=HERE)
    arguments = parser.parse_args()
    definitions = [s.definition for s in unique_pairs(read_synsets(arguments.wordnet), "stft")]
    tiny_bert = os.path.join(arguments.out, "tiny_bert")
    write_tiny_bert(tiny_bert, make_tokenizer(definitions[:20000]))
    write_tiny_bert_dense(os.path.join(arguments.out, "tiny_bert_dense"), tiny_bert)


if __name__ == "__main__":
    main()
