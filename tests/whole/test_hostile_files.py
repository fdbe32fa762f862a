"""Hostile files of every kind are answered or refused in a sentence."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from foretrace.analysis.prediction import predict
from foretrace.batch.config import read_study
from foretrace.batch.items import list_items
from foretrace.batch.rows import write_rows
from foretrace.cli.app import run
from foretrace.errors import ForetraceError, RefusedError, TraceError, TransformError
from foretrace.graph.build import build
from foretrace.job.convergence.loss_log import read_losses
from foretrace.job.whole import read_job_description
from foretrace.tracer.readers.load import load
from foretrace.transforms.cluster.cost_tables import read_table
from foretrace.transforms.cluster.file import read_cluster
from foretrace.transforms.collectives.nccl_tests_log import read_log
from foretrace.transforms.scenario import load_scenario, parse_scenario
from foretrace.util.toml_file import read_toml
from tests.fuzz.seeds import parquet_parts, seeds
from tests.support.jobs.simple import gpu_job
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


@pytest.mark.parametrize("name", ["9" * 300, "x/" * 3000, "a\0b", "a\nb"])
def test_names_that_no_file_can_have_name_none(name: str, tmp_path: Path) -> None:
    """Of a recording, a cluster, code, and the samples of a job."""
    path = tmp_path / "file.toml"
    path.write_text(f"scenarios = ['amp']\n[[trace]]\npath = {json.dumps(name)}", "utf-8")
    (item,) = list_items(read_study(path), tmp_path)
    path.write_text(f"steps = 9\nsamples = {json.dumps(name)}", "utf-8")

    assert item.recording.problem
    with pytest.raises(RefusedError, match="there is no file") as refused:
        read_job_description(path)
    assert str(refused.value).isprintable()
    with pytest.raises(TransformError, match="no cluster is called"):
        read_cluster(name)
    with pytest.raises(TransformError, match="is no file"):
        parse_scenario([f"{name}.py:f"])


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no device without end here")
def test_a_device_without_end_is_no_recording(tmp_path: Path) -> None:
    """Neither in a study, whose files are hashed before they are read."""
    path = tmp_path / "study.toml"
    path.write_text("scenarios = ['amp']\n[[trace]]\npath = '/dev/zero'", "utf-8")
    (item,) = list_items(read_study(path), tmp_path)

    assert item.recording.problem == "/dev/zero: no regular file"


def test_numbers_that_no_table_can_hold_are_refused() -> None:
    """In a what-if, alone or in a list, whatever it would do with them."""
    for text in ("gist(lossy_bits=1{})", "batch_size(n=-1{})", "batch_size(n=4, other=[[1{}]])"):
        with pytest.raises(TransformError, match=r"more than 64 bits|wrong type"):
            parse_scenario([text.replace("{}", 200 * "0")])


def test_steps_a_thousand_times_longer_are_not_predicted() -> None:
    """Nor shorter: a recording tells nothing of them."""
    graph = gpu_job()
    assert predict(graph, ["faster_kernels(pattern='.', speedup=0.01)"]).predicted_ns > 0
    with pytest.raises(TransformError, match="times as long: no recording tells"):
        predict(graph, ["faster_kernels(pattern='.', speedup=1e-9)"])


def test_the_sizes_of_an_array_are_not_believed(tmp_path: Path) -> None:
    """Of more numbers than bits can count, or than there are bytes."""
    header = "{'descr': '<f8', 'fortran_order': False, 'shape': (%d,), }\n"
    for size in (10**30, 10**12):
        text = (header % size).encode()
        content = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
        (tmp_path / "x.npy").write_bytes(content)
        with pytest.raises(RefusedError, match=r"x\.npy"):
            read_losses(tmp_path / "x.npy")


def test_what_a_table_says_of_its_format_stays_in_one_line(tmp_path: Path) -> None:
    """Costs of collectives whose metadata hold a line break there."""
    table, metadata = parquet_parts(seeds()["costs"])
    (key,) = metadata
    told = {**json.loads(metadata[key]), "format": "\n"}
    changed = table.replace_schema_metadata({key: json.dumps(told)})
    pq.write_table(changed, tmp_path / "costs.parquet")
    with pytest.raises(ForetraceError, match=r"of format '\\n'"):
        read_table(tmp_path / "costs.parquet")


def test_a_rate_of_nan_tells_no_number_of_ranks(tmp_path: Path) -> None:
    """A log of nccl-tests that lists no ranks, whose bandwidths would tell them."""
    lines = [line for line in seeds()["nccl-log"].decode().splitlines() if "Rank " not in line]
    (tmp_path / "log").write_text("\n".join(lines).replace("21.40", "nan"), "utf-8")
    with pytest.raises(TraceError, match="how many ranks"):
        read_log(tmp_path / "log")
