#!/usr/bin/env python3
"""Trains the same models on the same pairs with every sharding strategy of stft and with Python's DDP, FSDP1, FSDP2.

In turns; compares samples/s, memory and collectives.

usage: test/bench/sharding/run.py --python PATH [--models minilm bert_base] [--cases ...] [--repeats 3] [--steps 12]

README.md beside this file says what is measured and how. Needs build/release/stft, data/wordnet (from
scripts/prepare_wordnet.py) and, as PATH, a Python that has sentence-transformers and accelerate.
"""
import argparse
import importlib.util
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
LOADED = importlib.util.spec_from_file_location("train_vs_python", HERE.parent / "train_vs_python" / "run.py")
bench = importlib.util.module_from_spec(LOADED)
LOADED.loader.exec_module(bench)

RANKS = 2
COUNTED_STEPS = 3  # of stft's run that writes its collectives


class Case(NamedTuple):
    name: str
    program: str  # stft or peer
    strategy: str  # stft's sharding.strategy
    flags: tuple = ()  # the peer's
    ranks: int = RANKS
    threads: int = 1


CASES = {case.name: case for case in (
    Case("no_shard", "stft", "no_shard"),
    Case("full_shard", "stft", "full_shard"),
    Case("shard_grad_op", "stft", "shard_grad_op"),
    Case("hybrid_shard", "stft", "hybrid_shard"),
    Case("auto", "stft", "auto"),
    Case("ddp", "peer", ""),
    Case("fsdp1", "peer", "", ("--fsdp", "1")),
    Case("fsdp2", "peer", "", ("--fsdp", "2")),
)}
BATCH = {"minilm": 32, "bert_base": 8}  # rows of a rank
RATIOS = (("no_shard", "ddp"), ("full_shard", "fsdp1"), ("full_shard", "fsdp2"), ("full_shard", "no_shard"),
          ("shard_grad_op", "no_shard"), ("shard_grad_op", "fsdp2"), ("hybrid_shard", "no_shard"),
          ("auto", "no_shard"), ("auto", "ddp"))
METRICS = ("samples_per_s", "peak_rss_mib")


class RankWatch(bench.Watch):
    """Also keeps the peak of every process by itself, as the kernel knows it (VmHWM)."""

    def __init__(self, log, root):
        self.peaks = {}
        super().__init__(log, root)

    def follow_memory(self):
        while not self.is_over.wait(bench.LOOK_AT_MEMORY_S):
            for process in bench.process_tree(self.root):
                try:
                    status = Path("/proc", str(process), "status").read_text(encoding="utf-8", errors="replace")
                except OSError:
                    continue  # it ended meanwhile
                line = next((line for line in status.splitlines() if line.startswith("VmHWM:")), None)
                if line is not None:
                    self.peaks[process] = max(self.peaks.get(process, 0.0), int(line.split()[1]) / 1024)

    def of_ranks(self, ranks):
        """The ranks are the largest processes of a run: launchers hold no model."""
        return sorted(self.peaks.values(), reverse=True)[:ranks]


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    bench.add_common_options(parser, steps=12, skip=3)
    parser.add_argument("--minilm", default=str(bench.ROOT / ".deps/models/all-MiniLM-L6-v2"))
    parser.add_argument("--work", default="", help="keep the random BERT-base here; unset: a temporary folder")
    parser.add_argument("--models", nargs="+", choices=list(BATCH), default=list(BATCH))
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--hybrid-shard-size", type=int, choices=(1, 2), default=2)
    parser.add_argument("--batch", type=int, default=0, help="rows of a rank; unset: 32 for MiniLM, 8 for BERT-base")
    options = parser.parse_args()
    if not 2 <= options.skip < options.steps:
        parser.error("--skip must be at least 2 (the peer's second step is the counted one) and below --steps")
    return options


def prepare_model(options, model, work):
    """The model's directory."""
    if model == "minilm":
        return options.minilm
    folder = (Path(options.work) if options.work else work) / "bert_base"
    if not (folder / "1_Pooling" / "config.json").exists():  # the last file written
        subprocess.run([options.python, str(HERE / "make_bert_base.py"), "--like", options.minilm, "--out",
                        str(folder)], check=True, stdout=subprocess.DEVNULL)
    return str(folder)


