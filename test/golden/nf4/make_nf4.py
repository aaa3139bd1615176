#!/usr/bin/env python3
"""Writes the goldens of 4-bit and 8-bit quantization: what bitsandbytes computes on a CPU.

usage: test/golden/nf4/make_nf4.py [--out test/golden/nf4]

CASE.safetensors holds `input`, what quantize_4bit makes of it (`packed`, `absmax`, `dequant_single`), the same with
compress_statistics (`nested.*`, `dequant_double`) and both states' JSON; its metadata give type and
block size.
blocksizes.safetensors: one input under every block size and both types. prequantized_*: a random BERT quantized at load
and saved by transformers, with the weights that bitsandbytes reads back. adam8bit.safetensors and
adam8bit_rows.safetensors: steps of AdamW8bit.

Reading takes bitsandbytes' portable routine: its AVX-512 one (0.50.2) gives wrong values for weights whose rows are a
multiple of 16 but not of the block size, such as [64, 48].
"""
import argparse
import os
import shutil
import sys
import tempfile

os.environ["TORCHDYNAMO_DISABLE"] = "1"
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
import peers  # noqa: E402,F401  (offline mode, one thread)
import bitsandbytes  # noqa: E402
import bitsandbytes.functional as F  # noqa: E402
import torch  # noqa: E402
from bitsandbytes.backends.default.ops import _dequantize_4bit_compute  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from transformers import BertConfig, BertModel, BitsAndBytesConfig  # noqa: E402

BLOCKSIZES = (32, 64, 128, 256, 512, 1024, 2048, 4096)
GENERATOR = torch.Generator().manual_seed(20260301)


def randn(*shape):
    return torch.randn(*shape, generator=GENERATOR)


def json_bytes(state, quant_type):
    return state.as_dict(packed=True)["quant_state.bitsandbytes__" + quant_type]


def dequantize(packed, state):
    absmax = state.absmax
    if state.nested:
        absmax = F.dequantize_blockwise(absmax, state.state2) + state.offset
    return _dequantize_4bit_compute(packed.contiguous().view(torch.uint8).reshape(-1), absmax, state.code,
                                    state.blocksize, state.shape, state.dtype)


def write_case(out, name, values, blocksize=64, quant_type="nf4", storage=torch.uint8):
    options = {"blocksize": blocksize, "quant_type": quant_type, "quant_storage": storage}
    packed, single = F.quantize_4bit(values, compress_statistics=False, **options)
    same, double = F.quantize_4bit(values, compress_statistics=True, **options)
    assert torch.equal(packed.view(torch.uint8), same.view(torch.uint8))
    absmax = F.dequantize_blockwise(double.absmax, double.state2) + double.offset
    tensors = {
        "input": values, "packed": packed, "absmax": single.absmax, "dequant_single": dequantize(packed, single),
        "nested.absmax_u8": double.absmax, "nested.absmax": double.state2.absmax,
        "nested.offset": double.offset.reshape(1), "nested.absmax_dequant": absmax,
        "dequant_double": dequantize(packed, double), "single.json": json_bytes(single, quant_type),
        "double.json": json_bytes(double, quant_type)}
    save_file({key: value.contiguous().clone() for key, value in tensors.items()},
              os.path.join(out, name + ".safetensors"),
              metadata={"format": "%s/%d" % (quant_type, blocksize)})


def edge_values(quant_type):
    """Codes, midpoints between them and their neighbours, in a block of magnitude 1 and one of 0.37."""
    codes = F.get_4bit_type(quant_type, device="cpu").sort().values
    middle = (codes[:-1] + codes[1:]) / 2
    block = torch.zeros(64)
    block[0] = 1.0
    block[1:17] = codes
    block[17:32] = middle
    block[32:47] = torch.nextafter(middle, torch.full_like(middle, 2.0))
    block[47:62] = torch.nextafter(middle, torch.full_like(middle, -2.0))
    return torch.stack([block, block * 0.37])


def short_edges():
    """One short block of values where division by its magnitude and multiplication with the reciprocal differ."""
    codes = F.get_4bit_type("nf4", device="cpu")
    middle = (codes[:-1] + codes[1:]) / 2
    while True:
        absmax = randn(1).abs()
        values = (middle * absmax).repeat(3)
        values[15:30] = torch.nextafter(values[15:30], torch.full((15,), 9.0))
        values[30:] = torch.nextafter(values[30:], torch.full((15,), -9.0))
        if (torch.bucketize(values / absmax, middle) != torch.bucketize(values * (1 / absmax), middle)).sum() > 3:
            return torch.cat([absmax, values])


