"""Nothing that a file says is believed: what a file may ask for, and what becomes of it."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import sqlite3
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretrace.analysis.prediction import predict
from foretrace.batch.items import list_pairs
from foretrace.batch.rows import Row, item_path, read_rows, read_stored, write_rows
from foretrace.batch.worker import evaluate
from foretrace.cli.app import run
from foretrace.errors import ForetraceError, GraphError, TraceError, TransformError
from foretrace.graph.build import build
from foretrace.job.convergence.log_rows import text_rows
from foretrace.tracer.lab.pairs.read_archive import members, read_pairs
from foretrace.tracer.readers.load import load
from foretrace.transforms.foreign_scenario import parse_foreign_scenario
from foretrace.transforms.scenario import load_scenario, parse_scenario
from foretrace.util.atomic_write import MARK, sweep
from foretrace.util.toml_file import read_toml
from tests.fuzz.seeds import pair_members, seeds, tar_of
from tests.support.paths import SHARED
from tests.support.recordings.kineto import small_trace, write_small_trace

if TYPE_CHECKING:
    from collections.abc import Callable

HOSTILE = SHARED / "fixtures" / "hostile"
SLOW = "faster_kernels(pattern='(.*)*(.*)*Q$', speedup=2)"


def archive(tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Write an archive of two pairs, of which the file of the second was changed."""
    inside = pair_members(seeds())
    pair = json.loads(inside["mlp/fused.pair.json"])
    change(pair)
    inside["mlp/fused.pair.json"] = json.dumps(pair).encode()
    path = tmp_path / "pairs.tar"
    path.write_bytes(tar_of(inside))
    return path


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


# 1: code


