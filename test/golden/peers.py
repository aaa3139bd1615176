"""What the golden generators share: the versions they ran with, models without dropout, deterministic files."""
import json
import os
import pathlib

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import sentence_transformers
import tokenizers
import torch
import transformers

torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)

VERSIONS = {
    "torch": torch.__version__,
    "transformers": transformers.__version__,
    "sentence-transformers": sentence_transformers.__version__,
    "tokenizers": tokenizers.__version__,
}


def load_model(path, dtype=torch.float32):
    """The model in training mode without dropout: what it computes is a function of weights and text only."""
    model = sentence_transformers.SentenceTransformer(str(path), device="cpu").to(dtype)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model.train()


def hf_name(name):
    """Name of a parameter of module 0 as model.safetensors has it: 0.model.encoder... -> encoder..."""
    prefix = "0.model."
    if not name.startswith(prefix):
        raise ValueError(f"{name} is not a parameter of the transformer")
    return name[len(prefix):]


def read_rows(path, limit=None):
    with open(path, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return rows if limit is None else rows[:limit]


def write_json(path, content):
    pathlib.Path(path).write_text(json.dumps({"peers": VERSIONS, **content}, indent=1) + "\n", encoding="utf-8")
