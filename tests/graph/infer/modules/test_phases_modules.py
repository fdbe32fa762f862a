"""Phase and module of host tasks: named ranges first, then autograd, then what remains."""

from __future__ import annotations

from foretrace.graph.infer.modules.phases_modules import assign_modules, assign_phases
from foretrace.graph.infer.tasks.threads import Threads
from foretrace.graph.model import PHASES
from tests.support.recordings.events import Row, call, note, op, parsed


def labelled(
    rows: list[Row], subordinates: tuple[int, ...] = (), loaders: tuple[int, ...] = ()
) -> list[str | None]:
    """Return the phase of every host task, by thread and start."""
    events, host, _ = parsed(rows)
    threads = Threads(1, subordinates, loaders, (), host.thread, host.is_call, ())
    return [PHASES[code] if code >= 0 else None for code in assign_phases(events, host, threads)]


def test_named_ranges_decide() -> None:
    """The inner range wins; what no range covers is forward."""
    rows = [
        note("## forward ##", 0, 30),
        op("aten::mm", 5, 5),
        note("data_load", 12, 6),
        op("aten::copy_", 13, 2),
        note("Optimizer.step#Adam.step", 40, 20),
        op("aten::mul_", 45, 5),
        op("aten::mm", 70, 5),
    ]

    assert labelled(rows) == ["forward", "load", "optimizer", "forward"]


def test_autograd_is_backward_wherever_it_runs() -> None:
    """Its operators and what they call, and its own thread."""
    rows = [
        op("autograd::engine::evaluate_function: MmBackward0", 0, 10),
        op("aten::mm", 2, 5),
        call(20, 5),
        call(0, 5, thread=2),
        call(0, 5, thread=3),
    ]

    assert labelled(rows, subordinates=(2,), loaders=(3,)) == [
        "backward",
        "backward",
        "backward",
        None,
        "backward",
        "load",
    ]


def paths(rows: list[Row]) -> list[str | None]:
    """Return the module of every host task."""
    events, host, _ = parsed(rows)
    codes, names = assign_modules(events, host)
    return [names[code] if code >= 0 else None for code in codes]


def test_innermost_module_wins() -> None:
    """Modules nest; "## text ##" is a title, not a path."""
    rows = [
        note("##net", 0, 30),
        note("##net.fc", 10, 10),
        note("## forward ##", 0, 50),
        op("aten::relu", 2, 5),
        op("aten::mm", 12, 5),
        op("aten::add", 40, 5),
    ]

    assert paths(rows) == ["net", "net.fc", None]


def test_backward_takes_the_module_of_its_forward_operator() -> None:
    """By sequence number; work of autograd without one goes with what ran before it."""
    rows = [
        note("##net.fc", 0, 10),
        op("aten::mm", 2, 5, sequence=7),
        op("autograd::engine::x: MmBackward0", 20, 10, sequence=7, forward_thread=1, thread=2),
        op("aten::mm", 22, 5, thread=2),
        op("torch::autograd::AccumulateGrad", 32, 5, thread=2),
        op("autograd::engine::x: Other", 40, 5, sequence=9, forward_thread=1, thread=2),
        op("torch::autograd::AccumulateGrad", 0, 5, thread=3),
    ]

    assert paths(rows) == ["net.fc", "net.fc", "net.fc", "net.fc", "net.fc", "net.fc", None]


def test_recording_without_modules() -> None:
    """Nothing is invented."""
    assert paths([op("aten::mm", 0, 5)]) == [None]
