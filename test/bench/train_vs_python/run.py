#!/usr/bin/env python3
"""Trains the same model on the same pairs with stft and with sentence-transformers, in turns, and compares.

usage: test/bench/train_vs_python/run.py --python PATH [--repeats 3] [--steps 30] [--cases single ddp fsdp1 lora qlora]

README.md beside this file says what is measured and how. Needs build/release/stft, data/wordnet (from
scripts/prepare_wordnet.py) and, as PATH, a Python that has sentence-transformers and accelerate.
"""
import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
PEER_SCRIPT = Path(__file__).resolve().parent / "peer_train.py"
SCALE = 20.0
LEARNING_RATE = 2e-5
MAX_LENGTH = 128
LOOK_AT_LOG_S = 0.005
LOOK_AT_MEMORY_S = 0.05


class Case(NamedTuple):
    name: str
    ranks: int
    threads: int  # of one rank
    strategy: str  # stft's sharding.strategy
    peer: str  # how the peer's row is called
    adapter: str = ""  # lora or qlora: a start adapter on a frozen model


CASES = {
    "single": Case("single", 1, 2, "no_shard", "trainer, 1 process"),
    "ddp": Case("ddp", 2, 1, "full_shard", "trainer under torchrun, DDP (the model whole on each rank)"),
    "fsdp1": Case("fsdp1", 2, 1, "full_shard",
                  "trainer under torchrun, FSDP1 patched to run on CPUs: accelerate's distributed_type set to "
                  "MULTI_GPU, FSDP's device_id to cpu, sync_module_states to false; saves nothing"),
    "lora": Case("lora", 1, 2, "no_shard", "trainer with peft, 1 process", "lora"),
    "qlora": Case("qlora", 1, 2, "no_shard", "trainer with peft and bitsandbytes, 1 process", "qlora"),
}
QUANTIZATION = {"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": False, "bnb_4bit_compute_dtype": "fp32",
                "blocksize": 64}
METRICS = {  # name: (title, unit, is stft better when the peer's value is larger)
    "samples_per_s": ("samples/s", "", False),
    "peak_rss_mib": ("peak RSS of all processes", " MiB", True),
    "first_step_s": ("start to end of first step", " s", True),
}


def add_common_options(parser, steps, skip):
    parser.add_argument("--python", required=True, help="a Python with sentence-transformers and accelerate")
    parser.add_argument("--stft", default=str(ROOT / "build/release/stft"))
    parser.add_argument("--pairs", default=str(ROOT / "data/wordnet/train.jsonl"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--skip", type=int, default=skip, help="first steps that samples/s leaves out")
    parser.add_argument("--timeout", type=float, default=900, help="of one run, in seconds")
    parser.add_argument("--json", default="", help="also write everything measured to this file")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_common_options(parser, steps=30, skip=5)
    parser.add_argument("--model", default=str(ROOT / ".deps/models/all-MiniLM-L6-v2"))
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=["single", "ddp"])
    parser.add_argument("--batch", type=int, default=32, help="rows of a rank")
    options = parser.parse_args()
    if not 0 < options.skip < options.steps:
        parser.error("--skip must be at least 1 and below --steps")
    return options


def write_recipe(options, case, folder):
    recipe = {  # YAML is a superset of JSON
        "run": {"output_dir": str(folder / "run"), "seed": 42},
        "model": {"name_or_path": options.model, "max_seq_length": MAX_LENGTH, "dropout": 0.0},
        "sharding": {"strategy": case.strategy},
        "data": {"train": [{"name": "pairs", "path": options.pairs, "limit": rows_needed(options, case),
                            "columns": {"anchor": "anchor", "positive": "positive"}}]},
        "loss": {"type": "MultipleNegativesRankingLoss", "scale": SCALE},
        "train": {"max_steps": options.steps, "per_device_train_batch_size": options.batch, "shuffle": False,
                  "learning_rate": LEARNING_RATE, "lr_scheduler_type": "linear", "warmup_steps": 3, "optim": "adamw",
                  "weight_decay": 0.0, "max_grad_norm": 1.0, "logging_steps": 1, "dataloader_drop_last": True},
        "checkpoint": {"save_strategy": "no"},
        "launch": {"nproc": case.ranks, "threads_per_rank": case.threads},
    }
    if case.adapter:
        recipe["adapter"] = {"type": case.adapter, "path": str(options.adapter)}
    if case.adapter == "qlora":
        recipe["quantization"] = QUANTIZATION
    path = folder / "recipe.yaml"
    path.write_text(json.dumps(recipe, indent=1), encoding="ascii")
    return path


def rows_needed(options, case):
    return options.steps * options.batch * case.ranks


def stft_command(options, case, folder):
    return [options.stft, "train", str(write_recipe(options, case, folder))], folder / "run/log.jsonl"


def peer_command(options, case, folder):
    command = [options.python]
    if case.ranks > 1:
        command += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(case.ranks)]
    log = folder / "log.jsonl"
    command += [str(PEER_SCRIPT), "--model", options.model, "--pairs", options.pairs, "--step-log", str(log),
                "--out", str(folder / "out"), "--rows", str(rows_needed(options, case)), "--steps", str(options.steps),
                "--batch", str(options.batch), "--max-length", str(MAX_LENGTH), "--threads", str(case.threads),
                "--learning-rate", str(LEARNING_RATE), "--scale", str(SCALE)]
    if case.adapter:
        command += ["--adapter", str(options.adapter)] + (["--quantized"] if case.adapter == "qlora" else [])
    return command + (["--fsdp", "1"] if case.name == "fsdp1" else []), log


