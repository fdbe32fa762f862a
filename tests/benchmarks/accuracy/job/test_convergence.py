"""The study of convergence: what is asked of a log, what counts as held, and the page's section."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.accuracy.job.convergence import (
    SHOWN,
    LossTrial,
    _line,
    convergence_section,
    questions,
    read_runs,
    shown,
)
from foretrace.job.answer import Answer
from foretrace.job.convergence.loss_log import LossLog
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

STEPS = np.arange(1.0, 2001)
LOSSES = 6 * STEPS**-0.3 + 0.02 * np.random.default_rng(1).standard_normal(2000)


def asked(real: float, answer: Answer | None, depth: float | None = 0.75) -> LossTrial:
    """Return a question about a log of 200 steps."""
    return LossTrial("a sgd 5", "240 steps", depth, 200, real, answer, math.inf, 180.0)


def test_an_interval_holds_the_real_step_or_one_after_the_log() -> None:
    """A target that is not reached is reached later, if at all."""
    answer = Answer(150, 120, 190, "steps")

    assert asked(120, answer).holds
    assert not asked(191, answer).holds
    assert not asked(math.inf, answer).holds
    assert asked(math.inf, Answer(150, 120, 201, "steps")).holds


def test_a_line_counts_what_was_answered() -> None:
    """Two of three, of which one holds; a rule that never gets there is infinitely off."""
    answer = Answer(150, 120, 195, "steps")
    line = _line("some", [asked(100, answer), asked(150, answer), asked(150, None)])

    assert line == "| some | 3 | 67% | 50% | 50% | 25% | ∞ | 50% |"


def test_what_nobody_answered_has_no_numbers() -> None:
    """Nor has what was not reached."""
    assert _line("none", [asked(150, None)]) == "| none | 1 | 0 % | | | | | |"
    assert _line("later", [asked(math.inf, Answer(150, 120, 250, "steps"))]).endswith("|  |  |  |")


def test_a_log_is_asked_for_what_it_reaches_and_for_what_it_does_not() -> None:
    """Every target lies below all that is known, the last below everything."""
    found = list(questions("a sgd 5", LossLog(STEPS, LOSSES, np.full(2000, 0.1))))

    assert {one.cut for one in found} == {"240 steps", "700 steps", "2000 steps", "epochs"}
    assert all(one.real > one.end / 2 for one in found)
    assert [one.depth for one in found if math.isinf(one.real)] == [None] * 4


def test_the_section_is_made_of_the_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run that constants were chosen on and one that judges them, which is shown."""
    names = np.repeat(["a sgd 1", "a sgd 5"], 2000)
    columns = {"step": np.tile(STEPS, 2), "loss": np.tile(LOSSES, 2), "lr": np.full(4000, 0.1)}
    pq.write_table(pa.table({"run": names, **columns}), tmp_path / "losses.parquet")
    monkeypatch.setitem(convergence_section.__globals__, "SHOWN", ("a sgd 5",))
    text = "\n".join(convergence_section(tmp_path))

    assert "2 trainings of eleven small problems" in text
    assert "| chosen on | " in text
    assert "| a sgd 5 | at 75% | 1,500 | " in text
    assert "| a sgd 5 | not reached | never | refused |" in text


def test_the_page_shows_four_trainings_as_they_are_computed_today() -> None:
    """Byte by byte; the whole section takes minutes."""
    page = (ROOT / "docs" / "accuracy-job.md").read_text("utf-8")
    table = "\n".join(shown(read_runs(ROOT / "traces" / "job" / "losses.parquet")))

    assert len(SHOWN) == 4
    assert table in page
