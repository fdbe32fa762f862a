"""What `diff` says of public recordings whose change is known."""

from __future__ import annotations

import pytest

from benchmarks.difference.public import judge_public_pair, read_pairs
from tests.support.paths import ROOT

SHARED = ROOT.parent / "shared" / "gpu-traces"
TRIED = ("P1 A", "P4", "P13")
"""The loader, another device with another bottleneck, and a lower precision."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not SHARED.exists(), reason=f"the public recordings are not here: {SHARED}"),
]


@pytest.mark.parametrize("name", TRIED)
def test_the_known_change_is_the_largest_part(name: str) -> None:
    """And all parts are the difference of the measured steps."""
    pair = next(pair for pair in read_pairs() if pair.id == name)
    verdict = judge_public_pair(pair, SHARED)

    assert verdict.judged == "right"
    assert verdict.difference is not None
    whole = sum(part.ns for part in verdict.difference.parts) + verdict.difference.unexplained_ns
    assert whole == pytest.approx(verdict.difference.difference_ns, rel=0.01)