def stft_command(options, case, folder, has_collectives=False):
    command, log = bench.stft_command(options, case, folder)
    path = Path(command[-1])
    recipe = json.loads(path.read_text(encoding="ascii"))
    if case.strategy == "hybrid_shard":
        recipe["sharding"]["hybrid_shard_size"] = options.hybrid_shard_size
    if has_collectives:
        recipe["run"]["debug_collectives"] = True
    path.write_text(json.dumps(recipe, indent=1), encoding="ascii")
    return command, log


def peer_command(options, case, folder):
    command, log = bench.peer_command(options, case, folder)
    return command + [*case.flags, "--collectives", str(folder / "collectives.json")], log


def last_lines(text, lines=4):
    return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])


def run_once(options, case, folder):
    """One run's figures, or {"refused": message} of a strategy that this stft does not have, or {"failed": message}."""
    command, log = (stft_command if case.program == "stft" else peer_command)(options, case, folder)
    try:
        outcome = bench.run_watched(command, log, folder, case, options.timeout, RankWatch)
    except subprocess.TimeoutExpired:
        return {"case": case.name, "failed": f"took longer than {options.timeout} s"}
    watch = outcome.watch
    if outcome.code == 2 and "not available yet" in outcome.tail:
        return {"case": case.name, "refused": last_lines(outcome.tail)}
    if outcome.code != 0 or len(watch.arrivals) != options.steps:
        return {"case": case.name, "failed": f"exit code {outcome.code}, {len(watch.arrivals)} steps of "
                                             f"{options.steps}: {last_lines(outcome.tail, 12)}"}
    run = {"case": case.name, "samples_per_s": bench.samples_per_second(options, case, watch),
           "peak_rss_of_ranks_mib": watch.of_ranks(case.ranks), "first_step_s": watch.arrivals[0] - outcome.began,
           **outcome.costs, "losses": watch.losses}
    run["peak_rss_mib"] = max(run["peak_rss_of_ranks_mib"])
    if case.program == "peer":
        run["collectives"] = json.loads((folder / "collectives.json").read_text(encoding="ascii"))
    return run


def count_stft_collectives(options, case, folder):
    """What a step issues, from a run of its own: none of the timed runs writes it. None: this stft does not tell."""
    short = argparse.Namespace(**{**vars(options), "steps": COUNTED_STEPS})
    command, log = stft_command(short, case, folder, has_collectives=True)
    outcome = bench.run_watched(command, log, folder, case, options.timeout)
    if outcome.code != 0:
        return None
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    events = [line for line in lines if line.get("event") == "collectives" and line.get("step") == 2]
    kinds = ("all_gathers", "reduce_scatters", "all_reduces", "bytes")
    return {kind: events[0].get(kind) for kind in kinds} if events else None


