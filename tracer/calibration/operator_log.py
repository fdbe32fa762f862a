"""Which operators one step of a job runs, with their arguments: nothing is timed here.

Goes in: a job. Comes out: a list of `Call`, as they reach the kernels below autograd and autocast.
Views are left out, since they cost next to nothing, and so are the making of a batch and the
optimizer's update.
"""

from __future__ import annotations

import gc
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from foretrace.tracer.calibration.operator_call import Call, Operand
from foretrace.tracer.calibration.recorded_results import (
    RecordedResults,
    read_by_host,
    results_of,
)
from foretrace.tracer.job import optimizers_of, runner
from foretrace.tracer.recording.recorder import attempt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from foretrace.tracer.job import Job

KEPT_ELEMENTS = 64
"""Floating-point tensors up to this size keep their values: they are often counts or scales."""
HOST_READS = ("aten::_local_scalar_dense", "aten::equal")
DECIDED_BY_DATA = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)
"""What torch raises where a result cannot be told without values."""
SCALER = "aten::_amp_"
"""Operators of a gradient scaler: neither forward nor backward."""


def log_step(job: Job, *, is_real: bool, before: Sequence[Call] = ()) -> list[Call]:
    """Run one step of *job* and return its operators.

    A real step updates the parameters as always; without data nothing can be updated, so the
    optimizer is left out, and what values decide is as in the real step *before*, or 1.
    """
    log = _Log(is_real=is_real, before=before)
    run = runner(job, log.pause)  # what loads grows as recorded, in its own phase
    with ExitStack() as updates:
        for optimizer in _optimizers(job):
            updates.enter_context(_around_updates(optimizer, log.pause if is_real else None))
        updates.enter_context(log)
        attempt(run, f"a step of {job.name!r}")
    return log.calls


class _Log(TorchDispatchMode):
    """Sees every operator below autograd and autocast."""

    def __init__(self, *, is_real: bool, before: Sequence[Call]) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self._is_real = is_real
        self._recorded = RecordedResults(before)
        self._is_on = True

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Let operators pass unseen while this is open."""
        was_on, self._is_on = self._is_on, False
        try:
            yield
        finally:
            self._is_on = was_on

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note the operator, then run it."""
        kwargs = kwargs or {}
        if not self._is_on or _is_free(func):
            return self._run(func, args, kwargs, None)
        name = func._schema.name  # noqa: SLF001 - no public form
        is_backward = torch._C._current_graph_task_id() >= 0  # noqa: SLF001 - no public form
        phase = "backward" if is_backward else "forward"
        described = tree_map(self._describe, (args, kwargs))
        recorded = None if self._is_real else self._recorded.pass_by(name)
        result = self._run(func, args, kwargs, recorded)
        seen = tree_map(_shape_of, result) if self._is_real else None
        self.calls.append(Call(func, described, "" if name.startswith(SCALER) else phase, seen))
        return result

    def _run(self, func: Any, args: Any, kwargs: Any, recorded: Call | None) -> Any:
        """Run the operator; without data, what values decide is as in the *recorded* call."""
        if self._is_real:
            return func(*args, **kwargs)
        name = func._schema.name  # noqa: SLF001 - no public form
        if name in HOST_READS:
            dtype = torch.bool if name == "aten::equal" else args[0].dtype
            return read_by_host(recorded, dtype)
        try:
            return func(*args, **kwargs)
        except DECIDED_BY_DATA:
            if recorded is None:
                raise
            return results_of(recorded, (args, kwargs))

    def _describe(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        is_small = value.numel() <= KEPT_ELEMENTS or not value.is_floating_point()
        values = value.detach().clone() if is_small and self._is_real else None
        return Operand(tuple(value.shape), value.stride(), value.dtype, str(value.device), values)


def _is_free(function: Any) -> bool:
    """Tell whether *function* gives a view of its input, or asks a tensor about itself."""
    schema = function._schema  # noqa: SLF001 - no public form
    aliases = [result.alias_info for result in schema.returns]
    return schema.name.startswith("prim::") or any(a and not a.is_write for a in aliases)


def _shape_of(value: Any) -> Any:
    """Return a tensor as an operand without values; anything else as it is."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return value if not isinstance(value, torch.Tensor) else None
    return Operand(tuple(value.shape), value.stride(), value.dtype, str(value.device))


def _optimizers(job: Job) -> list[Any]:
    """Return every optimizer of this process: a job may have more of them than it names."""
    alive = [each for each in gc.get_objects() if issubclass(type(each), torch.optim.Optimizer)]
    named = [each for each in optimizers_of(job.optimizer) if all(each is not o for o in alive)]
    return alive + named


@contextmanager
def _around_updates(optimizer: Any, around: Callable[[], Any] | None) -> Iterator[None]:
    """Run the optimizer's ``step`` and ``zero_grad`` inside *around*; without it not at all."""

    def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if around is None:
                return None
            with around():
                return method(*args, **kwargs)

        return call

    names = ("step", "zero_grad")
    own = {name: vars(optimizer)[name] for name in names if name in vars(optimizer)}
    for name in names:
        setattr(optimizer, name, wrap(getattr(optimizer, name)))
    try:
        yield
    finally:
        for name in names:
            delattr(optimizer, name)
            if name in own:
                setattr(optimizer, name, own[name])
