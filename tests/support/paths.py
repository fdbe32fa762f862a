"""Where things lie: the checkout, and the recordings of others beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
PUBLIC = SHARED / "gpu-traces"
GOLDEN = ROOT / "tests" / "whole" / "golden"


def public_trace(name: str) -> Path:
    """Return a public recording; the test that asks is skipped where it is not there."""
    path = PUBLIC / name
    if not path.exists():
        pytest.skip(f"the public recordings are not here: {path}")
    return path
