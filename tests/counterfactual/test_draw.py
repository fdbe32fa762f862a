"""What is drawn is a program that runs; a change leaves alone what it does not name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from tests.counterfactual.changes import FasterHost, FasterKernels, RemoveSync, ReplaceKernel
from tests.counterfactual.draw import (
    Case,
    changed_cases,
    features,
    random_changes,
    random_program,
)
from tests.counterfactual.judge import judge
from tests.counterfactual.program import HostWork, Launch, SyncStream, item, program, walk
from tests.counterfactual.simulate import simulate

if TYPE_CHECKING:
    from tests.counterfactual.changes import Change
    from tests.counterfactual.simulate import Run


@settings(max_examples=15, deadline=None)
@given(changed_cases())
def test_streams_are_serial_and_collectives_end_together(drawn: tuple[Case, Change]) -> None:
    """Before the change and after it."""
    case, change = drawn

    _check(simulate(case.program, 6))
    _check(simulate(change.of(case.program), 6))


def test_seed_decides_everything() -> None:
    """The same program and changes, today and tomorrow."""
    first, again = random_program(7), random_program(7)

    assert first == again
    assert random_changes(first.program, 7) == random_changes(again.program, 7)


def test_seeds_cover_regimes_and_features() -> None:
    """Everything that can be said is said by one of the first programs."""
    drawn = [random_program(seed) for seed in range(60)]
    said = frozenset[str]().union(*(features(case.program) for case in drawn))

    assert {case.meant for case in drawn} >= {"host", "device", "loader", "sync", "communication"}
    assert said >= {"graph", "item()", "2 ranks", "autograd thread", "untraced device idle"}


def test_change_leaves_other_kernels_their_draws() -> None:
    """Half of one kernel's time is all that differs."""
    asked = program(Launch("a", 1_000), Launch("b", 1_000), device_jitter=0.2)
    before, after = (
        [task.ns for task in simulate(each, 3).hosts[0].tasks]
        for each in (asked, FasterKernels("b", 2).of(asked))
    )

    assert before[::2] == after[::2]
    assert [round(ns / 2) for ns in before[1::2]] == pytest.approx(after[1::2], abs=1)


def test_faster_host_leaves_the_device_alone() -> None:
    """Calls and work take half the time; kernels do not."""
    ran = simulate(FasterHost(2).of(program(HostWork(100), Launch("a", 9_000))), 1, range(1))

    assert [(call.start, call.end) for call in ran.hosts[0].calls] == [(50, 3_050)]
    assert [task.ns for task in ran.hosts[0].tasks] == [9_000]


def test_replaced_kernel_takes_its_time_on_every_rank() -> None:
    """A rank that is slow at the old kernel is not at the new one."""
    changed = ReplaceKernel("a", 5).of(program(Launch("a", 9_000), slowness=(1.0, 1.3)))

    assert [host.tasks[0].ns for host in simulate(changed, 1).hosts] == [5_000, 5_000]


def test_removed_sync_takes_its_download_along() -> None:
    """Explicit waits and `.item()` go; the launch stays."""
    asked = program(Launch("a", 9_000), item(), SyncStream())
    changed = RemoveSync("item|Synchronize").of(asked)

    assert [type(each).__name__ for each in walk(changed.step)].count("Launch") == 1
    assert len(list(simulate(changed, 1, range(1)).hosts[0].calls)) == 1


def test_judge_tells_right_from_wrong() -> None:
    """A host-bound program that waits for nothing is answered rightly."""
    case = random_program(19)
    verdicts = judge(case, random_changes(case.program, 19))

    assert [verdict.outcome for verdict in verdicts] == ["right"] * 3
    assert {verdict.regime for verdict in verdicts} == {"host"}


def _check(run: Run) -> None:
    ends: dict[tuple[int, int], set[int]] = {}
    for host in run.hosts:
        free: dict[int, int] = {}
        for number, task in enumerate(host.tasks):
            assert task.end > task.start >= free.get(task.stream, 0), number
            free[task.stream] = task.end
        together = [task for task in host.tasks if task.kind == "collective"]
        for number, task in enumerate(together):
            ends.setdefault((0, number), set()).add(task.end)
    assert all(len(each) == 1 for each in ends.values())