def write_cases(out):
    grouped = randn(161, 120) * 0.05  # 302 blocks, the last one short: two groups of double quantization
    grouped[3] = 0
    grouped[50] *= 1e-8
    grouped[51, 0] = 1e-38
    grouped[51, 1:] = 0
    write_case(out, "groups_bf16", grouped.to(torch.bfloat16))
    outliers = randn(96, 64) * 0.05
    outliers[10:14] = 0
    outliers[20, 5] = 1000.0
    outliers[21, 60] = -3e4
    outliers[22] *= 1e-38
    write_case(out, "outliers_fp32", outliers)
    write_case(out, "odd_7x27_fp32", randn(7, 27))
    write_case(out, "short_5x50_fp32", randn(5, 50))
    zeros = torch.zeros(3, 50)
    zeros[0, :20] = randn(20)
    write_case(out, "zeros_3x50_fp32", zeros)
    write_case(out, "fp16_blocks_of_128", (randn(64, 48) * 0.05).to(torch.float16), blocksize=128)
    write_case(out, "storage_bf16", (randn(64, 48) * 0.05).to(torch.bfloat16), storage=torch.bfloat16)
    write_case(out, "storage_fp32", (randn(64, 48) * 0.05).to(torch.bfloat16), storage=torch.float32)
    write_case(out, "edges_short", short_edges())
    write_case(out, "edges_nf4", edge_values("nf4"))
    write_case(out, "edges_fp4", edge_values("fp4"), quant_type="fp4")
    write_case(out, "randn_fp4", randn(64, 48) * 0.05, quant_type="fp4")
    write_case(out, "odd_fp4", randn(7, 27), quant_type="fp4")


def write_blocksizes(out):
    values = randn(3, 3000)
    tensors = {"input": values}
    for kind in ("nf4", "fp4"):
        for blocksize in BLOCKSIZES:
            packed, state = F.quantize_4bit(values, blocksize=blocksize, compress_statistics=False, quant_type=kind)
            tensors["%s.%d.packed" % (kind, blocksize)] = packed
            tensors["%s.%d.absmax" % (kind, blocksize)] = state.absmax
    save_file(tensors, os.path.join(out, "blocksizes.safetensors"))
    save_file({"signed": F.create_dynamic_map(signed=True), "unsigned": F.create_dynamic_map(signed=False),
               "nf4": F.get_4bit_type("nf4", device="cpu"), "fp4": F.get_4bit_type("fp4", device="cpu")},
              os.path.join(out, "tables.safetensors"))


def write_prequantized(out):
    torch.manual_seed(20260302)
    model = BertModel(BertConfig(vocab_size=67, hidden_size=16, intermediate_size=40, num_hidden_layers=1,
                                 num_attention_heads=2, max_position_embeddings=32))
    with tempfile.TemporaryDirectory() as base:
        model.save_pretrained(base)
        for name, double in (("prequantized_single", False), ("prequantized_double", True)):
            config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=double,
                                        bnb_4bit_compute_dtype=torch.bfloat16)
            quantized = BertModel.from_pretrained(base, quantization_config=config, device_map={"": "cpu"},
                                                  dtype=torch.float32)
            folder = os.path.join(out, name)
            shutil.rmtree(folder, ignore_errors=True)
            quantized.save_pretrained(folder)
            expected = {module + ".weight": dequantize(layer.weight.data, layer.weight.quant_state).contiguous()
                        for module, layer in quantized.named_modules()
                        if isinstance(layer, bitsandbytes.nn.Linear4bit)}
            save_file(expected, os.path.join(folder, "expected_dequantized.safetensors"))


def write_adam(out):
    """Least squares of 600 parameters (three blocks, the last one short), 50 steps."""
    target = randn(600) * torch.logspace(-3, 0, 600)
    start = randn(600) * 0.1
    parameter = torch.nn.Parameter(start.clone())
    tensors = {"start": start, "target": target}
    optimizer = bitsandbytes.optim.AdamW8bit([parameter], lr=1e-2, weight_decay=0.01, min_8bit_size=1)
    for step in range(1, 51):
        parameter.grad = parameter.detach() - target
        optimizer.step()
        if step in (1, 50):
            tensors["parameter.%d" % step] = parameter.detach().clone()
    save_file(tensors, os.path.join(out, "adam8bit.safetensors"))


def write_adam_rows(out):
    """A matrix whose rows are whole blocks and a vector that is too small for 8 bits, as AdamW8bit is by default."""
    shapes = {"matrix": (8, 512), "vector": (512,)}
    targets = {name: randn(*shape) * torch.logspace(-2, 0, 512) for name, shape in shapes.items()}
    parameters = {name: torch.nn.Parameter(randn(*shape) * 0.1) for name, shape in shapes.items()}
    tensors = {name + ".target": target for name, target in targets.items()}
    tensors.update({name + ".start": parameter.detach().clone() for name, parameter in parameters.items()})
    optimizer = bitsandbytes.optim.AdamW8bit(parameters.values(), lr=1e-2, weight_decay=0.1)
    for step in range(1, 31):
        for name, parameter in parameters.items():
            parameter.grad = parameter.detach() - targets[name]
        optimizer.step()
        if step in (1, 30):
            for name, parameter in parameters.items():
                tensors["%s.%d" % (name, step)] = parameter.detach().clone()
            for key in ("state1", "state2", "absmax1", "absmax2"):
                tensors["matrix.%s.%d" % (key, step)] = optimizer.state[parameters["matrix"]][key].clone()
    assert optimizer.state[parameters["vector"]]["state1"].dtype == torch.float32
    save_file(tensors, os.path.join(out, "adam8bit_rows.safetensors"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=HERE)
    out = parser.parse_args().out
    os.makedirs(out, exist_ok=True)
    write_cases(out)
    write_blocksizes(out)
    write_prequantized(out)
    write_adam(out)
    write_adam_rows(out)


if __name__ == "__main__":
    main()
