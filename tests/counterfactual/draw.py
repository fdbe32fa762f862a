"""Random programs, recordings and changes: from a seed, or from hypothesis, by the same rules.

What is drawn aims at one regime (what sets the pace: host, device, loader, synchronisation or
communication) and mixes in everything else that `program` can say.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from hypothesis import strategies as st

from tests.counterfactual.changes import (
    FasterHost,
    FasterKernels,
    Network,
    RemoveSync,
    ReplaceKernel,
    Workers,
)
from tests.counterfactual.draw_step import GEMM, SIDE_STREAM, draw_step
from tests.counterfactual.program import (
    Collective,
    Copy,
    Loader,
    Machine,
    Program,
    SyncDevice,
    SyncEvent,
    SyncStream,
    walk,
)
from tests.counterfactual.program import program as numbered_program
from tests.counterfactual.simulate import simulate
from tests.counterfactual.write_kineto import Style

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.counterfactual.changes import Change

REGIMES = ("host", "device", "loader", "sync", "communication")
FIRST_STEPS = (6, 40)
PATTERNS = (GEMM, "elementwise", "reduce", "Memcpy", "multi_tensor")


class Choices(Protocol):
    """Where decisions come from."""

    def integer(self, low: int, high: int) -> int:
        """Return a number of low … high."""

    def pick(self, options: Sequence[Any]) -> Any:
        """Return one of *options*."""

    def chance(self, percent: int) -> bool:
        """Return true in *percent* of a hundred cases."""


class SeededChoices:
    """Decisions of a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - no secret

    def integer(self, low: int, high: int) -> int:
        """Return a number of low … high."""
        return self._random.randint(low, high)

    def pick(self, options: Sequence[Any]) -> Any:
        """Return one of *options*."""
        return self._random.choice(options)

    def chance(self, percent: int) -> bool:
        """Return true in *percent* of a hundred cases."""
        return self._random.random() * 100 < percent


