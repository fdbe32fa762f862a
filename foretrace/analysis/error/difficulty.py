"""A prediction in, what makes answers like it miss out: the covariates of its interval.

They are known before anything is measured. What a pair cannot tell since it was recorded quietly
(noise of the steps, what the unchanged replay misses) is joined to the interval as it is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from foretrace.analysis.unchanged.measured_step import measured_step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from foretrace.graph.model import Graph

BY_RULE = ("table", "roofline", "prior")
TIMED = ("measured",)
"""Sources of costs (`foretrace.graph.model.COSTS`). What was recorded, and what the user states,
is no guess: it adds nothing."""


class Difficulty(NamedTuple):
    """What explains how far off an answer is; 0 adds nothing to its interval.

    ``rule`` and ``timed`` are the shares of the work after the change that rules and tables gave,
    and that was timed on this machine. ``change`` is |ln| of the predicted over the measured step,
    ``python`` the share of a measured step in which no recorded operator ran.
    """

    rule: float = 0.0
    timed: float = 0.0
    change: float = 0.0
    python: float = 0.0


NONE = Difficulty()


def describe_difficulty(costs: Mapping[str, float], ratio: float, python: float) -> Difficulty:
    """Return the covariates of an answer: *costs* are shares of its work, *ratio* after to before.

    >>> describe_difficulty({"recorded": 0.5, "roofline": 0.25, "user": 0.25}, 1.0, 0.1)
    Difficulty(rule=0.25, timed=0.0, change=0.0, python=0.1)
    """
    rule, timed = (sum(costs.get(name, 0.0) for name in names) for names in (BY_RULE, TIMED))
    return Difficulty(rule, timed, abs(math.log(ratio)), python)


def python_share(graph: Graph) -> float:
    """Return the share of a measured step in which no recorded operator ran: Python, mostly."""
    work = float(graph.tasks["work_ns"].sum()) / graph.steps
    return max(0.0, 1 - work / measured_step(graph).step_ns)
