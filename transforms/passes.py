"""Count how often an optimizer step passes over the parameters' memory.

A pass reads or writes as many bytes as the parameters have. An element-wise kernel makes one pass
per pointer it takes; a fused Adam reads parameter, gradient and two states and writes three: 7.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.columns import Mask, Rows, by_category, is_in
from foretrace.transforms.costs import floor_ns, without_floor
from foretrace.transforms.selection import require

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from foretrace.graph.model import Graph

ALREADY_FUSED = re.compile(r"(?i)fused_?(adam|sgd|adagrad|lamb)|AdamFunctor|FusedOptimizer")
NOT_THE_UPDATE = re.compile(r"(?i)non_?finite|unscale|norm|fill|memset|memcpy|zero_")
POINTERS = re.compile(r"[aA]rray<char ?\*, ?(?:\((?:int|unsigned long)\))?(\d)")
LISTS = re.compile(r"Functor<\w+, ?(?:\(int\))?\d, ?(?:\(int\))?(\d), ?(?:\(int\))?\d>")
"""Template of a multi-tensor functor: type, lists given, lists read, list written."""

UNKNOWN_PASSES = 3
ADAM_PASSES, MOMENTUM_PASSES, PLAIN_PASSES = 7, 5, 3

TENSORS_PER_LAUNCH = 36
"""Four lists (parameter, gradient, two states) fit that many tensors into one launch (PyTorch)."""


@dataclass(frozen=True)
class Update:
    """The optimizer step of a graph, per step of the job.

    ``pass_ns`` is the device time of one pass over the parameters.
    """

    where: Mask
    passes: float
    tensors: int
    pass_ns: float
    state_passes: int
    floor_ns: int

    @property
    def launches(self) -> int:
        """Kernels of a fused step."""
        return max(1, -(-self.tensors // TENSORS_PER_LAUNCH))

    @property
    def fused_ns(self) -> float:
        """Device time of a fused step."""
        return self.pass_ns * self.state_passes + self.floor_ns


def find_update(graph: Graph) -> Update:
    """Find the kernels of the optimizer step and count their passes.

    Raises
    ------
    TransformError
        There is no optimizer phase, or it is fused already.
    """
    tasks = graph.tasks
    kernels = is_in(tasks["kind"], "kernel") & is_in(tasks["phase"], "optimizer")
    require(kernels, graph, "kernel in the optimizer phase")
    if (kernels & by_category(tasks["name"], lambda n: ALREADY_FUSED.search(n) is not None)).any():
        raise TransformError("the optimizer is fused already; there is nothing to fuse")
    multi = kernels & by_category(tasks["name"], lambda n: "multi_tensor_apply" in n)
    skip = by_category(tasks["name"], lambda n: NOT_THE_UPDATE.search(n) is not None)
    where = kernels & ~skip
    where &= multi if (multi & ~skip).sum() > (where & ~multi).sum() else ~multi
    require(where, graph, "element-wise kernel in the optimizer phase")
    return _counted(graph, where, is_multi=bool((where & multi).any()))


def passes_of(name: str) -> int:
    """Return the passes one kernel makes.

    Examples
    --------
    >>> passes_of("vectorized_elementwise_kernel<4, Mul<float>, at::detail::Array<char*, 2>>")
    2
    >>> passes_of("multi_tensor_apply_kernel<PointwiseOpScalarFunctor<float, 3, 3, 0>>")
    4
    """
    pointers = POINTERS.search(name)
    if pointers:
        return int(pointers.group(1))
    lists = LISTS.search(name)
    return int(lists.group(1)) + 1 if lists else UNKNOWN_PASSES


def state_passes(optimizer: Mapping[str, Any] | None, names: list[str]) -> int:
    """Return the passes of a fused step: 7 for Adam's kind, 5 for SGD with momentum, 3 without.

    What the recorder saw decides; else a square root among the kernels gives Adam away.
    """
    if optimizer and optimizer.get("state_passes"):
        return int(optimizer["state_passes"])
    if any("sqrt" in name.lower() or "addcdiv" in name for name in names):
        return ADAM_PASSES
    return MOMENTUM_PASSES if len(names) > 1 else PLAIN_PASSES


def _lengths(graph: Graph, rows: Rows) -> npt.NDArray[np.int64]:
    """Return how long kernels took, in ns: as recorded, unless an earlier what-if changed them.

    Work leaves out what overlapped another stream's kernels; memory passes were made all the same.
    """
    tasks = graph.tasks
    recorded = is_in(tasks["cost"], "recorded") & (tasks["duration_ns"].to_numpy() > 0)
    lengths: npt.NDArray[np.int64] = np.where(recorded, tasks["duration_ns"], tasks["work_ns"])[
        rows
    ]
    return lengths


def _counted(graph: Graph, where: Mask, *, is_multi: bool) -> Update:
    tasks, floor = graph.tasks, floor_ns(graph)
    rows = np.flatnonzero(where)
    codes = tasks["name"].cat.codes.to_numpy()[rows]
    kinds, of, count = np.unique(codes, return_inverse=True, return_counts=True)
    names = [str(tasks["name"].cat.categories[code]) for code in kinds]
    each = np.array([passes_of(name) for name in names], np.float64)
    time = without_floor(_lengths(graph, rows), floor)
    spent = np.bincount(of, weights=time, minlength=len(kinds))
    optimizer = graph.meta.optimizer or {}
    tensors = int(optimizer.get("tensors") or 0)
    if is_multi:
        unit = max(float((spent / each).min()), 1.0)
        passes = float((each * np.maximum(1, np.rint(spent / each / unit))).sum())
        tensors = tensors or TENSORS_PER_LAUNCH * int(count.min() // graph.steps or 1)
    else:
        once = np.array(["addcdiv" in name for name in names])
        per_step = count[once].sum() if once.any() else count.min()
        passes = float((each * count).sum() / per_step)
        tensors = tensors or max(1, int(per_step // graph.steps))
    return Update(
        where=where,
        passes=passes,
        tensors=tensors,
        pass_ns=float(time.sum()) / graph.steps / passes,
        state_passes=state_passes(optimizer, names),
        floor_ns=floor,
    )
