"""Whatever happens to a file on its way, loading it gives a trace or one sentence."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretrace.errors import TraceError
from foretrace.tracer.readers.load import load, save
from tests.support.recordings.bent import base, text
from tests.support.recordings.nsight import (
    KERNEL,
    RUNTIME,
    SYNC,
    call,
    export,
    kernel,
    strings,
    sync,
)

if TYPE_CHECKING:
    from pathlib import Path

SIGNS = [b'"', b"\\", b"{", b"]", b",", b"NaN"]
KINDS = ("json", "sqlite", "parquet")
DAMAGE = st.lists(
    st.tuples(
        st.integers(0, 10**6),
        st.sampled_from(["cut", "drop", "insert", "overwrite"]),
        st.binary(min_size=1, max_size=8) | st.sampled_from(SIGNS),
    ),
    min_size=1,
    max_size=5,
)
ODD_VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [None, [], {}, "x", "", "9", -1, 0, 2**70, 1.5, True, float("nan"), [[1]], [{"rank": []}]]
)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return one sound file of each kind."""
    folder = tmp_path_factory.mktemp("sound")
    path = folder / "t.json"
    path.write_bytes(text(base()))
    calls = [call(1, 100 * i, 100 * i + 50, i) for i in range(9)]
    kernels = [kernel(100 * i + 60, 100 * i + 90, i) for i in range(9)]
    tables = {RUNTIME: calls, KERNEL: kernels, SYNC: [sync(950, 960, 10, 7, 4)]}
    return {
        "json": path.read_bytes(),
        "sqlite": export(StringIds=strings(), **tables),
        "parquet": save(load(path), folder / "t.parquet").read_bytes(),
    }


def damaged(content: bytes, damage: list[tuple[int, str, bytes]]) -> bytes:
    """Return *content* cut, shortened, stretched or overwritten at some places."""
    for place, how, piece in damage:
        at = place % max(len(content), 1)
        if how == "cut":
            content = content[: max(at, 20)]
        elif how == "drop":
            content = content[:at] + content[at + len(piece) :]
        else:
            rest = at + (len(piece) if how == "overwrite" else 0)
            content = content[:at] + piece + content[rest:]
    return content


def loads_or_explains(path: Path) -> None:
    """Load *path*; an error has to be one line that names it."""
    said = f"{path.name}: loaded"
    try:
        trace = load(path)
    except TraceError as error:
        said = str(error)
    else:
        assert trace.events["start_ns"].iloc[0] == 0

    assert said.startswith(f"{path.name}: ")
    assert "\n" not in said


@pytest.mark.parametrize("kind", KINDS)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(damage=DAMAGE)
def test_damaged_bytes(
    kind: str, damage: list[tuple[int, str, bytes]], sound: dict[str, bytes], tmp_path: Path
) -> None:
    """No cut, lost or added byte ends in anything but a trace or a TraceError."""
    path = tmp_path / "damaged"
    path.write_bytes(damaged(sound[kind], damage))

    loads_or_explains(path)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    changes=st.lists(
        st.tuples(st.integers(0, 99), st.integers(0, 99), st.booleans(), ODD_VALUES), max_size=5
    ),
    root=st.dictionaries(
        st.sampled_from(["deviceProperties", "distributedInfo", "baseTimeNanoseconds"]), ODD_VALUES
    ),
)
def test_odd_values(
    changes: list[tuple[int, int, bool, Any]], root: dict[str, Any], tmp_path: Path
) -> None:
    """No value in the wrong place does, either."""
    trace = base() | root
    for event_at, key_at, inside, value in changes:
        event = trace["traceEvents"][event_at % len(trace["traceEvents"])]
        args = event.get("args")
        target = args if inside and isinstance(args, dict) and args else event
        target[sorted(target)[key_at % len(target)]] = value
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(trace), "utf-8")

    loads_or_explains(path)
