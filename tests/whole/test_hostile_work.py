"""Small files ask for little work: what is bounded, and how that is said."""

from __future__ import annotations

import gzip
import json
import sqlite3
import tarfile
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretrace.cli.app import run
from foretrace.errors import ForetraceError, TraceError, TransformError
from foretrace.tracer.lab.pairs.read_archive import members, read_pairs
from foretrace.tracer.readers.load import load
from foretrace.transforms.scenario import load_scenario
from tests.support.paths import SHARED
from tests.support.recordings.kineto import small_trace
from tests.support.recordings.pairs import changed_archive

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = SHARED / "fixtures" / "hostile"
SLOW = "faster_kernels(pattern='(.*)*(.*)*Q$', speedup=2)"


def test_a_gzip_bomb_is_refused_while_it_unpacks(tmp_path: Path) -> None:
    """Also one in many small members."""
    bomb = tmp_path / "bomb.json.gz"
    bomb.write_bytes(gzip.compress(b" " * (80 << 20), 9))
    with pytest.raises(TraceError, match="unpacks to more than 67,108,864 bytes"):
        load(bomb)
    bomb.write_bytes(gzip.compress(b" " * (1 << 20), 9) * 80)
    with pytest.raises(TraceError, match="FORETRACE_MAX_UNPACKED_BYTES"):
        load(bomb)


def test_more_events_than_a_file_of_its_size_has(tmp_path: Path, monkeypatch: Any) -> None:
    """They are counted before they are decoded; a variable raises the limit."""
    path = tmp_path / "many.json.gz"
    path.write_bytes(gzip.compress(b'[{"ph":"X"}' + b',{"ph":"X"}' * 1_200_000 + b"]", 9))
    with pytest.raises(TraceError, match="1,200,001 objects in its JSON"):
        load(path)
    monkeypatch.setenv("FORETRACE_MAX_OBJECTS", "many")
    with pytest.raises(ForetraceError, match="set a whole number above 0"):
        load(path)
    monkeypatch.setenv("FORETRACE_MAX_OBJECTS", "2000000")
    with pytest.raises(TraceError, match="has a category"):
        load(path)


def test_a_sparse_member_is_refused(tmp_path: Path) -> None:
    """A few bytes of tar that claim gigabytes."""
    path = tmp_path / "sparse.tar"
    entry = tarfile.TarInfo("m/a.pair.json")
    entry.size = 1 << 40
    path.write_bytes(entry.tobuf(tarfile.GNU_FORMAT) + b"\0" * 1024)
    with pytest.raises(TraceError, match="claims more than"):
        members(path)


def test_an_archive_of_many_members_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    """Each takes memory of its own."""
    monkeypatch.setenv("FORETRACE_MAX_MEMBERS", "3")
    with pytest.raises(TraceError, match="set FORETRACE_MAX_MEMBERS"):
        read_pairs(changed_archive(tmp_path, lambda pair: pair))


def test_rows_of_parquet_are_counted_before_they_are_read(tmp_path: Path) -> None:
    """A column of one value takes no place on disk."""
    count = 3_000_000
    columns = {"name": ["x"] * 1, "kind": ["op"], "start_ns": [0], "duration_ns": [0]}
    table = pa.table(
        {n: pa.array(v).take(pa.array(np.zeros(count, np.int32))) for n, v in columns.items()}
    )
    text = json.dumps({"version": 1, "meta": {"format": "kineto"}})
    path = tmp_path / "many.parquet"
    pq.write_table(table.replace_schema_metadata({b"foretrace": text.encode()}), path)
    with pytest.raises(TraceError, match="3,000,000 rows, more than"):
        load(path)


def test_long_names_are_cut(tmp_path: Path) -> None:
    """Those that differ late still differ."""
    trace = small_trace()
    for number, event in enumerate(trace["traceEvents"]):
        if event["cat"] == "kernel":
            event["name"] = "k" * 100_000 + str(number % 2)
    path = tmp_path / "t.json"
    path.write_text(json.dumps(trace))
    names = load(path).events["name"].cat.categories

    assert max(map(len, names)) <= 4096
    assert sum(name.startswith("kkk") for name in names) == 2


def test_a_key_of_many_parts_is_refused(tmp_path: Path) -> None:
    """Python's own reader of TOML takes the square of them."""
    path = tmp_path / "deep.toml"
    path.write_text(".".join("a" * 20_000) + " = 1\n")
    began = time.perf_counter()
    with pytest.raises(TransformError, match="more than 64 parts"):
        load_scenario(path)
    assert time.perf_counter() - began < 1


def test_a_query_without_end_is_stopped(tmp_path: Path) -> None:
    """An export may define columns that compute; nothing of the kind runs for long."""
    connection = sqlite3.connect(tmp_path / "x.sqlite")
    heavy = "(length(replace(hex(zeroblob(100000)), '0', '00')))"
    connection.execute(f"create table NVTX_EVENTS (start, end as ({heavy}), eventType)")
    connection.executemany("insert into NVTX_EVENTS values (?, 59)", [(i,) for i in range(20_000)])
    connection.commit()
    connection.close()
    began = time.perf_counter()
    with pytest.raises(TraceError):
        load(tmp_path / "x.sqlite")
    assert time.perf_counter() - began < 20


@pytest.mark.parametrize("error", [MemoryError(), RecursionError()])
def test_what_gives_out_is_one_sentence(error: Exception, monkeypatch: Any, capsys: Any) -> None:
    """At the command line, wherever it happens."""

    def fail(*_: object, **_more: object) -> None:
        raise error

    monkeypatch.setattr("foretrace.tracer.readers.load.load", fail)

    assert run(["summary", "x"]) == 1
    assert "internal error" not in capsys.readouterr().err
