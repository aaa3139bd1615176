#!/usr/bin/env python3
"""Does a list of jobs for run.py with sentence-transformers: short training runs, and looks at model directories.

usage: peer_case.py JOBS.json RESULTS.jsonl    (README.md beside this file says what is run and how it is judged)

The libraries are imported once; each rank of each run is a process forked from here, so that a failure stays in it.
"""
import json
import logging
import os
import re
import signal
import socket
import sys
import time
import traceback
from pathlib import Path

os.environ.update(CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false",
                  OMP_NUM_THREADS="1")

import torch
import torch.distributed.checkpoint  # noqa: F401  (imported before the ranks are forked)
from accelerate.state import PartialState
from accelerate.utils import DistributedType, merge_fsdp_weights
from datasets import Dataset
from safetensors.torch import load_file
from sentence_transformers import (SentenceTransformer, SentenceTransformerTrainer,
                                   SentenceTransformerTrainingArguments)
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.utils.data import SequentialSampler

RUN_TIMEOUT_S = 150
OTHER_RANK_S = 10  # what the other rank gets to end, after the first one failed
WRAPPERS = re.compile(r"^module\.|_fsdp_wrapped_module\.")
# The gradient of a key's bias is zero but for rounding, and AdamW makes full steps out of rounding.
ROUNDING_ONLY = re.compile(r"\bkey\.bias$")


def first_line(error):
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