COMMANDS = {"stft": stft_command, "peer": peer_command}


def busy_seconds():
    """CPU seconds that the whole machine has worked since it started."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _, _, irq, softirq = [int(word) for word in file.readline().split()[1:8]]
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def process_tree(root):
    """Resident pages of a process and of all that descend from it, by process id."""
    parents, pages = {}, {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path("/proc", entry, "stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
            except OSError:
                continue  # it ended meanwhile
            parents[int(entry)], pages[int(entry)] = int(fields[1]), int(fields[21])
    tree = [root] if root in pages else []
    for process in tree:  # grows while it is walked
        tree += [child for child, parent in parents.items() if parent == process]
    return {process: pages[process] for process in tree}


class Watch:
    """Looks at a running program from outside: when each step's line arrives, what memory its processes hold."""

    def __init__(self, log, root):
        self.log, self.root = log, root
        self.arrivals, self.losses, self.peak_rss = [], [], 0.0
        self.is_over = threading.Event()
        self.threads = [threading.Thread(target=self.follow_log), threading.Thread(target=self.follow_memory)]
        for thread in self.threads:
            thread.start()

    def follow_log(self):
        seen, rest = 0, b""
        while True:
            was_over = self.is_over.is_set()
            if self.log.exists():
                with open(self.log, "rb") as file:
                    file.seek(seen)
                    fresh = file.read()
                seen += len(fresh)
                *lines, rest = (rest + fresh).split(b"\n")
                for line in map(json.loads, lines):
                    if "step" in line and "loss" in line:
                        self.arrivals.append(time.monotonic())
                        self.losses.append(line["loss"])
            if was_over:
                return
            time.sleep(LOOK_AT_LOG_S)

    def follow_memory(self):
        while not self.is_over.wait(LOOK_AT_MEMORY_S):
            pages = sum(process_tree(self.root).values())
            self.peak_rss = max(self.peak_rss, pages * os.sysconf("SC_PAGE_SIZE") / 2**20)

    def finish(self):
        self.is_over.set()
        for thread in self.threads:
            thread.join()


