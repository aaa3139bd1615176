#!/usr/bin/env python3
"""Loads the adapter that a run left, and the merged model, in Python's SentenceTransformer; both must give the
embeddings that stft gives. Exit 0 when all of it agrees, 1 when something does not. Used by peer_adapter_test.

usage: test/e2e/peer_adapter.py ADAPTER MERGED --texts FILE --adapter-embeddings A.npy --merged-embeddings M.npy
                                [--checkpoint DIR [--with-base]] [--quantized-embeddings Q.npy]

Q: of the adapter on its base quantized by bitsandbytes (NF4 in blocks of 64, one quantization). DIR: a SHARDED
checkpoint of the same adapter, which torch.distributed.checkpoint must load into a model with one; with --with-base one
of checkpoint.adapter_only: false, which must fill all of that model.
"""
import argparse
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

TOLERANCE = 1e-5


def base_of(path):
    """The base of an adapter's directory: with it, or where its configuration says."""
    import peft

    kept = os.path.join(path, "base_model")
    has_kept = os.path.exists(os.path.join(kept, "model.safetensors"))
    return kept if has_kept else peft.PeftConfig.from_pretrained(path).base_model_name_or_path


def load(path, merged):
    """The model of a directory. transformers 5.24 does not find a DoRA magnitude under the key that PEFT writes, so that
    sentence-transformers leaves it at its start; PEFT's own loader does. Nor does it take the base that lies with an
    adapter; then the other modules are those of `merged`."""
    import peft
    from sentence_transformers import SentenceTransformer
    from transformers import AutoModel

    if not os.path.exists(os.path.join(path, "adapter_config.json")):
        return SentenceTransformer(path, device="cpu")
    has_kept_base = base_of(path).startswith(path)
    if not has_kept_base and not peft.PeftConfig.from_pretrained(path).use_dora:
        return SentenceTransformer(path, device="cpu")
    model = SentenceTransformer(merged if has_kept_base else base_of(path), device="cpu")
    base = AutoModel.from_pretrained(base_of(path)) if has_kept_base else model[0].model
    model[0].model = peft.PeftModel.from_pretrained(base, path).base_model.model.eval()
    return model


def check_checkpoint(directory, adapter, with_base):
    """What is wrong with a SHARDED checkpoint of an adapter, loaded by the names of sentence-transformers' state dict:
    those of what is trained, or all of them."""
    import peft
    import torch
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import load_file
    from sentence_transformers import SentenceTransformer

    config = peft.PeftConfig.from_pretrained(adapter)
    config.inference_mode = False
    model = SentenceTransformer(config.base_model_name_or_path, device="cpu")
    peft.get_peft_model(model[0].model, config)
    # stft does not build the pooler, and so does not train its bias.
    trained = {name for name, value in model.named_parameters() if value.requires_grad and ".pooler." not in name}
    state = {name: torch.full_like(value, 7.0) for name, value in model.state_dict().items()
             if with_base or name in trained}
    dcp.load({"model": state}, checkpoint_id=os.path.join(directory, "pytorch_model_fsdp_0"))
    of_adapter = load_file(os.path.join(adapter, "adapter_model.safetensors"))
    of_base = load_file(os.path.join(config.base_model_name_or_path, "model.safetensors"))
    faults = []
    for name, value in state.items():
        bare = name.removeprefix("0.model.")
        if name in trained:
            key = "base_model.model." + bare.replace(".modules_to_save.default", "").replace(".default", "")
            expected = of_adapter.get(key, of_adapter.get(key.removesuffix(".weight")))
        else:
            key = bare.replace(".base_layer", "").replace(".original_module", "")
            expected = of_base.get(key)
        if expected is None or not torch.equal(expected, value):
            faults.append(f"{name} of the checkpoint is not {key} of the adapter or its base")
    print(f"peer_adapter: {directory}: {len(state)} tensors loaded", file=sys.stderr)
    return faults if trained else ["the model has no adapter"]


def on_quantized_base(adapter, _):
    """The adapter's model with each linear of the base as bitsandbytes reads back what it quantized. A weight is given
    to it as one row: its AVX-512 code reads others wrongly when their columns are no multiple of the block size."""
    import bitsandbytes.functional as bnb
    import peft
    import torch
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(peft.PeftConfig.from_pretrained(adapter).base_model_name_or_path, device="cpu")
    with torch.no_grad():
        for module in model[0].model.modules():
            if isinstance(module, torch.nn.Linear):
                weight = module.weight.data
                packed, state = bnb.quantize_4bit(weight.reshape(1, -1), blocksize=64, quant_type="nf4")
                module.weight.copy_(bnb.dequantize_4bit(packed, state).reshape(weight.shape))
    peft.PeftModel.from_pretrained(model[0].model, adapter)
    return model.eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("adapter")
    parser.add_argument("merged")
    parser.add_argument("--texts", required=True)
    parser.add_argument("--adapter-embeddings", required=True)
    parser.add_argument("--merged-embeddings", required=True)
    parser.add_argument("--checkpoint")
    parser.add_argument("--quantized-embeddings")
    parser.add_argument("--with-base", action="store_true")
    arguments = parser.parse_args()
    import numpy
    import peft
    from transformers import AutoModel

    with open(arguments.texts, encoding="utf-8") as file:
        texts = file.read().splitlines()
    faults = []
    cases = [(arguments.adapter, load, arguments.adapter_embeddings),
             (arguments.merged, load, arguments.merged_embeddings)]
    if arguments.quantized_embeddings:
        cases.append((arguments.adapter, on_quantized_base, arguments.quantized_embeddings))
    for path, loader, ours in cases:
        found = loader(path, arguments.merged).encode(texts, show_progress_bar=False)
        difference = float(numpy.abs(found - numpy.load(ours)).max())
        print(f"peer_adapter: {path}: largest difference {difference:.3g}", file=sys.stderr)
        if not difference <= TOLERANCE:
            faults.append(f"{path}: embeddings differ by {difference}")
    base = AutoModel.from_pretrained(base_of(arguments.adapter))
    model = peft.PeftModel.from_pretrained(base, arguments.adapter)
    moved = [name for name, value in model.named_parameters() if "lora_B" in name and float(value.abs().max()) > 0]
    if len(moved) != len([name for name, _ in model.named_parameters() if "lora_B" in name]) or not moved:
        faults.append("PeftModel did not load every B")
    if arguments.checkpoint:
        faults += check_checkpoint(arguments.checkpoint, arguments.adapter, arguments.with_base)
    for fault in faults:
        print(f"peer_adapter: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
