"""Put a what-if to the test that all built-in ones pass: `check_transform`, in one call.

For the tests of people who write their own; this project's contract test uses it too.
"""

from __future__ import annotations

import inspect
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.graph.check import check
from foretrace.graph.model import Graph
from foretrace.replaying.replay import replay

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

__all__ = ["check_transform"]

SECTIONS = ("Assumes:", "Unknown:", "Source:", ">>> ")
UNCHANGED = ("recorded", "unblocked")
WORK = ["name", "kind", "work_ns"]


def check_transform(function: Callable[..., Graph], graph: Graph, **parameters: Any) -> Graph:
    """Apply *function* to *graph* and return the result, if the what-if keeps the contract.

    It is a function of a graph and of keyword-only parameters; its docstring gives the effect,
    then ``Assumes:``, ``Unknown:``, ``Source:`` and an example. It leaves its input alone, gives
    the same output twice, a valid graph that replays, a ``cost`` label to everything that costs
    something new, and a note on what it assumed.

    Raises
    ------
    AssertionError
        The contract is broken; the text says where.
    ForetraceError
        The what-if does not apply to *graph*.

    Examples
    --------
    >>> from foretrace.transforms.registry import TRANSFORMS
    >>> from foretrace.graph.literal import literal
    >>> graph = literal([("gemm", "kernel", 0, 10, None)])
    >>> check_transform(TRANSFORMS["faster_kernels"], graph, speedup=2).tasks.work_ns.tolist()
    [5]
    """
    check_description(function)
    before = pickle.dumps(_tables(graph))
    changed = function(graph, **parameters)
    again = function(graph, **parameters)
    name = getattr(function, "__name__", "the what-if")
    assert isinstance(changed, Graph), f"{name} returned {type(changed).__name__}, no Graph"
    assert pickle.dumps(_tables(graph)) == before, f"{name} changed the graph it was given"
    assert _equal(changed, again), f"{name} gave two results for one graph"
    assert replay(check(changed)).step_ns >= 0
    _check_labels(name, graph, changed)
    if not _equal(changed, graph):
        assert set(changed.notes) - set(graph.notes), f"{name} left no note on what it assumed"
    return changed


def check_description(function: Callable[..., Graph]) -> None:
    """Raise AssertionError where signature or docstring of *function* lack something."""
    first, *others = inspect.signature(function).parameters.values()
    name = getattr(function, "__name__", "the what-if")
    assert first.name == "graph", f"{name}: call the first parameter graph"
    for parameter in others:
        is_named = parameter.kind is inspect.Parameter.KEYWORD_ONLY
        assert is_named, f"{name}: make {parameter.name} keyword-only, with a * before it"
    text = inspect.getdoc(function) or ""
    places = [text.find(section) for section in SECTIONS]
    assert text.split("\n")[0].endswith("."), f"{name}: begin the docstring with the effect"
    for section, place in zip(SECTIONS, places, strict=True):
        assert place >= 0, f"{name}: the docstring lacks {section!r}"
    assert places == sorted(places), f"{name}: order the docstring as {', '.join(SECTIONS)}"


def _tables(graph: Graph) -> tuple[pd.DataFrame, ...]:
    return graph.tasks, graph.edges, graph.lanes, graph.operators


def _equal(one: Graph, other: Graph) -> bool:
    """Tell whether all tables are equal, dtypes and order included."""
    return all(a.equals(b) for a, b in zip(_tables(one), _tables(other), strict=True))


def _check_labels(name: str, graph: Graph, changed: Graph) -> None:
    """Require a label on what costs something that no task of its name cost before."""
    kept = changed.tasks[changed.tasks["cost"].isin(UNCHANGED)]
    known = graph.tasks[graph.tasks["cost"].isin(UNCHANGED)]
    old = set(known[WORK].astype({"name": str, "kind": str}).itertuples(index=False, name=None))
    each = kept[WORK].astype({"name": str, "kind": str}).itertuples(index=False, name=None)
    unlabelled = np.flatnonzero([task not in old for task in each])
    if len(unlabelled):
        task = kept.iloc[int(unlabelled[0])]
        raise AssertionError(
            f"{name}: {task['name']} now takes {task['work_ns']} ns and is still labelled "
            f"{task['cost']!r}; give scale or insert the cost= it came from"
        )
