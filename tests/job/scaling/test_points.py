"""Measured speeds from a CSV file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from foretrace.errors import RefusedError
from foretrace.job.scaling.points import read_points

if TYPE_CHECKING:
    from pathlib import Path


def written(folder: Path, text: str) -> Path:
    """Write *text* as a CSV file."""
    path = folder / "speeds.csv"
    path.write_text(text, "utf-8")
    return path


def test_columns_may_stand_in_any_order(tmp_path: Path) -> None:
    """Names are read without regard to case and blanks; empty lines say nothing."""
    found = read_points(written(tmp_path, "Speed, workers ,servers\n2.5,4,2\n\n1e1,8,1\n"))

    assert found.workers.tolist() == [4, 8]
    assert found.servers.tolist() == [2, 1]
    assert found.speeds.tolist() == [2.5, 10]
    assert found.has_servers


def test_cells_may_lie_between_semicolons(tmp_path: Path) -> None:
    """As some spreadsheets write them."""
    assert read_points(written(tmp_path, "workers;speed\n4;2.5\n")).speeds.tolist() == [2.5]


def test_a_job_may_have_no_servers(tmp_path: Path) -> None:
    """Workers and speed are enough."""
    found = read_points(written(tmp_path, "workers,speed\n1,2\n"))

    assert not found.has_servers
    assert found.servers.tolist() == [1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"speeds\.csv: is empty; give a CSV with the columns workers, speed"),
        ("workers,servers,speed\n", r"speeds\.csv: there is no row below the names"),
        ("workers,rate\n1,2\n", r"speeds\.csv: there is no column 'speed', only workers, rate"),
        (
            "workers,servers,speed,host\n1,1,1,a\n",
            "speeds.csv: 'host' is no column of speeds; leave it out",
        ),
        ("workers,speed\n1,2\n2\n", "line 3: 1 values for 2 columns"),
        ("workers,speed\n1,nan\n", "line 2: speed is 'nan'; give a number from 1e-09 to"),
        ("workers,speed\n1,fast\n", "line 2: speed is 'fast'; give a number from 1e-09 to"),
        ("workers,speed\n1,-3\n", "line 2: speed is '-3'; give a number from 1e-09 to"),
        ("workers,speed\n1.5,3\n", "line 2: workers is '1.5'; give a whole number from 1 to"),
        (
            "workers,speed\n1e300,3\n",
            "line 2: workers is '1e300'; give a whole number from 1 to 1e",
        ),
        ("workers,speed\n1,1e-30\n", "line 2: speed is '1e-30'; give a number from 1e-09 to"),
        ("workers,servers,speed\n1,0,3\n", "line 2: servers is '0'; give a whole number"),
        ('workers,speed\n"1,3\n', "line 2: 1 values for 2 columns"),
    ],
)
def test_bad_files_get_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    """The text names the file and the line."""
    with pytest.raises(RefusedError, match=said):
        read_points(written(tmp_path, text))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """An archive, say."""
    path = tmp_path / "speeds.csv"
    path.write_bytes(b"\x80\x81")

    with pytest.raises(RefusedError, match="neither text in UTF-8 nor an array"):
        read_points(path)

    np.save(tmp_path / "speeds.npy", [1.0, 2.0])
    with pytest.raises(RefusedError, match="is no table with the columns workers, speed"):
        read_points(tmp_path / "speeds.npy")
