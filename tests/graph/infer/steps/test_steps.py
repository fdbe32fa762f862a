"""Steps are found from what looks most like one, in a fixed order; a pattern overrules."""

from __future__ import annotations

import pytest

from foretrace.errors import GraphError
from foretrace.graph.infer.events import select_events
from foretrace.graph.infer.steps.steps import StepBounds, find_steps
from tests.support.recordings.events import Row, call, microseconds, note, op, trace


def found(*rows: Row, pattern: str | None = None) -> StepBounds | None:
    """Return the steps of a recording."""
    return find_steps(select_events(trace(rows).events), pattern)


def repeated(name: str, count: int, length: float, offset: float = 0, **more: int) -> list[Row]:
    """Return *count* ranges 100 µs apart; # in *name* becomes their number."""
    return [
        note(name.replace("#", f"#{i}"), 100 * i + offset, length, **more) for i in range(count)
    ]


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("ProfilerStep#", "ProfilerStep"),
        ("step #", "step range"),
        ("Iteration #", "step range"),
        ("training_step_#", "step range"),
        ("iter_#", "step range"),
        ("epoch 1, step #", "step range"),
        ("global_step=#", "step range"),
        ("[pl][profile]run_training_batch", "step range"),
        ("forward", "forward range"),
        ("Optimizer.step#Adam.step", "Optimizer.step"),
        ("Optimizer.zero_grad#Adam.zero_grad", "Optimizer.zero_grad"),
        ("microbatch #", "repeated range"),
    ],
)
def test_ranges_that_mark_steps(name: str, source: str) -> None:
    """Three ranges mark two whole steps, from start to start."""
    steps = found(*repeated(name, 3, 90))

    assert steps is not None
    assert (steps.source, steps.count, microseconds(steps.starts_ns)) == (source, 2, [0, 100, 200])


def test_profiler_steps_win_over_other_ranges() -> None:
    """The order of preference decides, not how often a range repeats."""
    rows = [*repeated("forward", 5, 90, 3), *repeated("ProfilerStep#", 3, 90)]
    steps = found(*rows)

    assert steps is not None
    assert steps.source == "ProfilerStep"


def test_old_recordings_keep_annotations_among_operators() -> None:
    """They count as ranges, too."""
    steps = found(*(op(f"ProfilerStep#{i}", 100 * i, 90) for i in range(3)))

    assert steps is not None
    assert steps.count == 2


def test_longest_lasting_range_is_taken_from_its_busiest_thread() -> None:
    """Of several shapes that fit, and of several threads."""
    rows = [
        *repeated("step #", 4, 20, 5),
        *repeated("batch #", 3, 90),
        *repeated("batch #", 2, 90, 50, thread=2),
    ]
    steps = found(*rows)

    assert steps is not None
    assert (steps.thread, microseconds(steps.starts_ns)) == (1, [0, 100, 200])


def test_single_profiler_step_ends_with_itself() -> None:
    """Its own length is all there is."""
    steps = found(note("ProfilerStep#7", 10, 90))

    assert steps is not None
    assert (steps.single, microseconds(steps.starts_ns)) == (True, [10, 100])


def test_single_range_of_another_name_is_no_step() -> None:
    """It could be anything."""
    assert found(note("forward", 0, 90)) is None


def test_short_repeated_ranges_are_no_steps() -> None:
    """A numbered range that covers little of the recording is a layer or the like."""
    assert found(*repeated("layer #", 5, 10)) is None


def test_nothing_that_repeats() -> None:
    """A recording without ranges has no steps."""
    assert found(op("aten::mm", 0, 10)) is None


def test_ranges_that_begin_together_are_one() -> None:
    """Two copies of one annotation do not make an empty step."""
    steps = found(*repeated("ProfilerStep#", 3, 90), *repeated("ProfilerStep#", 3, 80))

    assert steps is not None
    assert steps.count == 2


def test_pattern_names_the_range() -> None:
    """A regular expression overrules the guess."""
    steps = found(*repeated("ProfilerStep#", 3, 90), *repeated("work", 4, 9, 5), pattern="^wo.k$")

    assert steps is not None
    assert (steps.source, microseconds(steps.starts_ns)) == ("pattern '^wo.k$'", [5, 105, 205, 305])


def test_pattern_that_matches_once_is_refused() -> None:
    """One range bounds no step."""
    with pytest.raises(GraphError, match="'once' matches 1 ranges, at least 2 are needed"):
        found(note("once", 0, 10), op("aten::mm", 20, 10), pattern="once")


def test_pattern_that_is_no_expression_is_refused() -> None:
    """The message says where it breaks."""
    with pytest.raises(GraphError, match=r"'\(' is no regular expression: missing \)"):
        found(note("once", 0, 10), pattern="(")


@pytest.mark.parametrize(
    "name",
    ["aten::to, op_id = #", "aten::mm, seq = 5, op_id = #", "MmBackward0, op_id = #", "my::step #"],
)
def test_operators_are_no_steps(name: str) -> None:
    """As `emit_nvtx` names them: they repeat and cover the recording, and begin no step."""
    assert found(*repeated(name, 6, 95)) is None


def test_steps_are_found_among_traced_operators() -> None:
    """A range of the user keeps its name before what `emit_nvtx` appends."""
    rows = [*repeated("aten::mm, op_id = #", 8, 40), *repeated("step #, op_id = 7", 3, 90)]
    steps = found(*rows)

    assert steps is not None
    assert (steps.source, steps.name, steps.count) == ("step range", "step #", 2)


def test_the_thread_with_the_work_has_the_steps() -> None:
    """Another one has more of them, and shorter ones; it calls nothing."""
    idle = [note(f"ProfilerStep#{i}", 70 * i, 65, thread=1) for i in range(9)]
    busy = [note(f"ProfilerStep#{i}", 100 * i, 95, thread=2) for i in range(5)]
    steps = found(*idle, *busy, *(call(100 * i + 5, 5, i, thread=2) for i in range(5)))

    assert steps is not None
    assert (steps.thread, steps.count) == (2, 4)


@pytest.mark.parametrize(
    ("name", "is_guess"),
    [
        ("ProfilerStep#", False),
        ("step #", False),
        ("Optimizer.step#SGD.step", False),
        ("forward", True),
        ("epoch 1 part#", True),
    ],
)
def test_what_does_not_call_itself_a_step_is_a_guess(name: str, *, is_guess: bool) -> None:
    """Only what says so is certain, and a pattern is."""
    rows = repeated(name, 3, 90)
    guessed, given = found(*rows), found(*rows, pattern=".")

    assert guessed is not None
    assert given is not None
    assert (guessed.is_guess, given.is_guess) == (is_guess, False)


def test_steps_have_their_numbers() -> None:
    """Where they count one by one."""
    numbered = found(*(note(f"step {i}", 100 * i, 90) for i in (7, 8, 9)))
    unnumbered = found(*(note("step", 100 * i, 90) for i in (7, 8, 9)))

    assert numbered is not None
    assert unnumbered is not None
    assert numbered.numbers is not None
    assert numbered.numbers.tolist() == [7, 8, 9]
    assert unnumbered.numbers is None
