"""Which operators belong to which optimizer's update, in jobs that have several.

In: `InferredRank` and the operator row of each event. Out: per update of a step, the optimizer's
class and its operator rows; nothing for a job with one update a step.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import numpy as np

from foretrace.graph.state import OptimizerUpdate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.infer.rank import InferredRank

    Ints = NDArray[np.int64]

_RANGE = re.compile(r"^Optimizer\.step#(\w+)\.step")


def find_updates(
    rank: InferredRank, operator_of: Ints, step_of: Ints
) -> tuple[OptimizerUpdate, ...]:
    """Return the updates of a step; *step_of* is the step of each operator row."""
    events = rank.events
    ranges = np.flatnonzero(events.is_kind("annotation", "op") & events.named(_RANGE))
    ranges = ranges[np.argsort(events.start_ns[ranges], kind="stable")]
    inner = np.flatnonzero(operator_of[: len(events)] >= 0)
    inner = inner[np.argsort(events.start_ns[inner], kind="stable")]
    start = events.start_ns[inner]
    seen: Counter[tuple[int, str]] = Counter()
    rows: dict[tuple[str, int], list[int]] = defaultdict(list)
    for place in ranges.tolist():
        begin = events.start_ns[place]
        first, last = np.searchsorted(start, [begin, begin + events.duration_ns[place]])
        own = inner[first:last]
        own = operator_of[own[events.thread[own] == events.thread[place]]]
        if not len(own):
            continue
        found = _RANGE.match(events.names[events.name[place]])
        name, step = str(found and found[1]), int(step_of[own[0]])
        rows[name, seen[step, name]] += own.tolist()
        seen[step, name] += 1
    if len(rows) < 2:  # noqa: PLR2004 - one is no question
        return ()
    return tuple(OptimizerUpdate(name, tuple(own)) for (name, _), own in rows.items())
