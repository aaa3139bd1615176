#!/usr/bin/env python3
"""Writes qlora/: tiny_bert with 4-bit weights, and what PEFT's model with a LoRA adapter on them computes.

qlora/base/ is tiny_bert with every nn.Linear replaced by bitsandbytes' Linear4bit (nf4, double quantization) as
transformers saves it. qlora/adapter/ holds a PEFT adapter of it and expected.safetensors: `embeddings` of
data/sentences.txt's first lines (mean pooling, Normalize), `gradients/KEY` of the adapter's tensors for the scalar
sum(embeddings * v), v[i] = ((i*7919) mod 1009)/1009 - 0.5, in float64, and `weights/NAME`, the weights that were
computed with. They are de-quantized here by table, in the open: bitsandbytes' AVX-512 routine is wrong for columns that
are divisible by 16 but not by the block size.

usage: test/golden/make_qlora.py [--out test/golden]
"""
import argparse
import copy
import json
import pathlib
import shutil
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import peers  # noqa: E402
import bitsandbytes  # noqa: E402
import peft  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from make_peft import embed, file_key, projection, randomise  # noqa: E402

BASE = "test/golden/qlora/base"
TEXTS = 8


def dequantized(tensors, key):
    """values[code] * absmax, in float32."""
    state = json.loads(bytes(next(value for name, value in tensors.items()
                                  if name.startswith(key + ".quant_state."))))
    absmax = tensors[key + ".absmax"]
    if "nested_offset" in state:
        nested = tensors[key + ".nested_absmax"].repeat_interleave(state["nested_blocksize"])[:absmax.numel()]
        absmax = tensors[key + ".nested_quant_map"][absmax.long()] * nested + torch.tensor(state["nested_offset"])
    packed = tensors[key].flatten().view(torch.uint8).long()
    codes = torch.stack([packed >> 4, packed & 15], dim=1).flatten()
    count = state["shape"][0] * state["shape"][1]
    scales = absmax.repeat_interleave(state["blocksize"])[:count]
    return (tensors[key + ".quant_map"][codes[:count]] * scales).view(state["shape"])


def write_base(folder):
    config = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4",
                                             bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.float32)
    model = transformers.AutoModel.from_pretrained(HERE / "tiny_bert", quantization_config=config,
                                                   dtype=torch.float32, device_map="cpu")
    shutil.copytree(HERE / "tiny_bert", folder)
    model.save_pretrained(folder)
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(0o644)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    out = parser.parse_args().out / "qlora"
    shutil.rmtree(out, ignore_errors=True)
    write_base(out / "base")
    tensors = load_file(out / "base" / "model.safetensors")
    weights = {key: dequantized(tensors, key) for key in tensors
               if any(name.startswith(key + ".quant_state.") for name in tensors)}

    base = peers.load_model(HERE / "tiny_bert")[0].model
    with torch.no_grad():
        for key, value in weights.items():
            base.get_parameter(key).copy_(value)
    model = peft.get_peft_model(base, peft.LoraConfig(task_type="FEATURE_EXTRACTION", r=4, lora_alpha=8,
                                                      target_modules=["query", "value", "output.dense"]))
    randomise(model, 77)
    model.peft_config["default"].base_model_name_or_path = BASE
    folder = out / "adapter"
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    config = json.loads((folder / "adapter_config.json").read_text())
    config["target_modules"].sort()
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")

    texts = (HERE / "data" / "sentences.txt").read_text(encoding="utf-8").splitlines()[:TEXTS]
    expected = {"weights/" + key: value for key, value in weights.items()}
    with torch.no_grad():
        expected["embeddings"] = embed(model.base_model.model, texts, torch.float32).clone()
    wide = copy.deepcopy(model)
    embeddings = embed(wide.base_model.model, texts, torch.float64)
    (embeddings * projection(embeddings.numel()).view_as(embeddings)).sum().backward()
    for name, parameter in wide.named_parameters():
        if parameter.grad is not None:
            expected["gradients/" + file_key(name)] = parameter.grad.to(torch.float32)
    save_file({key: value.contiguous() for key, value in expected.items()}, folder / "expected.safetensors")
    for path in folder.iterdir():
        path.chmod(0o644)
    peers.write_json(out / "versions.json", {"peft": peft.__version__, "bitsandbytes": bitsandbytes.__version__})


if __name__ == "__main__":
    main()