def read_rows(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def file_order(dataset, batch_size, drop_last, **_):
    return DefaultBatchSampler(SequentialSampler(dataset), batch_size=batch_size, drop_last=drop_last)


def retrieval_evaluator(folder):
    folder = Path(folder)
    queries, corpus = ({row["_id"]: " ".join(filter(None, (row.get("title"), row["text"]))) for row in rows}
                       for rows in (read_rows(folder / "queries.jsonl"), read_rows(folder / "corpus.jsonl")))
    relevant = {}
    for line in (folder / "qrels/test.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, document, score = line.split("\t")
        if int(score) > 0:
            relevant.setdefault(query, set()).add(document)
    return InformationRetrievalEvaluator({key: queries[key] for key in relevant}, corpus, relevant, name="beir")


def let_fsdp_run_on_cpus(version):
    """accelerate has no FSDP for Gloo ranks without an accelerator; this makes it take them for a kind that has."""
    PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    if version == 1:
        original = FullyShardedDataParallel.__init__

        def on_cpu(self, *args, **options):
            original(self, *args, **{**options, "device_id": torch.device("cpu")})

        FullyShardedDataParallel.__init__ = on_cpu


def fsdp_arguments(job):
    if job["mode"] != "fsdp":
        return {}
    config = {"version": job["version"], "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
              "transformer_layer_cls_to_wrap": ["BertLayer"], "state_dict_type": job["state_dict"]}
    if job["forced"] and job["version"] == 1:
        config["sync_module_states"] = "false"
    return {"fsdp": "full_shard auto_wrap" if job["version"] == 1 else True, "fsdp_config": config}


def training_arguments(job):
    saves, evaluates = job.get("save", False), job.get("evaluator", False) or job.get("load_best", False)
    best = {"load_best_model_at_end": True, "metric_for_best_model": "eval_loss",
            "greater_is_better": True} if job.get("load_best") else {}
    return SentenceTransformerTrainingArguments(
        output_dir=job["out"], max_steps=job["steps"], per_device_train_batch_size=job["batch"],
        per_device_eval_batch_size=job["batch"], learning_rate=job["learning_rate"], lr_scheduler_type="constant",
        weight_decay=0.0, batch_sampler=file_order, use_cpu=True, report_to="none", disable_tqdm=True,
        dataloader_pin_memory=False, logging_steps=1, save_strategy="steps" if saves else "no", save_steps=1,
        eval_strategy="steps" if evaluates else "no", eval_steps=1, **best, **fsdp_arguments(job))


def whole_weights(model):
    """Collective: every parameter whole, under the name it has in the unwrapped model."""
    def copy(parameter):
        whole = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
        return whole.detach().clone()

    def named():
        return {WRAPPERS.sub("", name): copy(parameter) for name, parameter in model.named_parameters()}

    if isinstance(model, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(model, writeback=False):
            return named()
    return named()


class WatchedTrainer(SentenceTransformerTrainer):
    """Says where it is, how the model is wrapped when it trains, and how many texts a rank encodes to evaluate."""
    seen = None

    def training_step(self, *args, **options):
        self.seen["stage"] = "training step"
        if "wrapped" not in self.seen:
            local = [getattr(p, "to_local", lambda p=p: p)() for p in self.model_wrapped.parameters()]
            self.seen.update(wrapped=type(self.model_wrapped).__name__, local_parameters=sum(p.numel() for p in local))
        return super().training_step(*args, **options)

    def evaluate(self, *args, **options):
        self.seen["stage"] = "evaluation"
        metrics = super().evaluate(*args, **options)
        self.seen.setdefault("metrics", []).append({k: v for k, v in metrics.items() if isinstance(v, float)})
        return metrics

    def _save_checkpoint(self, *args, **options):
        self.seen["stage"] = "save of a checkpoint"
        return super()._save_checkpoint(*args, **options)


def count_encoded_texts(model, seen):
    def hook(_, inputs, named_inputs):
        if not torch.is_grad_enabled():
            features = inputs[0] if inputs else named_inputs
            seen["encoded_texts"] = seen.get("encoded_texts", 0) + len(features["attention_mask"])
    model[0].register_forward_pre_hook(hook, with_kwargs=True)


class LoggedErrors(logging.Handler):
    def __init__(self, seen):
        super().__init__(logging.ERROR)
        self.seen = seen

    def emit(self, record):
        self.seen.setdefault("logged_errors", []).append(record.getMessage().splitlines()[0])


def train(job, seen):
    torch.manual_seed(42)
    model = SentenceTransformer(job["model"], device="cpu")
    if not job.get("normalize", True):
        del model[2]
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    seen["parameters"] = sum(p.numel() for p in model.parameters())
    count_encoded_texts(model, seen)
    seen["stage"] = "making of the trainer"
    rows = read_rows(job["pairs"])[:job["rows"]]
    data = Dataset.from_dict({role: [row[role] for row in rows] for role in ("anchor", "positive")})
    arguments = training_arguments(job)
    if job.get("forced"):
        let_fsdp_run_on_cpus(job["version"])
    evaluator = retrieval_evaluator(job["beir"]) if job.get("evaluator") else None
    trainer = WatchedTrainer(
        model=model, args=arguments, train_dataset=data, evaluator=evaluator,
        eval_dataset=data if job.get("load_best") else None,
        loss=MultipleNegativesRankingLoss(model, gather_across_devices=job["mode"] != "single"))
    trainer.seen = seen
    seen["stage"] = "start of training"
    trainer.train(resume_from_checkpoint=job.get("resume_from"))
    seen["losses"] = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    seen["best"] = os.path.basename(trainer.state.best_model_checkpoint or "")
    if job.get("final"):
        seen["stage"] = "save_model"
        trainer.save_model(os.path.join(job["out"], "final"))
    seen["stage"] = "end"
    weights = whole_weights(trainer.model_wrapped if job["mode"] != "ddp" else trainer.model)
    if os.environ["RANK"] == "0":
        torch.save(weights, os.path.join(job["out"], "in_memory.pt"))


def distances(weights, reference):
    """How far the weights are from those of each step of the reference, in units of what its last step changed."""
    steps = [load_weights(os.path.join(reference, f"checkpoint-{step}")) for step in (1, 2)]
    names = [name for name in steps[0] if not ROUNDING_ONLY.search(name)]
    missing = sorted(name for name in names if name not in weights or weights[name].shape != steps[0][name].shape)
    if missing:
        return {"missing": missing}

    def norm(a, b):
        with torch.no_grad():
            return sum(float((a[name].double() - b[name].double()).square().sum()) for name in names) ** 0.5

    return {"distances": [norm(weights, step) / norm(*steps) for step in steps]}


def load_weights(folder):
    return dict(SentenceTransformer(folder, device="cpu").named_parameters())


def look_at(job, seen):
    """Loads a model directory as a user would; or takes the weights that a training run had at its end."""
    path = job["path"]
    if not os.path.exists(path):
        seen["absent"] = True
        return
    if os.path.isfile(path):
        model = SentenceTransformer(job["model"], device="cpu")
        weights = load_file(path) if path.endswith(".safetensors") else torch.load(path)
        model.load_state_dict(weights, strict=False)
    else:
        model = SentenceTransformer(path, device="cpu")
        weights = dict(model.named_parameters())
    seen.update(distances(weights, job["reference"]))
    if "beir" in job:
        count_encoded_texts(model, seen)
        seen["metrics"] = retrieval_evaluator(job["beir"])(model)


def merge(job, seen):
    """What `accelerate merge-weights` does."""
    merge_fsdp_weights(job["path"], job["out"], safe_serialization=True)
    seen["files"] = sorted(os.listdir(job["out"]))


def rank_main(job, rank, port, folder):
    with open(folder / f"log{rank}", "wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    world = job.get("ranks", 1)
    os.environ["RANK"] = str(rank)
    if world > 1:
        os.environ.update(LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world),
                          MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    seen, code = {"stage": "start"}, 0
    logging.getLogger("sentence_transformers").addHandler(LoggedErrors(seen))
    try:
        {"train": train, "look": look_at, "merge": merge}[job["kind"]](job, seen)
    except BaseException as error:  # whatever it is, it is the outcome
        traceback.print_exc()
        seen["exception"], code = first_line(error), 1
    (folder / f"rank{rank}.json").write_text(json.dumps(seen), encoding="utf-8")
    sys.stdout.flush()
    os._exit(code)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(ranks):
    """Exit codes by rank, None for one that had to be killed, and the rank that failed first."""
    codes, first, deadline = {}, None, time.monotonic() + RUN_TIMEOUT_S
    while len(codes) < len(ranks):
        for rank, process in ranks.items():
            if rank in codes:
                continue
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                codes[rank] = os.waitstatus_to_exitcode(status)
                if codes[rank] and first is None:
                    first, deadline = rank, min(deadline, time.monotonic() + OTHER_RANK_S)
            elif time.monotonic() > deadline:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
                codes[rank] = None
        time.sleep(0.02)
    return codes, first


def run_job(job, folder):
    folder.mkdir(parents=True)
    began, port, ranks = time.monotonic(), free_port(), {}
    for rank in range(job.get("ranks", 1)):
        process = os.fork()
        if process == 0:
            rank_main(job, rank, port, folder)
        ranks[rank] = process
    codes, first = wait_for(ranks)
    reports = []
    for rank in ranks:
        report = folder / f"rank{rank}.json"
        reports.append(json.loads(report.read_text(encoding="utf-8")) if report.exists() else {})
    return {"name": job["name"], "codes": list(codes.values()), "first_failed": first, "ranks": reports,
            "seconds": round(time.monotonic() - began, 1)}


def main():
    jobs, results = Path(sys.argv[1]), Path(sys.argv[2])
    for number, job in enumerate(json.loads(jobs.read_text(encoding="utf-8"))):
        result = run_job(job, results.parent / "reports" / f"{number:02}")
        with open(results, "a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
        print(f"{job['name']}: exit codes {result['codes']}, {result['seconds']} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
