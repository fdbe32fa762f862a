"""Change a job by what was measured: operators in their old and new form, timed on the machine.

In: a graph with a calibration attached (`calibration.attach`). Out: the graph in which matched
operators cost what their new form costs, or ``None`` where the calibration does not tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from foretrace.transforms.edit.columns import is_in, pad
from foretrace.transforms.edit.primitives import chain, insert, insert_kernels, scale
from foretrace.transforms.edit.provenance import add_note, mark_measured
from foretrace.transforms.edit.remove import remove
from foretrace.transforms.edit.select import on_device
from foretrace.transforms.measured.calibration import calibration_of
from foretrace.transforms.measured.change import name_of
from foretrace.transforms.measured.job_identity import LEAST_SHARE
from foretrace.transforms.measured.operator_diff import NewForm, new_form, ratio, sum_by_place
from foretrace.transforms.measured.operator_matching import (
    changeable,
    entries_of_operators,
    entries_of_tasks,
    roots,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.graph.model import Graph
    from foretrace.transforms.edit.columns import Mask, Rows
    from foretrace.transforms.measured.change import Transform

    Floats = npt.NDArray[np.float64]


def apply_measured(graph: Graph, change: Transform, *, rest: Floats | None = None) -> Graph | None:
    """Return *graph* after *change* as calibration measured it; ``None`` where it does not tell.

    Parameters
    ----------
    graph
        The job, with a calibration attached.
    change
        The what-if with its parameters, such as ``partial(amp, dtype="bf16")``.
    rest
        Factor per task for work that the calibration leaves out (with the label "roofline"); by
        default it stays as it is.

    Notes
    -----
    A recorded operator does not cost what the same operator does alone: caches are colder or
    warmer. Where the new form runs the same kernel, it is multiplied by the ratio of the two
    timings, so that this excess grows along. Tensors of another type, or laid out in another order,
    are another kernel's, whose time alone is taken as it is: in recordings of changed jobs such
    forms took what they take alone (channels last: 11.3 ms for 11.5, 2.1 for 2.3, ResNet-50 on an
    EPYC), while the old ones had taken up to half as much again. An operator that took less in the
    job than alone found its inputs in the cache: so will its new form, which takes the ratio.
    Tuned on the AMP and channels-last pairs of the models that are not held out.
    """
    calibration = calibration_of(graph)
    if calibration is None:
        return None
    before, after = calibration.before, calibration.after(change)
    if not len(before) or not len(after):
        return None
    form = new_form(before, after)
    coverage = _cover(graph, before, form)
    if coverage.share < LEAST_SHARE:
        return None
    changed = _scale_covered(graph, form, coverage)
    if rest is not None:
        changed = scale(changed, changeable(graph) & ~coverage.is_covered, rest, cost="roofline")
    changed = _insert_new(changed, graph, form, coverage)
    gone = coverage.is_covered & np.append(form.is_gone, False)[coverage.position]
    changed = remove(changed, pad(gone, len(changed.tasks)), gaps="drop")
    name, covered = name_of(change), f"{coverage.share:.0%} of forward and backward"
    return add_note(
        mark_measured(changed), f"{name}: costs measured operator by operator, {covered}"
    )


@dataclass(frozen=True)
class Coverage:
    """A calibrated list found in a recording.

    ``position`` is the entry of each task (−1: none), ``is_covered`` where its new cost is known, a
    ``share`` of all work of forward and backward. ``recorded_ns`` is the recorded time of each
    entry, ``pace`` the recorded over the benchmarked time of all. New operators come without a
    gap: autocast and autograd call them, not Python.
    """

    position: Rows
    is_covered: Mask
    share: float
    recorded_ns: Floats
    pace: float


def _cover(graph: Graph, before: pd.DataFrame, form: NewForm) -> Coverage:
    of_operator = entries_of_operators(graph, before)
    position = entries_of_tasks(graph, of_operator)
    is_covered = (position >= 0) & np.append(form.is_timed, False)[position]
    work = graph.tasks["work_ns"].to_numpy().astype(np.float64)
    recorded = _recorded_ns(graph, of_operator, len(before))
    both = np.isfinite(recorded) & (form.before.host > 0)
    return Coverage(
        position=position,
        is_covered=is_covered,
        share=float(work[is_covered].sum() / max(work[changeable(graph)].sum(), 1.0)),
        recorded_ns=recorded,
        pace=float(recorded[both].sum() / form.before.host[both].sum()) if both.any() else 1.0,
    )


def _recorded_ns(graph: Graph, of_operator: Rows, count: int) -> Floats:
    """Return the mean recorded time of each entry, children included; NaN where it is not seen."""
    rows = roots(graph, of_operator)
    times = graph.operators["duration_ns"].to_numpy()[rows]
    counted = np.bincount(of_operator[rows], minlength=count).astype(np.float64)
    return ratio(sum_by_place(of_operator[rows], times, count), counted)


def _scale_covered(graph: Graph, form: NewForm, coverage: Coverage) -> Graph:
    """Let every matched task cost what its operator's new form costs."""
    device = on_device(graph)
    stays = coverage.is_covered & ~np.append(form.is_gone, False)[coverage.position]
    for lanes, factors in (
        (~device, _host_factors(form, coverage)),
        (device, ratio(form.after.device, form.before.device)),
    ):
        each_factor = np.where(form.stays & ~np.isfinite(factors), 1.0, factors)
        each = np.append(each_factor, np.nan)[coverage.position]
        where = stays & lanes & np.isfinite(each)
        graph = scale(graph, where, np.where(where, each, 1.0), cost="measured")
    return graph


