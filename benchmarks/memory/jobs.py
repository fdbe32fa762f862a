"""Jobs of the truth set in, the memory that they take and that Foretrace says they take out.

Truth and recording come from one process: nothing here is timed. What stays of a job that is over
would count as the next one's, so each is collected first.
"""

from __future__ import annotations

import gc
import warnings
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch

from benchmarks.memory.plain import measure_peak
from benchmarks.truth.recorded import job_of
from benchmarks.truth.spec import find_job, sides_of, to_json
from benchmarks.truth.training import build as build_training
from benchmarks.truth.training import preload
from foretrace.errors import TransformError
from foretrace.graph.build import build
from foretrace.tracer.recording.record import record
from foretrace.transforms.costs.memory_curve import memory_curve
from foretrace.transforms.costs.peak_memory import peak_of
from foretrace.transforms.scenario import apply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.truth.spec import DrawnJob, Side
    from foretrace.graph.model import Graph

JOBS = (
    *("averaged", "graph", "physics", "sparse", "two_optimizers"),
    *("alexnet", "mixer", "preact", "shufflenet", "squeezenet"),
    *("beam-tags", "gpt_neox-causal", "llama-tags", "mobilebert-tags", "prophetnet-causal"),
)
"""Small jobs of every family, none of them held out."""
SIDES = (
    *("base", "batch_size", "amp", "gradient_accumulation"),
    *("fused_optimizer", "activation_checkpoint"),
)
"""What is asked of memory."""


class Peak(NamedTuple):
    """The peak of one job trained in one way, in bytes; *said* is None where it was refused."""

    job: str
    side: str
    measured: int
    said: float | None

    @property
    def error(self) -> float | None:
        """How far what was said is off."""
        return None if self.said is None else self.said / self.measured - 1


def measure_jobs() -> Iterator[Peak]:
    """Yield every side of every job."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    for name in JOBS:
        job = find_job(name)
        preload(job)
        sides = [side for side in sides_of(job) if side.name in SIDES]
        measured = {side.name: measure_peak(partial(_start, job, side)) for side in sides}
        gc.collect()
        graph = _recorded(job)
        for side in sides:
            yield Peak(name, side.name, measured[side.name], _said(graph, side))


def _start(job: DrawnJob, side: Side) -> Callable[[], None]:
    return build_training(job, side).run()


def _recorded(job: DrawnJob) -> Graph:
    """Return the graph of a short recording of *job* as it is."""
    return build(record(job_of(to_json(job), job.batch_size), steps=1, warmup=1, windows=1))


def _said(graph: Graph, side: Side) -> float | None:
    """Return the peak that *graph* has as *side* says; None where a what-if does not apply."""
    curve = memory_curve(graph)
    try:
        state = apply(graph, side.what_ifs).state
    except TransformError:
        return None
    return None if curve is None else peak_of(curve.after(state)).bytes
