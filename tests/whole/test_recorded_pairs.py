"""Rules are no further off recorded CPU pairs, two of each what-if, than they were.

The pairs are drawn by a seed from the archives in `traces`, without the held-out models. What they
were off when this was written is in `MEASURED`; a change of a rule may cost as much as the two
halves of a conclusive pair may differ themselves, and no more.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.accuracy.study import read_list, recorded_rows
from foretrace.analysis.evidence.measured_pair import UNPREDICTED
from foretrace.tracer.lab.pairs.archive import PAIR
from foretrace.tracer.lab.pairs.read_archive import pair_members, read_pair, stored_pair
from foretrace.tracer.step_stats import NOISE_LIMIT
from foretrace.transforms.foreign_scenario import parse_foreign_scenario
from foretrace.transforms.scenario import names
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from foretrace.analysis.evidence.measured_pair import MeasuredPair

TRACES = ROOT / "traces"
ARCHIVES = ("cpu-epyc-1.tar", "cpu-epyc-2.tar", "cpu-zoo-1.tar", "cpu-zoo-2.tar")
SEED, EACH = 20_261_201, 2
MEASURED = {
    "activation_checkpoint": 0.016,
    "amp": 0.054,
    "batch_size": 0.076,
    "channels_last": 0.003,
    "dataloader": 0.035,
    "fused_optimizer": 0.014,
    "gradient_accumulation": 0.002,
}
"""Mean |error| of the drawn pairs by rules, as a share of the measured step."""
MARGIN = NOISE_LIMIT


def list_pairs() -> dict[str, list[tuple[Path, str]]]:
    """Return by what-if all quiet pairs that rules may be watched on: archive and name in it."""
    held_out = read_list(TRACES / "study.toml")["held_out"]
    found: dict[str, list[tuple[Path, str]]] = {}
    for archive in (TRACES / name for name in ARCHIVES):
        files = pair_members(archive)
        for name in sorted(name for name in files if name.endswith(PAIR)):
            stored = stored_pair(files, name, archive)
            (what_if,) = names(parse_foreign_scenario([stored.scenario]))
            if stored.model not in held_out and stored.noise <= NOISE_LIMIT:
                found.setdefault(what_if, []).append((archive, name))
    return {what_if: of for what_if, of in sorted(found.items()) if what_if not in UNPREDICTED}


@cache
def draw_rows() -> dict[str, list[MeasuredPair]]:
    """Return the drawn pairs of each what-if, predicted by rules."""
    draw = random.Random(SEED)  # noqa: S311  # no secret
    drawn = {what_if: draw.sample(pairs, EACH) for what_if, pairs in list_pairs().items()}
    return {what_if: [_predict(*pair) for pair in pairs] for what_if, pairs in drawn.items()}


def _predict(archive: Path, name: str) -> MeasuredPair:
    pair = read_pair(pair_members(archive), name, archive)
    return recorded_rows(replace(pair, calibration=None))[0]


@pytest.mark.slow
@pytest.mark.parametrize("what_if", MEASURED)
def test_rules_are_no_further_off_than_they_were(what_if: str) -> None:
    """Of whole steps, as measured without the profiler."""
    rows = draw_rows()[what_if]
    off = float(np.mean([abs(row.rule_error) for row in rows]))

    assert all(row.is_conclusive for row in rows)
    assert off <= MEASURED[what_if] + MARGIN, [(row.name, row.rule_error) for row in rows]


@pytest.mark.slow
def test_every_what_if_of_the_archives_is_watched() -> None:
    """A new kind of pair gets a line of its own."""
    assert list(draw_rows()) == list(MEASURED)


@pytest.mark.slow
def test_worse_rules_would_be_noticed() -> None:
    """Those of the Daydream paper miss mixed precision by more than is allowed."""
    rows = draw_rows()["amp"]

    assert np.mean([abs(row.paper_error or 0.0) for row in rows]) > MEASURED["amp"] + MARGIN
