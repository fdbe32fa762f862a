"""Every kind of file, whole or damaged, ends in a usable trace or in one clear sentence."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from foretrace.errors import TraceError
from foretrace.tracer.readers.load import load
from tests.support.recordings.bent import base, gzip_bomb, text
from tests.support.recordings.malformed import CASES, Case

if TYPE_CHECKING:
    from pathlib import Path

USABLE = [case for case in CASES if case.error is None]
UNUSABLE = [case for case in CASES if case.error is not None]


@pytest.mark.parametrize("case", USABLE, ids=lambda case: case.name)
def test_odd_files_load_with_named_warnings(case: Case, tmp_path: Path) -> None:
    """Exactly the issues in the file are counted, and no kernel is lost without a count."""
    trace = load(case.write(tmp_path))

    assert case.warnings == trace.meta.warnings
    assert case.kernels == (trace.events["kind"] == "kernel").sum()


@pytest.mark.parametrize("case", UNUSABLE, ids=lambda case: case.name)
def test_unusable_files_are_refused_in_one_sentence(case: Case, tmp_path: Path) -> None:
    """The error is one line, begins with the file's name and says what the file is."""
    path = case.write(tmp_path)

    with pytest.raises(TraceError) as caught:
        load(path)

    assert str(caught.value).startswith(path.name)
    assert str(case.error) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A path without a file is an error, not a traceback of the operating system."""
    with pytest.raises(TraceError, match=r"no-such\.json: there is no such file"):
        load(tmp_path / "no-such.json")


def test_a_name_the_system_refuses(tmp_path: Path) -> None:
    """Whatever else goes wrong while opening is said in the system's words."""
    with pytest.raises(TraceError, match=r"cannot be read \(File name too long\)"):
        load(tmp_path / ("x" * 300))


def test_unpacking_stops_at_the_limit(tmp_path: Path) -> None:
    """A small file that unpacks to more than the limit is refused before memory fills up."""
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip_bomb())

    with pytest.raises(TraceError, match="unpacks to more than 1,000,000 bytes"):
        load(path, size_limit=1_000_000)


def test_the_suffix_means_nothing(tmp_path: Path) -> None:
    """JSON under a database's name is still JSON."""
    path = tmp_path / "trace.sqlite"
    path.write_bytes(text(base()))

    assert load(str(path)).meta.format == "kineto"


def test_a_pipe_or_device_is_refused_without_reading_it(tmp_path: Path) -> None:
    """Reading a pipe that nobody writes to, or an endless device, would never come back."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    for path in (pipe, "/dev/zero"):
        with pytest.raises(TraceError, match="no regular file; write the trace into a file first"):
            load(path)
