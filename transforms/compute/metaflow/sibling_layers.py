"""Layers that read the same input: query, key and value, or the branches of a block.

In: a graph. Out: groups of them; per member its tasks in one step and pass, in order of time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.transforms.costs.kernel_names import MATRIX
from foretrace.transforms.costs.operators import activation_shape, operator_class
from foretrace.transforms.edit.columns import Mask, Rows, is_in
from foretrace.transforms.edit.select import modules_matching

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foretrace.graph.model import Graph

TRAINING = ("forward", "backward")
COMPUTING = ("pointwise", "reduce", "norm", "softmax", "attention", "embedding")

Group = list[Rows]
"""Tasks of each sibling, in order of time."""


def module_siblings(graph: Graph, pattern: str) -> list[Group]:
    """Return the modules matching *pattern* that lie in one module, per step and pass.

    Raises
    ------
    TransformError
        The recording names no modules, or none matches.
    """
    inside, modules = modules_matching(graph, pattern)
    parents = [path.rpartition(".")[0] for path in modules]
    step, phase = graph.tasks["step"].to_numpy(), graph.tasks["phase"]
    start = graph.tasks["start_ns"].to_numpy()
    groups = []

    def first(rows: Rows) -> int:
        return int(start[rows[0]])

    for parent in dict.fromkeys(parents):
        members = [i for i, path in enumerate(parents) if path == parent]
        for one in range(graph.steps):
            for name in TRAINING:
                here = (step == one) & is_in(phase, name)
                group = [_in_order(graph, here & (inside == m)) for m in members]
                groups.append(sorted((rows for rows in group if len(rows)), key=first))
    return [group for group in groups if len(group) > 1]


def operator_siblings(graph: Graph) -> list[Group]:
    """Return products that follow one another on inputs of one shape, and their backward ones.

    Only operators with recorded shapes are looked at. Backward products are found by their
    number: two per product, in reverse order, the first layer's input gradient left out.
    """
    if not len(graph.operators):
        return []
    products = {
        (step, phase): _products(graph, step, phase)
        for step in range(graph.steps)
        for phase in TRAINING
    }
    tasks = _tasks_of(graph, [row for rows in products.values() for row in rows])
    groups: list[Group] = []
    for step in range(graph.steps):
        ahead, behind = products[step, "forward"], products[step, "backward"]
        runs = list(_runs(graph, ahead))
        groups += [[tasks[ahead[i]] for i in run] for run in runs]
        missing = 2 * len(ahead) - len(behind)
        if missing not in (0, 1):
            continue
        for run in runs:
            ends = [len(behind) - 2 * i + missing for i in run]
            pairs = [behind[max(end - 2, 0) : end] for end in ends]
            groups.append([np.concatenate([tasks[row] for row in pair]) for pair in pairs if pair])
    return [group for group in groups if len(group) > 1]


def _in_order(graph: Graph, where: Mask) -> Rows:
    rows = np.flatnonzero(where)
    return rows[np.argsort(graph.tasks["start_ns"].to_numpy()[rows], kind="stable")]


def _products(graph: Graph, step: int, phase: str) -> list[int]:
    """Return the innermost products of a step and pass with known shapes, in recorded order."""
    operators = graph.operators
    kinds = [operator_class(str(name)) in MATRIX for name in operators["name"].cat.categories]
    chosen = np.array([*kinds, False])[operators["name"].cat.codes.to_numpy()]
    chosen &= (operators["step"].to_numpy() == step) & is_in(operators["phase"], phase)
    chosen &= operators["shapes"].notna().to_numpy()
    parent = operators["parent"].to_numpy()
    outer = np.zeros(len(operators), bool)
    outer[parent[chosen & (parent >= 0)]] = True
    return [int(row) for row in np.flatnonzero(chosen & ~outer)]


def _runs(graph: Graph, products: list[int]) -> Iterator[list[int]]:
    """Yield runs of positions in *products* with one name and one input shape and no other work."""
    operators = graph.operators
    names = operators["name"].astype(str).to_numpy()
    shapes = operators["shapes"]
    inputs = [activation_shape(str(names[row]), str(shapes.iat[row])) for row in products]
    work = _working(graph)
    run: list[int] = []
    for at, row in enumerate(products):
        last = products[run[-1]] if run else row
        same = bool(run) and inputs[at] == inputs[run[-1]] and names[row] == names[last]
        if same and not work[last + 1 : row].any():
            run.append(at)
            continue
        if len(run) > 1:
            yield run
        run = [at]
    if len(run) > 1:
        yield run


def _working(graph: Graph) -> Mask:
    """Return, per operator, whether it computes something but a product or a change of layout."""
    names = graph.operators["name"]
    flags = [
        operator_class(str(name)) in COMPUTING and not str(name).endswith("add_")
        for name in names.cat.categories
    ]
    return np.array([*flags, False])[names.cat.codes.to_numpy()]


def _tasks_of(graph: Graph, products: list[int]) -> dict[int, Rows]:
    """Return the tasks of each product, with those of the products directly around it."""
    names = graph.operators["name"].astype(str).tolist()
    parent = graph.operators["parent"].tolist()
    root = [-1] * len(parent)
    for product in products:
        top = product
        while parent[top] >= 0 and operator_class(names[parent[top]]) in MATRIX:
            top = parent[top]
        root[top] = product
    for row, above in enumerate(parent):  # a parent stands before its children
        if root[row] < 0 <= above:
            root[row] = root[above]
    of_task = np.array([*root, -1])[graph.tasks["operator"].to_numpy()]
    order = np.lexsort((graph.tasks["start_ns"].to_numpy(), of_task))
    wanted = np.array(products)
    first, last = (np.searchsorted(of_task[order], wanted, side) for side in ("left", "right"))
    return {p: order[a:b] for p, a, b in zip(products, first.tolist(), last.tolist(), strict=True)}
