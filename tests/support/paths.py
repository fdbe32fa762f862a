"""Where things lie: the checkout, and the recordings of others beside it."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
PUBLIC = SHARED / "gpu-traces"
GOLDEN = ROOT / "tests" / "whole" / "golden"
