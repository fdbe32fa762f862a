"""What a user types at a prompt: every form of a question, and the answer as it is shown there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import foretrace
from foretrace import whatif
from foretrace.analysis.evidence.validated_errors import list_cost_sources
from foretrace.analysis.explain import explain
from foretrace.analysis.unchanged.identity import identity
from foretrace.graph.literal import literal
from foretrace.transforms.registry import TRANSFORMS

if TYPE_CHECKING:
    from pathlib import Path

    from foretrace.transforms.scenario import ScenarioLike

GRAPH = literal(
    [("gemm", "kernel", 0, 30_000, None), ("relu", "kernel", 0, 10_000, None)],
    wrap=True,
    measured_step_ns=40_000,
)
HALF = "faster_kernels(speedup=2)"
FORMS = {
    "a text": HALF,
    "a list": [HALF],
    "a what-if": whatif.faster_kernels(speedup=2),
    "a tuple of what-ifs": (whatif.faster_kernels(speedup=2),),
}


@pytest.mark.parametrize("asked", FORMS.values(), ids=FORMS)
def test_every_form_of_a_question_is_answered_alike(asked: ScenarioLike, tmp_path: Path) -> None:
    """A text, a what-if, or several of them."""
    expected = foretrace.predict(GRAPH, foretrace.parse_scenario([HALF]))

    assert expected.predicted_ns == 20_000
    assert foretrace.predict(GRAPH, asked) == expected
    assert foretrace.validate(GRAPH, GRAPH, asked).prediction == expected
    assert foretrace.compare(GRAPH, asked, 20_000, "given").error == 0
    assert foretrace.predict_many(GRAPH, [asked]) == [expected]
    assert explain(GRAPH, asked).prediction == expected
    assert foretrace.apply(GRAPH, asked).tasks["work_ns"].tolist() == [15_000, 5_000]
    foretrace.export_timeline(GRAPH, asked, tmp_path / "timeline.json")
    assert b"after, rank 0" in (tmp_path / "timeline.json").read_bytes()


def test_several_what_ifs_are_one_question() -> None:
    """As texts, or mixed with a function of a graph."""
    together = foretrace.predict(GRAPH, [HALF, 'faster_kernels(pattern="gemm", speedup=3)'])
    mixed = foretrace.predict(GRAPH, [whatif.faster_kernels(speedup=2), lambda graph: graph])

    assert together.predicted_ns == 10_000
    assert mixed.scenario == (HALF, "custom")


def test_answers_are_shown_as_two_lines() -> None:
    """What was asked, the steps in ms, the gain, and what it is worth."""
    prediction = foretrace.predict(GRAPH, HALF)
    unchanged = replace(prediction, scenario=())
    validation = foretrace.compare(GRAPH, HALF, 25_000, "given")

    assert repr(prediction) == (
        "<Prediction of faster_kernels(speedup=2): step 0.040 ms as measured, 0.020 ms predicted\n"
        " 2.00 times the samples per second, 0.020 to 0.020 ms (unvalidated)>"
    )
    assert repr(unchanged).startswith("<Prediction of no change: step 0.040 ms as measured,")
    assert repr(validation) == (
        "<Validation of faster_kernels(speedup=2): step 0.020 ms predicted, 0.025 ms measured\n"
        " error -20.0%, outside 0.020 to 0.020 ms (unvalidated)>"
    )
    assert repr(identity(GRAPH)) == (
        "<Identity: step 0.040 ms replayed, 0.040 ms measured, error +0.0%>"
    )


def test_a_function_with_the_name_of_a_what_if_is_not_validated_by_its_pairs() -> None:
    """What was measured says nothing of a function of the user's own."""
    mine = foretrace.WhatIf(
        "faster_kernels", lambda graph: TRANSFORMS["faster_kernels"](graph, speedup=2)
    )
    changed = foretrace.apply(GRAPH, mine)

    assert list_cost_sources((mine,), changed) == [("custom", "rule")]


@pytest.mark.parametrize("asked", [5, None])
def test_what_is_no_question_is_refused(asked: Any) -> None:
    """In one sentence."""
    with pytest.raises(foretrace.TransformError, match="is no question: give a what-if"):
        foretrace.predict(GRAPH, asked)


def test_one_text_is_no_list_of_scenarios() -> None:
    """Its letters are no what-ifs."""
    with pytest.raises(foretrace.TransformError, match="is one scenario: give a list"):
        foretrace.predict_many(GRAPH, "faster_host(speedup=2)")
