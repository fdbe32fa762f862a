"""The all-reduces of a graph, and which tasks exchange gradients: rows of tasks as masks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.transforms.edit.columns import Mask, is_in, matches
from foretrace.transforms.edit.select import call_of, within_operator

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

ALL_REDUCE = "(?i)all_?reduce"
PREFIX = "DDP "
"""Names of the tasks that DDP adds begin so."""


def all_reduces(graph: Graph) -> Mask:
    """Return the all-reduces: by name, or by operator where kernels' names tell none."""
    named = matches(graph.tasks["name"], ALL_REDUCE) | within_operator(graph, ALL_REDUCE)
    return is_in(graph.tasks["kind"], "collective") & named


def gradient_exchanges(graph: Graph) -> Mask:
    """Return the tasks that exchange gradients: DDP's own, or recorded all-reduces of backward.

    Where others than backward launch all-reduces, as tensor parallel layers do, the recorded ones
    cannot be told apart, and none is returned.
    """
    ours = matches(graph.tasks["name"], f"^{PREFIX}")
    recorded = all_reduces(graph) & ~ours
    call = call_of(graph)
    if ours.any() or not recorded.any():
        return ours
    launched = call[recorded]
    in_backward = is_in(graph.tasks["phase"], "backward")[launched] & (launched >= 0)
    return recorded & in_backward.all()