def _host_factors(form: NewForm, coverage: Coverage) -> Floats:
    """Return the factor of each entry: the ratio; of another kernel, what gives its time alone.

    What was warmer in the recording than alone keeps that lead: there the ratio holds, too.

    Where a device runs the kernel the host only calls it: there the difference is added.
    """
    scaled = ratio(form.after.host, form.before.host)
    called = np.maximum(coverage.recorded_ns + form.after.host - form.before.host, 0.0)
    new = np.where(np.isfinite(form.after.device), called, form.after.host)
    alone = ratio(new, coverage.recorded_ns)
    was_warm = coverage.recorded_ns < form.before.host  # and will be, in its new form
    return np.where(form.is_other & np.isfinite(alone) & ~was_warm, alone, scaled)


def _insert_new(changed: Graph, graph: Graph, form: NewForm, coverage: Coverage) -> Graph:
    """Put the operators that the change adds behind the entries that they follow."""
    if not len(form.new):
        return changed
    names = pd.Categorical(form.new["operator"].astype(str) + " (predicted)")
    device = on_device(graph)
    rows, which = _anchors(graph, form.anchor, np.where(device, -1, coverage.position))
    if len(rows):
        host = np.rint(form.new["ns"].to_numpy() * coverage.pace).astype(np.int64)
        changed, _ = insert(
            changed,
            rows,
            name=names[which],
            kind="host",
            work_ns=host[which],
            cost="measured",
        )
    kernels = is_in(graph.tasks["kind"], "kernel")
    rows, which = _anchors(graph, form.anchor, np.where(kernels, coverage.position, -1))
    times = form.new["device_ns"].to_numpy()[which]
    rows, which, times = (values[np.isfinite(times)] for values in (rows, which, times))
    if len(rows):
        work = np.rint(times).astype(np.int64)
        changed, _ = insert_kernels(changed, rows, name=names[which], work_ns=work, cost="measured")
    return changed


def _anchors(graph: Graph, anchor: Rows, position: Rows) -> tuple[Rows, Rows]:
    """Return the last tasks of the entries *anchor* wherever they occur, and whose anchor each is.

    *position* is the entry of each task. An entry that never occurs is replaced by the one before.
    """
    last = _last_tasks(graph, position)
    entries, begin, count = np.unique(position[last], return_index=True, return_counts=True)
    if not len(entries):
        return last, last
    at = np.maximum(np.searchsorted(entries, anchor, "right") - 1, 0)
    which = np.repeat(np.arange(len(anchor)), count[at])
    first = np.repeat(begin[at] - np.cumsum(count[at]) + count[at], count[at])
    rows: Rows = last[first + np.arange(len(which))]
    return rows, which


def _last_tasks(graph: Graph, position: Rows) -> Rows:
    """Return the tasks after which their lane leaves an entry, in order of the entries."""
    _, outgoing = chain(graph)
    shift = graph.edges["shift"].to_numpy()
    after = np.append(graph.edges["dst"].to_numpy(), 0)[outgoing]
    leaves = (outgoing < 0) | (position[after] != position) | (np.append(shift, 1)[outgoing] != 0)
    last = np.flatnonzero((position >= 0) & leaves)
    ordered: Rows = last[np.argsort(position[last], kind="stable")]
    return ordered
