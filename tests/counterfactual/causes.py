"""One cause that makes a program slower, drawn by a seed, and whether `foretrace diff` names it.

The two recordings differ in chance as well: what takes time varies anew in the second one.
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import foretrace
from foretrace.analysis.difference.difference import diff
from tests.counterfactual.changes import HOST_COSTS, FasterKernels, Network, mapped
from tests.counterfactual.draw import SeededChoices, random_program
from tests.counterfactual.program import DeviceIdle, HostWork, Launch, Range, walk
from tests.counterfactual.simulate import simulate
from tests.counterfactual.write_kineto import write_recordings

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.counterfactual.draw import Case
    from tests.counterfactual.program import Program

LEAST = 0.10
"""Share of a step that a cause must make: below, there is nothing to explain."""
SEVERITIES = (1.3, 2.0, 4.0, 8.0)
"""How many times as long what is changed takes; one is drawn, the next are tried if need be."""
KERNELS = "sgemm|elementwise|reduce|multi_tensor"
LATENCIES = ("latency_ns", "graph_latency_ns", "gap_ns", "graph_gap_ns", "event_lag_ns",
             "sync_lag_ns", "copy_lag_ns")  # fmt: skip


def slower_kernels(program: Program, times: float) -> Program:
    """Let kernels take longer."""
    return FasterKernels(KERNELS, 1 / times).of(program)


def slower_host(program: Program, times: float) -> Program:
    """Let the threads of the job take longer for what they do and call; not the loader's."""

    def longer(operation: Any) -> Any:
        is_work = isinstance(operation, HostWork)
        return replace(operation, ns=round(operation.ns * times)) if is_work else operation

    costs = {name: round(getattr(program.machine, name) * times) for name in HOST_COSTS}
    machine = replace(program.machine, **costs)
    return replace(program, step=mapped(program.step, longer), machine=machine)


def slower_loader(program: Program, times: float) -> Program | None:
    """Let a batch take longer to make."""
    loader = program.loader
    if loader is None:
        return None
    return replace(program, loader=replace(loader, batch_ns=round(loader.batch_ns * times)))


def slower_network(program: Program, times: float) -> Program | None:
    """Let transfers take longer."""
    return Network(1 / times).of(program) if program.ranks > 1 else None


def longer_latencies(program: Program, times: float) -> Program:
    """Let the device take longer between two kernels, and from a call to its work."""
    costs = {name: round(getattr(program.machine, name) * times) for name in LATENCIES}
    return replace(program, machine=replace(program.machine, **costs))


def idle_device(program: Program, times: float) -> Program:
    """Let the device do nothing for a while in every step, for no recorded reason."""
    idle = DeviceIdle(round(100_000 * times), key=_next_key(program))
    return replace(program, step=(*program.step, idle))


def more_operators(program: Program, times: float) -> Program:
    """Let every step run operators that it did not run before."""
    first, name = _next_key(program), "void regularise_kernel(float*)"
    added = [
        Range("aten::regularise", (HostWork(6_000, key=key), Launch(name, 20_000, key=key + 1)))
        for key in range(first, first + 2 * round(8 * times), 2)
    ]
    return replace(program, step=(*program.step, *added))


def _next_key(program: Program) -> int:
    return 1 + max(getattr(each, "key", 0) for each in walk(program.step))


CAUSES: dict[str, tuple[str, Callable[[Program, float], Program | None]]] = {
    "kernels slower": ("kernels", slower_kernels),
    "host slower": ("host", slower_host),
    "loader slower": ("loader", slower_loader),
    "network slower": ("communication", slower_network),
    "latencies longer": ("latencies", longer_latencies),
    "device idle": ("latencies", idle_device),
    "operators added": ("work", more_operators),
}
"""What is changed, and the part of the difference that it should be."""


@dataclass(frozen=True, slots=True)
class CausedPair:
    """A program before and after one cause, in ns of one step; ``after`` may be the quicker one."""

    seed: int
    cause: str
    times: float
    before: Case
    after: Case


@dataclass(frozen=True, slots=True)
class Judged:
    """What `diff` says of a pair. ``difference_ns`` is true, ``part_ns`` the part of its cause."""

    seed: int
    cause: str
    times: float
    named: str
    is_named: bool
    before_ns: float
    difference_ns: float
    said_ns: float
    part_ns: float
    interval_ns: tuple[float, float]
    moved_ns: float
    unexplained_ns: float
    sum_off_ns: float
    doubts: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether the interval of the cause's part holds the true difference."""
        low, high = self.interval_ns
        return low <= self.difference_ns <= high

    @property
    def row(self) -> dict[str, Any]:
        """A row of a table."""
        return {**asdict(self), "holds": self.holds}


def draw_pair(seed: int) -> CausedPair | None:
    """Return the pair of *seed*: the same for ever; None where its cause makes no difference."""
    case, choices = random_program(seed), SeededChoices(7_000_003 * seed + 5)
    cause = choices.pick([*CAUSES])
    is_swapped = choices.chance(30)
    first = choices.integer(0, len(SEVERITIES) - 2)
    before_ns = simulate(case.program).period_ns()
    for times in SEVERITIES[first:]:
        changed = CAUSES[cause][1](case.program, times)
        if changed is None:
            return None
        changed = replace(changed, seed=case.program.seed + 1)
        if abs(simulate(changed).period_ns() / before_ns - 1) >= LEAST:
            ends = case, replace(case, program=changed)
            before, after = reversed(ends) if is_swapped else ends
            return CausedPair(seed, cause, times, before, after)
    return None


def judge_pair(pair: CausedPair) -> Judged:
    """Record both programs, and compare what `diff` says with the cause."""
    graphs, true_ns = [], []
    for case in (pair.before, pair.after):
        run = simulate(case.program, recorded=case.style.window)
        true_ns.append(run.period_ns())
        with tempfile.TemporaryDirectory() as folder:
            paths = write_recordings(run, case.style, Path(folder))
            graphs.append(foretrace.build(foretrace.load(paths if len(paths) > 1 else paths[0])))
    found = diff(*graphs)
    wanted = CAUSES[pair.cause][0]
    part = next(part for part in found.parts if part.cause == wanted)
    true = true_ns[1] - true_ns[0]
    total = sum(each.ns for each in found.parts) + found.unexplained_ns
    return Judged(
        seed=pair.seed,
        cause=pair.cause,
        times=pair.times,
        named=found.parts[0].cause,
        is_named=found.parts[0].cause == wanted,
        before_ns=true_ns[0],
        difference_ns=true,
        said_ns=found.difference_ns,
        part_ns=part.ns,
        interval_ns=part.interval_ns,
        moved_ns=sum(abs(each.ns) for each in found.parts),
        unexplained_ns=found.unexplained_ns,
        sum_off_ns=total - found.difference_ns,
        doubts=tuple(doubt.code for doubt in found.doubts),
    )
