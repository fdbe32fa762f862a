"""What a job and its recording are apart from events: optimizer, loader, software, step times.

Comes out: plain dictionaries, as `TraceMeta` keeps them.
"""

from __future__ import annotations

import math
import os
import shlex
import sys
import time
from typing import TYPE_CHECKING, Any

from foretrace.tracer.job import optimizers_of
from foretrace.tracer.recording.live_bytes import LIVE
from foretrace.tracer.recording.machine_probe import DISAGREEMENT_LIMIT, cores, probe_again
from foretrace.tracer.recording.optimizer_timer import OPTIMIZER_TIMES
from foretrace.tracer.recording.process_rank import process_rank

if TYPE_CHECKING:
    from foretrace.tracer.job import Job
    from foretrace.tracer.recording.recorder import Recorder

ALLOCATOR = "allocator"
"""In `TraceMeta.extra`: settings of the allocator, where the environment has some."""

SPARSE = "sparse_gradients"
"""In `TraceMeta.extra`: name and distinct rows of each sparse gradient, which workers exchange."""

FETCHES = 8
FETCH_LIMIT_NS = 2_000_000_000


def describe_recording(recorder: Recorder) -> dict[str, Any]:
    """Return everything about a recording that is not an event, keyed as `TraceMeta` is."""
    job = recorder.job
    machine, off = probe_again()
    return {
        "framework": framework(),
        "command": shlex.join(sys.argv),
        "batch_size": job.batch_size,
        "optimizer": describe_optimizer(job.optimizer),
        "loader": describe_loader(job.loader),
        "machine": machine,
        "unprofiled_step_ns": list(recorder.plain_ns),
        "profiled_step_ns": list(recorder.profiled_ns),
        "warnings": {
            **recorder.quality.warnings(
                computes_only=_computes_only(job),
                fits=_fits(job),
                is_whole=process_rank() is None,
            ),
            **({"operators_without_shapes": recorder.unmatched} if recorder.unmatched else {}),
            **({"probes_disagree": round(100 * off)} if off > DISAGREEMENT_LIMIT else {}),
        },
        "extra": {
            "quality": recorder.quality.summary(),
            **({OPTIMIZER_TIMES: recorder.optimizer_ns} if recorder.optimizer_ns else {}),
            "job": job.name,
            **({ALLOCATOR: settings} if (settings := allocator_settings()) else {}),
            "blocks": [[block.kind, block.steps] for block in recorder.blocks],
            "parameters": describe_parameters(job.model),
            "buffers": describe_buffers(job.model),
            **({SPARSE: sparse} if (sparse := count_sparse_rows(job.model)) else {}),
            **({LIVE: recorder.live_bytes} if recorder.live_bytes else {}),
        },
    }


def _computes_only(job: Job) -> bool:
    """Tell whether *job* waits for nobody: no device, no loader workers, no other ranks."""
    return not job.uses_cuda and job.loader is None and process_rank() is None


def _fits(job: Job) -> bool:
    """Tell whether there is a core for each thread and loader worker of *job*."""
    import torch

    busy = torch.get_num_threads() + int(getattr(job.loader, "num_workers", 0))
    return process_rank() is None and busy <= cores()


def allocator_settings() -> dict[str, str]:
    """Return what the environment sets of the allocator: it decides how often pages are fetched."""
    return {name: value for name, value in os.environ.items() if name.startswith("MALLOC_")}


def framework() -> str:
    """Return name and version of the framework."""
    import torch

    return f"torch {torch.__version__}"


def describe_optimizer(optimizer: Any) -> dict[str, Any] | None:
    """Return name, kind, sizes and memory passes of *optimizer*, one or several; ``None`` without.

    ``state_passes`` counts how often an update that touches everything once moves as many bytes as
    the parameters have: read parameter, gradient and each state, write parameter and each state.
    Adam keeps two states of the parameters' size: 7 passes; SGD with momentum one: 5.
    Of several optimizers sizes are sums, passes the mean over their bytes, and ``each`` lists them.
    Call it after a step: before that there is no state.
    """
    found = [one for one in map(_describe_one, optimizers_of(optimizer)) if one is not None]
    if len(found) < 2:  # noqa: PLR2004 - one stands for itself
        return found[0] if found else None
    size = sum(one["bytes"] for one in found)
    moved = sum(one["bytes"] * one["state_passes"] for one in found)
    kinds = {one["kind"] for one in found}
    return {
        "name": " + ".join(one["name"] for one in found),
        "kind": kinds.pop() if len(kinds) == 1 else "mixed",
        **{sizes: sum(one[sizes] for one in found) for sizes in ("parameters", "tensors", "bytes")},
        "state_passes": round(moved / size) if size else found[0]["state_passes"],
        "each": found,
    }


