"""What tests look up in the edges of a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foretrace.graph.model import Graph


def links(graph: Graph, *kinds: str) -> list[tuple[int, int, int, int]]:
    """Return (src, dst, lag, shift) of the edges of *kinds*, sorted."""
    edges = graph.edges[graph.edges["kind"].isin(kinds)]
    rows = edges[["src", "dst", "lag_ns", "shift"]].to_numpy().tolist()
    return sorted(tuple(row) for row in rows)
