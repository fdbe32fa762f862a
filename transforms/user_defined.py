"""What-ifs of the user's own: run on a copy, and looked at before anybody believes the result."""

from __future__ import annotations

from dataclasses import fields, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from foretrace.errors import ForetraceError, TransformError
from foretrace.graph.check import check
from foretrace.graph.model import Graph
from foretrace.transforms.edit.primitives import MOST_NS
from foretrace.util.import_target import exit_text, first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TABLES = ("tasks", "edges", "lanes", "operators")


def run_user_defined(
    name: str, function: Callable[..., Any], graph: Graph, parameters: Mapping[str, Any]
) -> Graph:
    """Return what *function*, called *name*, makes of a copy of *graph*: it may edit in place.

    Raises
    ------
    TransformError
        It fails, ends the program, or returns no graph that holds what graphs must hold.
    """
    copies: dict[str, Any] = {table: getattr(graph, table).copy() for table in TABLES}
    try:
        changed = function(replace(graph, **copies), **parameters)
    except (ForetraceError, KeyboardInterrupt):
        raise
    except SystemExit as error:
        raise TransformError(f"{name} ended the program: {exit_text(error)}") from None
    except BaseException as error:
        text = f"{type(error).__name__}: {first_line(error)}"
        raise TransformError(f"{name} failed: {text}") from error
    if not isinstance(changed, Graph):
        raise TransformError(f"{name} returned {type(changed).__name__}: return the changed graph")
    if fault := _fault(changed, graph):
        raise TransformError(f"{name} returned a malformed graph: {fault}")
    same = {table: _one(getattr(changed, table), getattr(graph, table)) for table in TABLES}
    return replace(changed, **same)


def _one(new: pd.DataFrame, old: pd.DataFrame) -> pd.DataFrame:
    """Return *old* where *new* is an unchanged copy of it: what is shared needs no second look."""
    return old if new.equals(old) else new


def _fault(changed: Graph, graph: Graph) -> str | None:
    """Say what is wrong with *changed*, which was made of *graph*; None if nothing is."""
    for each in fields(Graph):
        value, old = getattr(changed, each.name), getattr(graph, each.name)
        wanted = Real if isinstance(old, Real) else type(old)
        if not isinstance(value, wanted):
            return f"{each.name} is {type(value).__name__}, expected {wanted.__name__}"
    try:
        check(changed)
        return _numbers(changed)
    except ForetraceError as error:
        return first_line(error)
    except Exception as error:  # noqa: BLE001 - columns may hold anything
        return f"{type(error).__name__}: {first_line(error)}"


def _numbers(graph: Graph) -> str | None:
    """Say which number of a graph, valid otherwise, cannot be replayed."""
    for table in TABLES:
        frame = getattr(graph, table)
        if not frame.index.equals(pd.RangeIndex(len(frame))):
            return f"the rows of {table} are not numbered 0, 1, 2, …; reset_index(drop=True) does"
    if not all(isinstance(note, str) for note in graph.notes):
        return "notes holds something that is no text"
    if not 0 < graph.measured_step_ns < np.inf:
        return f"measured_step_ns is {graph.measured_step_ns}, expected a time above 0"
    step = graph.tasks["step"].to_numpy()
    if len(step) and not 0 <= step.min() <= step.max() < graph.steps:
        return f"step is not from 0 to {graph.steps - 1} in every task"
    for frame, column in ((graph.tasks, "work_ns"), (graph.edges, "lag_ns")):
        if np.abs(frame[column].to_numpy().astype(np.float64)).sum() > MOST_NS:
            return f"{column} adds up to more than 115 days"
    return None
