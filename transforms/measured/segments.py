"""Change whole segments by what was measured: the optimizer step, gradients that are added up.

Times are ns. ``None`` means that no attached calibration tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.transforms.edit.columns import is_in, pad
from foretrace.transforms.edit.primitives import insert
from foretrace.transforms.edit.provenance import add_note, mark_measured
from foretrace.transforms.edit.remove import remove
from foretrace.transforms.edit.select import first_per_step, has_device
from foretrace.transforms.measured.calibration import calibration_of
from foretrace.transforms.measured.change import name_of, text_of

if TYPE_CHECKING:
    from foretrace.graph.model import Graph
    from foretrace.transforms.edit.columns import Mask
    from foretrace.transforms.measured.change import Transform


def segment_ns(graph: Graph, operator: str, change: Transform | None = None) -> float | None:
    """Return what one run of the segment *operator* takes after *change*."""
    calibration = calibration_of(graph)
    return None if calibration is None else calibration.segment_ns(operator, change)


def any_segment_ns(graph: Graph, operator: str) -> float | None:
    """Return what one run of the segment *operator* takes, whatever change it was timed for."""
    calibration = calibration_of(graph)
    return None if calibration is None else calibration.any_segment_ns(operator)


def segment_ratio(graph: Graph, operator: str, change: Transform) -> float | None:
    """Return how much longer a whole segment, such as "optimizer", takes after *change*."""
    old, new = segment_ns(graph, operator), segment_ns(graph, operator, change)
    return None if not old or new is None else new / old


def apply_measured_update(graph: Graph, where: Mask, change: Transform) -> Graph | None:
    """Return *graph* with the update's host tasks *where* replaced by one, as *change* measured.

    What the recording shows of the update, time between its tasks included, is multiplied by the
    ratio of the two whole segments.
    """
    ratio = segment_ratio(graph, "optimizer", change)
    if ratio is None or has_device(graph):
        return None
    edges = graph.edges
    src, dst = (edges[end].to_numpy() for end in ("src", "dst"))
    inner = is_in(edges["kind"], "thread") & where[src] & where[dst] & (edges["shift"] == 0)
    step = graph.tasks["step"].to_numpy()
    first = first_per_step(graph, where)
    spent = np.bincount(step[where], graph.tasks["work_ns"].to_numpy()[where], graph.steps)
    spent += np.bincount(step[src[inner]], edges["lag_ns"].to_numpy()[inner], graph.steps)
    changed, _ = insert(
        graph,
        first,
        place="before",
        name=f"Optimizer.step of {text_of(change)} (predicted)",
        kind="host",
        work_ns=np.rint(spent[step[first]] * ratio).astype(np.int64),
        cost="measured",
    )
    changed = remove(changed, pad(where, len(changed.tasks)), gaps="drop")
    text = f"{name_of(change)}: a whole update takes {ratio:.3g} times as long (measured)"
    return add_note(mark_measured(changed), text)
