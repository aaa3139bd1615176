#!/usr/bin/env python3
"""Compares the throughput of stft's tokenizer with that of the Python package `tokenizers`, in one run.

usage: test/bench/tokenizer/run.py --python PATH [--bench PATH] [--model [NAME=]DIRECTORY]... [--texts COUNT]
                                   [--passes N] [--threads 1 2] [--json FILE]

README.md beside this file says what is measured. Needs the program tokenizer_bench and, as PATH, a Python that has
tokenizers; the texts come from /usr/share/wordnet (Debian's wordnet-base). Prints a table in Markdown.
"""
import argparse
import glob
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
PEER_SCRIPT = Path(__file__).resolve().parent / "peer_tokenizer.py"
GLOSSES_PER_DOCUMENT = 20


class Figures(NamedTuple):
    first_cpu: float  # CPU seconds of the first pass, on text not seen before
    best_cpu: float   # of the fastest pass
    first_wall: float
    tokens: int
    checksum: int


def glosses(count):
    found = {}
    for path in sorted(glob.glob("/usr/share/wordnet/data.*")):
        with open(path, encoding="utf-8") as file:
            for line in file:
                if not line.startswith("  "):
                    found.setdefault(line.split("|", 1)[1].strip())
    if not found:
        raise SystemExit("run.py: no glosses in /usr/share/wordnet; install wordnet-base")
    texts = list(found)
    random.Random(5).shuffle(texts)
    return texts[:count]


def write_texts(path, texts):
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write("".join(text + "\n" for text in texts))


def measure(command, threads):
    environment = dict(os.environ, RAYON_NUM_THREADS=str(threads), TOKENIZERS_PARALLELISM="true")
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit("run.py: %s: %s" % (" ".join(map(str, command)), done.stderr[-1000:]))
    passes = [json.loads(line) for line in done.stdout.splitlines()]
    return Figures(passes[0]["cpu"], min(x["cpu"] for x in passes), passes[0]["wall"], passes[0]["tokens"],
                   passes[0]["checksum"])


def best(figures):
    return Figures(min(x.first_cpu for x in figures), min(x.best_cpu for x in figures),
                   min(x.first_wall for x in figures), figures[0].tokens, figures[0].checksum)


def row(name, kind, threads, size, theirs, ours):
    def rates(x, cpu):
        return "%.2f Mtok, %.1f MB" % (x.tokens / cpu / 1e6, size / cpu / 1e6)
    same = "yes" if (theirs.tokens, theirs.checksum) == (ours.tokens, ours.checksum) else "**no**"
    return "| %s | %s | %d | %s | %s | %.1f | %.1f | %.1f | %s |" % (
        name, kind, threads, rates(theirs, theirs.first_cpu), rates(ours, ours.first_cpu),
        theirs.first_cpu / ours.first_cpu, theirs.best_cpu / ours.best_cpu, theirs.first_wall / ours.first_wall, same)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True)
    parser.add_argument("--bench", default=str(ROOT / "build/release/test/bench/tokenizer/tokenizer_bench"))
    parser.add_argument("--model", action="append", help="default: all-MiniLM-L6-v2")
    parser.add_argument("--texts", type=int, default=100000, help="glosses")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=2, help="processes of each side, taken in turns")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--json")
    arguments = parser.parse_args()
    models = [model.rpartition("=")[::2] for model in
              arguments.model or [str(ROOT / ".deps/models/all-MiniLM-L6-v2")]]
    texts = glosses(arguments.texts)
    documents = [" ".join(texts[i:i + GLOSSES_PER_DOCUMENT]) for i in range(0, len(texts), GLOSSES_PER_DOCUMENT)]
    print("| tokenizer | texts | threads | tokenizers, a CPU-second | stft, a CPU-second | ratio | ratio, seen text | "
          "ratio of wall time | same ids |\n|---|---|---|---|---|---|---|---|---|", flush=True)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, content in (("glosses", texts), ("documents", documents)):
            path = os.path.join(folder, kind)
            write_texts(path, content)
            for name, model in models:
                for threads in arguments.threads:
                    theirs, ours = [], []
                    for _ in range(arguments.repeats):
                        theirs.append(measure([arguments.python, str(PEER_SCRIPT), model, path, str(arguments.passes)],
                                              threads))
                        ours.append(measure([arguments.bench, model, path, str(threads), str(arguments.passes)], threads))
                    name = name or os.path.basename(os.path.normpath(model))
                    print(row(name, kind, threads, os.path.getsize(path), best(theirs), best(ours)), flush=True)
                    results.append({"model": name, "texts": kind, "threads": threads, "bytes": os.path.getsize(path),
                                    "tokenizers": best(theirs)._asdict(), "stft": best(ours)._asdict()})
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    sys.exit(main())
