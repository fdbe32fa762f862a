"""A graph for people who explore: as one readable table, or for networkx.

Both are copies. Nothing reads them back, and no stage works on them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    import networkx as nx

    from foretrace.graph.model import Graph

NODE_COLUMNS = (
    "name",
    "kind",
    "lane",
    "start_ns",
    "duration_ns",
    "work_ns",
    "step",
    "phase",
    "module",
    "operator",
)
EDGE_ATTRIBUTES = ("kind", "lag_ns", "shift", "rule")


def to_frame(graph: Graph) -> pd.DataFrame:
    """Return the tasks in recorded order, with lanes and operators by name.

    The index is the row in ``graph.tasks``. What is unknown is missing.

    >>> from foretrace.graph.literal import literal
    >>> to_frame(literal([("gemm", "kernel", 0, 10, None)]))[["name", "lane", "work_ns"]]
       name                       lane  work_ns
    0  gemm  rank 0 stream 7 (compute)       10
    """
    tasks = graph.tasks
    frame = tasks.assign(
        lane=lane_names(graph)[tasks["lane"].to_numpy()],
        operator=graph.operators["name"].reindex(tasks["operator"]).array,
    )
    return frame.sort_values("start_ns", kind="stable")


def to_networkx(graph: Graph, *, seams: bool = False) -> nx.MultiDiGraph:
    """Return the graph as networkx knows it: tasks as nodes, edges keyed by their row.

    Parameters
    ----------
    seams
        Also give the edges that lead into a later repetition of the window (``shift`` above 0);
        they make it cyclic.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> tasks = [("launch", "launch", 0, 5, None), ("gemm", "kernel", 1, 10, None)]
    >>> network = to_networkx(literal(tasks, [(0, 1, "launch", 6)]))
    >>> network.nodes[1]["name"], network.edges[0, 1, 0]["lag_ns"]
    ('gemm', 6)
    """
    import networkx as nx

    network = nx.MultiDiGraph(steps=graph.steps, measured_step_ns=graph.measured_step_ns)
    nodes = to_frame(graph).sort_index()[list(NODE_COLUMNS)]
    network.add_nodes_from(
        (row, _drop_missing(values)) for row, values in enumerate(nodes.to_dict("records"))
    )
    edges = graph.edges if seams else graph.edges[graph.edges["shift"] == 0]
    attributes = edges[list(EDGE_ATTRIBUTES)].to_dict("records")
    network.add_edges_from(
        (src, dst, row, _drop_missing(values))
        for src, dst, row, values in zip(
            edges["src"].tolist(),
            edges["dst"].tolist(),
            edges.index.tolist(),
            attributes,
            strict=True,
        )
    )
    return network


def lane_names(graph: Graph) -> Any:
    """Return a name per lane: ``rank 0 stream 7 (compute)``."""
    lanes = graph.lanes
    text = "rank " + lanes["rank"].astype(str) + " " + lanes["kind"].astype(str)
    text += " " + lanes["id"].astype(str)
    role = lanes["role"].astype(object)
    return text.where(role.isna(), text + " (" + role.astype(str) + ")").to_numpy(object)


def _drop_missing(values: dict[Any, Any]) -> dict[str, Any]:
    return {str(name): value for name, value in values.items() if not pd.isna(value)}
