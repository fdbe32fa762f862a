"""Say which tasks a what-if is about: boolean masks over the tasks of a graph.

An empty selection is an error that names what was looked for and what there is instead.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.graph.model import DEVICE_KINDS
from foretrace.transforms.edit.columns import Mask, Rows, is_in, matches
from foretrace.util.patterns import compile_given, searchable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.model import Graph

SHOWN_NAMES = 3
SHOWN_CHARACTERS = 60
COMPARED_NAMES = 2000
"""Comparing two names takes the square of their lengths."""


def select(
    graph: Graph,
    *,
    pattern: str | None = None,
    kinds: Sequence[str] = (),
    phases: Sequence[str] = (),
    roles: Sequence[str] = (),
) -> Mask:
    """Return the tasks that meet every criterion given.

    Parameters
    ----------
    graph
        Where to look.
    pattern
        Regular expression searched in the task's name.
    kinds, phases
        Allowed values of the task's columns.
    roles
        Allowed roles of the task's lane.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> graph = literal([("sgemm", "kernel", 0, 5, "forward"), ("relu", "kernel", 0, 5, "forward")])
    >>> select(graph, pattern="gemm", kinds=("kernel",)).tolist()
    [True, False]
    """
    tasks = graph.tasks
    where = np.ones(len(tasks), bool)
    if pattern is not None:
        where &= matches(tasks["name"], pattern)
    if kinds:
        where &= is_in(tasks["kind"], *kinds)
    if phases:
        where &= is_in(tasks["phase"], *phases)
    if roles:
        where &= is_in(graph.lanes["role"], *roles)[tasks["lane"].to_numpy()]
    return where


def on_device(graph: Graph) -> Mask:
    """Return the tasks that run on a device."""
    return is_in(graph.tasks["kind"], *DEVICE_KINDS)


LONGEST_DISPATCH_NS = 2_000_000
"""No operator takes the host as long to dispatch (tens of us are usual, 1 ms on slow hosts): a
longer piece is other work, such as loading a library or trying algorithms out."""


def has_device(graph: Graph) -> bool:
    """Tell whether the job uses an accelerator at all; collectives may also run on a link."""
    streams = is_in(graph.lanes["kind"], "stream")[graph.tasks["lane"].to_numpy()]
    return bool((on_device(graph) & streams).any())


def within_operator(graph: Graph, pattern: str) -> Mask:
    """Return the tasks whose operator, or an operator around it, matches *pattern*."""
    if not len(graph.operators):
        return np.zeros(len(graph.tasks), bool)
    return tasks_inside(graph, matches(graph.operators["name"], pattern))


def tasks_inside(graph: Graph, operators: Mask) -> Mask:
    """Return the tasks of *operators* and of all operators inside them."""
    inside = operators
    parent = graph.operators["parent"].to_numpy().astype(np.int64)
    while True:
        wider = inside | (inside[parent] & (parent >= 0))
        if (wider == inside).all():
            break
        inside = wider
    operator = graph.tasks["operator"].to_numpy()
    return inside[operator] & (operator >= 0)


def launch_edges(graph: Graph) -> Rows:
    """Return, per task, the edge from the call that launched it; −1 where there is none."""
    edge = np.full(len(graph.tasks), -1, np.int64)
    rows = np.flatnonzero(is_in(graph.edges["kind"], "launch"))
    edge[graph.edges["dst"].to_numpy()[rows]] = rows
    return edge


def call_of(graph: Graph) -> Rows:
    """Return, per task, the call that launched it; −1 where there is none."""
    return _source_of(graph, is_in(graph.edges["kind"], "launch"))


def task_before(graph: Graph) -> Rows:
    """Return, per device task, the one before it on its stream in the window; −1: none."""
    edges = graph.edges
    return _source_of(graph, is_in(edges["kind"], "stream") & (edges["shift"].to_numpy() == 0))


def _source_of(graph: Graph, edges: Mask) -> Rows:
    """Return, per task, where the one of *edges* comes from that ends there; −1: nowhere."""
    source = np.full(len(graph.tasks), -1, np.int64)
    source[graph.edges["dst"].to_numpy()[edges]] = graph.edges["src"].to_numpy()[edges]
    return source


def first_per_step(graph: Graph, where: Mask) -> Rows:
    """Return the first selected task of each step."""
    rows = np.flatnonzero(where)
    step = graph.tasks["step"].to_numpy()[rows]
    order = np.lexsort((rows, graph.tasks["start_ns"].to_numpy()[rows], step))
    _, first = np.unique(step[order], return_index=True)
    return rows[order][first]


def rank_of_tasks(graph: Graph) -> Rows:
    """Return the rank of each task."""
    rank = graph.lanes["rank"].to_numpy().astype(np.int64)
    return rank[graph.tasks["lane"].to_numpy()]


def device_tasks_matching(graph: Graph, pattern: str) -> Mask:
    """Return the kernels, copies and collectives whose name matches *pattern*.

    With the collectives of several ranks go the transfers for which they meet.

    Raises
    ------
    TransformError
        There is none; the text has names that there are.
    """
    device = on_device(graph)
    if not device.any():
        raise TransformError(
            "nothing to change: no device task in this graph; try faster_host or faster_modules "
            "for a CPU job"
        )
    where = select(graph, pattern=pattern, kinds=DEVICE_KINDS)
    where |= _transfers_of(graph, where)
    return require(where, graph, f"device task matching {pattern!r}", like=pattern, among=device)


def _transfers_of(graph: Graph, where: Mask) -> Mask:
    """Return the transfers for which collectives among *where* meet."""
    meets = np.flatnonzero(is_in(graph.edges["kind"], "collective"))
    src, dst = (graph.edges[end].to_numpy()[meets] for end in ("src", "dst"))
    transfers = np.zeros(len(where), bool)
    transfers[dst[where[src]]] = True
    return transfers


def require(
    where: Mask,
    graph: Graph,
    looked_for: str,
    *,
    like: str | None = None,
    among: Mask | None = None,
) -> Mask:
    """Return *where*, or raise when it selects nothing.

    Raises
    ------
    TransformError
        Names *looked_for*; with *like*, also the closest names of tasks, only of those *among*.
    """
    if where.any():
        return where
    hint = ""
    if like is not None:
        names = graph.tasks["name"][slice(None) if among is None else among].astype(str).unique()
        shown = ", ".join(_closest(like, names, 0.4))
        hint = f"; closest names: {shown}" if shown else ""
    raise TransformError(f"nothing to change: no {looked_for} in this graph{hint}")


def _closest(like: str, names: Sequence[str], likeness: float) -> list[str]:
    """Return those of the first *names* that are most *like* it, or the first; all shortened."""
    shown = [name[:SHOWN_CHARACTERS] for name in names[:COMPARED_NAMES]]
    close = difflib.get_close_matches(like[:SHOWN_CHARACTERS], shown, SHOWN_NAMES, likeness)
    return close or shown[:SHOWN_NAMES]


def modules_matching(graph: Graph, pattern: str) -> tuple[Rows, list[str]]:
    """Return, per task, the module matching *pattern* that it runs in, and those modules.

    A match begins and ends at the dots of a module's path: "blocks.1" finds blocks.1 and what is
    inside it, not blocks.10; "mlp" finds every mlp. A task outside of all has −1.

    Raises
    ------
    TransformError
        The recording names no modules, or none matches; the text has some that there are.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> import pandas as pd
    >>> paths = pd.Categorical(["blocks.0.mlp.fc", "blocks.0.mlp", "head"])
    >>> graph = literal([("a", "host", 0, 5, None)] * 3, columns={"module": paths})
    >>> modules_matching(graph, "mlp")
    (array([ 0,  0, -1]), ['blocks.0.mlp'])
    """
    column = graph.tasks["module"]
    paths = [
        str(path) for path in column.cat.categories[np.unique(column.cat.codes[column.notna()])]
    ]
    if not paths:
        raise TransformError(
            "nothing to change: this trace names no modules; record it with foretrace record, "
            "and give the job its model"
        )
    compile_given(pattern, TransformError)
    inside = compile_given(rf"(?:^|\.)(?:{pattern})(\.|$)", TransformError)
    found = {path: inside.search(searchable(path)) for path in paths}
    module_of = {path: path[: match.start(inside.groups)] for path, match in found.items() if match}
    if not module_of:
        raise TransformError(
            f"nothing to change: no module matching {pattern!r} in this graph; "
            f"closest modules: {', '.join(_closest(pattern, paths, 0.3))}"
        )
    modules = sorted(set(module_of.values()))
    place = {module: number for number, module in enumerate(modules)}
    index = [place[module_of[p]] if p in module_of else -1 for p in map(str, column.cat.categories)]
    return np.array([*index, -1], np.int64)[column.cat.codes.to_numpy()], modules
