"""Errors by what-if and model, and what counts as worse."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from foretrace.batch.compare import is_judged, judge, list_worse
from foretrace.errors import TraceError
from tests.support.measured.studies import row

GOOD = [
    row("a"),
    row("b", model="b", predicted_ns=50.0, paper_ns=60.0),
    row("c", transforms="tf32", predicted_ns=40.0),
]


def test_errors_are_shares_of_the_measured_step() -> None:
    """Off by 10, 0 and 20 %; no change would be off by 100."""
    found = judge(GOOD)

    assert asdict(found.total) == {
        "group": "all",
        "items": 3,
        "mean": pytest.approx(0.1),
        "median": pytest.approx(0.1),
        "p90": pytest.approx(0.18),
        "worst": pytest.approx(0.2),
        "inside": 3,
        "no_change": 1.0,
        "paper": pytest.approx(0.2),
    }
    assert [(e.group, e.items) for e in found.by_transform] == [("amp", 2), ("tf32", 1)]
    assert [(e.group, e.worst) for e in found.by_model] == [
        ("a", pytest.approx(0.1)),
        ("b", 0.0),
        ("c", pytest.approx(0.2)),
    ]
    assert found.by_transform[1].paper is None
    assert found.worse is None
    assert found.tables == (found.total, *found.by_transform, *found.by_model)


def test_what_judges_nothing_is_counted() -> None:
    """Noisy, off in its replay, not measured, failed, or of generated code."""
    others = [
        row("noisy", noise=0.1),
        row("drifted", replayed_ns=120.0),
        row("compiled", transforms="compile"),
        row("unmeasured", after_ns=None),
        row("failed", error="why", predicted_ns=None),
    ]
    found = judge([*GOOD, *others])

    assert found.total == judge(GOOD).total
    assert found.left_out == "2 inconclusive, 1 not foreseeable, 1 not measured, 1 failed"
    assert not any(map(is_judged, others))


def test_without_a_truth_there_is_nothing_to_judge_by() -> None:
    """One sentence says what to add."""
    with pytest.raises(TraceError, match="no item has a measured step after the change"):
        judge([row("a", after_ns=None)])


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"noise": 0.3}, "its repeats drift by 30.0%"),
        ({"transforms": "compile"}, "generated code cannot be foreseen"),
    ],
)
def test_measurements_may_all_be_in_doubt(settings: dict[str, object], why: str) -> None:
    """Then there is nothing to judge by, either, and the reason is another."""
    with pytest.raises(TraceError, match=f"none of 1 measurements judges anything: {why}"):
        judge([row("a", **settings)])


def test_the_same_results_are_not_worse() -> None:
    """Nor better ones, nor ones within the tolerance."""
    better = [replace(one, predicted_ns=50.0) for one in GOOD]
    close = [replace(GOOD[0], predicted_ns=55.2), *GOOD[1:]]

    for rows in (GOOD, better, close, [*GOOD, row("new", predicted_ns=500.0)]):
        assert judge(rows, GOOD).worse == ()


def test_an_error_that_grew_is_named_by_its_groups() -> None:
    """The what-if and the model of the item, and the total where it shows there."""
    grown = [replace(GOOD[0], predicted_ns=60.0), *GOOD[1:]]
    said = judge(grown, GOOD).worse

    assert said is not None
    assert "what-if amp: median |error| 5.00% -> 10.00% over 2 items" in said
    assert "model a: mean |error| 10.00% -> 20.00% over 1 items" in said
    assert not any("tf32" in text for text in said)
    assert judge(grown, GOOD, tolerance=0.2).worse == ()


def test_lost_items_are_worse() -> None:
    """Failed now, or gone; many are counted."""
    failing = [replace(GOOD[0], error="no more"), GOOD[1]]

    assert list(list_worse(failing, GOOD, 0.5)) == [
        "a amp: judges nothing any more: no more",
        "c amp: judges nothing any more: it is not among the results",
    ]
    many = [row(str(number)) for number in range(25)]
    said = list(list_worse([], many, 0.5))
    assert said[20:] == ["5 more items judge nothing any more", "no item is judged in both"]


def test_items_of_one_name_are_told_apart() -> None:
    """Two archives may hold a pair of the same name; losing either is noticed."""
    twice = [row("a"), row("a", key="another")]

    assert judge(twice, twice).worse == ()
    assert list(list_worse(twice[:1], twice, 0.5)) == [
        "a amp: judges nothing any more: it is not among the results"
    ]


def test_a_replay_that_went_astray_is_worse_and_noise_is_not() -> None:
    """Both make a pair inconclusive; only the first is the program's doing."""
    astray = [replace(GOOD[0], replayed_ns=120.0), *GOOD[1:]]
    noisy = [replace(GOOD[0], noise=0.1), *GOOD[1:]]
    unknown = [replace(GOOD[0], after_ns=None), *GOOD[1:]]

    assert judge(astray, GOOD).worse == (
        "a amp: judges nothing any more: its replay without any change is off by +20.0%",
    )
    assert judge(noisy, GOOD).worse == ()
    assert judge(unknown, GOOD).worse == (
        "a amp: judges nothing any more: its step after the change is not known",
    )
