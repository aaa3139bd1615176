#!/usr/bin/env python3
"""Writes schedules.json: the rates of transformers' schedules, as TrainingArguments sets them up, and
learning_rates_tiny.json: 5 steps of SGD with learning_rate_mapping, as make_training.py records them, with the parameter
groups that SentenceTransformerTrainer makes, and adamw_8bit_losses_minilm.json: adamw_losses_minilm.json with
bitsandbytes' AdamW8bit.

usage: test/golden/make_optimizers.py [--minilm .deps/models/all-MiniLM-L6-v2] [--out test/golden]
"""
import argparse
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import peers  # noqa: E402
import torch  # noqa: E402
from datasets import disable_progress_bars  # noqa: E402
from make_training import ADAMW_MINILM, figures, train, weight_figures  # noqa: E402
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments  # noqa: E402
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss  # noqa: E402
from transformers import TrainingArguments, get_scheduler  # noqa: E402

TYPES = ("linear", "cosine", "cosine_with_restarts", "constant", "constant_with_warmup", "polynomial", "inverse_sqrt")
STEPS = 20
RATE = 2e-4

# Later patterns win over earlier ones; some parameters match none.
MAPPING = {"attention": 0.05, r"^model\.0\.model\.encoder\.layer\.1\.": 0.02, "query|LayerNorm": 0.2}
OPTIONS = {"optim": "sgd", "learning_rate": 0.1, "learning_rate_mapping": MAPPING, "lr_scheduler_type": "linear",
           "warmup_steps": 1, "max_steps": 5, "max_grad_norm": 0.0, "weight_decay": 0.01}


def rates(name, warmup):
    """The factors LambdaLR gives for steps 0 ... STEPS, times RATE."""
    steps = TrainingArguments(output_dir="unused", warmup_steps=warmup, use_cpu=True).get_warmup_steps(STEPS)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
    scheduler = get_scheduler(name, optimizer, num_warmup_steps=steps, num_training_steps=STEPS)
    return [RATE * scheduler.lr_lambdas[0](step) for step in range(STEPS + 1)]


def parameter_groups(path):
    model = peers.load_model(path)
    arguments = SentenceTransformerTrainingArguments(output_dir="unused", use_cpu=True, **OPTIONS)
    trainer = SentenceTransformerTrainer(model=model, args=arguments, loss=MultipleNegativesRankingLoss(model))
    trainer.create_optimizer()
    names = {p: peers.hf_name(n) for n, p in model.named_parameters()}
    return [{"lr": group["lr"], "weight_decay": group["weight_decay"], "params": sorted(names[p] for p in group["params"])}
            for group in trainer.optimizer.param_groups if group["params"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minilm", default=".deps/models/all-MiniLM-L6-v2")
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    arguments = parser.parse_args()
    disable_progress_bars()
    peers.write_json(arguments.out / "schedules.json", {
        "steps": STEPS, "learning_rate": RATE,
        "rates": [{"type": name, "warmup_steps": warmup, "rates": rates(name, warmup)}
                  for name in TYPES for warmup in (0, 3, 0.22)]})
    tiny_bert = HERE / "tiny_bert"
    rows = peers.read_rows(HERE / "data" / "pairs.jsonl")
    model, content = figures(tiny_bert, rows, OPTIONS)
    content["parameter_groups"] = parameter_groups(tiny_bert)
    content["final_weights"] = weight_figures(model, peers.load_model(tiny_bert))
    peers.write_json(arguments.out / "learning_rates_tiny.json", content)
    options = {**ADAMW_MINILM, "optim": "adamw_8bit"}
    _, trace, _ = train(arguments.minilm, rows, options, torch.float32)
    peers.write_json(arguments.out / "adamw_8bit_losses_minilm.json", {"options": options, **trace})


if __name__ == "__main__":
    main()
