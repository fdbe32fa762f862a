"""Fixtures that several test files share."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.paths import PUBLIC

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def public_traces() -> Path:
    """Return the folder of public recordings, or skip the test."""
    if not PUBLIC.is_dir():
        pytest.skip(f"the public recordings are not at {PUBLIC}")
    return PUBLIC


@pytest.fixture
def namespaces() -> Iterator[None]:
    """Hold the machine's only place for a shaped network, or skip the test, saying why."""
    import fcntl

    from foretrace.tracer.lab.network.namespaces import unavailable

    with (Path(tempfile.gettempdir()) / "foretrace-test-namespaces").open("w") as place:
        fcntl.flock(place, fcntl.LOCK_EX)  # test processes run side by side
        if (reason := unavailable()) is not None:
            pytest.skip(f"no shaped network here: {reason}")
        yield
