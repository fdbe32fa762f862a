"""Orders of pipeline stages, written out."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.errors import TransformError
from foretrace.transforms.distributed.pipeline.schedules import Turn, turns


def written(schedule: str, stages: int, micro_batches: int, stage: int, chunks: int = 1) -> str:
    """Return the turns as "f0 b0"; with chunks as "f0.1"."""
    order = turns(schedule, stages=stages, micro_batches=micro_batches, stage=stage, chunks=chunks)
    names = [f"{turn.direction[0]}{turn.micro_batch}" for turn in order]
    return " ".join(
        f"{name}.{turn.chunk}" if chunks > 1 else name
        for name, turn in zip(names, order, strict=True)
    )


@pytest.mark.parametrize(
    ("schedule", "stage", "expected"),
    [
        ("gpipe", 0, "f0 f1 f2 b0 b1 b2"),
        ("gpipe", 1, "f0 f1 f2 b0 b1 b2"),
        ("1f1b", 0, "f0 f1 b0 f2 b1 b2"),
        ("1f1b", 1, "f0 b0 f1 b1 f2 b2"),
    ],
)
def test_two_stages_and_three_micro_batches(schedule: str, stage: int, expected: str) -> None:
    """GPipe fills first; 1F1B starts backward as soon as the last stage can."""
    assert written(schedule, 2, 3, stage) == expected


def test_a_short_batch_never_fills_the_pipeline() -> None:
    """The first of four stages has two forwards to run ahead, not three."""
    assert written("1f1b", 4, 2, 0) == "f0 f1 b0 b1"


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        (0, "f0.0 f1.0 f0.1 f1.1 f2.0 b0.1 f3.0 b1.1 f2.1 b0.0 f3.1 b1.0 b2.1 b3.1 b2.0 b3.0"),
        (1, "f0.0 f1.0 f0.1 b0.1 f1.1 b1.1 f2.0 b0.0 f3.0 b1.0 f2.1 b2.1 f3.1 b3.1 b2.0 b3.0"),
    ],
)
def test_chunks_take_turns(stage: int, expected: str) -> None:
    """As in Megatron-LM: two stages, two chunks each, four micro-batches."""
    assert written("interleaved", 2, 4, stage, chunks=2) == expected


def test_as_many_micro_batches_as_stages_run_all_forwards_first() -> None:
    """Megatron-LM's special case."""
    assert written("interleaved", 2, 2, 1, chunks=2) == "f0.0 f1.0 f0.1 f1.1 b0.1 b1.1 b0.0 b1.0"


@given(st.sampled_from(["gpipe", "1f1b", "interleaved"]), st.integers(1, 5), st.integers(1, 4),
       st.data())  # fmt: skip
def test_everything_is_computed_once_and_forward_before_backward(
    schedule: str, stages: int, times: int, data: st.DataObject
) -> None:
    """Whatever the schedule, each micro-batch passes each chunk once each way."""
    chunks = 2 if schedule == "interleaved" else 1
    stage = data.draw(st.integers(0, stages - 1))
    order = turns(schedule, stages=stages, micro_batches=stages * times, stage=stage, chunks=chunks)

    assert set(Counter(order).values()) == {1}
    assert len(order) == 2 * stages * times * chunks
    for turn in order:
        if turn.direction == "backward":
            forward = Turn("forward", turn.micro_batch, turn.chunk)
            assert order.index(forward) < order.index(turn)


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        ("1f2b", "schedule='1f2b' is unknown; choose one of gpipe, 1f1b, interleaved"),
        ("interleaved", "micro_batches=3 is no multiple of the 2 stages"),
    ],
)
def test_orders_that_do_not_exist_are_refused(schedule: str, text: str) -> None:
    """One sentence each."""
    with pytest.raises(TransformError, match=text):
        turns(schedule, stages=2, micro_batches=3, stage=0, chunks=2)
