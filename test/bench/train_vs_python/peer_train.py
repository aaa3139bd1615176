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
parser.add_argument("--fsdp", type=int, choices=(1, 2), help="the version; unset: DDP, or one process")
parser.add_argument("--adapter", help="a PEFT adapter's directory: train that on a frozen model")
parser.add_argument("--quantized", action="store_true", help="the frozen model in NF4, computing in float32")
parser.add_argument("--collectives", default="", help="write here what the second step issues on rank 0")
options = parser.parse_args()

import torch  # noqa: E402

torch.set_num_threads(options.threads)
from datasets import Dataset  # noqa: E402
from sentence_transformers import (SentenceTransformer, SentenceTransformerTrainer,  # noqa: E402
                                   SentenceTransformerTrainingArguments)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss  # noqa: E402
from torch.distributed.tensor import DTensor  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
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


class CollectiveCounter(TorchDispatchMode):
    """Counts collectives below torch.distributed, whoever issues them.

    Bytes: an all-gather's output, a reduce-scatter's input, an all-reduce's tensors.
    """

    # Operator: what it counts as, which argument's bytes (None: those of the result).
    KINDS = {"c10d::allgather_": ("all_gathers", 0), "c10d::_allgather_base_": ("all_gathers", 0),
             "c10d::reduce_scatter_": ("reduce_scatters", 1), "c10d::_reduce_scatter_base_": ("reduce_scatters", 1),
             "c10d::allreduce_": ("all_reduces", 0), "_c10d_functional::all_reduce": ("all_reduces", 0),
             "_c10d_functional::all_gather_into_tensor": ("all_gathers", None),
             "_c10d_functional::reduce_scatter_tensor": ("reduce_scatters", 0)}

    def __init__(self):
        super().__init__()
        self.counts = {"all_gathers": 0, "reduce_scatters": 0, "all_reduces": 0, "bytes": 0}

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # what it issues itself comes back here
        result = function(*arguments, **(keywords or {}))
        kind, argument = self.KINDS.get(function.name(), (None, None))
        if kind is not None:
            self.counts[kind] += 1
            self.counts["bytes"] += nbytes(result if argument is None else arguments[argument])
        return result


def nbytes(tensors):
    return tensors.nbytes if isinstance(tensors, torch.Tensor) else sum(nbytes(t) for t in tensors)


class CountSecondStep(TrainerCallback):
    """The first step does things once. Dispatching through Python costs time: the driver leaves this step out."""

    def __init__(self, path):
        self.path, self.counter = path, CollectiveCounter()

    def on_step_begin(self, args, state, control, **_):
        if state.global_step == 1:
            self.counter.__enter__()

    def on_step_end(self, args, state, control, **_):
        if state.global_step == 2:
            self.counter.__exit__(None, None, None)
            with open(self.path, "w", encoding="ascii") as file:
                json.dump(self.counter.counts, file)


def let_fsdp_run_on_cpus():
    """Without this accelerate raises (FSDP1) or trains with DDP (FSDP2) when the ranks have no accelerator."""
    from accelerate.state import PartialState
    from accelerate.utils import DistributedType
    from torch.distributed.fsdp import FullyShardedDataParallel
    PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    original = FullyShardedDataParallel.__init__

    def on_cpu(self, *arguments, **keywords):
        keywords["device_id"] = torch.device("cpu")
        original(self, *arguments, **keywords)

    FullyShardedDataParallel.__init__ = on_cpu


loading = {}
if options.quantized:
    from transformers import BitsAndBytesConfig
    loading = {"quantization_config": BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=False,
        bnb_4bit_compute_dtype=torch.float32)}
model = SentenceTransformer(options.model, device="cpu", model_kwargs=loading, config_kwargs={
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})
if options.adapter:
    from peft import PeftModel
    PeftModel.from_pretrained(model[0].model, options.adapter, is_trainable=True)  # wraps the linears in place
model.max_seq_length = options.max_length
with open(options.pairs, encoding="utf-8") as file:
    rows = [json.loads(line) for _, line in zip(range(options.rows), file)]
data = Dataset.from_dict({column: [row[column] for row in rows] for column in ("anchor", "positive")})
if options.fsdp == 2:  # accelerate takes the parameterless Normalize for a norm to shard; the loss normalizes anyway
    for index in reversed([i for i, module in enumerate(model) if type(module).__name__ == "Normalize"]):
        del model[index]
sharding = {}
if options.fsdp == 1:
    sharding = {"fsdp": "full_shard auto_wrap",
                "fsdp_config": {"version": 1, "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                                "transformer_layer_cls_to_wrap": ["BertLayer"], "sync_module_states": "false"}}
if options.fsdp == 2:
    sharding = {"fsdp": True, "fsdp_config": {"version": 2, "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                                              "transformer_layer_cls_to_wrap": ["BertLayer"],
                                              "reshard_after_forward": True}}
arguments = SentenceTransformerTrainingArguments(
    output_dir=options.out, max_steps=options.steps, per_device_train_batch_size=options.batch, use_cpu=True,
    learning_rate=options.learning_rate, lr_scheduler_type="linear", warmup_steps=3, weight_decay=0.0,
    max_grad_norm=1.0, logging_steps=1, logging_nan_inf_filter=False, save_strategy="no", eval_strategy="no",
    report_to="none", disable_tqdm=True, dataloader_pin_memory=False, dataloader_drop_last=True, seed=42, **sharding)
if options.fsdp:
    let_fsdp_run_on_cpus()
is_distributed = int(os.environ.get("WORLD_SIZE", "1")) > 1
loss = MultipleNegativesRankingLoss(model, scale=options.scale, gather_across_devices=is_distributed)
all_parameters = sum(p.numel() for p in model.parameters())
callbacks = [StepLog(options.step_log)] if is_main else []
if is_main and options.collectives:
    callbacks.append(CountSecondStep(options.collectives))
trainer = FileOrderTrainer(model=model, args=arguments, train_dataset=data, loss=loss, callbacks=callbacks)
trainer.train()
if options.fsdp:  # the trainer says nothing when it falls back to DDP
    held = sum(getattr(p, "_local_tensor", p).numel() for p in trainer.model_wrapped.parameters())
    if held > 0.75 * all_parameters:
        raise SystemExit(f"FSDP did not shard: a rank holds {held} of {all_parameters} parameters")
# Under FSDP the trainer's save is broken (what it writes does not load), so those cases write nothing.
if is_main and not options.fsdp:
    model.save_pretrained(options.out)
