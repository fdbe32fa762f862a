"""What the table of validated errors tells of a scenario, and how wide its interval is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from foretrace.analysis.error.difficulty import Difficulty
from foretrace.analysis.error.error_scale import read_scale
from foretrace.analysis.evidence.validated_errors import (
    REPLAYED,
    list_cost_sources,
    load_table,
    look_up,
    validated_error,
)
from foretrace.analysis.evidence.validation_scope import Place
from foretrace.graph.literal import literal
from foretrace.transforms.edit.primitives import scale
from foretrace.transforms.edit.provenance import mark_measured
from foretrace.transforms.scenario import WhatIf, apply, parse_scenario

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.model import Graph

TABLE: dict[str, Any] = {
    "interval": {
        "cpu": {
            "base": 0.01,
            "rule": 0.05,
            "factors": {"odd": 2.0, "batch_size": 1.5},
            "quantile": 3.0,
            "untested": 0.12,
        }
    },
    "unvalidated": {"missed": 0.5},
    "evidence": {
        name: [{"on": "cpu", "hardware": "here", "source": "rule", "untuned": 9, "tuned": 0}]
        for name in ("a", "odd", "pipeline")
    },
}
HERE = Place("cpu", "here")
HALF = Difficulty(rule=0.5)


def half_width(names: Sequence[str], difficulty: Difficulty = HALF, place: Place = HERE) -> float:
    """Return half the interval of what-ifs by rule, as |ln|."""
    return look_up([(name, "rule") for name in names], TABLE, place).of(difficulty)


def test_an_interval_is_as_wide_as_its_answer_is_difficult() -> None:
    """A base, a share of what rules gave, and nothing for a small change of what was tested."""
    assert half_width(["a"]) == pytest.approx(3 * (0.01 + 0.5 * 0.05))
    assert half_width(["a"], Difficulty()) == pytest.approx(3 * 0.01)


def test_a_what_if_may_be_further_off_than_its_difficulty_tells() -> None:
    """Together with others it stays so."""
    assert half_width(["odd"]) == pytest.approx(2 * half_width(["a"]))
    assert half_width(["a", "odd"]) == half_width(["odd"])


def test_what_applies_another_what_if_errs_at_least_as_much() -> None:
    """A pipeline cuts the batch into pieces: what `batch_size` gets wrong is wrong in it, too."""
    assert half_width(["pipeline"]) == pytest.approx(1.5 * half_width(["a"]))


@pytest.mark.parametrize("name", ["c", "a"])
def test_what_was_not_tested_here_is_never_surer_than_what_was(name: str) -> None:
    """No pair at all, or none at this place: as the worst that was tested, however easy."""
    there = Place("cpu", "a CPU of other instructions")

    assert half_width([name], HALF, there) == pytest.approx(half_width(["odd"]))
    assert half_width([name], Difficulty(), there) == 0.12
    assert half_width(["a"], Difficulty()) < 0.12


def test_untested_what_ifs_may_miss_a_share_of_their_change() -> None:
    """Half of a factor of two is half of its logarithm, joined with the rest."""
    change = Difficulty(change=math.log(2))

    assert half_width(["c"], change) == pytest.approx(math.hypot(0.12, 0.5 * math.log(2)))
    assert half_width(["a"], change) == pytest.approx(3 * 0.01)


def test_what_the_user_states_cannot_be_missed_by_a_rule() -> None:
    """A factor on kernels is given; what remains without some modules is told by rules."""
    given = look_up([("faster_kernels", "rule")], TABLE, HERE)

    assert (given.missing, given.missed) == (("faster_kernels",), 0.0)
    assert given.of(Difficulty(change=1.0)) == REPLAYED
    assert look_up([("remove_modules", "rule")], TABLE, HERE).missed == 0.5
    assert half_width(["faster_kernels", "a"]) == half_width(["a"])


def test_no_change_is_sure() -> None:
    """Nothing was asked: the step is the measured one."""
    assert look_up([], TABLE, HERE).of(Difficulty()) == 0.0


def test_unknown_transforms_are_named() -> None:
    """Nothing is validated by silence, and another kind of hardware is another matter."""
    found = look_up([("a", "rule"), ("c", "rule")], TABLE, HERE)

    assert found.missing == ("c",)
    assert look_up([("a", "rule")], TABLE, Place("gpu", "there")).missing == ("a",)


def test_a_what_if_counts_as_measured_where_a_calibration_told() -> None:
    """Whatever comes after it: a faster host gives every task a label of its own."""

    def timed(graph: Graph) -> Graph:
        return mark_measured(scale(graph, np.ones(1, bool), 0.5, cost="measured"))

    graph = literal([("mm", "host", 0, 10, "forward")])
    scenario = (WhatIf("mine", timed), *parse_scenario(["faster_host(speedup=2)"]))
    changed = apply(graph, scenario)

    assert list_cost_sources(scenario, changed) == [
        ("custom", "measured"),
        ("faster_host", "rule"),
    ]
    assert list_cost_sources(scenario[1:], changed) == [("faster_host", "rule")]
    assert list_cost_sources(scenario[:1], graph) == [("custom", "rule")]
    assert list_cost_sources((), changed) == []


def test_the_shipped_table_has_both_kinds_of_hardware() -> None:
    """Every entry has an error and at least two pairs behind it."""
    table = load_table()
    rows = [
        row
        for hardware in ("gpu", "cpu")
        for transforms in table[hardware].values()
        for row in transforms.values()
    ]

    assert rows
    assert all(row["p90"] >= row["median"] >= 0 and row["pairs"] >= 2 for row in rows)
    assert 0 < table["unvalidated"]["missed"] < 1
    for on in ("gpu", "cpu"):
        scale, easy = read_scale(table["interval"][on]), Difficulty()
        new = scale.half_width(easy, ["new"], untested=["new"])
        assert 0 < scale.half_width(easy, ["batch_size"]) <= new < 1


def test_a_scenario_of_nothing_known_is_unvalidated() -> None:
    """A plain function of the user has no pairs."""
    assert validated_error([("custom", "rule")], Place("gpu", "any")).missing == ("custom",)
