#!/usr/bin/env python3
"""Writes peft/: adapters of tiny_bert that PEFT saves, and what its models compute.

For each case peft/CASE/ holds adapter_config.json and adapter_model.safetensors as PeftModel.save_pretrained writes
them, and expected.safetensors: `embeddings` of data/sentences.txt's first lines (mean pooling, Normalize),
`gradients/KEY` of every tensor that is trained under its key in adapter_model.safetensors, for the scalar
sum(embeddings * v), v[i] = ((i*7919) mod 1009)/1009 - 0.5, and `merged/NAME` of every tensor that merge_and_unload
changes. peft/sentence_transformers/ is the directory that sentence-transformers saves of a model with an adapter. The
adapters' tensors are random, B included; gradients are computed in float64.

usage: test/golden/make_peft.py [--out test/golden]
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
import peft  # noqa: E402
import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

BASE = "test/golden/tiny_bert"
TEXTS = 8
CASES = {
    "default": dict(r=4, lora_alpha=8, target_modules=["query", "value"]),
    "all_linear_rslora": dict(r=4, lora_alpha=8, target_modules="all-linear", exclude_modules=["pooler.dense"],
                              use_rslora=True, rank_pattern={"intermediate.dense": 2}, alpha_pattern={"value": 16}),
    "dora": dict(r=4, lora_alpha=8, target_modules=["query", "value", "output.dense"], use_dora=True),
    "lora_bias_regex": dict(r=2, lora_alpha=4, target_modules=r".*layer\.0\..*\.(query|key)", lora_bias=True),
    "modules_to_save": dict(r=2, lora_alpha=4, target_modules=["query"], bias="lora_only",
                            modules_to_save=["intermediate"], layers_to_transform=[1], layers_pattern="layer"),
    "bias_all": dict(r=2, lora_alpha=4, target_modules=["value"], bias="all"),
    "pooler": dict(r=2, lora_alpha=4, target_modules="all-linear"),  # adapts what the embeddings do not use
    "embedding": dict(r=2, lora_alpha=4, target_modules=["query", "word_embeddings"]),
}


def projection(n):
    return ((torch.arange(n, dtype=torch.int64) * 7919) % 1009).to(torch.float64) / 1009 - 0.5


def randomise(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                noise = torch.randn(parameter.shape, generator=generator) * 0.1
                # A magnitude and a trained copy of the base's tensors stay near what they were.
                parameter.copy_(noise if "lora_A" in name or "lora_B" in name or "lora_embedding" in name
                                else parameter * (1 + 0.1 * noise) + 0.01 * noise)


def file_key(name):
    """The key of a trained parameter in adapter_model.safetensors."""
    name = name.replace(".modules_to_save.default", "").replace(".lora_magnitude_vector.default.weight",
                                                                ".lora_magnitude_vector")
    return name.replace(".default", "")


def embed(transformer, texts, dtype):
    model = peers.load_model(HERE / "tiny_bert", dtype)
    model[0].model = transformer.to(dtype)
    return model(model.preprocess(texts))["sentence_embedding"]


def write_case(name, settings, texts, folder, seed):
    base = peers.load_model(HERE / "tiny_bert")[0].model
    before = {key: value.clone() for key, value in base.state_dict().items()}
    model = peft.get_peft_model(base, peft.LoraConfig(task_type="FEATURE_EXTRACTION", **settings))
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    randomise(model, seed)
    model.peft_config["default"].base_model_name_or_path = BASE
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)

    expected = {}
    with torch.no_grad():
        expected["embeddings"] = embed(model.base_model.model, texts, torch.float32).clone()
    wide = copy.deepcopy(model)
    embeddings = embed(wide.base_model.model, texts, torch.float64)
    (embeddings * projection(embeddings.numel()).view_as(embeddings)).sum().backward()
    keys = set(load_file(folder / "adapter_model.safetensors"))
    for parameter_name, parameter in wide.named_parameters():
        if parameter.grad is not None:
            key = file_key(parameter_name)
            if key not in keys:
                raise ValueError(f"{name}: {key} is not in the file")
            expected["gradients/" + key] = parameter.grad.to(torch.float32)
    for key, value in model.merge_and_unload().state_dict().items():
        if not torch.equal(value, before[key]):
            expected["merged/" + key] = value
    save_file({key: value.contiguous() for key, value in expected.items()}, folder / "expected.safetensors")
    for path in folder.iterdir():
        path.chmod(0o644)
    # Sorted, for PEFT's order of a set differs from run to run.
    config = json.loads((folder / "adapter_config.json").read_text())
    if isinstance(config["target_modules"], list):
        config["target_modules"].sort()
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def write_directory(folder, case):
    """What sentence-transformers saves of a model with an adapter; add_adapter wants a newer peft, so it is put in."""
    model = peers.load_model(HERE / "tiny_bert")
    model.save_pretrained(str(folder), create_model_card=False)
    for name in ("config.json", "model.safetensors", "README.md"):
        (folder / name).unlink(missing_ok=True)
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        shutil.copy(case / name, folder / name)
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(0o644)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    out = parser.parse_args().out / "peft"
    texts = (HERE / "data" / "sentences.txt").read_text(encoding="utf-8").splitlines()[:TEXTS]
    for seed, (name, settings) in enumerate(CASES.items()):
        shutil.rmtree(out / name, ignore_errors=True)
        write_case(name, settings, texts, out / name, seed)
    shutil.rmtree(out / "sentence_transformers", ignore_errors=True)
    write_directory(out / "sentence_transformers", out / "default")
    peers.write_json(out / "versions.json", {"peft": peft.__version__})


if __name__ == "__main__":
    main()
