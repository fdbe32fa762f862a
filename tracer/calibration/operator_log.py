"""Which operators one step of a job runs, with their arguments: nothing is timed here.

Goes in: a job. Comes out: a list of `Call`, as they reach the kernels below autograd and autocast.
Views are left out, since they cost next to nothing, and so is the optimizer's update.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from foretrace.tracer.job import runner
from foretrace.tracer.recording.recorder import attempt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from foretrace.tracer.job import Job

KEPT_ELEMENTS = 64
"""Floating-point tensors up to this size keep their values: they are often counts or scales."""
HOST_READS = ("aten::_local_scalar_dense", "aten::equal")
Key = tuple[str, str]
"""Operator and arguments."""
SCALER = "aten::_amp_"
"""Operators of a gradient scaler: neither forward nor backward."""


@dataclass(frozen=True)
class Operand:
    """A tensor that an operator was given: shape, strides in elements, type, maybe its values."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: str
    values: torch.Tensor | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Call:
    """One operator with its arguments; tensors among them are `Operand`."""

    function: Any
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    phase: str

    @property
    def operator(self) -> str:
        """The name that the profiler shows, such as "aten::add_"."""
        return str(self.function._schema.name)  # noqa: SLF001 - no public form

    @property
    def text(self) -> str:
        """The arguments as canonical JSON: the same text for the same work."""
        given, named = self.arguments
        return json.dumps([*given, named] if named else given, default=_plain, sort_keys=True)

    @property
    def key(self) -> Key:
        """What decides how long it takes."""
        return self.operator, self.text

    @property
    def operands(self) -> list[Operand]:
        """All tensors among the arguments, in order."""
        return [leaf for leaf in tree_leaves(self.arguments) if isinstance(leaf, Operand)]


def log_step(job: Job, *, is_real: bool) -> list[Call]:
    """Run one step of *job* and return its operators.

    A real step updates the parameters as always; without data nothing can be updated, so the
    optimizer is left out, and what the host reads from a tensor is 1.
    """
    run = runner(job)
    log = _Log(is_real=is_real)
    with _around_updates(job.optimizer, log.pause if is_real else None), log:
        attempt(run, f"a step of {job.name!r}")
    return log.calls


class _Log(TorchDispatchMode):
    """Sees every operator below autograd and autocast."""

    def __init__(self, *, is_real: bool) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self._is_real = is_real
        self._is_on = True

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Let operators pass unseen while this is open."""
        self._is_on = False
        try:
            yield
        finally:
            self._is_on = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note the operator, then run it."""
        name = func._schema.name  # noqa: SLF001 - no public form
        kwargs = kwargs or {}
        if self._is_on and not _is_free(func):
            is_backward = torch._C._current_graph_task_id() >= 0  # noqa: SLF001 - no public form
            phase = "backward" if is_backward else "forward"
            described = tree_map(self._describe, (args, kwargs))
            self.calls.append(Call(func, described, "" if name.startswith(SCALER) else phase))
        if not self._is_real and name in HOST_READS:
            return True if name == "aten::equal" else _read_without_data(args[0])
        return func(*args, **kwargs)

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


def _read_without_data(tensor: torch.Tensor) -> float | int | bool:
    """Return what the host is told when it reads *tensor*, which has no values."""
    if tensor.dtype == torch.bool:
        return True
    return 1.0 if tensor.is_floating_point() else 1


@contextmanager
def _around_updates(optimizer: Any, around: Callable[[], Any] | None) -> Iterator[None]:
    """Run the optimizer's ``step`` and ``zero_grad`` inside *around*; without it not at all."""
    if optimizer is None:
        yield
        return

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


def _plain(value: Any) -> Any:
    if isinstance(value, Operand):
        dtype = str(value.dtype).removeprefix("torch.")
        return {"shape": value.shape, "stride": value.stride, "dtype": dtype}
    return str(value)
