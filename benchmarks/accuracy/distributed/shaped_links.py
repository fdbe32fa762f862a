"""The study of distributed runs over shaped links: every measured cell beside its prediction.

In: an archive of `benchmarks.shaped_network`. Out: rows. Each cell is predicted by `predict` from
the recording of the job alone, as fast as the job alone was around that cell; no other part of the
cell goes into its prediction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from benchmarks.accuracy.distributed.shaped_scenarios import SCENARIOS, scenario_of
from foretrace.analysis.error.difficulty import NONE, Difficulty
from foretrace.analysis.evidence.measured_pair import MeasuredPair
from foretrace.analysis.prediction import predict
from foretrace.analysis.unchanged.measured_step import measured_step
from foretrace.errors import TransformError
from foretrace.graph.build import build
from foretrace.transforms.cluster.presets import FRAME, PAYLOAD
from foretrace.transforms.edit.primitives import scale, scale_lags
from foretrace.transforms.scenario import names, parse_scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from benchmarks.shaped_network.cell_archive import Cell
    from foretrace.analysis.evidence.validation_scope import Place
    from foretrace.graph.model import Graph

JUDGED_MBIT = 1000
"""Faster links are reported and not judged: cores, not links, then decide."""
EASY = 0.05
"""Cells on which computing plus bytes over bandwidth comes closer than this prove nothing."""


@dataclass(frozen=True)
class NetworkRow:
    """One cell: measured, predicted, and what null models say. Times in ns.

    ``alone_ns`` is the job alone ("no change"), ``series_ns`` computing plus bytes over bandwidth,
    one after the other. ``scenario`` is what was predicted; ``problems`` say why a cell is
    inconclusive.
    """

    name: str
    scheme: str
    model: str
    ranks: int
    rate_mbit: int | None
    scenario: tuple[str, ...]
    measured_ns: float
    predicted_ns: float
    alone_ns: float
    series_ns: float
    noise: float
    problems: tuple[str, ...] = ()
    held_out: bool = False
    tuned_on: bool = False
    step_interval: tuple[float, float] = (1.0, 1.0)
    replay_error: float = 0.0
    place: Place | None = None
    difficulty: Difficulty = NONE

    @property
    def error(self) -> float:
        """Signed relative error of the prediction."""
        return self.predicted_ns / self.measured_ns - 1

    @property
    def alone_error(self) -> float:
        """Signed relative error of "no change"."""
        return self.alone_ns / self.measured_ns - 1

    @property
    def series_error(self) -> float:
        """Signed relative error of computing plus bytes over bandwidth."""
        return self.series_ns / self.measured_ns - 1

    @property
    def is_conclusive(self) -> bool:
        """Whether the cell's own repeats, bytes and forward times agree."""
        return not self.problems

    @property
    def is_slow(self) -> bool:
        """Whether the link, not the cores, decides."""
        return self.rate_mbit is not None and self.rate_mbit <= JUDGED_MBIT

    @property
    def is_judged(self) -> bool:
        """Whether the cell judges the prediction: conclusive, slow, and not easy."""
        return self.is_conclusive and self.is_slow and abs(self.series_error) > EASY


def network_rows(
    cells: Iterable[Cell], held_out: Collection[str] = (), tuned_on: Collection[str] = ()
) -> tuple[list[NetworkRow], dict[str, str]]:
    """Predict every cell that trains a model; models *held_out* and *tuned_on* are marked.

    Also return the names of cells that no what-if foresees, with the reason.
    """
    rows: list[NetworkRow] = []
    problems: dict[str, str] = {}
    for cell in cells:
        if cell.scheme not in SCENARIOS:
            continue
        try:
            is_held_out, is_tuned_on = cell.model in held_out, cell.model in tuned_on
            rows.append(replace(cell_row(cell), held_out=is_held_out, tuned_on=is_tuned_on))
        except TransformError as error:
            problems[cell.name] = str(error)
    return rows, problems


