"""Time what cannot be taken apart: a whole optimizer update, a checkpointed segment's overhead.

An update depends on values (zeros and denormals are slow on a CPU), so it is run on copies of the
job's own parameters, gradients and state.
"""

from __future__ import annotations

import copy
import inspect
import math
import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.checkpoint import checkpoint

from foretrace.errors import RecordError
from foretrace.tracer.calibration.file import Timing
from foretrace.tracer.calibration.operator_timer import spread
from foretrace.tracer.job import optimizers_of, runner
from foretrace.tracer.timing import subtract_absence, watch_core

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from foretrace.tracer.job import Job

AS_IT_IS = ""
FLAGS = {
    "loop": {"foreach": False, "fused": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
RUNS = 7
FLUSH_BYTES = 64 << 20  # as much as forward and backward touch in between
CHECKPOINT_RUNS = 25


def update_times(job: Job, kinds: Sequence[str]) -> dict[str, Timing]:
    """Time one update of *job*'s optimizers as they are, under "", and as each of *kinds*.

    Runs one step of the job, for its gradients. Of several optimizers those are timed, one after
    the other, that have all *kinds*.

    Raises
    ------
    RecordError
        There is no optimizer, it has no gradients, or none has such kinds.
    """
    given = [getattr(one, "optimizer", one) for one in optimizers_of(job.optimizer)]
    if not given:  # some wrap the real one
        raise RecordError(f"{job.name!r} names no optimizer: give Job(optimizer=...)")
    optimizers = [one for one in given if all(_has(one, kind) for kind in kinds)]
    if not optimizers:
        _flags(given[0], next(kind for kind in kinds if not _has(given[0], kind)))
    gradients = _gradients(job, optimizers)
    copies = {
        kind: [_copy(one, gradients, _flags(one, kind) if kind else {}) for one in optimizers]
        for kind in (AS_IT_IS, *kinds)
    }
    return _time_in_turn(
        {kind: partial(_step_all, new) for kind, new in copies.items()},
        RUNS,
        FLUSH_BYTES,
        _device(gradients.values()),
        before=lambda kind: _touch_as_backward(copies[kind]),
    )


def _step_all(optimizers: Sequence[Any]) -> None:
    for each in optimizers:
        each.step()


def _touch_as_backward(optimizers: Sequence[Any]) -> None:
    """Touch weights and gradients in the order in which backward does: the last are in cache."""
    groups = [group for one in optimizers for group in one.param_groups]
    with torch.no_grad():
        for parameter in (p for group in reversed(groups) for p in reversed(group["params"])):
            if parameter.grad is not None:
                parameter.sum()
                parameter.grad.mul_(1)


def _has(optimizer: Any, kind: str) -> bool:
    """Tell whether the class of *optimizer* has the form *kind*."""
    parameters = inspect.signature(type(optimizer)).parameters
    wanted = FLAGS.get(kind, {})
    return kind == "loop" or any(value and name in parameters for name, value in wanted.items())


def _flags(optimizer: Any, kind: str) -> dict[str, bool]:
    if not _has(optimizer, kind):
        raise RecordError(f"{type(optimizer).__name__} has no form {kind!r}")
    parameters = inspect.signature(type(optimizer)).parameters
    return {name: value for name, value in FLAGS.get(kind, {}).items() if name in parameters}


def _gradients(job: Job, optimizers: Sequence[Any]) -> dict[Any, torch.Tensor]:
    """Return a copy of the gradients that *optimizers* find in a step, by parameter."""
    gradients: dict[Any, torch.Tensor] = {}

    def keep(optimizer: Any, *_arguments: Any) -> None:
        for group in optimizer.param_groups:
            gradients.update({p: p.grad.clone() for p in group["params"] if p.grad is not None})

    hooks = [optimizer.register_step_pre_hook(keep) for optimizer in optimizers]
    try:
        runner(job)()
    finally:
        for hook in hooks:
            hook.remove()
    if not gradients:
        raise RecordError(f"the optimizer of {job.name!r} was not called, or found no gradients")
    return gradients


def _copy(optimizer: Any, gradients: Mapping[Any, torch.Tensor], flags: Mapping[str, bool]) -> Any:
    """Return an optimizer of the same class and state on copies, with other *flags*."""
    groups = []
    for group in optimizer.param_groups:
        copies = [parameter.detach().clone().requires_grad_() for parameter in group["params"]]
        for parameter, original in zip(copies, group["params"], strict=True):
            parameter.grad = gradients[original].clone() if original in gradients else None
        options = {name: value for name, value in group.items() if name != "params"}
        groups.append(
            {**options, "params": copies, **(_clear_flags(group) if flags else {}), **flags}
        )
    new = type(optimizer)(groups)
    state = copy.deepcopy(optimizer.state_dict())
    for saved, group in zip(state["param_groups"], groups, strict=True):
        saved.update({name: value for name, value in group.items() if name != "params"})
    new.load_state_dict(state)
    return new


def _clear_flags(group: Mapping[str, Any]) -> dict[str, bool]:
    return {name: False for name in ("foreach", "fused") if name in group}


def checkpoint_times(device: str) -> Timing:
    """Time what a checkpointed segment costs the host beyond running its forward twice."""
    layer = torch.nn.Linear(8, 8).to(device)
    x = torch.ones(8, 8, device=device, requires_grad=True)
    forms: dict[str, Callable[[], object]] = {
        "forward": lambda: layer(x),
        "both": lambda: layer(x).sum().backward(),
        "checkpointed": lambda: checkpoint(layer, x, use_reentrant=False).sum().backward(),
    }
    times = _time_in_turn(forms, CHECKPOINT_RUNS, FLUSH_BYTES // 8, device)
    extra = times["checkpointed"].ns - times["both"].ns - times["forward"].ns
    return Timing(ns=max(extra, 0.0), spread=times["checkpointed"].spread)


def _time_in_turn(
    forms: Mapping[str, Callable[[], object]],
    runs: int,
    flush_bytes: int,
    device: str,
    before: Callable[[str], object] = lambda _name: None,
) -> dict[str, Timing]:
    """Run each form in turn, after a warm run, the caches emptied and *before* called each time."""
    flush = torch.ones(flush_bytes // 4, device=device)
    host: dict[str, list[int]] = {name: [] for name in forms}
    kernels: dict[str, list[float]] = {name: [] for name in forms}
    for turn in range(1 + runs):
        for name, run in forms.items():
            flush.add_(1)
            before(name)
            host_ns, device_ns = _once(run, device)
            if turn:
                host[name].append(host_ns)
                kernels[name].append(device_ns)
    return {
        name: Timing(float(median(host[name])), median(kernels[name]), spread(host[name]))
        for name in forms
    }


def _once(run: Callable[[], object], device: str) -> tuple[int, float]:
    """Return what *run* takes on the host and on the device, in ns."""
    if device == "cpu":
        away_ns, began = watch_core(), time.perf_counter_ns()
        run()
        length = time.perf_counter_ns() - began
        return subtract_absence(away_ns(), length), math.nan
    return _once_on_device(run)


def _once_on_device(
    run: Callable[[], object],
) -> tuple[int, float]:  # pragma: no cover - needs a GPU
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    began = time.perf_counter_ns()
    run()
    host_ns = time.perf_counter_ns() - began
    end.record()
    torch.cuda.synchronize()
    return host_ns, start.elapsed_time(end) * 1e6


def _device(tensors: Any) -> str:
    return str(next(iter(tensors)).device)
