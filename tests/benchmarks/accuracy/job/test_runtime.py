"""The section about job time: what is asked of a series, and how answers are counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.accuracy.job.runtime import ask, row, runtime_section, windows

if TYPE_CHECKING:
    from pathlib import Path

CALM = np.array([5.0, *np.tile([0.110, 0.112, 0.111, 0.113], 50)])


def test_the_whole_is_foretold_from_its_first_steps() -> None:
    """Exactly, where they repeat; the plain product leaves the start-up out."""
    asked = ask(CALM)

    assert asked.error == pytest.approx(0, abs=0.001)
    assert asked.is_held
    assert asked.plain == pytest.approx(201 * CALM[1:51].mean())


def test_a_series_is_asked_about_from_every_fiftieth_step() -> None:
    """As long as fifty steps are left to be foretold."""
    assert len(list(windows(CALM))) == 3
    assert list(windows(CALM[:100])) == []


def test_answers_are_counted() -> None:
    """One that is right and validated, one that is refused."""
    drifting = np.array([*[0.1, 0.11] * 30, *[0.3, 0.31] * 30])

    cells = row("two", [ask(CALM), ask(drifting, 119)])

    assert cells[:3] == ["two", "2", "1"]
    assert cells[5:8] == ["1 (100%)", "1", "1 (100%)"]


def test_without_answers_there_are_no_errors() -> None:
    """A dash stands for what is not known."""
    assert row("one", [ask(CALM / 100)]) == ["one", "1", "1", "–", "–", "–", "0", "–", "–"]


def test_the_section_reads_what_is_there(tmp_path: Path) -> None:
    """Public series, each once, and own recordings by the name of their file."""
    recorded = tmp_path / "project" / "traces" / "job"
    recorded.mkdir(parents=True)
    rows = [f"cnn,{at},{s},0.1" for at, s in enumerate(CALM, 1)]
    (recorded / "step-times-quiet.csv").write_text("\n".join(["job,step,seconds,load", *rows]))

    found = "\n".join(runtime_section(recorded))

    assert "| own, quiet | 1 | 0 | 0.0% |" in found
    assert "| own, quiet, from any step on | 3 |" in found
    assert "Chronus, steady |" not in found
    public = tmp_path / "shared" / "fixtures" / "chronus-iterations"
    public.mkdir(parents=True)
    np.save(public / "one.npy", CALM)
    np.save(public / "two.npy", CALM)
    np.save(public / "a3c.npy", CALM / 100)
    found = "\n".join(runtime_section(recorded))
    assert "| Chronus, steady | 1 | 0 |" in found
    assert "| Chronus, A3C | 1 | 1 |" in found
