#!/usr/bin/env python3
"""Writes fsdp2_tiny.{safetensors,json}: what PyTorch's FSDP2 (torch.distributed.fsdp.fully_shard, Gloo, CPU) computes
and communicates for tiny_bert at 2 and 3 ranks, every encoder layer wrapped and then the whole model, so that the
embeddings are the root's own parameters.

Loss: sum over rows of (1 - cos(anchor, positive)) / 12 on the first 12 rows of data/triplets.jsonl; rank r of W has the
rows [r * 12/W, (r + 1) * 12/W). It needs no exchange between ranks, and the sum of the ranks' losses is the whole loss.
FSDP2 averages gradients over ranks unless told otherwise: here set_force_sum_reduction_for_comms(True) and
set_gradient_divide_factor(1), so that the gradients are those of the whole loss. Mean pooling and Normalize are
computed outside the wrapped model, in float64 or float32. No dropout.

Gradients and the SGD steps are float64 runs; loss, gradients and norm are checked against one process without FSDP2.
The float32 run of the same code stands beside them, and so does MixedPrecisionPolicy(param_dtype=bfloat16,
reduce_dtype=float32) on float32 parameters.

usage: test/golden/make_fsdp2.py [--out test/golden]
"""
import argparse
import os
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import peers  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard  # noqa: E402
from transformers import AutoTokenizer, BertModel  # noqa: E402
from transformers.utils import logging  # noqa: E402

logging.disable_progress_bar()

ROWS = 12
MAX_LENGTH = 32
MAX_NORM = 0.01
SGD_STEPS = 3
LEARNING_RATE = 10.0
MICRO_BATCHES = 4
WORLDS = (2, 3)
WHOLE_WEIGHTS = ("embeddings.LayerNorm.weight", "encoder.layer.0.attention.self.query.weight",
                 "encoder.layer.1.output.dense.weight")
BF16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


class CollectiveCounter:
    """Counts this rank's collectives. Bytes: an all-gather's output, a reduce-scatter's input."""

    def __init__(self):
        self.reset()
        gather, scatter = dist.all_gather_single, dist.reduce_scatter_single

        def counted_gather(output, *arguments, **keywords):
            self.counts["all_gathers"] += 1
            self.counts["all_gather_bytes"] += output.nbytes
            return gather(output, *arguments, **keywords)

        def counted_scatter(output, input, *arguments, **keywords):
            self.counts["reduce_scatters"] += 1
            self.counts["reduce_scatter_bytes"] += input.nbytes
            return scatter(output, input, *arguments, **keywords)

        dist.all_gather_single, dist.reduce_scatter_single = counted_gather, counted_scatter

    def reset(self):
        self.counts = {"all_gathers": 0, "reduce_scatters": 0, "all_gather_bytes": 0, "reduce_scatter_bytes": 0}


def plain_model(dtype):
    model = BertModel.from_pretrained(HERE / "tiny_bert", add_pooling_layer=False, hidden_dropout_prob=0.0,
                                      attention_probs_dropout_prob=0.0)
    return model.to(dtype).train()


def sharded_model(mesh, dtype=torch.float32, reshard=None, policy=None, trainable=None):
    """`reshard`: of the layers; the root keeps fully_shard's default, which does not free it before backward."""
    model = plain_model(dtype)
    if trainable is not None:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name.startswith(trainable))
    options = {"mesh": mesh} if policy is None else {"mesh": mesh, "mp_policy": policy}
    for layer in model.encoder.layer:
        fully_shard(layer, reshard_after_forward=reshard, **options)
    fully_shard(model, **options)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)
            module.set_gradient_divide_factor(1.0)
    return model


class Task:
    def __init__(self, rank=0, world=1):
        own = ROWS // world
        self.rows = peers.read_rows(HERE / "data" / "triplets.jsonl", ROWS)[rank * own:(rank + 1) * own]
        self.tokenizer = AutoTokenizer.from_pretrained(str(HERE / "tiny_bert"))

    def embed(self, model, texts):
        tokens = self.tokenizer(texts, padding=True, truncation=True, max_length=MAX_LENGTH, return_tensors="pt")
        states = model(**tokens).last_hidden_state
        states = states if states.dtype == torch.float64 else states.float()
        mask = tokens["attention_mask"].unsqueeze(-1).to(states.dtype)
        return torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=1)

    def loss(self, model, rows=None, is_one_forward=True):
        rows = self.rows if rows is None else rows
        anchors, positives = [row["anchor"] for row in rows], [row["positive"] for row in rows]
        if is_one_forward:
            a, p = self.embed(model, anchors + positives).chunk(2)
        else:
            a, p = self.embed(model, anchors), self.embed(model, positives)
        return (1.0 - (a * p).sum(1)).sum() / ROWS


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def gradients_of(model):
    return {name: whole(p.grad).detach().clone() for name, p in model.named_parameters()}


def weights_of(model):
    return {name: whole(p).detach().clone() for name, p in model.named_parameters()}


def norm_of(tensors):
    return sum(float((t.double() * t.double()).sum()) for t in tensors) ** 0.5


def sum_over_ranks(value):
    total = value.detach().double().clone()
    dist.all_reduce(total)
    return total.item()


def one_backward(task, model, is_one_forward=True):
    loss = task.loss(model, is_one_forward=is_one_forward)
    loss.backward()
    gradients = gradients_of(model)
    norm = whole(torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)).item()
    return {"loss": sum_over_ranks(loss), "clip_grad_norm": norm}, gradients


