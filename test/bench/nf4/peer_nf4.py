"""bitsandbytes' side of run.py: prints what nf4_bench.cpp prints.

usage: peer_nf4.py ROWS COLUMNS THREADS PASSES
"""
import json
import sys
import time

import bitsandbytes.functional as F
import torch


def measure(name, passes, work):
    work()
    seconds = []
    for _ in range(passes):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({"measure": name, "level": "bitsandbytes", "seconds": seconds}), flush=True)


def main():
    rows, columns, threads, passes = map(int, sys.argv[1:])
    torch.set_num_threads(threads)
    values = torch.randn(rows, columns, generator=torch.Generator().manual_seed(1)) * 0.05
    half = values.bfloat16()
    options = {"blocksize": 64, "quant_type": "nf4"}
    measure("quantize bf16", passes, lambda: F.quantize_4bit(half, compress_statistics=False, **options))
    measure("quantize fp32", passes, lambda: F.quantize_4bit(values, compress_statistics=False, **options))
    packed, state = F.quantize_4bit(values, compress_statistics=False, **options)
    measure("dequantize fp32", passes, lambda: F.dequantize_4bit(packed, state))
    state.dtype = torch.bfloat16
    measure("dequantize bf16", passes, lambda: F.dequantize_4bit(packed, state))
    packed, state = F.quantize_4bit(values, compress_statistics=True, **options)
    measure("dequantize fp32, double", passes, lambda: F.dequantize_4bit(packed, state))


if __name__ == "__main__":
    main()
