"""Traces as they are delivered: compressed, packed, in the folder of a job."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sqlite3
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretrace.errors import TraceError
from foretrace.tracer.readers.load import load
from tests.support.paths import public_trace
from tests.support.recordings.bent import base, text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RANKS = 3


def zstd(raw: bytes) -> bytes:
    """Return *raw* compressed with zstd."""
    return pa.compress(raw, codec="zstd", asbytes=True)


def rank(number: int) -> bytes:
    """Return one rank of a public job of eight: one step of DLRM."""
    packed = public_trace(f"param/dlrm_v100x8/kineto_rank{number}.json.gz").read_bytes()
    return gzip.decompress(packed)


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [("gz", gzip.compress), ("zst", zstd), ("bz2", bz2.compress), ("xz", lzma.compress)],
)
def test_every_compression_is_unpacked_within_the_limit(
    suffix: str, pack: object, tmp_path: Path
) -> None:
    """The content counts, and no more of it is unpacked than may be."""
    assert callable(pack)
    path = tmp_path / f"trace.json.{suffix}"
    path.write_bytes(pack(text(base())))
    bomb = tmp_path / f"bomb.{suffix}"
    bomb.write_bytes(pack(b"[" + b" " * 2_000_000))
    cut = tmp_path / f"cut.{suffix}"
    cut.write_bytes(path.read_bytes()[:-20])

    assert len(load(path).events)
    with pytest.raises(TraceError, match="unpacks to more than 1,000,000 bytes"):
        load(bomb, size_limit=1_000_000)
    if suffix != "gz":  # of which what is there is read
        with pytest.raises(TraceError, match="damaged compressed file"):
            load(cut)


def layouts() -> Iterator[tuple[str, dict[str, bytes]]]:
    """Yield what torch, DeepSpeed and Megatron, torchtitan, a launcher and nsys leave behind."""
    ranks = [rank(number) for number in range(RANKS)]
    yield (
        "torch",
        {
            f"node1_{40 + n}.17000000{cycle}0000000.pt.trace.json": raw
            for cycle in (1, 2)
            for n, raw in enumerate(ranks)
        },
    )
    yield (
        "torchtitan",
        {
            f"profile_traces/iteration_{step}/rank{n}_trace.json.gz": gzip.compress(raw, 1)
            for step in (5, 10)
            for n, raw in enumerate(ranks)
        },
    )
    yield "a launcher", {f"trace_rank-{n}.json.zst": zstd(raw) for n, raw in enumerate(ranks)}
    nsys = public_trace("cs336-transformer-lm/a100sxm_2.7B_forward_schema3.16.sqlite.gz")
    exported = gzip.decompress(nsys.read_bytes())
    yield "nsys", {f"megatron_{n}.sqlite": exported for n in range(RANKS)}
    yield "nsys of named ranks", {f"node0/report.rank{n}.sqlite": exported for n in range(RANKS)}


def test_a_folder_is_the_ranks_of_its_last_cycle(tmp_path: Path) -> None:
    """Files that are no recordings are left alone; cycles of a process are not ranks."""
    for layout, files in layouts():
        folder = tmp_path / layout
        for name, raw in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(raw)
        (folder / "config.json").write_text('{"lr": 0.1}')

        trace = load(folder)

        assert len(trace.meta.ranks) == RANKS, layout
        assert trace.meta.warnings.get("earlier_cycles", 0) == len(files) - RANKS


def test_archives_hold_the_ranks_of_a_job(tmp_path: Path) -> None:
    """Zip, and tar with any compression around it; nothing is written to disk."""
    members = {f"job/rank{n}.json": rank(n) for n in range(RANKS)} | {"job/log.txt": b"text"}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, raw in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(raw)
            tar.addfile(entry, io.BytesIO(raw))
    (tmp_path / "job.tar.zst").write_bytes(zstd(packed.getvalue()))
    with zipfile.ZipFile(tmp_path / "job.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, raw in members.items():
            archive.writestr(name, raw)

    for name in ("job.tar.zst", "job.zip"):
        assert len(load(tmp_path / name).meta.ranks) == RANKS
    with pytest.raises(TraceError, match="unpacks to more than 100,000 bytes"):
        load(tmp_path / "job.zip", size_limit=100_000)


def test_one_process_that_recorded_twice_is_one_rank(tmp_path: Path) -> None:
    """The last of its cycles is taken."""
    for when in (1_700_000_001, 1_700_000_002):
        (tmp_path / f"host_7.{when}.pt.trace.json").write_bytes(text(base()))

    trace = load(tmp_path)

    assert trace.meta.ranks == (0,)
    assert trace.meta.warnings["earlier_cycles"] == 1
    assert "1700000002" in trace.meta.source


def test_a_folder_without_recordings_is_refused(tmp_path: Path) -> None:
    """So is an archive."""
    (tmp_path / "config.json").write_text("{}")

    with pytest.raises(TraceError, match="holds no recording of torch"):
        load(tmp_path)


def test_a_parquet_export_is_read_like_the_sqlite_one(tmp_path: Path) -> None:
    """``nsys export --type parquetdir``: a file per table."""
    path = public_trace("cs336-transformer-lm/a100sxm_2.7B_forward_schema3.16.sqlite.gz")
    connection = sqlite3.connect(":memory:")
    connection.deserialize(gzip.decompress(path.read_bytes()))
    tables = connection.execute("select name from sqlite_master where type = 'table'").fetchall()
    for (name,) in tables:
        rows = connection.execute(f'select * from "{name}"')  # noqa: S608
        names = [column[0] for column in rows.description]
        columns = list(zip(*rows.fetchall(), strict=True)) or [()] * len(names)
        table = pa.table([pa.array(list(column)) for column in columns], names=names)
        pq.write_table(table, tmp_path / f"{name}.parquet")

    other, trace = load(path), load(tmp_path)

    assert trace.meta.format == "nsight"
    assert trace.events.equals(other.events)


def test_a_report_needs_nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is not installed the sentence says what to run elsewhere."""
    report = tmp_path / "job.nsys-rep"
    report.write_bytes(b"NSYS")
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(TraceError, match=r"run 'nsys export --type sqlite job\.nsys-rep'"):
        load(report)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b'{"rocprofiler-sdk-tool": []}', "a profile of rocprof"),
        (b'"Kind","Agent_Id","Kernel_Name"\n', "a table of rocprof"),
        (b"\x0a\x20\x08\x01/device:GPU:0 XPlane", "a profile of JAX or XLA"),
    ],
)
def test_other_profilers_are_refused_by_name(content: bytes, what: str, tmp_path: Path) -> None:
    """And the sentence says what to record with."""
    path = tmp_path / "other"
    path.write_bytes(content)

    with pytest.raises(TraceError, match=what):
        load(path)
