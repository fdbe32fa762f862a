"""A case that is answered wrongly in, the smallest one found that still is: for a literal test.

``python -m tests.counterfactual.shrink SEED [NUMBER OF THE CHANGE]`` prints it.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.counterfactual.draw import Case, random_changes, random_program
from tests.counterfactual.judge import judge
from tests.counterfactual.program import (
    Backward,
    Collective,
    GraphLaunch,
    Machine,
    NextBatch,
    Range,
    walk,
)
from tests.counterfactual.write_kineto import Style

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.counterfactual.changes import Change

BAD = ("silently wrong", "doubted")
KEPT = 0.7
"""Share of the error that a simpler case must have: a smaller one may have another cause."""


def shrink(case: Case, change: Change) -> Case:
    """Make *case* simpler as long as the answer to *change* stays about as wrong."""
    error = judge(case, [change])[0].error

    def still_wrong(simpler: Case) -> bool:
        try:
            verdict = judge(simpler, [change])[0]
        except (ArithmeticError, IndexError, RuntimeError, ValueError):
            return False
        return verdict.outcome in BAD and verdict.error / error > KEPT

    begin, improved = 0, True
    while improved or begin:  # on from where it got simpler, and at last once from the beginning
        begin, improved = 0 if not improved else begin, False
        for number, simpler in enumerate(_simpler(case)):
            if number >= begin and still_wrong(simpler):
                case, begin, improved = simpler, number, True
                break
    return case


def shown(case: Case) -> str:
    """Return *case* as the lines of a program that a test could hold."""
    program, usual = case.program, Machine()
    machine = {
        name: getattr(program.machine, name)
        for name in Machine.__dataclass_fields__
        if getattr(program.machine, name) != getattr(usual, name)
    }
    lines = [f"    {operation}," for operation in program.step]
    settings = (
        f"    loader={program.loader}, slowness={program.slowness}, machine={machine},",
        f"    jitter=({program.host_jitter}, {program.device_jitter})",
    )
    return "\n".join(["program(", *lines, *settings, ")", str(case.style)])


def _simpler(case: Case) -> Iterator[Case]:
    """Yield simpler cases, the boldest first."""
    program, style = case.program, case.style
    for name, value in (("drained", True), ("whole_us", False), ("sync_events", True)):
        if getattr(style, name) != value:
            yield replace(case, style=replace(style, **{name: value}))
    if style.steps < Style().steps:
        yield replace(case, style=replace(style, steps=Style().steps))
    settings: list[dict[str, Any]] = [{"host_jitter": 0.0, "device_jitter": 0.0}]
    settings += [{"machine": Machine()}, {"slowness": tuple([1.0] * program.ranks)}]
    kinds = {type(operation) for operation in walk(program.step)}
    settings += [{"slowness": (1.0,)}] if Collective not in kinds else [{"slowness": (1.0, 1.0)}]
    settings += [{"loader": None}] if NextBatch not in kinds else []
    for setting in settings:
        if any(getattr(program, name) != value for name, value in setting.items()):
            yield replace(case, program=replace(program, **setting))
    for step in _shorter(program.step):
        yield replace(case, program=replace(program, step=step))


def _shorter(step: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield *step* without some of its operations, or without a range around some."""
    size = len(step) // 2
    while size:
        for begin in range(0, len(step), size):
            yield (*step[:begin], *step[begin + size :])
        size //= 2
    for number, operation in enumerate(step):
        before, after = step[:number], step[number + 1 :]
        if isinstance(operation, Range | Backward):
            yield (*before, *operation.body, *after)
            for body in _shorter(operation.body):
                yield (*before, replace(operation, body=body), *after)
        elif isinstance(operation, GraphLaunch) and len(operation.nodes) > 1:
            yield (*before, replace(operation, nodes=operation.nodes[:-1]), *after)


if __name__ == "__main__":
    seed = int(sys.argv[1])
    drawn = random_program(seed)
    changes = random_changes(drawn.program, seed)
    for asked in changes if len(sys.argv) == 2 else [changes[int(sys.argv[2])]]:
        verdict = judge(drawn, [asked])[0]
        if verdict.outcome not in BAD:
            continue
        smallest = shrink(drawn, asked)
        verdict = judge(smallest, [asked])[0]
        times = (verdict.before_ns, verdict.true_ns, verdict.predicted_ns)
        sys.stdout.write(
            f"{shown(smallest)}\n{asked.text}: before {times[0]:,.0f}, true {times[1]:,.0f}, "
            f"predicted {times[2]:,.0f} ({verdict.error:+.1%}); {verdict.doubts}\n"
        )
