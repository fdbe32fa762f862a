"""Operation-level timelines beside the published replays of StragglerAnalysis: rows of the study.

In: a folder with ``timeline-JOB.json.gz`` and ``result-JOB.json.gz``. Out: one row per published
number. Only ``step_t_base`` was measured; the others are another simulator's answers, so they fix
what the rules mean and are met exactly or not at all.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.errors import TraceError
from foretrace.graph.build import build
from foretrace.graph.model import Rules
from foretrace.graph.operation_timeline.operation_tables import STEP
from foretrace.replaying.replay import replay
from foretrace.tracer.readers.load import load
from foretrace.transforms.distributed.straggler import remove_stragglers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from foretrace.graph.model import Graph
    from foretrace.replaying.timeline import Timeline

JOBS = ("ST", "AR")
"""The published jobs: 2 x 4 ranks with 4 micro-batches, 4 x 4 with 32."""
TRANSFERS = "-pp-comm"
"""How the published results name sends and receives of one direction together."""


@dataclass(frozen=True)
class TimelineRow:
    """One published number and ours.

    ``what`` is "base" (measured), "nodelay" (recorded durations), "noblk" (levelled durations), in
    seconds, or "stage", "dp_rank", "optype": how many times "noblk" a step takes when only *which*
    keeps what was recorded. ``step`` is the job's number of the step; None: all of them.
    """

    job: str
    what: str
    which: str
    step: str | None
    published: float
    replayed: float

    @property
    def error(self) -> float:
        """Signed relative error."""
        return self.replayed / self.published - 1


def timeline_rows(folder: Path, job: str) -> list[TimelineRow]:
    """Return the rows of one job.

    Raises
    ------
    TraceError
        The published results are not in *folder*, or cannot be read.
    """
    trace, published = load(folder / f"timeline-{job}.json.gz"), _published(folder, job)
    with_host = replay(build(trace))
    graph = build(trace, rules=Rules(kernel_gap=False))
    recorded = replay(graph)
    levelled = step_lengths(replay(remove_stragglers(graph), like=recorded))
    every = {
        "base": step_lengths(with_host),
        "nodelay": step_lengths(recorded),
        "noblk": levelled,
    }
    rows = [
        TimelineRow(job, what, "", step, seconds, ours / 1e9)
        for what, lengths in every.items()
        for (step, seconds), ours in zip(
            published[f"step_t_{what}"].items(), lengths.tolist(), strict=True
        )
    ]
    for what, which, changes in _parts(graph, published):
        changed = replay(remove_stragglers(graph, **changes), like=recorded)
        lengths = step_lengths(changed)
        rows += _ratios(TimelineRow(job, what, which, None, 0.0, 0.0), lengths, levelled, published)
    return rows


def step_lengths(timeline: Timeline) -> NDArray[np.int64]:
    """Return the length of each step of a replayed timeline, in ns."""
    marks = np.flatnonzero((timeline.graph.tasks["name"] == STEP).to_numpy())
    return np.diff(np.append(timeline.start_ns[marks], round(timeline.period_ns)))


def _published(folder: Path, job: str) -> dict[str, Any]:
    path = folder / f"result-{job}.json.gz"
    try:
        content: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    except (OSError, ValueError, EOFError) as error:
        raise TraceError(f"{path}: no published results ({error})") from None
    return content


def _parts(graph: Graph, published: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield what keeps the recorded durations: each stage, each replica, each kind of operation."""
    assert graph.state.grid is not None
    replicas, stages = graph.state.grid
    ranks = np.arange(replicas * stages).reshape(replicas, stages)
    for stage in range(stages):
        yield "stage", str(stage), {"except_ranks": ranks[:, stage].tolist()}
    for replica in range(replicas):
        yield "dp_rank", str(replica), {"except_ranks": ranks[replica].tolist()}
    for name in published["blocking_decompose_by_optype"]:
        pattern = f"^{name.replace(TRANSFERS, '-(send|recv)')}$"
        yield "optype", name, {"except_pattern": pattern}


def _ratios(
    row: TimelineRow,
    lengths: NDArray[np.int64],
    levelled: NDArray[np.int64],
    published: dict[str, Any],
) -> Iterator[TimelineRow]:
    """Yield how much longer than without stragglers the steps are, in all and one by one."""
    of_all = published[f"blocking_decompose_by_{row.what}"][row.which]
    yield replace(row, published=of_all, replayed=float(lengths.sum() / levelled.sum()))
    single = published[f"blocking_decompose_by_{row.what}_per_step"]
    for at, step in enumerate(published["step_t_base"]):
        ratio = float(lengths[at] / levelled[at])
        yield replace(row, step=step, published=single[step][row.which], replayed=ratio)