def cell_row(cell: Cell) -> NetworkRow:
    """Predict one cell from the recording of its job alone."""
    scenario = scenario_of(cell)
    alone_ns = cell.lone_ns
    assert cell.recording is not None
    assert alone_ns
    assert cell.model
    prediction = predict(at_pace(_graph(cell.recording.read), alone_ns), parse_scenario(scenario))
    return NetworkRow(
        name=cell.name,
        scheme=cell.scheme,
        model=cell.model,
        ranks=cell.ranks,
        rate_mbit=cell.rate_mbit,
        scenario=scenario,
        measured_ns=cell.step_ns,
        predicted_ns=prediction.predicted_ns,
        alone_ns=alone_ns,
        series_ns=series_ns(cell),
        noise=cell.noise,
        problems=cell.problems,
        step_interval=prediction.step_interval,
        replay_error=prediction.replayed_before_ns / prediction.measured.step_ns - 1,
        place=prediction.place,
        difficulty=prediction.difficulty,
    )


@cache
def _graph(read: Callable[[], Any]) -> Graph:
    return build(read())


def at_pace(graph: Graph, step_ns: float) -> Graph:
    """Return *graph*, a CPU job, as it would have been recorded where a step takes *step_ns*."""
    factor = step_ns / measured_step(graph).step_ns
    everywhere = (graph.tasks["work_ns"] >= 0).to_numpy()
    between = graph.edges["kind"].isin(("thread", "fork", "join")).to_numpy()
    slower = scale_lags(scale(graph, everywhere, factor, cost="measured"), between, factor)
    steps = tuple(round(ns * factor) for ns in graph.meta.unprofiled_step_ns)
    return replace(slower, meta=replace(graph.meta, unprofiled_step_ns=steps))


def series_ns(cell: Cell) -> float:
    """Return the null model: the job alone, as often as a step runs it, then bytes / bandwidth.

    Bytes are what one rank sends, of a pipeline both, of a server all; with the frames' headers.
    """
    alone = (cell.lone_ns or 0) * cell.options.get("accumulation", 1)
    alone += 1e6 * cell.options.get("sleep_ms", 0)
    if cell.rate_mbit is None:
        return float(alone)
    rate = min(cell.rate_mbit, cell.uplink_mbit or cell.rate_mbit)
    return float(alone + sum(_sent(cell)) * FRAME / PAYLOAD * 8_000 / rate)


def _sent(cell: Cell) -> list[float]:
    """Return the bytes per step that follow each other on the wire."""
    run = cell.runs[0]
    steps = len(run.step_ns[0])
    each = [
        (sent if expected is None else expected) / steps
        for sent, expected in zip(run.tx_bytes, run.expected_bytes, strict=True)
    ]
    if cell.scheme == "parameter_server":
        return [each[0], each[-1]]
    return each if cell.scheme == "pipeline" else each[:1]


ALONE = ("ddp", "gradient_accumulation")
"""What-ifs that have pairs of their own; what comes with them in a cell is what it judges."""


def pair_rows(rows: Iterable[NetworkRow]) -> list[MeasuredPair]:
    """Return the conclusive cells on slow links as pairs, of which validated errors are formed.

    What is never tried without ddp carries the error of both.
    """
    return [
        MeasuredPair(
            name=row.name,
            model=row.model,
            change=" ".join(row.scenario),
            hardware="cpu",
            transforms=_judged(row),
            measure="step",
            before_ns=row.alone_ns,
            after_ns=row.measured_ns,
            rule_ns=row.predicted_ns,
            paper_ns=row.series_ns,
            step_interval=row.step_interval,
            replay_error=row.replay_error,
            where=row.place.workers if row.place else "",
            place=row.place,
            rule_difficulty=row.difficulty,
            tuned_on=row.tuned_on,
            held_out=row.held_out,
        )
        for row in rows
        if row.is_conclusive and row.is_slow
    ]


def _judged(row: NetworkRow) -> tuple[str, ...]:
    """Return the what-ifs that *row* judges."""
    made = names(parse_scenario(row.scenario))
    return tuple(name for name in made if name not in ALONE) or made
