"""The table of validated errors, and how several errors combine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from foretrace.analysis.evidence import Evidence
from foretrace.analysis.validated_errors import (
    ValidatedError,
    combine,
    list_cost_sources,
    load_table,
    validated_error,
)
from foretrace.analysis.validation_scope import Place
from foretrace.graph.literal import literal
from foretrace.transforms.edit.primitives import scale
from foretrace.transforms.edit.provenance import mark_measured
from foretrace.transforms.scenario import WhatIf, apply, parse_scenario

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

MANY = {"pairs": 9, "median": 0.01}
TABLE: dict[str, Any] = {
    "cpu": {
        "rule": {"a": {**MANY, "p90": 0.03}, "b": {**MANY, "p90": 0.04}},
        "measured": {"a": {**MANY, "p90": 0.01}, "few": {"pairs": 3, "median": 0.0, "p90": 0.002}},
    },
    "pooled": {"cpu": {"measured": 0.02}},
    "unvalidated": {"missed": 0.5},
    "evidence": {
        name: [{"on": "cpu", "hardware": "here", "source": "rule", "untuned": 9, "tuned": 0}]
        for name in ("a", "b", "few")
    },
}
HERE = Place("cpu", "here")


def test_errors_of_several_transforms_add_in_quadrature() -> None:
    """3 % and 4 % make 5 %."""
    found = combine([("a", "rule"), ("b", "rule")], TABLE, HERE)

    assert (found.share, found.missing) == (0.05, ())


def test_a_transform_counts_once() -> None:
    """The same what-if twice has the same cause of error twice."""
    assert combine([("a", "rule"), ("a", "rule")], TABLE, HERE).share == 0.03


def test_each_cost_source_has_its_own_error() -> None:
    """What was timed is closer; where nothing of a kind was timed, what rules showed holds."""
    assert combine([("a", "measured")], TABLE, HERE).share == 0.01
    assert combine([("b", "measured")], TABLE, HERE).share == 0.04


def test_few_pairs_take_the_error_of_all_of_their_source() -> None:
    """Three lucky pairs do not make a narrow interval."""
    assert combine([("few", "measured")], TABLE, HERE).share == 0.02


def test_what_the_user_states_cannot_be_missed_by_a_rule() -> None:
    """A factor on kernels is given; what remains without some modules is told by rules."""
    assert combine([("faster_kernels", "rule")], TABLE, HERE).missed == 0.0
    assert combine([("remove_modules", "rule")], TABLE, HERE).missed == 0.5


def test_unknown_transforms_are_named() -> None:
    """Nothing is validated by silence, and another kind of hardware is another matter."""
    found = combine([("a", "rule"), ("c", "rule")], TABLE, HERE)

    assert found.missing == ("c",)
    assert combine([("a", "rule")], TABLE, Place("gpu", "there")).missing == ("a",)


@pytest.mark.parametrize("ratio", [0.5, 2.0])
def test_untested_what_ifs_may_miss_a_share_of_their_change(ratio: float) -> None:
    """Half of a factor of two is half of its logarithm; no change cannot be missed."""
    found = combine([("c", "rule")], TABLE, HERE)

    assert found.of(ratio) == pytest.approx(0.3466, abs=1e-4)
    assert found.of(1.0) == 0
    assert ValidatedError(0.03, Evidence("validated")).of(ratio) == 0.03


def test_what_the_user_states_is_no_guess() -> None:
    """It is not validated either."""
    found = combine([("faster_kernels", "rule"), ("a", "rule")], TABLE, HERE)

    assert (found.missing, found.of(0.5)) == (("faster_kernels",), 0.03)


@pytest.mark.parametrize("name", ["c", "a"])
def test_what_was_not_tested_here_is_never_surer_than_what_was(name: str) -> None:
    """No pair at all, or none at this place: at least the error that all pairs of rules show."""
    table = {**TABLE, "pooled": {"cpu": {"rule": 0.12}}}
    there = Place("cpu", "a CPU of other instructions")

    assert combine([(name, "rule")], table, there).share == 0.12
    assert combine([("b", "rule")], table, HERE).share == 0.04


def test_what_applies_another_what_if_errs_at_least_as_much() -> None:
    """A pipeline cuts the batch into pieces: what `batch_size` gets wrong is wrong in it, too."""
    rows = {"pipeline": {**MANY, "p90": 0.01}, "batch_size": {**MANY, "p90": 0.16}}
    evidence = dict.fromkeys(rows, TABLE["evidence"]["a"])
    table = {"cpu": {"rule": rows}, "evidence": evidence}

    assert combine([("pipeline", "rule")], table, HERE).share == 0.16


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
    assert set(table["pooled"]) == {"gpu", "cpu"}


def test_a_scenario_of_nothing_known_is_unvalidated() -> None:
    """A plain function of the user has no pairs."""
    assert validated_error([("custom", "rule")], Place("gpu", "any")).missing == ("custom",)
