"""Ways to train one job on several ranks: data parallel and fully sharded.

`TRAININGS` lists all by name, those of `message_passing` among them. Goes in: a job's name, who
takes part, options. Comes out: a `RankTraining`, which runs steps and says what it must have sent.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from benchmarks.shaped_network.message_passing import parameter_server, pipeline
from benchmarks.shaped_network.models import lone, sgd
from benchmarks.shaped_network.training import RankTraining

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from foretrace.tracer.lab.network.party import Party

FP16_SHARE = 0.5
POWER_SGD_START = 2  # torch's own hook aborts with less


def ddp(
    name: str,
    party: Party,
    *,
    cap_mb: float | None = None,
    compression: str | None = None,
    accumulation: int = 1,
    sleep_ms: float = 0,
    slow_rank: int = 1,
) -> RankTraining:
    """Train *name* with `DistributedDataParallel`.

    ``cap_mb`` is torch's ``bucket_cap_mb``, ``None`` its default. ``compression`` is "fp16",
    "powersgd" or ``None``. A step has *accumulation* forward and backward passes, all but the last
    without synchronisation. ``slow_rank`` sleeps *sleep_ms* at the start of each step.
    """
    job = lone(name)
    wrapped = DistributedDataParallel(job.network, process_group=party.group, bucket_cap_mb=cap_mb)
    _compress(wrapped, compression, party)
    sleeps_s = sleep_ms / 1e3 if party.rank == slow_rank else 0.0

    def step() -> None:
        time.sleep(sleeps_s)
        job.optimizer.zero_grad(set_to_none=True)
        for turn in range(accumulation):
            with nullcontext() if turn == accumulation - 1 else wrapped.no_sync():
                wrapped(*job.batch).backward()
        job.optimizer.step()

    share = {None: 1.0, "fp16": FP16_SHARE}.get(compression)
    sent = None if share is None else _ring_bytes(share * job.gradient_bytes, party.ranks)
    return RankTraining(step, job.clock, sent, partial(_buckets, wrapped))


def fsdp(name: str, party: Party) -> RankTraining:
    """Train *name* with ``fully_shard``, every layer a unit of its own.

    Each unit is gathered before its forward and again before its backward; its gradients are
    reduced and scattered, which gloo does by a whole all-reduce.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    job = lone(name)
    mesh = init_device_mesh("cpu", (party.ranks,))
    for layer in job.network.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(job.network, mesh=mesh)
    job.optimizer = sgd(job.network)
    gathered = (party.ranks - 1) * job.gradient_bytes // party.ranks
    sent = 2 * gathered + _ring_bytes(job.gradient_bytes, party.ranks)
    return RankTraining(job.step, None, sent)


def _compress(wrapped: DistributedDataParallel, compression: str | None, party: Party) -> None:
    if compression == "fp16":
        wrapped.register_comm_hook(party.group, default_hooks.fp16_compress_hook)
    if compression == "powersgd":
        state = powerSGD_hook.PowerSGDState(
            party.group, matrix_approximation_rank=1, start_powerSGD_iter=POWER_SGD_START
        )
        wrapped.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def _ring_bytes(size: float, ranks: int) -> int:
    """Return what each of *ranks* sends in an all-reduce of *size* bytes."""
    return round(2 * (ranks - 1) / ranks * size)


def _buckets(wrapped: DistributedDataParallel) -> dict[str, Any]:
    """Return the bytes of the buckets that torch uses after the first iteration, in order."""
    known = wrapped._get_ddp_logging_data()  # noqa: SLF001 - torch offers no public form
    sizes = known.get("rebuilt_bucket_sizes") or known.get("bucket_sizes") or ""
    return {"bucket_bytes": [int(size) for size in str(sizes).split(",") if size.strip()]}


TRAININGS: Mapping[str, Callable[..., RankTraining]] = {
    "ddp": ddp,
    "fsdp": fsdp,
    "pipeline": pipeline,
    "parameter_server": parameter_server,
}
