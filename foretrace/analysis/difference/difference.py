"""Two graphs of a job in, `Difference` out: what differs, why the step does, and what to doubt."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analysis.difference.parts import Exchanges, Part, explain_parts
from foretrace.analysis.difference.side_by_side import Table, put_side_by_side
from foretrace.analysis.error.prediction_interval import step_interval
from foretrace.analysis.unchanged.baseline import replay_baseline
from foretrace.errors import RefusedError
from foretrace.graph.state import Doubt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foretrace.analysis.unchanged.baseline import Baseline
    from foretrace.analysis.unchanged.measured_step import Measured
    from foretrace.graph.model import Graph
    from foretrace.transforms.measured.exchange import Counterparts

OTHER_JOB = 0.05
"""Where less than this share of the work is found in the other recording, they are of two jobs."""
LITTLE = 0.5
"""Where less than this share of the work is found, most of the difference is work that differs."""
UNEXPLAINED = 0.25
"""Share of a difference that replay may leave open before that is a doubt."""
NOISE = "within-noise"


@dataclass(frozen=True)
class Side:
    """One of the two recordings; ``matched`` is the share of its work that the other one has."""

    source: str
    devices: tuple[str, ...]
    ranks: tuple[int, ...]
    measured: Measured
    replayed_ns: float
    matched: float


@dataclass(frozen=True)
class Difference:
    """Why the step of ``after`` is not that of ``before``. Times in ns of one step, more is slower.

    ``parts`` and ``unexplained_ns`` add up to ``difference_ns``, the difference of the measured
    steps; ``interval_ns`` is how far that is known. ``tables`` list what differs, by kernel class,
    kernel, operator, module and phase.
    """

    before: Side
    after: Side
    interval_ns: tuple[float, float]
    parts: tuple[Part, ...]
    tables: tuple[Table, ...]
    doubts: tuple[Doubt, ...]

    @property
    def difference_ns(self) -> float:
        """How much longer the second measured step is."""
        return self.after.measured.step_ns - self.before.measured.step_ns

    @property
    def unexplained_ns(self) -> float:
        """What of that the replays of both recordings do not show."""
        replayed = self.after.replayed_ns - self.before.replayed_ns
        return self.difference_ns - replayed

    def __repr__(self) -> str:
        """Return what a prompt shows: both steps, and the largest part of the difference."""
        largest = self.parts[0]
        return (
            f"<Difference of {self.before.measured.step_ns / 1e6:.3f} and"
            f" {self.after.measured.step_ns / 1e6:.3f} ms: {self.difference_ns / 1e6:+.3f} ms,"
            f" of which {largest.cause} {largest.ns / 1e6:+.3f} ms>"
        )


def diff(before: Graph, after: Graph) -> Difference:
    """Say why a step of *after* takes longer, or less long, than one of *before*.

    The two are recordings of one job, or of two ranks of one job.

    Raises
    ------
    RefusedError
        The recordings are of different jobs, or of different numbers of ranks.
    """
    counts = [len(graph.meta.ranks) for graph in (before, after)]
    if counts[0] != counts[1]:
        raise RefusedError(
            f"{counts[0]} and {counts[1]} ranks are recorded: pass the same ranks of both jobs, or "
            "one of each"
        )
    exchanges = Exchanges(replay_baseline(before), replay_baseline(after))
    for baseline in (exchanges.before, exchanges.after):
        baseline.require_work()
    sides = (
        _describe(exchanges.before, exchanges.forward),
        _describe(exchanges.after, exchanges.backward),
    )
    _refuse_other_job(*sides)
    found = Difference(
        before=sides[0],
        after=sides[1],
        interval_ns=_find_interval(*sides),
        parts=(),
        tables=put_side_by_side(exchanges.forward),
        doubts=(),
    )
    parts = explain_parts(exchanges, found.unexplained_ns)
    doubts = tuple(_doubt(replace(found, parts=parts), exchanges))
    return replace(found, parts=parts, doubts=doubts)


def _describe(baseline: Baseline, pair: Counterparts) -> Side:
    meta = baseline.graph.meta
    work = baseline.graph.tasks["work_ns"].to_numpy()
    return Side(
        source=meta.source,
        devices=tuple(dict.fromkeys(device.name for device in meta.devices)),
        ranks=meta.ranks,
        measured=baseline.measured,
        replayed_ns=baseline.timeline.step_ns,
        matched=float(work[pair.partner >= 0].sum() / max(work.sum(), 1)),
    )


def _refuse_other_job(before: Side, after: Side) -> None:
    """Refuse two recordings that have next to nothing in common.

    Raises
    ------
    RefusedError
        Less than `OTHER_JOB` of the work of both is found in the other one.
    """
    if max(before.matched, after.matched) < OTHER_JOB:
        raise RefusedError(
            f"{before.source} and {after.source} are of different jobs: {before.matched:.0%} and "
            f"{after.matched:.0%} of their work is found in the other one"
        )


def _find_interval(before: Side, after: Side) -> tuple[float, float]:
    """Return how far the difference of the measured steps is known, both varying as they do."""
    first, second = (side.measured.step_ns for side in (before, after))
    ranges = [step_interval(side.measured.samples_ns) for side in (before, after)]
    below = np.hypot(first * (ranges[0][1] - 1), second * (1 - ranges[1][0]))
    above = np.hypot(first * (1 - ranges[0][0]), second * (ranges[1][1] - 1))
    return float(second - first - below), float(second - first + above)


def _doubt(found: Difference, exchanges: Exchanges) -> Iterator[Doubt]:
    """Say what of both recordings and of their comparison may make the answer wrong."""
    for which, baseline in (("before", exchanges.before), ("after", exchanges.after)):
        for doubt in baseline.doubts:
            yield doubt._replace(place=f"{which}: {doubt.place}" if doubt.place else which)
    yield from _doubt_comparison(found, exchanges)
    low, high = found.interval_ns
    if low <= 0 <= high:
        yield Doubt(NOISE, "the steps of each recording vary by as much as the two differ")
    elif abs(found.unexplained_ns) > UNEXPLAINED * abs(found.difference_ns):
        text = (
            f"the replays of the two recordings leave {found.unexplained_ns / 1e6:+,.3f} ms of "
            f"{found.difference_ns / 1e6:+,.3f} ms open, which may belong to any part"
        )
        yield Doubt("difference-unexplained", text)


def _doubt_comparison(found: Difference, exchanges: Exchanges) -> Iterator[Doubt]:
    """Say in what the recordings are not alike, apart from what they measured."""
    before, after = found.before, found.after
    if before.devices != after.devices:
        names = [", ".join(side.devices) or "an unnamed one" for side in (before, after)]
        text = f"the device was {names[0]}, then {names[1]}: its speed is among what differs"
        yield Doubt("other-device", text)
    if min(before.matched, after.matched) < LITTLE:
        text = (
            f"{before.matched:.0%} of the work before and {after.matched:.0%} of that after is "
            "found in the other recording: much of the difference is work that differs"
        )
        yield Doubt("little-matched", text)
    if before.measured.source != after.measured.source:
        text = (
            f"the step before is measured {before.measured.source}, that after "
            f"{after.measured.source}: some of the difference is the profiler's"
        )
        yield Doubt("measured-differently", text)
    metas = [baseline.graph.meta for baseline in (exchanges.before, exchanges.after)]
    for code, what, counts in (
        ("other-world", "ranks of the job", [meta.world_size for meta in metas]),
        ("other-batch", "samples of a step", [meta.batch_size for meta in metas]),
    ):
        if all(counts) and counts[0] != counts[1]:
            yield Doubt(code, f"the {what} were {counts[0]}, then {counts[1]}")
