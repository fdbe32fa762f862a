"""Rows on disk: they come back as they were, and what is no result is refused."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretrace.batch.rows import ITEMS, Row, item_path, read_rows, read_stored, store, write_rows
from foretrace.errors import TraceError
from tests.support.measured.studies import row
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

PAGE = ROOT / "docs" / "batch.md"


def test_rows_come_back(tmp_path: Path) -> None:
    """Unknown stays unknown; a table is found by its folder, too."""
    rows = [row("a"), row("b", error="why", is_final=False, predicted_ns=None, status=None)]
    write_rows(tmp_path / "results.parquet", rows)

    assert read_rows(tmp_path) == rows
    assert read_rows(str(tmp_path / "results.parquet")) == rows


def test_no_rows_come_back(tmp_path: Path) -> None:
    """An empty table is a table."""
    write_rows(tmp_path / "results.parquet", [])

    assert read_rows(tmp_path) == []


def test_final_rows_are_kept(tmp_path: Path) -> None:
    """What failed for a passing reason, is damaged or absent, is not known."""
    (tmp_path / ITEMS).mkdir()
    good, bad = row("good"), replace(row("bad"), error="why", is_final=False)
    store(tmp_path, good)
    store(tmp_path, bad)
    item_path(tmp_path, "damaged").write_bytes(b"PAR1")
    write_rows(item_path(tmp_path, "empty"), [])

    assert read_stored(tmp_path, [good.key, bad.key, "damaged", "empty", "absent"]) == {
        good.key: good
    }


def test_other_files_are_no_results(tmp_path: Path) -> None:
    """Each is refused in one line that names the file."""
    pq.write_table(pa.table({"x": [1]}), tmp_path / "other.parquet")
    (tmp_path / "text.parquet").write_text("no Parquet", "utf-8")
    said: dict[str, Any] = {
        "absent.parquet": "there is no such file",
        "other.parquet": "no results of foretrace batch",
        "text.parquet": "cannot be read as results",
    }
    for name, text in said.items():
        with pytest.raises(TraceError, match=f"{name}: {text}"):
            read_rows(tmp_path / name)


def test_the_page_names_every_column() -> None:
    """docs/batch.md is written by hand."""
    page = PAGE.read_text("utf-8")

    assert [f.name for f in fields(Row) if f"`{f.name}`" not in page] == []