class DrawnChoices:
    """Decisions of hypothesis, which shrinks them: towards small numbers, first options and no."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        """Return a number of low … high."""
        return int(self._draw(st.integers(low, high)))

    def pick(self, options: Sequence[Any]) -> Any:
        """Return one of *options*."""
        return self._draw(st.sampled_from(list(options)))

    def chance(self, percent: int) -> bool:
        """Return true in *percent* of a hundred cases, or so."""
        return bool(self._draw(st.integers(0, 99)) >= 100 - percent)


@dataclass(frozen=True, slots=True)
class Case:
    """A program, how a profiler recorded it, and the regime it was meant for."""

    program: Program
    style: Style
    meant: str


def random_program(seed: int) -> Case:
    """Return the case of *seed*; the same for ever."""
    return draw_case(SeededChoices(seed), seed)


def random_changes(program: Program, seed: int, count: int = 3) -> list[Change]:
    """Return *count* different changes that apply to *program*."""
    return draw_changes(program, SeededChoices(1_000_003 * seed + 17), count)


@st.composite
def cases(draw: Callable[[Any], Any]) -> Case:
    """Draw a case."""
    return draw_case(DrawnChoices(draw), draw(st.integers(0, 1_000)))


@st.composite
def changed_cases(draw: Callable[[Any], Any]) -> tuple[Case, Change]:
    """Draw a case and a change of it."""
    case = draw(cases())
    return case, draw_changes(case.program, DrawnChoices(draw), 1)[0]


def draw_case(choices: Choices, seed: int) -> Case:
    """Draw a program and its recording."""
    regime = choices.pick(REGIMES)
    ranks = _ranks(choices, regime)
    with_loader = regime == "loader" or choices.chance(45)
    step = draw_step(choices, regime, loader=with_loader, ranks=ranks)
    jitter = choices.pick([(0.0, 0.0), (0.02, 0.005), (0.05, 0.01), (0.15, 0.02)])
    bare = numbered_program(
        *step,
        machine=_machine(choices),
        slowness=_slowness(choices, ranks),
        host_jitter=jitter[0],
        device_jitter=jitter[1],
        seed=seed,
    )
    program = _with_loader(bare, choices, regime) if with_loader else bare
    return Case(program, _style(choices), regime)


def draw_changes(program: Program, choices: Choices, count: int) -> list[Change]:
    """Draw *count* different changes of *program*."""
    drawn: dict[str, Change] = {}
    for _ in range(20 * count):
        change = _change(program, choices)
        drawn.setdefault(change.text, change)
        if len(drawn) == count:
            break
    return list(drawn.values())


def _ranks(choices: Choices, regime: str) -> int:
    if regime == "communication":
        return int(choices.pick([2, 2, 2, 4]))
    return 2 if choices.chance(12) else 1


def _slowness(choices: Choices, ranks: int) -> tuple[float, ...]:
    straggles = ranks > 1 and choices.chance(30)
    return (*[1.0] * (ranks - 1), choices.pick([1.05, 1.15, 1.3]) if straggles else 1.0)


def _machine(choices: Choices) -> Machine:
    """Draw a machine: what a call costs and how fast a launch gets through."""
    launch = choices.pick([6_000, 4_000, 9_000])
    return replace(
        Machine(),
        launch_ns=launch,
        latency_ns=launch + choices.pick([600, 2_000, 4_000]),
        gap_ns=choices.pick([1_200, 900, 1_800]),
        sync_lag_ns=choices.pick([4_000, 9_000]),
        copy_lag_ns=choices.pick([4_000, 12_000]),
        between_steps_ns=choices.pick([30_000, 80_000]),
    )


def _style(choices: Choices) -> Style:
    sync_events = choices.chance(60)
    return Style(
        first=choices.integer(*FIRST_STEPS),
        steps=choices.integer(3, 6),
        sync_events=sync_events,
        event_records=sync_events or choices.chance(50),
        whole_us=choices.chance(15),
        drained=not choices.chance(10),
        first_rank_only=choices.chance(25),
    )


def _with_loader(program: Program, choices: Choices, regime: str) -> Program:
    """Give *program* a loader that sets the pace, or one that does not."""
    free = replace(program, loader=Loader(1, 1, 1), host_jitter=0.0, device_jitter=0.0)
    pace = simulate(free, 13).period_ns(6)
    workers = choices.pick([1, 2, 4, 8, 0])
    share = choices.integer(115, 250) if regime == "loader" else choices.integer(10, 90)
    if workers == 0:  # taking over a finished batch cannot be seen in such a recording: usual cost
        return replace(program, loader=Loader(0, round(pace * share / 100), 1_400_000))
    handover = choices.pick([150_000, 60_000, 400_000])
    batch = max(round(pace * share / 100 * workers), 10_000)
    return replace(program, loader=Loader(workers, batch, handover))


def _change(program: Program, choices: Choices) -> Change:
    """Draw a change that applies to *program*."""
    names = {getattr(each, "name", "") for each in walk(program.step)}
    speedup = choices.pick([2.0, 1.25, 1.5, 3.0, 0.5])
    patterns = [one for one in PATTERNS if any(one in name for name in names)]
    changes: list[Change] = [
        FasterKernels(".*", speedup),
        FasterKernels(choices.pick(patterns), speedup),
        FasterHost(choices.pick([1.5, 1.2, 2.0, 3.0, 0.7])),
    ]
    if _waits(program):
        changes.append(RemoveSync("item|_local_scalar_dense|is_nonzero|Synchronize|DtoH"))
    if GEMM in patterns:
        changes.append(ReplaceKernel(GEMM, float(choices.pick([20, 5, 80, 200]))))
    if program.loader:
        recorded = program.loader.workers
        others = [workers for workers in (1, 2, 4, 8) if workers != recorded]
        changes += [Workers(choices.pick(others), recorded)]
    if program.ranks > 1:
        changes += [Network(choices.pick([2.0, 4.0, 0.5])), FasterKernels("nccl", speedup)]
    chosen: Change = choices.pick(changes)
    return chosen


def _waits(program: Program) -> bool:
    """Tell whether a step of *program* has a wait that the usual pattern removes."""
    return any(
        isinstance(each, SyncDevice | SyncStream | SyncEvent)
        or (isinstance(each, Copy) and each.direction == "DtoH" and each.pageable)
        for each in walk(program.step)
    )


def features(program: Program) -> frozenset[str]:
    """Say what *program* makes use of, for tables."""
    operations = list(walk(program.step))
    kinds = {type(each).__name__ for each in operations}
    said = {_FEATURES[kind] for kind in kinds if kind in _FEATURES}
    for copy in (each for each in operations if isinstance(each, Copy)):
        if copy.direction == "DtoH":
            said.add("item()")
        else:
            said.add(f"{'pageable' if copy.pageable else 'pinned'} upload")
    streams = {getattr(each, "stream", 7) for each in operations}
    if SIDE_STREAM in streams:
        said.add("second stream of kernels")
    if any(isinstance(each, Collective) for each in operations):
        said.add(f"{program.ranks} ranks")
    if len(set(program.slowness)) > 1:
        said.add("straggler")
    if program.loader:
        said.add(f"{program.loader.workers} workers")
    if program.host_jitter > 0.1:
        said.add("strong jitter")
    return frozenset(said)


_FEATURES = {
    "GraphLaunch": "graph",
    "DeviceIdle": "untraced device idle",
    "SyncEvent": "event sync",
    "SyncDevice": "device sync",
    "Memset": "memset",
    "Backward": "autograd thread",
}
