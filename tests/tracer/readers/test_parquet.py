"""The project's own trace files: whole or not at all, and the same when read again."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretrace.errors import TraceError
from foretrace.tracer.readers import parquet as store
from foretrace.tracer.readers.kineto.read import read_kineto
from foretrace.tracer.readers.load import load, save
from foretrace.tracer.trace import EVENT_COLUMNS, Trace, TraceMeta
from foretrace.util.schema import table
from tests.support.recordings.bent import base, text

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def trace() -> Trace:
    """Return the small trace with every field of its metadata filled."""
    small = read_kineto(text(base()), "trace.json")
    meta = replace(
        small.meta,
        batch_size=32,
        optimizer={"name": "Adam", "parameters": 12},
        unprofiled_step_ns=(100, 101),
        profiled_step_ns=(110, 111),
        extra={"spread": np.float64(0.5), "list": np.array([1, 2])},
    )
    return Trace(small.events, meta)


def test_what_is_saved_is_read_again(trace: Trace, tmp_path: Path) -> None:
    """Events are equal to the bit; numpy values in the metadata come back as plain ones."""
    again = load(save(trace, tmp_path / "t.parquet"))

    pd.testing.assert_frame_equal(trace.events, again.events)
    plain = replace(trace.meta, extra={"spread": 0.5, "list": [1, 2]})
    assert again.meta == plain


def test_no_temporary_file_is_left(trace: Trace, tmp_path: Path) -> None:
    """After saving twice there is one file."""
    save(trace, tmp_path / "t.parquet")
    save(trace, tmp_path / "t.parquet")

    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_a_failed_save_leaves_the_old_file(trace: Trace, tmp_path: Path) -> None:
    """When the disk refuses, what was there before is still there, and nothing else."""
    path = save(trace, tmp_path / "t.parquet")
    before = path.read_bytes()
    (tmp_path / "folder").mkdir()

    with pytest.raises(TraceError, match="cannot write there"):
        save(trace, tmp_path / "folder")

    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "t.parquet"]


def test_a_folder_that_is_not_there(trace: Trace, tmp_path: Path) -> None:
    """The error names the path and the system's reason."""
    with pytest.raises(TraceError, match=r"cannot write there \(No such file"):
        save(trace, tmp_path / "none" / "t.parquet")


def test_only_regular_files_are_replaced(trace: Trace, tmp_path: Path) -> None:
    """A pipe, as a device would, stays what it is; a link keeps pointing at the new file."""
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to("file.parquet")
    save(trace, link)

    with pytest.raises(TraceError, match="not a regular file"):
        save(trace, pipe)
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert (tmp_path / "file.parquet").is_file()


def test_a_table_without_a_column_is_not_saved(trace: Trace, tmp_path: Path) -> None:
    """A reader or recorder that forgot a column hears of it when saving, not when loading."""
    broken = Trace(trace.events.drop(columns="name"), trace.meta)

    with pytest.raises(TraceError, match="lacks the column 'name'"):
        save(broken, tmp_path / "t.parquet")


def test_a_trace_without_events(tmp_path: Path) -> None:
    """Nothing recorded is nothing read, with all the columns."""
    empty = Trace(table(EVENT_COLUMNS, {}, 0), TraceMeta(format="foretrace"))
    again = load(save(empty, tmp_path / "t.parquet"))

    assert [str(d) for d in again.events.dtypes] == [c.dtype for c in EVENT_COLUMNS]
    assert len(again.events) == 0


def test_a_newer_format_is_refused(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that this version may misread is not read."""
    monkeypatch.setattr(store, "VERSION", 2)
    path = save(trace, tmp_path / "t.parquet")
    monkeypatch.undo()

    with pytest.raises(TraceError, match=r"written by a newer Foretrace \(format 2"):
        load(path)


def test_a_foreign_parquet_file_is_refused(tmp_path: Path) -> None:
    """Parquet that Foretrace did not write is named as such."""
    pq.write_table(pa.table({"a": [1]}), tmp_path / "t.parquet")

    with pytest.raises(TraceError, match="no Foretrace trace"):
        load(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    "metadata", ["no json", "{}", '{"version": 1}', '{"version": [], "meta": {}}']
)
def test_damaged_metadata_is_refused(metadata: str, tmp_path: Path) -> None:
    """Metadata that is not what `save` writes is one error, whatever is wrong with it."""
    content = pa.table({"a": [1]}).replace_schema_metadata({b"foretrace": metadata.encode()})
    pq.write_table(content, tmp_path / "t.parquet")

    with pytest.raises(TraceError, match="damaged Parquet file"):
        load(tmp_path / "t.parquet")


def test_fields_of_a_later_version_are_ignored(trace: Trace, tmp_path: Path) -> None:
    """A field added to the metadata later does not make older readers fail."""
    path = save(trace, tmp_path / "t.parquet")
    content = pq.read_table(path)
    described = json.loads(content.schema.metadata[b"foretrace"])
    described["meta"]["colour"] = "green"
    described["meta"]["devices"][0]["colour"] = "green"
    changed = content.replace_schema_metadata({b"foretrace": json.dumps(described).encode()})
    pq.write_table(changed, path)

    assert load(path).meta.batch_size == 32
