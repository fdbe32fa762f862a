"""What the profiler cost is fitted to the step without it, and taken out of every piece."""

from __future__ import annotations

import pytest

from foretrace.graph.build import build
from foretrace.tracer.recording.optimizer_timer import OPTIMIZER_TIMES
from tests.support.recordings.events import call, kernel, note, op, steps, trace

ROWS = [op("aten::add", 10 * number, 8) for number in range(100)]
"""199 pieces per step and 1 at its end: 8 µs of work, 2 µs of pause, 1,000 µs in all."""


@pytest.mark.parametrize(
    ("unprofiled", "piece_ns"),
    [
        (900_000, 500),
        (500_000, 1_516),
        (999_000, 0),
        (1_100_000, 0),
        (990_000, 50),
    ],
)
def test_cost_per_piece(unprofiled: int, piece_ns: int) -> None:
    """At most 3 µs an event; differences below 0.3 % and gains of the profiler are noise."""
    graph = build(trace(steps(6, 1_000, ROWS), unprofiled_step_ns=(unprofiled,) * 5))

    assert graph.platform.event_overhead_ns == pytest.approx(piece_ns, rel=0.01)


def test_nothing_is_taken_where_the_device_sets_the_pace() -> None:
    """The host's cost does not show in the step."""
    rows = [op("a", 0, 10), call(20, 5, 1)]
    rows = steps(6, 100, rows) + [kernel(300 * i + 30, 300, 2 * i + 1) for i in range(6)]
    graph = build(trace(rows, unprofiled_step_ns=(50_000,) * 5))

    assert graph.platform.event_overhead_ns == 0


def test_short_pieces_lose_no_more_than_they_are() -> None:
    """Pauses of 0.4 µs give 0.4 each; the rest of the excess is in the longer pieces."""
    rows = [op("aten::add", 10 * number, 9.6) for number in range(100)]
    graph = build(trace(steps(6, 1_000, rows), unprofiled_step_ns=(900_000,) * 5))

    assert graph.platform.event_overhead_ns == pytest.approx(600, rel=0.01)


def test_updates_lose_what_they_themselves_took_longer() -> None:
    """The optimizer took 500 of 600 µs without the profiler; all else gives 50 of its 400."""
    rows = [op("aten::mm", 20 * number, 16) for number in range(20)]
    rows += [note("Optimizer.step#Adam.step", 400, 600)]
    rows += [op("aten::add", 400 + 10 * number, 8) for number in range(60)]
    known = {OPTIMIZER_TIMES: [500_000] * 5}
    recorded = trace(steps(6, 1_000, rows), unprofiled_step_ns=(850_000,) * 5, extra=known)

    graph = build(recorded)

    in_update = (graph.tasks["phase"] == "optimizer").to_numpy()
    into = in_update[graph.edges["dst"].to_numpy()]
    spent = [
        graph.tasks["work_ns"][mine].sum() + graph.edges["lag_ns"][edges].sum()
        for mine, edges in ((in_update, into), (~in_update, ~into))
    ]
    assert [ns / graph.steps for ns in spent] == pytest.approx([500_000, 350_000], rel=0.01)
