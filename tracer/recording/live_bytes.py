"""What a job holds in memory between two steps: parameters, gradients, states, and the rest.

In: a `Job` whose step is over. Out: bytes, each storage counted once. Memory shared with workers of
a loader is not the allocator's and is left out.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

from foretrace.tracer.job import optimizers_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foretrace.tracer.job import Job

LIVE = "live_bytes"
"""In `TraceMeta.extra`: what `count_live_bytes` returned."""


def count_live_bytes(job: Job) -> dict[str, int]:
    """Return the bytes of parameters (with buffers), gradients, states, inputs, and in total.

    The total is of every tensor of the process on the job's device that Python knows of; inputs are
    what begins with as many entries as a step has samples and is none of the others.
    """
    import torch

    on = "cuda" if job.uses_cuda else "cpu"
    learned = _learned(job)
    buffers = [] if job.model is None else list(job.model.buffers())
    everything = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
    tensors = {
        "parameters": [*learned, *buffers],
        "gradients": [p.grad for p in learned if p.grad is not None],
        "optimizer_state": list(_states(job.optimizer)),
    }
    counted = {part: _bytes(found, on) for part, found in tensors.items()}
    known = [each for found in tensors.values() for each in found]
    mine = {id(each) for each in known}
    batches = [t for t in everything if id(t) not in mine and t.shape[:1] == (job.batch_size,)]
    return {
        **counted,
        "inputs": _bytes(batches, on),
        "total": _bytes([*everything, *known], on),
    }


def _learned(job: Job) -> list[Any]:
    """Return the parameters of the model, or those that its optimizers were given."""
    if job.model is not None:
        return list(job.model.parameters())
    groups = [g for one in optimizers_of(job.optimizer) for g in getattr(one, "param_groups", ())]
    return [parameter for group in groups for parameter in group["params"]]


def _states(optimizer: Any) -> Iterable[Any]:
    for one in optimizers_of(optimizer):
        for state in getattr(one, "state", {}).values():
            values = state.values() if isinstance(state, dict) else ()
            yield from (value for value in values if hasattr(value, "untyped_storage"))


def _bytes(tensors: Iterable[Any], on: str) -> int:
    """Return the bytes of the storages of *tensors* that lie on devices of the kind *on*."""
    sizes: dict[int, int] = {}
    for tensor in tensors:
        for part in _dense_parts(tensor, on):
            storage = part.untyped_storage()
            if on == "cuda" or not storage.is_shared():
                sizes[storage.data_ptr()] = storage.nbytes()
    return sum(sizes.values())


def _dense_parts(tensor: Any, on: str) -> tuple[Any, ...]:
    """Return what of *tensor* has a storage of its own: of a sparse one indices and values."""
    import torch

    if tensor.device.type != on:
        return ()
    if tensor.layout == torch.sparse_coo:
        return (tensor._indices(), tensor._values())  # noqa: SLF001 - the public ones want it coalesced
    return (tensor,) if tensor.layout == torch.strided else ()
