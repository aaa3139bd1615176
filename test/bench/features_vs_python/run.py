#!/usr/bin/env python3
"""Shows which features of checkpoints and evaluation work under sharding, in the Python stack and in stft.

usage: test/bench/features_vs_python/run.py --python PATH [--stft PATH] [--json FILE]

README.md beside this file says what each row does and how it is judged. Needs build/release/stft and, as PATH, a Python
that has sentence-transformers and accelerate. Prints a table in Markdown.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
PEER_SCRIPT = Path(__file__).resolve().parent / "peer_case.py"
RANKS, STEPS, BATCH, LEARNING_RATE = 2, 2, 4, 1e-3
EQUAL = 0.01  # of what the last step changed
METRIC, METRIC_TOLERANCE = "beir_cosine_ndcg@10", 1e-5
LONGEST_CELL = 280
STATE_DICTS = ("FULL", "SHARDED")
WORKS, FAILS, WRONG, NONE = "works", "fails", "exit 0 but wrong", "n/a"


class Outcome(NamedTuple):
    verdict: str
    detail: str = ""


LAST_IS_BEST = Outcome(NONE, "with this model the last step is the best one, so the row can show nothing")


class Column(NamedTuple):
    name: str
    mode: str
    version: int = 0
    normalize: bool = True


PEERS = (Column("DDP", "ddp"), Column("FSDP1", "fsdp", 1), Column("FSDP2", "fsdp", 2, normalize=False))
ROWS = {
    "stock": "`fsdp=` as shipped, nothing patched / `strategy: full_shard`",
    "shipped": "2 training steps, the model as it is shipped",
    "train": "2 training steps (FSDP2: this and all rows below with `Normalize` removed)",
    "evaluator": "InformationRetrievalEvaluator during training",
    "checkpoint-FULL": "FULL_STATE_DICT checkpoint loads in SentenceTransformer",
    "checkpoint-SHARDED": "SHARDED_STATE_DICT checkpoint loads in SentenceTransformer as it is",
    "converted": "... after `accelerate merge-weights` / `stft export`",
    "final-FULL": "model saved at the end (`save_model()` / `final/`), FULL",
    "final-SHARDED": "model saved at the end, SHARDED",
    "best-FULL": "load_best_model_at_end, FULL: the weights are the best ones",
    "best-SHARDED": "load_best_model_at_end, SHARDED: the weights are the best ones",
    "resume-FULL": "resume, FULL: ends at the weights of the uninterrupted run",
    "resume-SHARDED": "resume, SHARDED: ends at the weights of the uninterrupted run",
}


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", required=True, help="a Python with sentence-transformers and accelerate")
    parser.add_argument("--stft", default=str(ROOT / "build/release/stft"))
    parser.add_argument("--model", default=str(ROOT / "test/golden/tiny_bert"),
                        help="a BERT of sentence-transformers that ends in Normalize")
    parser.add_argument("--pairs", default=str(ROOT / "test/golden/data/pairs.jsonl"))
    parser.add_argument("--beir", default=str(ROOT / "test/golden/data/beir"))
    parser.add_argument("--json", default="", help="also write everything seen to this file")
    parser.add_argument("--keep", default="", help="work in this new folder and leave it")
    return parser.parse_args()


class Failure(Exception):
    """A run that ended with another exit code than 0; the text is its first line."""


class Peer:
    """Jobs for peer_case.py, and what came of them."""

    def __init__(self, options, work):
        self.options, self.work, self.jobs, self.results = options, work, [], {}

    def train(self, name, column, **options):
        job = {"kind": "train", "mode": column.mode, "version": column.version, "normalize": column.normalize,
               "forced": column.mode == "fsdp", "state_dict": "FULL_STATE_DICT", "model": self.options.model,
               "pairs": self.options.pairs, "beir": self.options.beir, "ranks": RANKS, "steps": STEPS, "batch": BATCH,
               "rows": STEPS * BATCH * RANKS, "learning_rate": LEARNING_RATE, "out": str(self.work / name)}
        self.add(name, {**job, **options})

    def look(self, name, path, **options):
        self.add(name, {"kind": "look", "path": str(path), "reference": str(self.work / "reference"),
                        "model": self.options.model, **options})

    def add(self, name, job):
        if job["kind"] == "train":
            Path(job["out"]).mkdir(parents=True)
        self.jobs.append({"name": name, **job})

    def run(self):
        jobs, results = self.work / "jobs.json", self.work / "results.jsonl"
        jobs.write_text(json.dumps(self.jobs), encoding="ascii")
        output = subprocess.run([self.options.python, str(PEER_SCRIPT), str(jobs), str(results)], cwd=ROOT, check=False)
        if output.returncode != 0:
            sys.exit(f"run.py: peer_case.py ended with exit code {output.returncode}")
        for line in results.read_text(encoding="utf-8").splitlines():
            result = json.loads(line)
            self.results[result["name"]] = result

    def ranks(self, name):
        """The reports of the ranks of a run; raises Failure when it did not end well."""
        result = self.results[name]
        if result["first_failed"] is not None:
            report = result["ranks"][result["first_failed"]]
            raise Failure(f"{report.get('exception', 'a rank died')} ({report.get('stage', 'start')})")
        if None in result["codes"]:
            raise Failure("a rank did not end")
        return result["ranks"]


def declare_peer_jobs(peer):
    peer.train("reference", Column("reference", "single"), ranks=1, batch=BATCH * RANKS, save=True)
    for column in PEERS:
        name = column.name
        if column.version:
            peer.train(f"{name}/stock", column, forced=False, normalize=True)
        peer.train(f"{name}/shipped", column, normalize=True)
        peer.look(f"{name}/shipped/look", peer.work / name / "shipped/in_memory.pt")
        peer.train(f"{name}/train", column)
        peer.look(f"{name}/train/look", peer.work / name / "train/in_memory.pt")
        peer.train(f"{name}/evaluator", column, evaluator=True)
        peer.look(f"{name}/evaluator/look", peer.work / name / "evaluator/in_memory.pt", beir=peer.options.beir)
        for kind in STATE_DICTS if column.version else STATE_DICTS[:1]:
            declare_saving_jobs(peer, column, kind)


def declare_saving_jobs(peer, column, kind):
    name, options = column.name, {"state_dict": f"{kind}_STATE_DICT"}
    folder = peer.work / name
    peer.train(f"{name}/checkpoint-{kind}", column, save=True, **options)
    peer.look(f"{name}/checkpoint-{kind}/look", folder / f"checkpoint-{kind}/checkpoint-2")
    if kind == "FULL" and column.version:
        peer.look(f"{name}/gathered/file", folder / "checkpoint-FULL/checkpoint-2/pytorch_model_fsdp.bin")
    if kind == "SHARDED":
        merged = folder / "merged"
        peer.add(f"{name}/merge", {"kind": "merge", "out": str(merged), "path": str(
            folder / "checkpoint-SHARDED/checkpoint-2/pytorch_model_fsdp_0")})
        peer.look(f"{name}/merge/look", merged)
        peer.look(f"{name}/merge/file", merged / "model.safetensors")
    peer.train(f"{name}/final-{kind}", column, final=True, **options)
    peer.look(f"{name}/final-{kind}/look", folder / f"final-{kind}/final")
    peer.train(f"{name}/best-{kind}", column, save=True, load_best=True, **options)
    peer.look(f"{name}/best-{kind}/look", folder / f"best-{kind}/in_memory.pt")
    peer.train(f"{name}/resume-{kind}", column, save=True, **options,
               resume_from=str(folder / f"checkpoint-{kind}/checkpoint-1"))
    peer.look(f"{name}/resume-{kind}/look", folder / f"resume-{kind}/in_memory.pt")


def judge_weights(seen, step, what):
    """Whether the weights seen are those of a step of the reference."""
    if seen.get("absent"):
        return Outcome(WRONG, f"{what} was not written")
    if "exception" in seen:
        return Outcome(WRONG, f"SentenceTransformer({what}) raises {seen['exception']}")
    if "missing" in seen:
        return Outcome(WRONG, f"{what}: {len(seen['missing'])} tensors are missing or have another shape")
    distance = seen["distances"]
    if distance[step - 1] <= EQUAL:
        return Outcome(WORKS)
    other = 2 - step
    is_other = distance[other] <= EQUAL
    return Outcome(WRONG, f"{what}: the weights are those of step {other + 1}" if is_other else
                   f"{what}: the weights are {distance[step - 1]:.2g} of a step away from those of step {step}")


def judge_peer_training(peer, name, step=STEPS):
    ranks = peer.ranks(name)
    outcome = judge_weights(peer.results[f"{name}/look"]["ranks"][0], step, "in memory")
    errors = [error for report in ranks for error in report.get("logged_errors", [])]
    if outcome.verdict == WRONG and errors:
        return Outcome(WRONG, f"{outcome.detail}; logged: {errors[0]}")
    share = max(report["local_parameters"] for report in ranks) / ranks[0]["parameters"]
    return Outcome(outcome.verdict, outcome.detail or f"{ranks[0]['wrapped']}, {share:.0%} of the parameters a rank")


def judge_peer_stock(peer, name):
    ranks = peer.ranks(name)
    wrapped, local, total = ranks[0]["wrapped"], ranks[0]["local_parameters"], ranks[0]["parameters"]
    if local < total:
        return Outcome(WORKS, wrapped)
    return Outcome(WRONG, f"nothing is sharded: {wrapped}, 100% of the parameters on each rank")


def judge_peer_evaluator(peer, name):
    ranks = peer.ranks(name)
    recorded = [report["metrics"][-1].get(f"eval_{METRIC}") for report in ranks if report.get("metrics")]
    again = peer.results[f"{name}/look"]["ranks"][0]["metrics"][METRIC]
    texts = " and ".join(str(report.get("encoded_texts", 0)) for report in ranks)
    if any(value is None or abs(value - again) > METRIC_TOLERANCE for value in recorded):
        return Outcome(WRONG, f"recorded {recorded}, the same weights in one process give {again:.6f}")
    total = peer.results[f"{name}/look"]["ranks"][0]["encoded_texts"] * STEPS
    return Outcome(WORKS, f"the ranks encoded {texts} texts of {total}")


def judge_peer_checkpoint(peer, name, kind):
    peer.ranks(name)
    outcome = judge_weights(peer.results[f"{name}/look"]["ranks"][0], STEPS, "checkpoint-2")
    if kind == "SHARDED" and outcome.verdict == WRONG:  # never said to load
        return Outcome(FAILS, outcome.detail)
    if outcome.verdict == WRONG:
        return Outcome(WRONG, outcome.detail + judge_file(peer, f"{name.split('/')[0]}/gathered/file",
                                                          "pytorch_model_fsdp.bin"))
    return outcome


def judge_file(peer, name, file):
    """What to add about a file of tensors that no library loads as a model."""
    is_right = judge_weights(peer.results[name]["ranks"][0], STEPS, file).verdict == WORKS
    return f" (the tensors in {file} are right)" if is_right else ""


def judge_peer_conversion(peer, column):
    peer.ranks(f"{column.name}/checkpoint-SHARDED")
    merged = peer.ranks(f"{column.name}/merge")[0]
    outcome = judge_weights(peer.results[f"{column.name}/merge/look"]["ranks"][0], STEPS, "merged")
    about_file = judge_file(peer, f"{column.name}/merge/file", "it")
    return outcome if outcome.verdict == WORKS else Outcome(
        FAILS, f"writes {', '.join(merged['files'])} alone{about_file}; {outcome.detail}")


def judge_peer_final(peer, name):
    peer.ranks(name)
    return judge_weights(peer.results[f"{name}/look"]["ranks"][0], STEPS, "final")


def judge_peer_best(peer, name):
    if not is_first_best([metrics["eval_loss"] for metrics in peer.ranks(name)[0]["metrics"]]):
        return LAST_IS_BEST
    outcome = judge_peer_training(peer, name, step=1)
    return Outcome(outcome.verdict, outcome.detail if outcome.verdict != WORKS else "")


def is_first_best(losses):
    """Whether the first of the evaluation losses is the largest: only then do the best weights differ from the last."""
    return losses[0] > max(losses[1:])


def judge_peer_resume(peer, column, kind):
    try:
        peer.ranks(f"{column.name}/checkpoint-{kind}")
    except Failure as failure:
        raise Failure(f"no checkpoint to resume from: {failure}") from failure
    name = f"{column.name}/resume-{kind}"
    outcome = judge_peer_training(peer, name)
    losses = [peer.results[run]["ranks"][0]["losses"] for run in (f"{column.name}/checkpoint-{kind}", name)]
    if outcome.verdict == WORKS and abs(losses[0][-1] - losses[1][-1]) > 1e-5:
        return Outcome(WRONG, f"loss of step 2 is {losses[1][-1]}, uninterrupted {losses[0][-1]}")
    return Outcome(outcome.verdict, outcome.detail if outcome.verdict != WORKS else "")


def judge_peer(peer, column):
    name = column.name
    judges = {
        "shipped": lambda: judge_peer_training(peer, f"{name}/shipped"),
        "train": lambda: judge_peer_training(peer, f"{name}/train"),
        "evaluator": lambda: judge_peer_evaluator(peer, f"{name}/evaluator"),
    }
    if column.version:
        judges["stock"] = lambda: judge_peer_stock(peer, f"{name}/stock")
        judges["converted"] = lambda: judge_peer_conversion(peer, column)
    for kind in STATE_DICTS if column.version else STATE_DICTS[:1]:
        judges[f"checkpoint-{kind}"] = lambda k=kind: judge_peer_checkpoint(peer, f"{name}/checkpoint-{k}", k)
        judges[f"final-{kind}"] = lambda k=kind: judge_peer_final(peer, f"{name}/final-{k}")
        judges[f"best-{kind}"] = lambda k=kind: judge_peer_best(peer, f"{name}/best-{k}")
        judges[f"resume-{kind}"] = lambda k=kind: judge_peer_resume(peer, column, k)
    return run_judges(judges)


def run_judges(judges):
    outcomes = {}
    for row in ROWS:
        try:
            outcomes[row] = judges[row]() if row in judges else Outcome(NONE)
        except Failure as failure:
            outcomes[row] = Outcome(FAILS, str(failure))
    return outcomes


class Ours:
    """Runs of stft, done before the peer's, which looks at what they leave."""

    def __init__(self, options, work):
        self.options, self.work, self.failures = options, work, {}

    def command(self, name, *words):
        environment = dict(os.environ, OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")
        run = subprocess.run([self.options.stft, *map(str, words)], cwd=ROOT, env=environment, check=False, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        print(f"stft/{name}: exit code {run.returncode}", file=sys.stderr, flush=True)
        if run.returncode != 0:
            self.failures[name] = (run.stdout.strip().splitlines() or ["no message"])[-1]

    def train(self, name, kind, best=False, resume_from=None):
        rows = {"name": "pairs", "path": self.options.pairs, "limit": STEPS * BATCH * RANKS,
                "columns": {"anchor": "anchor", "positive": "positive"}}
        recipe = {  # YAML is a superset of JSON
            "run": {"output_dir": str(self.work / name)},
            "model": {"name_or_path": self.options.model, "dropout": 0.0},
            "sharding": {"strategy": "full_shard"},
            "data": {"train": [rows], "eval": [rows]},
            "loss": {"type": "MultipleNegativesRankingLoss"},
            "evaluators": [{"type": "InformationRetrievalEvaluator", "name": "beir", "beir": self.options.beir,
                            "split": "test"}],
            "train": {"max_steps": STEPS, "per_device_train_batch_size": BATCH, "shuffle": False,
                      "learning_rate": LEARNING_RATE, "lr_scheduler_type": "constant", "logging_steps": 1,
                      "eval_strategy": "steps", "eval_steps": 1},
            "checkpoint": {"state_dict_type": f"{kind}_STATE_DICT", "save_strategy": "steps", "save_steps": 1,
                           "load_best_model_at_end": best},
            "launch": {"nproc": RANKS, "threads_per_rank": 1},
        }
        if best:
            recipe["checkpoint"].update(metric_for_best_model="eval_loss", greater_is_better=True)
        path = self.work / f"{name}.yaml"
        path.write_text(json.dumps(recipe, indent=1), encoding="ascii")
        self.command(name, "train", path, *(["--resume", resume_from] if resume_from else []))

    def run(self):
        self.work.mkdir()
        for kind in STATE_DICTS:
            self.train(kind, kind)
            self.train(f"best-{kind}", kind, best=True)
            self.command(f"best-{kind}/best", "best", self.work / f"best-{kind}", "--out", self.work / f"out-{kind}")
            interrupted = self.work / f"resume-{kind}"
            if (self.work / kind).exists():
                shutil.copytree(self.work / kind, interrupted)
                for later in ("checkpoint-2", "final"):
                    shutil.rmtree(interrupted / later, ignore_errors=True)
            self.train(f"resume-{kind}", kind, resume_from=interrupted / "checkpoint-1")
        self.command("export", "export", self.work / "SHARDED/checkpoint-2", "--out", self.work / "export")

    def declare_looks(self, peer):
        for path in ("FULL/checkpoint-2", "SHARDED/checkpoint-2", "export", *(
                f"{run}-{kind}/final" for run in ("best", "resume") for kind in STATE_DICTS),
                *(f"{kind}/final" for kind in STATE_DICTS), *(f"out-{kind}" for kind in STATE_DICTS)):
            peer.look(f"stft/{path}", self.work / path, beir=self.options.beir)

    def log(self, name):
        lines = (self.work / name / "log.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]


def judge_ours(ours, peer):
    def weights(run, path, step=STEPS):
        if run in ours.failures:
            raise Failure(ours.failures[run])
        return judge_weights(peer.results[f"stft/{path}"]["ranks"][0], step, Path(path).name)

    def shares():
        outcome = weights("SHARDED", "SHARDED/final")
        files = sorted((ours.work / "SHARDED/checkpoint-2/pytorch_model_fsdp_0").glob("*.distcp"))
        sizes = [file.stat().st_size for file in files]
        return outcome._replace(detail=outcome.detail or " and ".join(
            f"{size / sum(sizes):.0%}" for size in sizes) + " of the weights' bytes written by the two ranks")

    def evaluator():
        weights("FULL", "FULL/final")
        recorded = [line["metrics"][METRIC] for line in ours.log("FULL") if line["event"] == "eval"]
        again = peer.results["stft/FULL/final"]["ranks"][0]["metrics"][METRIC]
        if len(recorded) == STEPS and abs(recorded[-1] - again) <= METRIC_TOLERANCE:
            return Outcome(WORKS)
        return Outcome(WRONG, f"recorded {recorded}, Python's evaluator on final/ gives {again:.6f}")

    def sharded_as_it_is():
        outcome = weights("SHARDED", "SHARDED/checkpoint-2")
        return outcome if outcome.verdict == WORKS else Outcome(FAILS, outcome.detail)

    def best(kind):
        outcome = weights(f"best-{kind}", f"best-{kind}/final", 1)
        evaluations = [line for line in ours.log(f"best-{kind}") if line["event"] == "eval" and "reloaded" not in line]
        if not is_first_best([line["metrics"]["eval_loss"] for line in evaluations]):
            return LAST_IS_BEST
        return outcome if outcome.verdict != WORKS else weights(f"best-{kind}/best", f"out-{kind}", 1)

    def resume(kind):
        outcome = weights(f"resume-{kind}", f"resume-{kind}/final")
        files = [(ours.work / run / "final/model.safetensors").read_bytes() for run in (f"resume-{kind}", kind)]
        if outcome.verdict == WORKS and files[0] != files[1]:
            return Outcome(WRONG, "final/model.safetensors differs from that of the uninterrupted run")
        return outcome._replace(detail=outcome.detail or "same bytes")

    judges = {"stock": shares, "shipped": lambda: weights("FULL", "FULL/final"),
              "train": lambda: weights("FULL", "FULL/final"), "evaluator": evaluator,
              "checkpoint-FULL": lambda: weights("FULL", "FULL/checkpoint-2"), "checkpoint-SHARDED": sharded_as_it_is,
              "converted": lambda: weights("export", "export")}
    for kind in STATE_DICTS:
        judges[f"final-{kind}"] = lambda k=kind: weights(k, f"{k}/final")
        judges[f"best-{kind}"] = lambda k=kind: best(k)
        judges[f"resume-{kind}"] = lambda k=kind: resume(k)
    return run_judges(judges)


def cell(outcome, work):
    detail = outcome.detail.replace(f"{work}/", "").replace("|", "\\|")
    detail = re.sub(r"[^\s(]+/(?=checkpoint-\d|merged\b)", "", detail)
    if len(detail) > LONGEST_CELL:
        detail = detail[:LONGEST_CELL - 3] + "..."
    verdict = outcome.verdict if outcome.verdict in (WORKS, NONE) else f"**{outcome.verdict}**"
    return f"{verdict}: {detail}" if detail else verdict


def print_table(columns, work):
    titles = {"FSDP1": "FSDP1, forced", "FSDP2": "FSDP2, forced"}
    print("\n| | " + " | ".join(titles.get(name, name) for name in columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for row, title in ROWS.items():
        print(f"| {title} | " + " | ".join(cell(outcomes[row], work) for outcomes in columns.values()) + " |")
    print("\nforced: accelerate's distributed_type set to MULTI_GPU; for FSDP1 also FSDP's device_id to cpu and "
          "sync_module_states to false.")


def peer_versions(python):
    script = ("import json, importlib.metadata as m; print(json.dumps({p: m.version(p) for p in "
              "('torch', 'sentence-transformers', 'transformers', 'accelerate')}))")
    return json.loads(subprocess.run([python, "-c", script], check=True, stdout=subprocess.PIPE, text=True).stdout)


def main():
    options = parse_options()
    for path in (options.stft, options.model, options.pairs, options.beir):
        if not os.path.exists(path):
            sys.exit(f"run.py: {path} is missing (see README.md beside run.py)")
    options.stft = os.path.abspath(options.stft)
    work = Path(options.keep or tempfile.mkdtemp(prefix="stft-features-")).resolve()
    work.mkdir(parents=True, exist_ok=True)
    try:
        versions = peer_versions(options.python)
        ours, peer = Ours(options, work / "stft"), Peer(options, work)
        ours.run()
        declare_peer_jobs(peer)
        ours.declare_looks(peer)
        peer.run()
        columns = {column.name: judge_peer(peer, column) for column in PEERS}
        columns["stft"] = judge_ours(ours, peer)
    finally:
        if not options.keep:
            shutil.rmtree(work, ignore_errors=True)
    print_table(columns, work)
    print("versions: " + ", ".join(f"{name} {version}" for name, version in versions.items()))
    if options.json:
        table = {name: {row: outcome._asdict() for row, outcome in rows.items()} for name, rows in columns.items()}
        report = {"versions": versions, "table": table, "runs": peer.results, "stft_failures": ours.failures}
        Path(options.json).write_text(json.dumps(report, indent=1) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
