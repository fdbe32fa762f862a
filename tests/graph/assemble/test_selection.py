"""Which tasks of a recording are in the window."""

from __future__ import annotations

from foretrace.graph.build import build
from tests.support.recordings.events import call, kernel, step_ms, steps, trace


def test_stream_whose_launches_are_unknown_keeps_its_work() -> None:
    """Kernels of calls before the recording on stream 7, a linked one on stream 8.

    Four whole steps have 800 µs each on stream 7: kernels twice as long take 1.6 ms.
    """
    rows = [call(0, 10, 1), kernel(10, 50, 1, stream=8)]
    rows += [kernel(100 + 400 * n, 400, -1) for n in range(2)]
    recording = trace(steps(6, 1_000, rows))
    graph = build(recording)

    names = graph.tasks["kind"].value_counts()
    assert names["kernel"] == 3 * graph.steps
    assert graph.notes[-1].startswith(
        f"{2 * graph.steps} device tasks in the window have no launch"
    )
    assert step_ms(recording, 2) == 1.6
