"""How many parameters an optimizer updates, from the grids of its kernels.

In: a graph whose trace has no shapes. Out: elements per parameter, or their sum. An element-wise
kernel has a thread for every four elements of one parameter; a multi-tensor kernel has a block for
each chunk of each parameter, the last chunk of which is seldom full.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.transforms.costs.optimizer_traffic import (
    ALREADY_FUSED,
    CHUNK,
    CHUNKS_PER_LAUNCH,
    NOT_THE_UPDATE,
    fitting_tensors,
)
from foretrace.transforms.edit.columns import Mask, Rows, by_category, is_in

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

EMPTY_CHUNK = 0.75
"""Share of a chunk that a parameter leaves empty: a matrix half of its last one, a vector nearly
all of its only one, and a model has about as many of both (ResNet-18: 0.78, ResNet-50: 0.73)."""
LEAST_SHARE = 0.1
"""What takes less of the update's time than this per kind of kernel counts something else."""
VECTOR = re.compile(r"vectorized_elementwise_kernel<(?:\(int\))?(\d+)")
LEAST_VECTOR = 4
"""Elements that each thread takes in PyTorch's element-wise kernels, at least."""
HALF = re.compile(r"<(c10::)?(BFloat16|Half|__half|bf16)")


class UpdateSizes(NamedTuple):
    """Elements of each parameter in the order of the update, or one sum; bytes of an element."""

    elements: tuple[int, ...]
    width: int
    is_sum: bool


def read_update_sizes(graph: Graph, tensors: int | None = None) -> UpdateSizes | None:
    """Return the sizes of what is updated in a step; ``None`` where no grids tell them.

    *tensors* is how many parameters there are, where that is known.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> graph = literal(
    ...     [("vectorized_elementwise_kernel<4, Mul>", "kernel", 0, 9, "optimizer")],
    ...     columns={"blocks": [10], "block_threads": [64]},
    ... )
    >>> read_update_sizes(graph)
    UpdateSizes(elements=(2560,), width=4, is_sum=False)
    """
    tasks = graph.tasks
    where = is_in(tasks["kind"], "kernel") & is_in(tasks["phase"], "optimizer")
    where &= (tasks["blocks"].to_numpy() > 0) & (tasks["step"].to_numpy() >= 0)
    where &= ~_match(graph, NOT_THE_UPDATE)
    fused = where & _match(graph, ALREADY_FUSED)
    multi = where & _match(graph, re.compile("multi_tensor_apply"))
    chosen = fused if fused.any() else multi if multi.any() else where & _match(graph, VECTOR)
    rows = _of_one_pass(graph, np.flatnonzero(chosen))
    if not len(rows):
        return None
    name = str(tasks["name"].iat[rows[0]])
    width = 2 if HALF.search(name) else 4
    blocks = tasks["blocks"].to_numpy()[rows]
    if "multi_tensor_apply" not in name:
        threads = np.maximum(tasks["block_threads"].to_numpy()[rows], 0).astype(np.int64)
        vector = VECTOR.search(name)
        each = max(int(vector[1]) if vector else 0, LEAST_VECTOR)
        return _known(tuple((blocks * threads * each).tolist()), width, is_sum=False)
    chunks = int(blocks.sum())
    by_tensors = max(1, len(rows) - chunks // CHUNKS_PER_LAUNCH)
    count = tensors or (by_tensors - 0.5) * fitting_tensors(name)
    filled = max(chunks - EMPTY_CHUNK * count, 0.5 * chunks)
    return _known((round(filled * CHUNK),), width, is_sum=True)


def _known(elements: tuple[int, ...], width: int, *, is_sum: bool) -> UpdateSizes | None:
    return UpdateSizes(elements, width, is_sum) if min(elements) > 0 else None


def _of_one_pass(graph: Graph, rows: Rows) -> Rows:
    """Return the kernels of one step's pass over all parameters, in order.

    Most kinds of kernels make one pass and have the same grids; one that makes several has more.
    """
    tasks = graph.tasks
    step = tasks["step"].to_numpy()
    rows = rows[step[rows] == step[rows].max(initial=-1)]
    code, blocks = tasks["name"].cat.codes.to_numpy()[rows], tasks["blocks"].to_numpy()[rows]
    work = tasks["work_ns"].to_numpy()[rows].astype(np.float64)
    kinds, of = np.unique(code, return_inverse=True)
    if not len(kinds):
        return rows
    total, spent = (np.bincount(of, weights=each) for each in (blocks, work))
    counts = [kind for kind in range(len(kinds)) if spent[kind] >= LEAST_SHARE * spent.max()]
    common = Counter(total[kind] for kind in counts)
    size = min(common, key=lambda blocks: (-common[blocks], blocks))
    mine = rows[of == next(kind for kind in counts if total[kind] == size)]
    return mine[np.argsort(tasks["start_ns"].to_numpy()[mine], kind="stable")]


def _match(graph: Graph, pattern: re.Pattern[str]) -> Mask:
    return by_category(graph.tasks["name"], lambda name: pattern.search(name) is not None)
