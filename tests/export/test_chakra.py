"""Chakra execution traces: what depends on what, and for how long it runs."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from foretrace.graph.literal import literal
from foretrace.replaying.replay import replay

if TYPE_CHECKING:
    from pathlib import Path

    from foretrace.graph.model import Graph

proto = pytest.importorskip(
    "google.protobuf.proto",
    reason="protobuf is not installed: pip install 'foretrace[export]'",
)
from foretrace.export.chakra import execution_trace, export_chakra, messages  # noqa: E402

# A launch, the kernel it releases, a call that waits for the kernel, and what comes after the call.
GRAPH = literal(
    [
        ("cudaLaunchKernel", "launch", 0, 2_000, None),
        ("cudaStreamSynchronize", "sync", 0, 1_000, None),
        ("after", "host", 0, 700, None),
        ("gemm", "kernel", 1, 30_400, None),
        ("ncclDevKernel_AllReduce_Sum_f32", "collective", 1, 8_000, None),
        ("ncclDevKernel_SendRecv", "p2p", 1, 3_000, None),
    ],
    [(0, 3, "launch", 4_000), (3, 1, "return", 2_000), (0, 2, "thread", 600)],
    columns={"bytes": [np.nan, np.nan, np.nan, np.nan, 4096.0, np.nan]},
    wrap=True,
)


def read(content: bytes) -> tuple[Any, dict[int, Any]]:
    """Return the metadata and the nodes by id."""
    stream = io.BytesIO(content)
    metadata = proto.parse_length_prefixed(messages()["GlobalMetadata"], stream)
    nodes = {}
    while (node := proto.parse_length_prefixed(messages()["Node"], stream)) is not None:
        nodes[node.id] = node
    return metadata, nodes


def facts(message: Any) -> dict[str, Any]:
    """Return the attributes of a message."""
    return {each.name: getattr(each, each.WhichOneof("value")) for each in message.attr}


@pytest.fixture(scope="module")
def nodes() -> dict[int, Any]:
    """Return the nodes of the graph."""
    return read(execution_trace(replay(GRAPH), 0))[1]


def test_a_trace_says_which_schema_it_follows() -> None:
    """And where it came from."""
    metadata, _ = read(execution_trace(replay(GRAPH), 0))

    assert metadata.version == "0.0.4"
    assert facts(metadata) == {"source": "literal"}


def test_every_task_is_a_node(nodes: dict[int, Any]) -> None:
    """With its type, its place and its exact length."""
    assert [nodes[row].name for row in range(6)] == GRAPH.tasks["name"].tolist()
    assert [nodes[row].type for row in range(6)] == [4, 4, 4, 4, 7, 5]
    assert nodes[3].duration_micros == 30
    assert facts(nodes[3]) == {"duration_ns": 30_400, "is_cpu_op": False}
    assert facts(nodes[4]) == {
        "duration_ns": 8_000,
        "is_cpu_op": False,
        "comm_type": 0,
        "comm_size": 4096,
    }
    assert facts(nodes[0])["is_cpu_op"] is True


def test_a_kernel_depends_on_its_launch(nodes: dict[int, Any]) -> None:
    """Data comes from the call, order from the stream."""
    assert list(nodes[3].data_deps) == [0]
    assert list(nodes[4].ctrl_deps) == [3]


def test_what_follows_a_waiting_call_depends_on_the_work(nodes: dict[int, Any]) -> None:
    """The call itself cannot: the work may depend on it."""
    assert list(nodes[1].data_deps) == []
    assert list(nodes[2].data_deps) == [3]


def test_time_between_tasks_is_a_node(nodes: dict[int, Any]) -> None:
    """600 ns must pass after the launch."""
    [pause] = [node for number, node in nodes.items() if number >= 6]

    assert (pause.name, list(pause.ctrl_deps)) == ("pause", [0])
    assert facts(pause)["duration_ns"] == 600
    assert pause.id in nodes[2].ctrl_deps


def test_dependencies_are_of_earlier_nodes(nodes: dict[int, Any]) -> None:
    """Every one is there, and nothing waits for itself in the end."""
    import networkx as nx

    network = nx.DiGraph(
        (before, node.id)
        for node in nodes.values()
        for before in (*node.ctrl_deps, *node.data_deps)
    )

    assert set(network) <= set(nodes)
    assert nx.is_directed_acyclic_graph(network)


def test_bytes_on_the_wire_are_those_of_the_schema() -> None:
    """Field numbers and types as et_def.proto has them, written out by hand."""
    node = messages()["Node"](id=3, name="a", type=4, ctrl_deps=[1, 2], duration_micros=300)
    node.attr.add(name="is_cpu_op", bool_val=False)

    assert node.SerializeToString().hex(" ") == (
        "08 03 12 01 61 18 04 22 02 01 02 38 ac 02 52 0e 0a 09 69 73 5f 63 70 75 5f 6f 70 d8 01 00"
    )


def two_ranks() -> Graph:
    """Return a graph with a lane on each of two ranks."""
    graph = literal([("a", "host", 0, 10, None), ("b", "host", 1, 20, None)])
    return replace(graph, lanes=graph.lanes.assign(rank=np.array([0, 1], np.int16)))


def test_each_rank_has_a_file(tmp_path: Path) -> None:
    """Named as Chakra's tools expect."""
    written = export_chakra(replay(two_ranks()), tmp_path / "job.et")

    assert [path.name for path in written] == ["job.0.et", "job.1.et"]
    names = [[n.name for n in read(path.read_bytes())[1].values()] for path in written]
    assert names == [["a"], ["b"]]


def test_one_rank_has_the_file_that_was_named(tmp_path: Path) -> None:
    """Without a number in it."""
    assert export_chakra(replay(GRAPH), tmp_path / "job.et") == [tmp_path / "job.et"]


def test_a_receive_is_one() -> None:
    """By its name; anything else between two ranks is a send."""
    graph = literal([("ncclRecv", "p2p", 0, 10, None), ("nccl:gather", "collective", 0, 5, None)])
    _, found = read(execution_trace(replay(graph), 0))

    assert (found[0].type, found[1].type) == (6, 7)
    assert "comm_type" not in facts(found[1])