def in_new_folder(work, name, action):
    folder = work / name
    folder.mkdir()
    try:
        return action(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_model(options, model, work):
    """All repeats of all cases, in turns; a case that did not run once is not tried again."""
    runs, left = {name: [] for name in options.cases}, list(options.cases)
    for repeat in range(options.repeats):
        for name in list(left) if repeat % 2 == 0 else list(reversed(left)):
            run = in_new_folder(work, f"{model}-{name}-{repeat}", lambda f, c=CASES[name]: run_once(options, c, f))
            runs[name].append(run)
            bench.print_progress({"model": model, **run})
            if "refused" in run or "failed" in run:
                left.remove(name)
    counts = {name: runs[name][0]["collectives"] for name in left if CASES[name].program == "peer"}
    for name in left:
        if CASES[name].program == "stft":
            counts[name] = in_new_folder(work, f"{model}-{name}-counts",
                                         lambda f, c=CASES[name]: count_stft_collectives(options, c, f))
    return runs, counts


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def loss_difference(runs):
    """The largest relative difference of any case's loss of a step from the first case's: all do the same work."""
    losses = [of_case[0]["losses"] for of_case in runs.values() if "losses" in of_case[0]]
    return max((abs(a - b) / max(abs(b), 1e-9) for other in losses[1:] for a, b in zip(other, losses[0])), default=0.0)


def summarize(options, model, runs, counts):
    rows = {}
    for name, of_case in runs.items():
        trouble = next((run for run in of_case if "refused" in run or "failed" in run), None)
        if trouble is not None:
            rows[name] = {key: trouble[key] for key in ("refused", "failed") if key in trouble}
            continue
        rows[name] = {metric: spread([run[metric] for run in of_case]) for metric in METRICS}
        rows[name]["collectives"] = counts[name]
    ratios = {}
    for ours, theirs in RATIOS:
        if all("samples_per_s" in rows.get(name, {}) for name in (ours, theirs)):
            ratios[f"{ours} / {theirs}"] = {m: rows[ours][m]["median"] / rows[theirs][m]["median"] for m in METRICS}
    others = [run["other_cores"] for of_case in runs.values() for run in of_case if "other_cores" in run]
    return {"model": model, "ranks": RANKS, "threads_per_rank": 1, "batch": options.batch, "cases": rows,
            "ratios": ratios, "largest_relative_loss_difference": loss_difference(runs),
            "other_cores": spread(others) if others else None}


def print_summary(summary):
    print(f"\n{summary['model']}: {RANKS} ranks of 1 thread, {summary['batch']} rows a rank")
    print("\n| case | samples/s | peak RSS of a rank, MiB | all-gathers | reduce-scatters | all-reduces | MB a step |\n"
          "|---|---|---|---|---|---|---|")
    for name, row in summary["cases"].items():
        if "samples_per_s" not in row:
            print(f"| {name} | {'refused' if 'refused' in row else 'failed'} | | | | | |")
            continue
        cells = [f"{row[m]['median']:.4g} ({row[m]['min']:.4g} to {row[m]['max']:.4g})" for m in METRICS]
        counts = row["collectives"] or {}
        cells += [str(counts.get(kind, "")) for kind in ("all_gathers", "reduce_scatters", "all_reduces")]
        cells.append(f"{counts['bytes'] / 1e6:.4g}" if counts else "")
        print(f"| {name} | {' | '.join(cells)} |")
    print("\n| ratio of medians | samples/s | peak RSS |\n|---|---|---|")
    for name, ratio in summary["ratios"].items():
        print(f"| {name} | {ratio['samples_per_s']:.2f} | {ratio['peak_rss_mib']:.2f} |")
    print(f"\nlosses differ by at most {summary['largest_relative_loss_difference']:.1e}")
    if summary["other_cores"] is not None:
        others = summary["other_cores"]
        print(f"other programs of the machine took {others['min']:.2f} to {others['max']:.2f} cores")
    for name, row in summary["cases"].items():
        for trouble in ("refused", "failed"):
            if trouble in row:
                print(f"\n{name} {trouble}: {row[trouble]}")


def main():
    options = parse_options()
    for path in (options.stft, options.minilm, options.pairs):
        if not os.path.exists(path):
            sys.exit(f"run.py: {path} is missing (see README.md beside run.py)")
    versions = bench.peer_versions(options.python)
    work, report = Path(tempfile.mkdtemp(prefix="stft-bench-")), []
    try:
        for model in options.models:
            of_model = argparse.Namespace(**{**vars(options), "model": prepare_model(options, model, work),
                                             "batch": options.batch or BATCH[model]})
            runs, counts = run_model(of_model, model, work)
            report.append({**summarize(of_model, model, runs, counts), "runs": runs})
            print_summary(report[-1])
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if options.json:
        settings = {key: getattr(options, key) for key in ("repeats", "steps", "skip", "hybrid_shard_size")}
        machine = {"cpu": bench.cpu_name(), "cores": os.cpu_count(), "kernel": platform.release()}
        Path(options.json).write_text(json.dumps({"machine": machine, "versions": versions, "settings": settings,
                                                  "models": report}, indent=1) + "\n", encoding="ascii")
    if any("failed" in row for of_model in report for row in of_model["cases"].values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
