"""Recordings of all ranks of a job in, rows of the accuracy study out.

One recorded step shows no period; what can be compared is the window from the first start to the
last end, how long each rank takes in it, and who arrives last at each collective.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analysis.rank_pace import RankPace, pace_setter, rank_paces
from foretrace.graph.build import build
from foretrace.graph.ranks.single_step import begin_together
from foretrace.replaying.replay import replay
from foretrace.tracer.readers.load import load

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from foretrace.graph.model import Graph
    from foretrace.replaying.timeline import Timeline

DLRM = "param/dlrm_v100x8"
"""Folder of the public recording: one step of a DLRM on 8 V100, one file per rank."""


@dataclass(frozen=True)
class RankRow:
    """One rank: how long its training thread took from first to last task, recorded and replayed.

    Times in ns. ``pace`` is its part among the ranks, as replayed.
    """

    pace: RankPace
    measured_ns: float
    replayed_ns: float

    @property
    def error(self) -> float:
        """Signed relative error."""
        return self.replayed_ns / self.measured_ns - 1


@dataclass(frozen=True)
class RanksStudy:
    """A recording of several ranks replayed unchanged. Times in ns.

    ``together_ns`` is a null model: the replay where all ranks begin their step at once. Of
    ``meetings`` collectives, ``same_last`` have the last rank to arrive that the recording shows.
    ``pace`` says which rank sets the pace, and why.
    """

    trace: str
    measured_ns: float
    replayed_ns: float
    together_ns: float
    meetings: int
    same_last: int
    pace: str
    ranks: tuple[RankRow, ...]

    @property
    def error(self) -> float:
        """Signed relative error of the replay."""
        return self.replayed_ns / self.measured_ns - 1

    @property
    def null_error(self) -> float:
        """Signed relative error of "all begin together"."""
        return self.together_ns / self.measured_ns - 1


def dlrm(folder: Path) -> RanksStudy:
    """Replay the public DLRM recording, found below *folder*, with all its ranks."""
    files = sorted((folder / DLRM).glob("kineto_*"))
    return ranks_study(DLRM, build(load(files)))


def ranks_study(trace: str, graph: Graph) -> RanksStudy:
    """Replay *graph*, one step of several ranks, unchanged."""
    timeline = replay(graph)
    by_rank = rank_paces(timeline)
    recorded = graph.tasks["start_ns"].to_numpy()
    before, after = (_last_to_arrive(graph, starts) for starts in (recorded, timeline.start_ns))
    return RanksStudy(
        trace=trace,
        measured_ns=graph.measured_step_ns,
        replayed_ns=timeline.step_ns,
        together_ns=replay(begin_together(graph)).step_ns,
        meetings=len(before),
        same_last=int((before == after).sum()),
        pace=pace_setter(by_rank) or "",
        ranks=tuple(_row(timeline, pace) for pace in by_rank),
    )


def _row(timeline: Timeline, pace: RankPace) -> RankRow:
    graph = timeline.graph
    own = (graph.lanes["rank"] == pace.rank).to_numpy() & (graph.lanes["role"] == "main").to_numpy()
    rows = np.flatnonzero(own[graph.tasks["lane"].to_numpy()])
    start, length = (graph.tasks[c].to_numpy()[rows] for c in ("start_ns", "duration_ns"))
    return RankRow(
        pace=pace,
        measured_ns=float((start + length).max() - start.min()),
        replayed_ns=float(timeline.end_ns[rows].max() - timeline.start_ns[rows].min()),
    )


def _last_to_arrive(graph: Graph, starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return, per collective, the task with which the last of its ranks arrives."""
    meets = graph.edges[graph.edges["kind"] == "collective"]
    member, meeting = (meets[end].to_numpy().astype(np.int64) for end in ("src", "dst"))
    order = np.lexsort((member, starts[member], meeting))
    last = np.append(np.diff(meeting[order]) > 0, [True])[: len(order)]
    return member[order][last]
