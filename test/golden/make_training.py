#!/usr/bin/env python3
"""Writes adamw_losses_minilm.json, adamw_losses_tiny.json and sgd_tiny.json: traces of SentenceTransformerTrainer on
data/pairs.jsonl in file order, batches of 32, MultipleNegativesRankingLoss (scale 20), without dropout, float32.

Per step: the loss, the norm of all gradients before clipping, and the learning rate that the step used (the schedule's
value at step - 1). float64 columns are the same run in double precision, which shows what float32 can hold.

usage: test/golden/make_training.py [--minilm .deps/models/all-MiniLM-L6-v2] [--out test/golden]
"""
import argparse
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import peers  # noqa: E402
import torch  # noqa: E402
from datasets import Dataset, disable_progress_bars  # noqa: E402
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments  # noqa: E402
from sentence_transformers.base.sampler import DefaultBatchSampler  # noqa: E402
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss  # noqa: E402
from torch.utils.data import SequentialSampler  # noqa: E402
from transformers import PrinterCallback  # noqa: E402

BATCH = 32
SCALE = 20.0

ADAMW_MINILM = {"optim": "adamw_torch", "learning_rate": 2e-5, "lr_scheduler_type": "linear", "warmup_steps": 3,
                "max_steps": 20, "max_grad_norm": 1.0, "weight_decay": 0.0}
ADAMW_TINY = {**ADAMW_MINILM, "learning_rate": 1e-3, "weight_decay": 0.01}
SGD_TINY = {"optim": "sgd", "learning_rate": 0.1, "lr_scheduler_type": "constant", "warmup_steps": 0, "max_steps": 5,
            "max_grad_norm": 0.0, "weight_decay": 0.0}


def file_order(dataset, batch_size, drop_last, **_):
    return DefaultBatchSampler(SequentialSampler(dataset), batch_size=batch_size, drop_last=drop_last)


class RecordingTrainer(SentenceTransformerTrainer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.trace = {"losses": [], "grad_norms": [], "learning_rates": []}

    def training_step(self, model, *args, **kwargs):
        self.trace["learning_rates"].append(self.optimizer.param_groups[0]["lr"])
        loss = super().training_step(model, *args, **kwargs)
        squares = (p.grad.double().square().sum() for p in model.parameters() if p.grad is not None)
        self.trace["losses"].append(loss.item())
        self.trace["grad_norms"].append(float(sum(squares)) ** 0.5)
        return loss


def train(path, rows, options, dtype, columns=("anchor", "positive"), loss=MultipleNegativesRankingLoss):
    """Columns in the order in which the loss takes them; a label comes last."""
    model = peers.load_model(path, dtype)
    data = Dataset.from_dict({column: [row[column] for row in rows] for column in columns})
    with tempfile.TemporaryDirectory() as out:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=out, per_device_train_batch_size=BATCH, batch_sampler=file_order, use_cpu=True, seed=42,
            save_strategy="no", eval_strategy="no", logging_strategy="no", report_to="none", disable_tqdm=True,
            dataloader_pin_memory=False, **options)
        trainer = RecordingTrainer(model=model, args=arguments, train_dataset=data,
                                   loss=loss(model, scale=SCALE))
        trainer.remove_callback(PrinterCallback)
        decayed = {peers.hf_name(n) for n in trainer.get_decay_parameter_names(model)}
        trainer.train()
    return model, trainer.trace, decayed


def figures(path, rows, options, **task):
    model, trace, decayed = train(path, rows, options, torch.float32, **task)
    _, exact, _ = train(path, rows, options, torch.float64, **task)
    content = {"batch": BATCH, "scale": SCALE, "options": options, **trace,
               "losses_float64": exact["losses"], "grad_norms_float64": exact["grad_norms"]}
    if options["weight_decay"]:
        content["decayed_parameters"] = sorted(decayed)
    return model, content


def weight_figures(model, initial):
    """Per tensor: the sum of all elements, and the norm of the change, both in float64."""
    before = {peers.hf_name(n): p.detach().double() for n, p in initial.named_parameters()}
    after = {peers.hf_name(n): p.detach().double() for n, p in model.named_parameters()}
    return {n: {"sum": float(p.sum()), "change_norm": float((p - before[n]).square().sum()) ** 0.5}
            for n, p in after.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minilm", default=".deps/models/all-MiniLM-L6-v2")
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    arguments = parser.parse_args()
    disable_progress_bars()
    rows = peers.read_rows(HERE / "data" / "pairs.jsonl")
    tiny_bert = HERE / "tiny_bert"

    model, content = figures(tiny_bert, rows, SGD_TINY)
    content["final_weights"] = weight_figures(model, peers.load_model(tiny_bert))
    peers.write_json(arguments.out / "sgd_tiny.json", content)
    peers.write_json(arguments.out / "adamw_losses_tiny.json", figures(tiny_bert, rows, ADAMW_TINY)[1])
    peers.write_json(arguments.out / "adamw_losses_minilm.json", figures(arguments.minilm, rows, ADAMW_MINILM)[1])


if __name__ == "__main__":
    main()
