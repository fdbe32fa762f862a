"""Hostile files of every kind are answered or refused in a sentence."""

from __future__ import annotations

import io
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from foretrace.analysis.prediction import predict
from foretrace.batch.rows import write_rows
from foretrace.cli.app import run
from foretrace.errors import ForetraceError, TransformError
from foretrace.graph.build import build
from foretrace.tracer.readers.load import load
from foretrace.transforms.scenario import load_scenario, parse_scenario
from foretrace.util.toml_file import read_toml
from tests.fuzz.seeds import seeds
from tests.support.paths import SHARED
from tests.support.recordings.pairs import result_row

HOSTILE = SHARED / "fixtures" / "hostile"
SLOW = "faster_kernels(pattern='(.*)*(.*)*Q$', speedup=2)"


def fixtures() -> list[Path]:
    """Return the recordings among the shared hostile files."""
    return sorted(p for p in HOSTILE.glob("*") if p.suffix not in {".md", ".toml"})


@pytest.mark.parametrize("path", fixtures(), ids=lambda path: path.name)
def test_a_hostile_recording_is_answered_or_refused(path: Path) -> None:
    """In one sentence, or with times that can be."""
    try:
        graph = build(load(path))
        for text in ("faster_host(speedup=2)", 'device(name="A100-SXM4-80GB")'):
            try:
                found = predict(graph, [text])
            except TransformError:
                continue
            assert 0 < found.predicted_ns < np.inf
    except ForetraceError as refused:
        said = str(refused)
    else:
        said = ""
    assert "\n" not in said


@pytest.mark.parametrize("name", ["deep.toml", "digits.toml"])
def test_hostile_toml_is_refused(name: str) -> None:
    """Lists in lists, and a number of 5,000 digits."""
    if not (HOSTILE / name).exists():
        pytest.skip("the shared fixtures are absent")
    with pytest.raises(TransformError, match=name):
        load_scenario(HOSTILE / name)


def test_kernels_without_names_and_equal_ones() -> None:
    """Names that are missing, equal, bytes or nothing in an export."""
    for value in (None, "same", b"\xff\xfe", 7):
        connection = sqlite3.connect(":memory:")
        connection.deserialize(seeds()["trace-nsight"])
        connection.execute("update StringIds set value = ?", (value,))
        connection.commit()
        path = Path(os.environ.get("TMPDIR", "/tmp")) / f"names-{os.getpid()}.sqlite"  # noqa: S108
        path.write_bytes(connection.serialize())
        try:
            assert len(build(load(path)).tasks)
        finally:
            path.unlink()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_is_no_scenario(tmp_path: Path) -> None:
    """It would be waited for without end."""
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(TransformError, match="no regular file"):
        load_scenario(tmp_path / "pipe.toml")
    with pytest.raises(TransformError, match="no regular file"):
        parse_scenario([str(tmp_path / "pipe.toml")])


def test_a_byte_order_mark_is_left_out_everywhere(tmp_path: Path) -> None:
    """As an editor on another system puts it there."""
    mark = b"\xef\xbb\xbf"
    for kind, read in (
        ("trace-kineto", load),
        ("trace-timeline", load),
        ("scenario", load_scenario),
        ("study", lambda path: read_toml(path, dict)),
    ):
        path = tmp_path / f"{kind}.toml"
        path.write_bytes(mark + seeds()[kind])
        assert read(path) is not None


@pytest.mark.skipif(sys.platform != "linux", reason="names are text there")
def test_a_path_that_is_no_utf8_is_compared(tmp_path: Path) -> None:
    """Or refused in a sentence; never a traceback."""
    folder = tmp_path / os.fsdecode(b"r\xff")
    folder.mkdir()
    write_rows(folder / "results.parquet", [result_row(after_ns=1.0, noise=0.0)])
    command = [sys.executable, "-m", "foretrace", "compare", os.fsdecode(os.fsencode(folder))]
    done = subprocess.run(command, capture_output=True, check=False)

    assert b"internal error" not in done.stderr
    assert b"Traceback" not in done.stderr


def test_the_numpy_array_of_a_stranger_is_not_unpickled(tmp_path: Path) -> None:
    """Objects in it would be code."""
    content = io.BytesIO()
    np.save(content, np.array([{}], object), allow_pickle=True)
    (tmp_path / "x.npy").write_bytes(content.getvalue())

    assert run(["job", "convergence", str(tmp_path / "x.npy"), "--loss", "1"]) != 0
