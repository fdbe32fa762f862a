"""Faster modules: what some parts of the network compute takes a fraction of its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.transforms.edit.parameters import positive
from foretrace.transforms.edit.primitives import scale
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.select import has_device, modules_matching, on_device

if TYPE_CHECKING:
    from foretrace.graph.model import Graph


def faster_modules(graph: Graph, *, pattern: str, speedup: float) -> Graph:
    """Compute the modules that match *pattern* *speedup* times as fast, forward and backward.

    Parameters
    ----------
    graph
        The job, recorded with its modules.
    pattern
        Regular expression for whole parts of a module's path: "mlp" finds blocks.0.mlp and all
        inside it.
    speedup
        Above 0; below 1 is slower.

    Notes
    -----
    Assumes: on an accelerator the modules' kernels change and their launches stay; on a CPU their
    operators change. The optimizer and the rest of the network stay.
    Unknown: caches left warm or cold for the other modules.
    Source: the user's own figure.

    Examples
    --------
    >>> import pandas as pd
    >>> from foretrace.graph.literal import literal
    >>> graph = literal([("mm", "host", 0, 50, "forward")] * 2,
    ...                 columns={"module": pd.Categorical(["blocks.0.mlp", "head"])})
    >>> faster_modules(graph, pattern="mlp", speedup=2).tasks.work_ns.tolist()
    [25, 50]
    """
    factor = 1 / positive("speedup", speedup)
    inside, modules = modules_matching(graph, pattern)
    where = (inside >= 0) & (on_device(graph) | (not has_device(graph)))
    changed = scale(graph, where, factor, cost="user")
    text = f"faster_modules: {len(modules)} modules compute {speedup:g} times as fast"
    return add_note(changed, text)