@pytest.mark.parametrize("named", ["{folder}/evil.py:run", "evil:run", "os:getcwd", "x.toml"])
def test_an_archive_runs_no_code(named: str, tmp_path: Path, monkeypatch: Any) -> None:
    """The pair that names some fails, the other one does not; nothing was imported."""
    touched = tmp_path / "touched"
    (tmp_path / "evil.py").write_text(
        f"open({str(touched)!r}, 'w')\ndef run(graph): return graph\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    scenario = named.format(folder=tmp_path)
    path = archive(tmp_path, lambda pair: pair.update(scenario=scenario))

    rows = [evaluate([item])[0] for item in list_pairs(path)]

    assert not touched.exists()
    assert [row.error is None for row in rows] == [True, False]
    assert "no what-if of the list" in str(rows[1].error)


def test_an_archive_names_no_file(tmp_path: Path) -> None:
    """Neither a cluster's nor any other."""
    (tmp_path / "box.toml").write_text("")
    with pytest.raises(TransformError, match="cluster names a file"):
        parse_foreign_scenario([f"ddp(workers=2, cluster={str(tmp_path / 'box.toml')!r})"])


# 2: patterns


def test_a_pattern_takes_linear_time(tmp_path: Path) -> None:
    """Whatever stands in it: in a what-if, and for the marker of a step."""
    trace = small_trace()
    for number, event in enumerate(trace["traceEvents"]):
        if event["cat"] == "kernel":
            event["name"] = "a" * 2000 + str(number)
    path = tmp_path / "t.json"
    path.write_text(json.dumps(trace))
    began = time.perf_counter()
    graph = build(load(path))
    with pytest.raises(TransformError, match="no device task matching"):
        predict(graph, [SLOW])
    with pytest.raises(GraphError, match="matches 0 ranges"):
        build(load(path), step_pattern="(a*)*(.*)*(.*)*Q$")
    assert time.perf_counter() - began < 10


@pytest.mark.parametrize("fill", [" ", "\t", "=", " :", "'", "1", "step "])
def test_a_line_of_a_log_takes_linear_time(fill: str) -> None:
    """No two parts of a pattern of ours compete for the same characters."""
    began = time.perf_counter()
    for begun in ("iter", "epoch", "loss", "lr", "step"):
        text_rows_or_refusal(f"{begun}{fill * 20_000}!")
    assert time.perf_counter() - began < 5


def text_rows_or_refusal(line: str) -> None:
    """Read a log of one line."""
    with contextlib.suppress(ForetraceError):
        text_rows(line)


def test_look_around_is_refused_in_a_sentence() -> None:
    """RE2 has neither that nor back-references."""
    for pattern in ("a(?=b)", "(?<!a)b", r"(a)\1"):
        (change,) = parse_scenario([f"faster_kernels(pattern={pattern!r}, speedup=2)"])
        with pytest.raises(TransformError, match="do without look-around"):
            change(build(load_small()))


def load_small() -> Any:
    """Return the small recording."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as name:
        return load(write_small_trace(Path(name)))


# 3: metadata


@pytest.mark.parametrize(
    "change",
    [
        lambda pair: pair.update(noise=float("inf")),
        lambda pair: pair.update(noise=-1),
        lambda pair: pair["after"].update(mean_ns=float("nan")),
        lambda pair: pair["after"].update(mean_ns=-5),
        lambda pair: pair["before"]["facts"].update(unprofiled_step_ns=[0]),
        lambda pair: pair["before"]["facts"].update(batch_size="many"),
        lambda pair: pair["before"].update(trace=["x"]),
        lambda pair: pair.pop("device"),
    ],
)
def test_one_bad_pair_fails_one_row(change: Any, tmp_path: Path) -> None:
    """The batch goes on with the other ones."""
    rows = [evaluate([item])[0] for item in list_pairs(archive(tmp_path, change))]

    assert [row.error is None for row in rows] == [True, False]
    assert "fused.pair.json" in str(rows[1].error)


def row(**more: Any) -> Row:
    """Return a row of results."""
    times = {"before_ns": 2.0, "replayed_ns": 2.0, "predicted_ns": 1.0, "low_ns": 0.9}
    return Row(
        "a" * 32,
        "1",
        "job",
        "job",
        "amp",
        "amp",
        **(times | {"high_ns": 1.1, "samples": 1.0} | more),
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"predicted_ns": float("nan")},
        {"predicted_ns": -5.0},
        {"predicted_ns": None},
        {"noise": float("inf")},
        {"low_ns": 2.0, "high_ns": 1.0},
        {"status": "proven"},
        {"doubts": '[{"x": 1}]'},
    ],
)
def test_a_row_that_cannot_be_is_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    """Results of a batch are a stranger's file, too."""
    write_rows(tmp_path / "rows.parquet", [row(**wrong)])
    with pytest.raises(TraceError, match="row 0 is impossible"):
        read_rows(tmp_path / "rows.parquet")


def test_the_row_of_another_item_is_not_taken(tmp_path: Path) -> None:
    """A file that was renamed answers another question."""
    key = "b" * 32
    item_path(tmp_path, key).parent.mkdir()
    write_rows(item_path(tmp_path, key), [row()])

    assert read_stored(tmp_path, [key]) == {}


# 4: bounded work


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
        read_pairs(archive(tmp_path, lambda pair: pair))


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


# 5: kinds of crash


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
    write_rows(folder / "results.parquet", [row(after_ns=1.0, noise=0.0)])
    command = [sys.executable, "-m", "foretrace", "compare", os.fsdecode(os.fsencode(folder))]
    done = subprocess.run(command, capture_output=True, check=False)

    assert b"internal error" not in done.stderr
    assert b"Traceback" not in done.stderr


# 7: what killed processes leave


def test_what_a_killed_batch_left_is_swept(tmp_path: Path) -> None:
    """Files of processes that are gone; those of this one stay."""
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"],
                          capture_output=True, text=True, check=True).stdout.strip()  # fmt: skip
    left, own = (tmp_path / f".r.parquet.{owner}{MARK}x" for owner in (dead, os.getpid()))
    for path in (left, own):
        path.write_bytes(b"")
        os.utime(path, (0, 0))

    assert sweep(tmp_path) == 1
    assert own.exists()


def test_the_numpy_array_of_a_stranger_is_not_unpickled(tmp_path: Path) -> None:
    """Objects in it would be code."""
    content = io.BytesIO()
    np.save(content, np.array([{}], object), allow_pickle=True)
    (tmp_path / "x.npy").write_bytes(content.getvalue())

    assert run(["job", "convergence", str(tmp_path / "x.npy"), "--loss", "1"]) != 0
