#!/usr/bin/env python3
"""Writes test/golden/families/<family>.{json,safetensors}: tiny random models of every family that stft has, what
transformers computes with them, and the gradients of a fixed scalar.

A family's weights are shared by its cases, which differ in config.json (`config`, without what is transformers' default
where that is shown to matter). Texts are the token ids in `texts`; each is run on its own and, as a check of the golden
itself, in a padded batch. The scalar is sum(token vectors * cos(0, 1, 2, ...)) over the concatenated texts. Cases with "gradients": False keep those of
the first projections only. Weights come
from numpy's PCG64. Names in the safetensors file: weights/<name>, <case>/output,
<case>/gradients/<name>, and published/<name> where published files of the family have other names.

usage: test/golden/make_families.py [--only FAMILY ...] [--out test/golden/families]
"""
import argparse
import os
import pathlib
import sys
import tempfile
import zlib

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import families  # noqa: E402
import peers  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from transformers import AutoConfig, AutoModel  # noqa: E402


def make_texts(vocab_size, lengths, special):
    random = np.random.Generator(np.random.PCG64(20260201))
    return [[int(t) for t in random.integers(special, vocab_size, n)] for n in lengths]


def random_weights(model, family):
    random = np.random.Generator(np.random.PCG64(zlib.crc32(family.encode())))
    state = {}
    for name, value in sorted(model.named_parameters()):
        is_norm = value.ndim == 1 and "norm" in name.lower() and name.endswith("weight") and "gemma" not in family
        values = (1.0 if is_norm else 0.0) + 0.3 * random.standard_normal(tuple(value.shape))
        state[name] = torch.from_numpy(values.astype(np.float32))
    return state


def build(config, dtype):
    settings = dict(config)
    built = AutoConfig.for_model(settings.pop("model_type"), **settings)
    model_class = families.MODEL_CLASSES.get(config["model_type"], AutoModel)
    if model_class is AutoModel:
        model = AutoModel.from_config(built, attn_implementation="eager")
    else:
        model = model_class._from_config(built, attn_implementation="eager")
    return model.to(dtype).eval()


def embed(model, rows, padding, side):
    longest = max(len(row) for row in rows)
    ids, mask = [], []
    for row in rows:
        pad = longest - len(row)
        ids.append([padding] * pad + row if side == "left" else row + [padding] * pad)
        mask.append([0] * pad + [1] * len(row) if side == "left" else [1] * len(row) + [0] * pad)
    out = model(input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask)).last_hidden_state
    return [out[i][torch.tensor(mask[i], dtype=torch.bool)] for i in range(len(rows))]


def run_case(config, weights, texts, case):
    model = build(config, torch.float32)
    own = dict(model.named_parameters())
    assert set(own) <= set(weights), sorted(set(own) - set(weights))
    model.load_state_dict({name: weights[name] for name in own}, strict=False)
    output = torch.cat([embed(model, [text], config.get("pad_token_id") or 0, "right")[0] for text in texts])
    if not case.get("depends_on_mates"):
        for side in case.get("padding_sides", ("right",)):
            padded = torch.cat(embed(model, texts, config.get("pad_token_id") or 0, side))
            difference = float((padded - output).detach().abs().max())
            assert difference < 2e-5, (side, difference)
    (output * torch.arange(output.numel(), dtype=output.dtype).cos().view(output.shape)).sum().backward()
    gradients = {name: p.grad for name, p in own.items() if p.grad is not None}
    return output.detach(), gradients


def published(family, config, weights, texts, expected):
    """The weights under the names of published files, as transformers loads them."""
    tensors = families.PUBLISHED[family](weights)
    with tempfile.TemporaryDirectory() as directory:
        build(config, torch.float32).config.save_pretrained(directory)
        save_file(tensors, pathlib.Path(directory) / "model.safetensors", metadata={"format": "pt"})
        model = AutoModel.from_pretrained(directory, attn_implementation="eager").eval()
    output = torch.cat([embed(model, [text], config["pad_token_id"] if "pad_token_id" in config else 0, "right")[0] for text in texts])
    assert float((output - expected).detach().abs().max()) == 0
    return {"published/" + name: value.clone() for name, value in tensors.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "families")
    arguments = parser.parse_args()
    arguments.out.mkdir(exist_ok=True)
    for family, content in families.FAMILIES.items():
        if arguments.only and family not in arguments.only:
            continue
        texts = make_texts(content["config"]["vocab_size"], content.get("lengths", families.LENGTHS), 5)
        if "texts" in content:
            texts = texts + content["texts"]
        weights, tensors, cases, first = None, {}, [], None
        for case in content["cases"]:
            config = {**content["config"], **case.get("config", {})}
            if weights is None:
                weights = random_weights(build(config, torch.float32), family)
                tensors.update({"weights/" + name: value for name, value in weights.items()})
            output, gradients = run_case(config, weights, texts, case)
            name = case["name"]
            tensors[name + "/output"] = output.contiguous()
            tensors.update({f"{name}/gradients/{k}": v.contiguous() for k, v in gradients.items()
                            if case.get("gradients", True) or ".0." in k and ("attn" in k or "attention" in k)})
            if first is None:
                first = output
            elif not case.get("same_as_first"):
                assert float((output - first).abs().max()) > 1e-4, "the case does not differ from the first"
            if name == "plain" and family in families.PUBLISHED:
                tensors.update(published(family, config, weights, texts, output))
            cases.append({"name": name, "config": config})
            print(family, name, float(output.abs().max()))
        path = arguments.out / (family + ".safetensors")
        save_file(tensors, path)
        os.chmod(path, 0o644)
        peers.write_json(arguments.out / (family + ".json"), {"texts": texts, "cases": cases})


if __name__ == "__main__":
    main()
