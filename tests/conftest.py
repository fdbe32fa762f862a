"""Fixtures that several test files share."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def public_traces() -> Path:
    """Return the folder of public recordings, or skip the test."""
    folder = SHARED / "gpu-traces"
    if not folder.is_dir():
        pytest.skip(f"the public recordings are not at {folder}")
    return folder
