#!/usr/bin/env python3
"""Embeds the same texts with `stft encode` and with sentence-transformers, in turns, and compares.

usage: test/bench/encode/run.py --python PATH --model NAME=DIRECTORY [--model ...] [--repeats 3] [--threads 2]

README.md beside this file says what is measured and how. Needs build/release/stft, data/wordnet (from
scripts/prepare_wordnet.py) and, as PATH, a Python that has sentence-transformers.
"""
import argparse
import ast
import importlib.util
import json
import os
import platform
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from array import array
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
LOADED = importlib.util.spec_from_file_location("train_vs_python", HERE.parent / "train_vs_python" / "run.py")
bench = importlib.util.module_from_spec(LOADED)
LOADED.loader.exec_module(bench)

ROOT = bench.ROOT
PEER_SCRIPT = HERE / "peer_encode.py"
PROGRAMS = ("stft", "peer")
PARTS_OF_A_DOCUMENT = (1, 2, 3, 5, 8, 13)  # definitions, in turn
STFT_LINE = re.compile(r"texts of \d+ dimensions in [0-9.]+ s, ([0-9.]+) texts/s")


class Texts(NamedTuple):
    name: str
    path: Path
    count: int
    words: float  # a text, on average


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", required=True, help="a Python with sentence-transformers")
    parser.add_argument("--model", required=True, action="append", help="NAME=DIRECTORY; may be repeated")
    parser.add_argument("--stft", default=str(ROOT / "build/release/stft"))
    parser.add_argument("--pairs", default=str(ROOT / "data/wordnet/train.jsonl"))
    parser.add_argument("--texts", type=int, default=2000, help="definitions; a quarter as many documents")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="of either program")
    parser.add_argument("--timeout", type=float, default=1800, help="of one run, in seconds")
    parser.add_argument("--json", default="", help="also write everything measured to this file")
    options = parser.parse_args()
    options.models = dict(entry.split("=", 1) for entry in options.model)
    return options


def write_texts(folder, name, texts):
    path = folder / f"{name}.txt"
    path.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    return Texts(name, path, len(texts), sum(len(text.split()) for text in texts) / len(texts))


def make_texts(options, folder):
    with open(options.pairs, encoding="utf-8") as lines:
        definitions = [json.loads(line)["anchor"] for line in lines]
    documents, begin = [], 0
    while len(documents) < options.texts // 4:
        count = PARTS_OF_A_DOCUMENT[len(documents) % len(PARTS_OF_A_DOCUMENT)]
        documents.append("; ".join(definitions[(begin + i) % len(definitions)] for i in range(count)))
        begin += count
    return [write_texts(folder, "definitions", definitions[:options.texts]),
            write_texts(folder, "documents", documents)]


def cores(count):
    """What a program may use: stft takes a thread for each."""
    return sorted(os.sched_getaffinity(0))[:count]


def command_of(options, program, model, texts, output):
    if program == "stft":
        return [options.stft, "encode", model, "--input", str(texts.path), "--output", str(output), "--overwrite"]
    return [options.python, str(PEER_SCRIPT), model, str(texts.path), str(output), "--threads", str(options.threads)]


def encode_rate(program, outcome):
    if program == "stft":
        return float(STFT_LINE.search(outcome.stderr).group(1))
    report = json.loads(outcome.stdout.strip().splitlines()[-1])
    return report["texts"] / report["seconds"]


