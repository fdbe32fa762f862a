"""Which operators of a CPU job follow the samples, told from their shapes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from foretrace.graph.literal import literal
from foretrace.transforms.batching.batch_size import batch_size
from tests.support.jobs.simple import META, cpu_job

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

LEARNED = [["gate", [4, 100], 4], ["expert", [200, 100], 4], ["words", [5000, 100], 4]]
DOUBLED = 4_000 + 96_000 * 2
SAMPLES = ("aten::relu", "forward", "[[32,100]]")


def job(*operators: tuple[str, str, str], lag_ns: int = 0) -> Graph:
    """Return a step of 32 samples: operators (name, phase, shapes) of 100 us each."""
    names, phases, shapes = (list(each) for each in zip(*operators, strict=True))
    places = range(len(operators))
    meta = replace(META, machine=cpu_job(steps=1).meta.machine, extra={"parameters": LEARNED})
    return literal(
        [(names[at], "host", 0, 100_000, phases[at]) for at in places],
        columns={"operator": list(places)},
        operators={
            "name": names,
            "parent": [-1] * len(names),
            "phase": phases,
            "shapes": shapes,
            "step": [0] * len(names),
        },
        meta=meta,
        lag_ns=lag_ns,
        wrap=True,
    )


def grown(*operators: tuple[str, str, str]) -> list[int]:
    """Return what *operators* take with twice as many samples, beside one that follows them."""
    changed = batch_size(job(SAMPLES, *operators), n=64)
    return changed.tasks["work_ns"].tolist()[1:]


@pytest.mark.parametrize(
    ("shapes", "work"),
    [
        ("[[19,200]]", DOUBLED),
        ("[[200,100]]", 100_000),
        ("[[100,200]]", 100_000),
        ("[[30,32,100]]", DOUBLED),
        ("[[1,100]]", 100_000),
    ],
)
def test_rows_that_are_no_multiple_of_the_batch(shapes: str, work: int) -> None:
    """Those routed to an expert and words that come first grow; what is learned stays."""
    assert grown(("aten::relu", "forward", shapes)) == [work]


def test_sizes_behind_the_samples_are_no_rows() -> None:
    """A mask over 50 words is as large as ever where samples have 50 words."""
    words = ("aten::relu", "forward", "[[32,50,100]]")

    assert grown(words, ("aten::add", "forward", "[[50,50]]")) == [DOUBLED, 100_000]


def test_tables_are_looked_up_not_read() -> None:
    """Twice as many words: twice the time, however large the table is."""
    assert grown(("aten::index_select", "forward", "[[5000,100],[],[320]]")) == [DOUBLED]


def test_sparse_updates_grow_and_dense_ones_stay() -> None:
    """An update on the rows that the samples touched has as many more of them."""
    sparse = [
        ("aten::coalesce", "optimizer", "[[5000,100]]"),
        ("aten::sqrt", "optimizer", "[[310,100]]"),
        ("aten::add_", "optimizer", "[[5000,100],[5000,100],[]]"),
        ("aten::addcdiv_", "optimizer", "[[200,100],[200,100]]"),
    ]

    assert grown(*sparse) == [DOUBLED, DOUBLED, DOUBLED, 100_000]
    assert grown(*sparse[1:]) == [100_000] * 3


def test_operators_of_no_known_class_grow_by_their_shapes() -> None:
    """A loss over sequences is known by its inputs; what has none stays."""
    ctc = ("aten::_ctc_loss", "forward", "[[30,32,100],[32,10]]")

    assert grown(ctc, ("aten::is_pinned", "forward", "[[]]")) == [DOUBLED, 100_000]


def test_long_stretches_of_python_are_doubted() -> None:
    """400 us between two operators may be an environment; 40 us are calls."""
    doubts = [batch_size(job(SAMPLES, lag_ns=lag), n=64).state.doubts for lag in (400_000, 40_000)]

    assert [[doubt.code for doubt in found] for found in doubts] == [["python-per-sample"], []]
