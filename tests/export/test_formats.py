"""Graphs and timelines for other tools: read back by those tools."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import networkx as nx
import pandas as pd
import pytest

from foretrace.analysis.unchanged.baseline import run_experiment
from foretrace.errors import ForetraceError
from foretrace.export import pftrace as export_pftrace
from foretrace.export.formats import FORMATS, as_frame, as_graphml, export_as, format_of
from foretrace.graph.literal import literal
from foretrace.replaying.replay import replay
from foretrace.transforms.scenario import parse_scenario

if TYPE_CHECKING:
    from pathlib import Path

GRAPH = literal(
    [
        ("cudaLaunchKernel", "launch", 0, 2_000, None),
        ("gemm \x00<&>", "kernel", 1, 30_000, "forward"),
    ],
    [(0, 1, "launch", 4_000)],
    wrap=True,
)
FASTER = parse_scenario(["faster_kernels(speedup=2)"])


@pytest.mark.parametrize(
    ("name", "given", "found"),
    [
        ("t.json", None, "json"),
        ("t.graphml", None, "graphml"),
        ("t.PARQUET", None, "parquet"),
        ("t.unknown", None, "json"),
        ("t.json", "graphml", "graphml"),
    ],
)
def test_the_format_is_given_or_told_by_the_name(
    tmp_path: Path, name: str, given: str | None, found: str
) -> None:
    """JSON where nothing says otherwise, as ever."""
    assert format_of(tmp_path / name, given) == found


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    """The sentence lists what there is."""
    with pytest.raises(ForetraceError, match=r"'svg'.* json, pftrace, graphml, parquet, chakra"):
        format_of(tmp_path / "t.svg", "svg")


def test_what_cannot_be_written_is_known_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Perfetto's package is looked for at once."""
    monkeypatch.setattr(export_pftrace, "find_spec", lambda _name: None)

    with pytest.raises(ForetraceError, match="needs perfetto"):
        format_of(tmp_path / "t.pftrace", None)


def test_networkx_reads_the_graph() -> None:
    """Nodes with their times in the replay; what XML cannot hold is replaced."""
    read = nx.read_graphml(io.BytesIO(as_graphml(replay(GRAPH))), node_type=int)

    assert read.nodes[1]["name"] == "gemm \ufffd<&>"
    assert read.nodes[1]["replayed_end_ns"] - read.nodes[1]["replayed_start_ns"] == 30_000
    assert read.nodes[1]["phase"] == "forward"
    assert "phase" not in read.nodes[0]
    assert read.get_edge_data(0, 1) is not None


def test_pandas_reads_tasks_before_and_after(tmp_path: Path) -> None:
    """Both variants in one table, told apart."""
    path = tmp_path / "tasks.parquet"
    graph = literal([("gemm", "kernel", 0, 30_000, "forward")], wrap=True)

    assert export_as("parquet", run_experiment(graph, FASTER), path) == [path]
    read = pd.read_parquet(path)
    assert read["variant"].tolist() == ["before", "after"]
    assert read["work_ns"].tolist() == [30_000, 15_000]
    assert (read["replayed_end_ns"] - read["replayed_start_ns"]).tolist() == [30_000, 15_000]
    assert read["path_ns"].tolist() == [30_000, 15_000]


def test_a_task_beside_the_path_takes_nothing_of_it() -> None:
    """The launch hides behind the kernel of the step before."""
    assert as_frame(replay(GRAPH))["path_ns"].tolist() == [0, 30_000]


@pytest.mark.parametrize("wanted", ["json", "graphml"])
def test_each_format_is_written(tmp_path: Path, wanted: str) -> None:
    """A graph is that after the change; a timeline holds both."""
    path = tmp_path / f"t{FORMATS[wanted].suffix}"

    assert export_as(wanted, run_experiment(GRAPH, FASTER), path) == [path]
    if wanted == "json":
        assert {e["pid"] for e in json.loads(path.read_text("utf-8"))["traceEvents"]} == {1, 2}
    else:
        assert nx.read_graphml(path).nodes["1"]["work_ns"] == 15_000


@pytest.mark.parametrize("wanted", ["pftrace", "chakra"])
def test_perfettos_package_writes_the_others(tmp_path: Path, wanted: str) -> None:
    """They are read back in the tests of their modules."""
    pytest.importorskip("perfetto", reason="pip install 'foretrace[export]'")
    path = tmp_path / f"t{FORMATS[wanted].suffix}"

    assert export_as(wanted, run_experiment(GRAPH, FASTER), path) == [path]
    assert path.stat().st_size > 100
