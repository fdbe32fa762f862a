"""The study of DDP jobs that others recorded: other buckets, and twice the GPUs, as rows.

NERSC's deep-learning tutorials of 2021 and 2022 trained one U-Net on 4 and 8 A100 of Perlmutter and
published traces of one rank on 4 GPUs and, without traces, the throughput on 8 in two nodes. All is
predicted from the trace before the change.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import TYPE_CHECKING

from foretrace.analysis.evidence.validation_scope import describe_place
from foretrace.graph.build import build
from foretrace.replaying.replay import replay
from foretrace.tracer.readers.load import load
from foretrace.transforms.collectives.all_reduces import all_reduces
from foretrace.transforms.distributed.ddp.ddp import ddp
from foretrace.transforms.distributed.network import network

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from foretrace.analysis.evidence.validation_scope import Place
    from foretrace.graph.model import Graph

MS = 1e6
RECORDED, MORE = 4, 8
CAP_MB, FIRST_MB = 100.0, 1.0
"""Buckets of the job after the change; its torch (1.10, 1.13) keeps the first one small."""
BEFORE, AFTER = "4gpu_ddp_baseline.sqlite.gz", "4gpu_ddp_bucket100.sqlite.gz"
FOLDERS = {"2021": "nersc-sc21-unet", "2022": "nersc-sc22-unet"}
PUBLISHED = {
    "2021": {"4": 50.3, "8 before": (69.4 + 70.2) / 2, "8 after": (68.1 + 68.9) / 2},
    "2022": {"4": (31.9 + 33.3) / 2, "8 before": (36.6 + 38.2) / 2, "8 after": (35.7 + 36.3) / 2},
}
"""Step times in ms that the tutorials' README files give without a profiler (NERSC/sc21-dl-tutorial
and NERSC/sc22-dl-tutorial): on 4 GPUs before the change, and on 8; the middle of a range."""
SECANTS = 6


@dataclass(frozen=True)
class BucketRow:
    """One pair of traces on 4 GPUs; times in ms, buckets in MB.

    The job after the change also keeps its gradients in their buckets and broadcasts none.
    """

    year: str
    measured_ms: float
    predicted_ms: float
    before_mb: tuple[float, ...]
    after_mb: tuple[float, ...]
    recorded_before: int
    recorded_after: int

    @property
    def error(self) -> float:
        """Signed relative error of the difference."""
        return self.predicted_ms / self.measured_ms - 1


@dataclass(frozen=True)
class MoreRow:
    """Eight GPUs in two nodes from the trace of four; times in ms.

    ``null_ms`` is no change; ``calibrated_ms`` comes from a network fitted to *calibrated_on*,
    ``gb_per_s`` per node and direction.
    """

    year: str
    what: str
    measured_ms: float
    null_ms: float
    nominal_ms: float
    calibrated_on: str | None = None
    calibrated_ms: float | None = None
    gb_per_s: float | None = None
    place: Place | None = None

    def error(self, predicted_ms: float) -> float:
        """Signed relative error of a prediction."""
        return predicted_ms / self.measured_ms - 1


def bucket_row(traces: Path, year: str) -> BucketRow:
    """Return what other buckets change, from the trace before; *traces* holds the public ones."""
    before, after = (_graph(traces / FOLDERS[year] / name) for name in (BEFORE, AFTER))
    changed = _with_other_buckets(before)
    was, now = (median(graph.step_samples_ns) for graph in (before, after))
    return BucketRow(
        year=year,
        measured_ms=(now - was) / MS,
        predicted_ms=(replay(changed).step_ns - replay(before).step_ns) / MS,
        before_mb=_sizes(ddp(before, workers=RECORDED)),
        after_mb=_sizes(changed),
        recorded_before=_per_step(before),
        recorded_after=_per_step(after),
    )


def more_rows(traces: Path, year: str) -> list[MoreRow]:
    """Return 8 GPUs before and after the change of buckets; the former calibrates the network."""
    base = _graph(traces / FOLDERS[year] / BEFORE)
    cluster = f"perlmutter-{year}"
    published_ms = PUBLISHED[year]
    ratio = published_ms["4"] * MS / replay(base).step_ns
    jobs = {
        "8 before": ddp(base, workers=MORE, cluster=cluster),
        "8 after": _with_other_buckets(base, workers=MORE, cluster=cluster),
    }

    def step_ms(what: str, gb_per_s: float | None = None) -> float:
        job = jobs[what]
        moved = job if gb_per_s is None else network(job, bandwidth=f"{8 * gb_per_s}Gbps")
        return replay(moved).step_ns * ratio / MS

    rate = _fit_rate(lambda each: step_ms("8 before", each), published_ms["8 before"])
    where = {what: _place(base, job) for what, job in jobs.items()}
    return [
        MoreRow(
            year,
            "8 before",
            published_ms["8 before"],
            published_ms["4"],
            step_ms("8 before"),
            place=where["8 before"],
        ),
        MoreRow(
            year,
            "8 after",
            published_ms["8 after"],
            published_ms["4"],
            step_ms("8 after"),
            "8 before",
            step_ms("8 after", rate),
            rate,
            where["8 after"],
        ),
    ]


def _place(base: Graph, job: Graph) -> Place:
    return describe_place(
        base, job, (replay(base).breakdown("kind"), replay(job).breakdown("kind"))
    )


def _fit_rate(step_ms: Callable[[float], float], measured_ms: float) -> float:
    """Return the bandwidth at which a step takes *measured_ms*: times are near linear in 1/B."""
    one, other = 1 / 25.0, 1 / 50.0
    at, to = (step_ms(1 / each) for each in (one, other))
    for _ in range(SECANTS):
        if abs(to - measured_ms) < measured_ms * 1e-3 or to == at:
            break
        one, other = other, other + (measured_ms - to) * (other - one) / (to - at)
        at, to = to, step_ms(1 / other)
    return 1 / other


@cache
def _graph(path: Path) -> Graph:
    return build(load(path))


def _with_other_buckets(
    graph: Graph, *, workers: int = RECORDED, cluster: str | None = None
) -> Graph:
    return ddp(
        graph,
        workers=workers,
        cluster=cluster,
        bucket_cap_mb=CAP_MB,
        first_bucket_mb=FIRST_MB,
        gradient_as_bucket_view=True,
        broadcast_buffers=False,
    )


def _sizes(graph: Graph) -> tuple[float, ...]:
    """Return the MB of each bucket of the first step."""
    tasks = graph.tasks[all_reduces(graph) & (graph.tasks["step"] == 0).to_numpy()]
    return tuple((tasks["bytes"] / 1e6).round(1).tolist())


def _per_step(graph: Graph) -> int:
    """Return the all-reduces of a step; recordings that lost some show fewer in a few steps."""
    steps = graph.tasks["step"][all_reduces(graph)]
    return int(median(steps.value_counts()))
