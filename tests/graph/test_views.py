"""Views of a graph: what people see, and that nothing unknown is invented."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import numpy as np

from foretrace.graph.literal import literal
from foretrace.graph.views import to_frame, to_networkx

GRAPH = literal(
    [
        ("aten::mm", "host", 0, 5, "forward"),
        ("cudaLaunchKernel", "launch", 0, 5, "forward"),
        ("gemm", "kernel", 1, 10, None),
    ],
    [(1, 2, "launch", 6)],
    wrap=True,
    columns={"operator": np.array([0, 0, -1], np.int32), "start_ns": np.array([20, 30, 0])},
    operators={"name": ["aten::mm"]},
)

MAIN = "rank 0 thread 100 (main)"
STREAM = "rank 0 stream 8 (compute)"


def test_frame_is_in_recorded_order_and_names_lanes_and_operators() -> None:
    """The index still is the row in tasks."""
    frame = to_frame(GRAPH)

    assert frame.index.tolist() == [2, 0, 1]
    assert frame["lane"].tolist() == [STREAM, MAIN, MAIN]
    assert frame["operator"].isna().tolist() == [True, False, False]
    assert frame["operator"].iloc[1] == "aten::mm"
    assert list(frame.columns) == list(GRAPH.tasks.columns)


def test_a_graph_is_shown_by_its_source_its_step_and_its_size() -> None:
    """Counts of one are no plural."""
    graph = replace(GRAPH, measured_step_ns=95_657_123.0)

    assert repr(graph) == (
        "<Graph of literal: 1 step of 95.657 ms as measured\n 3 tasks, 4 edges, 1 thread, 1 stream>"
    )


def test_lanes_show_their_role() -> None:
    """Where the role is known."""
    graph = replace(GRAPH, lanes=GRAPH.lanes.assign(role=[None, "copy"]))

    assert sorted(to_frame(graph)["lane"].unique()) == [
        "rank 0 stream 8 (copy)",
        "rank 0 thread 100",
    ]


def test_networkx_graph_of_one_window_is_acyclic() -> None:
    """Seams are left out."""
    network = to_networkx(GRAPH)

    assert nx.is_directed_acyclic_graph(network)
    assert sorted(network.edges(keys=True)) == [(0, 1, 0), (1, 2, 3)]
    assert network.edges[1, 2, 3] == {"kind": "launch", "lag_ns": 6, "shift": 0, "rule": "literal"}


def test_seams_close_the_lanes() -> None:
    """Each lane's last task leads to its first, one repetition later."""
    network = to_networkx(GRAPH, seams=True)

    seams = [edge for *edge, shift in network.edges(data="shift") if shift == 1]
    assert seams == [[1, 0], [2, 2]]


def test_unknown_attributes_are_absent() -> None:
    """A kernel without operator or phase has neither attribute."""
    network = to_networkx(GRAPH)

    assert "operator" not in network.nodes[2]
    assert "phase" not in network.nodes[2]
    assert network.nodes[0]["operator"] == "aten::mm"
    assert network.nodes[0]["phase"] == "forward"