def sgd(task, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    before, trace = weights_of(model), {"losses": [], "grad_norms": []}
    for _ in range(SGD_STEPS):
        figures, _ = one_backward(task, model)
        trace["losses"].append(figures["loss"])
        trace["grad_norms"].append(figures["clip_grad_norm"])
        optimizer.step()
        optimizer.zero_grad()
    after = weights_of(model)
    trace["final_weights"] = {n: {"sum": float(w.sum()), "change_norm": norm_of([w - before[n]])}
                              for n, w in after.items()}
    return trace, {n: after[n] for n in WHOLE_WEIGHTS}


def accumulate(task, model, is_synced):
    for i in range(MICRO_BATCHES):
        model.set_requires_gradient_sync(is_synced or i + 1 == MICRO_BATCHES)
        task.loss(model, task.rows[i:i + 1]).backward()


def count_collectives(mesh, task, counter):
    """Each of a second step, when nothing is done for the first time."""
    cases = {}

    def case(name, step, **options):
        model = sharded_model(mesh, **options)
        for _ in range(2):
            counter.reset()
            step(model)
            cases[name] = counter.counts
            model.zero_grad()

    for reshard, key in ((True, "reshard"), (False, "no_reshard")):
        case(f"one_forward/{key}", lambda m: task.loss(m).backward(), reshard=reshard)
        case(f"two_forwards/{key}", lambda m: task.loss(m, is_one_forward=False).backward(), reshard=reshard)
        for is_synced, how in ((False, "sync_last"), (True, "sync_each")):
            case(f"accumulate_{MICRO_BATCHES}_{how}/{key}", lambda m, s=is_synced: accumulate(task, m, s),
                 reshard=reshard)
        for layer, which in ((0, "first"), (1, "last")):
            case(f"only_{which}_layer_trainable/{key}", lambda m: task.loss(m).backward(), reshard=reshard,
                 trainable=f"encoder.layer.{layer}.")
    case("one_forward_bf16/reshard", lambda m: task.loss(m).backward(), reshard=True, policy=BF16)
    return cases


def relative_error(gradients, expected):
    return norm_of(gradients[n].double() - expected[n] for n in expected) / norm_of(expected.values())


def run_rank(rank, world, folder):
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    counter = CollectiveCounter()
    dist.init_process_group("gloo", init_method=f"file://{folder}/store{world}", rank=rank, world_size=world)
    mesh, task = init_device_mesh("cpu", (world,)), Task(rank, world)
    figures, gradients = one_backward(task, sharded_model(mesh, torch.float64))
    _, two_forwards = one_backward(task, sharded_model(mesh, torch.float64), is_one_forward=False)
    if relative_error(two_forwards, gradients) > 1e-12:
        raise RuntimeError("one forward and two disagree")
    figures["float32"], gradients_fp32 = one_backward(task, sharded_model(mesh))
    figures["float32"]["relative_error"] = relative_error(gradients_fp32, gradients)
    figures["bf16"], gradients_bf16 = one_backward(task, sharded_model(mesh, policy=BF16))
    figures["bf16"]["relative_error"] = relative_error(gradients_bf16, gradients)
    figures["sgd"], weights = sgd(task, sharded_model(mesh, torch.float64))
    figures["collectives"] = count_collectives(mesh, task, counter)
    if rank == 0:
        torch.save({"figures": figures, "gradients": gradients, "gradients_bf16": gradients_bf16, "weights": weights},
                   f"{folder}/result{world}")
    dist.destroy_process_group()


def check_against_one_process(result):
    model = plain_model(torch.float64)
    loss = Task().loss(model)
    loss.backward()
    expected = gradients_of(model)
    if abs(result["figures"]["loss"] - loss.item()) > 1e-12 or relative_error(result["gradients"], expected) > 1e-12:
        raise RuntimeError("FSDP2 and one process disagree")
    if abs(result["figures"]["clip_grad_norm"] / norm_of(expected.values()) - 1) > 1e-12:
        raise RuntimeError("FSDP2's norm is not that of all gradients")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    arguments = parser.parse_args()
    content = {"rows": ROWS, "max_norm": MAX_NORM, "learning_rate": LEARNING_RATE, "sgd_steps": SGD_STEPS,
               "micro_batches": MICRO_BATCHES}
    with torch.device("meta"):
        names = [name for name, _ in BertModel(BertModel.config_class.from_pretrained(HERE / "tiny_bert"),
                                               add_pooling_layer=False).named_parameters()]
    content["root_parameters"] = [name for name in names if not name.startswith("encoder.layer.")]
    tensors = {}
    for world in WORLDS:
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(run_rank, args=(world, folder), nprocs=world)
            result = torch.load(f"{folder}/result{world}")
        check_against_one_process(result)
        content[f"ranks{world}"] = result["figures"]
        for key in ("gradients", "gradients_bf16", "weights"):
            tensors.update({f"ranks{world}/{key}/{n}": t.float().contiguous() for n, t in result[key].items()})
    path = arguments.out / "fsdp2_tiny.safetensors"
    save_file(tensors, path, metadata={"peers": " ".join(f"{k}={v}" for k, v in peers.VERSIONS.items())})
    os.chmod(path, 0o644)
    peers.write_json(arguments.out / "fsdp2_tiny.json", content)


if __name__ == "__main__":
    main()