def _describe_one(optimizer: Any) -> dict[str, Any] | None:
    while hasattr(getattr(optimizer, "optimizer", None), "param_groups"):
        optimizer = optimizer.optimizer  # frameworks wrap it
    groups = getattr(optimizer, "param_groups", None)
    if not groups:
        return None
    tensors = [p for group in groups for p in group["params"]]
    shapes = [
        sum(getattr(s, "shape", None) == p.shape and p.dim() > 0 for s in state.values())
        for p, state in ((p, optimizer.state.get(p, {})) for p in tensors)
    ]
    return {
        "name": type(optimizer).__name__,
        "kind": _kind(groups[0], tensors),
        "parameters": sum(p.numel() for p in tensors),
        "tensors": len(tensors),
        "bytes": sum(p.numel() * p.element_size() for p in tensors),
        "state_passes": 3 + 2 * max(shapes, default=0),
    }


def describe_parameters(model: Any) -> list[list[Any]]:
    """Return name, shape and bytes per element of what *model* learns, in its order."""
    named = [] if model is None else model.named_parameters()
    return [[name, list(p.shape), p.element_size()] for name, p in named if p.requires_grad]


def count_sparse_rows(model: Any) -> list[list[Any]]:
    """Return name and distinct rows of each sparse gradient that *model* has now."""
    named = [] if model is None else model.named_parameters()
    return [
        [name, int(p.grad.coalesce().indices().shape[1])]
        for name, p in named
        if p.grad is not None and p.grad.is_sparse
    ]


def parameter_bytes(described: Any) -> int | None:
    """Return the bytes of what `describe_parameters` returned; None without any.

    >>> parameter_bytes([["weight", [4, 3], 4], ["bias", [4], 4]]), parameter_bytes("nonsense")
    (64, None)
    """
    try:
        return sum(math.prod(shape) * size for _, shape, size in described) or None
    except (TypeError, ValueError):  # a file may say anything there
        return None


def describe_buffers(model: Any) -> list[list[Any]]:
    """Return name, shape and bytes per element of the buffers of *model*, in its order."""
    named = [] if model is None else model.named_buffers()
    return [[name, list(b.shape), b.element_size()] for name, b in named]


def _kind(group: dict[str, Any], tensors: list[Any]) -> str:
    """Return how the update runs: torch takes foreach on a GPU and the loop elsewhere."""
    if group.get("fused"):
        return "fused"
    foreach = group.get("foreach")
    if foreach is None:
        foreach = "foreach" in group and all(p.is_cuda for p in tensors)
    return "foreach" if foreach else "loop"


def describe_loader(loader: Any) -> dict[str, Any] | None:
    """Return workers, prefetch, and what fetching one batch costs alone; ``None`` without one.

    ``load_ns`` is the wall time of one fetch in this process and ``cpu_share`` the part of it
    that computes; both are ``None`` for an iterator, which cannot be read twice.
    """
    if loader is None:
        return None
    workers = int(getattr(loader, "num_workers", 0))
    prefetch = getattr(loader, "prefetch_factor", None)
    load_ns, cpu_share, size = _fetch_cost(loader)
    return {
        "workers": workers,
        "prefetch": 2 if prefetch is None else int(prefetch),
        "load_ns": load_ns,
        "cpu_share": cpu_share,
        "batch_bytes": size,
    }


def _fetch_cost(loader: Any) -> tuple[int | None, float | None, int | None]:
    """Return wall ns, CPU share and bytes of one fetch; the first fetch, a cold one, is left out.

    Torch's random state is as before afterwards: the job's own order of samples is not touched.
    """
    import torch

    walls: list[int] = []
    cpus: list[int] = []
    size = None
    with torch.random.fork_rng(devices=[]):
        batches = iterate_alone(loader)
        began = time.perf_counter_ns()
        while batches is not None and len(walls) < FETCHES:
            wall, cpu = time.perf_counter_ns(), time.process_time_ns()
            batch = next(batches, None)
            if batch is None:
                break
            walls.append(time.perf_counter_ns() - wall)
            cpus.append(time.process_time_ns() - cpu)
            size = tensor_bytes(batch)
            if time.perf_counter_ns() - began > FETCH_LIMIT_NS:
                break
    if not walls:
        return None, None, None
    warm = slice(1 if len(walls) > 1 else 0, None)
    wall, cpu, count = sum(walls[warm]), sum(cpus[warm]), len(walls[warm])
    return wall // count, round(min(cpu / max(wall, 1), 1.0), 4), size


def iterate_alone(loader: Any) -> Any:
    """Return an iterator over the batches of *loader* that works in this process."""
    from torch.utils.data import DataLoader

    if not isinstance(loader, DataLoader):
        batches = iter(loader)
        return None if batches is loader else batches
    sampling = (
        {"batch_sampler": loader.batch_sampler}
        if loader.batch_sampler is not None
        else {"batch_size": None, "sampler": loader.sampler}
    )
    return iter(DataLoader(loader.dataset, collate_fn=loader.collate_fn, num_workers=0, **sampling))


def tensor_bytes(batch: Any) -> int:
    """Return the bytes of all tensors inside nested lists, tuples and dictionaries."""
    if isinstance(batch, dict):
        return sum(tensor_bytes(value) for value in batch.values())
    if isinstance(batch, list | tuple):
        return sum(tensor_bytes(value) for value in batch)
    return int(batch.numel() * batch.element_size()) if hasattr(batch, "element_size") else 0
