"""Fixtures that several test files share."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def public_traces() -> Path:
    """Return the folder of public recordings, or skip the test."""
    folder = SHARED / "gpu-traces"
    if not folder.is_dir():
        pytest.skip(f"the public recordings are not at {folder}")
    return folder


@pytest.fixture
def namespaces() -> Iterator[None]:
    """Hold the machine's only place for a shaped network, or skip the test, saying why."""
    import fcntl

    from foretrace.tracer.shaped_network import unavailable

    with (Path(tempfile.gettempdir()) / "foretrace-test-namespaces").open("w") as place:
        fcntl.flock(place, fcntl.LOCK_EX)  # test processes run side by side
        if (reason := unavailable()) is not None:
            pytest.skip(f"no shaped network here: {reason}")
        yield
