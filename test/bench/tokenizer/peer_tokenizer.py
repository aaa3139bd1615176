"""The Python package's side of run.py: prints what tokenizer_bench.cpp prints.

usage: RAYON_NUM_THREADS=N peer_tokenizer.py MODEL_DIRECTORY TEXTS PASSES
"""
import json
import os
import sys
import time

from tokenizers import Tokenizer


def main():
    model, path, passes = sys.argv[1], sys.argv[2], int(sys.argv[3])
    tokenizer = Tokenizer.from_file(os.path.join(model, "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    with open(path, encoding="utf-8", newline="\n") as file:
        texts = file.read().split("\n")[:-1]
    for _ in range(passes):
        wall, cpu = time.perf_counter(), time.process_time()
        encodings = tokenizer.encode_batch_fast(texts)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        ids = [encoding.ids for encoding in encodings]
        checksum = sum(i * (x + 1) for text in ids for i, x in enumerate(text, 1)) % (1 << 64)
        print(json.dumps({"wall": wall, "cpu": cpu, "tokens": sum(map(len, ids)), "checksum": checksum}), flush=True)


if __name__ == "__main__":
    main()
