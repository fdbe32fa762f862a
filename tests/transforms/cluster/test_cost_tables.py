"""Tables of measured collectives: on disk and back, merged, and damaged in every way."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretrace.errors import TraceError
from foretrace.transforms.cluster.cost_tables import (
    CollectiveTable,
    CostEntry,
    is_table,
    make_table,
    merge,
    read_table,
    write_table,
)

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [
    CostEntry("A", "switch", "all_reduce", 4, 200, 20.0, 0.1),
    CostEntry("A", "switch", "all_reduce", 4, 100, 10.0, 0.0),
    CostEntry("", "", "send", 2, 100, 5.0, 0.0),
]
DESCRIBED = {"format": 1, "what": "collectives"}


def rows_of(table: CollectiveTable) -> list[CostEntry]:
    """Return the entries as they went in."""
    return [CostEntry(*row) for row in table.entries.itertuples(index=False)]


def written(path: Path, described: Any = DESCRIBED, **columns: Any) -> Path:
    """Write a file that differs from a good one in *columns* or what it says about itself."""
    values = {name: [getattr(row, name) for row in ROWS] for name in CostEntry._fields} | columns
    table = pa.table({name: v for name, v in values.items() if v is not None})
    text = json.dumps(described).encode()
    pq.write_table(table.replace_schema_metadata({b"foretrace": text}), path)
    return path


def test_there_and_back(tmp_path: Path) -> None:
    """A table is sorted, and the same after reading."""
    table = make_table(ROWS)
    write_table(table, tmp_path / "x.parquet")
    again = read_table(tmp_path / "x.parquet")

    assert rows_of(again) == rows_of(table) == [ROWS[2], ROWS[1], ROWS[0]]
    assert len(again) == 3
    assert is_table(tmp_path / "x.parquet")


def test_repeats_widen_the_spread() -> None:
    """Mean and half the range; a wider spread of one run stays."""
    first, second = ROWS[0], ROWS[0]._replace(ns=30.0)

    assert rows_of(make_table([first, second])) == [first._replace(ns=25.0, spread=0.2)]
    assert rows_of(make_table([first, first])) == [first]


def test_the_later_table_wins() -> None:
    """Cases of both, without repeats."""
    other = ROWS[1]._replace(ns=11.0)

    assert rows_of(merge([make_table(ROWS), make_table([other])])) == [ROWS[2], other, ROWS[0]]


def test_rows_that_fit() -> None:
    """A row that does not say where it was measured fits anywhere."""
    table = make_table(ROWS)

    assert len(table.select("A", "switch", "all_reduce")) == 2
    assert len(table.select("B", "switch", "all_reduce")) == 0
    assert len(table.select("A", "mesh", "all_reduce")) == 0
    assert len(table.select("B", "mesh", "send")) == 1


@pytest.mark.parametrize(
    ("described", "columns", "said"),
    [
        ({"format": 2, "what": "collectives"}, {}, "of format 2, this reads 1"),
        ({"format": 1}, {}, "a Parquet file, but no table of collectives"),
        ([], {}, "a Parquet file, but no table of collectives"),
        (DESCRIBED, {"ns": None}, "lacks the column 'ns'"),
        (DESCRIBED, {"ns": ["a", "b", "c"]}, "a column holds something else than numbers"),
        (DESCRIBED, {"ranks": [None, 2, 2]}, "column 'ranks' has missing values"),
        (DESCRIBED, {"kind": ["send", "send", "sand"]}, "the kind 'sand' is none of all_reduce"),
        (DESCRIBED, {"ranks": [1, 2, 2]}, "column 'ranks' holds a value below 2"),
        (DESCRIBED, {"bytes": [0, 2, 2]}, "column 'bytes' holds a value below 1"),
        (DESCRIBED, {"ns": [1.0, -2.0, 1.0]}, "column 'ns' holds a value below 0"),
        (DESCRIBED, {"spread": [0.0, float("nan"), 0.0]}, "column 'spread' holds a value"),
    ],
)
def test_damage(tmp_path: Path, described: Any, columns: dict[str, Any], said: str) -> None:
    """Each is one sentence."""
    path = written(tmp_path / "x.parquet", described, **columns)

    with pytest.raises(TraceError, match=f"x.parquet: .*{said}"):
        read_table(path)


def test_what_is_no_table(tmp_path: Path) -> None:
    """Neither a missing file, nor any other."""
    (tmp_path / "x").write_text("size(B)", "utf-8")

    assert not is_table(tmp_path / "x")
    with pytest.raises(TraceError, match="x: no table of collectives"):
        read_table(tmp_path / "x")
    with pytest.raises(TraceError, match=r"y: cannot be read \(No such file"):
        read_table(tmp_path / "y")
