"""How a job grows from one recorded batch size to another: two graphs in, work on a line out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from foretrace.transforms.edit.primitives import scale, scale_lags

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.graph.model import Graph

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

OWN_TIME = ("thread", "fork", "join")


def grow_towards(one: Graph, other: Graph, at: float, by_rule: Ints) -> Graph:
    """Return *one* with its work a share *at* of the way to that of *other*; 2 is twice as far.

    The work of each operator, and the host time between operators, is a line through its two
    recorded times. What has no counterpart grows *by_rule*, the work of each task of *one* at the
    size of the other.
    """
    growth = _growth(one, other, by_rule)
    everywhere = np.ones(len(growth), bool)
    grown = scale(one, everywhere, np.maximum(1 + at * (growth - 1), 0.0), cost="measured")
    lags = [_lag(graph) for graph in (one, other)]
    if not lags[0]:
        return grown
    own = one.edges["kind"].isin(OWN_TIME).to_numpy()
    return scale_lags(grown, own, max(1 + at * (lags[1] / lags[0] - 1), 0.0))


def _growth(small: Graph, large: Graph, by_rule: Ints) -> Floats:
    """Return how each task of *small* grows up to *large*: by its counterpart, else by the rule."""
    means = [_work_of_operators(graph) for graph in (small, large)]
    ratio = (means[1] / means[0].where(means[0] > 0)).rename("ratio")
    by_operator = _keys(small).join(ratio, on=list(ratio.index.names))["ratio"].to_numpy()
    work = small.tasks["work_ns"].to_numpy()
    rule = np.where(work > 0, by_rule / np.maximum(work, 1), 1.0)
    return np.where(np.isfinite(by_operator), by_operator, rule)


def _keys(graph: Graph) -> pd.DataFrame:
    """Return what a task is: its name, phase and how many like it came before it in its step."""
    tasks = graph.tasks
    key = pd.DataFrame(
        {name: tasks[name].astype(str) for name in ("name", "phase")} | {"step": tasks["step"]}
    )
    key["nth"] = key.groupby(["step", "name", "phase"], sort=False).cumcount()
    return key


def _work_of_operators(graph: Graph) -> pd.Series:
    """Return the median work over the steps, by what a task is: others disturb a step or two."""
    keys = _keys(graph).assign(work=graph.tasks["work_ns"].to_numpy())
    return keys.groupby(["name", "phase", "nth"])["work"].median()


def _lag(graph: Graph) -> float:
    """Return the untraced host time of a step, the median over the steps."""
    own = graph.edges["kind"].isin(OWN_TIME).to_numpy()
    step = graph.tasks["step"].to_numpy()[graph.edges["src"].to_numpy()[own]]
    spent = np.bincount(step, graph.edges["lag_ns"].to_numpy()[own], graph.steps)
    return float(np.median(spent))