def run_once(options, program, model, texts, output):
    environment = dict(os.environ, OMP_NUM_THREADS=str(options.threads), HF_HUB_OFFLINE="1", NO_COLOR="1",
                       TRANSFORMERS_VERBOSITY="error", TOKENIZERS_PARALLELISM="true", CUDA_VISIBLE_DEVICES="",
                       RAYON_NUM_THREADS=str(options.threads))
    busy, began, children = bench.busy_seconds(), time.monotonic(), os.times()
    outcome = subprocess.run(command_of(options, program, model, texts, output), cwd=ROOT, env=environment,
                             capture_output=True, text=True, timeout=options.timeout, check=False,
                             preexec_fn=lambda: os.sched_setaffinity(0, cores(options.threads)))
    wall, after = time.monotonic() - began, os.times()
    if outcome.returncode != 0:
        sys.exit(f"run.py: {program}: exit code {outcome.returncode}\n{outcome.stderr[-3000:]}")
    own = after.children_user + after.children_system - children.children_user - children.children_system
    return {"program": program, "texts_per_s": encode_rate(program, outcome), "wall_s": wall, "cpu_s": own,
            "other_cores": max(0.0, (bench.busy_seconds() - busy - own) / wall)}


def read_npy(path):
    content = path.read_bytes()
    length, = struct.unpack_from("<H", content, 8)
    header = ast.literal_eval(content[10:10 + length].decode("latin-1"))
    assert header["descr"] == "<f4" and not header["fortran_order"], header
    return header["shape"], array("f", content[10 + length:])


def largest_difference(ours, theirs):
    (shape, a), (other_shape, b) = read_npy(ours), read_npy(theirs)
    if shape != other_shape:
        sys.exit(f"run.py: stft gave vectors of {shape}, the peer of {other_shape}")
    return max(abs(x - y) for x, y in zip(a, b))


def measure(options, name, texts, folder):
    runs, outputs = [], {program: folder / f"{program}.npy" for program in PROGRAMS}
    for repeat in range(options.repeats):
        for program in PROGRAMS if repeat % 2 == 0 else reversed(PROGRAMS):
            run = run_once(options, program, options.models[name], texts, outputs[program])
            runs.append(run)
            print(name, texts.name, " ".join(f"{key}={value:.4g}" if isinstance(value, float) else value
                                             for key, value in run.items()), file=sys.stderr, flush=True)
    row = {"model": name, "texts": texts.name, "count": texts.count, "words": texts.words, "runs": runs,
           "largest_difference": largest_difference(outputs["stft"], outputs["peer"])}
    for metric in ("texts_per_s", "wall_s"):
        row[metric] = {program: statistics.median(run[metric] for run in runs if run["program"] == program)
                       for program in PROGRAMS}
    row["ratio"] = row["texts_per_s"]["stft"] / row["texts_per_s"]["peer"]
    row["wall_ratio"] = row["wall_s"]["peer"] / row["wall_s"]["stft"]
    return row


def print_table(rows, threads):
    print("\n| model | texts | words a text | stft, texts/s | sentence-transformers | ratio | whole program, s "
          "| ratio | largest difference |\n|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        rate, wall = row["texts_per_s"], row["wall_s"]
        print(f"| {row['model']} | {row['count']} {row['texts']} | {row['words']:.1f} | {rate['stft']:.1f} | "
              f"{rate['peer']:.1f} | {row['ratio']:.2f} | {wall['stft']:.1f}, {wall['peer']:.1f} | "
              f"{row['wall_ratio']:.2f} | {row['largest_difference']:.1e} |")
    others = [run["other_cores"] for row in rows for run in row["runs"]]
    print(f"\nMedians; a ratio above 1 speaks for stft. {threads} threads each; other programs of the machine took "
          f"{min(others):.2f} to {max(others):.2f} cores.")


def main():
    options = parse_options()
    for path in (options.stft, options.pairs, *options.models.values()):
        if not os.path.exists(path):
            sys.exit(f"run.py: {path} is missing (see README.md beside run.py)")
    folder = Path(tempfile.mkdtemp(prefix="stft-bench-"))
    try:
        all_texts = make_texts(options, folder)
        rows = [measure(options, name, texts, folder) for name in options.models for texts in all_texts]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print_table(rows, options.threads)
    if options.json:
        report = {"machine": {"cores": os.cpu_count(), "kernel": platform.release()}, "threads": options.threads,
                  "rows": rows}
        Path(options.json).write_text(json.dumps(report, indent=1) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
