"""Nothing that a file says is believed: code, patterns, metadata."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest

from foretrace.analysis.prediction import predict
from foretrace.batch.items import list_pairs
from foretrace.batch.rows import item_path, read_rows, read_stored, write_rows
from foretrace.batch.worker import evaluate
from foretrace.errors import ForetraceError, GraphError, TraceError, TransformError
from foretrace.graph.build import build
from foretrace.job.convergence.log_rows import text_rows
from foretrace.tracer.readers.load import load
from foretrace.transforms.foreign_scenario import parse_foreign_scenario
from foretrace.transforms.scenario import parse_scenario
from tests.support.paths import SHARED
from tests.support.recordings.kineto import small_trace, write_small_trace
from tests.support.recordings.pairs import changed_archive, result_row

HOSTILE = SHARED / "fixtures" / "hostile"
SLOW = "faster_kernels(pattern='(.*)*(.*)*Q$', speedup=2)"


@pytest.mark.parametrize("named", ["{folder}/evil.py:run", "evil:run", "os:getcwd", "x.toml"])
def test_an_archive_runs_no_code(named: str, tmp_path: Path, monkeypatch: Any) -> None:
    """The pair that names some fails, the other one does not; nothing was imported."""
    touched = tmp_path / "touched"
    (tmp_path / "evil.py").write_text(
        f"open({str(touched)!r}, 'w')\ndef run(graph): return graph\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    scenario = named.format(folder=tmp_path)
    path = changed_archive(tmp_path, lambda pair: pair.update(scenario=scenario))

    rows = [evaluate([item])[0] for item in list_pairs(path)]

    assert not touched.exists()
    assert [row.error is None for row in rows] == [True, False]
    assert "no what-if of the list" in str(rows[1].error)


def test_an_archive_names_no_file(tmp_path: Path) -> None:
    """Neither a cluster's nor any other."""
    (tmp_path / "box.toml").write_text("")
    with pytest.raises(TransformError, match="cluster names a file"):
        parse_foreign_scenario([f"ddp(workers=2, cluster={str(tmp_path / 'box.toml')!r})"])


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
    rows = [evaluate([item])[0] for item in list_pairs(changed_archive(tmp_path, change))]

    assert [row.error is None for row in rows] == [True, False]
    assert "fused.pair.json" in str(rows[1].error)


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
    write_rows(tmp_path / "rows.parquet", [result_row(**wrong)])
    with pytest.raises(TraceError, match="row 0 is impossible"):
        read_rows(tmp_path / "rows.parquet")


def test_the_row_of_another_item_is_not_taken(tmp_path: Path) -> None:
    """A file that was renamed answers another question."""
    key = "b" * 32
    item_path(tmp_path, key).parent.mkdir()
    write_rows(item_path(tmp_path, key), [result_row()])

    assert read_stored(tmp_path, [key]) == {}
