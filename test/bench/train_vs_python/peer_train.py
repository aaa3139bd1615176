#!/usr/bin/env python3
"""One training run of sentence-transformers for run.py: the stock trainer, rows in file order, dropout 0.

Writes a line {"step", "loss"} to --step-log after each optimizer step, as the trainer itself logs it (the mean over
ranks), and the model to --out at the end. Under torchrun it is one rank; run.py starts it either way.
"""
import argparse
import json
import os

parser = argparse.ArgumentParser()
for name in ("model", "pairs", "step-log", "out"):
    parser.add_argument("--" + name, required=True)
parser.add_argument("--rows", type=int, required=True)
parser.add_argument("--steps", type=int, required=True)
parser.add_argument("--batch", type=int, required=True)
parser.add_argument("--max-length", type=int, required=True)
parser.add_argument("--threads", type=int, required=True)
parser.add_argument("--learning-rate", type=float, required=True)
parser.add_argument("--scale", type=float, required=True)
parser.add_argument("--fsdp1", action="store_true")
options = parser.parse_args()

import torch  # noqa: E402

torch.set_num_threads(options.threads)
from datasets import Dataset  # noqa: E402
from sentence_transformers import (SentenceTransformer, SentenceTransformerTrainer,  # noqa: E402
                                   SentenceTransformerTrainingArguments)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss  # noqa: E402
from torch.utils.data import BatchSampler, SequentialSampler  # noqa: E402
from transformers import TrainerCallback  # noqa: E402

is_main = os.environ.get("RANK", "0") == "0"


class FileOrderTrainer(SentenceTransformerTrainer):
    def get_batch_sampler(self, dataset, batch_size, drop_last, **_):
        return BatchSampler(SequentialSampler(dataset), batch_size=batch_size, drop_last=drop_last)


class StepLog(TrainerCallback):
    def __init__(self, path):
        self.file = open(path, "w", encoding="ascii")

    def on_log(self, args, state, control, logs=None, **_):
        if logs and "loss" in logs:
            self.file.write(json.dumps({"step": state.global_step, "loss": float(logs["loss"])}) + "\n")
            self.file.flush()


def let_fsdp1_run_on_cpus():
    """Without this accelerate raises (or trains without sharding) when the ranks have no accelerator."""
    from accelerate.state import PartialState
    from accelerate.utils import DistributedType
    from torch.distributed.fsdp import FullyShardedDataParallel
    PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    original = FullyShardedDataParallel.__init__

    def on_cpu(self, *arguments, **keywords):
        keywords["device_id"] = torch.device("cpu")
        original(self, *arguments, **keywords)

    FullyShardedDataParallel.__init__ = on_cpu


model = SentenceTransformer(options.model, device="cpu", config_kwargs={
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})
model.max_seq_length = options.max_length
with open(options.pairs, encoding="utf-8") as file:
    rows = [json.loads(line) for _, line in zip(range(options.rows), file)]
data = Dataset.from_dict({column: [row[column] for row in rows] for column in ("anchor", "positive")})
sharding = {}
if options.fsdp1:
    sharding = {"fsdp": "full_shard auto_wrap",
                "fsdp_config": {"version": 1, "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                                "transformer_layer_cls_to_wrap": ["BertLayer"], "sync_module_states": "false"}}
arguments = SentenceTransformerTrainingArguments(
    output_dir=options.out, max_steps=options.steps, per_device_train_batch_size=options.batch, use_cpu=True,
    learning_rate=options.learning_rate, lr_scheduler_type="linear", warmup_steps=3, weight_decay=0.0,
    max_grad_norm=1.0, logging_steps=1, logging_nan_inf_filter=False, save_strategy="no", eval_strategy="no",
    report_to="none", disable_tqdm=True, dataloader_pin_memory=False, dataloader_drop_last=True, seed=42, **sharding)
if options.fsdp1:
    let_fsdp1_run_on_cpus()
is_distributed = int(os.environ.get("WORLD_SIZE", "1")) > 1
loss = MultipleNegativesRankingLoss(model, scale=options.scale, gather_across_devices=is_distributed)
trainer = FileOrderTrainer(model=model, args=arguments, train_dataset=data, loss=loss,
                           callbacks=[StepLog(options.step_log)] if is_main else [])
trainer.train()
# Under FSDP1 the trainer's save is broken (what it writes does not load), so that case writes nothing.
if is_main and not options.fsdp1:
    model.save_pretrained(options.out)
