"""The answers to random programs and to the smallest ones that were once answered wrongly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings

from tests.counterfactual.changes import FasterHost, FasterKernels, Workers
from tests.counterfactual.draw import Case, changed_cases
from tests.counterfactual.judge import RIGHT, judge
from tests.counterfactual.program import (
    Collective,
    Copy,
    HostWork,
    Launch,
    Loader,
    NextBatch,
    RecordEvent,
    SyncDevice,
    WaitEvent,
    program,
)
from tests.counterfactual.write_kineto import Style

if TYPE_CHECKING:
    from tests.counterfactual.changes import Change
    from tests.counterfactual.program import Program

ADAM = "void at::native::multi_tensor_apply_kernel<FusedAdam>(FusedAdam)"
GEMM = "ampere_sgemm_128x64_nn"


def fetches(workers: int, batch_us: float, handover_us: int, *after: Launch) -> Program:
    """Return a loop around ``next()`` of a loader."""
    loader = Loader(workers, round(batch_us * 1_000), handover_us * 1_000)
    return program(NextBatch(), *after, loader=loader)


UPLOAD = program(
    Copy("HtoD", 2_580_000, 215_000, pageable=False, stream=20),
    *(RecordEvent(1, 20), WaitEvent(1, 7), Launch(ADAM, 43_000), SyncDevice()),
)
SMALL = program(
    *(Launch(GEMM, 8_100), HostWork(4_500), Launch(GEMM, 8_100)),
    *(HostWork(2_500), Launch(GEMM, 6_300), Launch(GEMM, 8_100)),
)
ONE_COLLECTIVE = program(Collective(46_137_344, 12_000, 1_589_335, 24), slowness=(1.0, 1.0))
CASES: dict[str, tuple[Program, int, Change]] = {
    "a synchronisation waits for an upload": (UPLOAD, 4, FasterKernels(".*", 2)),
    "a host as fast as the device is soon no limit": (SMALL, 6, FasterHost(2)),
    "ranks meet at one collective": (ONE_COLLECTIVE, 4, FasterKernels("nccl", 3)),
    "fewer workers": (fetches(4, 5_701, 150), 6, Workers(1, 4)),
    "more workers than two": (fetches(2, 2_593, 400), 5, Workers(4, 2)),
    "half the workers": (fetches(8, 7_343, 400), 4, Workers(4, 8)),
    "kernels beside a loader": (
        fetches(2, 5_322, 400, Launch(GEMM, 4_400)),
        5,
        FasterKernels(".*", 1.5),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_small_programs_are_answered(name: str) -> None:
    """Each was answered 13 to 1,300 % wrong, by rules that were meant for something else."""
    asked, steps, change = CASES[name]
    verdict = judge(Case(asked, Style(first=30, steps=steps), name), [change])[0]

    assert abs(verdict.error) <= RIGHT
    assert verdict.in_interval


def test_window_without_a_whole_burst_is_doubted() -> None:
    """Eight workers bring eight batches at once: five steps in between show none that waited."""
    asked = fetches(8, 106_434, 60, Launch(ADAM, 109_560))
    style = Style(first=24, steps=5)
    verdict = judge(Case(asked, style, "loader"), [FasterKernels("multi_tensor", 3)])[0]

    assert verdict.outcome == "right" or any("loader" in doubt for doubt in verdict.doubts)


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(changed_cases())
def test_no_answer_is_silently_wrong(drawn: tuple[Case, Change]) -> None:
    """Right, refused, or doubted by name."""
    case, change = drawn

    verdict = judge(case, [change])[0]

    assert verdict.outcome != "silently wrong", verdict
