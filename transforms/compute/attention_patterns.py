"""Find unfused attention in a graph: two products with a softmax, or its gradient, between them.

In: the kernels of a graph in stream order. Out: one `Chain` per attention and pass. A softmax is
a kernel of that name, or an exponential and a sum of a model that writes its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.transforms.edit.columns import is_in, matches

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from foretrace.transforms.costs.roofline import Kernels
    from foretrace.transforms.edit.columns import Mask, Rows

LOSS_OR_ROUTER = r"(?i)log_?softmax|nll_?loss|cross_?entropy|topk|sort|routing"
SPARE = ("pointwise", "copy", "softmax", "reduce", "layout", "other", "embedding")
"""Classes that may stand between the products of a chain."""
MOST_BETWEEN = 24
"""A longer run between two products is no attention (own softmax gradients take 18 kernels)."""


@dataclass(frozen=True)
class Chain:
    """Rows of one attention in one pass, in stream order: its products, and all of its kernels."""

    products: tuple[int, ...]
    kernels: tuple[int, ...]
    is_backward: bool


def find_chains(kernels: Kernels) -> list[Chain]:
    """Return every chain of *kernels*, forward and backward, in order of their first rows."""
    found = [chain for rows in _by_stream(kernels) for chain in _on_stream(kernels, rows)]
    return sorted(found, key=lambda chain: chain.products[0])


def _by_stream(kernels: Kernels) -> Iterator[Rows]:
    tasks = kernels.graph.tasks
    rows = np.flatnonzero(kernels.where)
    lane, start = (tasks[c].to_numpy()[rows] for c in ("lane", "start_ns"))
    rows = rows[np.lexsort((rows, start, lane))]
    lane = tasks["lane"].to_numpy()[rows]
    yield from np.split(rows, np.flatnonzero(np.diff(lane)) + 1)


def _on_stream(kernels: Kernels, rows: Rows) -> Iterator[Chain]:
    """Look at every run of kernels between two products that follow one another."""
    tasks, signs = kernels.graph.tasks, _signs(kernels)
    phase, step = tasks["phase"].array, tasks["step"].to_numpy()
    where = phase.codes + len(phase.categories) * step.astype(np.int64)
    backward = is_in(tasks["phase"], "backward")
    products = np.flatnonzero(kernels.classes[rows] == "gemm")
    for at in np.flatnonzero(_may_be_attention(kernels.classes[rows], products)).tolist():
        between = rows[products[at] + 1 : products[at + 1]]
        is_backward = bool(backward[rows[products[at]]])
        around = 1 if is_backward else 0
        if at < around or not signs.found(between, is_backward=is_backward):
            continue
        inside = rows[products[at - around : at + 2 + around]]
        if len(inside) == 2 + 2 * around and len(np.unique(where[inside])) == 1:
            every = tuple(sorted([*inside.tolist(), *between.tolist()]))
            yield Chain(tuple(inside.tolist()), every, is_backward)


def _may_be_attention(classes: npt.NDArray[np.str_], products: Rows) -> Mask:
    """Tell which two neighbours of *products* have a few kernels between them, all to be spared."""
    needed = np.append(0, np.cumsum(~np.isin(classes, SPARE)))
    first, last = products[:-1] + 1, products[1:]
    few = (last > first) & (last - first <= MOST_BETWEEN)
    found: Mask = few & (needed[last] == needed[first])
    return found


@dataclass(frozen=True)
class _Signs:
    """Which kernels tell a softmax, its gradient, or something that looks like one."""

    softmax: Mask
    own: tuple[Mask, ...]
    own_gradient: tuple[Mask, ...]
    other: Mask

    def found(self, between: Rows, *, is_backward: bool) -> bool:
        """Tell whether the kernels *between* two products are those of attention."""
        own = self.own_gradient if is_backward else self.own
        is_own = all(sign[between].any() for sign in own)
        return (self.softmax[between].any() or is_own) and not self.other[between].any()


def _signs(kernels: Kernels) -> _Signs:
    names = kernels.graph.tasks["name"]
    summed = matches(names, r"sum_functor|reduce.*sum")
    return _Signs(
        softmax=matches(names, r"(?i)softmax"),
        own=(matches(names, r"exp_kernel|exp_cuda"), summed),
        own_gradient=(matches(names, "DivFunctor|div_true"), matches(names, "neg_kernel"), summed),
        other=matches(names, LOSS_OR_ROUTER),
    )
