"""Memory traffic of an optimizer step, in passes over the parameters' memory.

A pass reads or writes as many bytes as the parameters have. An element-wise kernel makes one pass
per pointer it takes; a fused Adam reads parameter, gradient and two states and writes three: 7.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.costs.assumed import Assumed
from foretrace.transforms.costs.devices import hardware
from foretrace.transforms.costs.rules import STREAMING, floor_ns, subtract_floor
from foretrace.transforms.edit.columns import Mask, Rows, by_category, is_in, matches
from foretrace.transforms.edit.select import require, within_operator

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from foretrace.graph.model import Graph

ALREADY_FUSED = re.compile(
    r"(?i)fused_?(adam|sgd|adagrad|lamb)|FusedOptimizer|kOptimizer\d"
    r"|(Adam|SGD|Adagrad|NovoGrad)Functor|LAMBStage"
)
"""Fused updates of PyTorch, apex, DeepSpeed and bitsandbytes."""
NOT_THE_UPDATE = re.compile(r"(?i)non_?finite|unscale|norm|fill|memset|memcpy|zero_")
POINTERS = re.compile(r"[aA]rray<char ?\*, ?(?:\((?:int|unsigned long)\))?(\d)")
LISTS = re.compile(r"Functor<\w+, ?(?:\(int\))?\d, ?(?:\(int\))?(\d), ?(?:\(int\))?\d>")
"""Template of a multi-tensor functor: type, lists given, lists read, list written."""

LIST_DEPTH = re.compile(r"ListMetadata<(?:\w+, ?)?(?:\(int\))?(\d)>")
"""How many lists of tensors a multi-tensor kernel is given."""

WIDTH = 4
"""Bytes of a parameter: optimizers keep fp32."""
UNKNOWN_PASSES = 3
FUSED_PASSES = {
    "adam": 7,
    "adamw": 7,
    "lamb": 12,
    "sgd": 5,
    "sgd_plain": 3,
    "adagrad": 5,
    "rmsprop": 5,
    "lion": 5,
}
"""Passes of a fused step: parameter, gradient and each state are read, all but the gradient
written; "sgd" keeps a momentum. LAMB writes its update, reads it twice for norm and step, and the
parameter for its norm and the step (apex: 7 + 2 + 3)."""

REPEATED_PASSES = Assumed(
    "passes of a fused update over memory, over those that it needs",
    *(1.0, 1.0, 1.86),
    "apex and later PyTorch need no more (pair P8); the fused Adam of PyTorch 2.1 makes 13 passes "
    "in place of 7 (pair P14)",
    ("P8", "P14"),
    more_is_longer=True,
)
TENSORS_PER_LAUNCH = {1: 110, 2: 64, 3: 48, 4: 36, 5: 30}
"""Tensors that fit into one multi-tensor launch, by the number of lists (PyTorch, apex)."""
CHUNK = 65_536
CHUNKS_PER_LAUNCH = 320
"""Elements per block and blocks per multi-tensor launch (PyTorch, apex)."""


@dataclass(frozen=True)
class Update:
    """The optimizer step of a graph, per step of the job.

    ``pass_ns`` is the device time of one pass over the parameters; ``elements`` how many there
    are, 0 when unknown.
    """

    where: Mask
    memory_passes: float
    tensors: int
    pass_ns: float
    fused_passes: int
    floor_ns: int
    elements: int = 0

    @property
    def launches(self) -> int:
        """Kernels of a fused step: four lists (parameter, gradient, two states)."""
        by_tensors = -(-self.tensors // TENSORS_PER_LAUNCH[4])
        by_chunks = -(-self.elements // (CHUNK * CHUNKS_PER_LAUNCH))
        return max(1, by_tensors, by_chunks)

    @property
    def fused_ns(self) -> float:
        """Device time of a fused step."""
        return self.pass_ns * self.fused_passes * REPEATED_PASSES.now() + self.floor_ns


def find_update(graph: Graph, optimizer: str | None = None) -> Update:
    """Find the kernels of the optimizer step and count their memory passes.

    Parameters
    ----------
    graph
        The job.
    optimizer
        One of `FUSED_PASSES`, where the user knows better than the kernels' names tell.

    Raises
    ------
    TransformError
        There is no optimizer phase, or it is fused already.
    """
    kernels = _optimizer_kernels(graph)
    if (kernels & _match(graph, ALREADY_FUSED)).any():
        raise TransformError("the optimizer is fused already; there is nothing to fuse")
    multi = kernels & _match(graph, re.compile("multi_tensor_apply"))
    where = kernels & ~_match(graph, NOT_THE_UPDATE)
    where &= multi if (multi & where).sum() > (where & ~multi).sum() else ~multi
    require(where, graph, "element-wise kernel in the optimizer phase")
    return _count_traffic(graph, where, optimizer, is_multi=bool((where & multi).any()))


def find_any_update(graph: Graph) -> Update:
    """Find the optimizer step, fused or not.

    Raises
    ------
    TransformError
        There is no optimizer phase.
    """
    kernels = _optimizer_kernels(graph)
    where = kernels & _match(graph, ALREADY_FUSED)
    if not where.any():
        return find_update(graph)
    names = [str(name) for name in graph.tasks["name"][where].unique()]
    passes = count_fused_passes(graph.meta.optimizer, names, {})
    floor = floor_ns(graph)
    time = subtract_floor(_lengths(graph, np.flatnonzero(where)), floor).sum() / graph.steps
    launches = max(1, int(where.sum()) // graph.steps)
    recorded = int((graph.meta.optimizer or {}).get("tensors") or 0)
    return Update(
        where=where,
        memory_passes=passes,
        tensors=recorded or TENSORS_PER_LAUNCH[4] * launches,
        pass_ns=float(time) / passes,
        fused_passes=passes,
        floor_ns=floor,
        elements=_elements(graph, float(time) / passes),
    )


def host_update(graph: Graph) -> Mask:
    """Return the host tasks of the update itself: zeroing gradients is not part of it."""
    where = is_in(graph.tasks["phase"], "optimizer") & is_in(graph.tasks["kind"], "host", "launch")
    zeroing = matches(graph.tasks["name"], "zero_grad") | within_operator(graph, "zero_grad|zero_$")
    return where & ~zeroing


def _optimizer_kernels(graph: Graph) -> Mask:
    tasks = graph.tasks
    kernels = is_in(tasks["kind"], "kernel") & is_in(tasks["phase"], "optimizer")
    return require(kernels, graph, "kernel in the optimizer phase")


def _match(graph: Graph, pattern: re.Pattern[str]) -> Mask:
    return by_category(graph.tasks["name"], lambda name: pattern.search(name) is not None)


def memory_passes(name: str) -> int:
    """Return the memory passes one kernel makes.

    Examples
    --------
    >>> memory_passes("vectorized_elementwise_kernel<4, Mul<float>, at::detail::Array<char*, 2>>")
    2
    >>> memory_passes("multi_tensor_apply_kernel<PointwiseOpScalarFunctor<float, 3, 3, 0>>")
    4
    """
    pointers = POINTERS.search(name)
    if pointers:
        return int(pointers.group(1))
    lists = LISTS.search(name)
    return int(lists.group(1)) + 1 if lists else UNKNOWN_PASSES


def count_fused_passes(
    optimizer: Mapping[str, Any] | None, names: list[str], per_tensor: Mapping[str, float]
) -> int:
    """Return the passes of a fused step, as in `FUSED_PASSES`.

    What the recorder saw decides; else the kernels' names: a square root gives away Adam's kind,
    which has a second state unless it multiplies but once per tensor (RMSprop) or never (Adagrad).

    Parameters
    ----------
    optimizer
        What the recorder found out.
    names
        The update's kernels.
    per_tensor
        How often each runs, per tensor.

    Examples
    --------
    >>> count_fused_passes(None, ["MulFunctor", "addcmul", "sqrt", "addcdiv"], {"MulFunctor": 1.0})
    5
    """
    if optimizer and optimizer.get("state_passes"):
        return int(optimizer["state_passes"])
    text = " ".join(names).lower()
    if re.search("lamb(?!da)", text):
        return FUSED_PASSES["lamb"]
    if "adagrad" in text:
        return FUSED_PASSES["adagrad"]
    if all(part in text for part in ("addcdiv", "addcmul", "sqrt")):
        products = sum(n for name, n in per_tensor.items() if re.search("(?i)mul(?!ti)", name))
        products -= sum(n for name, n in per_tensor.items() if "addcmul" in name)
        is_adam = "lerp" in text or products > 1.5  # noqa: PLR2004  # two moments are scaled
        return FUSED_PASSES["adam" if is_adam else "rmsprop"]
    if "sqrt" in text or "addcdiv" in text or "adam" in text:
        return FUSED_PASSES["adam"]
    return FUSED_PASSES["sgd" if len(names) > 1 or "sgd" in text else "sgd_plain"]


def _elements(graph: Graph, pass_ns: float) -> int:
    """Return how many parameters there are; 0 when nothing tells."""
    recorded = (graph.meta.optimizer or {}).get("bytes")
    if recorded:
        return int(recorded) // WIDTH
    device = hardware(graph)
    if device is None or device.memory_gbps is None:
        return 0
    return int(pass_ns * device.memory_gbps * STREAMING) // WIDTH


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


def _count_traffic(graph: Graph, where: Mask, optimizer: str | None, *, is_multi: bool) -> Update:
    tasks, floor = graph.tasks, floor_ns(graph)
    rows = np.flatnonzero(where)
    codes = tasks["name"].cat.codes.to_numpy()[rows]
    kinds, of, count = np.unique(codes, return_inverse=True, return_counts=True)
    names = [str(tasks["name"].cat.categories[code]) for code in kinds]
    each = np.array([memory_passes(name) for name in names], np.float64)
    time = subtract_floor(_lengths(graph, rows), floor)
    spent = np.bincount(of, weights=time, minlength=len(kinds))
    recorded = graph.meta.optimizer or {}
    tensors = int(recorded.get("tensors") or 0)
    if is_multi:
        unit = max(float((spent / each).min()), 1.0)
        times = np.maximum(1, np.rint(spent / each / unit))
        passes = float((each * times).sum())
        full = _elements(graph, float(time.sum()) / graph.steps / passes) // (
            CHUNK * CHUNKS_PER_LAUNCH
        )
        launches = np.maximum(1, count // times // graph.steps - full)
        fit = np.array([fitting_tensors(name) for name in names])
        tensors = tensors or int((fit * launches).min())
    else:
        once = np.array(["addcdiv" in name for name in names])
        per_step = count[once].sum() if once.any() else count.min()
        passes = float((each * count).sum() / per_step)
        times = count / per_step
        tensors = tensors or max(1, int(per_step // graph.steps))
    pass_ns = float(time.sum()) / graph.steps / passes
    stated = {} if optimizer is None else {"state_passes": FUSED_PASSES[optimizer]}
    often = dict(zip(names, times.tolist(), strict=True))
    return Update(
        where=where,
        memory_passes=passes,
        tensors=tensors,
        pass_ns=pass_ns,
        fused_passes=count_fused_passes(stated or recorded, names, often),
        floor_ns=floor,
        elements=_elements(graph, pass_ns),
    )


def fitting_tensors(name: str) -> int:
    """Return how many tensors one launch of a multi-tensor kernel takes."""
    depth = LIST_DEPTH.search(name)
    return TENSORS_PER_LAUNCH.get(int(depth.group(1)) if depth else 4, TENSORS_PER_LAUNCH[4])
