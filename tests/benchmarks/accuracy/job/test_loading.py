"""The section about loaders: parts in, predicted and measured cells out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.accuracy.job.loading import cells_of, loading_section, parts_of

if TYPE_CHECKING:
    from pathlib import Path

PARTS = {
    "compute": [0.02, 0.02],
    "prepare": [0.01, 0.01],
    "handed_over": [0.021, 0.021],
    "effective_cores": [2.0, 1.5],
    "memory_bytes_per_second": 1e9,
}


def measured() -> dict[str, Any]:
    """Return a loader whose cells are what the form says, but for one that is 10 % slower."""
    cells = [(0.5, 0, 0.0366), (1.0, 0, 0.03), (0.5, 1, 0.021 * 1.1), (1.0, 1, 0.0214)]
    return {
        "items": 100, "batch": 10, "item_bytes": 100_000, "disk": 75.75e6, "parts": [PARTS],
        "cells": [
            {"cache": "fixed", "fraction": f, "workers": w, "seconds": [s, s]} for f, w, s in cells
        ],
    }  # fmt: skip


def test_handing_over_is_what_a_constant_batch_adds() -> None:
    """Effective cores are those for training."""
    step, cores = parts_of(measured())

    assert step.hand_over == pytest.approx(0.001)
    assert cores == 1.5


def test_cells_stand_beside_their_predictions() -> None:
    """Reading half of a batch takes 6.6 ms, which Synergy's form hides without workers, too."""
    cells = cells_of(measured())

    assert [(c.workers, c.fraction) for c in cells] == [(0, 0.5), (0, 1.0), (1, 0.5), (1, 1.0)]
    assert cells[0].errors() == pytest.approx((0.0, 0.0, 0.03 / 0.0366 - 1), abs=2e-4)
    assert cells[2].parts.limit == "cores"
    assert cells[2].errors()[0] == pytest.approx(0.0213333 / 0.0231 - 1, abs=1e-4)


def test_the_section_shows_both_loaders(tmp_path: Path) -> None:
    """The median, the largest, and every cell."""
    for name in ("even", "slow-disk"):
        (tmp_path / f"loading-{name}.json").write_text(json.dumps(measured()), "utf-8")

    lines = loading_section(tmp_path)

    assert lines[0] == "## Cores and cached data"
    assert sum(line.startswith("| fixed") for line in lines) == 8
    assert any("| 4 | " in line and "(7.6%)" in line for line in lines)
