"""Find the operators of a calibration in a recording: which recorded operator is which entry.

An operator whose name a calibrated list holds stands for everything inside it. Per step, these
outermost operators are put beside the list in order of time; where recording and list differ,
the longest sequence that they have in common is taken.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from foretrace.transforms.costs.operators import parse_shapes
from foretrace.transforms.edit.columns import by_category, is_in
from foretrace.util.common_subsequence import common_subsequence

if TYPE_CHECKING:
    import pandas as pd

    from foretrace.graph.model import Graph
    from foretrace.transforms.edit.columns import Mask, Rows


def entries_of_operators(graph: Graph, before: pd.DataFrame) -> Rows:
    """Return, per operator row, its position in the list *before*; −1 where it has none.

    Everything inside a matched operator has the position of that operator; a last −1 is added, so
    that a task without an operator finds it.

    Parameters
    ----------
    graph
        The recording, with its table of operators.
    before
        The calibrated operators of one step, optimizer left out.
    """
    operators = graph.operators
    root = _outermost(operators, {_form(str(name)) for name in before["operator"].unique()})
    position = np.full(len(operators) + 1, -1, np.int64)
    forms = np.array([_form(str(n)) for n in operators["name"].cat.categories] or [""])
    names = forms[operators["name"].cat.codes.to_numpy()]
    steps = operators["step"].to_numpy()
    wanted = tuple(_form(str(name)) for name in before["operator"])
    is_root = root == np.arange(len(root))
    for step in range(graph.steps):
        rows = np.flatnonzero(is_root & (steps == step))
        recorded, listed = _align(tuple(names[rows].tolist()), wanted)
        position[rows[recorded]] = listed
    inside = root >= 0
    position[:-1][inside] = position[root[inside]]
    return position


def _form(name: str) -> str:
    """Return the name without the mark of an in-place form, which gradients take as they like."""
    return name.rstrip("_")


def _outermost(operators: pd.DataFrame, forms: set[str]) -> Rows:
    """Return the outermost operator with one of the names *forms* at or above each row, or −1."""
    wanted = by_category(operators["name"], lambda name: _form(name) in forms)
    wanted &= ~is_in(operators["phase"], "optimizer", "load")
    parents = operators["parent"].to_numpy().tolist()
    root = np.full(len(operators), -1, np.int64).tolist()
    for row, (parent, is_wanted) in enumerate(zip(parents, wanted.tolist(), strict=True)):
        above = root[parent] if 0 <= parent < row else -1
        root[row] = above if above >= 0 else row if is_wanted else -1
    return np.array(root, np.int64)


@lru_cache(maxsize=64)
def _align(recorded: tuple[str, ...], listed: tuple[str, ...]) -> tuple[Rows, Rows]:
    """Return the indices of both sequences that belong together; steps are alike, so remembered.

    >>> [rows.tolist() for rows in _align(("mm", "add", "relu"), ("mm", "relu"))]
    [[0, 2], [0, 1]]
    """
    left, right = common_subsequence(recorded, listed)
    return np.array(left, np.int64), np.array(right, np.int64)


def entries_of_tasks(graph: Graph, position: Rows) -> Rows:
    """Return the position of each task's operator; −1 where it has none."""
    operator = graph.tasks["operator"].to_numpy().astype(np.int64)
    entry: Rows = position[np.where(operator >= 0, operator, -1)]
    return entry


def roots(graph: Graph, position: Rows) -> Rows:
    """Return the rows of the matched operators themselves, without what is inside them."""
    parent = graph.operators["parent"].to_numpy()
    own = position[:-1]
    rows: Rows = np.flatnonzero((own >= 0) & ((parent < 0) | (position[parent] != own)))
    return rows


def agreement(graph: Graph, position: Rows, before: pd.DataFrame) -> float:
    """Return the share of matched operators whose first tensor has the calibrated shape.

    Operators without recorded shapes do not count; 1 where none has them.
    """
    shapes = graph.operators["shapes"]
    recorded = [_first_shape(str(text)) for text in shapes.cat.categories]
    listed = [_calibrated_shape(str(text)) for text in before["arguments"]]
    rows = roots(graph, position)
    codes = shapes.cat.codes.to_numpy()[rows]
    pairs = [
        (recorded[code], listed[at])
        for code, at in zip(codes.tolist(), position[rows].tolist(), strict=True)
        if code >= 0 and recorded[code] and listed[at]
    ]
    return sum(one == other for one, other in pairs) / len(pairs) if pairs else 1.0


def _first_shape(text: str) -> tuple[int, ...]:
    return next((shape for shape in parse_shapes(text) if shape), ())


def _calibrated_shape(arguments: str) -> tuple[int, ...]:
    """Return the first shape that is not empty among calibrated *arguments*.

    >>> _calibrated_shape('[{"dtype": "float32", "shape": [4, 3], "stride": [3, 1]}, 2]')
    (4, 3)
    """
    match = re.search(r'"shape": *\[([0-9, ]+)\]', arguments)
    return tuple(int(size) for size in match.group(1).split(",")) if match else ()


def changeable(graph: Graph) -> Mask:
    """Return the tasks that calibration speaks of: operators of forward and backward."""
    tasks = graph.tasks
    in_operator = tasks["operator"].to_numpy() >= 0
    return in_operator & ~is_in(tasks["phase"], "optimizer", "load")