def end(process):
    for member in process_tree(process.pid):
        try:
            os.kill(member, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()


class Outcome(NamedTuple):
    code: int
    watch: Watch
    began: float  # on the monotonic clock
    costs: dict  # wall_s, cpu_s, load_before, other_cores
    tail: str  # of what the program printed


def run_watched(command, log, folder, case, timeout, watch_type=Watch):
    """Runs the command to its end and looks at it meanwhile. Its output goes to a file in `folder`."""
    environment = dict(os.environ, OMP_NUM_THREADS=str(case.threads), HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1",
                       TRANSFORMERS_VERBOSITY="error", TOKENIZERS_PARALLELISM="false", CUDA_VISIBLE_DEVICES="")
    load, busy, began = os.getloadavg()[0], busy_seconds(), time.monotonic()
    children = os.times()
    with open(folder / "output", "wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)
        watch = watch_type(log, process.pid)
        try:
            code = process.wait(timeout)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            end(process)
            raise
        finally:
            watch.finish()
    wall = time.monotonic() - began
    after = os.times()
    own = after.children_user + after.children_system - children.children_user - children.children_system
    costs = {"wall_s": wall, "cpu_s": own, "load_before": load,
             "other_cores": max(0.0, (busy_seconds() - busy - own) / wall)}
    tail = (folder / "output").read_text(encoding="utf-8", errors="replace")[-3000:]
    return Outcome(code, watch, began, costs, tail)


def samples_per_second(options, case, watch):
    timed_rows = (options.steps - options.skip) * options.batch * case.ranks
    return timed_rows / (watch.arrivals[-1] - watch.arrivals[options.skip - 1])


def run_once(options, case, program, folder):
    command, log = COMMANDS[program](options, case, folder)
    outcome = run_watched(command, log, folder, case, options.timeout)
    watch = outcome.watch
    if outcome.code != 0 or len(watch.arrivals) != options.steps:
        sys.exit(f"run.py: {program}, case {case.name}: exit code {outcome.code}, {len(watch.arrivals)} steps of "
                 f"{options.steps}\n{outcome.tail}")
    return {"program": program, "case": case.name, "samples_per_s": samples_per_second(options, case, watch),
            "peak_rss_mib": watch.peak_rss, "first_step_s": watch.arrivals[0] - outcome.began, **outcome.costs,
            "losses": watch.losses}


def loss_difference(runs):
    """The largest relative difference between the programs' losses of a step: says that they do the same work."""
    ours = next(run["losses"] for run in runs if run["program"] == "stft")
    theirs = next(run["losses"] for run in runs if run["program"] == "peer")
    return max(abs(a - b) / max(abs(b), 1e-9) for a, b in zip(ours, theirs))


def summarize(case, runs):
    row = {"case": case.name, "peer": case.peer, "ranks": case.ranks, "threads_per_rank": case.threads,
           "largest_relative_loss_difference": loss_difference(runs),
           "other_cores": [round(run["other_cores"], 2) for run in runs]}
    for metric, (_, _, is_less_better) in METRICS.items():
        row[metric] = {}
        for program in COMMANDS:
            values = [run[metric] for run in runs if run["program"] == program]
            row[metric][program] = {"median": statistics.median(values), "min": min(values), "max": max(values)}
        ours, theirs = row[metric]["stft"]["median"], row[metric]["peer"]["median"]
        row[metric]["ratio"] = theirs / ours if is_less_better else ours / theirs
    return row


def print_progress(run):
    print(" ".join(f"{key}={value:.4g}" if isinstance(value, float) else f"{value}" for key, value in run.items()
                   if key != "losses"), file=sys.stderr, flush=True)


def print_table(rows):
    print("\n| case | | stft | sentence-transformers | ratio |\n|---|---|---|---|---|")
    for row in rows:
        for metric, (title, unit, _) in METRICS.items():
            cells = []
            for program in COMMANDS:
                value = row[metric][program]
                cells.append(f"{value['median']:.4g}{unit} ({value['min']:.4g} to {value['max']:.4g})")
            print(f"| {row['case']} | {title} | {cells[0]} | {cells[1]} | {row[metric]['ratio']:.2f} |")
    print("\nMedians, in brackets the smallest and the largest; a ratio above 1 speaks for stft.")
    for row in rows:
        others = row["other_cores"]
        print(f"{row['case']}: {row['ranks']} x {row['threads_per_rank']} thread(s); peer: {row['peer']}; losses of "
              f"the two differ by at most {row['largest_relative_loss_difference']:.1e}; other programs of the machine "
              f"took {min(others):.2f} to {max(others):.2f} cores")


def peer_versions(python):
    script = ("import json, importlib.metadata as m; print(json.dumps({p: m.version(p) for p in "
              "('torch', 'sentence-transformers', 'transformers', 'accelerate', 'peft', 'bitsandbytes')}))")
    return json.loads(subprocess.run([python, "-c", script], check=True, stdout=subprocess.PIPE, text=True).stdout)


def main():
    options = parse_options()
    for path in (options.stft, options.model, options.pairs):
        if not os.path.exists(path):
            sys.exit(f"run.py: {path} is missing (see README.md beside run.py)")
    with open(options.pairs, "rb") as file:
        available = sum(1 for _ in file)
    versions = peer_versions(options.python)
    rows, runs = [], []
    work = Path(tempfile.mkdtemp(prefix="stft-bench-"))
    try:
        if any(CASES[name].adapter for name in options.cases):
            options.adapter = work / "adapter"
            subprocess.run([options.python, str(PEER_SCRIPT.parent / "make_adapter.py"), options.model,
                            str(options.adapter)], check=True)
        for case in (CASES[name] for name in options.cases):
            if available < rows_needed(options, case):
                sys.exit(f"run.py: {options.pairs} has {available} rows, too few for case {case.name}")
            of_case = []
            for repeat in range(options.repeats):
                for program in COMMANDS if repeat % 2 == 0 else reversed(COMMANDS):
                    folder = work / f"{case.name}-{program}-{repeat}"
                    folder.mkdir()
                    of_case.append(run_once(options, case, program, folder))
                    shutil.rmtree(folder)
                    print_progress(of_case[-1])
            rows.append(summarize(case, of_case))
            runs += of_case
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print_table(rows)
    if options.json:
        settings = {key: getattr(options, key) for key in ("repeats", "steps", "skip", "batch")}
        report = {"machine": {"cpu": cpu_name(), "cores": os.cpu_count(), "kernel": platform.release()},
                  "versions": versions, "settings": settings, "cases": rows, "runs": runs}
        Path(options.json).write_text(json.dumps(report, indent=1) + "\n", encoding="ascii")


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown")


if __name__ == "__main__":
    main()
