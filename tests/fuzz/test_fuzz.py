"""Whatever a file holds, it ends in an answer that can be or in one sentence."""

from __future__ import annotations

import warnings
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.judge import judge
from tests.fuzz.mutate import mutant
from tests.fuzz.seeds import seeds

CORPUS = sorted((Path(__file__).parent / "corpus").iterdir())
MUTANTS = 500


@pytest.mark.parametrize("kind", list(seeds()))
def test_a_sound_file_is_answered(kind: str) -> None:
    """Mutants are worth something only where the file that they come of is read."""
    assert judge(kind, seeds()[kind]) == "answered"


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_what_once_ended_badly_ends_well(path: Path) -> None:
    """Every mutant that a longer run found is tried again."""
    kind = path.name.partition(".")[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        judge(kind, path.read_bytes())


@pytest.mark.parametrize("kind", list(seeds()))
@settings(
    max_examples=MUTANTS // len(seeds()) + 1,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(seed=st.integers(0, 2**32))
def test_a_mutant_ends_well(kind: str, seed: int) -> None:
    """`python -m benchmarks.fuzz` tries 20,000 in a longer run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        judge(kind, mutant(kind, seeds()[kind], Random(seed)))  # noqa: S311
