#!/usr/bin/env python3
"""Writes a randomly initialised BERT-base (about 440 MB) as a sentence-transformers directory: mean pooling, Normalize.

The tokenizer (the same 30522 words) and the settings of the modules come from a BERT sentence-transformers model
such as all-MiniLM-L6-v2.

usage: make_bert_base.py --like .deps/models/all-MiniLM-L6-v2 --out DIRECTORY
"""
import argparse
import json
import shutil
from pathlib import Path

import torch
from transformers import BertConfig, BertModel

SEED = 20240607
COPIED = ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json", "tokenizer.json",
          "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--like", type=Path, required=True)
parser.add_argument("--out", type=Path, required=True)
options = parser.parse_args()

torch.manual_seed(SEED)
config = BertConfig()
options.out.mkdir(parents=True, exist_ok=True)
BertModel(config).save_pretrained(options.out)
for name in COPIED:
    shutil.copy(options.like / name, options.out / name)
pooling = json.loads((options.like / "1_Pooling" / "config.json").read_text(encoding="utf-8"))
pooling["word_embedding_dimension"] = config.hidden_size
(options.out / "1_Pooling").mkdir(exist_ok=True)
(options.out / "2_Normalize").mkdir(exist_ok=True)
(options.out / "1_Pooling" / "config.json").write_text(json.dumps(pooling, indent=2) + "\n", encoding="ascii")
