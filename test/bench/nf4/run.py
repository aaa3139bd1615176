#!/usr/bin/env python3
"""Compares stft's 4-bit quantization on the CPU with that of bitsandbytes, in one run.

usage: test/bench/nf4/run.py --python PATH [--bench PATH] [--rows N] [--columns N] [--threads 1 2] [--passes N]
                             [--repeats N] [--levels scalar avx2] [--json FILE]

README.md beside this file says what is measured. Needs the program nf4_bench and, as PATH, a Python that has
bitsandbytes. Prints a table in Markdown.
"""
import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PEER_SCRIPT = Path(__file__).resolve().parent / "peer_nf4.py"


def measure(command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit("run.py: %s: %s" % (" ".join(map(str, command)), done.stderr[-1000:]))
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {line["measure"]: (line["level"], min(line["seconds"])) for line in lines}


def best(runs):
    return {name: min((run[name] for run in runs), key=lambda figure: figure[1]) for name in runs[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True)
    parser.add_argument("--bench", default=str(ROOT / "build/release/test/bench/nf4/nf4_bench"))
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--columns", type=int, default=4096)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3, help="processes of each side, taken in turns")
    parser.add_argument("--levels", nargs="+", default=[None], help="levels of stft; default: the processor's best")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    gigabytes = arguments.rows * arguments.columns * 4 / 1e9
    print("| measure | threads | level | stft, GB/s of fp32 | bitsandbytes, GB/s of fp32 | ratio |\n|---|---|---|---|---|---|",
          flush=True)
    results = []
    for threads in arguments.threads:
        size = [arguments.rows, arguments.columns, threads, arguments.passes]
        theirs, ours = [], {level: [] for level in arguments.levels}
        for _ in range(arguments.repeats):
            theirs.append(measure([arguments.python, PEER_SCRIPT, *size]))
            for level in arguments.levels:
                ours[level].append(measure([arguments.bench, *size] + ([level] if level else [])))
        peer = best(theirs)
        for level in arguments.levels:
            for name, (used, seconds) in best(ours[level]).items():
                rate = gigabytes / seconds
                result = {"measure": name, "threads": threads, "level": used, "stft": rate}
                if name in peer:
                    result["bitsandbytes"] = gigabytes / peer[name][1]
                    cells = "%.2f | %.1f" % (result["bitsandbytes"], rate / result["bitsandbytes"])
                else:
                    cells = " | "
                print("| %s | %d | %s | %.1f | %s |" % (name, threads, used, rate, cells), flush=True)
                results.append(result)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    sys.exit(main())
